//! The arguments of the commands that replace ZooKeeper's scripts (TOOL-01 to TOOL-03, TOOL-08).
//!
//! Owns their grammar. Must not read files.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The parameters of `zabkeeper server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerCommand {
    /// What to do.
    pub(crate) action: ServerAction,
    /// `zoo.cfg`, or its folder; `None` means the default.
    pub(crate) config: Option<PathBuf>,
    /// How long `stop` waits.
    pub(crate) patience: Duration,
    /// `start-foreground`: leave the session of the terminal; `start` runs itself like this.
    pub(crate) detached: bool,
}

/// What `zabkeeper server` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerAction {
    /// Start a server that outlives this process.
    Start,
    /// Serve.
    StartForeground,
    /// Stop the server.
    Stop,
    /// Stop it and start it again.
    Restart,
    /// Print the mode of the server.
    Status,
    /// Print the command that `Start` runs.
    PrintCmd,
    /// Print the version.
    Version,
}

/// The parameters of `zabkeeper initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InitializeCommand {
    /// `zoo.cfg`, or its folder; `None` means the default.
    pub(crate) config: Option<PathBuf>,
    /// Remove data that is there.
    pub(crate) force: bool,
    /// The content of `myid`.
    pub(crate) id: Option<u64>,
}

/// The parameters of `zabkeeper cleanup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CleanupCommand {
    /// `zoo.cfg`, or its folder; `None` means the default.
    pub(crate) config: Option<PathBuf>,
    /// Snapshots to keep.
    pub(crate) keep: usize,
}

/// The parameters of `zabkeeper check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckCommand {
    /// `zoo.cfg`, or its folder; `None` means the default.
    pub(crate) config: Option<PathBuf>,
}

/// How long `stop` waits by default: several times the longest time that a server takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The fewest snapshots to keep, as in ZooKeeper.
const KEPT: usize = 3;

const USAGE: &str = "see zabkeeper --help";

/// Parses the arguments after `zabkeeper server`. As with `zkServer.sh`, options may be before or
/// after the action, and the file may be without `--config` behind the action.
pub(super) fn parse_server(
    mut args: impl Iterator<Item = OsString>,
) -> Result<ServerCommand, String> {
    let (mut action, mut config) = (None, None);
    let (mut patience, mut detached) = (PATIENCE, false);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--config") => config = Some(PathBuf::from(value("--config", &mut args)?)),
            Some("--timeout") => {
                patience = Duration::from_secs(number("--timeout", &mut args)?);
            }
            Some("--detached") => detached = true,
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option {option} of server: {USAGE}"));
            }
            word if action.is_none() => action = Some(server_action(word)?),
            _ if config.is_none() => config = Some(PathBuf::from(arg)),
            _ => return Err(format!("unexpected argument {:?}: {USAGE}", arg.display())),
        }
    }
    let action = action.map_or_else(|| server_action(None), Ok)?;
    Ok(ServerCommand { action, config, patience, detached })
}

fn server_action(word: Option<&str>) -> Result<ServerAction, String> {
    match word {
        Some("start") => Ok(ServerAction::Start),
        Some("start-foreground") => Ok(ServerAction::StartForeground),
        Some("stop") => Ok(ServerAction::Stop),
        Some("restart") => Ok(ServerAction::Restart),
        Some("status") => Ok(ServerAction::Status),
        Some("print-cmd") => Ok(ServerAction::PrintCmd),
        Some("version") => Ok(ServerAction::Version),
        _ => Err("Usage: zabkeeper server [--config FILE] \
                  {start|start-foreground|stop|version|restart|status|print-cmd}"
            .to_owned()),
    }
}

/// Parses the arguments after `zabkeeper initialize`.
pub(super) fn parse_initialize(
    mut args: impl Iterator<Item = OsString>,
) -> Result<InitializeCommand, String> {
    let mut command = InitializeCommand { config: None, force: false, id: None };
    while let Some(arg) = args.next() {
        // As in the script, the value may be behind an equals sign.
        let text = arg.to_str().unwrap_or_default();
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        let mut given = inline.into_iter().chain(&mut args);
        match name {
            "--configfile" | "--config" => {
                command.config = Some(PathBuf::from(value(name, &mut given)?));
            }
            "--myid" => command.id = Some(number(name, &mut given)?),
            "--force" => command.force = true,
            _ => return Err(format!("unexpected {:?} for initialize: {USAGE}", arg.display())),
        }
    }
    Ok(command)
}

