//! The inputs that the cores of two servers receive. Sockets are pipes in memory, and the clock
//! advances only between steps.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::ids::{ConnId, Epoch, Zxid};
use crate::membership::{HistoryInfo, HistoryStatus, Voters};
use crate::peer::{
    FromLeader, FromLearner, LinkCloseReason, PeerMessage, ServerState, Vote, frame,
};
use crate::store::Entry;

const TICK: Duration = Duration::from_secs(1);
const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);

/// Two servers, and sockets that only the test reads.
struct Net {
    ends: BTreeMap<ServerId, Peers>,
    now: Instant,
    next: u64,
    /// Ends of pipes: the other end, if that is a server, and the bytes that have arrived and are
    /// unread.
    pipes: BTreeMap<(ServerId, LinkId), Pipe>,
    /// Bytes received by peers that are no servers.
    received: BTreeMap<LinkId, Vec<u8>>,
    /// Servers that cannot be dialled.
    absent: BTreeSet<ServerId>,
    /// Sockets that take no output.
    stuck: BTreeSet<LinkId>,
    notes: Vec<PeerNote>,
    inputs: BTreeMap<ServerId, Vec<Input>>,
}

#[derive(Default)]
struct Pipe {
    other: Option<(ServerId, LinkId)>,
    buffer: Vec<u8>,
    ended: bool,
}

fn options(secret: Option<&str>) -> PeerOptions {
    let secrets = secret.map(|text| Secrets::parse(text).expect("a secret"));
    let mut options = PeerOptions::new(1 << 20);
    options.demands_secret = secrets.is_some();
    options.secrets = secrets.unwrap_or_default();
    options
}

impl Net {
    fn new(options: &PeerOptions) -> Net {
        let ids = [ONE, TWO];
        let end = |id: ServerId| {
            let config = Config::new(id, Voters::new(ids), TICK).expect("1 s is a tick");
            (id, Peers::new(Arc::new(config), options.clone()))
        };
        Net {
            ends: ids.into_iter().map(end).collect(),
            now: Instant(1_000_000_000),
            next: 0,
            pipes: BTreeMap::new(),
            received: BTreeMap::new(),
            absent: BTreeSet::new(),
            stuck: BTreeSet::new(),
            notes: Vec::new(),
            inputs: BTreeMap::new(),
        }
    }

    fn end(&mut self, id: ServerId) -> &mut Peers {
        self.ends.get_mut(&id).expect("it is one of them")
    }

    fn link(&mut self) -> LinkId {
        self.next += 1;
        LinkId(self.next)
    }

    /// Executes a command of the core of a server.
    fn order(&mut self, id: ServerId, command: PeerCommand) {
        let now = self.now;
        self.end(id).deliver(&mut vec![command], &mut Vec::new(), now);
    }

    fn notify(&mut self, from: ServerId, to: ServerId, round: u64) {
        let now = self.now;
        self.end(from).deliver(&mut Vec::new(), &mut vec![(to, notification(round))], now);
    }

