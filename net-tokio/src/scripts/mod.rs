//! The commands that replace ZooKeeper's scripts, with their words and exit statuses (TOOL-01 to
//! TOOL-03, TOOL-08), and the start of a container.
//!
//! Owns which file they work with, and how they report. Must not serve: `process` does.
//!
//! ```text
//! zkServer.sh               server_control, pid_file, status
//! zkServer-initialize.sh    initialize
//! zkCleanup.sh              cleanup
//! (none)                    check
//! docker-entrypoint.sh      container
//! ```

mod check;
mod cleanup;
mod container;
mod initialize;
mod pid_file;
mod server_control;
mod status;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(crate) use check::check;
pub(crate) use cleanup::cleanup;
pub(crate) use container::prepare;
pub(crate) use initialize::initialize;
pub(crate) use server_control::{control, detach};

/// The folder of `zoo.cfg`, if no argument and no variable names another.
const CONFIG_DIR: &str = "/etc/zabkeeper";

/// How a command fails: the exit status and the text for standard error.
pub(crate) type CommandFailure = (u8, String);

/// The exit status of a command that cannot do what it is to do.
const FAILED: u8 = 1;

/// A failure with the status that ZooKeeper's scripts have for all of them.
fn failed(what: impl ToString) -> CommandFailure {
    (FAILED, what.to_string())
}

/// The `zoo.cfg` that an argument names, which may also be its folder or, as in ZooKeeper's
/// scripts, a name in the default folder.
pub(crate) fn config_file(given: Option<&Path>) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dir = variable("ZOOCFGDIR").map_or_else(|| PathBuf::from(CONFIG_DIR), PathBuf::from);
    let name = variable("ZOOCFG").unwrap_or_else(|| "zoo.cfg".into());
    match given {
        None => dir.join(name),
        Some(given) if given.is_dir() => given.join("zoo.cfg"),
        Some(given) if !given.exists() && dir.join(given).exists() => dir.join(given),
        Some(given) => given.to_owned(),
    }
}

/// Says on standard error which file is used, as ZooKeeper's scripts do.
fn name_config(file: &Path) {
    let _nobody_reads = writeln!(io::stderr(), "Using config: {}", file.display());
}

/// Prints a part of a line at once, so that a reader sees what a slow command does.
fn print(out: &mut impl Write, text: &str) -> Result<(), CommandFailure> {
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match printed {
        // The reader of the pipe, such as `head`, has exited; the command goes on.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
