//! What a server and the program around it tell each other.
//!
//! Owns requests to stop, and why a server ends by itself. Must not act on either.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::Path;

use storage_fs::StoreError;
use tokio::sync::mpsc::UnboundedReceiver;
use zabkeeper_core::driver::ClientLimits;
use zabkeeper_core::driver::four_letter::Whitelist;

/// The program that runs a server: the process `zabkeeper`, or a test with servers inside.
pub(crate) trait Host {
    /// The data is recovered, and all ports listen. From now on connections are accepted, whose
    /// ends can cause log lines. Returns the requests to stop.
    ///
    /// # Errors
    /// The server must not start.
    fn opened(&mut self) -> Result<StopRequests, Failure>;

    /// Clients are served, at the address `everywhere`; a client on this machine uses `near`.
    fn serving(&self, everywhere: &str, near: &str);

    /// Settings that change while the server runs. A host without any has none.
    fn changes(&mut self) -> Option<UnboundedReceiver<Changes>> {
        None
    }
}

/// Settings that a running server takes over.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Bounds on clients; only some of them can change (`Driver::reload`).
    pub(crate) limits: ClientLimits,
    /// Four-letter commands that are answered.
    pub(crate) whitelist: Whitelist,
}

/// How a server is to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It hands leadership over, and answers the requests that it has read.
    Gracefully,
    /// It does not wait for that.
    AtOnce,
}

/// The requests to stop.
pub(crate) type StopRequests = UnboundedReceiver<Stop>;

/// Why the server could not start, or had to stop.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The data directory cannot be used.
    Data(String),
    /// The data differs from the ensemble's: the process restarts itself, and the next start sets
    /// the data aside.
    Differs(String),
    /// A panic, which the process `zabkeeper` does not survive: an invariant is broken.
    Panicked(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// A panic with this payload.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Failure {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Failure::Panicked(text.unwrap_or_else(|| "without a message".to_owned()))
    }

    /// A failure to create or open a folder.
    pub(crate) fn of_folder(key: &str, path: &Path, error: &io::Error) -> Failure {
        let path = path.display();
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            let what =
                format!("disk full: cannot create {path}: {error}; make room and start again");
            return Failure::Other(what);
        }
        Failure::Data(format!(
            "cannot create or open the folder {path}: {error}; {key} has to be a folder that this \
             server may write to"
        ))
    }

    /// A failure to open the data in a folder. A lack of disk space or descriptors is no fault of
    /// the data.
    pub(crate) fn of_store(path: &Path, error: &StoreError) -> Failure {
        let what = format!("{}: {error}", path.display());
        match error {
            StoreError::DiskFull { .. } | StoreError::TooManyFiles { .. } => Failure::Other(what),
            StoreError::InUse { .. }
            | StoreError::Io { .. }
            | StoreError::Damaged { .. }
            | StoreError::UnknownVersion { .. }
            | StoreError::ForeignStore { .. } => Failure::Data(what),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Data(what) | Failure::Differs(what) | Failure::Other(what) => {
                f.write_str(what)
            }
            Failure::Panicked(what) => write!(f, "the server panicked: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_exits_with_status_1_not_3() {
        let path = Path::new("/data");
        let (operation, file, place) = ("write", "state.tmp".to_owned(), "log directory");
        let full = StoreError::DiskFull { operation, file: file.clone(), place, free: Some(7) };
        assert!(matches!(Failure::of_store(path, &full), Failure::Other(what) if
            what == "/data: disk full: cannot write state.tmp in the log directory (7 bytes free); \
                nothing \
                     acknowledged is lost: make room and start again"));
        let few = StoreError::TooManyFiles { operation, file, place };
        assert!(matches!(Failure::of_store(path, &few), Failure::Other(_)));
        let damaged = StoreError::Damaged { what: String::new(), place: String::new() };
        assert!(matches!(Failure::of_store(path, &damaged), Failure::Data(_)));

        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(Failure::of_folder("dataDir", path, &full), Failure::Other(what) if
            what.ends_with("; make room and start again")));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(Failure::of_folder("dataDir", path, &denied), Failure::Data(_)));
    }
}
