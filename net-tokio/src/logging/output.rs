//! Where lines are written: standard error, or a file that rotates.
//!
//! Owns the file, its length, and the files before it. Must not interpret lines.
//!
//! Only the log thread writes. Another thread may hand it a new target, which it takes at the end
//! of a line: so neither waits for the other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The output of the log thread.
pub(super) struct Output {
    target: Target,
    next: OutputSwitch,
    /// Does the next byte begin a line?
    at_line: bool,
}

enum Target {
    Stderr,
    File(LogFile),
}

/// A file with lines.
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Bytes from which on a new file begins.
    max_bytes: Option<u64>,
    /// How many earlier files stay.
    backups: u32,
}

/// Changes the target of an output. Clones share it.
#[derive(Clone, Default)]
pub(super) struct OutputSwitch(Arc<Mutex<Option<Target>>>);

impl OutputSwitch {
    /// The output that this changes; it begins with standard error.
    pub(super) fn output(&self) -> Output {
        Output { target: Target::Stderr, next: self.clone(), at_line: true }
    }

    /// Writes later lines to the end of this file, which is opened anew in any case: another
    /// program may have renamed it.
    ///
    /// # Errors
    /// The file cannot be opened. The target stays.
    pub(super) fn to_file(
        &self,
        path: &Path,
        max_bytes: Option<u64>,
        backups: u32,
    ) -> io::Result<()> {
        let file = LogFile::open(path.to_owned(), max_bytes, backups)?;
        *self.lock() = Some(Target::File(file));
        Ok(())
    }

    /// Writes later lines to standard error.
    pub(super) fn to_stderr(&self) {
        *self.lock() = Some(Target::Stderr);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Target>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.at_line {
            if let Some(next) = self.next.lock().take() {
                self.target = next;
            }
            if let Target::File(file) = &mut self.target {
                file.rotate_when_full();
            }
        }
        let written = match &mut self.target {
            Target::Stderr => io::stderr().write(bytes)?,
            Target::File(file) => file.write(bytes)?,
        };
        self.at_line = written.checked_sub(1).map_or(self.at_line, |last| bytes[last] == b'\n');
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile {
    fn open(path: PathBuf, max_bytes: Option<u64>, backups: u32) -> io::Result<LogFile> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path, file, bytes, max_bytes, backups })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    /// Begins a new file if this one is full. If that fails, the next attempt is made when as much
    /// again is written: lines must not be lost meanwhile.
    fn rotate_when_full(&mut self) {
        if self.max_bytes.is_none_or(|most| self.bytes < most) {
            return;
        }
        self.bytes = 0;
        if self.rename_all().is_err() {
            return;
        }
        if let Ok(new) = LogFile::open(self.path.clone(), self.max_bytes, self.backups) {
            *self = new;
        }
    }

    /// Renames `log` to `log.1`, `log.1` to `log.2`, and so on; the last one is replaced.
    fn rename_all(&self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut path = self.path.as_os_str().to_owned();
            path.push(format!(".{number}"));
            PathBuf::from(path)
        };
        if self.backups == 0 {
            return fs::remove_file(&self.path);
        }
        for number in (1..self.backups).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        fs::rename(&self.path, numbered(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn full_file_is_renamed_at_the_end_of_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/log");
        let switch = OutputSwitch::default();
        switch.to_file(&path, Some(8), 2).unwrap();
        let mut output = switch.output();
        for line in ["one is long", " enough\n", "two\n", "three\n", "four\n", "five, six\n", "7\n"]
        {
            output.write_all(line.as_bytes()).unwrap();
        }
        let text = |name: &str| fs::read_to_string(dir.path().join("sub").join(name)).unwrap();
        assert_eq!(names(&dir.path().join("sub")), ["log", "log.1", "log.2"]);
        assert_eq!(
            [text("log.2"), text("log.1"), text("log")],
            ["two\nthree\n", "four\nfive, six\n", "7\n"]
        );
    }

    #[test]
    fn renamed_file_is_left_at_the_next_switch() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let switch = OutputSwitch::default();
        switch.to_file(&path, None, 1).unwrap();
        let mut output = switch.output();
        output.write_all(b"one\n").unwrap();
        fs::rename(&path, dir.path().join("old")).unwrap();
        output.write_all(b"two\nthr").unwrap();
        switch.to_file(&path, None, 1).unwrap();
        output.write_all(b"ee\n").unwrap();
        output.write_all(b"four\n").unwrap();
        assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"one\ntwo\nthree\n");
        assert_eq!(fs::read(&path).unwrap(), b"four\n");
        assert!(switch.to_file(&path.join("sub"), None, 1).is_err(), "the target stays");
        output.write_all(b"five\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"four\nfive\n");
    }
}
