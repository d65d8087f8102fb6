//! Tests of `zabkeeper log`, among others on a log with a transaction that no server can apply.

use std::path::Path;
use std::process::{Output, Stdio};

use storage_fs::{Options, OsDir};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::txn::{Lifetime, Txn, TxnOp};
use zabkeeper_core::{SessionId, WallMs, WriteId, Zxid};

use crate::crash::check_all_there;
use crate::harness::{Server, command, configure, free_port, refused, started};
use crate::raw::{Raw, create};

/// Runs `zabkeeper log`.
fn log(args: &[&str]) -> Output {
    let mut log = command("log");
    let child = started(log.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()));
    child.wait_with_output().expect("ends")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Appends a transaction that cannot be applied: the deletion of a node that does not exist.
fn append_bad_txn(dir: &Path) -> Zxid {
    append(dir, TxnOp::Delete { path: "/none".into() })
}

/// Appends a transaction to the log of a stopped server; returns its zxid.
fn append(dir: &Path, op: TxnOp) -> Zxid {
    let folder = || OsDir::new(dir.join("zabkeeper")).expect("a folder");
    let mut opened = storage_fs::open(folder(), folder(), Options::new(0)).expect("a store");
    let zxid = opened.recovered.history.end().next().expect("room");
    let txn = Txn { zxid, session: SessionId(5), time: WallMs(1), origin: None, op };
    let append = DiskCommand::Append { id: WriteId(1), entry: txn.encode() };
    opened.log.run(&[append]).expect("room on the disk");
    zxid
}

#[test]
fn log_inspect_names_inapplicable_transaction_and_log_cut_removes_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 10_000);
    let path = "/kept".to_owned();
    assert_eq!(client.call(create(&path, path.as_bytes(), 0)).0, 0);
    server.terminate();
    let data = dir.path().join("data");
    let bad = append_bad_txn(&data);
    let last = Zxid(bad.0 - 1);
    let data = data.to_str().expect("plain");

    let port = free_port();
    let file = configure(port, dir.path(), "");
    let (status, said) = refused(&file);
    assert_eq!(status, Some(3), "{said}");
    for word in [
        format!(
            "transaction {bad} of session 0x5 (delete /none) cannot be applied: /none does not \
             exist"
        ),
        format!("zabkeeper log cut {data} --after {last}"),
        format!("zabkeeper log inspect {data}"),
    ] {
        assert!(said.contains(&word), "{word} is not in {said}");
    }

    let inspected = log(&["inspect", data]);
    let printed = text(&inspected);
    assert!(inspected.status.success(), "{printed}");
    assert!(printed.contains(&format!("{bad} time=1ms session=0x5 delete /none")), "{printed}");
    assert!(printed.contains("create /kept") && printed.contains("cannot be applied"), "{printed}");

    for (after, named) in [(bad, "which is the last"), (Zxid(bad.0 + 7), "which is the last")] {
        let refused = log(&["cut", data, "--after", &after.to_string()]);
        assert_eq!(refused.status.code(), Some(3));
        assert!(text(&refused).contains(named), "{}", text(&refused));
    }
    let cut = log(&["cut", data, "--after", &last.to_string()]);
    let printed = text(&cut);
    assert!(cut.status.success(), "{printed}");
    assert!(printed.contains("lost from here:\n") && printed.contains("delete /none"), "{printed}");
    let copy = Path::new(data).join("zabkeeper.before-cut-1");
    assert!(copy.join("state").exists(), "{printed}");

    let server = Server::start(dir.path(), "");
    check_all_there(&server, &[path]);
    let running = log(&["inspect", data]);
    assert_eq!(running.status.code(), Some(3), "{}", text(&running));
    server.terminate();
    let inspected = text(&log(&["inspect", data]));
    assert!(inspected.contains("all of them can be applied"), "{inspected}");
}

#[test]
fn log_compare_names_the_first_difference() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let data = dirs.each_ref().map(|dir| dir.path().join("data").to_string_lossy().into_owned());
    let server = Server::start(dirs[0].path(), "");
    let (mut client, _) = Raw::open(server.port, 10_000);
    for path in ["/a", "/b"] {
        assert_eq!(client.call(create(path, b"", 0)).0, 0);
    }
    server.terminate();
    copy(&data[0], &data[1]);
    let compared = log(&["compare", &data[0], &data[1]]);
    assert!(compared.status.success(), "{}", text(&compared));
    assert!(text(&compared).contains("trees         alike at 0x"), "{}", text(&compared));

    let op = |path: &str| TxnOp::Create {
        path: path.into(),
        data: None,
        acl: Vec::new(),
        lifetime: Lifetime::Persistent,
        parent_creates: 3,
    };
    let zxid = append(Path::new(&data[0]), op("/c"));
    append(Path::new(&data[1]), op("/aa"));
    let compared = text(&log(&["compare", &data[0], &data[1]]));
    for line in [
        format!("transactions  {zxid} is the first that is another one in each"),
        format!("trees         /aa is the first node that differs at {zxid}"),
    ] {
        assert!(compared.contains(&line), "{line}: {compared}");
    }
}

/// Copies the files of a data directory.
fn copy(from: &str, to: &str) {
    let (from, to) = (Path::new(from).join("zabkeeper"), Path::new(to).join("zabkeeper"));
    std::fs::create_dir_all(&to).expect("creates");
    for file in std::fs::read_dir(from).expect("lists") {
        let file = file.expect("lists");
        std::fs::copy(file.path(), to.join(file.file_name())).expect("copies");
    }
}
