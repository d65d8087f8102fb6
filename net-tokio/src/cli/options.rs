//! The command line of `zabkeeper cli` before the command (CLI-01).
//!
//! Owns its options, those of zkCli with one hyphen or two, and the help text. Must not connect.

use std::ffi::OsString;
use std::path::PathBuf;

use zabkeeper_client::ConnectString;

pub(crate) const HELP: &str = "\
The command line client: with a command it runs that and exits, without one it
is an interactive shell.

Usage: zabkeeper cli [OPTIONS] [COMMAND [ARGS...]]

Options, with one hyphen or two:
  -server HOST:PORT,...[/CHROOT]  the servers (default: localhost:2181)
  -timeout MS                     session timeout (default: 30000)
  -r                              take a read-only server, too
  -waitforconnection              try to connect until the session timeout
  -client-configuration FILE      settings of ZooKeeper's client; says which of
                                  them have no effect
  --json                          machine-readable output
  -h, --help                      print this
";

const EXIT_STATUS: &str = "
Exit status: 0 done, 1 the operation failed, 2 bad invocation, 3 no server was
reached in time, 4 the session or the lock was lost, 127 no such command;
lock and elect exit with the status of their program.
";

/// The options in front of the command, and the command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    /// The connect string as given.
    pub(crate) server: String,
    /// Requested session timeout, ms.
    pub(crate) timeout_ms: u32,
    /// Take a read-only server.
    pub(crate) read_only: bool,
    /// Try to connect for the whole session timeout.
    pub(crate) wait_for_connection: bool,
    /// A file with settings of ZooKeeper's client.
    pub(crate) client_configuration: Option<PathBuf>,
    /// Machine-readable output.
    pub(crate) json: bool,
    /// The command and its arguments; empty for the shell.
    pub(crate) command: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            server: "localhost:2181".to_owned(),
            timeout_ms: 30_000,
            read_only: false,
            wait_for_connection: false,
            client_configuration: None,
            json: false,
            command: Vec::new(),
        }
    }
}

/// Parses the words behind `zabkeeper cli`; `None` asks for the help.
///
/// # Errors
/// The text for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let arg = text(arg)?;
        let Some(name) = arg.strip_prefix('-') else {
            options.command.push(arg);
            for arg in args {
                options.command.push(text(arg)?);
            }
            break;
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        let (name, joined) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let mut value = || match joined.clone() {
            Some(value) => Ok(value),
            None => text(args.next().ok_or_else(|| format!("no argument found for option {arg}"))?),
        };
        match name {
            "server" => options.server = value()?,
            "timeout" => {
                let given = value()?;
                options.timeout_ms = given
                    .parse()
                    .map_err(|_| format!("-timeout {given}: give milliseconds, such as 30000"))?;
            }
            "client-configuration" => options.client_configuration = Some(value()?.into()),
            "r" => options.read_only = true,
            "waitforconnection" => options.wait_for_connection = true,
            "json" => options.json = true,
            "h" | "help" => return Ok(None),
            _ => return Err(format!("unknown option {arg}: see zabkeeper cli --help")),
        }
    }
    options.servers()?;
    Ok(Some(options))
}

impl Options {
    /// The servers of the connect string.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn servers(&self) -> Result<ConnectString, String> {
        self.server.parse().map_err(|error| format!("-server: {error}"))
    }
}

/// The whole help: options, commands, exit statuses.
pub(crate) fn help(commands: &str) -> String {
    format!("{HELP}\nCommands:\n{commands}{EXIT_STATUS}")
}

/// What to say of the settings in a file for ZooKeeper's client: each has no effect.
pub(crate) fn without_effect(file: &str) -> Vec<String> {
    let lines = file.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    let keys = lines.map(|line| line.split(['=', ':', ' ']).next().unwrap_or_default());
    keys.map(|key| format!("{key} of -client-configuration has no effect here")).collect()
}

fn text(arg: OsString) -> Result<String, String> {
    arg.into_string().map_err(|arg| format!("argument {:?} is no UTF-8", arg.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str]) -> Result<Option<Options>, String> {
        parse(args.iter().map(OsString::from))
    }

    /// CLI-01.
    #[test]
    fn options_have_one_hyphen_or_two() {
        let expected = Options {
            server: "a:1,b:2/c".to_owned(),
            timeout_ms: 5000,
            read_only: true,
            wait_for_connection: true,
            command: vec!["ls".to_owned(), "-s".to_owned(), "/".to_owned()],
            ..Options::default()
        };
        for args in [
            ["-server", "a:1,b:2/c", "-timeout", "5000"],
            ["--server", "a:1,b:2/c", "--timeout", "5000"],
        ] {
            let args = [&args[..], &["-r", "-waitforconnection", "ls", "-s", "/"]].concat();
            assert_eq!(check(&args), Ok(Some(expected.clone())));
        }
        assert_eq!(check(&[]), Ok(Some(Options::default())));
        assert_eq!(check(&["--help"]), Ok(None));
        let json = check(&["--timeout=7", "--json"]).unwrap().unwrap();
        assert!(json.json && json.timeout_ms == 7);
        for (args, named) in [
            (&["-server"][..], "-server"),
            (&["-server", "a:x", "ls"], "port"),
            (&["-timeout", "x"], "-timeout"),
            (&["-secure"], "-secure"),
        ] {
            assert!(check(args).is_err_and(|error| error.contains(named)), "{args:?}");
        }
        assert_eq!(
            without_effect("# x\nzookeeper.client.secure=true\n"),
            ["zookeeper.client.secure of -client-configuration has no effect here"]
        );
    }
}
