//! Errors of the store, one variant for each thing the operator has to do.
//!
//! Owns the error texts for operators. Must not decide what happens next: every error stops the
//! server, except that after [`StoreError::Damaged`] the host of an ensemble member may set the
//! store aside, because the other members hold the lost data.

use std::fmt;
use std::io;

/// Why the store cannot continue. `Clone`, because a failed lane returns the same error from every
/// later call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// Another process holds the lock of the directory.
    InUse {
        /// The directory, by its name for the operator.
        place: &'static str,
    },
    /// The file system or a quota is full.
    DiskFull {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file.
        file: String,
        /// The directory, by its name for the operator.
        place: &'static str,
        /// Bytes still available; `None` if the file system does not report them.
        free: Option<u64>,
    },
    /// The process or the system is out of file descriptors (`EMFILE`, `ENFILE`).
    TooManyFiles {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file.
        file: String,
        /// The directory, by its name for the operator.
        place: &'static str,
    },
    /// Any other error of the operating system.
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file.
        file: String,
        /// The directory, by its name for the operator.
        place: &'static str,
        /// The error kind, for programs.
        kind: io::ErrorKind,
        /// The error text of the operating system, for people.
        message: String,
    },
    /// Bytes that had been durable are missing or changed.
    Damaged {
        /// What is wrong, with the values found.
        what: String,
        /// The file and its directory.
        place: String,
    },
    /// A later version of this software wrote the file in a format that this version cannot read.
    UnknownVersion {
        /// The file.
        file: String,
        /// The format version in the file.
        found: u32,
        /// The newest format version that this software reads.
        known: u32,
    },
    /// The file belongs to the store of another server.
    ForeignStore {
        /// The file.
        file: String,
        /// The store id in the file.
        found: u64,
        /// The store id of the state file.
        expected: u64,
    },
}

impl StoreError {
    /// The error text, if only disk space or file descriptors ran out: then all data written
    /// before is intact.
    pub(crate) fn shortage(&self) -> Option<String> {
        match self {
            StoreError::DiskFull { operation, file, place, free } => {
                let free = free.map_or_else(String::new, |free| format!(" ({free} bytes free)"));
                Some(format!("disk full: cannot {operation} {file} in the {place}{free}"))
            }
            StoreError::TooManyFiles { operation, file, place } => Some(format!(
                "too many open files: cannot {operation} {file} in the {place}; raise the limit \
                 (ulimit -n, or LimitNOFILE of the service)"
            )),
            StoreError::InUse { .. }
            | StoreError::Io { .. }
            | StoreError::Damaged { .. }
            | StoreError::UnknownVersion { .. }
            | StoreError::ForeignStore { .. } => None,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::InUse { place } => write!(
                f,
                "the {place} is in use by another process: stop that one, or give this server a \
                 directory of its own"
            ),
            StoreError::DiskFull { .. } | StoreError::TooManyFiles { .. } => {
                let is_full = matches!(self, StoreError::DiskFull { .. });
                let (lacks, remedy) = (
                    self.shortage().unwrap_or_default(),
                    if is_full { "make room and start again" } else { "start again then" },
                );
                write!(f, "{lacks}; nothing acknowledged is lost: {remedy}")
            }
            StoreError::Io { operation, file, place, kind: _, message } => {
                write!(f, "cannot {operation} {file} in the {place}: {message}")
            }
            StoreError::Damaged { what, place } => write!(
                f,
                "{place} is damaged: {what}; going on could lose acknowledged writes, so the files \
                 are \
                 left as they are"
            ),
            StoreError::UnknownVersion { file, found, known } => write!(
                f,
                "{file} has format version {found}, this server knows versions up to {known}: \
                 start the newer server that wrote it"
            ),
            StoreError::ForeignStore { file, found, expected } => write!(
                f,
                "{file} belongs to the store {found:#018x}, this server's is {expected:#018x}: two \
                 servers' files are mixed, move the foreign ones away"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
