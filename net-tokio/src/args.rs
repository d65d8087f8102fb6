//! The command line.
//!
//! Owns its grammar and the help text. Must not read files.

mod scripts;

use std::ffi::OsString;
use std::path::PathBuf;

use zabkeeper_core::Zxid;

pub(crate) use scripts::{
    CheckCommand, CleanupCommand, InitializeCommand, ServerAction, ServerCommand,
};

/// The command that the user gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Run the server with this configuration file, or with the defaults for trying it out.
    Serve(Option<PathBuf>),
    /// Inspect, truncate or compare a log while no server runs on it.
    Log(LogCommand),
    /// The command line client, with the words behind `cli`.
    Cli(Vec<OsString>),
    /// Do what `zkServer.sh` does.
    Server(ServerCommand),
    /// Do what `zkServer-initialize.sh` does.
    Initialize(InitializeCommand),
    /// Do what `zkCleanup.sh` does.
    Cleanup(CleanupCommand),
    /// Say what the server makes of each line of a file.
    Check(CheckCommand),
    /// Write `zoo.cfg` from the environment variables of the container image, and serve.
    Container,
    /// Ask a running server why something has happened.
    Explain(ExplainCommand),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// The parameters of `zabkeeper log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCommand {
    /// `dataDir`, or the directory `zabkeeper` in it.
    pub(crate) data: PathBuf,
    /// `dataLogDir`, if it differs from `dataDir`.
    pub(crate) log: Option<PathBuf>,
    /// `log cut`: remove the transactions after this one.
    pub(crate) cut_after: Option<Zxid>,
    /// `log compare`: the data directory of the other server.
    pub(crate) compare_with: Option<PathBuf>,
}

/// The parameters of `zabkeeper explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExplainCommand {
    /// Host and port of the admin server.
    pub(crate) admin: String,
    /// The name of the question.
    pub(crate) question: &'static str,
    /// The session that it is about.
    pub(crate) id: Option<String>,
}

pub(crate) const HELP: &str = "\
A ZooKeeper-compatible coordination service.

Usage: zabkeeper [zoo.cfg]
       zabkeeper cli [OPTIONS] [COMMAND [ARGS...]]
       zabkeeper log inspect DIR [--log-dir DIR]
       zabkeeper log cut DIR --after ZXID [--log-dir DIR]
       zabkeeper log compare DIR OTHER
       zabkeeper server start|start-foreground|stop|restart|status|print-cmd|version
                        [--config FILE] [--timeout SECONDS]
       zabkeeper initialize [--configfile FILE] [--myid N] [--force]
       zabkeeper cleanup [-n COUNT] [--config FILE]
       zabkeeper check [FILE]
       zabkeeper container
       zabkeeper explain leader|serving|session ID [--admin HOST:PORT]

Without an argument it serves 127.0.0.1:2181 with its data in ./zabkeeper-data.
With one it runs what that file says; the keys are those of ZooKeeper.

`cli` is the client with the commands of zkCli; see zabkeeper cli --help.

`log inspect` prints the state, the snapshots and the transactions in the
dataDir DIR, and which of them cannot be applied. `log cut` removes the
transactions after ZXID, keeps a copy of the directory and prints what is lost.
`log compare` prints the first transaction and the first node in which DIR and
the directory of another server differ. No server may run on them meanwhile.
--log-dir is dataLogDir, where that differs.

`server` does what zkServer.sh does. `start` leaves a server behind, whose number
is in zookeeper_server.pid in dataDir (or in the file that ZOOPIDFILE names) and
whose output is in zabkeeper.out there (or in the folder ZOO_LOG_DIR). `stop` sends
SIGTERM and waits until the server has handed over and ended, at most 60 seconds
unless --timeout says otherwise. `status` prints the mode.
`initialize` makes the folders and myid of a new server; --force removes its data.
`cleanup` removes snapshots but the newest COUNT (3), and logs that only they need.
`check` says of each line of zoo.cfg what it does; status 1: a server would not start.
FILE may be a folder with zoo.cfg; by default it is in ZOOCFGDIR or /etc/zabkeeper.
`container` writes zoo.cfg from the variables of the image `zookeeper` (ZOO_MY_ID,
ZOO_SERVERS, ...), unless there is one, and serves.
`explain` asks the admin server at HOST:PORT (127.0.0.1:8080) why the leader has
changed, why the server is not serving, or why the session ID has expired.

