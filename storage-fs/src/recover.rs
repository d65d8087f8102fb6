//! Opening the store: read everything, judge it, mend what a power failure left half done.
//!
//! Owns the order of that. Nothing but the lock and a short-lived probe file is changed before everything has been
//! judged, so a damaged store stays as it was found; every change can be cut off at any point and is then found to do
//! again.
//!
//! What must fit together: the newest usable snapshot, an unbroken run of segments from before it to the end of the
//! log, and a state file that promises no more than these hold. What is older says nothing that is needed: it may be
//! full of holes, which a purge leaves.
//!
//! A log that ends before the newest usable snapshot is one that a leader's snapshot takes the place of: it counts for
//! nothing and is removed. Whatever it has acknowledged and was committed is in that snapshot. Where the state file says that
//! the log had gone beyond the snapshot, the end of the log is missing.

use std::sync::Arc;

use zabkeeper_core::store::{DurableState, Entry, Recovered, SnapshotImage};
use zabkeeper_core::{History, Zxid};

use crate::cut;
use crate::dir::Dir;
use crate::error::StoreError;
use crate::lane::SnapshotLane;
use crate::log::LogLane;
use crate::names::{self, FileName};
use crate::note::Note;
use crate::read::ReaderLane;
use crate::scan::{End, Segment};
use crate::segment::FIRST_BATCH;
use crate::snapshot::{Snapshot, Unusable};
use crate::state::{self, Slot, StateFile};
use crate::vfs::Vfs;
use crate::{Locks, Options};

/// A store that is ready for work.
pub struct Opened<V: Vfs> {
    /// For `Server::recover`.
    pub recovered: Recovered,
    /// Appends and state writes.
    pub log: LogLane<V>,
    /// Snapshots and purging.
    pub snapshots: SnapshotLane<V>,
    /// Reads for learners.
    pub reader: ReaderLane<V>,
    /// What was found and mended.
    pub notes: Vec<Note>,
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
                notes.push(Note::StateSlotLost);
            }
            if slot.state.differs.is_some() {
                let what = "a leader has found that the history here is not the ensemble's";
                return Err(log_dir.damaged(&FileName::State.to_string(), what.to_owned()));
            }
            slot
        }
    };
    let names = [&log_names[..], &snapshot_names[..]];
    let found = mend(&log_dir, &snapshot_dir, names, slot, &mut notes)?;
    let cluster = found.state.current().cluster;
    let end = found.recovered.history.end();
    let locks_too = Arc::clone(&locks);
    Ok(Opened {
        recovered: found.recovered,
        reader: ReaderLane::new(log_dir.clone(), snapshot_dir.clone(), cluster),
        log: LogLane::new(log_dir.clone(), found.state, end, options.segment_bytes, locks_too),
        snapshots: SnapshotLane::new(log_dir, snapshot_dir, cluster, options.segment_bytes, locks),
        notes,
    })
}

/// A store as it lies on the disk.
#[derive(Debug)]
pub struct Inspected {
    /// What `open` would recover.
    pub recovered: Recovered,
    /// Bytes behind the last whole batch of the log, which an open cuts off.
    pub torn_bytes: u64,
    /// Where the log ends that a leader's snapshot takes the place of, if it does.
    pub replaced: Option<Zxid>,
}

/// Reads and judges the store in these directories, and changes nothing. The directories are locked meanwhile.
///
/// # Errors
/// As [`open`]; and where there is no store.
pub fn inspect<V: Vfs>(log_dir: V, snapshot_dir: V) -> Result<Inspected, StoreError> {
    let log_dir = Dir::new(log_dir, "log directory");
    let snapshot_dir = Dir::new(snapshot_dir, "snapshot directory");
    let _locks = lock(&log_dir, &snapshot_dir)?;
    let (log_names, snapshot_names) = (log_dir.list()?, snapshot_dir.list()?);
    let Some((slot, _)) = read_state(&log_dir, &log_names, &snapshot_names)? else {
        return Err(log_dir.damaged(&FileName::State.to_string(), "it is missing".to_owned()));
    };
    let (snapshots, log) = judge(&log_dir, &snapshot_dir, [&log_names, &snapshot_names], &slot)?;
    let torn_bytes = log.newest.as_ref().map_or(0, |(_, end)| end.torn);
    let replaced = log.replaced;
    Ok(Inspected { recovered: recovered(slot.state, snapshots, log), torn_bytes, replaced })
}

