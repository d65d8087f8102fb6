//! An attacker on the quorum and election ports of three server processes.
//!
//! Owns the attacks. Clients are served, memory stays bounded, and no connection without the secret
//! is accepted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use zabkeeper_core::driver::PeerOptions;
use zabkeeper_core::peer::FromLearner;
use zabkeeper_core::peer::frame;
use zabkeeper_core::peer::greeting::{Channel, Dialling, Established, Local, Refusal};
use zabkeeper_core::peer::secret::Secrets;
use zabkeeper_core::{Epoch, HistoryInfo, HistoryStatus, ServerId};

use crate::harness::PATIENCE;
use crate::members::Ensemble;
use crate::raw::{Raw, create};

const SECRET: &str = "a secret that only tests would use";
/// Maximum growth of memory by bytes that unauthenticated peers send.
const MEMORY: u64 = 64 << 20;

fn local(from: usize, secret: Option<&str>) -> Local {
    let secrets = secret.map(|text| Secrets::parse(text).expect("a secret"));
    let demands_secret = secrets.is_some();
    let secrets = secrets.unwrap_or_default();
    Local { secrets, demands_secret, ..PeerOptions::new(0).local(ServerId(from as u64)) }
}

/// Sends a greeting in the name of a server, and does not wait for the answer.
fn greet(port: u16, channel: Channel, from: usize, to: usize) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let to = ServerId(to as u64);
    let (_, greeting) = Dialling::begin(local(from, None), channel, to, [1; 16]);
    stream.write_all(&greeting).ok()?;
    Some(stream)
}

/// The established connection and this end's proof; or the refusal, `None` if the server only
/// closed.
type Dialled = Result<(Established, Vec<u8>), Option<Refusal>>;

/// Connects and greets with this secret; returns the stream and the result.
fn dial(port: u16, from: usize, to: usize, secret: Option<&str>) -> (TcpStream, Dialled) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a duration");
    let to = ServerId(to as u64);
    let (dialling, greeting) = Dialling::begin(local(from, secret), Channel::Quorum, to, [1; 16]);
    stream.write_all(&greeting).expect("has room");
    let (mut buffer, mut part) = (BytesMut::new(), [0; 512]);
    loop {
        let read = stream.read(&mut part).unwrap_or(0);
        if read == 0 {
            return (stream, Err(None));
        }
        buffer.extend_from_slice(&part[..read]);
        match dialling.establish(&mut buffer) {
            Ok(None) => {}
            Ok(Some(established)) => return (stream, Ok(established)),
            Err(refusal) => return (stream, Err(Some(refusal))),
        }
    }
}

/// Does the other end close the connection, maybe after sending bytes?
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("is a duration");
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The history info of a server that has lost its history.
const DAMAGED: HistoryInfo =
    HistoryInfo { history_status: HistoryStatus::Lost, epoch: Epoch(0), newcomers: 0 };

fn follower_info() -> Vec<u8> {
    let mut bytes = Vec::new();
    let message = FromLearner::FollowerInfo { accepted: Epoch(0), history: DAMAGED, ensemble: 0 };
    frame::encode(&message, &mut bytes);
    bytes
}

/// Writes until `stop` is set; returns the longest duration of a write.
fn longest_write(port: u16, stop: &AtomicBool) -> Duration {
    let (mut raw, _) = Raw::open(port, 10_000);
    let (mut longest, mut number) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let (err, _) = raw.call(create(&format!("/{port}-{number}"), b"", 0));
        assert_eq!(err, 0);
        longest = longest.max(began.elapsed());
        number += 1;
    }
    assert!(number > 50, "{number}");
    longest
}

#[test]
fn repeated_forged_links_do_not_interrupt_the_ensemble() {
    let ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let stop = Arc::new(AtomicBool::new(false));
    let writers = ensemble.up().into_iter().map(|id| {
        let (port, stop) = (ensemble.server(id).port, Arc::clone(&stop));
        thread::spawn(move || longest_write(port, &stop))
    });
    let writers: Vec<_> = writers.collect();
    let until = Instant::now() + Duration::from_secs(5);
    let mut held = Vec::new();
    while Instant::now() < until {
        for to in 0..3 {
            let [_, quorum, election] = ensemble.ports[to];
            for from in (0..3).filter(|from| *from != to) {
                for _ in 0..8 {
                    let link = greet(quorum, Channel::Quorum, from, to);
                    held.extend(link.map(|mut link| {
                        // The server may have closed the connection already.
                        let _refused = link.write_all(&follower_info());
                        link
                    }));
                }
                held.extend(greet(election, Channel::Election, from, to));
            }
        }
        let surplus = held.len().saturating_sub(200);
        held.drain(..surplus);
        thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let longest = writer.join().expect("writes");
        assert!(longest < Duration::from_secs(1), "{longest:?}\n{}", ensemble.logs());
    }
    assert_eq!(ensemble.leader(), leader);
}

#[cfg(target_os = "linux")]
#[test]
fn incomplete_frames_use_bounded_memory() {
    let ensemble = Ensemble::start("tickTime=500\n");
    let leader = ensemble.leader();
    let other = (0..3).find(|id| *id != leader).expect("there are three");
    let before = ensemble.server(leader).peak_memory().expect("Linux tells");
    let [_, quorum, election] = ensemble.ports[leader];
    let mut flooding = Vec::new();
    for n in 0..16 {
        let (port, channel) =
            if n < 12 { (quorum, Channel::Quorum) } else { (election, Channel::Election) };
        let Some(mut link) = greet(port, channel, other, leader) else { continue };
        flooding.push(thread::spawn(move || {
            // A request of just under 256 MiB, of which all but the end is sent.
            let length = (256_u32 << 20) - 1;
            let _refused = link.write_all(&[&length.to_le_bytes()[..], &[0; 4], &[14]].concat());
            let part = vec![0; 1 << 20];
            let mut sent = 0;
            while sent < 255 && link.write_all(&part).is_ok() {
                sent += 1;
            }
            sent
        }));
    }
    for flood in flooding {
        assert!(flood.join().expect("ends") < 64, "a server has read on");
    }
    let after = ensemble.server(leader).peak_memory().expect("Linux tells");
    assert!(after - before < MEMORY, "{} MiB", (after - before) >> 20);
    assert_eq!(ensemble.leader(), leader);
}

