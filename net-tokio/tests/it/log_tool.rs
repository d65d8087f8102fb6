//! A log with a transaction that no server can apply, and the way out.

use std::path::Path;
use std::process::{Output, Stdio};

use storage_fs::{Options, OsDir};
use zabkeeper_core::io::DiskCommand;
use zabkeeper_core::txn::{Txn, TxnOp};
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

/// Appends to the log what no leader would have decided; says where.
fn append_bad_txn(dir: &Path) -> Zxid {
    let folder = || OsDir::new(dir.join("zabkeeper")).expect("a folder");
    let mut opened = storage_fs::open(folder(), folder(), Options::new(0)).expect("a store");
    let zxid = opened.recovered.history.end().next().expect("room");
    let op = TxnOp::Delete { path: "/none".into() };
    let txn = Txn { zxid, session: SessionId(5), time: WallMs(1), origin: None, op };
    let append = DiskCommand::Append { id: WriteId(1), entry: txn.encode() };
    opened.log.run(&[append]).expect("room on the disk");
    zxid
}

#[test]
fn a_transaction_that_cannot_be_applied_is_named_and_can_be_cut_off() {
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
            "transaction {bad} of session 0x5 (delete /none) cannot be applied: /none does not exist"
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