/// Reads everything and judges it; nothing is changed.
fn judge<V: Vfs>(
    log_dir: &Dir<V>,
    snapshot_dir: &Dir<V>,
    [log_names, snapshot_names]: [&[String]; 2],
    slot: &Slot,
) -> Result<(Snapshots, Log<V>), StoreError> {
    let snapshots = Snapshots::read(snapshot_dir, snapshot_names, slot.cluster)?;
    let log = Log::read(log_dir, log_names, snapshots.base(), slot.cluster)?;
    if slot.boot.is_some() && slot.boot == log_dir.boot_id() {
        check_last_write(&log, snapshots.base())?;
    }
    check_promises(log_dir, slot, &log)?;
    Ok((snapshots, log))
}

fn recovered<V: Vfs>(state: DurableState, snapshots: Snapshots, log: Log<V>) -> Recovered {
    Recovered {
        state,
        snapshot: snapshots.image,
        entries: log.entries,
        snapshots: snapshots.usable,
        history: log.history,
    }
}

/// What an open has found, and the state file that was written for it.
struct Found<V: Vfs> {
    recovered: Recovered,
    state: StateFile<V>,
}

/// Reads and judges everything, then mends it.
fn mend<V: Vfs>(
    log_dir: &Dir<V>,
    snapshot_dir: &Dir<V>,
    [log_names, snapshot_names]: [&[String]; 2],
    mut slot: Slot,
    notes: &mut Vec<Note>,
) -> Result<Found<V>, StoreError> {
    let names = [log_names, snapshot_names];
    let (snapshots, log) = judge(log_dir, snapshot_dir, names, &slot)?;
    slot.boot = log_dir.boot_id();

    remove_unfinished(log_dir, log_names, is_of_log)?;
    remove_unfinished(snapshot_dir, snapshot_names, is_of_snapshots)?;
    snapshots.set_aside(snapshot_dir, notes)?;
    snapshot_dir.sync()?;
    log.clear_older(log_dir, notes)?;
    log.settle(log_dir, notes)?;
    if log.newest.is_none() || log.replaced.is_some() {
        // From here on the snapshot is all there is.
        slot.state.snapshot = snapshots.base();
    }
    // All that was found is durable now, and the server vouches for it from here on.
    slot.log_end = log.history.end();
    // What a killed process has removed must not come back behind a state file that says more.
    log_dir.sync()?;
    let state = StateFile::create(log_dir, slot)?;
    if let Some(end) = log.replaced {
        cut::remove_log(log_dir, log_names)?;
        notes.push(Note::LogReplaced { end, snapshot: snapshots.base() });
    }
    Ok(Found { recovered: recovered(state.current().state.clone(), snapshots, log), state })
}

fn is_of_log(name: FileName) -> bool {
    match name {
        FileName::State | FileName::Log(_) => true,
        FileName::Snapshot(_) => false,
    }
}

fn is_of_snapshots(name: FileName) -> bool {
    !is_of_log(name)
}