    /// Advances the clock in steps of 10 ms, and executes everything that is due.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now = self.now.after(Duration::from_millis(10));
            self.run();
        }
    }

    /// Executes everything that needs no time.
    fn run(&mut self) {
        let ids: Vec<ServerId> = self.ends.keys().copied().collect();
        for _ in 0..20 {
            for id in &ids {
                self.turn(*id);
            }
        }
    }

    fn turn(&mut self, id: ServerId) {
        let now = self.now;
        let nonce = |link: LinkId, end: u8| {
            let mut nonce = Nonce::default();
            nonce[0] = end;
            nonce[1..9].copy_from_slice(&link.0.to_le_bytes());
            nonce
        };
        self.end(id).begin_turn(now);
        while let Some(input) = self.end(id).next_input() {
            self.inputs.entry(id).or_default().push(input);
        }
        self.end(id).deliver(&mut Vec::new(), &mut Vec::new(), now);
        loop {
            let link = self.link();
            let Some(PeerDial { to, channel, .. }) = self.end(id).next_dial(now, || link) else {
                break;
            };
            if self.absent.contains(&to) {
                self.end(id).unreachable(link, "nobody is there".to_owned(), now);
                continue;
            }
            let there = self.link();
            let from = address(id.0);
            self.end(to).accept(there, channel, from, nonce(there, 1), now);
            self.end(id).connected(link, nonce(link, 0), now);
            self.pipes.insert((id, link), Pipe { other: Some((to, there)), ..Pipe::default() });
            self.pipes.insert((to, there), Pipe { other: Some((id, link)), ..Pipe::default() });
        }
        while let Some(link) = self.end(id).next_to_flush() {
            self.flush(id, link);
        }
        let mine: Vec<LinkId> =
            self.pipes.keys().filter(|(at, _)| *at == id).map(|(_, link)| *link).collect();
        for link in mine {
            self.attend(id, link);
        }
        let notes = self.end(id).take_notes();
        self.notes.extend(notes);
    }

    fn flush(&mut self, id: ServerId, link: LinkId) {
        let now = self.now;
        if self.stuck.contains(&link) {
            self.end(id).block(link);
            return;
        }
        let bytes = self.end(id).output(link).to_vec();
        if bytes.is_empty() {
            return;
        }
        self.end(id).sent(link, bytes.len(), now);
        match self.pipes.get(&(id, link)).and_then(|pipe| pipe.other) {
            Some(other) => {
                if let Some(pipe) = self.pipes.get_mut(&other) {
                    pipe.buffer.extend(bytes);
                }
            }
            None => self.received.entry(link).or_default().extend(bytes),
        }
    }

    fn attend(&mut self, id: ServerId, link: LinkId) {
        let (now, interest) = (self.now, self.end(id).interest(link));
        match interest {
            Interest::Read => {
                let Some(pipe) = self.pipes.get_mut(&(id, link)) else { return };
                let (bytes, ended) = (std::mem::take(&mut pipe.buffer), pipe.ended);
                if !bytes.is_empty() {
                    self.end(id).receive(link, &bytes, now);
                } else if ended {
                    self.end(id).receive_end(link, now);
                }
            }
            Interest::Wait => {}
            Interest::Shutdown | Interest::Close => {
                self.flush(id, link);
                let pipe = self.pipes.remove(&(id, link)).unwrap_or_default();
                if let Some(other) = pipe.other.and_then(|other| self.pipes.get_mut(&other)) {
                    other.ended = true;
                }
                self.end(id).forget(link, now);
            }
        }
    }

    /// Opens a connection to a server from this host, without being a server.
    fn connect(&mut self, to: ServerId, channel: Channel, host: u64) -> LinkId {
        let (link, now) = (self.link(), self.now);
        self.end(to).accept(link, channel, address(host), [7; 16], now);
        self.pipes.insert((to, link), Pipe::default());
        link
    }

    /// Opens a connection, and sends a greeting in the name of a server.
    fn greet(&mut self, to: ServerId, channel: Channel, from: u64, host: u64) -> LinkId {
        let link = self.connect(to, channel, host);
        self.write(to, link, &greeting(channel, ServerId(from), to));
        self.run();
        link
    }

    fn write(&mut self, to: ServerId, link: LinkId, bytes: &[u8]) {
        if let Some(pipe) = self.pipes.get_mut(&(to, link)) {
            pipe.buffer.extend(bytes);
        }
        self.run();
    }

    fn is_closed(&self, at: ServerId, link: LinkId) -> bool {
        !self.pipes.contains_key(&(at, link))
    }

    fn take(&mut self, id: ServerId) -> Vec<Input> {
        self.run();
        self.inputs.remove(&id).unwrap_or_default()
    }

    /// The two ends of a link that the first server dials.
    fn linked(&mut self) -> [LinkId; 2] {
        self.order(ONE, PeerCommand::Dial(TWO));
        let up = |inputs: Vec<Input>, peer, dialled| match inputs[..] {
            [Input::Peer(link, PeerEvent::Up { peer: p, dialled: d })] => {
                assert_eq!((p, d), (peer, dialled));
                link
            }
            _ => panic!("{inputs:?}"),
        };
        [up(self.take(ONE), TWO, true), up(self.take(TWO), ONE, false)]
    }

    /// Why connections were rejected, in the order of their ends.
    fn rejected(&mut self) -> Vec<PeerCloseReason> {
        let why = |note| match note {
            PeerNote::Rejected { why, .. } => Some(why),
            PeerNote::Up { .. } | PeerNote::Down { .. } | PeerNote::DialFailed { .. } => None,
        };
        std::mem::take(&mut self.notes).into_iter().filter_map(why).collect()
    }
}

