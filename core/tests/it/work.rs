//! The cost of steps, and the work that they leave to later steps.
//!
//! Owns a server with an ideal disk and one client. Must not measure time: cost is in units, the
//! core's own measure. It steps the core without the driver: a turn of the driver would also do the
//! work that a step leaves to later ones.

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::wire::{Acl, ConnectRequest, ReplyBody, Request, RequestFrame, SetWatches};
use zabkeeper_core::{
    Config, ConnId, Input, Instant, Now, Outbox, Server, ServerId, SessionId, Voters, WallMs, Zxid,
};

use crate::play::Disk;

const CLIENT: ConnId = ConnId(1);
/// Children of the node that expensive requests are about.
const NODES: u64 = 2_000;
const EPHEMERAL: i32 = 1;

struct Host {
    server: Server,
    disk: Disk,
    xid: i32,
    replies: Vec<(i32, ReplyBody)>,
}

impl Host {
    /// A server with the ephemeral nodes `/p/0`, `/p/1` and so on.
    fn with_nodes(step_units: u64) -> Host {
        let id = ServerId(1);
        let mut config = Config::new(id, Voters::new([id]), Duration::from_secs(2)).expect("fine");
        config.limits.step_units = step_units;
        let mut disk = Disk::default();
        let server = Server::recover(config, 1, disk.recovered()).expect("a blank disk");
        let mut host = Host { server, disk, xid: 0, replies: Vec::new() };
        host.step(Input::Timeout);
        host.sync();
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: 40_000,
            session: SessionId(0),
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        host.step(Input::Client(CLIENT, ClientEvent::Opened(request, Vec::new())));
        host.sync();
        host.ask(create("/p".into(), 0));
        for number in 0..NODES {
            host.ask(create(format!("/p/{number}"), EPHEMERAL));
        }
        host.sync();
        host.go_on();
        host.replies.clear();
        host
    }

    /// Returns the cost of the step.
    fn step(&mut self, input: Input) -> u64 {
        let now = Now { mono: Instant(0), wall: WallMs(1_000_000) };
        let mut out = Outbox::default();
        self.server.step(now, input, &mut out);
        for (_, command) in out.clients {
            if let ClientCommand::Reply(reply) = command {
                self.replies.push((reply.xid, reply.result.expect("nothing is refused")));
            }
        }
        self.disk.queue.extend(out.disk);
        out.cost
    }

    fn ask(&mut self, request: Request) -> u64 {
        self.xid += 1;
        let frame = RequestFrame { xid: self.xid, request };
        self.step(Input::Client(CLIENT, ClientEvent::Request(frame)))
    }

    /// Completes all disk commands; returns the highest cost of a step.
    fn sync(&mut self) -> u64 {
        let mut most = 0;
        while !self.disk.queue.is_empty() {
            for event in self.disk.finish(self.disk.queue.len()) {
                most = most.max(self.step(Input::Disk(event)));
            }
        }
        most
    }

    /// Runs all due steps that finish earlier work; returns their number, and the highest cost of
    /// one.
    fn go_on(&mut self) -> (u32, u64) {
        let (mut steps, mut most) = (0, 0);
        while self.server.next_deadline().is_some_and(|(at, _)| at <= Instant(0)) {
            most = most.max(self.step(Input::Timeout));
            steps += 1;
        }
        (steps, most)
    }
}

fn create(path: String, flags: i32) -> Request {
    Request::Create { path, data: None, acl: Acl::open(), flags, with_stat: false }
}

fn list() -> Request {
    Request::GetChildren { path: "/p".into(), watch: false, with_stat: false }
}

/// OP-103, OP-104.
#[test]
fn counts_and_lists_do_not_visit_unrelated_nodes() {
    let mut host = Host::with_nodes(u64::MAX);
    assert_eq!(host.ask(Request::GetAllChildrenNumber { path: "/".into() }), 2);
    let cost = host.ask(Request::GetEphemerals { prefix: "/p/199".into() });
    assert_eq!(cost, 2 + 11, "one for each that fits");
    let (_, body) = host.replies.pop().expect("an answer");
    assert!(
        matches!(body, ReplyBody::Children(names) if names.len() == 11 && names[0] == "/p/199")
    );
}

#[test]
fn request_cost_grows_with_visited_nodes_and_written_bytes() {
    let mut host = Host::with_nodes(u64::MAX);
    assert!((NODES..NODES + 20).contains(&host.ask(list())));
    assert!((3 * NODES..3 * NODES + 60).contains(&host.ask(Request::MultiRead(vec![list(); 3]))));
    let data: Vec<String> = (0..500).map(|number| format!("/p/{number}")).collect();
    let watches = SetWatches { relative_zxid: None, data, ..SetWatches::default() };
    assert!((500..510).contains(&host.ask(Request::SetWatches(watches))));
    let data = Some(Bytes::from(vec![0; 100 << 10]));
    let large = Request::SetData { path: "/p".into(), data, version: -1 };
    assert!((100..110).contains(&host.ask(large)), "to decide it");
    assert!((100..110).contains(&host.sync()), "to apply it");
}

/// One connection sends a write, then a hundred expensive reads and another write: the commit of
/// the first write would answer all the reads at once (CONS-02).
#[test]
fn reads_behind_a_write_are_answered_in_slices_and_in_order() {
    let limit = 3 * NODES;
    let mut host = Host::with_nodes(limit);
    host.ask(create("/q".into(), 0));
    let first = host.xid;
    for _ in 0..100 {
        host.ask(list());
    }
    host.ask(create("/p/last".into(), 0));
    host.ask(list());
    let most = limit + 2 * NODES;
    assert!(host.sync() <= most);
    let (steps, dearest) = host.go_on();
    assert!((15..40).contains(&steps), "{steps} steps");
    // Reads and writes have a budget of `most` each.
    assert!(dearest <= 2 * most, "{dearest} units");
    let xids: Vec<i32> = host.replies.iter().map(|(xid, _)| *xid).collect();
    assert_eq!(xids, Vec::from_iter(first..=host.xid));
    for (xid, body) in &host.replies {
        if let ReplyBody::Children(names) = body {
            let expected = NODES + u64::from(*xid == host.xid);
            assert_eq!(names.len() as u64, expected, "a read sees no later write");
        }
    }
}

#[test]
fn transactions_committed_together_are_applied_in_slices() {
    let mut host = Host::with_nodes(100);
    for number in 0..1_000 {
        host.ask(create(format!("/q{number}"), 0));
    }
    let events = host.disk.finish(host.disk.queue.len());
    let before = host.replies.len();
    for event in events {
        assert!(host.step(Input::Disk(event)) <= 102);
    }
    assert!(host.replies.len() - before <= 100);
    let status = host.server.status();
    assert!(status.applied < status.durable && status.durable == status.appended);
    let (steps, most) = host.go_on();
    assert!((9..=11).contains(&steps) && most <= 102, "{steps} steps of {most} units");
    assert_eq!(host.server.status().applied, status.appended);
    assert_eq!(host.replies.len() - before, 1_000);
}
