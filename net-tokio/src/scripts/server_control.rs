//! `zabkeeper server`: starts a server in the background, and stops it.
//!
//! Owns the background process until it runs. Must not decide how a server stops: SIGTERM has it
//! hand over and answer, and it ends when that is done.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::pid_file::{self, PidFile};
use super::{CommandFailure, FAILED, config_file, failed, name_config, print, status};
use crate::args::{ServerAction, ServerCommand};
use crate::config::{self, Settings};

/// How long `start` watches whether the server fails. A port in use fails after a second.
const WATCH: Duration = Duration::from_secs(3);

/// Time between two looks at the new process.
const POLL: Duration = Duration::from_millis(20);

/// The outputs of a server in the background.
const OUTPUT: &str = "zabkeeper.out";

/// What a server writes to standard output when it serves.
const ANNOUNCEMENT: &str = "Zabkeeper listens on ";

/// Runs the command, unless it is to serve, which `process` does.
///
/// # Errors
/// The exit status and the text for standard error, which may be empty.
pub(crate) fn control(command: &ServerCommand, out: &mut impl Write) -> Result<(), CommandFailure> {
    let file = config_file(command.config.as_deref());
    if command.action == ServerAction::Version {
        return print(out, concat!("Zabkeeper, version ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    name_config(&file);
    match command.action {
        ServerAction::Start => start(&file, out),
        ServerAction::Stop => stop(&file, command.patience, out),
        ServerAction::Restart => {
            stop(&file, command.patience, out)?;
            start(&file, out)
        }
        ServerAction::Status => status::status(&file, out),
        ServerAction::PrintCmd => print_command(&file, out),
        ServerAction::StartForeground | ServerAction::Version => Ok(()),
    }
}

/// Leaves the session of the terminal, whose end would end this process, too.
pub(crate) fn detach() {
    // A process that leads a session already stays in it.
    let _session = rustix::process::setsid();
}

fn start(file: &Path, out: &mut impl Write) -> Result<(), CommandFailure> {
    print(out, "Starting zookeeper ... ")?;
    let not_started = |what: String| (FAILED, format!("FAILED TO START: {what}"));
    let (settings, _) = Settings::from_file(file).map_err(|what| not_started(what.to_string()))?;
    let pid_file = PidFile::of(&settings.data_dir);
    if let Some(pid) = pid_file.running() {
        print(out, &format!("already running as process {}.\n", pid.as_raw_nonzero()))?;
        return Err((FAILED, String::new()));
    }
    prepare_folder(&settings).map_err(&not_started)?;
    let output = output_file(&settings.data_dir);
    let cannot = |what: &str, path: &Path, error: io::Error| {
        not_started(format!("cannot {what} {}: {error}", path.display()))
    };
    let (log, began) = open_output(&output).map_err(|error| cannot("write to", &output, error))?;
    let mut child = spawn(file, &log)
        .map_err(|error| not_started(format!("cannot run this program: {error}")))?;
    if let Err(error) = pid_file.write(child.id()) {
        // Nobody could stop the server by this file.
        let _ended = child.kill();
        let _ended = child.wait();
        print(out, "FAILED TO WRITE PID\n")?;
        return Err(failed(format!("{}: {error}", pid_file.path().display())));
    }
    if has_ended(&mut child, &output, began) {
        pid_file.remove();
        print(out, "FAILED TO START\n")?;
        let (text, place) = (tail(&output, began), output.display());
        return Err(failed(format!("the server has ended; {place} has:\n{text}")));
    }
    print(out, "STARTED\n")
}

/// Creates `dataDir`, which has the file with the process id, unless the server may not do so.
fn prepare_folder(settings: &Settings) -> Result<(), String> {
    let dir = &settings.data_dir;
    if dir.is_dir() {
        return Ok(());
    }
    let place = dir.display();
    if !settings.create_folders {
        return Err(format!("there is no folder {place}; fix the path or run initialize"));
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| format!("cannot create {place}: {error}"))
}

fn output_file(data_dir: &Path) -> PathBuf {
    let dir = std::env::var_os("ZOO_LOG_DIR").filter(|dir| !dir.is_empty());
    dir.map_or_else(|| data_dir.to_owned(), PathBuf::from).join(OUTPUT)
}

/// The file for the outputs, and how long it is.
fn open_output(path: &Path) -> io::Result<(File, u64)> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn arguments(file: &Path) -> Vec<OsString> {
    let words = ["server", "start-foreground", "--detached", "--config"];
    words.into_iter().map(OsString::from).chain([file.as_os_str().to_owned()]).collect()
}

fn spawn(file: &Path, output: &File) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(arguments(file))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()
}

/// Does the server end within [`WATCH`]? A member of an ensemble may wait longer for the others, so
/// one that runs by then counts as started.
fn has_ended(child: &mut Child, output: &Path, began: u64) -> bool {
    let latest = Instant::now() + WATCH;
    while Instant::now() < latest {
        match child.try_wait() {
            Ok(None) if tail(output, began).contains(ANNOUNCEMENT) => return false,
            Ok(None) => thread::sleep(POLL),
            Ok(Some(_)) | Err(_) => return true,
        }
    }
    false
}

/// What the outputs have since `began`.
fn tail(output: &Path, began: u64) -> String {
    let mut bytes = Vec::new();
    let read = File::open(output).and_then(|mut file| {
        file.seek(SeekFrom::Start(began))?;
        file.take(1 << 16).read_to_end(&mut bytes)
    });
    let _as_far_as_it_can_be_read = read;
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}

fn stop(file: &Path, patience: Duration, out: &mut impl Write) -> Result<(), CommandFailure> {
    print(out, "Stopping zookeeper ... ")?;
    let [data_dir, _] = config::folders_of(file).map_err(failed)?;
    let pid_file = PidFile::of(&data_dir);
    let path = pid_file.path().display().to_string();
    if !pid_file.exists() {
        let what = format!("no zookeeper to stop (could not find file {path})\n");
        return print(out, &what);
    }
    let Some(pid) = pid_file.running() else {
        pid_file.remove();
        return print(out, &format!("no zookeeper to stop ({path} named none that runs)\n"));
    };
    let number = pid.as_raw_nonzero();
    match pid_file::terminate(pid, patience) {
        Ok(true) => {
            pid_file.remove();
            print(out, "STOPPED\n")
        }
        Ok(false) => {
            print(out, "FAILED TO STOP\n")?;
            let seconds = patience.as_secs();
            Err(failed(format!("process {number} still runs after {seconds} s")))
        }
        Err(error) => {
            print(out, "FAILED TO STOP\n")?;
            Err(failed(format!("cannot end process {number}: {error}")))
        }
    }
}

fn print_command(file: &Path, out: &mut impl Write) -> Result<(), CommandFailure> {
    let [data_dir, _] = config::folders_of(file).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let words = [program.into_os_string()].into_iter().chain(arguments(file));
    let words: Vec<String> = words.map(|word| format!("\"{}\"", word.display())).collect();
    let output = output_file(&data_dir);
    let command = words.join(" ");
    print(out, &format!("{command} >> \"{}\" 2>&1 < /dev/null\n", output.display()))
}
