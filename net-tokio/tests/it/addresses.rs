//! Servers with several addresses, one of which leads nowhere (CONF-20).

use tempfile::TempDir;

use crate::harness::free_port;
use crate::raw::{Raw, create};
use crate::reconfig::{Node, SETTINGS, reconfigure};
use zabkeeper_core::wire::{ReconfigRequest, Request};

/// The line of a server at these addresses, each with its ports.
fn line(node: &Node, addresses: &[(&str, u16, u16)]) -> String {
    let each =
        addresses.iter().map(|(host, quorum, election)| format!("{host}:{quorum}:{election}"));
    let each: Vec<String> = each.collect();
    format!("server.{}={}:participant;127.0.0.1:{}", node.id, each.join("|"), node.client)
}

/// The first address is one of no machine.
fn at_second_address(node: &Node) -> String {
    let [quorum, election] = [(); 2].map(|()| free_port());
    line(node, &[("192.0.2.1", quorum, election), ("localhost", node.quorum, node.election)])
}

fn three(
    dir: &TempDir,
    settings: &str,
    line: impl Fn(&Node) -> String,
) -> (Vec<Node>, Vec<String>) {
    let mut nodes: Vec<Node> = (1..=3).map(|id| Node::new(dir, id)).collect();
    let lines: Vec<String> = nodes.iter().map(line).collect();
    for node in &mut nodes {
        node.configure(&format!("{SETTINGS}{settings}\n"), &lines);
        node.boot();
    }
    nodes.iter().for_each(Node::await_serving);
    (nodes, lines)
}

#[test]
fn servers_find_each_other_where_one_of_their_addresses_leads_nowhere() {
    let dir = tempfile::tempdir().expect("creates");
    let (mut nodes, lines) = three(&dir, "multiAddress.enabled=true", at_second_address);
    let (mut raw, _) = Raw::open(nodes[0].client, 10_000);
    assert_eq!(raw.call(create("/a", b"", 0)).0, 0);
    let log = nodes[0].log();
    assert!(log.contains("on 192.0.2.1:") && log.contains("goes on with the other"), "{log}");
    let leader = nodes.iter().position(|node| node.mode().as_deref() == Some("leader"));
    nodes[leader.expect("one leads")].stop();
    let left: Vec<&Node> = nodes.iter().filter(|node| node.mode().is_some()).collect();
    left.iter().for_each(|node| node.await_serving());
    nodes[leader.expect("one leads")].boot();
    nodes.iter().for_each(Node::await_serving);

    // Server 3 moves to 127.0.0.3 and 127.0.0.2, both with other ports.
    let ports = [(); 4].map(|()| free_port());
    let hosts = [("127.0.0.2", ports[0], ports[1]), ("127.0.0.3", ports[2], ports[3])];
    let moved = line(&nodes[2], &hosts);
    let config = reconfigure(&nodes[0], &moved, "");
    assert!(config.contains(&moved), "{config}");
    nodes.iter().for_each(|node| node.await_config(&config));
    assert!(config.contains(&lines[0]), "{config}");
    nodes[2].stop();
    nodes[2].boot();
    nodes[2].await_serving();
    let (mut raw, _) = Raw::open(nodes[2].client, 10_000);
    assert_eq!(raw.call(create("/b", b"", 0)).0, 0);
}

/// RECONF-05.
#[test]
fn several_addresses_are_refused_unless_they_are_enabled() {
    let dir = tempfile::tempdir().expect("creates");
    let one = |node: &Node| line(node, &[("127.0.0.1", node.quorum, node.election)]);
    let (nodes, _) = three(&dir, "", one);
    let (mut raw, _) = Raw::open(nodes[0].client, 10_000);
    let joining = Some(at_second_address(&nodes[2]));
    let request = ReconfigRequest { joining, leaving: None, new_members: None, version: -1 };
    assert_eq!(raw.call(Request::Reconfigure(request)).0, -8);
    let is_logged = |node: &Node| node.log().contains("need multiAddress.enabled=true");
    assert!(nodes.iter().any(is_logged), "{}", nodes[0].log());
}
