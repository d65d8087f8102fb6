//! Opening the store: read everything, judge it, mend what a power failure left half done.
//!
//! Owns the order of that. Nothing but the lock and a short-lived probe file is changed before everything has been
//! judged, so a damaged store stays as it was found; every change can be cut off at any point and is then found to do
//! again.
//!
//! What must fit together: the newest usable snapshot, an unbroken run of segments from before it to the end of the
//! log, and a state file that promises no more than these hold.

use std::sync::Arc;

use zabkeeper_core::Zxid;
use zabkeeper_core::io::{Entry, Recovered, SnapshotImage};

use crate::dir::Dir;
use crate::error::StoreError;
use crate::lane::SnapshotLane;
use crate::log::LogLane;
use crate::names::{self, FileName};
use crate::scan::{End, Segment};
use crate::snapshot::{Snapshot, Unusable};
use crate::state::{self, Slot, StateFile};
use crate::vfs::Vfs;
use crate::{Locks, Options};

/// How much of a segment is copied at a time.
const COPY_BYTES: usize = 1 << 20;

const CUT_SHORT: &str =
    "a save of the state file was cut short, or one of its slots is damaged: the other one holds";

/// A store that is ready for work.
pub struct Opened<V: Vfs> {
    /// For `Server::recover`.
    pub recovered: Recovered,
    /// Appends and state writes.
    pub log: LogLane<V>,
    /// Snapshots and purging.
    pub snapshots: SnapshotLane<V>,
    /// For the operator: what was found and mended, a sentence each.
    pub notes: Vec<String>,
}

/// Opens the store in these directories, which may be one and the same, or begins a new one where they are empty.
///
/// # Errors
/// [`StoreError`]: the directories are in use, damaged, of a later version or another cluster's, or the operating
/// system refuses.
pub fn open<V: Vfs>(
    log_dir: V,
    snapshot_dir: V,
    options: Options,
) -> Result<Opened<V>, StoreError> {
    let log_dir = Dir::new(log_dir, "log directory");
    let snapshot_dir = Dir::new(snapshot_dir, "snapshot directory");
    let locks = Arc::new(lock(&log_dir, &snapshot_dir)?);
    let log_names = log_dir.list()?;
    let snapshot_names = snapshot_dir.list()?;
    let mut notes = Vec::new();

    let slot = match read_state(&log_dir, &log_names, &snapshot_names)? {
        None => Slot::fresh(options.cluster_id),
        Some((slot, alike)) => {
            if !alike {
                notes.push(CUT_SHORT.to_owned());
            }
            slot
        }
    };
    let snapshots = Snapshots::read(&snapshot_dir, &snapshot_names, slot.cluster)?;
    let log = Log::read(&log_dir, &log_names, snapshots.base(), slot.cluster)?;
    check_promises(&log_dir, &slot, snapshots.base().max(log.last))?;

    remove_unfinished(&log_dir, &log_names, |name| !matches!(name, FileName::Snapshot(_)))?;
    remove_unfinished(&snapshot_dir, &snapshot_names, |n| matches!(n, FileName::Snapshot(_)))?;
    snapshots.set_aside(&snapshot_dir, &mut notes)?;
    let (entries, log_end) = log.settle(&log_dir, &mut notes)?;
    // This also makes the names of all that was settled before durable.
    let state = StateFile::create(&log_dir, slot.clone())?;
    snapshot_dir.sync()?;

    Ok(Opened {
        recovered: Recovered {
            state: slot.state,
            snapshot: snapshots.image,
            entries,
            snapshots: snapshots.usable,
        },
        log: LogLane::new(
            log_dir.clone(),
            state,
            log_end,
            options.segment_bytes,
            Arc::clone(&locks),
        ),
        snapshots: SnapshotLane::new(log_dir, snapshot_dir, slot.cluster, locks),
        notes,
    })
}

