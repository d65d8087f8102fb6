//! A directory of the operating system.
//!
//! Owns every system call of the store. Must not know what the bytes mean.

#![expect(clippy::disallowed_methods, reason = "this is where `Vfs` meets std::fs")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Vfs, VfsFile};

/// The file that is locked while the directory is in use; it stays behind, empty.
const LOCK: &str = "lock";

/// A directory that exists. Clones share the open handle.
#[derive(Clone, Debug)]
pub struct OsDir {
    path: Arc<Path>,
    /// Open, so that names can be synced.
    handle: Arc<File>,
}

/// A file of an [`OsDir`].
#[derive(Debug)]
pub struct OsFile(File);

impl OsDir {
    /// The directory at this path; it and its parents are created durably where they are missing.
    ///
    /// # Errors
    /// Those of the file system; `NotADirectory` where a file is in the way.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<OsDir> {
        let path = path.into();
        create_durably(&path)?;
        let handle = File::open(&path)?;
        if !handle.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(OsDir { path: path.into(), handle: Arc::new(handle) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A directory exists after a power failure only when its parent has been synced.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.exists() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    create_durably(parent)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // The parent of a relative path of one part is called by no name.
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    File::open(parent)?.sync_all()
}

impl Vfs for OsDir {
    type File = OsFile;
    type Lock = File;

    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A name that is not UTF-8 is none of the store's.
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<OsFile> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.open(self.path.join(name)).map(OsFile)
    }

    fn open(&self, name: &str) -> io::Result<OsFile> {
        OpenOptions::new().read(true).write(true).open(self.path.join(name)).map(OsFile)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_space(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&*self.handle)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl VfsFile for OsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    #[cfg(target_os = "linux")]
    fn preallocate(&mut self, size: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::retry_on_intr;
        match retry_on_intr(|| fallocate(&self.0, FallocateFlags::empty(), 0, size)) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing: other systems reserve no room in one portable way, and the store does not depend on it.
    #[cfg(not(target_os = "linux"))]
    fn preallocate(&mut self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
