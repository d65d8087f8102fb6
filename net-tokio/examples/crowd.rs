//! What a crowd costs a server: sessions, watches, znodes, and how long others wait while a change
//! is sent to everyone.
//!
//! ```text
//! cargo run --release -p net-tokio --example crowd -- zookeeper=127.0.0.1:2181=PID \
//!     zabkeeper=127.0.0.1:2182=PID
//! ```
//!
//! Sends raw frames, as any client does. One server after the other, each in the same way; a fresh
//! one needs `maxClientCnxns=0`, `maxSessionTimeout=600000` and room for some 12,000 open files.
//! PID is that of the server, whose resident memory is read from `/proc`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program that measures and prints"
)]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use zabkeeper_core::wire::{
    Acl, ConnectRequest, FromServer, Password, Request, RequestFrame, ServerFrames,
};
use zabkeeper_core::{SessionId, Zxid};

const SESSIONS: usize = 10_000;
/// Of each session, each on a path of its own.
const WATCHES: usize = 100;
const ZNODES: usize = 1_000_000;
const ZNODE_BYTES: usize = 100;
const ROUNDS: usize = 10;
/// Handshakes under way at once; a listener's queue may be as short as 50.
const AT_ONCE: usize = 40;
const TIMEOUT_MS: i32 = 600_000;
/// The shortest that a tick of two seconds allows.
const SHORT_MS: i32 = 4_000;
const PARENTS: usize = 1_000;
const PATIENCE: Duration = Duration::from_mins(2);

type Failure = Box<dyn Error + Send + Sync>;

/// A name, how it was measured, and the unit in which it is given.
type Figure = (&'static str, f64);

/// One session's connection.
struct Client {
    stream: TcpStream,
    frames: ServerFrames,
    buffer: BytesMut,
    session: SessionId,
    password: Password,
    xid: i32,
}

impl Client {
    async fn connect(
        server: SocketAddr,
        session: SessionId,
        password: Password,
    ) -> Result<Client, Failure> {
        Client::connect_for(server, session, password, TIMEOUT_MS).await
    }

    async fn connect_for(
        server: SocketAddr,
        session: SessionId,
        password: Password,
        timeout_ms: i32,
    ) -> Result<Client, Failure> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms,
            session,
            password: Bytes::copy_from_slice(&password),
            read_only: Some(false),
        };
        let mut buffer = BytesMut::new();
        request.encode(&mut buffer);
        stream.write_all(&buffer).await?;
        buffer.clear();
        let frames = ServerFrames::new(1 << 24);
        let answer = loop {
            if let Some(answer) = frames.first(&mut buffer)? {
                break answer;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err("closed during the handshake".into());
            }
        };
        if answer.timeout_ms == 0 {
            return Err(format!("session {session} has expired").into());
        }
        let (session, password) = (answer.session, answer.password);
        Ok(Client { stream, frames, buffer, session, password, xid: 0 })
    }

    /// The same, as clients do it that mean to stay: tries again when a listener has no room.
    async fn persist(
        server: SocketAddr,
        session: SessionId,
        password: Password,
    ) -> Result<Client, Failure> {
        let begun = Instant::now();
        loop {
            match Client::connect(server, session, password).await {
                Err(error) if error.is::<io::Error>() && begun.elapsed() < PATIENCE => {}
                result => return result,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends all of these at once, and takes their answers; `allowed` are errors that count as
    /// done.
    async fn call(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        allowed: i32,
    ) -> Result<(), Failure> {
        let mut bytes = BytesMut::new();
        let first = self.xid + 1;
        for request in requests {
            self.xid += 1;
            RequestFrame { xid: self.xid, request }.encode(&mut bytes);
        }
        self.stream.write_all(&bytes).await?;
        for expected in first..=self.xid {
            loop {
                match self.next().await? {
                    FromServer::Event(_) => {}
                    FromServer::Reply { xid, err, .. } if xid == expected => {
                        if err != 0 && err != allowed {
                            return Err(
                                format!("request {xid} is answered with error {err}").into()
                            );
                        }
                        break;
                    }
                    FromServer::Reply { xid, .. } => {
                        return Err(format!("{xid} is answered before {expected}").into());
                    }
                }
            }
        }
        Ok(())
    }

    /// How many children a node has.
    async fn children(&mut self, path: &str) -> Result<i32, Failure> {
        self.xid += 1;
        let request = Request::Exists { path: path.to_owned(), watch: false };
        let mut bytes = BytesMut::new();
        RequestFrame { xid: self.xid, request }.encode(&mut bytes);
        self.stream.write_all(&bytes).await?;
        match self.next().await? {
            FromServer::Reply { body, err: 0, .. } => {
                // Of the Stat's 68 bytes the last twelve are their number and a zxid.
                let count = body.get(body.len() - 12..).and_then(|end| end.first_chunk());
                Ok(i32::from_be_bytes(*count.ok_or("no Stat")?))
            }
            other @ (FromServer::Event(_) | FromServer::Reply { .. }) => {
                Err(format!("no Stat, but {other:?}").into())
            }
        }
    }

    async fn event(&mut self) -> Result<(), Failure> {
        match self.next().await? {
            FromServer::Event(_) => Ok(()),
            FromServer::Reply { xid, .. } => Err(format!("{xid} is answered again").into()),
        }
    }

    async fn next(&mut self) -> Result<FromServer, Failure> {
        loop {
            if let Some(frame) = self.frames.next(&mut self.buffer)? {
                return Ok(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(format!("the connection of session {} was closed", self.session).into());
            }
        }
    }
}

fn create(path: String, bytes: usize) -> Request {
    let data = Some(Bytes::from(vec![b'x'; bytes]));
    Request::Create { path, data, acl: Acl::open(), flags: 0, with_stat: false }
}

fn set(path: &str) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(Bytes::from_static(b"changed")),
        version: -1,
    }
}

fn get(path: &str, watch: bool) -> Request {
    Request::GetData { path: path.to_owned(), watch }
}

/// Resident memory of a process, MB.
fn memory_mb(pid: u32) -> io::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb =
        line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kb| kb.parse::<f64>().ok());
    kb.map(|kb| kb / 1e3).ok_or_else(|| io::Error::other("the process tells no memory"))
}

