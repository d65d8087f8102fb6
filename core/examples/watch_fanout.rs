//! What a million watches take, and how long a change takes that thousands of connections watch.
//!
//! ```text
//! cargo run --release -p zabkeeper-core --example watch_fanout
//! ```
//!
//! Owns a server with an ideal disk and nobody to send to: the figures are the core's, without
//! sockets, and without the driver, whose buffers and turns would count among memory and time.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "it measures, and knows no other command of the disk"
)]

use std::time::{Duration, Instant as Clock};

use bytes::{Bytes, BytesMut};
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::store::{DiskCommand, DiskEvent, Recovered};
use zabkeeper_core::wire::{Acl, ConnectRequest, Request, RequestFrame};
use zabkeeper_core::{
    Config, ConnId, Input, Instant, Now, Outbox, Server, ServerId, SessionId, Voters, WallMs, Zxid,
};

fn main() {
    println!("10 connections, 100,000 paths each");
    let mut bench = Bench::start(10);
    bench.watch_paths(100_000);
    bench.close_all();
    println!("1 connection, 1,000,000 paths");
    let mut bench = Bench::start(1);
    bench.watch_paths(1_000_000);
    bench.close_all();
    println!("10,000 connections, 100 paths each");
    let mut bench = Bench::start(10_000);
    bench.watch_paths(100);
    bench.close_all();
    println!("10,000 connections, one node");
    let mut bench = Bench::start(10_000);
    bench.fan_out();
}

struct Bench {
    server: Server,
    conns: u64,
    xid: i32,
    out: Outbox,
}

impl Bench {
    fn start(conns: u64) -> Bench {
        let id = ServerId(1);
        let mut config = Config::new(id, Voters::new([id]), Duration::from_secs(2)).expect("fine");
        config.limits.snapshot_txns = u32::MAX / 2;
        let server = Server::recover(config, 1, Recovered::default()).expect("a blank disk");
        let mut bench = Bench { server, conns, xid: 0, out: Outbox::default() };
        bench.step(Input::Timeout);
        bench.sync();
        for conn in bench.conns() {
            let request = ConnectRequest {
                last_zxid_seen: Zxid::ZERO,
                timeout_ms: 40_000,
                session: SessionId(0),
                password: Bytes::from_static(&[0; 16]),
                read_only: Some(false),
            };
            bench.step(Input::Client(conn, ClientEvent::Opened(request, Vec::new())));
            bench.sync();
        }
        bench
    }

    fn conns(&self) -> impl Iterator<Item = ConnId> + use<> {
        (1..=self.conns).map(ConnId)
    }

    fn step(&mut self, input: Input) {
        let now = Now { mono: Instant(0), wall: WallMs(1_000_000) };
        self.server.step(now, input, &mut self.out);
    }

    fn ask(&mut self, conn: ConnId, request: Request) {
        self.xid += 1;
        let frame = RequestFrame { xid: self.xid, request };
        self.step(Input::Client(conn, ClientEvent::Request(frame)));
    }

    /// The disk has done it all.
    fn sync(&mut self) {
        loop {
            let done = self.out.disk.drain(..).fold(None, |_, command| match command {
                DiskCommand::Append { id, .. } | DiskCommand::SaveState { id, .. } => Some(id),
                other => panic!("{other} is not expected"),
            });
            match done {
                Some(id) => self.step(Input::Disk(DiskEvent::Done(id))),
                None => return,
            }
        }
    }

    /// Every connection watches every one of so many nodes that are not there.
    fn watch_paths(&mut self, paths: u32) {
        let before = memory_kib();
        let start = Clock::now();
        for conn in self.conns() {
            for path in 0..paths {
                let path = format!("/application/node-{path:07}");
                self.ask(conn, Request::Exists { path, watch: true });
                self.out.clients.clear();
            }
        }
        let watches = self.server.status().watches;
        let kib = memory_kib() - before;
        println!("  {watches} watches: {kib} KiB, set in {:?}", start.elapsed());
    }

    fn close_all(&mut self) {
        let start = Clock::now();
        for conn in self.conns() {
            self.step(Input::Client(conn, ClientEvent::Closed));
        }
        assert_eq!(self.server.status().watches, 0);
        println!("  closed in {:?}", start.elapsed());
    }

    /// All watch one node, which changes, again and again.
    fn fan_out(&mut self) {
        let path = || "/config".to_owned();
        let (data, acl) = (Some(Bytes::from_static(b"x")), Acl::open());
        let create =
            Request::Create { path: path(), data: data.clone(), acl, flags: 0, with_stat: false };
        self.ask(ConnId(1), create);
        self.sync();
        let mut buffers = vec![BytesMut::new(); 10_000];
        for _ in 0..5 {
            let start = Clock::now();
            for conn in self.conns() {
                self.ask(conn, Request::GetData { path: path(), watch: true });
            }
            let set = start.elapsed();
            self.out.clients.clear();
            self.ask(ConnId(1), Request::SetData { path: path(), data: data.clone(), version: -1 });
            let start = Clock::now();
            self.sync();
            let fired = start.elapsed();
            let start = Clock::now();
            let mut events = 0;
            for (conn, command) in self.out.clients.drain(..) {
                if let ClientCommand::Event(event) = command {
                    let buffer = &mut buffers[usize::try_from(conn.0).expect("small") - 1];
                    buffer.clear();
                    event.encode(buffer);
                    events += 1;
                }
            }
            let encoded = start.elapsed();
            println!(
                "  watches set in {set:?}; {events} events in {fired:?}, encoded in {encoded:?}"
            );
        }
    }
}

/// Memory of this process that is in use, as the system counts it.
fn memory_kib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let resident = pages.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    4 * resident.unwrap_or(0_u64)
}
