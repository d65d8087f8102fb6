//! Opens the store: reads and checks every file, then repairs what a power failure left incomplete.
//!
//! Owns the order of these steps. Must not change anything but the lock and a short-lived probe
//! file before every file has been checked, so that a damaged store stays as it was found. Each
//! repair may be interrupted at any point: the next start runs it again.
//!
//! The following must fit together: the newest usable snapshot, an unbroken run of segments from at
//! or before it to the end of the log, and a state file that names no later transaction as durable.
//! Older segments are not needed and may have gaps, which a purge leaves.
//!
//! If the log ends before the newest usable snapshot, that snapshot came from a leader and replaces
//! the log, which recovery removes: all its committed transactions are in the snapshot. But if the
//! state file records that the log was durable beyond the snapshot, the end of the log is missing.

use std::sync::Arc;

use zabkeeper_core::store::{DurableState, Entry, Recovered, SnapshotImage};
use zabkeeper_core::{EpochIndex, Zxid};

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

/// An open store.
pub struct Opened<V: Vfs> {
    /// The input of `Server::recover`.
    pub recovered: Recovered,
    /// Appends and state writes.
    pub log: LogLane<V>,
    /// Snapshots and purging.
    pub snapshots: SnapshotLane<V>,
    /// Reads for learners.
    pub reader: ReaderLane<V>,
    /// The repairs made.
    pub notes: Vec<Note>,
}

/// Opens the store in these directories, which may be the same, or creates one if they hold none.
///
/// # Errors
/// [`StoreError`]: the directories are in use, damaged, of a later version or of another store,
/// or the operating system reports an error.
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
        None => Slot::fresh(options.store_id),
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
    let store_id = found.state.current().store_id;
    let end = found.recovered.history.end();
    let log_end = found.state.current().log_end;
    assert!(log_end == end, "the state file says that the log ends at {log_end}, not at {end}");
    let locks_too = Arc::clone(&locks);
    Ok(Opened {
        recovered: found.recovered,
        reader: ReaderLane::new(log_dir.clone(), snapshot_dir.clone(), store_id),
        log: LogLane::new(log_dir.clone(), found.state, end, options.segment_bytes, locks_too),
        snapshots: SnapshotLane::new(log_dir, snapshot_dir, store_id, options.segment_bytes, locks),
        notes,
    })
}

/// The content of a store that [`inspect`] has read.
#[derive(Debug)]
pub struct Inspected {
    /// The state that `open` would recover.
    pub recovered: Recovered,
    /// Bytes of the torn batch at the end of the log, which `open` would remove; 0 if there is
    /// none.
    pub torn_bytes: u64,
    /// The last transaction of the log, if a leader's snapshot replaces that log.
    pub replaced: Option<Zxid>,
}

/// Reads and checks the store in these directories without repairing it. The directories are locked
/// meanwhile.
///
/// # Errors
/// Those of [`open`], and `Damaged` if there is no state file.
pub fn inspect<V: Vfs>(log_dir: V, snapshot_dir: V) -> Result<Inspected, StoreError> {
    let log_dir = Dir::new(log_dir, "log directory");
    let snapshot_dir = Dir::new(snapshot_dir, "snapshot directory");
    let _locks = lock(&log_dir, &snapshot_dir)?;
    let (log_names, snapshot_names) = (log_dir.list()?, snapshot_dir.list()?);
    let Some((mut slot, _)) = read_state(&log_dir, &log_names, &snapshot_names)? else {
        return Err(log_dir.damaged(&FileName::State.to_string(), "it is missing".to_owned()));
    };
    let (snapshots, log) = judge(&log_dir, &snapshot_dir, [&log_names, &snapshot_names], &slot)?;
    let torn_bytes = log.newest.as_ref().map_or(0, |(_, end)| end.torn);
    let replaced = log.replaced;
    slot.state.snapshot = depended_on(&slot.state, &snapshots, &log);
    Ok(Inspected { recovered: recovered(slot.state, snapshots, log), torn_bytes, replaced })
}

