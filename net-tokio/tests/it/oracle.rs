//! Two server processes and the file of an oracle (QV-03).

use std::fs;

use tempfile::TempDir;

use crate::harness::eventually;
use crate::raw::{Raw, create, exists, sync};
use crate::reconfig::{Node, SETTINGS};

fn two(dir: &TempDir) -> Vec<Node> {
    let mut nodes: Vec<Node> = (1..=2).map(|id| Node::new(dir, id)).collect();
    let line = |node: &Node| {
        let Node { id, quorum, election, .. } = node;
        format!("server.{id}=127.0.0.1:{quorum}:{election}")
    };
    let lines: Vec<String> = nodes.iter().map(line).collect();
    for node in &mut nodes {
        let file = node.folder.join("oracle");
        let settings = format!("{SETTINGS}{}oraclePath={}\n", node.client_lines(), file.display());
        node.configure(&settings, &lines);
        node.boot();
    }
    nodes.iter().for_each(Node::await_serving);
    nodes
}

fn await_mode(node: &Node, mode: Option<&str>) {
    let what = format!("server {} to be {mode:?}", node.id);
    eventually(&what, || node.mode().as_deref() == mode);
}

#[test]
fn one_of_two_servers_goes_on_alone_while_its_file_says_1() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes = two(&dir);
    let leads = |node: &Node| node.mode().as_deref() == Some("leader");
    let at = nodes.iter().position(leads).expect("one leads");
    let mut leader = nodes.remove(at);
    let follower = nodes.remove(0);
    leader.stop();
    await_mode(&follower, None);
    let file = follower.folder.join("oracle");
    fs::write(&file, "1\n").expect("writes");
    await_mode(&follower, Some("leader"));
    assert!(follower.log().contains("goes on without the other voter"), "{}", follower.log());
    let (mut raw, _) = Raw::open(follower.client, 10_000);
    assert_eq!(raw.call(create("/alone", b"", 0)).0, 0);
    leader.boot();
    await_mode(&leader, Some("follower"));
    let (mut other, _) = Raw::open(leader.client, 10_000);
    assert_eq!(other.call(sync()).0, 0);
    assert_eq!(other.call(exists("/alone")).0, 0);
    leader.stop();
    assert_eq!(raw.call(create("/again", b"", 0)).0, 0, "the oracle still permits it");
    fs::remove_file(&file).expect("removes");
    await_mode(&follower, None);
}