/// Parses the arguments after `zabkeeper cleanup`.
pub(super) fn parse_cleanup(
    mut args: impl Iterator<Item = OsString>,
) -> Result<CleanupCommand, String> {
    let mut command = CleanupCommand { config: None, keep: KEPT };
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--config") => command.config = Some(PathBuf::from(value("--config", &mut args)?)),
            Some("-n") => {
                let count = number("-n", &mut args)?;
                command.keep = usize::try_from(count).unwrap_or(usize::MAX);
            }
            _ => return Err(format!("unexpected {:?} for cleanup: {USAGE}", arg.display())),
        }
    }
    if command.keep < KEPT {
        return Err("count should be greater than or equal to 3".to_owned());
    }
    Ok(command)
}

/// Parses the arguments after `zabkeeper check`.
pub(super) fn parse_check(
    mut args: impl Iterator<Item = OsString>,
) -> Result<CheckCommand, String> {
    let mut config = None;
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--config") => config = Some(PathBuf::from(value("--config", &mut args)?)),
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option {option} of check: {USAGE}"));
            }
            _ if config.is_none() => config = Some(PathBuf::from(arg)),
            _ => return Err(format!("unexpected argument {:?}: {USAGE}", arg.display())),
        }
    }
    Ok(CheckCommand { config })
}

fn value(option: &str, args: &mut impl Iterator<Item = OsString>) -> Result<OsString, String> {
    args.next().ok_or_else(|| format!("{option} needs a value: {USAGE}"))
}

fn number(option: &str, args: &mut impl Iterator<Item = OsString>) -> Result<u64, String> {
    let text = value(option, args)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{option} {:?}: not a whole number: {USAGE}", text.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'a>(args: &'a [&'a str]) -> impl Iterator<Item = OsString> + 'a {
        args.iter().map(OsString::from)
    }

    #[test]
    fn server_commands_are_parsed() {
        let stop = ServerCommand {
            action: ServerAction::Stop,
            config: Some("z".into()),
            patience: Duration::from_secs(5),
            detached: false,
        };
        for args in [
            &["stop", "--config", "z", "--timeout", "5"][..],
            &["--config", "z", "--timeout", "5", "stop"],
            &["--timeout", "5", "stop", "z"],
        ] {
            assert_eq!(parse_server(words(args)).as_ref(), Ok(&stop), "{args:?}");
        }
        let start = parse_server(words(&["start"])).expect("parses");
        assert_eq!((start.config, start.patience), (None, PATIENCE));
        for (args, named) in [
            (&[][..], "start|start-foreground|stop"),
            (&["begin"], "start|start-foreground|stop"),
            (&["start", "a", "b"], "\"b\""),
            (&["start", "--port"], "--port"),
            (&["stop", "--timeout", "x"], "\"x\""),
            (&["stop", "--config"], "--config needs a value"),
        ] {
            let error = parse_server(words(args)).expect_err("is refused");
            assert!(error.contains(named), "{args:?}: {error}");
        }
    }

    #[test]
    fn initialize_cleanup_and_check_are_parsed() {
        let made = InitializeCommand { config: Some("z".into()), force: true, id: Some(3) };
        for args in [
            &["--configfile", "z", "--myid", "3", "--force"][..],
            &["--force", "--myid=3", "--configfile=z"],
        ] {
            assert_eq!(parse_initialize(words(args)).as_ref(), Ok(&made), "{args:?}");
        }
        assert!(parse_initialize(words(&["--myid", "x"])).is_err());
        assert!(parse_initialize(words(&["z"])).is_err());
        let cleanup = |args: &[&str]| parse_cleanup(words(args));
        assert_eq!(cleanup(&[]), Ok(CleanupCommand { config: None, keep: 3 }));
        assert_eq!(cleanup(&["-n", "9"]), Ok(CleanupCommand { config: None, keep: 9 }));
        assert!(cleanup(&["-n", "2"]).is_err_and(|what| what.contains("equal to 3")));
        assert!(cleanup(&["/data"]).is_err());
        let check = parse_check(words(&["z"]));
        assert_eq!(check, Ok(CheckCommand { config: Some("z".into()) }));
        assert!(parse_check(words(&["z", "y"])).is_err());
    }
}
