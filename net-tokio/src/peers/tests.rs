//! Two ends on loopback: what the core of each would be told.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Instant, timeout};
use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::frame;
use zabkeeper_core::peer::greeting::{Channel, Dialling, Local};
use zabkeeper_core::peer::secret::Secrets;
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage, ServerState, Vote};
use zabkeeper_core::store::Entry;
use zabkeeper_core::{
    ConnId, Epoch, HistoryInfo, HistoryStatus, Input, LinkCloseReason, LinkId, Outbox, ServerId,
    Zxid,
};

use super::{Peers, bind, open};
use crate::config::parse;
use crate::shared::Shared;

const PATIENCE: Duration = Duration::from_secs(20);

/// One server of an ensemble, without its core.
struct End {
    peers: Rc<Peers>,
    shared: Rc<Shared>,
    /// Inputs that nobody has asked for yet.
    seen: Vec<Input>,
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn lines(host: &str, ports: [u16; 4]) -> String {
    let [a, b, c, d] = ports;
    format!("dataDir=/d\nclientPort=1\nserver.1={host}:{a}:{b}\nserver.2={host}:{c}:{d}\n")
}

impl End {
    async fn start(id: u64, lines: &str) -> End {
        let (settings, _) = parse("zoo.cfg", lines, &[], &|_| Ok(id.to_string())).unwrap();
        let ensemble = settings.ensemble.clone().unwrap();
        let doors = bind(&ensemble, ensemble.member(ServerId(id)).unwrap()).await.unwrap();
        let shared = Rc::new(Shared::new(settings));
        let peers = Peers::start(&shared);
        open(&peers, doors).unwrap();
        End { peers, shared, seen: Vec::new() }
    }

    fn order(&self, command: PeerCommand) {
        self.peers.carry_out(&mut Outbox { peers: vec![command], ..Outbox::default() });
    }

    fn notify(&self, to: u64, round: u64) {
        let election = vec![(ServerId(to), notification(round))];
        self.peers.carry_out(&mut Outbox { election, ..Outbox::default() });
    }

    /// The next input; others may wait behind it.
    async fn next(&mut self) -> Input {
        let arrived = async {
            while self.seen.is_empty() {
                self.seen.extend(std::iter::from_fn(|| self.shared.driver().next_from_servers()));
                if self.seen.is_empty() {
                    self.shared.wake().notified().await;
                }
            }
        };
        timeout(PATIENCE, arrived).await.expect("something happens");
        self.seen.remove(0)
    }

    async fn up(&mut self) -> (LinkId, ServerId, bool) {
        let input = self.next().await;
        let Input::Peer(link, PeerEvent::Up { peer, dialled }) = input else {
            panic!("not up, but {input}");
        };
        (link, peer, dialled)
    }

    /// The next event of this link that is not about its own output.
    async fn event(&mut self, link: LinkId) -> PeerEvent {
        loop {
            let input = self.next().await;
            let Input::Peer(of, event) = input else { panic!("{input}") };
            if event != PeerEvent::Drained {
                assert_eq!(of, link);
                return event;
            }
        }
    }
}

fn notification(round: u64) -> Notification {
    let vote = Vote { epoch: Epoch(1), zxid: Zxid(2), candidate: ServerId(1) };
    Notification {
        server_state: ServerState::Looking,
        round,
        vote,
        history: HistoryInfo::new(HistoryStatus::Complete, Epoch(1)),
        ensemble: 0,
    }
}

fn proposal(counter: u64, size: usize) -> PeerMessage {
    let bytes = Bytes::from(vec![counter.to_le_bytes()[0]; size]);
    PeerMessage::Leader(FromLeader::Proposal(Entry { zxid: Zxid(counter), bytes }))
}

async fn linked(one: &mut End, two: &mut End) -> [LinkId; 2] {
    one.order(PeerCommand::Dial(ServerId(2)));
    let (here, peer, dialled) = one.up().await;
    assert_eq!((peer, dialled), (ServerId(2), true));
    let (there, peer, dialled) = two.up().await;
    assert_eq!((peer, dialled), (ServerId(1), false));
    [here, there]
}

#[test]
fn a_dial_is_answered_and_messages_go_both_ways_in_order() {
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        block_on(async {
            let lines = lines(host, free_ports());
            let (mut one, mut two) = (End::start(1, &lines).await, End::start(2, &lines).await);
            let [here, there] = linked(&mut one, &mut two).await;
            let sent: Vec<PeerMessage> = (0..300).map(|i| proposal(i, 10_000)).collect();
            // A leader sends transactions, a learner dials.
            let peers = sent.iter().map(|m| PeerCommand::Send(there, m.clone())).collect();
            two.peers.carry_out(&mut Outbox { peers, ..Outbox::default() });
            one.order(PeerCommand::Send(here, sync(7)));
            for message in sent {
                assert_eq!(one.event(here).await, PeerEvent::Message(message));
            }
            let mut drained = 0;
            let mut last = two.next().await;
            while last == Input::Peer(there, PeerEvent::Drained) {
                drained += 1;
                last = two.next().await;
            }
            assert_eq!(last, Input::Peer(there, PeerEvent::Message(sync(7))));
            if drained == 0 {
                assert_eq!(two.next().await, Input::Peer(there, PeerEvent::Drained));
            }
            assert!(drained <= 1, "all left once");
        });
    }
}