/// Reads and checks every file, and changes nothing.
fn judge<V: Vfs>(
    log_dir: &Dir<V>,
    snapshot_dir: &Dir<V>,
    [log_names, snapshot_names]: [&[String]; 2],
    slot: &Slot,
) -> Result<(Snapshots, Log<V>), StoreError> {
    let snapshots = Snapshots::read(snapshot_dir, snapshot_names, slot.store_id)?;
    let log = Log::read(log_dir, log_names, snapshots.base(), slot.store_id)?;
    if slot.boot.is_some() && slot.boot == log_dir.boot_id() {
        check_last_write(&log, snapshots.base())?;
    }
    check_promises(log_dir, slot, &log)?;
    Ok((snapshots, log))
}

/// The snapshot that this start will save in the state file: no truncation goes below it.
fn depended_on<V: Vfs>(state: &DurableState, snapshots: &Snapshots, log: &Log<V>) -> Zxid {
    let is_log_empty = log.newest.is_none() || log.replaced.is_some();
    // An unusable snapshot is set aside, and the server depends on an older one.
    if is_log_empty { snapshots.base() } else { state.snapshot.min(snapshots.base()) }
}

fn recovered<V: Vfs>(state: DurableState, snapshots: Snapshots, log: Log<V>) -> Recovered {
    let recovered = Recovered {
        state,
        snapshot: snapshots.image,
        entries: log.entries,
        snapshots: snapshots.usable,
        history: log.history,
    };
    check_recovered(&recovered);
    recovered
}

/// Checks what `Server::recover` relies on. It holds for any content of the files, because earlier
/// steps fail on files that do not fit together.
fn check_recovered(recovered: &Recovered) {
    let Recovered { state, snapshot, entries, snapshots, history } = recovered;
    let base = snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
    let (start, end) = (history.start(), history.end());
    assert!(start <= base, "the log begins after {start}, ahead of the snapshot at {base}");
    let last = entries.last().map_or(base, |entry| entry.zxid);
    assert!(last == end, "the entries end at {last}, and the log at {end}");
    let first = entries.first().map(|entry| entry.zxid);
    assert!(first.is_none_or(|first| first > base), "{first:?} is in the snapshot at {base}");
    let newest = snapshots.last().copied().unwrap_or(Zxid::ZERO);
    assert!(newest == base, "the newest snapshot is {newest}, and {base} is recovered");
    let named = state.snapshot;
    assert!(named <= base, "the state file names the snapshot {named}, and {base} is recovered");
    debug_assert!(entries.is_sorted_by(|one, next| one.zxid < next.zxid), "up to {last}");
    debug_assert!(snapshots.is_sorted_by(|one, next| one < next), "{snapshots:?}");
}

/// The recovered state, and the state file written for it.
struct Found<V: Vfs> {
    recovered: Recovered,
    state: StateFile<V>,
}

/// Reads and checks every file, then repairs the store.
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
    slot.state.snapshot = depended_on(&slot.state, &snapshots, &log);
    // All entries found are durable now, and the server's vote relies on them from here on.
    slot.log_end = log.history.end();
    // Removals by a killed process must be durable before the new state file is.
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

/// Locks both directories, which may be the same.
pub(crate) fn lock<V: Vfs>(log: &Dir<V>, snapshots: &Dir<V>) -> Result<Locks<V::Lock>, StoreError> {
    let in_use = |dir: &Dir<V>| StoreError::InUse { place: dir.place() };
    let held = log.try_lock()?.ok_or_else(|| in_use(log))?;
    match snapshots.try_lock()? {
        Some(second) => Ok(Locks { _log: held, _snapshots: Some(second) }),
        None if is_same(log, snapshots)? => Ok(Locks { _log: held, _snapshots: None }),
        None => Err(in_use(snapshots)),
    }
}

/// Are these the same directory? The lock of `other` is held, either through `held` or by another
/// process. A [`Vfs`] cannot compare them, so a probe file in `held` is searched in `other`.
fn is_same<V: Vfs>(held: &Dir<V>, other: &Dir<V>) -> Result<bool, StoreError> {
    let seen = || Ok(other.list()?.iter().any(|name| name == names::PROBE));
    held.create(names::PROBE)?;
    let appeared = seen()?;
    held.remove(names::PROBE)?;
    Ok(appeared && !seen()?)
}

/// The state, and whether both slots are equal; `None` if the store is new.
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

