//! The command line.
//!
//! Owns its grammar and the help text. Must not read files.

use std::ffi::OsString;
use std::path::PathBuf;

/// What the user asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Run with what the file says, or with the defaults for trying it out.
    Serve(Option<PathBuf>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

pub(crate) const HELP: &str = "\
A ZooKeeper-compatible coordination service.

Usage: zabkeeper [zoo.cfg]

Without an argument it serves 127.0.0.1:2181 with its data in ./zabkeeper-data.
With one it runs what that file says; the keys are those of ZooKeeper.

Options:
  -h, --help     print this
  -V, --version  print the version

Environment:
  RUST_LOG         what is logged to standard error, such as debug (default: info)
  SERVER_JVMFLAGS  options such as -Djute.maxbuffer=4194304 that add to zoo.cfg

Exit status: 0 stopped by a signal, 1 failed, 2 bad invocation or configuration,
3 unusable data directory.
";

/// Reads the arguments, the program's name left out.
///
/// # Errors
/// What is wrong with them, as a line for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, String> {
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        return Ok(Invocation::Serve(None));
    };
    if let Some(extra) = args.next() {
        let extra = extra.display();
        return Err(format!("unexpected argument {extra:?}: one configuration file is all I take"));
    }
    match first.to_str() {
        Some("-h" | "--help") => Ok(Invocation::Help),
        Some("-V" | "--version") => Ok(Invocation::Version),
        Some(option) if option.starts_with('-') => {
            Err(format!("unknown option {option}: see zabkeeper --help"))
        }
        _ => Ok(Invocation::Serve(Some(PathBuf::from(first)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str]) -> Result<Invocation, String> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn one_file_or_one_option() {
        assert_eq!(check(&[]), Ok(Invocation::Serve(None)));
        assert_eq!(check(&["zoo.cfg"]), Ok(Invocation::Serve(Some("zoo.cfg".into()))));
        assert_eq!(check(&["--help"]), Ok(Invocation::Help));
        assert_eq!(check(&["-V"]), Ok(Invocation::Version));
        assert!(check(&["--port"]).is_err_and(|e| e.contains("--port")));
        assert!(check(&["a", "b"]).is_err_and(|e| e.contains("\"b\"")));
    }
}