fn sync(request: u64) -> PeerMessage {
    PeerMessage::Learner(FromLearner::Sync { conn: ConnId(1), request })
}

#[test]
fn close_sends_what_was_queued_and_both_ends_hear_of_the_end_once() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let (mut one, mut two) = (End::start(1, &lines).await, End::start(2, &lines).await);
        let [here, there] = linked(&mut one, &mut two).await;
        // More than the kernel takes at once.
        let sent: Vec<PeerMessage> = (0..9).map(|i| proposal(i, 1 << 20)).collect();
        let mut peers: Vec<_> = sent.iter().map(|m| PeerCommand::Send(there, m.clone())).collect();
        peers.extend([(); 2].map(|()| PeerCommand::Close(there, LinkCloseReason::Unwanted)));
        two.peers.carry_out(&mut Outbox { peers, ..Outbox::default() });
        assert_eq!(two.next().await, Input::Peer(there, PeerEvent::Down));
        for message in sent {
            assert_eq!(one.event(here).await, PeerEvent::Message(message));
        }
        assert_eq!(one.event(here).await, PeerEvent::Down);
        // Nothing else is heard of it, and the next one has a greater id.
        let [later, later_there] = linked(&mut one, &mut two).await;
        assert!(later > here && later_there > there);
    });
}

#[test]
fn nobody_there_is_unreachable_and_pauses_grow_until_the_other_is_heard_of() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let mut one = End::start(1, &lines).await;
        let mut waits = Vec::new();
        let mut last = None;
        for _ in 0..8 {
            let asked = Instant::now();
            one.order(PeerCommand::Dial(ServerId(2)));
            let Input::Peer(link, PeerEvent::Unreachable { peer }) = one.next().await else {
                panic!("nobody is there");
            };
            assert_eq!(peer, ServerId(2));
            assert!(Some(link) > last);
            last = Some(link);
            waits.push(asked.elapsed());
        }
        assert!(waits[7] >= Duration::from_millis(600), "{waits:?}");
        // The next attempt would wait for a second, but the other end says something.
        one.order(PeerCommand::Dial(ServerId(2)));
        let mut two = End::start(2, &lines).await;
        let asked = Instant::now();
        two.notify(1, 5);
        assert_eq!(one.next().await, Input::Election(ServerId(2), notification(5)));
        assert!(one.up().await.2);
        assert!(!two.up().await.2);
        assert!(asked.elapsed() < Duration::from_millis(700), "{:?}", asked.elapsed());
    });
}

#[test]
fn notifications_cross_and_reconnect_and_only_the_newest_waits() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let mut one = End::start(1, &lines).await;
        // The other is not there yet.
        for round in 1..=3 {
            one.notify(2, round);
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        let mut two = End::start(2, &lines).await;
        two.notify(1, 9);
        assert_eq!(one.next().await, Input::Election(ServerId(2), notification(9)));
        assert_eq!(two.next().await, Input::Election(ServerId(1), notification(3)));
        one.notify(2, 4);
        assert_eq!(two.next().await, Input::Election(ServerId(1), notification(4)));
        // A later connection of the same server replaces the first, whose end is noticed; the next word goes out anew.
        let mut again = greeted(&two, Channel::Election, 1, 2);
        let mut bytes = Vec::new();
        frame::encode(&notification(6), &mut bytes);
        again.write_all(&bytes).unwrap();
        assert_eq!(two.next().await, Input::Election(ServerId(1), notification(6)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        one.notify(2, 7);
        assert_eq!(two.next().await, Input::Election(ServerId(1), notification(7)));
    });
}

