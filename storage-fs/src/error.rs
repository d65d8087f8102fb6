//! What can go wrong with the disk, sorted by what the operator has to do.
//!
//! Owns the words that operators read. Must not decide what happens next: every one of these stops the server, unless it is
//! [`StoreError::Damaged`] and the driver knows of others who hold what is lost.

use std::fmt;
use std::io;

/// Why the store cannot go on. Cloneable, because a lane that has failed answers with the same error for ever.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// Another process holds the directory.
    InUse {
        /// Which directory.
        place: &'static str,
    },
    /// No room is left.
    DiskFull {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file it was attempted on.
        file: String,
        /// Which directory.
        place: &'static str,
        /// Bytes that the file system still gives, where it says so.
        free: Option<u64>,
    },
    /// The process, or the system, has too many files open.
    TooManyFiles {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file it was attempted on.
        file: String,
        /// Which directory.
        place: &'static str,
    },
    /// The operating system refused.
    Io {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file it was attempted on.
        file: String,
        /// Which directory.
        place: &'static str,
        /// The kind, for programs.
        kind: io::ErrorKind,
        /// The operating system's words, for people.
        message: String,
    },
    /// Bytes that were durable once are gone or changed.
    Damaged {
        /// What is wrong, with the values found.
        what: String,
        /// The file, and the directory that it is in.
        place: String,
    },
    /// Written by a version of this software that knows a format that this one does not.
    UnknownVersion {
        /// The file.
        file: String,
        /// The format version found.
        found: u32,
        /// The newest format version known.
        known: u32,
    },
    /// A file that another ensemble's server wrote.
    ForeignCluster {
        /// The file.
        file: String,
        /// The cluster id found.
        found: u64,
        /// The cluster id of the state file.
        expected: u64,
    },
}

impl StoreError {
    /// What lacks, if it is only room or a descriptor: then nothing that was written is in doubt.
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
            | StoreError::ForeignCluster { .. } => None,
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
                "{place} is damaged: {what}; going on could lose acknowledged writes, so the files are \
                 left as they are"
            ),
            StoreError::UnknownVersion { file, found, known } => write!(
                f,
                "{file} has format version {found}, this server knows versions up to {known}: \
                 start the newer server that wrote it"
            ),
            StoreError::ForeignCluster { file, found, expected } => write!(
                f,
                "{file} belongs to cluster {found:#018x}, this server to {expected:#018x}: two \
                 servers' files are mixed, move the foreign ones away"
            ),
        }
    }
}

impl std::error::Error for StoreError {}
