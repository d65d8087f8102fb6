//! Why a command failed: the text for standard error and the exit status (CLI-01).
//!
//! Owns the words of zkCli's `CliWrapperException` and the exit statuses. Must not print.

use std::fmt;
use std::io;

use zabkeeper_client::{Error, ErrorCode, Failure};

/// Done.
pub(crate) const OK: u8 = 0;
/// The operation failed; also wrong usage of a command that zkCli has, too.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const BAD_INVOCATION: u8 = 2;
/// No server was reached in time.
pub(crate) const UNREACHED: u8 = 3;
/// The session, or what it held, was lost while a program or a watch depended on it.
pub(crate) const LOST: u8 = 4;
/// There is no such command; the status of zkCli and of shells.
pub(crate) const NOT_FOUND: u8 = 127;

/// A command has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failed {
    /// The exit status of the program if this was its last command.
    pub(crate) status: u8,
    /// The text for standard error; empty if all is said.
    pub(crate) message: String,
    /// The error code of the server.
    code: Option<ErrorCode>,
    /// Nobody reads standard output any more.
    pub(crate) output_closed: bool,
}

/// What a command ends with.
pub(crate) type Outcome = Result<(), Failed>;

impl Failed {
    /// The operation failed.
    pub(crate) fn new(message: impl Into<String>) -> Failed {
        Failed::with_status(FAILED, message)
    }

    /// The words behind a command that zkCli does not have are wrong.
    pub(crate) fn bad_invocation(message: impl Into<String>) -> Failed {
        Failed::with_status(BAD_INVOCATION, message)
    }

    pub(crate) fn with_status(status: u8, message: impl Into<String>) -> Failed {
        Failed { status, message: message.into(), code: None, output_closed: false }
    }

    /// Has the server answered with this code?
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.code == Some(code)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        let output_closed = error.kind() == io::ErrorKind::BrokenPipe;
        Failed { output_closed, ..Failed::new(format!("cannot write the output: {error}")) }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed { code: error.code(), ..Failed::new(message(&error)) }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What zkCli prints for an error.
fn message(error: &Error) -> String {
    // Java's error of an operation without a path has none either.
    let path = if error.path().is_empty() { "null" } else { error.path() };
    let code = match error.failure() {
        Failure::Code(code) => code,
        Failure::ConnectionLoss => return keeper_error("ConnectionLoss", error.path()),
        Failure::TimedOut => return keeper_error("OperationTimeout", error.path()),
        Failure::SessionExpired | Failure::Closed => {
            return keeper_error("Session expired", error.path());
        }
        Failure::AuthFailed => return keeper_error("AuthFailed", error.path()),
        Failure::UnknownCode(code) => {
            return keeper_error(&format!("Unknown error {code}"), error.path());
        }
        Failure::InvalidPath(why) => return path_fault(error.path(), why),
        Failure::Full
        | Failure::TooLarge
        | Failure::NotACall
        | Failure::Lagged
        | Failure::WatchRemoved
        | Failure::UnexpectedData
        | Failure::OtherReply => return error.to_string(),
    };
    match code {
        ErrorCode::NoNode => format!("Node does not exist: {path}"),
        ErrorCode::NoChildrenForEphemerals => format!("Ephemerals cannot have children: {path}"),
        ErrorCode::NodeExists => format!("Node already exists: {path}"),
        ErrorCode::NotEmpty => format!("Node not empty: {path}"),
        ErrorCode::NotReadOnly => format!("Not a read-only call: {path}"),
        ErrorCode::InvalidAcl => format!("Acl is not valid : {path}"),
        ErrorCode::NoAuth => format!("Insufficient permission : {path}"),
        ErrorCode::BadArguments => format!("Arguments are not valid : {path}"),
        ErrorCode::BadVersion => format!("version No is not valid : {path}"),
        ErrorCode::ReconfigInProgress => "Another reconfiguration is in progress -- concurrent \
                                          reconfigs not supported (yet)"
            .to_owned(),
        ErrorCode::NewConfigNoQuorum => "No quorum of new config is connected and up-to-date \
                                         with the leader of last commmitted config - try \
                                         invoking reconfiguration after new servers are \
                                         connected and synced"
            .to_owned(),
        ErrorCode::QuotaExceeded => format!("Quota has exceeded : {path}"),
        ErrorCode::Marshalling
        | ErrorCode::Unimplemented
        | ErrorCode::UnknownSession
        | ErrorCode::SessionExpired
        | ErrorCode::AuthFailed
        | ErrorCode::NoWatcher
        | ErrorCode::EphemeralOnLocalSession
        | ErrorCode::Throttled
        | ErrorCode::SchemeRequired
        | ErrorCode::ReconfigDisabled => keeper_error(code_name(code), error.path()),
    }
}

/// `KeeperErrorCode = NoNode for /a`.
pub(crate) fn keeper_error(name: &str, path: &str) -> String {
    let on = if path.is_empty() { String::new() } else { format!(" for {path}") };
    format!("KeeperErrorCode = {name}{on}")
}

/// The name of a code in Java's messages.
pub(crate) fn code_name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Marshalling => "MarshallingError",
        ErrorCode::Unimplemented => "Unimplemented",
        ErrorCode::BadArguments => "BadArguments",
        ErrorCode::UnknownSession => "Unknown session",
        ErrorCode::NoNode => "NoNode",
        ErrorCode::NoAuth => "NoAuth",
        ErrorCode::BadVersion => "BadVersion",
        ErrorCode::NoChildrenForEphemerals => "NoChildrenForEphemerals",
        ErrorCode::NodeExists => "NodeExists",
        ErrorCode::NotEmpty => "Directory not empty",
        ErrorCode::SessionExpired => "Session expired",
        ErrorCode::InvalidAcl => "InvalidACL",
        ErrorCode::AuthFailed => "AuthFailed",
        ErrorCode::NoWatcher => "No such watcher",
        ErrorCode::EphemeralOnLocalSession => "Ephemeral node on local session",
        ErrorCode::QuotaExceeded => "Quota has exceeded",
        ErrorCode::Throttled => "Op throttled due to high load",
        ErrorCode::SchemeRequired => "Session closed because client failed to authenticate",
        ErrorCode::ReconfigDisabled => "Reconfig is disabled",
        ErrorCode::ReconfigInProgress => "ReconfigInProgress",
        ErrorCode::NewConfigNoQuorum => "NewConfigNoQuorum",
        ErrorCode::NotReadOnly => "Not a read-only call",
    }
}

