//! `zabkeeper initialize`: the folders and `myid` of a new server.
//!
//! Owns the removal of earlier data, which has to be demanded. Must not touch ZooKeeper's data.
//!
//! ZooKeeper's script also leaves a file `initialize`, which permits an empty server to vote. No
//! such file is needed here: an empty server finds out whether its vote counts (`zab`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use storage_fs::OsDir;
use storage_fs::vfs::Vfs;

use super::{CommandFailure, config_file, failed, print};
use crate::args::InitializeCommand;
use crate::config::{self, OUR_FOLDER};
use crate::serve;

/// Runs the command.
///
/// # Errors
/// There is data already, a server runs on it, or a folder cannot be made.
pub(crate) fn initialize(
    command: &InitializeCommand,
    out: &mut impl Write,
) -> Result<(), CommandFailure> {
    let file = config_file(command.config.as_deref());
    if !file.exists() {
        return Err(failed(format!("Unable to find config file at {}", file.display())));
    }
    let [data, log] = config::folders_of(&file).map_err(failed)?;
    let mut places = vec![("data", data.clone())];
    if log != data {
        places.push(("txnlog", log));
    }
    for (what, place) in &places {
        if let Some(theirs) = serve::data_of_zookeeper(place) {
            let theirs = theirs.display();
            return Err(failed(format!("{theirs} holds data of Apache ZooKeeper: move it away")));
        }
        let ours = place.join(OUR_FOLDER);
        if !ours.exists() {
            continue;
        }
        if !command.force {
            return Err(failed(format!(
                "ZooKeeper {what} directory already exists at {} (or use --force to force \
                 re-initialization)",
                place.display()
            )));
        }
        check_unused(&ours)?;
    }
    if command.force {
        print(out, "Force enabled, data/txnlog directories will be re-initialized\n")?;
    }
    let cannot = |action: &str, path: &Path, error: &io::Error| {
        failed(format!("cannot {action} {}: {error}", path.display()))
    };
    for (_, place) in &places {
        let ours = place.join(OUR_FOLDER);
        if ours.exists() {
            fs::remove_dir_all(&ours).map_err(|error| cannot("remove", &ours, &error))?;
        }
        OsDir::new(ours.clone()).map_err(|error| cannot("create", &ours, &error))?;
    }
    write_id(&data.join("myid"), command, out)
}

/// Fails if a server runs on the data.
fn check_unused(folder: &Path) -> Result<(), CommandFailure> {
    let place = folder.display();
    let dir = OsDir::new(folder).map_err(|error| failed(format!("{place}: {error}")))?;
    match dir.lock() {
        Ok(_released) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(failed(format!("{place} is in use by another process; stop it first")))
        }
        Err(error) => Err(failed(format!("{place}: {error}"))),
    }
}

fn write_id(
    path: &PathBuf,
    command: &InitializeCommand,
    out: &mut impl Write,
) -> Result<(), CommandFailure> {
    let place = path.display();
    match command.id {
        Some(id) => {
            print(out, &format!("Using myid of {id}\n"))?;
            let written = fs::write(path, format!("{id}\n"));
            written.map_err(|error| failed(format!("cannot write {place}: {error}")))
        }
        None => {
            // As in the script, the id of the server that was here before is removed.
            let _absent = fs::remove_file(path);
            print(
                out,
                &format!(
                    "No myid provided, be sure to specify it in {place} if using non-standalone\n"
                ),
            )
        }
    }
}
