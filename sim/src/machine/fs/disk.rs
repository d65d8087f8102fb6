//! The disk of one simulated server: folders, files, and the duration of operations.
//!
//! Owns the state of the file system and the timeline of a worker's operations. Must not decide
//! what survives a crash (`crash` does) nor when one happens (the world does).
//!
//! Invariants: an operation begins where the previous one of the same worker ended, and takes an
//! interval of virtual time. Its effect is visible to programs at once, but durable only once a
//! sync that began after the operation has ended. So the operations of one blocking call never
//! become durable at one instant.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU128;
use std::rc::Rc;

use bytes::Bytes;
use storage_fs::vfs::BootId;
use zabkeeper_core::Instant;

use super::content::{Change, File, Span};
use super::folder::{FileId, Folder, FolderId, NameChange};
use super::ops::{FsyncFault, Op, OpKind, Pace};
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;

/// `EMFILE` on Linux.
const TOO_MANY_FILES: i32 = 24;

/// Maximum duration of a slowed operation, ns.
const SLOWEST: u64 = 10_000_000_000;

/// Injected disk faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// The next write fails after a part of its bytes.
    pub write_error: bool,
    /// The next file sync fails; later syncs do not cover the pages that it covered.
    pub sync_error: Option<FsyncFault>,
    /// Bytes that all files together may have.
    pub capacity: Option<u64>,
    /// Until then there is no room for snapshots.
    pub snapshots_full_until: Instant,
    /// Bytes that snapshots may have meanwhile; `None`: creating one fails for lack of a file
    /// descriptor.
    pub snapshots_capacity: Option<u64>,
    /// Syncs do not end before this time.
    pub stalled_until: Instant,
    /// Operations that begin before this time take `slowness` times as long.
    pub slow_until: Instant,
    /// See `slow_until`.
    pub slowness: u64,
}

impl DiskFaults {
    /// The end of a fault's effect, for faults that end by themselves.
    pub fn until(&self, fault: Fault) -> Option<Instant> {
        let slow = (fault == Fault::DiskSlow).then_some(self.slow_until);
        let full = (fault == Fault::DiskSnapshotsFull).then_some(self.snapshots_full_until);
        slow.or(full).or((fault == Fault::DiskStall).then_some(self.stalled_until))
    }
}

/// The disk.
#[derive(Clone, Debug)]
pub struct Disk {
    pub(super) folders: [Folder; 2],
    pub(super) files: BTreeMap<FileId, File>,
    next_file: u64,
    /// Files with syncs that had not ended at the last settling.
    pub(super) syncing: BTreeSet<FileId>,
    /// Files without a visible name: the only candidates for removal.
    nameless: BTreeSet<FileId>,
    /// Start time of the next operation.
    cursor: Instant,
    pub(super) rng: Rng,
    pace: Pace,
    /// Injected faults.
    pub faults: DiskFaults,
    /// The operation whose injected error was returned: the page cache is no longer trustworthy.
    failed: Option<OpKind>,
    ops: Vec<Op>,
    recording: bool,
    /// The boot id of the machine, which changes with each power failure.
    boot: NonZeroU128,
}

impl Disk {
    /// Draws from this stream from now on.
    pub fn draw_anew(&mut self, rng: Rng) {
        self.rng = rng;
    }

    /// An empty disk.
    pub fn new(rng: Rng, pace: Pace) -> Disk {
        Disk {
            folders: [Folder::default(), Folder::default()],
            files: BTreeMap::new(),
            next_file: 0,
            syncing: BTreeSet::new(),
            nameless: BTreeSet::new(),
            cursor: Instant(0),
            rng,
            pace,
            faults: DiskFaults::default(),
            failed: None,
            ops: Vec::new(),
            recording: true,
            boot: NonZeroU128::MIN,
        }
    }

    /// A copy with other contents, on which no sync is in progress. [`Disk::collect_all`] completes
    /// it.
    pub(super) fn with(&self, folders: [Folder; 2], files: BTreeMap<FileId, File>) -> Disk {
        Disk {
            folders,
            files,
            next_file: self.next_file,
            syncing: BTreeSet::new(),
            nameless: BTreeSet::new(),
            cursor: self.cursor,
            rng: self.rng.clone(),
            pace: self.pace,
            faults: self.faults,
            failed: self.failed,
            ops: Vec::new(),
            recording: self.recording,
            boot: self.boot,
        }
    }

    /// The boot id.
    pub(super) fn boot(&self) -> BootId {
        BootId(self.boot)
    }

    /// Begins a new boot, after a power failure.
    pub(super) fn reboot(&mut self) {
        self.boot = self.boot.saturating_add(1);
    }