/// Locks both directories, of which the second may be the first.
fn lock<V: Vfs>(log: &Dir<V>, snapshots: &Dir<V>) -> Result<Locks<V::Lock>, StoreError> {
    let in_use = |dir: &Dir<V>| StoreError::InUse { place: dir.place() };
    let held = log.try_lock()?.ok_or_else(|| in_use(log))?;
    match snapshots.try_lock()? {
        Some(second) => Ok(Locks { _log: held, _snapshots: Some(second) }),
        None if is_same(log, snapshots)? => Ok(Locks { _log: held, _snapshots: None }),
        None => Err(in_use(snapshots)),
    }
}

/// Are these one directory? The lock of the second is taken, and it matters whether by us. A [`Vfs`] cannot tell, so
/// a file is put into the first, which we hold, and looked for in the second.
fn is_same<V: Vfs>(held: &Dir<V>, other: &Dir<V>) -> Result<bool, StoreError> {
    let seen = || Ok(other.list()?.iter().any(|name| name == names::PROBE));
    held.create(names::PROBE)?;
    let appeared = seen()?;
    held.remove(names::PROBE)?;
    Ok(appeared && !seen()?)
}

/// The state, and whether both slots hold it; `None` where this is a new store.
fn read_state<V: Vfs>(
    dir: &Dir<V>,
    log_names: &[String],
    snapshot_names: &[String],
) -> Result<Option<(Slot, bool)>, StoreError> {
    let mut found = None;
    for name in log_names.iter().chain(snapshot_names) {
        match FileName::parse(name) {
            Some(FileName::Log(_) | FileName::Snapshot(_)) => found = Some(name),
            Some(FileName::State) | None => {}
        }
    }
    let state = FileName::State.to_string();
    match found {
        _ if log_names.contains(&state) => state::read(dir).map(Some),
        None => Ok(None),
        Some(other) => Err(dir.damaged(&state, format!("it is missing, though there is {other}"))),
    }
}

/// The state file was written when the log had reached some point; what was recovered must reach it, too.
fn check_promises<V: Vfs>(dir: &Dir<V>, slot: &Slot, reached: Zxid) -> Result<(), StoreError> {
    let promised = slot.log_end.max(slot.state.snapshot);
    if reached < promised {
        let what = format!(
            "transaction {promised} was durable once, and what is readable ends at {reached}"
        );
        return Err(dir.damaged("the log", what));
    }
    Ok(())
}

fn remove_unfinished<V: Vfs>(
    dir: &Dir<V>,
    names: &[String],
    is_here: impl Fn(FileName) -> bool,
) -> Result<(), StoreError> {
    for name in names {
        if names::unfinished(name).is_some_and(&is_here) {
            dir.remove(name)?;
        }
    }
    Ok(())
}

/// What the snapshot directory holds.
struct Snapshots {
    /// The newest usable one.
    image: Option<SnapshotImage>,
    /// All usable ones, oldest first.
    usable: Vec<Zxid>,
    /// The others, and why.
    unusable: Vec<(Zxid, Unusable)>,
}

impl Snapshots {
    /// Reads the newest usable snapshot in full; of older ones header and footer.
    fn read<V: Vfs>(dir: &Dir<V>, names: &[String], cluster: u64) -> Result<Snapshots, StoreError> {
        let mut found = Snapshots { image: None, usable: Vec::new(), unusable: Vec::new() };
        let mut zxids = names::snapshots(names);
        zxids.reverse();
        for zxid in zxids {
            let snapshot = match Snapshot::open(dir, zxid, cluster)? {
                Ok(snapshot) => snapshot,
                Err(why) => {
                    found.unusable.push((zxid, why));
                    continue;
                }
            };
            if found.image.is_none() {
                match snapshot.chunks()? {
                    Ok(chunks) => found.image = Some(SnapshotImage { zxid, chunks }),
                    Err(why) => {
                        found.unusable.push((zxid, why));
                        continue;
                    }
                }
            }
            found.usable.push(zxid);
        }
        found.usable.reverse();
        Ok(found)
    }

    /// Where the log takes over.
    fn base(&self) -> Zxid {
        self.image.as_ref().map_or(Zxid::ZERO, |image| image.zxid)
    }

