//! The commands: their names, usages and options.
//!
//! Owns what `help` and the completions list. Must not run a command: `commands` does.

use std::fmt::Write as _;

use futures::future::LocalBoxFuture;

use super::arguments::{Arguments, Opt, flag, value};
use super::commands::{
    acls, dump, edit, ensemble, guarded, nodes, quotas, session, subtree, watches,
};
use super::context::Context;
use super::failure::Outcome;

/// A command of the shell and of scripts.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// What follows the name in zkCli's list.
    pub(crate) usage: &'static str,
    pub(crate) options: &'static [Opt],
    /// The least and the most words besides options.
    pub(crate) words: (usize, usize),
    /// zkCli lacks it.
    pub(crate) is_ours: bool,
    /// The usage lists the options, as zkCli does for two commands.
    lists_options: bool,
    /// It needs a session.
    pub(crate) needs_session: bool,
    /// It ends itself on SIGINT.
    pub(crate) handles_interrupts: bool,
    pub(crate) run: Run,
}

type Run = for<'a> fn(&'a mut Context, &'a Arguments) -> LocalBoxFuture<'a, Outcome>;

const ANY: usize = usize::MAX;

const JSON: Opt = flag("json", "Machine-readable output");

/// A command that zkCli has, too.
const fn zk(
    name: &'static str,
    usage: &'static str,
    options: &'static [Opt],
    words: (usize, usize),
    run: Run,
) -> Command {
    Command {
        name,
        usage,
        options,
        words,
        is_ours: false,
        lists_options: false,
        needs_session: true,
        handles_interrupts: false,
        run,
    }
}

/// A command that zkCli lacks.
const fn ours(
    name: &'static str,
    usage: &'static str,
    options: &'static [Opt],
    words: (usize, usize),
    run: Run,
) -> Command {
    Command { is_ours: true, ..zk(name, usage, options, words, run) }
}

impl Command {
    const fn listing_options(self) -> Command {
        Command { lists_options: true, ..self }
    }

    const fn without_session(self) -> Command {
        Command { needs_session: false, ..self }
    }

    const fn with_interrupts(self) -> Command {
        Command { handles_interrupts: true, ..self }
    }

    /// `get [-s] [-w] [-b] [-x] path`, and the options where zkCli prints them.
    pub(crate) fn usage_text(&self) -> String {
        let mut text = format!("{} {}", self.name, self.usage);
        if self.lists_options {
            text.push('\n');
            text += &options_text(self.options);
        }
        text
    }
}

/// The usage of the command with this name.
pub(crate) fn usage(name: &str) -> String {
    find(name).map_or_else(String::new, Command::usage_text)
}

/// The options of a command as Apache Commons CLI prints them; ours beyond zkCli's are left out.
pub(crate) fn options_text(options: &[Opt]) -> String {
    let mut options: Vec<&Opt> = options.iter().filter(|option| option.name != "json").collect();
    options.sort_by_key(|option| option.name.to_lowercase());
    let left = |option: &Opt| {
        let value = if option.takes_value { " <arg>" } else { "" };
        format!("-{}{value}", option.name)
    };
    let width = options.iter().map(|option| left(option).len()).max().unwrap_or_default();
    options.iter().fold(String::new(), |mut text, option| {
        writeln!(text, " {:<width$}   {}", left(option), option.about).expect("a text takes all");
        text
    })
}

/// The command of this name.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// All commands by name, a line each, as zkCli lists them.
pub(crate) fn list() -> String {
    let mut lines: Vec<_> =
        COMMANDS.iter().map(|command| format!("\t{} {}\n", command.name, command.usage)).collect();
    lines.sort_unstable();
    lines.concat()
}

const GET: &[Opt] = &[
    flag("s", "Print znode stats additionally"),
    flag("w", "Watch for changes on the znode"),
    flag("b", "Output data in base64 format"),
    flag("x", "Output data in hexdump format"),
    JSON,
];
const SET: &[Opt] = &[
    flag("s", "Print znode stats additionally"),
    value("v", "Set with an expected version"),
    flag("b", "Supply data in base64 format"),
    JSON,
];
/// Also what `ls -?` prints.
pub(crate) const LS: &[Opt] =
    &[flag("?", "help"), flag("s", "stat"), flag("w", "watch"), flag("R", "recurse"), JSON];
