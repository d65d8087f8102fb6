//! Connections with other servers: bytes in, inputs for the core out; messages of the core in,
//! bytes out.
//!
//! Owns greetings, frames, the bounds on them, the pauses between attempts to dial, and who is
//! accepted in whose name. Must not decide when a link begins or ends otherwise: the core does.
//! Must not see a socket.
//!
//! ```text
//! Quorum    a link: learner <-> leader, both ways           dialled where the core orders it
//! Election  notifications, one way, only the newest         dialled by whoever has one to send
//! ```
//!
//! Invariants: messages leave in the order in which they were queued and reach the core in the
//! order of their bytes; a link begins with `Up` and ends with one `Down`, after which the core
//! gets nothing of it.

mod admission;
mod backoff;
mod close;
mod conn;
mod end;
mod greet;
mod note;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::clients::Interest;
use super::unfinished::Unfinished;
use crate::config::Config;
use crate::ids::{Instant, LinkId, ServerId};
use crate::io::{Input, PeerCommand, PeerEvent};
use crate::peer::Notification;
use crate::peer::frame::{BadFrame, Bounds, Writer};
use crate::peer::greeting::{Channel, Dialling, Local, Nonce};
use crate::peer::secret::Secrets;
use admission::Admission;
use backoff::Backoff;
pub use close::PeerCloseReason;
use conn::{PeerConn, Phase};
pub use note::{PeerLine, PeerNote};

/// Connections that have not greeted yet, on both ports together; beyond, the oldest is closed.
const UNGREETED_MAX: usize = 64;

/// Time for a greeting, and for the proof that follows it.
const GREETING_TIME: Duration = Duration::from_secs(3);

/// Connections in the name of one server that wait until its link is silent or gone.
const QUEUED_MAX: usize = 4;

/// Connections on which one server, or whoever takes its name, may send notifications. An honest
/// one has one at a time, or two where the first is broken and this end does not know.
const LISTENERS_MAX: usize = 4;

/// Longest message of a learner, unless requests of clients may be longer: the sessions that some
/// hundred thousand clients have touched since the last ping.
const LEARNER_BYTES: usize = 8 << 20;

/// What the driver is told of the ensemble, beside what the core's configuration says.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// `cnxTimeout`: time for the answer to a greeting, to which 3 s are added, and for a
    /// notification to leave. Default 5 s.
    pub connect_timeout: Duration,
    /// [`Server::ensemble_id`](crate::Server::ensemble_id) as the process begins; 0 where it is not
    /// known.
    pub ensemble: u64,
    /// `quorum.secretFile`: what this server proves itself with, and demands a proof of where there
    /// is any.
    pub secrets: Secrets,
    /// `quorum.secretRequired`: are servers without a secret refused?
    pub demands_secret: bool,
    /// Bytes of output that a server has not taken, above which its link is closed: it is alive, as
    /// the core hears from it, and hopelessly behind. A new link brings what it lacks from the
    /// disk. Default 256 MiB.
    pub output_bytes: usize,
    /// Inputs of other servers that wait, above which their connections are not read: clients have
    /// their windows, servers have this. Default 8,192.
    pub inputs: usize,
    /// `jute.maxbuffer`, bytes: a learner's requests may be twice as long, or 8 MiB.
    pub max_frame: u32,
}

/// All connections with other servers.
#[derive(Debug)]
pub struct Peers {
    config: Arc<Config>,
    options: PeerOptions,
    /// What this server says of itself in greetings.
    local: Local,
    /// The servers that the core has dialled, and those in whose name somebody has connected.
    peers: BTreeMap<ServerId, Peer>,
    conns: BTreeMap<LinkId, PeerConn>,
    /// Connected, and not greeted or refused, oldest first.
    ungreeted: VecDeque<LinkId>,
    inputs: VecDeque<Input>,
    /// Are established connections read?
    reads: bool,
    /// Have output to be offered to their sockets.
    due: VecDeque<LinkId>,
    changed: Vec<LinkId>,
    notes: Vec<PeerNote>,
}