    /// Renames what cannot be used, so that it is neither tried again nor purged.
    fn set_aside<V: Vfs>(&self, dir: &Dir<V>, notes: &mut Vec<String>) -> Result<(), StoreError> {
        for (zxid, why) in &self.unusable {
            let name = FileName::Snapshot(*zxid);
            dir.rename(&name.to_string(), &name.damaged())?;
            notes.push(format!(
                "{name} is damaged ({why}): set aside as {}, recovered from an older snapshot and \
                 the log",
                name.damaged()
            ));
        }
        Ok(())
    }
}

/// What the log holds.
struct Log<V: Vfs> {
    /// What comes after the snapshot.
    entries: Vec<Entry>,
    /// The last transaction, or the snapshot's where there is no segment.
    last: Zxid,
    /// The newest segment and where it ends.
    newest: Option<(Segment<V>, End)>,
}

impl<V: Vfs> Log<V> {
    /// Reads the segments from the one that follows `base` or something before it: older ones say nothing new.
    fn read(
        dir: &Dir<V>,
        names: &[String],
        base: Zxid,
        cluster: u64,
    ) -> Result<Log<V>, StoreError> {
        let mut log = Log { entries: Vec::new(), last: base, newest: None };
        for first in Log::needed(dir, names, base, cluster)? {
            let segment = Segment::open(dir, first, cluster)?;
            let after = segment.header.after;
            if log.newest.is_some() && after != log.last {
                return Err(segment.file.damaged(format!(
                    "it follows transaction {after}, but the segment before it ends at {}",
                    log.last
                )));
            }
            let end = segment.scan(base, &mut log.entries)?;
            log.last = end.last;
            log.newest = Some((segment, end));
        }
        if log.last < base {
            let what = format!("it ends at {}, before the snapshot at {base}", log.last);
            return Err(dir.damaged("the log", what));
        }
        Ok(log)
    }

    /// First transactions of the segments that are needed to go on from `base`, oldest first.
    fn needed(
        dir: &Dir<V>,
        names: &[String],
        base: Zxid,
        cluster: u64,
    ) -> Result<Vec<Zxid>, StoreError> {
        let mut needed = names::segments(names);
        for index in (0..needed.len()).rev() {
            let after = Segment::open(dir, needed[index], cluster)?.header.after;
            if after <= base {
                return Ok(needed.split_off(index));
            }
            if index == 0 {
                let what = format!(
                    "it begins behind transaction {after}, but the newest usable snapshot is at \
                     {base}"
                );
                return Err(dir.damaged("the log", what));
            }
        }
        Ok(needed)
    }

    /// Makes durable what was read and drops what was torn. Returns the entries and the last transaction.
    ///
    /// A process that was killed, or whose sync failed, may have left its last batch in the page cache alone, where
    /// even a sync would take it for written; and to write over it in place would risk it if it is durable. So the
    /// newest segment is replaced by a copy.
    fn settle(
        self,
        dir: &Dir<V>,
        notes: &mut Vec<String>,
    ) -> Result<(Vec<Entry>, Zxid), StoreError> {
        if let Some((segment, end)) = &self.newest {
            let name = segment.file.name();
            if end.torn > 0 {
                notes.push(format!(
                    "cut a torn batch of {} bytes at byte {} of {name}: it was never acknowledged",
                    end.torn, end.offset
                ));
            }
            copy(dir, segment, end.offset)?;
        }
        Ok((self.entries, self.last))
    }
}

/// Replaces a segment by a copy of its first `size` bytes.
fn copy<V: Vfs>(dir: &Dir<V>, segment: &Segment<V>, size: u64) -> Result<(), StoreError> {
    let mut copy = dir.create(&FileName::Log(segment.header.first).unfinished())?;
    let mut window = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let read = segment.file.read_at(at, &mut window[..length])?;
        // Of the zeros that align the end some may be missing.
        window[read..length].fill(0);
        copy.write_at(at, &window[..length])?;
        at += length as u64;
    }
    copy.sync()?;
    copy.publish(segment.file.name().to_owned())
}