/// Does the same to every client, all at once; gives them back when all have done it.
async fn each<F>(
    clients: Vec<Client>,
    act: impl Fn(usize, Client) -> F,
) -> Result<Vec<Client>, Failure>
where
    F: Future<Output = Result<Client, Failure>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (index, client) in clients.into_iter().enumerate() {
        tasks.spawn(act(index, client));
    }
    tasks.join_all().await.into_iter().collect()
}

/// Opens sessions, or resumes the given ones.
async fn open(
    server: SocketAddr,
    sessions: impl IntoIterator<Item = (SessionId, Password)>,
    at_once: usize,
) -> Result<Vec<Client>, Failure> {
    let (mut tasks, mut clients) = (JoinSet::new(), Vec::new());
    for (session, password) in sessions {
        if tasks.len() >= at_once
            && let Some(client) = tasks.join_next().await
        {
            clients.push(client??);
        }
        tasks.spawn(Client::persist(server, session, password));
    }
    for client in tasks.join_all().await {
        clients.push(client?);
    }
    Ok(clients)
}

/// Asks and changes without a pause on a thread of its own, until `stop`: the slowest read and the
/// slowest write, ms.
fn probe(
    server: SocketAddr,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<Result<[f64; 2], Failure>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut client = Client::connect(server, SessionId(0), Password::default()).await?;
            client.call([create("/probe".to_owned(), 8)], -110).await?;
            let mut slowest = [0.0_f64; 2];
            while !stop.load(Ordering::Relaxed) {
                for (slowest, request) in
                    slowest.iter_mut().zip([get("/probe", false), set("/probe")])
                {
                    let begun = Instant::now();
                    client.call([request], 0).await?;
                    *slowest = slowest.max(begun.elapsed().as_secs_f64() * 1e3);
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            Ok(slowest)
        })
    })
}