/// Connects to a port of `end` without being a server.
fn stranger(end: &End, channel: Channel) -> TcpStream {
    let settings = &end.shared.settings;
    let ensemble = settings.ensemble.as_ref().unwrap();
    let member = ensemble.member(settings.core.id()).unwrap();
    let port = match channel {
        Channel::Election => member.election_port,
        Channel::Quorum => member.quorum_port,
    };
    TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap()
}

fn greeted(end: &End, channel: Channel, from: u64, to: u64) -> TcpStream {
    let mut stream = stranger(end, channel);
    stream.write_all(&greeting(channel, from, to)).unwrap();
    stream
}

/// Bytes of an answer that welcomes.
const ANSWER_BYTES: usize = 63;

fn greeting(channel: Channel, from: u64, to: u64) -> Vec<u8> {
    let (id, secrets) = (ServerId(from), Secrets::default());
    let local = Local { id, ensemble: 0, secrets, demands_secret: false };
    Dialling::begin(local, channel, ServerId(to), [0; 16]).1
}

/// Is the connection closed, with nothing but an answer before that? Waits on a thread of its own.
async fn closed(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let read = thread::spawn(move || {
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        if answer.len() > ANSWER_BYTES { Ok(answer.len()) } else { end.map(|_| 0) }
    });
    while !read.is_finished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    match read.join().unwrap() {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn strangers_and_garbage_are_shown_out_and_disturb_nobody() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let (mut one, mut two) = (End::start(1, &lines).await, End::start(2, &lines).await);
        let [here, there] = linked(&mut one, &mut two).await;
        for channel in [Channel::Quorum, Channel::Election] {
            for (from, to) in [(1, 3), (7, 2), (2, 2)] {
                assert!(closed(greeted(&two, channel, from, to)).await, "{from} {to}");
            }
            let mut garbage = stranger(&two, channel);
            garbage.write_all(&[b'x'; 100]).unwrap();
            assert!(closed(garbage).await);
            // It says nothing: it is given some seconds.
            assert!(closed(stranger(&two, channel)).await);
            let mut liar = greeted(&two, channel, 1, 2);
            if channel == Channel::Quorum {
                // The link of the real one is heard.
                assert_eq!(read(&liar, ANSWER_BYTES).await[VERDICT_AT], BUSY);
            } else {
                liar.write_all(&[0xff; 100]).unwrap();
            }
            assert!(closed(liar).await);
        }
        let mut confused = stranger(&two, Channel::Quorum);
        confused.write_all(&greeting(Channel::Election, 1, 2)).unwrap();
        assert!(closed(confused).await);
        one.order(PeerCommand::Send(here, sync(1)));
        assert_eq!(two.event(there).await, PeerEvent::Message(sync(1)));
    });
}

#[test]
fn a_crowd_of_silent_strangers_keeps_no_server_out() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let (mut one, mut two) = (End::start(1, &lines).await, End::start(2, &lines).await);
        let crowd: Vec<TcpStream> = (0..100).map(|_| stranger(&two, Channel::Quorum)).collect();
        let began = Instant::now();
        linked(&mut one, &mut two).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        drop(crowd);
    });
}

/// Reads from a connection on a thread of its own, so that the servers of the test go on; whole once it is so long.
async fn read(stream: &TcpStream, bytes: usize) -> Vec<u8> {
    let mut stream = stream.try_clone().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let reader = thread::spawn(move || {
        let mut read = vec![0; bytes];
        stream.read_exact(&mut read).map(|()| read)
    });
    while !reader.is_finished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reader.join().unwrap().unwrap()
}

/// Place of the verdict in an answer, and what it says to who comes too often.
const VERDICT_AT: usize = 11;
const BUSY: u8 = 8;

