//! What writes to the data tree cost, and what they leave in memory.
//!
//! ```text
//! cargo run --release -p zabkeeper-core --example tree_writes [small[=COUNT]] [whole] \
//!     [large] [deep] [ephemeral]
//! ```
//!
//! Owns a server with an ideal disk: the figures are the core's, without sockets and files, and
//! without the driver, which would add the decoding of requests and the encoding of replies. Times
//! are those of the processor, so that a busy machine shows the same.
#![expect(
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "it measures, and knows no other command of the disk"
)]

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::io::ClientEvent;
use zabkeeper_core::store::{DiskCommand, DiskEvent, Recovered};
use zabkeeper_core::wire::{Acl, AddWatchMode, ConnectRequest, Request, RequestFrame};
use zabkeeper_core::{
    Config, ConnId, Input, Instant, Now, Outbox, Server, ServerId, SessionId, Voters, WallMs, Zxid,
};

const CLIENT: ConnId = ConnId(1);
/// Requests between two completions of the disk.
const BATCH: u32 = 100;
/// Parents of the nodes in the first part.
const PARENTS: u32 = 1_000;
const EPHEMERAL: i32 = 1;

fn main() {
    let parts: [(&str, u32, Part); 5] = [
        ("small", 1_000_000, Bench::small_nodes),
        ("whole", 1_000_000, Bench::whole_tree),
        ("large", 1_000, Bench::large_values),
        ("deep", 10_000, Bench::deep_paths),
        ("ephemeral", 200_000, Bench::ephemerals),
    ];
    let wanted = Vec::from_iter(std::env::args().skip(1));
    for (name, usual, part) in parts {
        let asked = wanted.iter().find_map(|one| one.strip_prefix(name));
        if wanted.is_empty() || asked.is_some() {
            let count = asked.and_then(|count| count.strip_prefix('=')?.parse().ok());
            part(&mut Bench::start(), count.unwrap_or(usual));
        }
    }
}

type Part = fn(&mut Bench, u32);

struct Bench {
    server: Server,
    xid: i32,
    out: Outbox,
}

impl Bench {
    fn start() -> Bench {
        let id = ServerId(1);
        let mut config = Config::new(id, Voters::new([id]), Duration::from_secs(2)).expect("fine");
        config.limits.snapshot_txns = u32::MAX / 2;
        let server = Server::recover(config, 1, Recovered::default()).expect("a blank disk");
        let mut bench = Bench { server, xid: 0, out: Outbox::default() };
        bench.step(Input::Timeout);
        bench.sync();
        bench.open();
        bench
    }

    fn open(&mut self) {
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: 40_000,
            session: SessionId(0),
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        self.step(Input::Client(CLIENT, ClientEvent::Opened(request, Vec::new())));
        self.sync();
    }

    fn step(&mut self, input: Input) {
        let now = Now { mono: Instant(0), wall: WallMs(1_000_000) };
        self.server.step(now, input, &mut self.out);
    }

    fn ask(&mut self, request: Request) {
        self.xid += 1;
        let frame = RequestFrame { xid: self.xid, request };
        self.step(Input::Client(CLIENT, ClientEvent::Request(frame)));
    }