Options:
  -h, --help     print this
  -V, --version  print the version

Environment:
  RUST_LOG         what is logged to standard error, such as debug (default: info)
  SERVER_JVMFLAGS  options such as -Djute.maxbuffer=4194304 that add to zoo.cfg
  JVMFLAGS         the same; what both say, this one decides
  ZABKEEPER_LOG_FILE    the log goes to this file; SIGHUP opens it anew
  ZABKEEPER_LOG_FORMAT  text or json
  ZABKEEPER_LOG_MAX_FILE_SIZE_IN_MB  size after which a new file begins (256, 0: none)
  ZABKEEPER_LOG_MAX_BACKUP_INDEX     files kept beside it (20)

Exit status: 0 stopped by a signal, 1 failed, 2 bad invocation or configuration,
3 unusable data directory, 134 (SIGABRT) a bug.
";

/// Parses the arguments, without the program's name.
///
/// # Errors
/// The text for the user.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, String> {
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        return Ok(Invocation::Serve(None));
    };
    if first == "cli" {
        return Ok(Invocation::Cli(args.collect()));
    }
    match first.to_str() {
        Some("log") => return parse_log(args).map(Invocation::Log),
        Some("server") => return scripts::parse_server(args).map(Invocation::Server),
        Some("initialize") => return scripts::parse_initialize(args).map(Invocation::Initialize),
        Some("cleanup") => return scripts::parse_cleanup(args).map(Invocation::Cleanup),
        Some("check") => return scripts::parse_check(args).map(Invocation::Check),
        Some("explain") => return parse_explain(args).map(Invocation::Explain),
        _ => {}
    }
    if let Some(extra) = args.next() {
        let extra = extra.display();
        return Err(format!("unexpected argument {extra:?}: one configuration file is all I take"));
    }
    match first.to_str() {
        Some("-h" | "--help") => Ok(Invocation::Help),
        Some("-V" | "--version") => Ok(Invocation::Version),
        Some("container") => Ok(Invocation::Container),
        Some(option) if option.starts_with('-') => {
            Err(format!("unknown option {option}: see zabkeeper --help"))
        }
        _ => Ok(Invocation::Serve(Some(PathBuf::from(first)))),
    }
}

/// Parses the arguments after `zabkeeper explain`.
fn parse_explain(args: impl Iterator<Item = OsString>) -> Result<ExplainCommand, String> {
    let usage = "write zabkeeper explain leader, serving, or session ID";
    let (mut words, mut admin) = (Vec::new(), "127.0.0.1:8080".to_owned());
    let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        match &*arg {
            "--admin" => admin = args.next().ok_or("--admin needs HOST:PORT")?,
            option if option.starts_with("--") => return Err(format!("unknown option {option}")),
            _ => words.push(arg),
        }
    }
    let (question, id) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["leader"] => ("leader", None),
        ["serving"] => ("serving", None),
        ["session", id] => ("session", Some((*id).to_owned())),
        _ => return Err(usage.to_owned()),
    };
    let is_number = |id: &String| id.chars().all(|c| c.is_ascii_alphanumeric());
    if !id.as_ref().is_none_or(is_number) {
        return Err(format!("{usage}, where ID is a number such as 0x100000ab4560001"));
    }
    Ok(ExplainCommand { admin, question, id })
}