const CREATE: &[Opt] = &[
    flag("e", "ephemeral"),
    flag("s", "sequential"),
    flag("c", "container"),
    value("t", "ttl"),
    JSON,
];
const RECONFIG: &[Opt] = &[
    flag("s", "stats"),
    value("v", "required current config version"),
    value("file", "path of config file to parse for membership"),
    value("members", "comma-separated list of config strings for non-incremental reconfig"),
    value("add", "comma-separated list of config strings for new servers"),
    value("remove", "comma-separated list of server IDs to remove"),
    JSON,
];
const REMOVE_WATCHES: &[Opt] = &[
    flag("c", "child watcher type"),
    flag("d", "data watcher type"),
    flag("p", "persistent watcher type"),
    flag("r", "persistent recursive watcher type"),
    flag("a", "any watcher type"),
    flag("l", "remove locally when there is no server connection"),
];
const SET_QUOTA: &[Opt] = &[
    value("n", "num soft quota"),
    value("b", "bytes soft quota"),
    value("N", "num hard quota"),
    value("B", "bytes hard quota"),
];
const DEL_QUOTA: &[Opt] = &[
    flag("n", "num soft quota"),
    flag("b", "bytes soft quota"),
    flag("N", "num hard quota"),
    flag("B", "bytes hard quota"),
];
const GUARDED: &[Opt] = &[
    value("wait", "Give up after this time, ms"),
    value("grace", "Time between SIGTERM and SIGKILL, ms"),
];

const ADD_WATCH_USAGE: &str = "[-m mode] path # optional mode is one of [PERSISTENT, \
                               PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE";
const RECONFIG_USAGE: &str = "[-s] [-v version] [[-file path] | [-members \
                              serverID=host:port1:port2;port3[,...]*]] | [-add \
                              serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]";

