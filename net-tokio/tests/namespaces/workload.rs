//! Clients that read and write a few nodes until they are stopped, each with one connection at a
//! time. When it ends, the client goes on at another server, with its session or with a new one.
//! Other clients only read, each at a server of its own: they show what a server answers that the
//! others have left behind, where a write would wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::{Acl, Request};

use crate::client::{Client, Opened, State};
use crate::harness::eventually;
use crate::tape::Tape;
use sim::engine::seed::{Rng, Seeds};

/// Number of nodes that all clients use.
const NODES: u64 = 5;
/// The parent of sequential nodes.
pub(crate) const QUEUE: &str = "/queue";
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

pub(crate) struct Workload {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

struct Shared {
    stop: AtomicBool,
    /// Number of acknowledged writes, by server from 1 on.
    acknowledged: Vec<AtomicU64>,
}

impl Workload {
    /// Starts a reader for each server, and one more client that writes; all servers serve.
    pub(crate) fn start(tape: &Arc<Tape>, servers: u64, seed: u64) -> Workload {
        eventually(QUEUE, || {
            let client = Client::open(tape, u32::MAX, 1);
            let made = client.and_then(|mut client| client.call(create(QUEUE, "", 0)));
            // It is there already if the first answer came too late.
            made.is_some_and(|(err, _)| [0, ErrorCode::NodeExists.wire()].contains(&err))
        });
        let acknowledged = (0..=servers).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), acknowledged });
        let start = |number: u64| {
            let (tape, shared) = (Arc::clone(tape), Arc::clone(&shared));
            let mut rng = Seeds::new(seed).stream("client", number);
            let timeout_ms = 1_500 + i32::try_from(rng.below(2_500)).expect("is small");
            let patience = Duration::from_millis(500 + rng.below(2_500));
            let client = u32::try_from(number).expect("is small");
            let state = State { patience, ..State::new(client, timeout_ms) };
            // The first clients are the readers.
            let home = (1..=servers).contains(&number).then_some(number);
            let tried = [0; 2];
            let mut worker = Worker { tape, shared, state, home, servers, tried, rng, writes: 0 };
            thread::spawn(move || worker.work())
        };
        let threads = (1..=2 * servers + 1).map(start).collect();
        Workload { threads, shared }
    }

    /// Number of writes that these servers have acknowledged.
    pub(crate) fn acknowledged(&self, servers: &[u64]) -> u64 {
        let count = |id: &u64| {
            self.shared.acknowledged[usize::try_from(*id).expect("an id")].load(Ordering::Relaxed)
        };
        servers.iter().map(count).sum()
    }

    /// Stops the clients; returns the number of acknowledged writes.
    pub(crate) fn stop(mut self) -> u64 {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("read valid frames"));
        self.shared.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// After a failed test, too, no client goes on.
impl Drop for Workload {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The test has failed for another reason than these.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

struct Worker {
    tape: Arc<Tape>,
    shared: Arc<Shared>,
    state: State,
    /// The only server of a client that only reads.
    home: Option<u64>,
    servers: u64,
    /// The servers of the last connection, and of the last attempt since. A session is resumed at
    /// neither: the log has to show that it moves (`sim::check::history`).
    tried: [u64; 2],
    rng: Rng,
    /// Number of writes so far, which makes their data unique.
    writes: u64,
}

impl Worker {
    fn work(&mut self) {
        while !self.is_stopped() {
            let resumes = self.state.session.is_some();
            let tried = if resumes { self.tried } else { [0; 2] };
            let servers: Vec<u64> = (1..=self.servers).filter(|id| !tried.contains(id)).collect();
            let server = self.home.unwrap_or_else(|| *self.rng.pick(&servers));
            match Client::connect(&self.tape, self.state.clone(), server) {
                Opened::Open(mut client) => {
                    self.tried = [server; 2];
                    let lost = self.talk(&mut client, server, resumes).is_none();
                    self.state = client.state.clone();
                    // The clients that keep their sessions have to find another server.
                    let ends = self.rng.chance(if lost { 20 } else { 60 }, 100);
                    if ends || self.home.is_some() {
                        self.state.session = None;
                    }
                }
                Opened::Refused => self.state.session = None,
                Opened::Lost => {
                    self.tried[1] = server;
                    self.pause(20);
                }
            }
        }
    }

    /// Sends batches of requests, until the connection is lost or there were enough. The first
    /// write on a connection of a resumed session succeeds, and its data is unique.
    fn talk(&mut self, client: &mut Client, server: u64, resumed: bool) -> Option<()> {
        let mut first = resumed.then(|| self.set(QUEUE.into(), -1));
        for _ in 0..20 + self.rng.below(200) {
            if self.is_stopped() {
                return Some(());
            }
            let mut batch = Vec::from_iter(first.take());
            let count = if self.rng.chance(20, 100) { 1 + self.rng.below(5) } else { 1 };
            batch.extend((0..count).map(|_| self.request()));
            self.call_all(client, server, batch)?;
            self.pause(4);
        }
        if self.rng.chance(30, 100) {
            self.call_all(client, server, vec![Request::CloseSession])?;
            client.state.session = None;
        }
        Some(())
    }

    fn call_all(&self, client: &mut Client, server: u64, batch: Vec<Request>) -> Option<()> {
        let writes: Vec<bool> = batch.iter().map(Request::is_write).collect();
        let answers = client.call_all(batch)?;
        let done = answers.iter().zip(writes).filter(|((err, _), write)| *write && *err == 0);
        let count = done.count() as u64;
        let server = usize::try_from(server).expect("an id");
        self.shared.acknowledged[server].fetch_add(count, Ordering::Relaxed);
        Some(())
    }

    fn request(&mut self) -> Request {
        let path = format!("/node{}", self.rng.below(NODES));
        let watch = self.rng.chance(30, 100);
        match self.rng.below(if self.home.is_some() { 45 } else { 100 }) {
            0..25 => Request::GetData { path, watch },
            25..32 => Request::Exists { path, watch },
            32..37 => Request::GetChildren { path: "/".into(), watch, with_stat: true },
            37..45 => Request::Sync { path },
            45..67 => {
                let version = self.version();
                self.set(path, version)
            }
            67..80 => create(&path, &self.data(), 0),
            80..85 => create(&path, &self.data(), EPHEMERAL),
            85..88 => create(&format!("{QUEUE}/n-"), &self.data(), SEQUENTIAL),
            88..90 => {
                let path = format!("{QUEUE}/n-{:010}", self.rng.below(50));
                Request::Delete { path, version: -1 }
            }
            90..94 => {
                let parts = vec![Request::Check { path: path.clone(), version: self.version() }];
                Request::Multi([parts, vec![self.set(path, -1)]].concat())
            }
            _ => Request::Delete { path, version: self.version() },
        }
    }

    fn set(&mut self, path: String, version: i32) -> Request {
        Request::SetData { path, data: Some(Bytes::from(self.data())), version }
    }

    /// Any version, or one of the first.
    fn version(&mut self) -> i32 {
        if self.rng.chance(60, 100) {
            -1
        } else {
            i32::try_from(self.rng.below(4)).expect("is small")
        }
    }

    fn data(&mut self) -> String {
        self.writes += 1;
        format!("client {} write {}", self.state.client, self.writes)
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn pause(&mut self, most_ms: u64) {
        thread::sleep(Duration::from_millis(1 + self.rng.below(most_ms)));
    }
}

fn create(path: &str, data: &str, flags: i32) -> Request {
    let data = Some(Bytes::copy_from_slice(data.as_bytes()));
    Request::Create { path: path.into(), data, acl: Acl::open(), flags, with_stat: true }
}
