//! What leaves the program: results on standard output, what went wrong on standard error, files that were asked for.
//!
//! Owns the writing, and whether something of it is lost. Must not know what is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Something of what standard output was to have is not there.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output. A closed pipe is no reason to fail: who reads has seen enough. Of anything else
/// [`is_lost`] tells.
pub(crate) fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else {
        return;
    };
    if error.kind() != io::ErrorKind::BrokenPipe && !LOST.swap(true, Ordering::Relaxed) {
        say(&format!("standard output: {error}\n"));
    }
}

/// Writes to standard error; nobody may be listening.
pub(crate) fn say(text: &str) {
    let _closed = io::stderr().lock().write_all(text.as_bytes());
}

/// Has [`tell`] lost anything?
pub(crate) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Writes a file that somebody asked for, over what was there.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)
        .or_else(|_| OpenOptions::new().write(true).truncate(true).open(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
}

/// A file could be where a flag wants one, if it wants one.
///
/// # Errors
/// Says why it cannot.
pub(crate) fn may_write(flag: &str, path: Option<&PathBuf>) -> Result<(), String> {
    let Some(path) = path else {
        return Ok(());
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() {
        return Err(format!("--{flag} {}: this is a folder", path.display()));
    }
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(format!(
            "--{flag} {}: there is no folder {}",
            path.display(),
            parent.display()
        ));
    }
    Ok(())
}
