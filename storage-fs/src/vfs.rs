//! The file operations that the store needs, as traits.
//!
//! Owns the interface to the file system: `os` implements it for the operating system, the
//! simulator for its simulated disk. Must not interpret file contents.

pub mod os;

use std::io;
use std::num::NonZeroU128;

use rustix::io::Errno;

/// One flat directory of files. Clones are handles to the same directory.
///
/// Durability is that of POSIX: written bytes survive a power failure only after [`VfsFile::sync`],
/// a created, renamed or removed *name* only after [`Vfs::sync_dir`].
pub trait Vfs: Clone {
    /// An open file.
    type File: VfsFile;
    /// The lock of the directory; dropping it releases the lock.
    type Lock;

    /// Locks the directory against other processes and other handles.
    ///
    /// # Errors
    /// `WouldBlock` if the lock is held, and those of the file system.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// Names of all regular files, sorted.
    ///
    /// # Errors
    /// Those of the file system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file for reading and writing, accessible to its owner only.
    ///
    /// # Errors
    /// `AlreadyExists` if a file or a link has that name, and those of the file system.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, and those of the file system.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Renames a file, replacing an existing file of the new name.
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
    /// Those of the file system. It is then unknown which names are durable, so the caller must
    /// stop.
    fn sync_dir(&self) -> io::Result<()>;

    /// The id of this boot of the machine; `None` if the system has none. Within one boot the page
    /// cache is kept: a process reads everything that an earlier process has written, synced or
    /// not.
    fn boot_id(&self) -> Option<BootId>;

    /// Bytes available to this user.
    ///
    /// # Errors
    /// Those of the file system.
    fn free_space(&self) -> io::Result<u64>;
}

/// Is this error `EMFILE` or `ENFILE`, too many open files? `std::io::ErrorKind` has no kind for
/// them.
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

    /// Reads into `buffer` from `offset` on; reads fewer bytes than asked for only at the end of
    /// the file.
    ///
    /// # Errors
    /// Those of the file system.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`, extending the file if necessary.
    ///
    /// # Errors
    /// Those of the file system; it is then unknown how many bytes were written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Extends the file to `size` bytes of zeros and allocates the space, so that later writes
    /// neither change the size nor run out of space. Does nothing where the file system has no
    /// support for it.
    ///
    /// # Errors
    /// Those of the file system; if the space is insufficient, none is allocated.
    fn preallocate(&mut self, size: u64) -> io::Result<()>;

    /// Truncates the file to `size` bytes.
    ///
    /// # Errors
    /// Those of the file system.
    fn truncate(&mut self, size: u64) -> io::Result<()>;

    /// Makes content and size durable; [`Vfs::sync_dir`] makes the name durable.
    ///
    /// # Errors
    /// Those of the file system. Bytes written since the last successful call may be lost even if a
    /// later call succeeds, so the caller must stop.
    fn sync(&mut self) -> io::Result<()>;
}