    /// The disk has done it all.
    fn sync(&mut self) {
        loop {
            self.out.clients.clear();
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

    /// Executes `count` requests and prints the cost of one.
    fn measure(&mut self, what: &str, count: u32, request: impl Fn(u32) -> Request) {
        let start = cpu_ns();
        for number in 0..count {
            self.ask(request(number));
            if number % BATCH == BATCH - 1 {
                self.sync();
            }
        }
        self.sync();
        println!("{what}: {} ns each", (cpu_ns() - start) / u64::from(count));
    }

    fn small_nodes(&mut self, count: u32) {
        let parent = |number: u32| format!("/application/p-{:03}", number % PARENTS);
        let path = move |number: u32| format!("{}/node-{number:07}", parent(number));
        let scattered = move |number: u32| path(number.wrapping_mul(0x9e37_79b1) % count);
        let data = Bytes::from(vec![b'x'; 100]);
        self.ask(create("/application".into(), &data, 0));
        for number in 0..PARENTS {
            self.ask(create(parent(number), &data, 0));
        }
        self.sync();
        let before = memory_kib();
        self.measure("create, 100 bytes", count, |number| create(path(number), &data, 0));
        let bytes = (memory_kib() - before) * 1024 / u64::from(count);
        println!("memory of one: {bytes} bytes, name and data of 112 included");
        self.measure("set, 100 bytes", count, |number| set(scattered(number), &data));
        self.measure("delete", count, |number| delete(path(number)));
    }

    /// What looks at the whole tree, or once did.
    fn whole_tree(&mut self, count: u32) {
        for number in 0..count {
            self.ask(create(format!("/{number}"), &Bytes::from_static(b"x"), 0));
        }
        self.sync();
        let start = cpu_ns();
        let digests = (0..10).fold(0, |sum, _| sum ^ self.server.digest());
        println!("digest: {} ns each ({digests})", (cpu_ns() - start) / 10);
        self.measure("getAllChildrenNumber", 100, |_| Request::GetAllChildrenNumber {
            path: "/".into(),
        });
    }

    fn large_values(&mut self, count: u32) {
        let path = || "/large".to_owned();
        let (large, small) = (Bytes::from(vec![b'x'; 1 << 20]), Bytes::from_static(b"x"));
        self.ask(create(path(), &large, 0));
        self.measure("set, 1 MiB", count, |_| set(path(), &large));
        self.measure("create below 1 MiB", 20 * count, |number| {
            create(format!("{}/{number}", path()), &small, 0)
        });
    }

    fn deep_paths(&mut self, count: u32) {
        let deep = |levels: u32| (0..levels).fold(String::new(), |path, _| path + "/a");
        for levels in 1..=3_000 {
            self.ask(create(deep(levels), &Bytes::new(), 0));
        }
        self.sync();
        for levels in [30, 300, 3_000] {
            let path = deep(levels);
            self.measure(&format!("create and delete at level {levels}"), count, |number| {
                let path = format!("{path}/{}", number / 2);
                if number % 2 == 0 { create(path, &Bytes::new(), 0) } else { delete(path) }
            });
            self.ask(Request::AddWatch {
                path: "/a".into(),
                mode: AddWatchMode::PersistentRecursive,
            });
            self.measure("the same below a recursive watch", count, |number| {
                let path = format!("{path}/{}", number / 2);
                if number % 2 == 0 { create(path, &Bytes::new(), 0) } else { delete(path) }
            });
            self.ask(Request::Watches {
                path: "/a".into(),
                kind: zabkeeper_core::wire::WatcherType::Any,
                remove: true,
            });
        }
    }

    fn ephemerals(&mut self, count: u32) {
        let path = |number: u32| format!("/workers/worker-{number:07}");
        self.ask(create("/workers".into(), &Bytes::new(), 0));
        let before = memory_kib();
        self.measure("create an ephemeral node", count, |number| {
            create(path(number.wrapping_mul(0x9e37_79b1) % count), &Bytes::new(), EPHEMERAL)
        });
        let bytes = (memory_kib() - before) * 1024 / u64::from(count);
        println!("memory of one: {bytes} bytes");
        self.measure("getEphemerals", 100, |_| Request::GetEphemerals {
            prefix: "/workers/worker-0000001".into(),
        });
        let start = cpu_ns();
        self.ask(Request::CloseSession);
        self.sync();
        println!("close the session: {} ns per node", (cpu_ns() - start) / u64::from(count));
    }
}

fn create(path: String, data: &Bytes, flags: i32) -> Request {
    let data = Some(data.clone());
    Request::Create { path, data, acl: Acl::open(), flags, with_stat: false }
}

fn set(path: String, data: &Bytes) -> Request {
    Request::SetData { path, data: Some(data.clone()), version: -1 }
}

fn delete(path: String) -> Request {
    Request::Delete { path, version: -1 }
}

/// Time on a processor so far.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("this is Linux");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0_u64)
}

/// Memory of this process that is in use, as the system counts it.
fn memory_kib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let resident = pages.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    4 * resident.unwrap_or(0_u64)
}
