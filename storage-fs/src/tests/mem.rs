//! A directory in memory with injected power failures, I/O errors and full disks.
//!
//! Owns which changes survive a power failure: of unsynced writes any subset of 512-byte sectors,
//! and the written bytes of other sectors may become garbage; of changed names any subset. Must not
//! guarantee more than a real disk does.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU128;
use std::rc::Rc;

use crate::vfs::{BootId, Vfs, VfsFile};

const SECTOR: usize = 512;
/// The error number of "too many open files".
const EMFILE: i32 = 24;

/// Which unsynced changes survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unsynced {
    Lost,
    Kept,
    /// Each sector and each name survives or not at random; some sectors become garbage.
    Random,
}

impl Unsynced {
    pub(super) fn pick(number: u64) -> Unsynced {
        match number % 3 {
            0 => Unsynced::Lost,
            1 => Unsynced::Kept,
            _ => Unsynced::Random,
        }
    }
}

/// A handle to a directory. Clones share one simulated disk; [`MemDir::copy`] copies the disk.
#[derive(Clone)]
pub(super) struct MemDir {
    world: Rc<RefCell<World>>,
    /// Prefix of this directory's names on the simulated disk: empty, or `snapshots/`.
    prefix: &'static str,
}

#[derive(Clone, Default)]
struct World {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changed_names: Vec<NameChange>,
    rng: Rng,
    locked: BTreeSet<&'static str>,
    /// Number of modifying operations so far.
    operations: u64,
    /// Number of file reads so far.
    reads: Cell<u64>,
    /// The power fails during the modifying operation of this number.
    cut_at: Option<u64>,
    /// The modifying operation of this number fails, once.
    fail_at: Option<u64>,
    powerless: bool,
    /// Maximum size of all files together, in bytes.
    room: Option<u64>,
    /// Do all opens fail with `EMFILE`?
    out_of_files: bool,
    /// Number of boots so far, from which the boot id is made.
    boots: u128,
}

#[derive(Clone, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<FileChange>,
}

#[derive(Clone)]
enum FileChange {
    Write(usize, Vec<u8>),
    Resize(usize),
}

/// What happens to one unsynced change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    Garbage,
}

#[derive(Clone)]
enum NameChange {
    Set(String, usize),
    Move(String, String, usize),
    Remove(String),
}

/// SplitMix64.
#[derive(Clone, Default)]
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

impl MemDir {
    pub(super) fn new() -> MemDir {
        MemDir { world: Rc::default(), prefix: "" }
    }

    /// A copy on a simulated disk of its own.
    pub(super) fn copy(&self) -> MemDir {
        MemDir { world: Rc::new(RefCell::new(self.world.borrow().clone())), prefix: self.prefix }
    }

    /// A second directory on the same disk.
    pub(super) fn for_snapshots(&self) -> MemDir {
        MemDir { prefix: "snapshots/", ..self.clone() }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn reseed(&self, seed: u64) {
        self.world.borrow_mut().rng = Rng(seed);
    }

    pub(super) fn operations(&self) -> u64 {
        self.world.borrow().operations
    }

    pub(super) fn reads(&self) -> u64 {
        self.world.borrow().reads.get()
    }

    /// Lets the power fail during the modifying operation after `operations` more.
    pub(super) fn cut_after(&self, operations: u64) {
        let mut world = self.world.borrow_mut();
        world.cut_at = Some(world.operations + operations);
    }

    /// Lets the modifying operation after `operations` more fail; a failed sync discards the
    /// unsynced data.
    pub(super) fn fail_after(&self, operations: u64) {
        let mut world = self.world.borrow_mut();
        world.fail_at = Some(world.operations + operations);
    }

    /// Switches `EMFILE` errors on or off.
    pub(super) fn set_out_of_files(&self, out_of_files: bool) {
        self.world.borrow_mut().out_of_files = out_of_files;
    }

    pub(super) fn set_room(&self, room: Option<u64>) {
        self.world.borrow_mut().room = room;
    }

    /// Is every change durable?
    pub(super) fn is_synced(&self) -> bool {
        let world = self.world.borrow();
        world.changed_names.is_empty() && world.files.iter().all(|file| file.seen == file.durable)
    }

    /// Restarts the machine after a power failure.
    pub(super) fn power_cycle(&self, unsynced: Unsynced) {
        let world = &mut *self.world.borrow_mut();
        // Probability that a change survives, in eighths.
        let odds = 1 + world.rng.below(7);
        let rng = &mut world.rng;
        let mut fate = || match unsynced {
            Unsynced::Lost => Fate::Lost,
            Unsynced::Kept => Fate::Kept,
            Unsynced::Random if rng.below(8) < odds => Fate::Kept,
            Unsynced::Random if rng.below(3) == 0 => Fate::Garbage,
            Unsynced::Random => Fate::Lost,
        };
        for file in &mut world.files {
            for change in std::mem::take(&mut file.unsynced) {
                change.apply(&mut file.durable, &mut fate);
            }
            file.seen.clone_from(&file.durable);
        }
        for change in std::mem::take(&mut world.changed_names) {
            if fate() == Fate::Kept {
                change.apply(&mut world.durable_names);
            }
        }
        world.names.clone_from(&world.durable_names);
        world.boots += 1;
        self.finish_restart(world);
    }

    /// Erases the state file's note of the log's end, as a power failure may.
    pub(super) fn forget_note(&self) {
        self.rot("state", |bytes| bytes[8192..].fill(0));
    }

    /// Restarts the machine without losing unsynced data.
    pub(super) fn reboot(&self) {
        self.world.borrow_mut().boots += 1;
    }

    /// Kills the process: all its writes stay readable, synced or not.
    pub(super) fn kill(&self) {
        let world = &mut *self.world.borrow_mut();
        self.finish_restart(world);
    }

    fn finish_restart(&self, world: &mut World) {
        world.locked.clear();
        world.powerless = false;
        world.cut_at = None;
        world.fail_at = None;
    }

    /// Content of a file as reads see it.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let world = self.world.borrow();
        world.files[world.names[name]].seen.clone()
    }