/// Another server.
#[derive(Debug, Default)]
struct Peer {
    /// Before its quorum port is dialled.
    link_backoff: Backoff,
    /// Before its election port is dialled.
    election_backoff: Backoff,
    /// Links that the core has ordered and that are not dialled yet.
    dials: usize,
    /// The notification that it is to be sent next.
    newest: Option<Notification>,
    /// The connection on which it is sent notifications, from when it is dialled.
    sender: Option<LinkId>,
    /// The connections on which it sends notifications, oldest first.
    listeners: Vec<LinkId>,
    admission: Admission,
    /// Connections in its name that wait for a place.
    queued: Vec<LinkId>,
    /// Why the last attempt to dial it has failed, if it has.
    failure: Option<(Channel, PeerCloseReason)>,
}

/// A connection that the host is to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerDial {
    /// Its id.
    pub link: LinkId,
    /// To whom.
    pub to: ServerId,
    /// To which of its ports.
    pub channel: Channel,
}

impl PeerOptions {
    /// The defaults, for a server without a secret.
    pub fn new(max_frame: u32) -> PeerOptions {
        PeerOptions {
            connect_timeout: Duration::from_secs(5),
            ensemble: 0,
            secrets: Secrets::default(),
            demands_secret: false,
            output_bytes: 256 << 20,
            inputs: 8192,
            max_frame,
        }
    }
}