    /// A worker begins at `now`: its operations are timed from here.
    pub fn begin(&mut self, now: Instant) {
        self.settle(now);
        self.cursor = now;
        assert!(self.ops.is_empty(), "the operations before were not taken");
    }

    /// When the worker's last operation ends.
    pub fn cursor(&self) -> Instant {
        self.cursor
    }

    /// The operations since [`Disk::begin`].
    pub fn take_ops(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.ops)
    }

    /// The intervals of the operations since [`Disk::begin`].
    pub fn spans(&self) -> Vec<Span> {
        self.ops.iter().map(|op| op.span).collect()
    }

    /// The operation whose injected error was returned to the store, if any.
    pub fn failed(&self) -> Option<OpKind> {
        self.failed
    }

    /// Removes all injected faults and the record of a failure.
    pub fn mend(&mut self) {
        self.faults = DiskFaults::default();
        self.failed = None;
    }

    /// Removes all files and names. There must be no open handle.
    pub fn wipe(&mut self) {
        self.folders = [Folder::default(), Folder::default()];
        self.files.clear();
        self.syncing.clear();
        self.nameless.clear();
    }

    /// Removes injected faults, and limits latencies to usual ones. The record of a failure stays.
    pub fn calm(&mut self) {
        self.faults = DiskFaults::default();
        self.pace = self.pace.calm();
    }

    /// Makes operations instantaneous and unrecorded, for copies that are only examined.
    pub(super) fn examine(&mut self) {
        self.pace = Pace::INSTANT;
        self.faults = DiskFaults::default();
        self.recording = false;
        self.ops.clear();
    }

    /// From `now` on operations have equal durations, no faults, and are recorded: for copies on
    /// which crash points are explored.
    pub(super) fn rehearse(&mut self, now: Instant) {
        self.pace = Pace::STEADY;
        self.faults = DiskFaults::default();
        self.ops.clear();
        self.begin(now);
    }

    /// Bytes of all files, as programs see them.
    pub fn used(&self) -> u64 {
        self.files.values().map(|file| file.live.size()).sum()
    }

    /// Number of files, named or open.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Names of all files in both folders, as programs see them.
    pub fn names(&self) -> Vec<String> {
        self.folders.iter().flat_map(|folder| folder.live.list()).collect()
    }

    /// All files in both folders: name, size in bytes, and number of pending changes.
    pub fn sizes(&self) -> Vec<(String, u64, usize)> {
        let of = |(name, file): (&String, &FileId)| {
            let file = &self.files[file];
            (name.clone(), file.live.size(), file.pending.len())
        };
        self.folders.iter().flat_map(|folder| folder.live.by_name.iter().map(of)).collect()
    }

    /// Bytes of all files in the folder of the log, and in that of snapshots.
    pub fn sizes_by_folder(&self) -> [u64; 2] {
        [FolderId::Log, FolderId::Snapshots].map(|folder| {
            let files = self.folders[folder as usize].live.by_name.values();
            files.map(|file| self.files[file].live.size()).sum()
        })
    }

    /// Number of open handles.
    pub fn handle_count(&self) -> u32 {
        self.files.values().map(|file| file.handles).sum()
    }

    /// Number of changes that a power failure could lose.
    pub fn undurable(&self) -> usize {
        let files: usize = self.files.values().map(|file| file.pending.len()).sum();
        files + self.folders.iter().map(|folder| folder.pending.len()).sum::<usize>()
    }

    /// Makes durable what syncs that ended by `now` cover.
    pub(super) fn settle(&mut self, now: Instant) {
        let files = &mut self.files;
        self.syncing.retain(|id| {
            files.get_mut(id).is_some_and(|file| {
                file.settle(now);
                !file.syncs.is_empty()
            })
        });
        let mut removed = false;
        for folder in &mut self.folders {
            while let Some(at) = folder.syncs.iter().position(|sync| sync.end <= now) {
                let sync = folder.syncs.remove(at);
                removed |= folder.synced(sync.begin);
            }
        }
        if removed {
            self.collect();
        }
    }

    /// Removes files without any name or handle.
    fn collect(&mut self) {
        let (folders, files) = (&self.folders, &mut self.files);
        self.nameless.retain(|id| {
            let held = files.get(id).is_some_and(|file| file.handles > 0);
            let kept = held || folders.iter().any(|folder| folder.mentions(*id));
            if !kept {
                files.remove(id);
            }
            kept
        });
    }

    /// Recomputes which files lack a visible name, and removes those without any name or handle.
    pub(super) fn collect_all(&mut self) {
        let seen = |id: &FileId| self.folders.iter().any(|folder| folder.live.leads_to(*id));
        self.nameless = self.files.keys().filter(|id| !seen(id)).copied().collect();
        self.collect();
    }

    pub(super) fn folder(&mut self, id: FolderId) -> &mut Folder {
        &mut self.folders[id as usize]
    }

    pub(super) fn file(&self, id: FileId) -> &File {
        self.files.get(&id).expect("an open file exists")
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> &mut File {
        self.files.get_mut(&id).expect("an open file exists")
    }

    /// Lays out an operation of a folder.
    fn lay_out(&mut self, kind: OpKind, name: &str) -> Span {
        let span = self.place(kind, 0);
        if self.recording {
            self.ops.push(Op { kind, name: name.into(), offset: 0, length: 0, digest: 0, span });
        }
        span
    }

    /// Lays out an operation of a file; `written`: the bytes, if it is a write.
    fn lay_out_in(
        &mut self,
        kind: OpKind,
        file: FileId,
        (offset, length): (u64, u64),
        written: Option<&[u8]>,
    ) -> Span {
        let span = self.place(kind, length);
        if self.recording {
            let name = Rc::clone(&self.file(file).name);
            let digest = written.map_or(0, super::ops::digest);
            self.ops.push(Op { kind, name, offset, length, digest, span });
        }
        span
    }

    /// Draws the duration of an operation and places it on the worker's timeline.
    fn place(&mut self, kind: OpKind, length: u64) -> Span {
        let begin = self.cursor;
        let mut took = self.pace.draw(kind, length, &mut self.rng);
        if begin < self.faults.slow_until {
            took = took.saturating_mul(self.faults.slowness).min(SLOWEST);
        }
        let mut end = Instant(begin.0 + took);
        if matches!(kind, OpKind::Sync | OpKind::SyncDir) {
            end = end.max(self.faults.stalled_until);
        }
        self.cursor = end;
        Span { begin, end }
    }

    pub(super) fn list(&mut self, folder: FolderId) -> Vec<String> {
        self.lay_out(OpKind::List, "");
        self.folder(folder).live.list()
    }

    pub(super) fn create(&mut self, folder: FolderId, name: &str) -> io::Result<FileId> {
        let span = self.lay_out(OpKind::Create, name);
        if self.folder(folder).live.get(name).is_some() {
            let why = format!("{name}: file exists");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let full = self.is_full_of_snapshots(span.begin, folder);
        if full && self.faults.snapshots_capacity.is_none() {
            return Err(io::Error::from_raw_os_error(TOO_MANY_FILES));
        }
        let id = FileId(self.next_file);
        self.next_file += 1;
        let file = File { handles: 1, name: name.into(), ..File::default() };
        self.files.insert(id, file);
        self.rearrange(folder, span, NameChange::Create { name: name.to_owned(), file: id });
        Ok(id)
    }

    pub(super) fn open(&mut self, folder: FolderId, name: &str) -> io::Result<FileId> {
        self.lay_out(OpKind::Open, name);
        let id = self.folder(folder).live.get(name).ok_or_else(|| missing(name))?;
        let file = self.file_mut(id);
        if *file.name != *name {
            file.name = name.into();
        }
        file.handles += 1;
        Ok(id)
    }

    pub(super) fn rename(&mut self, folder: FolderId, from: &str, to: &str) -> io::Result<()> {
        let span = self.lay_out(OpKind::Rename, to);
        let id = self.folder(folder).live.get(from).ok_or_else(|| missing(from))?;
        self.file_mut(id).name = to.into();
        let change = NameChange::Rename { from: from.to_owned(), to: to.to_owned() };
        self.rearrange(folder, span, change);
        Ok(())
    }

    pub(super) fn remove(&mut self, folder: FolderId, name: &str) -> io::Result<()> {
        let span = self.lay_out(OpKind::Remove, name);
        if self.folder(folder).live.get(name).is_none() {
            return Err(missing(name));
        }
        self.rearrange(folder, span, NameChange::Remove { name: name.to_owned() });
        Ok(())
    }

    fn rearrange(&mut self, folder: FolderId, span: Span, change: NameChange) {
        let lost = self.folder(folder).change(span, change);
        self.nameless.extend(lost);
    }

    pub(super) fn sync_dir(&mut self, folder: FolderId) {
        let span = self.lay_out(OpKind::SyncDir, "");
        self.folder(folder).syncs.push(span);
    }

    fn free_space(&self) -> u64 {
        self.faults.capacity.map_or(1 << 40, |capacity| capacity.saturating_sub(self.used()))
    }

    /// Bytes by which files in this folder may grow at that time.
    fn free_space_in(&self, folder: FolderId, at: Instant) -> u64 {
        let capacity = self.faults.snapshots_capacity;
        let capacity = capacity.filter(|_| self.is_full_of_snapshots(at, folder));
        let room = |capacity: u64| capacity.saturating_sub(self.used_by_snapshots());
        capacity.map_or(u64::MAX, room).min(self.free_space())
    }

    /// The same at the worker's current time.
    pub(super) fn free_space_now(&self, folder: FolderId) -> u64 {
        self.free_space_in(folder, self.cursor)
    }

    pub(super) fn read(&mut self, id: FileId, offset: u64, buffer: &mut [u8]) -> usize {
        self.lay_out_in(OpKind::Read, id, (offset, buffer.len() as u64), None);
        self.file(id).live.read(offset, buffer)
    }

    pub(super) fn write(&mut self, id: FileId, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let place = (offset, bytes.len() as u64);
        let span = self.lay_out_in(OpKind::Write, id, place, Some(bytes));
        let grows = (offset + bytes.len() as u64).saturating_sub(self.file(id).live.size());
        let room = self.room_for(id, span.begin);
        let full = grows > room;
        if full || self.faults.write_error {
            self.faults.write_error = false;
            // A full snapshot folder leaves the page cache trustworthy.
            if !full || !self.is_snapshot(id) {
                self.failed = Some(OpKind::Write);
            }
            let done = if full {
                bytes.len().saturating_sub(usize::try_from(grows - room).unwrap_or(usize::MAX))
            } else {
                self.rng.upto(bytes.len())
            };
            self.put(id, span, offset, &bytes[..done]);
            let name = &self.file(id).name;
            return Err(if full { no_space(name) } else { io_error("write", name) });
        }
        self.put(id, span, offset, bytes);
        Ok(())
    }

    fn is_snapshot(&self, id: FileId) -> bool {
        self.folders[FolderId::Snapshots as usize].live.leads_to(id)
    }

    /// Bytes by which this file may grow at that time.
    fn room_for(&self, id: FileId, at: Instant) -> u64 {
        let folder = if self.is_snapshot(id) { FolderId::Snapshots } else { FolderId::Log };
        self.free_space_in(folder, at)
    }

    /// Whether this is the snapshot folder, and has no room at that time.
    fn is_full_of_snapshots(&self, at: Instant, folder: FolderId) -> bool {
        folder == FolderId::Snapshots && at < self.faults.snapshots_full_until
    }

    /// Bytes of all snapshots.
    pub(super) fn used_by_snapshots(&self) -> u64 {
        let snapshots = &self.folders[FolderId::Snapshots as usize].live;
        snapshots.files.iter().map(|file| self.file(*file).live.size()).sum()
    }

    fn put(&mut self, id: FileId, span: Span, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            let bytes = Bytes::copy_from_slice(bytes);
            self.file_mut(id).change(span, Change::Write { offset, bytes });
        }
    }

    pub(super) fn preallocate(&mut self, id: FileId, size: u64) -> io::Result<()> {
        let span = self.lay_out_in(OpKind::Preallocate, id, (size, 0), None);
        let grows = size.saturating_sub(self.file(id).live.size());
        if grows > self.free_space() {
            self.failed = Some(OpKind::Preallocate);
            return Err(no_space(&self.file(id).name));
        }
        if self.failed == Some(OpKind::Preallocate) {
            // The store has retried with a smaller size.
            self.failed = None;
        }
        self.file_mut(id).change(span, Change::Grow { size });
        Ok(())
    }

    pub(super) fn truncate(&mut self, id: FileId, size: u64) {
        let span = self.lay_out_in(OpKind::Truncate, id, (size, 0), None);
        self.file_mut(id).change(span, Change::Cut { size });
    }

    pub(super) fn sync(&mut self, id: FileId) -> io::Result<()> {
        let span = self.lay_out_in(OpKind::Sync, id, (0, 0), None);
        match self.faults.sync_error.take() {
            None => {
                self.file_mut(id).syncs.push(span);
                self.syncing.insert(id);
                Ok(())
            }
            Some(FsyncFault::PagesLost) => {
                self.failed = Some(OpKind::Sync);
                for pending in &mut self.file_mut(id).pending {
                    pending.sync_failed = true;
                }
                Err(io_error("fsync", &self.file(id).name))
            }
        }
    }

    pub(super) fn close(&mut self, id: FileId) {
        // A crash may have removed the file before its handle is dropped.
        if let Some(file) = self.files.get_mut(&id) {
            file.handles = file.handles.saturating_sub(1);
            file.share();
        }
    }
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name}: no such file"))
}

fn no_space(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::StorageFull,
        format!("{name}: no space left on device (injected)"),
    )
}

fn io_error(what: &str, name: &str) -> io::Error {
    io::Error::other(format!("{what} {name}: input/output error (injected)"))
}
