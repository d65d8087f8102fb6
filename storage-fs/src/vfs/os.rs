//! A directory of the operating system.
//!
//! Owns every system call of the store. Must not interpret file contents.

#![expect(clippy::disallowed_methods, reason = "this is where `Vfs` meets std::fs")]

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU128;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BootId, Vfs, VfsFile};

/// The file that is locked while the directory is in use; it is empty and never removed.
const LOCK: &str = "lock";

/// Only the server's user may read client data.
const FILE_MODE: u32 = 0o600;

/// Makes `open` fail on a symbolic link, which may point to a file outside the store.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// An open directory. Clones share the handle.
#[derive(Clone, Debug)]
pub struct OsDir {
    path: Arc<Path>,
    /// The handle for syncing names.
    handle: Arc<File>,
}

/// A file of an [`OsDir`].
#[derive(Debug)]
pub struct OsFile(File);

impl OsDir {
    /// Opens the directory at this path. Creates it and missing parents, durably and with mode
    /// 0700.
    ///
    /// # Errors
    /// Those of the file system; `NotADirectory` if the path is a file.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<OsDir> {
        let path = path.into();
        create_durably(&path)?;
        let handle = File::open(&path)?;
        if !handle.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(OsDir { path: path.into(), handle: Arc::new(handle) })
    }

    /// Do group or others have any permission on the directory? Directories that existed before the
    /// store keep their mode.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn is_open_to_others(&self) -> io::Result<bool> {
        Ok(self.handle.metadata()?.permissions().mode() & 0o077 != 0)
    }

    /// The path given to [`OsDir::new`].
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a directory and syncs its parent, so that it exists after a power failure.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.exists() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    create_durably(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // The parent of a one-component relative path is the empty path.
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    File::open(parent)?.sync_all()
}

/// Reads a UUID: 32 hexadecimal digits, with hyphens between some.
#[cfg(any(target_os = "linux", test))]
fn parse_boot_id(text: &str) -> Option<BootId> {
    let digits = text.trim().replace('-', "");
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())??;
    NonZeroU128::new(number).map(BootId)
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
            .mode(FILE_MODE)
            .custom_flags(NO_LINK)
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
                // The store has no names that are not UTF-8.
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<OsFile> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(FILE_MODE);
        options.open(self.path.join(name)).map(OsFile)
    }

    fn open(&self, name: &str) -> io::Result<OsFile> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(NO_LINK);
        options.open(self.path.join(name)).map(OsFile)
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

    #[cfg(target_os = "linux")]
    fn boot_id(&self) -> Option<BootId> {
        parse_boot_id(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
    }

    /// Other systems have no portable boot id that shows whether the page cache was kept.
    #[cfg(not(target_os = "linux"))]
    fn boot_id(&self) -> Option<BootId> {
        None
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
        let before = self.size()?;
        match retry_on_intr(|| fallocate(&self.0, FallocateFlags::empty(), 0, size)) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => {
                // A failed `fallocate` may have allocated part of the space.
                self.truncate(before)?;
                Err(error.into())
            }
        }
    }

    /// Does nothing: other systems have no portable preallocation, and the store does not depend on
    /// it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nonzero_uuid_parses_as_boot_id() {
        let id = parse_boot_id("0f8fad5b-d9cb-469f-a165-70867728950e\n");
        let number = 0x0f8f_ad5b_d9cb_469f_a165_7086_7728_950e;
        assert_eq!(id, NonZeroU128::new(number).map(BootId));
        for text in ["", "00000000-0000-0000-0000-000000000000", "0f8fad5b", "no such thing"] {
            assert_eq!(parse_boot_id(text), None, "{text:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_boot_id_is_stable() {
        let temp = tempfile::tempdir().expect("a directory");
        let dir = OsDir::new(temp.path()).expect("a directory");
        assert!(dir.boot_id().is_some());
        assert_eq!(dir.boot_id(), dir.boot_id());
    }
}