/// Parses the arguments after `zabkeeper log`.
fn parse_log(mut args: impl Iterator<Item = OsString>) -> Result<LogCommand, String> {
    let usage = "see zabkeeper --help";
    let command = args.next().unwrap_or_default();
    let cuts = match command.to_str() {
        Some("inspect" | "compare") => false,
        Some("cut") => true,
        _ => {
            let command = command.display();
            return Err(format!("log {command:?} is none of inspect, compare and cut: {usage}"));
        }
    };
    let compares = command == "compare";
    let (mut data, mut other, mut log, mut cut_after) = (None, None, None, None);
    while let Some(arg) = args.next() {
        let mut value =
            |of: &str| args.next().ok_or_else(|| format!("{of} needs a value: {usage}"));
        match arg.to_str() {
            Some("--after") if cuts => cut_after = Some(parse_zxid(&value("--after")?)?),
            Some("--log-dir") if !compares => log = Some(PathBuf::from(value("--log-dir")?)),
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option {option} of log: {usage}"));
            }
            _ if data.is_none() => data = Some(PathBuf::from(arg)),
            _ if compares && other.is_none() => other = Some(PathBuf::from(arg)),
            _ => return Err(format!("unexpected argument {:?}: {usage}", arg.display())),
        }
    }
    if cuts && cut_after.is_none() {
        return Err(format!("log cut needs --after ZXID, the last transaction to keep: {usage}"));
    }
    if compares && other.is_none() {
        return Err(format!("log compare needs two data directories: {usage}"));
    }
    let data = data.ok_or_else(|| format!("log needs the data directory: {usage}"))?;
    Ok(LogCommand { data, log, cut_after, compare_with: other })
}

fn parse_zxid(text: &OsString) -> Result<Zxid, String> {
    let text = text.to_string_lossy();
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let number = number.map_err(|_| format!("{text:?} is no zxid: write it as 0x100000002"))?;
    Ok(Zxid(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str]) -> Result<Invocation, String> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments_are_parsed() {
        assert_eq!(check(&[]), Ok(Invocation::Serve(None)));
        assert_eq!(check(&["zoo.cfg"]), Ok(Invocation::Serve(Some("zoo.cfg".into()))));
        let cli = Invocation::Cli(vec!["--help".into()]);
        assert_eq!(check(&["cli", "--help"]), Ok(cli));
        assert_eq!(check(&["--help"]), Ok(Invocation::Help));
        assert_eq!(check(&["-V"]), Ok(Invocation::Version));
        assert!(check(&["--port"]).is_err_and(|e| e.contains("--port")));
        let none = LogCommand { data: "d".into(), log: None, cut_after: None, compare_with: None };
        let inspect = none.clone();
        assert_eq!(check(&["log", "inspect", "d"]), Ok(Invocation::Log(inspect)));
        let cut = LogCommand {
            log: Some("l".into()),
            cut_after: Some(Zxid(0x1_0000_0002)),
            ..none.clone()
        };
        let args = ["log", "cut", "--after", "0x100000002", "d", "--log-dir", "l"];
        assert_eq!(check(&args), Ok(Invocation::Log(cut)));
        let compare = LogCommand { compare_with: Some("e".into()), ..none };
        assert_eq!(check(&["log", "compare", "d", "e"]), Ok(Invocation::Log(compare)));
        for (args, named) in [
            (&["log", "compare", "d"][..], "two data directories"),
            (&["log"], "inspect"),
            (&["log", "cut", "d"], "--after"),
            (&["log", "cut", "d", "--after"], "--after"),
            (&["log", "cut", "d", "--after", "1.2"], "\"1.2\""),
            (&["log", "inspect", "d", "--after", "7"], "--after"),
            (&["log", "inspect"], "data directory"),
            (&["log", "inspect", "d", "e"], "\"e\""),
        ] {
            let error = check(args).expect_err("refused");
            assert!(error.contains(named), "{args:?}: {error}");
        }
        assert!(check(&["a", "b"]).is_err_and(|e| e.contains("\"b\"")));
    }
}