fn address(host: u64) -> SocketAddr {
    let host = u8::try_from(host).expect("a byte");
    SocketAddr::from(([10, 0, 0, host], 5_000))
}

fn greeting(channel: Channel, from: ServerId, to: ServerId) -> Vec<u8> {
    let local = Local { id: from, ensemble: 0, secrets: Secrets::default(), demands_secret: false };
    Dialling::begin(local, channel, to, [0; 16]).1
}

fn notification(round: u64) -> Notification {
    let vote = Vote { epoch: Epoch(1), zxid: Zxid(2), candidate: ONE };
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
    FromLeader::Proposal(Entry { zxid: Zxid(counter), bytes }).into()
}

fn sync(request: u64) -> PeerMessage {
    FromLearner::Sync { conn: ConnId(1), request }.into()
}

fn ack() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&FromLearner::Ack { zxid: Zxid(5) }, &mut bytes);
    bytes
}

fn down(link: LinkId) -> Input {
    Input::Peer(link, PeerEvent::Down)
}

#[test]
fn messages_arrive_in_order_in_both_directions() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    let sent: Vec<PeerMessage> = (0..300).map(|number| proposal(number, 10_000)).collect();
    for message in &sent {
        net.order(TWO, PeerCommand::Send(there, message.clone()));
    }
    net.order(ONE, PeerCommand::Send(here, sync(7)));
    let message = |message: &PeerMessage| Input::Peer(here, PeerEvent::Message(message.clone()));
    let mut expected = vec![Input::Peer(here, PeerEvent::Drained)];
    expected.extend(sent.iter().map(message));
    assert_eq!(net.take(ONE), expected);
    let [drained, synced] = [PeerEvent::Drained, PeerEvent::Message(sync(7))];
    let mut at_two = net.take(TWO);
    at_two.sort_by_key(|input| matches!(input, Input::Peer(_, PeerEvent::Message(_))));
    assert_eq!(at_two, [Input::Peer(there, drained), Input::Peer(there, synced)]);
}

#[test]
fn close_lets_queued_messages_leave_and_each_core_gets_one_down() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    net.order(TWO, PeerCommand::Send(there, proposal(1, 1 << 20)));
    net.order(TWO, PeerCommand::Close(there, LinkCloseReason::Unwanted));
    net.order(TWO, PeerCommand::Close(there, LinkCloseReason::Unwanted));
    net.order(TWO, PeerCommand::Send(there, proposal(2, 1)));
    assert_eq!(net.take(TWO), [down(there)]);
    let message = Input::Peer(here, PeerEvent::Message(proposal(1, 1 << 20)));
    assert_eq!(net.take(ONE), [message, down(here)]);
    assert!(net.pipes.is_empty() && net.ends.values().all(|end| end.conns.is_empty()));
    let [later, _] = net.linked();
    assert!(later > here);
}

#[test]
fn pause_before_a_dial_grows_until_the_server_connects() {
    let mut net = Net::new(&options(None));
    net.absent.insert(TWO);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let began = net.now;
        net.order(ONE, PeerCommand::Dial(TWO));
        while net.take(ONE).is_empty() {
            net.pass(10);
        }
        waits.push(net.now.since(began).as_millis());
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 320, 640, 1000]);
    let (_, why) = net.end(ONE).failure(TWO).expect("it was not reached").clone();
    assert_eq!(why.to_string(), "nobody is there");
    // The next pause would be a second, but a message of the other server ends it.
    net.absent.clear();
    net.order(ONE, PeerCommand::Dial(TWO));
    net.notify(TWO, ONE, 5);
    let inputs = net.take(ONE);
    assert_eq!(inputs[0], Input::Election(TWO, notification(5)));
    assert!(matches!(inputs[1], Input::Peer(_, PeerEvent::Up { dialled: true, .. })));
    assert!(net.end(ONE).failure(TWO).is_none() && net.end(ONE).is_heard(TWO));
}