impl Peers {
    pub(super) fn new(config: Arc<Config>, options: PeerOptions) -> Peers {
        let (secrets, demands_secret) = (options.secrets.clone(), options.demands_secret);
        Peers {
            local: Local { id: config.id(), ensemble: options.ensemble, secrets, demands_secret },
            config,
            options,
            peers: BTreeMap::new(),
            conns: BTreeMap::new(),
            ungreeted: VecDeque::new(),
            inputs: VecDeque::new(),
            reads: true,
            due: VecDeque::new(),
            changed: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Somebody has connected to the port of this channel, from this address. `link` is not the id
    /// of another connection, ever; nobody can guess `nonce`.
    pub fn accept(
        &mut self,
        link: LinkId,
        channel: Channel,
        from: SocketAddr,
        nonce: Nonce,
        now: Instant,
    ) {
        if self.ungreeted.len() >= UNGREETED_MAX
            && let Some(oldest) = self.ungreeted.pop_front()
        {
            self.close(oldest, PeerCloseReason::TooManyUngreeted, now);
        }
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let deadline = Some(now.after(GREETING_TIME));
        let new = PeerConn::new(channel, Phase::Accepted, self.unfinished(), now);
        self.conns.insert(link, PeerConn { from: Some(from), nonce, deadline, ..new });
        self.ungreeted.push_back(link);
    }

    /// The next connection that the host is to open; it gets its id from `link`. Answered with
    /// [`Peers::connected`] or [`Peers::unreachable`].
    pub fn next_dial(&mut self, now: Instant, link: impl FnOnce() -> LinkId) -> Option<PeerDial> {
        let due = self.peers.iter().find_map(|(to, peer)| {
            let (channel, backoff) = peer.next_dial()?;
            backoff.is_over(now).then_some((*to, channel))
        });
        let (to, channel) = due?;
        let (link, peer) = (link(), self.peers.entry(to).or_default());
        match channel {
            Channel::Quorum => peer.dials -= 1,
            Channel::Election => peer.sender = Some(link),
        }
        let new = PeerConn::new(channel, Phase::Dialling, self.unfinished(), now);
        self.conns.insert(link, PeerConn { peer: Some(to), ..new });
        Some(PeerDial { link, to, channel })
    }

    /// The connection is open. Nobody can guess `nonce`.
    pub fn connected(&mut self, link: LinkId, nonce: Nonce, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let Some(to) = conn.peer else { return };
        let (dialling, greeting) = Dialling::begin(self.local.clone(), conn.channel, to, nonce);
        conn.phase = Phase::Answer(Box::new(dialling));
        // Whoever answers may wait for the end of an older link.
        conn.deadline = Some(now.after(self.options.connect_timeout + GREETING_TIME));
        self.queue(link, |_, out| out.extend_from_slice(&greeting));
        self.changed.push(link);
    }

    /// The connection could not be opened, for this reason. Its id is forgotten.
    pub fn unreachable(&mut self, link: LinkId, why: String, now: Instant) {
        self.close(link, PeerCloseReason::Unreachable(why), now);
        self.conns.remove(&link);
    }

    /// What is worth telling since the last call.
    pub fn take_notes(&mut self) -> Vec<PeerNote> {
        std::mem::take(&mut self.notes)
    }

    /// Its connections, for dumps.
    pub fn lines(&self) -> Vec<PeerLine> {
        let line = |(link, conn): (&LinkId, &PeerConn)| PeerLine {
            link: *link,
            channel: conn.channel,
            peer: conn.peer.filter(|_| conn.is_open() || conn.is_dialled()),
            dialled: conn.is_dialled(),
            established: conn.is_open(),
            output_bytes: conn.output.len(),
            unread_bytes: conn.buffer.len(),
        };
        self.conns.iter().map(line).collect()
    }

    /// Inputs that wait for the core.
    pub fn waiting(&self) -> usize {
        self.inputs.len()
    }

    /// Why the last attempt to reach a server has failed, if it has, and on which of its ports.
    pub fn failure(&self, server: ServerId) -> Option<&(Channel, PeerCloseReason)> {
        self.peers.get(&server).and_then(|peer| peer.failure.as_ref())
    }

    /// Has this server connected to send notifications?
    pub fn is_heard(&self, server: ServerId) -> bool {
        self.peers.get(&server).is_some_and(|peer| !peer.listeners.is_empty())
    }

    /// A connection for which the host may have to do something else than before.
    pub(super) fn next_changed(&mut self) -> Option<LinkId> {
        self.changed.pop()
    }

    pub(super) fn interest(&self, link: LinkId) -> Interest {
        let Some(conn) = self.conns.get(&link) else { return Interest::Close };
        match conn.phase {
            Phase::Closed { graceful: true } => Interest::Shutdown,
            Phase::Closed { graceful: false } => Interest::Close,
            Phase::Accepted | Phase::Answer(_) | Phase::Proof(_) => Interest::Read,
            Phase::Dialling | Phase::Queued(..) => Interest::Wait,
            // Nothing comes but its end, which is no input.
            Phase::Open if conn.sends_notifications() => Interest::Read,
            Phase::Open if self.reads && conn.paused_until.is_none() => Interest::Read,
            Phase::Open => Interest::Wait,
        }
    }

    pub(super) fn receive(&mut self, link: LinkId, bytes: &[u8], now: Instant) {
        if let Some(conn) = self.conns.get_mut(&link) {
            conn.buffer.extend_from_slice(bytes);
            self.read(link, now);
        }
    }

    pub(super) fn receive_end(&mut self, link: LinkId, now: Instant) {
        if let Some(conn) = self.conns.get(&link) {
            self.close(link, conn.end(), now);
        }
    }

    pub(super) fn fail(&mut self, link: LinkId, why: String, now: Instant) {
        let conn = self.conns.get(&link).filter(|conn| matches!(conn.phase, Phase::Proof(_)));
        let why = conn.map_or(PeerCloseReason::Broken(why), PeerConn::end);
        self.close(link, why, now);
    }

    pub(super) fn forget(&mut self, link: LinkId, now: Instant) {
        // The host may have ended it of itself.
        self.close(link, PeerCloseReason::Broken("its socket is closed".to_owned()), now);
        self.conns.remove(&link);
        self.ungreeted.retain(|other| *other != link);
    }

    pub(super) fn next_to_flush(&mut self) -> Option<LinkId> {
        loop {
            let link = self.due.pop_front()?;
            if let Some(conn) = self.conns.get_mut(&link) {
                conn.due = false;
                return Some(link);
            }
        }
    }

    pub(super) fn output(&self, link: LinkId) -> &[u8] {
        self.conns.get(&link).map_or(&[], |conn| conn.output.next())
    }

    pub(super) fn sent(&mut self, link: LinkId, bytes: usize, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.output.leave(bytes);
        if !conn.output.is_empty() {
            return;
        }
        conn.blocked = false;
        if conn.is_link() && conn.taken {
            self.push(Input::Peer(link, PeerEvent::Drained));
        } else if conn.sending.take().is_some() {
            conn.deadline = None;
            if let Some(peer) = conn.peer {
                self.send_newest(peer, now);
            }
        }
    }

    pub(super) fn block(&mut self, link: LinkId) -> bool {
        let conn = self.conns.get_mut(&link);
        conn.is_some_and(|conn| !std::mem::replace(&mut conn.blocked, true))
    }

    /// The core's ensemble, for greetings.
    pub(super) fn set_ensemble(&mut self, ensemble: u64) {
        self.local.ensemble = ensemble;
    }

    /// Takes what the core has for other servers.
    pub(super) fn deliver(
        &mut self,
        commands: &mut Vec<PeerCommand>,
        election: &mut Vec<(ServerId, Notification)>,
        now: Instant,
    ) {
        for (to, notification) in election.drain(..) {
            self.peers.entry(to).or_default().newest = Some(notification);
            self.send_newest(to, now);
        }
        for command in commands.drain(..) {
            match command {
                PeerCommand::Dial(to) => self.peers.entry(to).or_default().dials += 1,
                PeerCommand::Send(link, message) => {
                    // It may be closed, and the core has not got that input yet.
                    let conn = self.conns.get_mut(&link).filter(|conn| conn.is_link());
                    let Some(conn) = conn else { continue };
                    if conn.output.len() > self.options.output_bytes {
                        let why = PeerCloseReason::Overfull(self.options.output_bytes);
                        self.close(link, why, now);
                        continue;
                    }
                    conn.taken = true;
                    self.queue(link, |writer, out| writer.encode_message(&message, out));
                }
                PeerCommand::Close(link, why) => {
                    if self.conns.get(&link).is_some_and(PeerConn::is_link) {
                        self.close(link, PeerCloseReason::ByServer(why), now);
                    }
                }
            }
        }
        if !self.reads && self.has_room() {
            self.reads = true;
            let open = self.conns.iter().filter(|(_, conn)| conn.is_open()).map(|(link, _)| *link);
            for link in open.collect::<Vec<_>>() {
                self.changed.push(link);
                self.resume(link, now);
            }
        }
    }

    /// An input for the core.
    pub(super) fn push(&mut self, input: Input) {
        if let Input::Election(from, _) = input {
            self.heard(from);
        }
        self.inputs.push_back(input);
        self.reads &= self.has_room();
    }

    /// May more inputs wait?
    fn has_room(&self) -> bool {
        self.inputs.len() < self.options.inputs
    }

    pub(super) fn next_input(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.inputs.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let conns = self.conns.values().filter_map(PeerConn::due_at);
        let dials = self.peers.values().filter_map(Peer::next_dial);
        conns.chain(dials.map(|(_, backoff)| backoff.until().unwrap_or_default())).min()
    }

    /// Does what is due at this time.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        let is_due = |conn: &PeerConn| conn.due_at().is_some_and(|due| due <= now);
        let due = self.conns.iter().filter(|(_, conn)| is_due(conn)).map(|(link, _)| *link);
        for link in due.collect::<Vec<_>>() {
            // What was done for another one may have changed it.
            let conn = self.conns.get_mut(&link).filter(|conn| is_due(conn));
            let Some(conn) = conn else { continue };
            let sync_limit = self.config.sync_limit();
            match conn.phase {
                Phase::Accepted | Phase::Proof(_) => self.close(link, PeerCloseReason::Silent, now),
                Phase::Answer(_) => self.close(link, PeerCloseReason::Unanswered, now),
                Phase::Queued(..) => self.try_place(link, now),
                Phase::Open if conn.sending.is_some() => {
                    let why = PeerCloseReason::Untaken(self.options.connect_timeout);
                    self.close(link, why, now);
                }
                Phase::Open if conn.paused_until.take().is_some() => {
                    self.changed.push(link);
                    self.read(link, now);
                }
                // Its end may have come, and not been read.
                Phase::Open if !self.reads => {}
                Phase::Open => self.close(link, PeerCloseReason::Unfinished(sync_limit), now),
                Phase::Dialling | Phase::Closed { .. } => conn.deadline = None,
            }
        }
    }

    /// Takes what has come, as far as it is whole.
    fn read(&mut self, link: LinkId, now: Instant) {
        loop {
            let Some(conn) = self.conns.get_mut(&link) else { return };
            let goes_on = match &conn.phase {
                Phase::Accepted | Phase::Answer(_) | Phase::Proof(_) => self.greet(link, now),
                Phase::Open => return self.read_open(link, now),
                Phase::Dialling | Phase::Queued(..) => return,
                Phase::Closed { .. } => return conn.buffer.clear(),
            };
            if !goes_on {
                return;
            }
        }
    }

    fn read_open(&mut self, link: LinkId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let Some(from) = conn.peer else { return };
        let dialled = conn.is_dialled();
        let before = conn.buffer.len();
        let read = match (conn.channel, dialled) {
            // Nothing is said to whoever sends notifications.
            (Channel::Election, true) if before > 0 => {
                return self.close(link, PeerCloseReason::ByPeer, now);
            }
            (Channel::Election, true) => Ok(()),
            (Channel::Election, false) if conn.paused_until.is_some() => return,
            (Channel::Election, false) => conn.take_newest(now).map(|newest| {
                if let Some(notification) = newest {
                    self.push(Input::Election(from, notification));
                }
            }),
            // What has come behind a greeting waits as well.
            (Channel::Quorum, _) if !self.reads => return,
            (Channel::Quorum, _) => self.read_messages(link, dialled, from),
        };
        match (read, self.conns.get_mut(&link)) {
            (Err(bad), _) => self.close(link, PeerCloseReason::Malformed(bad), now),
            (Ok(()), Some(conn)) => conn.note_read(before, now),
            (Ok(()), None) => {}
        }
    }

    /// Goes on with a connection that was not read: its messages have had no time meanwhile.
    fn resume(&mut self, link: LinkId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.unfinished.ended();
        conn.unfinished.note(conn.buffer.len(), now);
        if !conn.buffer.is_empty() {
            self.read(link, now);
        }
    }

    /// Hands all whole messages of a link to the core.
    fn read_messages(
        &mut self,
        link: LinkId,
        dialled: bool,
        from: ServerId,
    ) -> Result<(), BadFrame> {
        let requests = 2 * self.options.max_frame as usize;
        let Some(conn) = self.conns.get_mut(&link) else { return Ok(()) };
        if !dialled && conn.taken {
            conn.reader.set_bounds(Bounds::learner(requests.max(LEARNER_BYTES)));
        }
        let mut heard = false;
        while let Some(message) = conn.reader.decode_message(dialled, &mut conn.buffer)? {
            heard |= !std::mem::replace(&mut conn.heard, true);
            conn.unfinished.ended();
            self.inputs.push_back(Input::Peer(link, PeerEvent::Message(message)));
        }
        self.reads &= self.has_room();
        if heard {
            self.heard(from);
        }
        Ok(())
    }

    /// Queues the newest notification for a server, unless an earlier one is still to leave.
    fn send_newest(&mut self, to: ServerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let Some(link) = peer.sender else { return };
        let conn = self.conns.get_mut(&link).filter(|conn| conn.is_open());
        let Some(conn) = conn.filter(|conn| conn.sending.is_none()) else { return };
        let Some(notification) = peer.newest.take() else { return };
        conn.sending = Some(notification);
        conn.deadline = Some(now.after(self.options.connect_timeout));
        self.queue(link, |writer, out| writer.encode(&notification, out));
    }

    /// Queues what `encode` writes.
    fn queue(&mut self, link: LinkId, encode: impl FnOnce(&mut Writer, &mut Vec<u8>)) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        encode(&mut conn.writer, &mut conn.output.bytes);
        if !std::mem::replace(&mut conn.due, true) {
            self.due.push_back(link);
        }
    }

    fn heard(&mut self, server: ServerId) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.is_there();
        }
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished::new(self.config.sync_limit())
    }
}

impl Peer {
    /// Something has come from it: it is dialled without a pause.
    fn is_there(&mut self) {
        self.link_backoff.reset();
        self.election_backoff.reset();
    }

    /// On which channel it is to be dialled next, and after which pause.
    fn next_dial(&self) -> Option<(Channel, &Backoff)> {
        let link = (self.dials > 0).then_some((Channel::Quorum, &self.link_backoff));
        let sends = self.newest.is_some() && self.sender.is_none();
        let election = sends.then_some((Channel::Election, &self.election_backoff));
        let until = |(_, backoff): &(Channel, &Backoff)| backoff.until();
        link.into_iter().chain(election).min_by_key(until)
    }
}