/// All commands.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command] = &[
    zk("addauth", "scheme auth", &[], (1, ANY), |c, a| Box::pin(acls::add_auth(c, a))),
    zk("addWatch", ADD_WATCH_USAGE, &[value("m", "mode")], (1, 1), |c, a| Box::pin(watches::add_watch(c, a))),
    zk("close", "", &[], (0, ANY), |c, a| Box::pin(session::close(c, a))),
    zk("config", "[-c] [-w] [-s]", &[flag("s", "stats"), flag("w", "watch"), flag("c", "client connection string"), JSON],
        (0, ANY), |c, a| Box::pin(ensemble::config(c, a))),
    zk("connect", "host:port", &[], (0, ANY), |c, a| Box::pin(session::connect(c, a))).without_session(),
    zk("create", "[-s] [-e] [-c] [-t ttl] path [data] [acl]", CREATE, (1, ANY), |c, a| Box::pin(nodes::create(c, a))),
    zk("delete", "[-v version] path", &[value("v", "version")], (1, ANY), |c, a| Box::pin(nodes::delete(c, a))),
    zk("deleteall", "path [-b batch size]", &[value("b", "batch size")], (1, ANY), |c, a| Box::pin(subtree::delete_all(c, a))),
    zk("delquota", "[-n|-b|-N|-B] path", DEL_QUOTA, (1, ANY), |c, a| Box::pin(quotas::delete(c, a))),
    zk("exit", "", &[], (0, ANY), |c, a| Box::pin(session::quit(c, a))).without_session(),
    zk("get", "[-s] [-w] [-b] [-x] path", GET, (1, ANY), |c, a| Box::pin(nodes::get(c, a))).listing_options(),
    zk("getAcl", "[-s] path", &[flag("s", "stats"), JSON], (1, ANY), |c, a| Box::pin(acls::get(c, a))),
    zk("getAllChildrenNumber", "path", &[JSON], (1, ANY), |c, a| Box::pin(nodes::all_children_number(c, a))),
    zk("getEphemerals", "path", &[JSON], (0, ANY), |c, a| Box::pin(nodes::ephemerals(c, a))),
    zk("help", "[command]", &[], (0, ANY), |c, a| Box::pin(session::help(c, a))).without_session(),
    zk("history", "", &[], (0, ANY), |c, a| Box::pin(session::history(c, a))).without_session(),
    zk("listquota", "path", &[JSON], (1, ANY), |c, a| Box::pin(quotas::list(c, a))),
    zk("ls", "[-s] [-w] [-R] path", LS, (1, ANY), |c, a| Box::pin(nodes::list(c, a))),
    zk("printwatches", "on|off", &[], (0, ANY), |c, a| Box::pin(watches::print_watches(c, a))).without_session(),
    zk("quit", "", &[], (0, ANY), |c, a| Box::pin(session::quit(c, a))).without_session(),
    zk("reconfig", RECONFIG_USAGE, RECONFIG, (0, ANY), |c, a| Box::pin(ensemble::reconfig(c, a))),
    zk("redo", "cmdno", &[], (0, ANY), |c, a| Box::pin(session::redo(c, a))).without_session(),
    zk("removewatches", "path [-c|-d|-a] [-l]", REMOVE_WATCHES, (1, ANY), |c, a| Box::pin(watches::remove(c, a))),
    zk("set", "path data [-s] [-v version] [-b]", SET, (2, ANY), |c, a| Box::pin(nodes::set(c, a))).listing_options(),
    zk("setAcl", "[-s] [-v version] [-R] path acl", &[flag("s", "stats"), value("v", "version"), flag("R", "recursive"), JSON],
        (2, ANY), |c, a| Box::pin(acls::set(c, a))),
    zk("setquota", "-n|-b|-N|-B val path", SET_QUOTA, (0, ANY), |c, a| Box::pin(quotas::set(c, a))),
    zk("stat", "[-w] path", &[flag("w", "watch"), JSON], (1, ANY), |c, a| Box::pin(nodes::stat(c, a))),
    zk("sync", "path", &[], (1, ANY), |c, a| Box::pin(nodes::sync(c, a))),
    zk("version", "", &[JSON], (0, 0), |c, a| Box::pin(ensemble::version(c, a))).without_session(),
    zk("whoami", "", &[JSON], (0, ANY), |c, a| Box::pin(acls::who_am_i(c, a))),
    ours("completions", "bash|zsh|fish", &[], (1, 1), |c, a| Box::pin(session::completions(c, a))).without_session(),
    ours("du", "[path]", &[JSON], (0, 1), |c, a| Box::pin(subtree::usage(c, a))),
    ours("dump", "path", &[], (1, 1), |c, a| Box::pin(dump::dump(c, a))),
    ours("edit", "path", &[], (1, 1), |c, a| Box::pin(edit::edit(c, a))).with_interrupts(),
    ours("elect", "[--wait ms] [--grace ms] path -- program [args]", GUARDED, (2, ANY), |c, a| Box::pin(guarded::elect(c, a)))
        .with_interrupts(),
    ours("find", "path [-name glob]", &[value("name", "glob of the last name"), JSON], (1, 1), |c, a| Box::pin(subtree::find(c, a))),
    ours("load", "[file] [--into path] [--overwrite]", &[value("into", "the path of the first node"), flag("overwrite", "replace what differs")],
        (0, 1), |c, a| Box::pin(dump::load(c, a))),
    ours("lock", "[--wait ms] [--grace ms] path -- program [args]", GUARDED, (2, ANY), |c, a| Box::pin(guarded::lock(c, a)))
        .with_interrupts(),
    ours("tree", "[path] [-d depth]", &[value("d", "levels"), JSON], (0, 1), |c, a| Box::pin(subtree::tree(c, a))),
    ours("watch", "[-f] path", &[flag("f", "follow until interrupted"), JSON], (1, 1), |c, a| Box::pin(watches::watch(c, a)))
        .with_interrupts(),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are what ZooKeeper 3.9.4 prints.
    #[test]
    fn usages_are_those_of_zookeeper() {
        let usage = |name| find(name).unwrap().usage_text();
        assert_eq!(usage("stat"), "stat [-w] path");
        assert_eq!(
            usage("get"),
            "get [-s] [-w] [-b] [-x] path\n -b   Output data in base64 format\n \
             -s   Print znode stats additionally\n -w   Watch for changes on the znode\n \
             -x   Output data in hexdump format\n"
        );
        assert_eq!(
            usage("set"),
            "set path data [-s] [-v version] [-b]\n -b         Supply data in base64 format\n \
             -s         Print znode stats additionally\n \
             -v <arg>   Set with an expected version\n"
        );
        assert_eq!(options_text(LS), " -?   help\n -R   recurse\n -s   stat\n -w   watch\n");
        assert!(list().contains("\n\tls [-s] [-w] [-R] path\n"));
    }
}