#[test]
fn only_the_newest_notification_waits_for_a_connection() {
    let mut net = Net::new(&options(None));
    net.absent.insert(TWO);
    (1..=3).for_each(|round| net.notify(ONE, TWO, round));
    net.pass(50);
    net.notify(ONE, TWO, 4);
    net.absent.clear();
    net.pass(200);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(4))]);
    // The socket takes no output: after 5 s the newest notification replaces the queued one, on
    // another connection.
    let link = net.end(ONE).peers[&TWO].sender.expect("it is connected");
    net.stuck.insert(link);
    net.notify(ONE, TWO, 5);
    net.run();
    net.notify(ONE, TWO, 6);
    net.notify(ONE, TWO, 7);
    net.pass(6_000);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(7))]);
}

#[test]
fn notification_that_has_not_left_is_sent_again_unless_a_newer_one_waits() {
    let mut net = Net::new(&options(None));
    net.notify(ONE, TWO, 1);
    assert_eq!(net.take(TWO).len(), 1);
    let link = net.end(ONE).peers[&TWO].sender.expect("it is connected");
    net.stuck.insert(link);
    net.notify(ONE, TWO, 2);
    net.run();
    let now = net.now;
    net.end(ONE).receive_end(link, now);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(2))]);
}

#[test]
fn notifications_beyond_a_burst_wait_and_the_newest_of_them_counts() {
    let mut net = Net::new(&options(None));
    let link = net.greet(TWO, Channel::Election, 1, 1);
    for round in 1..=200 {
        let mut bytes = Vec::new();
        frame::encode(&notification(round), &mut bytes);
        net.write(TWO, link, &bytes);
    }
    let inputs = net.take(TWO);
    assert_eq!(inputs.len(), 51, "a burst of 50, and one that empties the bucket's debt");
    net.pass(20);
    let last = net.take(TWO);
    assert_eq!(last, [Input::Election(ONE, notification(200))]);
    assert!(net.end(TWO).next_deadline().is_none_or(|due| due > net.now));
}

#[test]
fn connections_without_a_valid_greeting_are_closed_with_the_reason() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    for channel in [Channel::Quorum, Channel::Election] {
        for (from, to) in [(1, 3), (7, 2), (2, 2)] {
            let link = net.connect(TWO, channel, 9);
            net.write(TWO, link, &greeting(channel, ServerId(from), ServerId(to)));
            assert!(net.is_closed(TWO, link), "{from} {to}");
            assert_eq!(net.received[&link].len(), 63, "it is told why");
        }
        let garbage = net.connect(TWO, channel, 9);
        net.write(TWO, garbage, &[b'x'; 100]);
        assert!(net.is_closed(TWO, garbage));
        let silent = net.connect(TWO, channel, 9);
        net.pass(2_990);
        assert!(!net.is_closed(TWO, silent));
        net.pass(20);
        assert!(net.is_closed(TWO, silent));
        let probe = net.connect(TWO, channel, 9);
        net.pipes.get_mut(&(TWO, probe)).expect("it is open").ended = true;
        net.run();
        assert!(net.is_closed(TWO, probe));
        let kinds: Vec<&str> = net.rejected().iter().map(PeerCloseReason::kind).collect();
        assert_eq!(kinds[3..], ["malformed", "silent"], "{kinds:?}");
    }
    let confused = net.connect(TWO, Channel::Quorum, 9);
    net.write(TWO, confused, &greeting(Channel::Election, ONE, TWO));
    assert!(net.is_closed(TWO, confused));
    let garbage = net.greet(TWO, Channel::Election, 1, 9);
    net.write(TWO, garbage, &[0xff; 100]);
    assert!(net.is_closed(TWO, garbage));
    net.order(ONE, PeerCommand::Send(here, sync(1)));
    assert_eq!(net.take(TWO), [Input::Peer(there, PeerEvent::Message(sync(1)))]);
}

#[test]
fn oldest_connection_without_a_greeting_is_closed_and_a_server_is_accepted() {
    let mut net = Net::new(&options(None));
    let silent: Vec<LinkId> = (0..100).map(|_| net.connect(TWO, Channel::Quorum, 9)).collect();
    net.run();
    let open = silent.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(open, UNGREETED_MAX);
    assert!(net.is_closed(TWO, silent[0]) && !net.is_closed(TWO, silent[99]));
    net.linked();
}

