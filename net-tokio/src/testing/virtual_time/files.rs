//! The disk of one server in memory.
//!
//! Owns the files. Must not interpret their content: the store does.
//!
//! A server that is killed loses nothing that it has written, synced or not, as after SIGKILL.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU128;
use std::sync::{Arc, Mutex, MutexGuard};

use storage_fs::vfs::{BootId, Vfs, VfsFile};

/// A handle to a directory. Clones are handles to the same directory.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryDir(Arc<Mutex<BTreeMap<String, MemoryFile>>>);

/// A handle to a file.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryFile(Arc<Mutex<Vec<u8>>>);

impl MemoryDir {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, MemoryFile>> {
        self.0.lock().expect("no code that holds it panics")
    }
}

impl MemoryFile {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no code that holds it panics")
    }
}

fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl Vfs for MemoryDir {
    type File = MemoryFile;
    type Lock = ();

    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<MemoryFile> {
        let mut files = self.files();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(files.entry(name.to_owned()).or_default().clone())
    }

    fn open(&self, name: &str) -> io::Result<MemoryFile> {
        self.files().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.files().remove(name);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn boot_id(&self) -> Option<BootId> {
        Some(BootId(NonZeroU128::MIN))
    }

    fn free_space(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl VfsFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes();
        let from = index(offset)?.min(bytes.len());
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn write_at(&mut self, offset: u64, written: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes();
        let from = index(offset)?;
        let to = from.checked_add(written.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(written);
        Ok(())
    }

    fn preallocate(&mut self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.bytes().resize(index(size)?, 0);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
