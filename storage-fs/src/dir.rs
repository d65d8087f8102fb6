//! A [`Vfs`] whose errors name the operation, the file and the directory.
//!
//! Owns the translation of `io::Error` into [`StoreError`]. Must not interpret file contents.

use std::io;

use crate::block::{BLOCK_BYTES, BadBlock, Kind};
use crate::error::StoreError;
use crate::vfs::{BootId, Vfs, VfsFile, is_out_of_files};

/// A directory and its name for error texts.
#[derive(Clone)]
pub(crate) struct Dir<V> {
    vfs: V,
    place: &'static str,
}

/// An open file and its name.
pub(crate) struct DirFile<V: Vfs> {
    dir: Dir<V>,
    name: String,
    file: V::File,
}

impl<V: Vfs> Dir<V> {
    pub(crate) fn new(vfs: V, place: &'static str) -> Dir<V> {
        Dir { vfs, place }
    }

    pub(crate) fn place(&self) -> &'static str {
        self.place
    }

    /// Takes the lock; `None` if it is held already.
    pub(crate) fn try_lock(&self) -> Result<Option<V::Lock>, StoreError> {
        match self.vfs.lock() {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(self.failed("lock", "the directory", &error)),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, StoreError> {
        self.vfs.list().map_err(|error| self.failed("list", "the files", &error))
    }

    /// Creates a file, after removing any file or link of that name: so writes neither follow a
    /// link nor reach a file that another process has open.
    pub(crate) fn create(&self, name: &str) -> Result<DirFile<V>, StoreError> {
        let created = match self.vfs.create(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(name)?;
                self.vfs.create(name)
            }
            created => created,
        };
        match created {
            Ok(file) => Ok(DirFile { dir: self.clone(), name: name.to_owned(), file }),
            Err(error) => Err(self.failed("create", name, &error)),
        }
    }

    pub(crate) fn open(&self, name: String) -> Result<DirFile<V>, StoreError> {
        match self.vfs.open(&name) {
            Ok(file) => Ok(DirFile { dir: self.clone(), name, file }),
            Err(error) => Err(self.failed("open", &name, &error)),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.vfs.rename(from, to).map_err(|error| self.failed("rename", from, &error))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.vfs.remove(name).map_err(|error| self.failed("remove", name, &error))
    }

    /// Removes a file that another lane may have removed already.
    pub(crate) fn remove_if_there(&self, name: &str) -> Result<(), StoreError> {
        match self.vfs.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", name, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.vfs.sync_dir().map_err(|error| self.failed("sync", "the names", &error))
    }

    /// The id of this boot; `None` if the system has none.
    pub(crate) fn boot_id(&self) -> Option<BootId> {
        self.vfs.boot_id()
    }

    /// Fails with `DiskFull` if the file system reports fewer than `least` bytes available.
    pub(crate) fn check_room(&self, file: &str, least: u64) -> Result<(), StoreError> {
        match self.vfs.free_space() {
            Ok(free) if free < least => {
                let (file, place) = (file.to_owned(), self.place);
                Err(StoreError::DiskFull { operation: "write", file, place, free: Some(free) })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(crate) fn damaged(&self, file: &str, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into(), place: format!("{file} in the {}", self.place) }
    }

    #[cold]
    fn failed(&self, operation: &'static str, file: &str, error: &io::Error) -> StoreError {
        let (file, place) = (file.to_owned(), self.place);
        let full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if full {
            return StoreError::DiskFull {
                operation,
                file,
                place,
                free: self.vfs.free_space().ok(),
            };
        }
        if is_out_of_files(error) {
            return StoreError::TooManyFiles { operation, file, place };
        }
        StoreError::Io { operation, file, place, kind: error.kind(), message: error.to_string() }
    }
}

impl<V: Vfs> DirFile<V> {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn size(&self) -> Result<u64, StoreError> {
        self.file.size().map_err(|error| self.failed("read the size of", &error))
    }

    /// Reads into `buffer` up to the end of the file; returns the number of bytes read.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, StoreError> {
        self.file.read_at(offset, buffer).map_err(|error| self.failed("read", &error))
    }

    /// Fills the whole buffer; `Damaged` if the file ends before.
    pub(crate) fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let read = self.read_at(offset, buffer)?;
        if read < buffer.len() {
            let end = offset + read as u64;
            return Err(self.damaged(format!("it ends at byte {end}, inside a record")));
        }
        Ok(())
    }

    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_at(offset, bytes).map_err(|error| self.failed("write", &error))
    }

    pub(crate) fn preallocate(&mut self, size: u64) -> Result<(), StoreError> {
        self.file.preallocate(size).map_err(|error| self.failed("reserve room for", &error))
    }

    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync().map_err(|error| self.failed("sync", &error))
    }

    /// Renames the file to its final name, durably. Its content must be durable already.
    pub(crate) fn publish(&mut self, name: String) -> Result<(), StoreError> {
        self.dir.rename(&self.name, &name)?;
        self.name = name;
        self.dir.sync()
    }

    /// Decodes version and content of the block at `offset`; `None` if it is damaged or missing.
    pub(crate) fn read_block<T>(
        &self,
        offset: u64,
        kind: &Kind,
        decode: impl FnOnce(u32, &[u8]) -> T,
    ) -> Result<Option<T>, StoreError> {
        let mut block = [0; BLOCK_BYTES];
        let read = self.read_at(offset, &mut block)?;
        match kind.open(&block[..read]) {
            Ok((version, content)) => Ok(Some(decode(version, content))),
            Err(BadBlock::Damaged) => Ok(None),
            Err(BadBlock::Version(found)) => {
                let file = self.name.clone();
                Err(StoreError::UnknownVersion { file, found, known: kind.version })
            }
        }
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> StoreError {
        self.dir.damaged(&self.name, what)
    }

    pub(crate) fn foreign(&self, found: u64, expected: u64) -> StoreError {
        StoreError::ForeignStore { file: self.name.clone(), found, expected }
    }

    #[cold]
    fn failed(&self, operation: &'static str, error: &io::Error) -> StoreError {
        self.dir.failed(operation, &self.name, error)
    }
}
