//! The command line client against the real server, as scripts and people run it (CLI-01 to
//! CLI-28). `.ci/cli_check` compares it with ZooKeeper's own.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::{TempDir, tempdir};

use crate::harness::{Server, command, eventually, free_port, started};

/// A server, and a folder for files.
struct Scene {
    server: Server,
    dir: TempDir,
}

/// What a client process has left.
#[derive(Debug)]
struct Ended {
    out: String,
    err: String,
    status: Option<i32>,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("is text");
        Ended { out: text(output.stdout), err: text(output.stderr), status: output.status.code() }
    }
}

impl Scene {
    fn start() -> Scene {
        let dir = tempdir().expect("creates");
        let settings = "tickTime=500\nextendedTypesEnabled=true";
        let server = Server::start(dir.path(), settings);
        Scene { server, dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command("cli");
        command.args(["-server", &self.server.address()]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        let child = started(&mut self.command(args));
        child.wait_with_output().expect("ends").into()
    }

    /// The standard output of a command that succeeds.
    fn ok(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!(ended.status, Some(0), "{args:?}: {ended:?}");
        ended.out
    }

    /// The standard error of a command that ends with this status.
    fn fails(&self, args: &[&str], status: i32) -> String {
        let ended = self.run(args);
        assert_eq!(ended.status, Some(status), "{args:?}: {ended:?}");
        ended.err
    }

    /// Gives the words to standard input.
    fn shell(&self, args: &[&str], input: &str) -> Ended {
        let mut child = started(self.command(args).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().expect("is piped");
        stdin.write_all(input.as_bytes()).expect("reads");
        drop(stdin);
        child.wait_with_output().expect("ends").into()
    }

    fn start_client(&self, args: &[&str]) -> Child {
        started(&mut self.command(args))
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().expect("is text").to_owned()
    }
}

fn is_there(file: &str) -> bool {
    std::fs::read(file).is_ok_and(|text| text.ends_with(b"\n"))
}

fn number(file: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("is there");
    text.trim().parse().expect("a number")
}

/// CLI-01, CLI-07, CLI-08, CLI-12, CLI-19, CLI-23, CLI-26.
#[test]
fn scripts_get_outputs_and_exit_statuses_of_zkcli() {
    let scene = Scene::start();
    let created = scene.run(&["create", "/a", "one two"]);
    assert_eq!((created.status, &*created.out, &*created.err), (Some(0), "", "Created /a\n"));
    assert_eq!(scene.ok(&["get", "/a"]), "one two\n");
    assert_eq!(scene.ok(&["get", "-b", "/a"]), "b25lIHR3bw==\n");
    assert_eq!(scene.ok(&["set", "-v", "0", "/a", "x"]), "");
    let stat = scene.ok(&["stat", "/a"]);
    assert!(stat.starts_with("cZxid = 0x1") && stat.contains("\ndataVersion = 1\n"), "{stat}");
    assert_eq!(scene.ok(&["ls", "/"]), "[a, zookeeper]\n");
    assert_eq!(scene.ok(&["getAcl", "/a"]), "'world,'anyone\n: cdrwa\n");
    assert_eq!(scene.fails(&["create", "/a"], 1), "Node already exists: /a\n");
    assert_eq!(scene.fails(&["get", "/b"], 1), "Node does not exist: /b\n");
    assert_eq!(scene.fails(&["set", "-v", "0", "/a", "x"], 1), "version No is not valid : /a\n");
    assert_eq!(scene.fails(&["stat"], 1), "stat [-w] path\n");
    assert_eq!(scene.fails(&["stat", "-z", "/"], 1), "Unrecognized option: -z\n");
    assert!(scene.fails(&["frobnicate"], 127).ends_with("Command not found: frobnicate\n"));
    assert!(scene.fails(&["-secure", "ls", "/"], 2).contains("-secure"));
    assert!(scene.fails(&["tree", "-z"], 2).contains("-z"));
    assert_eq!(scene.run(&["delete", "/a"]).status, Some(0));
    assert_eq!(scene.ok(&["create", "--json", "/n"]), "{\"path\":\"/n\"}\n");
    assert_eq!(scene.ok(&["get", "/n"]), "null\n");

    let nobody = format!("127.0.0.1:{}", free_port());
    let mut unreached = command("cli");
    let unreached = unreached.args(["-server", &nobody, "ls", "/"]);
    let child = started(unreached.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let unreached = Ended::from(child.wait_with_output().expect("ends"));
    assert_eq!(unreached.status, Some(3), "{unreached:?}");
    assert!(unreached.err.contains(&nobody), "{unreached:?}");
}

/// CLI-04, CLI-11, CLI-16, CLI-17, CLI-20.
#[test]
fn shell_reads_lines_and_prints_events_of_watches() {
    let scene = Scene::start();
    let lines = "create /a \"b c\"\nget -w /a\nset /a d\nredo 1\nhistory\nprintwatches\nhelp\n\
                 close\nls /\nfrobnicate\nquit\nls /\n";
    let ended = scene.shell(&[], lines);
    assert_eq!(ended.status, Some(127), "the status of the last command: {ended:?}");
    for part in [
        "b c\n",
        "WATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/a zxid: ",
        "\nd\n",
        "0 - create /a \"b c\"\n1 - get -w /a\n2 - set /a d\n3 - get -w /a\n4 - history\n",
        "printwatches is on\n",
        "\tls [-s] [-w] [-R] path\n",
        "Not connected\n",
    ] {
        assert!(ended.out.contains(part), "{part:?}: {ended:?}");
    }
    assert_eq!(ended.out.matches("Not connected").count(), 1);
}

#[test]
fn json_has_every_field() {
    let scene = Scene::start();
    scene.ok(&["create", "/a", "text"]);
    let json = |args: &[&str]| {
        let out = scene.ok(&[&["--json"], args].concat());
        serde_json::from_str::<serde_json::Value>(&out).expect("is JSON")
    };
    let node = json(&["get", "/a"]);
    assert_eq!((&node["data"], &node["stat"]["version"]), (&"text".into(), &0.into()));
    assert_eq!(json(&["ls", "/"])["children"], serde_json::json!(["a", "zookeeper"]));
    assert_eq!(json(&["stat", "/a"])["stat"]["dataLength"], 4);
    assert_eq!(json(&["getAcl", "/a"])["acl"][0]["perms"], "cdrwa");
    assert_eq!(json(&["getAllChildrenNumber", "/a"])["count"], 0);
    assert_eq!(json(&["whoami"])["identities"][0]["scheme"], "ip");
    assert_eq!(json(&["du", "/a"])[0]["bytes"], 4);
    assert_eq!(json(&["find", "/", "-name", "a"])["paths"], serde_json::json!(["/a"]));
}

#[test]
fn subtrees_are_drawn_found_measured_and_deleted() {
    let scene = Scene::start();
    let lines: String = ["/t", "/t/a", "/t/a/x", "/t/a/y", "/t/b"]
        .iter()
        .map(|path| format!("create {path} data\n"))
        .collect();
    scene.shell(&[], &lines);
    let drawn = "/t\n├── a\n│   ├── x\n│   └── y\n└── b\n";
    assert_eq!(scene.ok(&["tree", "/t"]), drawn);
    assert_eq!(scene.ok(&["tree", "/t", "-d", "1"]), "/t\n├── a\n└── b\n");
    assert_eq!(scene.ok(&["find", "/t", "-name", "[xy]"]), "/t/a/x\n/t/a/y\n");
    let usage = scene.ok(&["du", "/t"]);
    let words: Vec<&str> = usage.split_whitespace().collect();
    assert_eq!(words, ["12", "3", "/t/a", "4", "1", "/t/b", "20", "5", "/t"]);
    assert_eq!(scene.ok(&["ls", "-R", "/t"]), "/t\n/t/a\n/t/b\n/t/a/x\n/t/a/y\n");
    assert_eq!(scene.ok(&["deleteall", "/t", "-b", "2"]), "");
    assert_eq!(scene.fails(&["deleteall", "/t"], 1), "Node does not exist: /t\n");
}

#[test]
fn dump_and_load_keep_data_and_lists() {
    let scene = Scene::start();
    let lines = "create /d\ncreate /d/box \"\"\ncreate /d/text x\n\
                 create \"/d/a b\" \"1\t2\" world:anyone:cdrwa,digest:u:x=:r\n\
                 create /d/bin\nset -b /d/bin /wAKXA==\ncreate -e /d/e gone\ndump /d\n";
    let ended = scene.shell(&[], lines);
    assert!(ended.out.contains("# skipped: /d/e is ephemeral\n"), "{ended:?}");

    let file = scene.file("dump");
    let dumped = scene.ok(&["dump", "/d"]);
    std::fs::write(&file, &dumped).expect("writes");
    let loaded = scene.run(&["load", &file, "--into", "/into/it"]);
    assert_eq!(loaded.err, "5 nodes created, 0 replaced, 0 unchanged\n", "{loaded:?}");
    let copy = scene.ok(&["dump", "/into/it"]);
    assert_eq!(copy.replace("root\t/into/it\n", "root\t/d\n"), dumped);

    assert_eq!(scene.run(&["load", &file]).err, "0 nodes created, 0 replaced, 5 unchanged\n");
    scene.ok(&["set", "/d/bin", "other"]);
    assert!(scene.fails(&["load", &file], 1).contains("/d/bin exists and differs"));
    let loaded = scene.run(&["load", &file, "--overwrite"]);
    assert_eq!(loaded.err, "0 nodes created, 1 replaced, 4 unchanged\n", "{loaded:?}");
    assert_eq!(scene.ok(&["get", "-b", "/d/bin"]), "/wAKXA==\n");

    let half = dumped.rsplit_once("end\t").expect("an end").0;
    let ended = scene.shell(&["load"], half);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(ended.err.contains("not whole"), "{ended:?}");
}

#[test]
fn edit_writes_what_the_editor_leaves_unless_others_have_written() {
    let scene = Scene::start();
    scene.ok(&["create", "/a", "one"]);
    let edit = |editor: &str| {
        let mut command = scene.command(&["edit", "/a"]);
        let child = started(command.env("EDITOR", editor).env_remove("VISUAL"));
        Ended::from(child.wait_with_output().expect("ends"))
    };
    let script = |name: &str, text: &str| {
        let file = scene.file(name);
        std::fs::write(&file, text).expect("writes");
        format!("sh {file}")
    };
    assert_eq!(edit(&script("two", "echo two > \"$1\"")).status, Some(0));
    assert_eq!(scene.ok(&["get", "/a"]), "two\n");
    assert_eq!(edit("true").err, "/a is unchanged\n");
    let (binary, address) = (env!("CARGO_BIN_EXE_zabkeeper"), scene.server.address());
    let race = format!("{binary} cli -server {address} set /a theirs; echo mine > \"$1\"");
    let ended = edit(&script("race", &race));
    assert_eq!(ended.status, Some(1));
    let kept = ended.err.trim().rsplit(' ').next().expect("a path");
    assert_eq!(std::fs::read_to_string(kept).expect("is kept"), "mine\n");
    std::fs::remove_file(kept).expect("removes");
    assert_eq!(scene.ok(&["get", "/a"]), "theirs\n");
}

#[test]
fn watch_follows_changes() {
    let scene = Scene::start();
    let out = scene.file("events");
    let mut command = scene.command(&["watch", "-f", "/a"]);
    let file = std::fs::File::create(&out).expect("creates");
    let mut watch = started(command.stdout(file));
    let has = |words: &str| {
        scene.run(&["set", "/a", "x"]);
        std::fs::read_to_string(&out).expect("reads").contains(words)
    };
    scene.ok(&["create", "/a"]);
    eventually("an event", || has("NodeDataChanged /a 0x1"));
    scene.ok(&["create", "/a/b"]);
    eventually("an event", || has("NodeCreated /a/b 0x1"));
    signal(&watch, "INT");
    assert_eq!(watch.wait().expect("ends").code(), Some(0));
}

#[test]
fn one_program_at_a_time_holds_a_lock_and_tokens_rise() {
    let scene = Scene::start();
    let [first, second, go] = ["first", "second", "go"].map(|name| scene.file(name));
    let hold =
        format!("echo $ZABKEEPER_TOKEN > {first}; until test -e {go}; do sleep 0.05; done; exit 7");
    let mut holder = scene.start_client(&["lock", "/lock", "--", "sh", "-c", &hold]);
    eventually("the first program", || is_there(&first));
    let waits = format!("test -e {go} && echo $ZABKEEPER_TOKEN > {second}");
    let mut waiter = scene.start_client(&["lock", "/lock", "--", "sh", "-c", &waits]);
    let late = ["lock", "--wait", "100", "/lock", "--", "true"];
    assert_eq!(scene.fails(&late, 1), "the lock /lock is held by another session\n");
    assert!(!is_there(&second));
    std::fs::write(&go, "").expect("writes");
    assert_eq!(holder.wait().expect("ends").code(), Some(7), "the status of the program");
    assert_eq!(waiter.wait().expect("ends").code(), Some(0));
    assert!(number(&first) < number(&second));
    assert_eq!(scene.ok(&["ls", "/lock"]), "[]\n", "nobody is left");

    assert_eq!(scene.run(&["elect", "/leader", "--", "sh", "-c", "kill -9 $$"]).status, Some(137));
    assert!(scene.fails(&["lock", "/lock", "--", "/no/such/program"], 1).contains("cannot run"));
}

#[test]
fn program_is_stopped_when_the_lock_may_be_lost() {
    let scene = Scene::start();
    let [up, down] = ["up", "down"].map(|name| scene.file(name));
    let program = format!(
        "trap 'echo stopped > {down}; exit' TERM; echo > {up}; while :; do sleep 0.05; done"
    );
    let locked = ["-timeout", "2000", "lock", "/lock", "--", "sh", "-c", &program];
    let holder = scene.start_client(&locked);
    eventually("the program", || is_there(&up));
    let Scene { server, dir } = scene;
    server.kill();
    let ended = Ended::from(holder.wait_with_output().expect("ends"));
    assert_eq!(ended.status, Some(4), "{ended:?}");
    assert!(ended.err.contains("the lock /lock is lost"), "{ended:?}");
    assert!(is_there(&down), "the program got SIGTERM");

    // One that ignores SIGTERM is killed, here after an operator has deleted its node.
    let server = Server::start(Path::new(dir.path()), "");
    let scene = Scene { server, dir };
    let pid = scene.file("pid");
    let program = format!("trap '' TERM; echo $$ > {pid}; while :; do sleep 0.05; done");
    let locked = ["lock", "--grace", "100", "/lock", "--", "sh", "-c", &program];
    let holder = scene.start_client(&locked);
    eventually("the program", || is_there(&pid));
    let names = scene.ok(&["ls", "/lock"]);
    // The node of the first session may be left, too.
    for name in names.trim().trim_matches(['[', ']']).split(", ") {
        scene.run(&["delete", &format!("/lock/{name}")]);
    }
    let ended = Ended::from(holder.wait_with_output().expect("ends"));
    assert_eq!(ended.status, Some(4), "{ended:?}");
    assert!(!Path::new("/proc").join(number(&pid).to_string()).exists(), "the program is gone");
}

/// SIGTERM goes to the program, and its status comes back.
#[test]
fn signals_reach_the_program_under_a_lock() {
    let scene = Scene::start();
    let up = scene.file("up");
    let program = format!("trap 'exit 5' TERM; echo > {up}; while :; do sleep 0.05; done");
    let mut holder = scene.start_client(&["lock", "/lock", "--", "sh", "-c", &program]);
    eventually("the program", || is_there(&up));
    let mut waiter = scene.start_client(&["lock", "/lock", "--", "true"]);
    eventually("a waiter", || scene.ok(&["ls", "/lock"]).contains(", "));
    signal(&waiter, "TERM");
    assert_eq!(waiter.wait().expect("ends").code(), Some(143));
    eventually("one node", || !scene.ok(&["ls", "/lock"]).contains(", "));
    signal(&holder, "TERM");
    assert_eq!(holder.wait().expect("ends").code(), Some(5));
}

/// CLI-10, CLI-18, CLI-25.
#[test]
fn quotas_are_set_listed_and_deleted() {
    let scene = Scene::start();
    scene.ok(&["create", "/q", "data"]);
    assert_eq!(scene.ok(&["setquota", "-n", "5", "/q"]), "");
    assert_eq!(
        scene.ok(&["listquota", "/q"]),
        "Output quota for /q count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1\n\
         Output stat for /q count=1,bytes=4\n"
    );
    assert_eq!(scene.ok(&["delquota", "/q"]), "");
    assert_eq!(scene.ok(&["delquota", "/q"]), "Quota does not exist for /q\n");
    assert_eq!(scene.ok(&["ls", "/zookeeper/quota"]), "[]\n");
}

#[test]
fn help_and_completions_need_no_server() {
    let output = |args: &[&str]| {
        let mut command = command("cli");
        let child = started(command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()));
        Ended::from(child.wait_with_output().expect("ends"))
    };
    let help = output(&["--help"]);
    assert_eq!(help.status, Some(0));
    assert!(help.out.contains("-waitforconnection") && help.out.contains("\tdump path\n"));
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        assert!(script.status == Some(0) && script.out.contains("getAcl"), "{script:?}");
    }
    assert_eq!(output(&["completions", "tcsh"]).status, Some(2));
    assert_eq!(output(&["version"]).status, Some(0));
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = started(Command::new("kill").args(["-s", name, &pid])).wait().expect("ends");
    assert!(sent.success());
}
