//! The program's output: results on standard output, errors on standard error, requested files.
//!
//! Owns the writing, and the record of whether output was lost. Must not know what is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a write to standard output failed.
static LOST: AtomicBool = AtomicBool::new(false);

/// Writes to standard output. A closed pipe is not an error, since the reader has read enough;
/// [`is_lost`] reports any other failure.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else {
        return;
    };
    if error.kind() != io::ErrorKind::BrokenPipe && !LOST.swap(true, Ordering::Relaxed) {
        print_error(&format!("standard output: {error}\n"));
    }
}

/// Writes to standard error; failures are ignored.
pub(crate) fn print_error(text: &str) {
    let _closed = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether [`print`] has failed to write anything.
pub(crate) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// Writes a requested file, replacing any existing content.
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    File::create_new(path)
        .or_else(|_| OpenOptions::new().write(true).truncate(true).open(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
}

/// Checks before a run whether a flag's output file can be created.
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