/// Unbounded nesting of multis in a message would overflow the decoder's stack.
#[test]
fn nested_multi_is_refused() {
    let mut ensemble = Ensemble::prepare("127.0.0.1", "");
    // A single server keeps looking for a leader and accepts links.
    ensemble.boot(0);
    ensemble.server(0).await_line(&[&"looks for a leader"]);
    let nested: Vec<u8> = [14, 2, 2, 1, 1, 0].into_iter().chain([13, 1].repeat(3_000)).collect();
    let mut bytes = u32::try_from(nested.len()).expect("short").to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&nested).to_le_bytes());
    bytes.extend_from_slice(&nested);
    let [_, quorum, _] = ensemble.ports[0];
    let mut link = greet(quorum, Channel::Quorum, 1, 0).expect("listens");
    link.write_all(&bytes).expect("has room");
    assert!(is_closed(&link));
    ensemble.terminate(0);
}

fn secret_file(folder: &Path, text: &str) -> String {
    let path = folder.join("secret");
    std::fs::write(&path, text).expect("writes");
    set_mode(&path, 0o600);
    format!("quorum.secretFile={}\n", path.display())
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("is ours");
}

#[test]
fn links_need_the_secret_and_fresh_signatures() {
    let folder = tempfile::tempdir().expect("creates");
    let ensemble = Ensemble::start(&secret_file(folder.path(), SECRET));
    let leader = ensemble.leader();
    let other = (0..3).find(|id| *id != leader).expect("there are three");
    let (server, [_, quorum, _]) = (ensemble.server(leader), ensemble.ports[leader]);
    assert!(!server.log().contains("can act as a server"), "{}", server.log());

    let (_, refused) = dial(quorum, other, leader, None);
    assert_eq!(refused.unwrap_err(), Some(Refusal::NoSecretHere(ServerId(leader as u64))));
    server.await_line(&[&"closed the connection from", &"has no secret"]);

    let (stream, refused) = dial(quorum, other, leader, Some("another secret of some length"));
    assert_eq!(refused.unwrap_err(), Some(Refusal::WrongSecret(ServerId(leader as u64))));
    drop(stream);
    server.await_line(&[&"closed it instead of proving that it knows the secret"]);

    // A valid handshake, followed by an unsigned frame or by a replayed signed frame.
    for replays in [false, true] {
        let (mut stream, established) = dial(quorum, other, leader, Some(SECRET));
        let (mut established, proof) = established.expect("it knows the secret");
        let mut bytes = Vec::new();
        let message =
            FromLearner::FollowerInfo { accepted: Epoch(0), history: DAMAGED, ensemble: 0 };
        established.writer.encode(&message, &mut bytes);
        // In one write, because the server in whose name this connects is about to reconnect.
        let bytes = if replays {
            [&proof[..], &bytes, &bytes].concat()
        } else {
            // Padded, so that it is at least as long as a signed frame.
            [proof, follower_info(), vec![0; 64]].concat()
        };
        stream.write_all(&bytes).expect("has room");
        assert!(is_closed(&stream), "replays {replays}");
    }
    ensemble.eventually("the reason in the log, twice", || {
        server.log().matches("a frame without the right signature").count() == 2
    });
    // The server in whose name the test connected has reconnected.
    ensemble.await_serving(other);
    let (mut raw, _) = Raw::open(ensemble.server(other).port, 10_000);
    assert_eq!(raw.call(create("/served", b"", 0)).0, 0);
}

#[test]
fn secret_is_introduced_by_rolling_restarts() {
    let folder = tempfile::tempdir().expect("creates");
    let line = secret_file(folder.path(), SECRET);
    let mut ensemble = Ensemble::start("");
    ensemble.server(0).await_line(&[&"WARN", &"can act as a server", &"quorum.secretFile="]);
    for settings in [line.clone() + "quorum.secretRequired=false\n", line] {
        ensemble.configure(&settings);
        for id in 0..3 {
            ensemble.terminate(id);
            ensemble.boot(id);
            (0..3).for_each(|id| ensemble.await_serving(id));
            let (mut raw, _) = Raw::open(ensemble.server(id).port, 10_000);
            let (err, _) = raw.call(create("/one", b"", 0));
            assert!(err == 0 || err == -110, "{err}");
        }
    }
    let (_, refused) = dial(ensemble.ports[0][1], 1, 0, None);
    assert_eq!(refused.unwrap_err(), Some(Refusal::NoSecretHere(ServerId(0))));
}

#[test]
fn secret_file_readable_by_others_is_refused() {
    let folder = tempfile::tempdir().expect("creates");
    let line = secret_file(folder.path(), SECRET);
    set_mode(&folder.path().join("secret"), 0o640);
    let mut ensemble = Ensemble::prepare("127.0.0.1", &line);
    ensemble.boot(0);
    let (status, log) = ensemble.wait(0);
    assert!(!status.success());
    assert!(log.contains("mode 0640") && log.contains("chmod 600 "), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}