async fn measure(server: SocketAddr, pid: u32) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let mut before_mb = memory_mb(pid)?;
    figures.push(("memory at the start, MB", before_mb));

    let begun = Instant::now();
    let new = std::iter::repeat_n((SessionId(0), Password::default()), SESSIONS);
    let mut clients = open(server, new, AT_ONCE).await?;
    figures.push(("10,000 sessions opened, s", begun.elapsed().as_secs_f64()));
    let mut grown = |what, figures: &mut Vec<Figure>| -> Result<(), Failure> {
        let now_mb = memory_mb(pid)?;
        figures.push((what, now_mb - before_mb));
        before_mb = now_mb;
        Ok(())
    };
    grown("  memory for them, MB", &mut figures)?;

    let begun = Instant::now();
    clients = each(clients, |index, mut client| async move {
        // On absent nodes, so that only the watch is measured.
        let watch =
            |n| Request::Exists { path: format!("/watched/by-{index}/number-{n}"), watch: true };
        client.call((0..WATCHES).map(watch), -101).await?;
        Ok(client)
    })
    .await?;
    figures.push(("1,000,000 watches set, s", begun.elapsed().as_secs_f64()));
    grown("  memory for them, MB", &mut figures)?;

    clients[0].call([create("/hot".to_owned(), 8)], -110).await?;
    let (mut latencies, mut quiet, mut busy) = (Vec::new(), [0.0_f64; 2], [0.0_f64; 2]);
    for round in 0..=ROUNDS {
        clients = each(clients, |_, mut client| async move {
            client.call([get("/hot", true)], 0).await?;
            Ok(client)
        })
        .await?;
        let stop = Arc::new(AtomicBool::new(false));
        let probe = probe(server, Arc::clone(&stop));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let slowest = if round == 0 {
            // The same probe, while no change is sent.
            tokio::time::sleep(Duration::from_secs(3)).await;
            &mut quiet
        } else {
            let mut changer = Client::connect(server, SessionId(0), Password::default()).await?;
            let begun = Instant::now();
            changer.call([set("/hot")], 0).await?;
            clients = each(clients, |_, mut client| async move {
                client.event().await?;
                Ok(client)
            })
            .await?;
            latencies.push(begun.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(Duration::from_millis(200)).await;
            &mut busy
        };
        stop.store(true, Ordering::Relaxed);
        let [read, write] = probe.join().map_err(|_| "the probe has panicked")??;
        *slowest = [slowest[0].max(read), slowest[1].max(write)];
    }
    latencies.sort_by(f64::total_cmp);
    figures.push((
        "a change received by 10,000 sessions, median of 10, ms",
        latencies[latencies.len() / 2],
    ));
    figures.push(("  the slowest, ms", latencies[latencies.len() - 1]));
    figures.push(("  slowest read of another client meanwhile, ms", busy[0]));
    figures.push(("  slowest write of another client meanwhile, ms", busy[1]));
    figures.push(("  slowest read without that, ms", quiet[0]));
    figures.push(("  slowest write without that, ms", quiet[1]));

    let sessions: Vec<_> = clients.iter().map(|client| (client.session, client.password)).collect();
    drop(clients);
    let begun = Instant::now();
    let mut clients = open(server, sessions, SESSIONS).await?;
    figures.push(("10,000 sessions reconnected at once, s", begun.elapsed().as_secs_f64()));

    // No more files than a shell usually allows.
    clients.truncate(1);
    let mut silent = Vec::new();
    let new = || Client::connect_for(server, SessionId(0), Password::default(), SHORT_MS);
    clients[0].call([create("/short".to_owned(), 0)], -110).await?;
    let mut opened = JoinSet::new();
    for index in 0..SESSIONS {
        if opened.len() >= AT_ONCE
            && let Some(client) = opened.join_next().await
        {
            silent.push(client??);
        }
        let new = new();
        opened.spawn(async move {
            let mut client = new.await?;
            let path = format!("/short/of-{index}");
            let (data, acl) = (None, Acl::open());
            client
                .call([Request::Create { path, data, acl, flags: 1, with_stat: false }], 0)
                .await?;
            Ok::<_, Failure>(client)
        });
    }
    for client in opened.join_all().await {
        silent.push(client?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let meanwhile = probe(server, Arc::clone(&stop));
    let begun = Instant::now();
    while clients[0].children("/short").await? > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    figures.push((
        "10,000 silent sessions with an ephemeral each gone, s",
        begun.elapsed().as_secs_f64(),
    ));
    stop.store(true, Ordering::Relaxed);
    let [read, write] = meanwhile.join().map_err(|_| "the probe has panicked")??;
    figures.push(("  slowest read of another client meanwhile, ms", read));
    figures.push(("  slowest write of another client meanwhile, ms", write));
    drop(silent);

    let client = &mut clients[0];
    before_mb = memory_mb(pid)?;
    let begun = Instant::now();
    client.call([create("/z".to_owned(), 0)], -110).await?;
    for parent in 0..PARENTS {
        let path = |n: usize| format!("/z/{parent:04}/node-{n:06}");
        let own = [create(format!("/z/{parent:04}"), 0)];
        let all =
            own.into_iter().chain((0..ZNODES / PARENTS).map(|n| create(path(n), ZNODE_BYTES)));
        client.call(all, 0).await?;
    }
    figures.push(("1,000,000 znodes of 100 bytes created, s", begun.elapsed().as_secs_f64()));
    figures.push(("  memory for them, MB", memory_mb(pid)? - before_mb));
    Ok(figures)
}

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut columns = Vec::new();
    for server in std::env::args().skip(1) {
        let parts: Vec<_> = server.split('=').collect();
        let [name, address, pid] = parts[..] else {
            return Err(format!("{server} is not NAME=ADDRESS:PORT=PID").into());
        };
        eprintln!("{name} ..");
        columns.push((name.to_owned(), runtime.block_on(measure(address.parse()?, pid.parse()?))?));
    }
    let Some((_, first)) = columns.first() else {
        return Err("which servers? NAME=ADDRESS:PORT=PID ..".into());
    };
    let names = columns.iter().map(|(name, _)| format!(" {name} |"));
    println!("| |{}", names.collect::<String>());
    println!("| --- |{}", " ---: |".repeat(columns.len()));
    for (row, (what, _)) in first.iter().enumerate() {
        let values = columns.iter().map(|(_, figures)| format!(" {:.1} |", figures[row].1));
        println!("| {what} |{}", values.collect::<String>());
    }
    Ok(())
}