#[test]
fn active_link_is_kept_and_a_silent_or_closed_one_is_replaced() {
    let mut net = Net::new(&options(None));
    // A link is silent after half of the sync limit of 5 s.
    let old = net.greet(TWO, Channel::Quorum, 1, 1);
    let up = |link| Input::Peer(link, PeerEvent::Up { peer: ONE, dialled: false });
    assert_eq!(net.take(TWO), [up(old)]);
    net.pass(2_000);
    net.write(TWO, old, &ack());
    assert_eq!(net.take(TWO).len(), 1);
    let refused = net.greet(TWO, Channel::Quorum, 1, 9);
    let later = net.greet(TWO, Channel::Quorum, 1, 1);
    net.pass(2_490);
    assert_eq!(net.take(TWO), []);
    net.pass(20);
    let inputs = net.take(TWO);
    assert_eq!(inputs[..2], [down(old), up(refused)], "whoever came first has the place");
    net.pass(3_000);
    assert!(net.is_closed(TWO, later));
    net.take(TWO);
    // When the link closes, its place is free at once.
    let waits = net.greet(TWO, Channel::Quorum, 1, 1);
    net.write(TWO, refused, &[0xff; 100]);
    assert_eq!(net.take(TWO), [down(refused), up(waits)]);
}

#[test]
fn too_frequent_connections_are_refused_without_the_core() {
    let mut net = Net::new(&options(None));
    let stands = net.greet(TWO, Channel::Quorum, 1, 1);
    net.take(TWO);
    let many: Vec<LinkId> = (0..100).map(|_| net.greet(TWO, Channel::Quorum, 1, 1)).collect();
    let waiting = many.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(waiting, QUEUED_MAX);
    assert_eq!(net.take(TWO), []);
    let busy = net.rejected();
    assert_eq!(busy.len(), 96);
    assert!(
        busy.iter()
            .all(|why| *why == PeerCloseReason::Refused(crate::peer::greeting::Refusal::Busy(ONE)))
    );
    assert!(!net.is_closed(TWO, stands));
}

#[test]
fn notification_connections_are_bounded_and_a_silent_one_is_closed_first() {
    let mut net = Net::new(&options(None));
    let links: Vec<LinkId> = (0..4).map(|_| net.greet(TWO, Channel::Election, 1, 1)).collect();
    let mut bytes = Vec::new();
    frame::encode(&notification(1), &mut bytes);
    net.write(TWO, links[0], &bytes);
    net.greet(TWO, Channel::Election, 1, 1);
    let open = links.iter().map(|link| !net.is_closed(TWO, *link)).collect::<Vec<_>>();
    assert_eq!(open, [true, false, true, true]);
}

#[test]
fn long_frames_are_read_only_on_links_on_which_the_core_has_sent() {
    // The first byte of the content is the type of the message: a request of a client, or a
    // proposal, which no learner sends.
    for (content, taken, read) in [(6, true, true), (6, false, false), (3, true, false)] {
        let mut net = Net::new(&options(None));
        let link = net.greet(TWO, Channel::Quorum, 1, 1);
        net.take(TWO);
        if taken {
            let commit = FromLeader::Commit { zxid: Zxid(1) }.into();
            net.order(TWO, PeerCommand::Send(link, commit));
            net.run();
        }
        let head = [&(5_u32 << 20).to_le_bytes()[..], &[0; 4], &[content; 9]].concat();
        net.write(TWO, link, &head);
        assert_eq!(!net.is_closed(TWO, link), read, "{content} {taken}");
    }
}

#[test]
fn unfinished_message_closes_its_link() {
    let mut net = Net::new(&options(None));
    let link = net.greet(TWO, Channel::Quorum, 1, 1);
    let other = net.greet(TWO, Channel::Election, 1, 1);
    net.take(TWO);
    net.write(TWO, other, &[9]);
    let bytes = ack();
    // More bytes of the same message do not prolong its time.
    for byte in &bytes[..bytes.len() - 1] {
        net.write(TWO, link, &[*byte]);
        net.pass(300);
    }
    net.pass(5_000 - 300 * (bytes.len() as u64 - 1) - 10);
    assert_eq!(net.take(TWO), []);
    net.pass(20);
    assert_eq!(net.take(TWO), [down(link)]);
    assert!(net.is_closed(TWO, other));
}