    /// All files as reads see them.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let world = self.world.borrow();
        let content =
            |(name, file): (&String, &usize)| (name.clone(), world.files[*file].seen.clone());
        world.names.iter().map(content).collect()
    }

    /// Removes a durable file.
    pub(super) fn lose(&self, name: &str) {
        let mut world = self.world.borrow_mut();
        world.durable_names.remove(name);
        world.names.remove(name);
    }

    /// Changes durable bytes of a file, not through the store.
    pub(super) fn rot(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let world = &mut *self.world.borrow_mut();
        let file = &mut world.files[world.names[name]];
        change(&mut file.durable);
        file.seen.clone_from(&file.durable);
    }

    fn change(&self) -> io::Result<RefMut<'_, World>> {
        let mut world = self.world.borrow_mut();
        world.check_power()?;
        let number = world.operations;
        world.operations += 1;
        if world.cut_at == Some(number) {
            world.powerless = true;
        }
        if world.fail_at == Some(number) {
            return Err(io::Error::other("injected"));
        }
        Ok(world)
    }

    fn look(&self) -> io::Result<Ref<'_, World>> {
        let world = self.world.borrow();
        world.check_power()?;
        Ok(world)
    }
}

impl World {
    fn check_power(&self) -> io::Result<()> {
        if self.powerless { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        change.clone().apply(&mut self.names);
        self.changed_names.push(change);
        self.check_power()
    }

    fn change_file(&mut self, file: usize, mut change: FileChange) -> io::Result<()> {
        if let FileChange::Write(_, bytes) = &mut change
            && self.powerless
            && self.rng.below(2) == 0
        {
            // A write that a kill interrupts leaves a prefix.
            let done = self.rng.below(bytes.len() as u64 + 1);
            bytes.truncate(usize::try_from(done).expect("small"));
        }
        let file = &mut self.files[file];
        change.clone().apply(&mut file.seen, &mut || Fate::Kept);
        file.unsynced.push(change);
        self.check_power()
    }

    fn free(&self) -> u64 {
        let used: usize = self.names.values().map(|file| self.files[*file].seen.len()).sum();
        self.room.map_or(u64::MAX, |room| room.saturating_sub(used as u64))
    }

    fn check_room(&self, more: usize) -> io::Result<()> {
        if more as u64 > self.free() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn check_files(&self) -> io::Result<()> {
        if self.out_of_files { Err(io::Error::from_raw_os_error(EMFILE)) } else { Ok(()) }
    }
}

impl FileChange {
    fn apply(self, bytes: &mut Vec<u8>, fate: &mut impl FnMut() -> Fate) {
        match self {
            FileChange::Resize(size) => {
                if fate() == Fate::Kept {
                    bytes.resize(size, 0);
                }
            }
            FileChange::Write(at, written) => {
                let mut from = 0;
                while from < written.len() {
                    let to = ((at + from + 1).next_multiple_of(SECTOR) - at).min(written.len());
                    let fate = fate();
                    if fate != Fate::Lost {
                        let size = bytes.len().max(at + to);
                        bytes.resize(size, 0);
                        bytes[at + from..at + to].copy_from_slice(&written[from..to]);
                    }
                    if fate == Fate::Garbage {
                        bytes[at + from..at + to].iter_mut().for_each(|byte| *byte ^= 0x5a);
                    }
                    from = to;
                }
            }
        }
    }
}

impl NameChange {
    fn name(&self) -> &str {
        match self {
            NameChange::Set(name, _) | NameChange::Move(name, _, _) | NameChange::Remove(name) => {
                name
            }
        }
    }

    fn apply(self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Set(name, file) => {
                names.insert(name, file);
            }
            NameChange::Move(from, to, file) => {
                names.remove(&from);
                names.insert(to, file);
            }
            NameChange::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

pub(super) struct MemFile {
    dir: MemDir,
    file: usize,
}

pub(super) struct MemLock(MemDir);

impl Drop for MemLock {
    fn drop(&mut self) {
        self.0.world.borrow_mut().locked.remove(self.0.prefix);
    }
}

impl Vfs for MemDir {
    type File = MemFile;
    type Lock = MemLock;

    fn lock(&self) -> io::Result<MemLock> {
        self.look()?;
        if !self.world.borrow_mut().locked.insert(self.prefix) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(MemLock(self.clone()))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let world = self.look()?;
        world.check_files()?;
        let inside = world.names.keys().filter_map(|name| name.strip_prefix(self.prefix));
        Ok(inside.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    fn create(&self, name: &str) -> io::Result<MemFile> {
        let name = self.full(name);
        let mut world = self.change()?;
        world.check_files()?;
        if world.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = world.files.len();
        world.files.push(Content::default());
        world.change_name(NameChange::Set(name, file))?;
        Ok(MemFile { dir: self.clone(), file })
    }

    fn open(&self, name: &str) -> io::Result<MemFile> {
        let world = self.look()?;
        world.check_files()?;
        match world.names.get(&self.full(name)) {
            Some(file) => Ok(MemFile { dir: self.clone(), file: *file }),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.full(from), self.full(to));
        let mut world = self.change()?;
        let file = *world.names.get(&from).ok_or(io::ErrorKind::NotFound)?;
        world.change_name(NameChange::Move(from, to, file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = self.full(name);
        let mut world = self.change()?;
        if !world.names.contains_key(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.change_name(NameChange::Remove(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let world = &mut *self.change()?;
        world.check_power()?;
        for change in std::mem::take(&mut world.changed_names) {
            let name = change.name();
            if name.strip_prefix(self.prefix).is_some_and(|name| !name.contains('/')) {
                change.apply(&mut world.durable_names);
            } else {
                world.changed_names.push(change);
            }
        }
        Ok(())
    }

    fn boot_id(&self) -> Option<BootId> {
        NonZeroU128::new(self.world.borrow().boots + 1).map(BootId)
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(self.world.borrow().free())
    }
}

impl VfsFile for MemFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.dir.look()?.files[self.file].seen.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let world = self.dir.look()?;
        world.reads.set(world.reads.get() + 1);
        let seen = &world.files[self.file].seen;
        let from = usize::try_from(offset).expect("small").min(seen.len());
        let length = buffer.len().min(seen.len() - from);
        buffer[..length].copy_from_slice(&seen[from..from + length]);
        Ok(length)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.dir.change()?;
        let at = usize::try_from(offset).expect("small");
        world.check_room((at + bytes.len()).saturating_sub(world.files[self.file].seen.len()))?;
        world.change_file(self.file, FileChange::Write(at, bytes.to_vec()))
    }

    fn preallocate(&mut self, size: u64) -> io::Result<()> {
        let mut world = self.dir.change()?;
        let size = usize::try_from(size).expect("small");
        let now = world.files[self.file].seen.len();
        world.check_room(size.saturating_sub(now))?;
        world.change_file(self.file, FileChange::Resize(size.max(now)))
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        let size = usize::try_from(size).expect("small");
        self.dir.change()?.change_file(self.file, FileChange::Resize(size))
    }

    fn sync(&mut self) -> io::Result<()> {
        let result = self.dir.change().map(|_| ());
        let world = &mut *self.dir.world.borrow_mut();
        world.check_power()?;
        let file = &mut world.files[self.file];
        let unsynced = std::mem::take(&mut file.unsynced);
        result?;
        for change in unsynced {
            change.apply(&mut file.durable, &mut || Fate::Kept);
        }
        Ok(())
    }
}