/// Fails if the recovered log ends before the transaction that the state file names as durable.
fn check_promises<V: Vfs>(dir: &Dir<V>, slot: &Slot, log: &Log<V>) -> Result<(), StoreError> {
    let promised = slot.log_end.max(slot.state.snapshot);
    let reached = match log.replaced {
        // The log was durable beyond the snapshot, so this snapshot does not replace it.
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

/// Fails if the last batch was written completely and is unreadable. Called only if the machine has
/// not been restarted since, so that the page cache kept every write. A batch whose transactions
/// are all in the snapshot is not needed.
fn check_last_write<V: Vfs>(log: &Log<V>, base: Zxid) -> Result<(), StoreError> {
    let Some((segment, End { place, unsound: Some(batch), .. })) = &log.newest else {
        return Ok(());
    };
    if batch.last.is_some_and(|last| last <= base) {
        return Ok(());
    }
    Err(segment.file.damaged(format!(
        "the batch at byte {}, behind transaction {}, is not readable, though it was written to \
         its \
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

/// The snapshots in the snapshot directory.
struct Snapshots {
    /// The newest usable snapshot.
    image: Option<SnapshotImage>,
    /// Zxids of all usable snapshots, oldest first.
    usable: Vec<Zxid>,
    /// Zxids of the unusable snapshots, and the reasons.
    unusable: Vec<(Zxid, Unusable)>,
}

impl Snapshots {
    /// Reads the newest usable snapshot in full, and the header and footer of older ones.
    fn read<V: Vfs>(
        dir: &Dir<V>,
        names: &[String],
        store_id: u64,
    ) -> Result<Snapshots, StoreError> {
        let mut found = Snapshots { image: None, usable: Vec::new(), unusable: Vec::new() };
        let mut zxids = names::snapshots(names);
        zxids.reverse();
        for zxid in zxids {
            let snapshot = match Snapshot::open(dir, zxid, store_id)? {
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

    /// The zxid of the newest usable snapshot; the log is replayed after it.
    fn base(&self) -> Zxid {
        self.image.as_ref().map_or(Zxid::ZERO, |image| image.zxid)
    }

    /// Renames unusable snapshots, so that they are neither read again nor purged.
    fn set_aside<V: Vfs>(&self, dir: &Dir<V>, notes: &mut Vec<Note>) -> Result<(), StoreError> {
        for (zxid, why) in &self.unusable {
            let (file, aside) = set_aside(dir, FileName::Snapshot(*zxid))?;
            notes.push(Note::SnapshotSetAside { file, aside, why: why.to_string() });
        }
        Ok(())
    }
}

/// Renames an unusable file, not durably yet, and returns its old and its new name.
fn set_aside<V: Vfs>(dir: &Dir<V>, name: FileName) -> Result<(String, String), StoreError> {
    let (file, aside) = (name.to_string(), name.damaged());
    dir.rename(&file, &aside)?;
    Ok((file, aside))
}

/// The content of the log.
struct Log<V: Vfs> {
    /// The entries after the snapshot.
    entries: Vec<Entry>,
    /// The zxids of the log, as far back as it has no gap; without segments it ends at the
    /// snapshot.
    history: EpochIndex,
    /// The newest segment and its end, also if the log is replaced.
    newest: Option<(Segment<V>, End)>,
    /// The last transaction of the log if the snapshot replaces it; then `entries` is empty and
    /// `history` begins at the snapshot.
    replaced: Option<Zxid>,
    /// The segments before the history.
    older: Older,
}

/// Segments before a gap or an unreadable segment: recovery does not need them, and learners cannot
/// be served from them.
#[derive(Default)]
struct Older {
    /// The unreadable segment just before the history, and the reason.
    damaged: Option<(Zxid, String)>,
    /// The segments before that one, or before a gap that a purge has left.
    apart: Vec<Zxid>,
}

impl<V: Vfs> Log<V> {
    /// Reads all segments. Damage in those that are needed after `base` is an error.
    fn read(
        dir: &Dir<V>,
        names: &[String],
        base: Zxid,
        store_id: u64,
    ) -> Result<Log<V>, StoreError> {
        let mut older = names::segments(names);
        let needed = Log::needed(dir, &mut older, base, store_id)?;
        let (entries, history) = (Vec::new(), EpochIndex::after(base));
        let mut log =
            Log { entries, history, newest: None, replaced: None, older: Older::default() };
        for first in needed {
            let segment = Segment::open(dir, first, store_id)?;
            let after = segment.header.after;
            if log.newest.is_none() {
                (log.history, log.older) = older_history(dir, &older, after, store_id)?;
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
            log.history = EpochIndex::after(base);
            // The whole log will be removed, so no older segment needs to be cleared.
            log.older = Older::default();
            log.replaced = Some(last);
        }
        let end = log.history.end();
        assert!(base <= end, "the log ends at {end}, before the snapshot at {base}");
        let kept = log.entries.len();
        assert!(log.replaced.is_none() || kept == 0, "{kept} entries follow a replaced log");
        Ok(log)
    }

    /// Splits off the segments that hold the log after `base`: their first zxids, oldest first. The
    /// oldest of them follows `base` or an earlier transaction.
    fn needed(
        dir: &Dir<V>,
        segments: &mut Vec<Zxid>,
        base: Zxid,
        store_id: u64,
    ) -> Result<Vec<Zxid>, StoreError> {
        for index in (0..segments.len()).rev() {
            let after = Segment::open(dir, segments[index], store_id)?.header.after;
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

    /// Removes or renames the segments before the history, durably. This happens before
    /// [`Self::settle`] may remove an empty newest segment: the segment before that becomes the
    /// newest then, and damage in it would fail the next start.
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

    /// Makes the entries that were read durable, and removes a torn batch.
    ///
    /// After a kill or a failed sync the last batch may be in the page cache only, marked clean, so
    /// that another sync would not write it; and overwriting it in place could tear it if it is
    /// durable. So a copy replaces the newest segment. A segment without batches is removed
    /// instead, because the next segment may begin at another transaction.
    fn settle(&self, dir: &Dir<V>, notes: &mut Vec<Note>) -> Result<(), StoreError> {
        let Some((segment, End { place, torn, .. })) = &self.newest else {
            return Ok(());
        };
        if self.replaced.is_some() {
            // The whole log will be removed.
            return Ok(());
        }
        let (last, end) = (place.last, self.history.end());
        assert!(last == end, "the newest segment ends at {last}, and the log at {end}");
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

/// The history in `segments` that ends at `end` without a gap or an unreadable segment; and the
/// segments before the gap.
fn older_history<V: Vfs>(
    dir: &Dir<V>,
    segments: &[Zxid],
    end: Zxid,
    store_id: u64,
) -> Result<(EpochIndex, Older), StoreError> {
    let mut start = end;
    let mut older = Older::default();
    // First and last zxid of each run without a gap, newest first.
    let mut runs: Vec<(Zxid, Zxid)> = Vec::new();
    for (index, first) in segments.iter().enumerate().rev() {
        match runs_of(dir, *first, store_id) {
            Ok(found) if found.end == start => {
                start = found.after;
                runs.extend(found.runs.into_iter().rev());
            }
            Ok(_) => {
                older.apart = segments[..=index].to_vec();
                break;
            }
            // Recovery needs only newer segments.
            Err(StoreError::Damaged { what, .. }) => {
                older.damaged = Some((*first, what));
                older.apart = segments[..index].to_vec();
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let mut history = EpochIndex::after(start);
    for (first, last) in runs.into_iter().rev() {
        (first.0..=last.0).for_each(|zxid| history.push(Zxid(zxid)));
    }
    assert!(history.end() == end, "older segments end at {}, not at {end}", history.end());
    Ok((history, older))
}

/// The zxids of one segment, as runs without gaps.
struct Runs {
    after: Zxid,
    end: Zxid,
    runs: Vec<(Zxid, Zxid)>,
}

fn runs_of<V: Vfs>(dir: &Dir<V>, first: Zxid, store_id: u64) -> Result<Runs, StoreError> {
    let segment = Segment::open(dir, first, store_id)?;
    let mut runs: Vec<(Zxid, Zxid)> = Vec::new();
    let end = segment.scan(|entry| match runs.last_mut() {
        Some((_, last)) if last.next() == Some(entry.zxid) => *last = entry.zxid,
        Some(_) | None => runs.push((entry.zxid, entry.zxid)),
    })?;
    Ok(Runs { after: segment.header.after, end: end.place.last, runs })
}
