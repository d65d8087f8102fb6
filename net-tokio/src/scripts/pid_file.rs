//! The file with the process id of a server that runs in the background.
//!
//! Owns the file, and whether the process in it still runs. Must not start or end processes, except
//! by a signal that it is told to send.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The name that `zkServer.sh` uses.
const NAME: &str = "zookeeper_server.pid";

/// Time between two looks at a process.
const POLL: Duration = Duration::from_millis(20);

/// The file with a process id.
#[derive(Clone, Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// The file of the server with this `dataDir`; the variable `ZOOPIDFILE` names another one.
    pub(super) fn of(data_dir: &Path) -> PidFile {
        match std::env::var_os("ZOOPIDFILE").filter(|path| !path.is_empty()) {
            Some(path) => PidFile(path.into()),
            None => PidFile(data_dir.join(NAME)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Does the file exist?
    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// The process in the file, if it is a server that runs. After a reboot the number may belong
    /// to any other program, which no command must end.
    pub(super) fn running(&self) -> Option<Pid> {
        let text = fs::read_to_string(&self.0).ok()?;
        let number = text.trim().parse::<i32>().ok().filter(|number| *number > 0)?;
        let pid = Pid::from_raw(number)?;
        (runs(pid) && is_server(pid)).then_some(pid)
    }

    /// Writes the file, as `zkServer.sh` does: without a line feed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, pid: u32) -> io::Result<()> {
        fs::write(&self.0, pid.to_string())
    }

    /// Removes the file, if it is there.
    pub(super) fn remove(&self) {
        let _gone = fs::remove_file(&self.0);
    }
}

/// Asks a process to end, and waits for its end. Returns whether it has ended in time.
///
/// # Errors
/// The operating system does not let this user end it.
pub(super) fn terminate(pid: Pid, patience: Duration) -> io::Result<bool> {
    match kill_process(pid, Signal::TERM) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    let latest = Instant::now() + patience;
    while runs(pid) {
        if Instant::now() >= latest {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    Ok(true)
}

/// Does the process run? One that has ended and whose parent has not asked for its status does not.
fn runs(pid: Pid) -> bool {
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return false;
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The state is behind the name, which is in parentheses and may contain any character.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state != Some('Z')
}

/// Does the process run this program? Where the system does not say so, it is believed.
fn is_server(pid: Pid) -> bool {
    let name = |path: &Path| {
        // Linux marks a program that an upgrade has replaced.
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some(name.trim_end_matches(" (deleted)").to_owned())
    };
    let theirs = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
    match (theirs, std::env::current_exe()) {
        (Ok(theirs), Ok(own)) => name(&theirs) == name(&own),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_running_server_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = PidFile(dir.path().join(NAME));
        assert!(!file.exists() && file.running().is_none());
        file.write(std::process::id()).unwrap();
        // This test is the program that it looks for.
        assert_eq!(file.running(), Some(rustix::process::getpid()));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        file.write(other.id()).unwrap();
        if cfg!(target_os = "linux") {
            assert_eq!(file.running(), None, "another program");
        }
        other.kill().unwrap();
        let pid = Pid::from_child(&other);
        while runs(pid) {
            thread::sleep(POLL);
        }
        other.wait().unwrap();
        assert!(!runs(pid));
        fs::write(file.path(), "-7").unwrap();
        assert_eq!(file.running(), None);
        file.remove();
        assert!(!file.exists());
    }
}