/// What zkCli says of a path that is none; `why` is what the client says.
fn path_fault(path: &str, why: &str) -> String {
    if path.is_empty() {
        "Path length must be > 0".to_owned()
    } else if !path.starts_with('/') {
        "Path must start with / character".to_owned()
    } else if path.len() > 1 && path.ends_with('/') {
        "Path must not end with / character".to_owned()
    } else {
        let reason = reason(path).unwrap_or_else(|| why.to_owned());
        format!("Invalid path string \"{path}\" caused by {reason}")
    }
}

/// The first fault of a path, with its position in UTF-16 as Java has it.
fn reason(path: &str) -> Option<String> {
    const SLASH: u16 = 0x2f;
    const DOT: u16 = 0x2e;
    let units: Vec<u16> = path.encode_utf16().collect();
    let ends = |at: usize| units.get(at + 1).is_none_or(|next| *next == SLASH);
    let at = |at: Option<usize>| at.and_then(|at| units.get(at)).copied();
    (1..units.len()).find_map(|i| {
        let (unit, last) = (units[i], units[i - 1]);
        let what = match unit {
            0 => "null character not allowed",
            SLASH if last == SLASH => "empty node name specified",
            DOT if last == DOT && at(i.checked_sub(2)) == Some(SLASH) && ends(i) => {
                "relative paths not allowed"
            }
            DOT if last == SLASH && ends(i) => "relative paths not allowed",
            0x01..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0.. => "invalid character",
            _ => return None,
        };
        Some(format!("{what} @{i}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_none_are_named_as_zookeeper_names_them() {
        assert_eq!(path_fault("", ""), "Path length must be > 0");
        assert_eq!(path_fault("a", ""), "Path must start with / character");
        assert_eq!(path_fault("/a/", ""), "Path must not end with / character");
        for (path, reason) in [
            ("/a//b", "empty node name specified @3"),
            ("/a/..", "relative paths not allowed @4"),
            ("/./a", "relative paths not allowed @1"),
            ("/a\tb", "invalid character @2"),
        ] {
            let text = format!("Invalid path string \"{path}\" caused by {reason}");
            assert_eq!(path_fault(path, "is none"), text);
        }
        assert_eq!(keeper_error("NoNode", "/a"), "KeeperErrorCode = NoNode for /a");
    }
}
