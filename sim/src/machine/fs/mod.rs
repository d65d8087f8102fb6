//! The simulated file system, on which the real store runs unchanged.
//!
//! Owns the implementation of [`Vfs`] on a [`Disk`]. Must not know what the bytes mean.

mod bit_rot;
mod content;
mod crash;
mod disk;
mod disk_fault;
mod folder;
mod ops;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use storage_fs::vfs::{BootId, Vfs, VfsFile};
use zabkeeper_core::Instant;

pub use bit_rot::{BitRot, LogEnd};
pub use content::Span;
pub use crash::{Crash, Losses, Luck};
pub use disk::{Disk, DiskFaults};
pub use disk_fault::inject;
pub use folder::FolderId;
pub use ops::{FsyncFault, Op, OpKind, Pace};

use folder::FileId;

/// A handle to one folder of a simulated disk.
#[derive(Clone, Debug)]
pub struct SimFs {
    disk: Rc<RefCell<Disk>>,
    folder: FolderId,
}

/// An open file.
#[derive(Debug)]
pub struct SimFile {
    disk: Rc<RefCell<Disk>>,
    file: FileId,
}

/// The lock that keeps a folder to one process.
#[derive(Debug)]
pub struct SimLock {
    disk: Rc<RefCell<Disk>>,
    folder: FolderId,
}

impl SimFs {
    /// A folder of `disk`.
    pub fn new(disk: &Rc<RefCell<Disk>>, folder: FolderId) -> SimFs {
        SimFs { disk: Rc::clone(disk), folder }
    }

    /// Both folders of a copy of `disk` as a power failure at `now` would leave it.
    pub fn after_power_failure(disk: &Disk, now: Instant, luck: Luck) -> (SimFs, SimFs) {
        let mut copy = disk.survivor(now, luck);
        copy.examine();
        SimFs::both(&Rc::new(RefCell::new(copy)))
    }

    /// The same, with operations from `now` on timed and recorded. Also returns the copy.
    pub fn rehearsal(disk: &Disk, now: Instant, luck: Luck) -> (Rc<RefCell<Disk>>, SimFs, SimFs) {
        let mut copy = disk.survivor(now, luck);
        copy.rehearse(now);
        let copy = Rc::new(RefCell::new(copy));
        let (log, snapshots) = SimFs::both(&copy);
        (copy, log, snapshots)
    }

    /// Both folders of `disk`.
    pub fn both(disk: &Rc<RefCell<Disk>>) -> (SimFs, SimFs) {
        (SimFs::new(disk, FolderId::Log), SimFs::new(disk, FolderId::Snapshots))
    }

    fn handle(&self, file: FileId) -> SimFile {
        SimFile { disk: Rc::clone(&self.disk), file }
    }
}

impl Vfs for SimFs {
    type File = SimFile;
    type Lock = SimLock;

    fn lock(&self) -> io::Result<SimLock> {
        let mut disk = self.disk.borrow_mut();
        let folder = disk.folder(self.folder);
        if folder.locked {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "locked by another process"));
        }
        folder.locked = true;
        Ok(SimLock { disk: Rc::clone(&self.disk), folder: self.folder })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.borrow_mut().list(self.folder))
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let file = self.disk.borrow_mut().create(self.folder, name)?;
        Ok(self.handle(file))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let file = self.disk.borrow_mut().open(self.folder, name)?;
        Ok(self.handle(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.borrow_mut().rename(self.folder, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.borrow_mut().remove(self.folder, name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.borrow_mut().sync_dir(self.folder);
        Ok(())
    }

    fn boot_id(&self) -> Option<BootId> {
        Some(self.disk.borrow().boot())
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(self.disk.borrow().free_space_now(self.folder))
    }
}

impl VfsFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.borrow().file(self.file).live.size())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.disk.borrow_mut().read(self.file, offset, buffer))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.borrow_mut().write(self.file, offset, bytes)
    }

    fn preallocate(&mut self, size: u64) -> io::Result<()> {
        self.disk.borrow_mut().preallocate(self.file, size)
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.disk.borrow_mut().truncate(self.file, size);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.borrow_mut().sync(self.file)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.borrow_mut().close(self.file);
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.borrow_mut().folder(self.folder).locked = false;
    }
}