/// Locks both directories, of which the second may be the first.
pub(crate) fn lock<V: Vfs>(log: &Dir<V>, snapshots: &Dir<V>) -> Result<Locks<V::Lock>, StoreError> {
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
fn check_promises<V: Vfs>(dir: &Dir<V>, slot: &Slot, log: &Log<V>) -> Result<(), StoreError> {
    let promised = slot.log_end.max(slot.state.snapshot);
    let reached = match log.replaced {
        // It had gone beyond the snapshot once, so that cannot be what takes its place.
        Some(end) if slot.log_end > log.history.end() => end,
        Some(_) | None => log.history.end(),
    };
    if reached >= promised {
        return Ok(());
    }
    let lost = format!("ends with transaction {reached}, though {promised} was durable once");
    Err(match &log.newest {
        Some((segment, End { place, .. })) => segment
            .file
            .damaged(format!("what is readable of it ends at byte {} and {lost}", place.offset)),
        None => dir.damaged("the log", format!("what is readable of it {lost}")),
    })
}

/// Only the process has ended since the log was last written, and nothing that it wrote is lost with it: a batch that was
/// written to its end is sound. One that the snapshot holds is not needed.
fn check_last_write<V: Vfs>(log: &Log<V>, base: Zxid) -> Result<(), StoreError> {
    let Some((segment, End { place, unsound: Some(batch), .. })) = &log.newest else {
        return Ok(());
    };
    if batch.last.is_some_and(|last| last <= base) {
        return Ok(());
    }
    Err(segment.file.damaged(format!(
        "the batch at byte {}, behind transaction {}, is not readable, though it was written to its \
         end and the machine has not been started again since",
        place.offset, place.last
    )))
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
    fn set_aside<V: Vfs>(&self, dir: &Dir<V>, notes: &mut Vec<Note>) -> Result<(), StoreError> {
        for (zxid, why) in &self.unusable {
            let (file, aside) = set_aside(dir, FileName::Snapshot(*zxid))?;
            notes.push(Note::SnapshotSetAside { file, aside, why: why.to_string() });
        }
        Ok(())
    }
}

/// Renames what cannot be used; gives both names. It is not durable yet.
fn set_aside<V: Vfs>(dir: &Dir<V>, name: FileName) -> Result<(String, String), StoreError> {
    let (file, aside) = (name.to_string(), name.damaged());
    dir.rename(&file, &aside)?;
    Ok((file, aside))
}

/// What the log holds.
struct Log<V: Vfs> {
    /// What comes after the snapshot.
    entries: Vec<Entry>,
    /// All of it, as far back as it is unbroken; its end is the snapshot where there is no segment.
    history: History,
    /// The newest segment and where it ends, of a log that counts for nothing, too.
    newest: Option<(Segment<V>, End)>,
    /// Where it ended, if that is before the snapshot; then it counts for nothing, and nothing of it is above.
    replaced: Option<Zxid>,
    /// What lies before the history.
    older: Older,
}

/// Segments that nobody needs, and from which no learner can be served.
#[derive(Default)]
struct Older {
    /// The one that ends the history because it cannot be read, and why.
    damaged: Option<(Zxid, String)>,
    /// Those before it, or before a gap that a purge has left.
    apart: Vec<Zxid>,
}

impl<V: Vfs> Log<V> {
    /// Reads all segments. Those from the one that follows `base` or something before it have to be sound.
    fn read(
        dir: &Dir<V>,
        names: &[String],
        base: Zxid,
        cluster: u64,
    ) -> Result<Log<V>, StoreError> {
        let mut older = names::segments(names);
        let needed = Log::needed(dir, &mut older, base, cluster)?;
        let (entries, history) = (Vec::new(), History::after(base));
        let mut log =
            Log { entries, history, newest: None, replaced: None, older: Older::default() };
        for first in needed {
            let segment = Segment::open(dir, first, cluster)?;
            let after = segment.header.after;
            if log.newest.is_none() {
                (log.history, log.older) = older_history(dir, &older, after, cluster)?;
            } else if after != log.history.end() {
                return Err(segment.file.damaged(format!(
                    "it follows transaction {after}, but the segment before it ends at {}",
                    log.history.end()
                )));
            }
            let end = segment.scan(|entry| {
                log.history.push(entry.zxid);
                if entry.zxid > base {
                    log.entries.push(entry);
                }
            })?;
            log.newest = Some((segment, end));
        }
        let last = log.history.end();
        if last < base {
            log.history = History::after(base);
            // All of it goes.
            log.older = Older::default();
            log.replaced = Some(last);
        }
        Ok(log)
    }

    /// Takes out the segments that are needed to go on from `base`: their first transactions, oldest first.
    fn needed(
        dir: &Dir<V>,
        segments: &mut Vec<Zxid>,
        base: Zxid,
        cluster: u64,
    ) -> Result<Vec<Zxid>, StoreError> {
        for index in (0..segments.len()).rev() {
            let after = Segment::open(dir, segments[index], cluster)?.header.after;
            if after <= base {
                return Ok(segments.split_off(index));
            }
            if index == 0 {
                let what = format!(
                    "it begins behind transaction {after}, but the newest usable snapshot is at \
                     {base}"
                );
                return Err(dir.damaged("the log", what));
            }
        }
        Ok(Vec::new())
    }

    /// Takes away what lies before the history, durably: where the newest segment turns out to hold nothing, and goes, the
    /// one before it is the newest, of which everything is asked that is asked of the end of a log.
    fn clear_older(&self, dir: &Dir<V>, notes: &mut Vec<Note>) -> Result<(), StoreError> {
        let Older { damaged, apart } = &self.older;
        for first in apart {
            dir.remove(&FileName::Log(*first).to_string())?;
        }
        if let Some((first, why)) = damaged {
            let (file, aside) = set_aside(dir, FileName::Log(*first))?;
            notes.push(Note::OldSegmentSetAside { file, aside, why: why.clone() });
        }
        if damaged.is_some() || !apart.is_empty() {
            dir.sync()?;
        }
        Ok(())
    }

    /// Makes durable what was read and drops what was torn.
    ///
    /// A process that was killed, or whose sync failed, may have left its last batch in the page cache alone, where
    /// even a sync would take it for written; and to write over it in place would risk it if it is durable. So the
    /// newest segment is replaced by a copy; or removed, where it holds nothing, because the next one may begin at
    /// any other transaction.
    fn settle(&self, dir: &Dir<V>, notes: &mut Vec<Note>) -> Result<(), StoreError> {
        let Some((segment, End { place, torn, .. })) = &self.newest else {
            return Ok(());
        };
        if self.replaced.is_some() {
            // All of it goes.
            return Ok(());
        }
        let name = segment.file.name();
        if *torn > 0 {
            let (offset, file) = (place.offset, name.to_owned());
            notes.push(Note::TornBatch { bytes: *torn, offset, file });
        }
        if place.offset == FIRST_BATCH {
            return dir.remove(name);
        }
        cut::shorten(dir, segment, place.offset, &[])
    }
}

/// What these segments hold of the log that goes on after `end`, as far back as it is unbroken; and what lies before that.
fn older_history<V: Vfs>(
    dir: &Dir<V>,
    segments: &[Zxid],
    end: Zxid,
    cluster: u64,
) -> Result<(History, Older), StoreError> {
    let mut start = end;
    let mut older = Older::default();
    // First and last zxids without a gap between, newest first.
    let mut runs: Vec<(Zxid, Zxid)> = Vec::new();
    for (index, first) in segments.iter().enumerate().rev() {
        match runs_of(dir, *first, cluster) {
            Ok(found) if found.end == start => {
                start = found.after;
                runs.extend(found.runs.into_iter().rev());
            }
            Ok(_) => {
                older.apart = segments[..=index].to_vec();
                break;
            }
            // What a server needs for itself is in newer ones.
            Err(StoreError::Damaged { what, .. }) => {
                older.damaged = Some((*first, what));
                older.apart = segments[..index].to_vec();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let mut history = History::after(start);
    for (first, last) in runs.into_iter().rev() {
        (first.0..=last.0).for_each(|zxid| history.push(Zxid(zxid)));
    }
    Ok((history, older))
}

/// The zxids of one segment.
struct Runs {
    after: Zxid,
    end: Zxid,
    runs: Vec<(Zxid, Zxid)>,
}

fn runs_of<V: Vfs>(dir: &Dir<V>, first: Zxid, cluster: u64) -> Result<Runs, StoreError> {
    let segment = Segment::open(dir, first, cluster)?;
    let mut runs: Vec<(Zxid, Zxid)> = Vec::new();
    let end = segment.scan(|entry| match runs.last_mut() {
        Some((_, last)) if last.next() == Some(entry.zxid) => *last = entry.zxid,
        Some(_) | None => runs.push((entry.zxid, entry.zxid)),
    })?;
    Ok(Runs { after: segment.header.after, end: end.place.last, runs })
}
