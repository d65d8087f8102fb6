//! Servers whose sockets are pipes in memory and whose clock does not run between steps.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{ONE, TWO};
use crate::driver::peers::*;
use crate::ids::{ConnId, Epoch, Zxid};
use crate::membership::{HistoryInfo, HistoryStatus, Voters};
use crate::peer::secret::Secrets;
use crate::peer::{FromLeader, FromLearner, PeerMessage, ServerState, Vote, frame};
use crate::store::Entry;

pub(super) const TICK: Duration = Duration::from_secs(1);

/// Some servers, and sockets that only the test reads.
pub(super) struct Net {
    pub(super) ends: BTreeMap<ServerId, Peers>,
    pub(super) now: Instant,
    pub(super) next: u64,
    /// Ends of pipes: the server at the other end, if it is one, and the unread bytes.
    pub(super) pipes: BTreeMap<(ServerId, LinkId), Pipe>,
    /// Bytes that a bad peer has received.
    pub(super) received: BTreeMap<LinkId, Vec<u8>>,
    /// Dialled servers that do not exist.
    pub(super) absent: BTreeSet<ServerId>,
    /// Servers that do not answer attempts to dial them, as when their machines are off.
    pub(super) silent: BTreeSet<ServerId>,
    /// Attempts to dial such servers.
    pub(super) unanswered: Vec<LinkId>,
    /// Sockets that take nothing.
    pub(super) stuck: BTreeSet<LinkId>,
    pub(super) notes: Vec<PeerNote>,
    pub(super) inputs: BTreeMap<ServerId, Vec<Input>>,
}

#[derive(Default)]
pub(super) struct Pipe {
    pub(super) other: Option<(ServerId, LinkId)>,
    pub(super) buffer: Vec<u8>,
    pub(super) ended: bool,
}

pub(super) fn options(secret: Option<&str>) -> PeerOptions {
    let secrets = secret.map(|text| Secrets::parse(text).expect("a secret"));
    let mut options = PeerOptions::new(1 << 20);
    options.demands_secret = secrets.is_some();
    options.secrets = secrets.unwrap_or_default();
    options
}

impl Net {
    pub(super) fn new(options: &PeerOptions) -> Net {
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
            silent: BTreeSet::new(),
            unanswered: Vec::new(),
            stuck: BTreeSet::new(),
            notes: Vec::new(),
            inputs: BTreeMap::new(),
        }
    }

    pub(super) fn end(&mut self, id: ServerId) -> &mut Peers {
        self.ends.get_mut(&id).expect("it is one of them")
    }

    pub(super) fn link(&mut self) -> LinkId {
        self.next += 1;
        LinkId(self.next)
    }

    /// The core of a server asks for this.
    pub(super) fn order(&mut self, id: ServerId, command: PeerCommand) {
        let now = self.now;
        self.end(id).deliver(&mut vec![command], &mut Vec::new(), now);
    }

    pub(super) fn notify(&mut self, from: ServerId, to: ServerId, round: u64) {
        self.say(from, to, notification(round));
    }

    pub(super) fn say(&mut self, from: ServerId, to: ServerId, what: Notification) {
        let now = self.now;
        self.end(from).deliver(&mut Vec::new(), &mut vec![(to, what)], now);
    }

    /// Lets time pass in steps of 10 ms, and everything happen that is due.
    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now = self.now.after(Duration::from_millis(10));
            self.run();
        }
    }

    /// Lets everything happen that needs no time.
    pub(super) fn run(&mut self) {
        let ids: Vec<ServerId> = self.ends.keys().copied().collect();
        for _ in 0..20 {
            for id in &ids {
                self.turn(*id);
            }
        }
    }

    pub(super) fn turn(&mut self, id: ServerId) {
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
            if self.silent.contains(&to) {
                self.unanswered.push(link);
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

    pub(super) fn flush(&mut self, id: ServerId, link: LinkId) {
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

    pub(super) fn attend(&mut self, id: ServerId, link: LinkId) {
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

    /// Connects to a server without being one, from this host.
    pub(super) fn connect(&mut self, to: ServerId, channel: Channel, host: u64) -> LinkId {
        let (link, now) = (self.link(), self.now);
        self.end(to).accept(link, channel, address(host), [7; 16], now);
        self.pipes.insert((to, link), Pipe::default());
        link
    }

    /// The same, and greets in the name of a server.
    pub(super) fn greet(&mut self, to: ServerId, channel: Channel, from: u64, host: u64) -> LinkId {
        let link = self.connect(to, channel, host);
        self.write(to, link, &greeting(channel, ServerId(from), to));
        self.run();
        link
    }

    pub(super) fn write(&mut self, to: ServerId, link: LinkId, bytes: &[u8]) {
        if let Some(pipe) = self.pipes.get_mut(&(to, link)) {
            pipe.buffer.extend(bytes);
        }
        self.run();
    }

    pub(super) fn is_closed(&self, at: ServerId, link: LinkId) -> bool {
        !self.pipes.contains_key(&(at, link))
    }

    pub(super) fn take(&mut self, id: ServerId) -> Vec<Input> {
        self.run();
        self.inputs.remove(&id).unwrap_or_default()
    }

    /// A link that the first server has dialled: its two ends.
    pub(super) fn linked(&mut self) -> [LinkId; 2] {
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

    /// Why connections were refused, in the order of their ends.
    pub(super) fn rejected(&mut self) -> Vec<PeerCloseReason> {
        let why = |note| match note {
            PeerNote::Rejected { why, .. } => Some(why),
            PeerNote::Up { .. } | PeerNote::Down { .. } | PeerNote::DialFailed { .. } => None,
        };
        std::mem::take(&mut self.notes).into_iter().filter_map(why).collect()
    }
}

pub(super) fn address(host: u64) -> SocketAddr {
    let host = u8::try_from(host).expect("a byte");
    SocketAddr::from(([10, 0, 0, host], 5_000))
}

pub(super) fn greeting(channel: Channel, from: ServerId, to: ServerId) -> Vec<u8> {
    let local = PeerOptions::new(0).local(from);
    Dialling::begin(local, channel, to, [0; 16]).1
}

pub(super) fn notification(round: u64) -> Notification {
    let vote = Vote { epoch: Epoch(1), zxid: Zxid(2), candidate: ONE };
    Notification {
        server_state: ServerState::Looking,
        round,
        vote,
        history: HistoryInfo::new(HistoryStatus::Complete, Epoch(1)),
        ensemble: 0,
    }
}

pub(super) fn proposal(counter: u64, size: usize) -> PeerMessage {
    let bytes = Bytes::from(vec![counter.to_le_bytes()[0]; size]);
    FromLeader::Proposal(Entry { zxid: Zxid(counter), bytes }).into()
}

pub(super) fn sync(request: u64) -> PeerMessage {
    FromLearner::Sync { conn: ConnId(1), request }.into()
}

pub(super) fn ack() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&FromLearner::Ack { zxid: Zxid(5) }, &mut bytes);
    bytes
}

pub(super) fn down(link: LinkId) -> Input {
    Input::Peer(link, PeerEvent::Down)
}