#[test]
fn link_with_too_much_untaken_output_is_closed() {
    let mut options = options(None);
    options.output_bytes = 100_000;
    let mut net = Net::new(&options);
    let [_, there] = net.linked();
    net.stuck.insert(there);
    for number in 0..20 {
        net.order(TWO, PeerCommand::Send(there, proposal(number, 10_000)));
        let bound = options.output_bytes + 10_100;
        assert!(net.end(TWO).output(there).len() <= bound);
    }
    assert_eq!(net.take(TWO), [down(there)]);
}

#[test]
fn servers_are_not_read_while_too_many_inputs_wait() {
    let mut options = options(None);
    options.inputs = 10;
    let mut net = Net::new(&options);
    let link = net.greet(TWO, Channel::Quorum, 1, 1);
    net.take(TWO);
    let now = net.now;
    for _ in 0..10 {
        assert_eq!(net.end(TWO).interest(link), Interest::Read);
        net.end(TWO).receive(link, &ack(), now);
    }
    assert_eq!(net.end(TWO).interest(link), Interest::Wait);
    while net.end(TWO).next_changed().is_some() {}
    while net.end(TWO).next_input().is_some() {}
    net.end(TWO).deliver(&mut Vec::new(), &mut Vec::new(), now);
    assert_eq!(net.end(TWO).next_changed(), Some(link));
    assert_eq!(net.end(TWO).interest(link), Interest::Read);
}

#[test]
fn proof_of_the_secret_replaces_links_at_once_and_is_demanded() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    let [here, there] = net.linked();
    let refused = net.greet(TWO, Channel::Quorum, 1, 1);
    assert!(net.is_closed(TWO, refused));
    net.order(ONE, PeerCommand::Dial(TWO));
    let [two, one] = [net.take(TWO), net.take(ONE)];
    assert!(
        matches!(two[..], [Input::Peer(a, PeerEvent::Down), Input::Peer(_, PeerEvent::Up { .. })] if a == there)
    );
    assert!(one.contains(&down(here)));
}

#[test]
fn first_notification_follows_the_proof_of_the_secret() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    net.notify(ONE, TWO, 1);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(1))]);
}

#[test]
fn connection_without_its_proof_counts_as_ungreeted() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    let secrets = Secrets::parse("a secret that only tests would use").expect("a secret");
    let local = Local { id: ONE, ensemble: 0, secrets, demands_secret: true };
    let greeting = Dialling::begin(local, Channel::Quorum, TWO, [0; 16]).1;
    let links: Vec<LinkId> = (0..100)
        .map(|_| {
            let link = net.connect(TWO, Channel::Quorum, 9);
            net.write(TWO, link, &greeting);
            link
        })
        .collect();
    let open = links.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(open, UNGREETED_MAX);
}

#[test]
fn link_placed_in_a_turn_is_not_closed_in_the_same_turn() {
    let mut net = Net::new(&options(None));
    let silent = net.greet(TWO, Channel::Quorum, 1, 1);
    // An invalid message follows the greeting.
    let bad = net.connect(TWO, Channel::Quorum, 9);
    let bytes = [greeting(Channel::Quorum, ONE, TWO), vec![0xff; 100]].concat();
    net.write(TWO, bad, &bytes);
    let good = net.greet(TWO, Channel::Quorum, 1, 1);
    net.pass(2_600);
    let inputs = net.take(TWO);
    assert!(net.is_closed(TWO, silent) && net.is_closed(TWO, bad));
    assert!(!net.is_closed(TWO, good), "{inputs:?}");
}

#[test]
fn messages_after_a_greeting_wait_while_too_many_inputs_are_queued() {
    let mut options = options(None);
    options.inputs = 3;
    let mut net = Net::new(&options);
    let now = net.now;
    for _ in 0..3 {
        net.end(TWO).push(Input::Election(ONE, notification(1)));
    }
    let link = net.connect(TWO, Channel::Quorum, 1);
    let bytes = [greeting(Channel::Quorum, ONE, TWO), ack(), ack(), ack()].concat();
    net.end(TWO).receive(link, &bytes, now);
    assert_eq!(net.end(TWO).waiting(), 4, "the link is up");
    while net.end(TWO).next_input().is_some() {}
    net.end(TWO).deliver(&mut Vec::new(), &mut Vec::new(), now);
    assert_eq!(net.end(TWO).waiting(), 3);
}
