//! `zabkeeper cleanup`: removes snapshots and logs that a stopped server no longer needs.
//!
//! Owns the choice of the oldest snapshot that is kept. Must not remove anything itself: the
//! store's snapshot lane does, as it does while the server runs.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use storage_fs::{Options, OsDir};
use zabkeeper_core::store::DiskCommand;

use super::{CommandFailure, config_file, failed, print};
use crate::args::CleanupCommand;
use crate::config::{self, OUR_FOLDER};
use crate::host::Failure;

/// The exit status for unusable data.
const BAD_DATA: u8 = 3;

/// Runs the command.
///
/// # Errors
/// A server runs on the data, or the data is damaged.
pub(crate) fn cleanup(
    command: &CleanupCommand,
    out: &mut impl Write,
) -> Result<(), CommandFailure> {
    let file = config_file(command.config.as_deref());
    let [data, log] = config::folders_of(&file).map_err(failed)?;
    let [snapshots, log] = [data, log].map(|folder| folder.join(OUR_FOLDER));
    for folder in [&snapshots, &log] {
        // Checked here because `OsDir::new` would create a missing directory.
        if !folder.is_dir() {
            return Err((BAD_DATA, format!("{} is no directory", folder.display())));
        }
    }
    let before = files(&[&snapshots, &log]);
    purge(&snapshots, &log, command.keep).map_err(|failure| match failure {
        Failure::Data(what) => (BAD_DATA, what),
        Failure::Differs(what) | Failure::Panicked(what) | Failure::Other(what) => failed(what),
    })?;
    let after = files(&[&snapshots, &log]);
    for removed in before.difference(&after) {
        print(out, &format!("Removing file: {}\n", removed.display()))?;
    }
    Ok(())
}

/// Removes what is older than the `keep`-th newest snapshot.
fn purge(snapshots: &Path, log: &Path, keep: usize) -> Result<(), Failure> {
    let open =
        |path: &Path| OsDir::new(path).map_err(|error| Failure::of_folder("dataDir", path, &error));
    let (log_dir, snapshot_dir) = (open(log)?, open(snapshots)?);
    let failure = |error| Failure::of_store(log, &error);
    // Reading checks all files, so nothing is removed that a damaged newer file would make
    // necessary.
    let found = storage_fs::inspect(log_dir.clone(), snapshot_dir.clone()).map_err(failure)?;
    let kept = found.recovered.snapshots;
    let Some(oldest) = kept.len().checked_sub(keep).and_then(|at| kept.get(at)).copied() else {
        return Ok(());
    };
    let mut opened = storage_fs::open(log_dir, snapshot_dir, Options::new(0)).map_err(failure)?;
    opened.snapshots.run(&DiskCommand::Purge { oldest }).map_err(failure)?;
    Ok(())
}

fn files(folders: &[&Path]) -> BTreeSet<PathBuf> {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    entries.flatten().flatten().map(|entry| entry.path()).collect()
}
