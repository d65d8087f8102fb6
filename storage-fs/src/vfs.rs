//! The directory that the store lives in, as the few operations it needs.
//!
//! Owns the seam between the store and the world: the operating system implements it in `os`, the simulator in its
//! own disk. Must not know what the bytes mean.

pub mod os;

use std::io;
use std::num::NonZeroU128;

use rustix::io::Errno;

/// One flat directory of files. Clones are handles to the same directory.
///
/// Durability is what POSIX promises and no more: written bytes survive a power failure only after
/// [`VfsFile::sync`], a created, renamed or removed *name* only after [`Vfs::sync_dir`].
pub trait Vfs: Clone {
    /// An open file.
    type File: VfsFile;
    /// Held while the directory is in use; dropping it lets others in.
    type Lock;

    /// Keeps other processes out of the directory.
    ///
    /// # Errors
    /// `WouldBlock` where another process holds it.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// Names of all files, sorted.
    ///
    /// # Errors
    /// Those of the file system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file for reading and writing, which only this user may read.
    ///
    /// # Errors
    /// `AlreadyExists` where anything has that name, be it a link, and those of the file system.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, and those of the file system.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, replacing whatever has it.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, and those of the file system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renamings and removals durable.
    ///
    /// # Errors
    /// Those of the file system; names are then in doubt, and the caller must stop.
    fn sync_dir(&self) -> io::Result<()>;

    /// The id of this boot of the machine; `None` where the system has none. Between two processes of one boot the page
    /// cache is kept: the later one reads all that the earlier one has written, synced or not.
    fn boot_id(&self) -> Option<BootId>;

    /// Bytes that may still be written.
    ///
    /// # Errors
    /// Those of the file system.
    fn free_space(&self) -> io::Result<u64>;
}

/// Does the process, or the system, have too many files open? The standard library has no kind of its own for it.
pub fn is_out_of_files(error: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// The id of one boot of a machine: random, and never zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootId(pub NonZeroU128);

/// An open file of a [`Vfs`].
pub trait VfsFile {
    /// Size in bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn size(&self) -> io::Result<u64>;

    /// Reads into `buffer` from `offset` on; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, extending the file where it ends before.
    ///
    /// # Errors
    /// Those of the file system; how much was written is then unknown.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Extends the file to `size` bytes of zeros and reserves the room, so that later writes neither change the size
    /// nor run out of space. Best effort: a file system that cannot do so may do nothing.
    ///
    /// # Errors
    /// Those of the file system; where it has not so much room, none is taken.
    fn preallocate(&mut self, size: u64) -> io::Result<()>;

    /// Cuts the file at `size`.
    ///
    /// # Errors
    /// Those of the file system.
    fn truncate(&mut self, size: u64) -> io::Result<()>;

    /// Makes content and size durable; the name is [`Vfs::sync_dir`]'s.
    ///
    /// # Errors
    /// Those of the file system. What was written since the last success may be lost even though a later call
    /// succeeds, so the caller must stop.
    fn sync(&mut self) -> io::Result<()>;
}