#[test]
fn a_link_that_is_heard_is_not_replaced_and_one_that_is_silent_is() {
    block_on(async {
        // A link is silent after a second.
        let lines = lines("127.0.0.1", free_ports()) + "tickTime=1000\nsyncLimit=2\n";
        let mut two = End::start(2, &lines).await;
        let began = Instant::now();
        let mut old = greeted(&two, Channel::Quorum, 1, 2);
        let link = two.up().await.0;
        tokio::time::sleep(Duration::from_millis(700)).await;
        let mut bytes = Vec::new();
        frame::encode(&FromLearner::Ack { zxid: Zxid(5) }, &mut bytes);
        old.write_all(&bytes).unwrap();
        assert!(matches!(two.event(link).await, PeerEvent::Message(_)));
        let _later = greeted(&two, Channel::Quorum, 1, 2);
        assert_eq!(two.next().await, Input::Peer(link, PeerEvent::Down));
        assert!(began.elapsed() > Duration::from_millis(1_600), "{:?}", began.elapsed());
        let next = two.up().await.0;
        // An end that is known makes room at once.
        drop(_later);
        let (gone, _last) = (Instant::now(), greeted(&two, Channel::Quorum, 1, 2));
        assert_eq!(two.next().await, Input::Peer(next, PeerEvent::Down));
        two.up().await;
        assert!(gone.elapsed() < Duration::from_millis(500), "{:?}", gone.elapsed());
    });
}

#[test]
fn who_comes_too_often_is_told_that_the_server_is_busy() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let mut two = End::start(2, &lines).await;
        let _stands = greeted(&two, Channel::Quorum, 1, 2);
        two.up().await;
        let crowd: Vec<TcpStream> =
            (0..100).map(|_| greeted(&two, Channel::Quorum, 1, 2)).collect();
        for last in crowd.iter().rev().take(50) {
            assert_eq!(read(last, ANSWER_BYTES).await[VERDICT_AT], BUSY);
        }
        assert!(two.seen.is_empty());
        assert_eq!(two.shared.driver().next_from_servers(), None, "the core hears of none of them");
    });
}

#[test]
fn long_frames_are_read_only_on_links_that_the_core_has_taken() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports());
        let mut two = End::start(2, &lines).await;
        for (content, taken, long) in [
            // A request of a client, of 5 MiB.
            (14, true, true),
            (14, false, false),
            // A proposal, which no learner sends.
            (6, true, false),
        ] {
            let mut liar = greeted(&two, Channel::Quorum, 1, 2);
            let link = two.up().await.0;
            if taken {
                two.order(PeerCommand::Send(
                    link,
                    PeerMessage::Leader(FromLeader::Commit { zxid: Zxid(1) }),
                ));
            }
            read(&liar, ANSWER_BYTES).await;
            let head = [&(5_u32 << 20).to_le_bytes()[..], &[0; 4], &[content; 9]].concat();
            liar.write_all(&head).unwrap();
            if long {
                tokio::time::sleep(Duration::from_millis(200)).await;
                drop(liar);
            }
            assert_eq!(two.event(link).await, PeerEvent::Down);
        }
    });
}

#[test]
fn a_message_that_does_not_end_ends_the_link() {
    block_on(async {
        let lines = lines("127.0.0.1", free_ports()) + "tickTime=500\nsyncLimit=1\n";
        let mut two = End::start(2, &lines).await;
        let mut slow = greeted(&two, Channel::Quorum, 1, 2);
        let link = two.up().await.0;
        let began = Instant::now();
        let mut bytes = Vec::new();
        frame::encode(&FromLearner::Ack { zxid: Zxid(5) }, &mut bytes);
        for byte in bytes {
            // Whole messages of other links and drips of this one do not prolong it.
            if slow.write_all(&[byte]).is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(two.event(link).await, PeerEvent::Down);
        assert!(began.elapsed() > Duration::from_millis(450), "{:?}", began.elapsed());
        let mut slow = greeted(&two, Channel::Election, 1, 2);
        slow.write_all(&[9]).unwrap();
        assert!(closed(slow).await);
    });
}

#[test]
fn an_address_that_cannot_be_had_names_the_line() {
    block_on(async {
        let [taken, b, c, d] = free_ports();
        let _holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
        let lines = lines("127.0.0.1", [taken, b, c, d]);
        let (settings, _) = parse("zoo.cfg", &lines, &[], &|_| Ok("1".to_owned())).unwrap();
        let ensemble = settings.ensemble.unwrap();
        let error = bind(&ensemble, &ensemble.members[0]).await.err().unwrap();
        let expected = format!(
            "cannot listen for other servers on 127.0.0.1:{taken}, as server.1 says: Address already \
             in use (os error 98)"
        );
        assert_eq!(error, expected);
    });
}
