//! The temporary folder of an ensemble: a folder for each server, with its `zoo.cfg` and its data.
//!
//! Owns the creation and removal of the folder. Must not know what the files mean.
//!
//! ```text
//! zabkeeper-<random number>/
//!   secret                        with which the servers authenticate each other
//!   1/zoo.cfg    1/data/myid      of server 1, and so on
//! ```

use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Error;
use crate::random;

/// A folder that only this user can reach. Dropping it removes it with its content.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A new, empty folder, where the system keeps temporary files (`TMPDIR`).
    pub(super) fn create() -> Result<Folder, Error> {
        let path = env::temp_dir().join(format!("zabkeeper-{:016x}", random::number()));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.map_err(|error| cannot_create(&path, &error))?;
        Ok(Folder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the file `zoo.cfg` of a server.
    pub(super) fn zoo_cfg(&self, id: u64) -> PathBuf {
        self.0.join(id.to_string()).join("zoo.cfg")
    }

    /// The folder with the data of a server.
    pub(super) fn data(&self, id: u64) -> PathBuf {
        self.0.join(id.to_string()).join("data")
    }

    /// The path of the file with the secret.
    pub(super) fn secret(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// Writes the secret.
    pub(super) fn write_secret(&self) -> Result<(), Error> {
        let secret = u128::from_le_bytes(random::bytes());
        write(&self.secret(), &format!("{secret:032x}\n"))
    }

    /// Writes the files of a server.
    pub(super) fn write_server(&self, id: u64, zoo_cfg: &str) -> Result<(), Error> {
        let data = self.data(id);
        fs::create_dir_all(&data).map_err(|error| cannot_create(&data, &error))?;
        write(&data.join("myid"), &format!("{id}\n"))?;
        write(&self.zoo_cfg(id), zoo_cfg)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            tracing::warn!("cannot remove {path}, the folder of an ensemble of a test: {error}");
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    // A server refuses a secret that other users can read.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| cannot_create(path, &error))
}

fn cannot_create(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    Error::System(format!(
        "cannot create {path}: {error}; name a folder with room that you may write to as TMPDIR"
    ))
}
