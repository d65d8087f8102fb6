//! Connections with other servers: turns received bytes into inputs of the core, and messages of
//! the core into bytes.
//!
//! Owns greetings, frames, the bounds on them, the pauses between attempts to dial, and the
//! admission of connections in the name of a server. Otherwise the core decides when a link begins
//! or ends. Must not access a socket.
//!
//! ```text
//! Quorum    a link: learner <-> leader, both ways           dialled when the core orders it
//! Election  notifications, one way, only the newest         dialled by the sender
//! ```
//!
//! Invariants: messages leave in the order in which they were queued and reach the core in the
//! order of their bytes; a link begins with `Up` and ends with one `Down`, and the core receives no
//! input of the link after it.

mod admission;
mod backoff;
mod close;
mod conn;
mod end;
mod greet;
mod note;
mod options;
#[cfg(test)]
mod tests;
mod unlisted;

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::clients::Interest;
use super::unfinished::Unfinished;
use crate::config::Config;
use crate::ids::{Instant, LinkId, ServerId};
use crate::io::{Input, PeerCommand, PeerEvent};
use crate::membership::Members;
use crate::peer::frame::{BadFrame, Bounds, Writer};
use crate::peer::greeting::{Channel, Dialling, Local, Nonce};
use crate::peer::{NotedConfigs, Notification, ServerState};
use admission::Admission;
use backoff::Pauses;
pub use close::PeerCloseReason;
pub use conn::PeerDial;
use conn::{PeerConn, Phase};
pub use note::{PeerLine, PeerNote};
pub use options::PeerOptions;

/// Open connections without a complete greeting, on both ports together; one more closes the
/// oldest.
const UNGREETED_MAX: usize = 64;

/// Time for a greeting, and for the proof that follows it.
const GREETING_TIME: Duration = Duration::from_secs(3);

/// Connections in the name of one server that wait until its link is silent or closed.
const QUEUED_MAX: usize = 4;

/// Connections on which one server, or any peer that claims its id, may send notifications. A
/// correct server has one at a time, or two while this end has not noticed that the first is
/// broken.
const LISTENERS_MAX: usize = 4;

/// Longest message of a learner, unless requests of clients may be longer: a ping with the sessions
/// that some hundred thousand clients have touched since the last one.
const LEARNER_BYTES: usize = 8 << 20;

/// All connections with other servers.
#[derive(Debug)]
pub struct Peers {
    config: Arc<Config>,
    options: PeerOptions,
    /// The members as the core knows them.
    members: Arc<Members>,
    /// The configurations that go with notifications.
    configs: Arc<NotedConfigs>,
    /// The values that this server sends in greetings.
    local: Local,
    /// The servers that the core has dialled, and those whose id a connection has claimed.
    peers: BTreeMap<ServerId, Peer>,
    conns: BTreeMap<LinkId, PeerConn>,
    /// Accepted connections without a complete greeting, or with a refusal that has not left,
    /// oldest first.
    ungreeted: VecDeque<LinkId>,
    inputs: VecDeque<Input>,
    /// Are established connections read?
    reads: bool,
    /// Connections with output to be offered to their sockets.
    due: VecDeque<LinkId>,
    changed: Vec<LinkId>,
    notes: Vec<PeerNote>,
}

/// Another server.
#[derive(Debug, Default)]
struct Peer {
    pauses: Pauses,
    /// Links that the core has ordered and that have not been dialled yet.
    dials: usize,
    /// The same at its port for observers.
    master_dials: usize,
    /// The notification to be sent next.
    newest: Option<Notification>,
    /// The connection on which this server sends it notifications, from the time of dialling.
    sender: Option<LinkId>,
    /// When an attempt to dial it was last abandoned.
    abandoned_at: Option<Instant>,
    /// The connections on which it sends notifications, oldest first.
    listeners: Vec<LinkId>,
    admission: Admission,
    /// Connections in its name that wait for its link to become silent or to close.
    queued: Vec<LinkId>,
    /// Why the last attempt to dial it has failed, if it has failed.
    failure: Option<(Channel, PeerCloseReason)>,
}

impl Peers {
    pub(super) fn new(config: Arc<Config>, options: PeerOptions) -> Peers {
        Peers {
            local: options.local(config.id()),
            members: Arc::new(config.members().clone()),
            configs: Arc::default(),
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

    /// Accepts a connection to the port of this channel, from this address. `link` must never have
    /// been used before; `nonce` must be unpredictable.
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

    /// The next connection that the host is to open, with an id from `link`. The host then calls
    /// [`Peers::connected`] or [`Peers::unreachable`].
    pub fn next_dial(&mut self, now: Instant, link: impl FnOnce() -> LinkId) -> Option<PeerDial> {
        let due = self.peers.iter().find_map(|(to, peer)| {
            let (until, channel) = peer.next_dial()?;
            until.is_none_or(|until| until <= now).then_some((*to, channel))
        });
        let (to, channel) = due?;
        let (link, peer) = (link(), self.peers.entry(to).or_default());
        let for_observers = channel == Channel::Quorum && peer.dials == 0;
        // An address may accept connections and lead to nobody who answers.
        let first = peer.pauses.failures(channel);
        match channel {
            Channel::Quorum if for_observers => peer.master_dials -= 1,
            Channel::Quorum => peer.dials -= 1,
            Channel::Election => peer.sender = Some(link),
        }
        let new = PeerConn::new(channel, Phase::Dialling, self.unfinished(), now);
        self.conns.insert(link, PeerConn { peer: Some(to), ..new });
        Some(PeerDial { link, to, channel, for_observers, first })
    }

    /// The connection is open. `nonce` must be unpredictable.
    pub fn connected(&mut self, link: LinkId, nonce: Nonce, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let Some(to) = conn.peer else { return };
        let (dialling, greeting) = Dialling::begin(self.local.clone(), conn.channel, to, nonce);
        conn.phase = Phase::Answer(Box::new(dialling));
        // The other server may delay its answer until an older link ends.
        conn.deadline = Some(now.after(self.options.connect_timeout + GREETING_TIME));
        self.queue(link, |_, out| out.extend_from_slice(&greeting));
        self.changed.push(link);
    }

    /// The connection could not be opened for this reason; its id is forgotten.
    pub fn unreachable(&mut self, link: LinkId, why: String, now: Instant) {
        self.close(link, PeerCloseReason::Unreachable(why), now);
        self.conns.remove(&link);
    }

    /// The facts to be reported since the last call.
    pub fn take_notes(&mut self) -> Vec<PeerNote> {
        std::mem::take(&mut self.notes)
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// All connections, for dumps.
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

    /// Number of inputs that wait for the core.
    pub fn waiting(&self) -> usize {
        self.inputs.len()
    }

    /// Why the last attempt to dial a server has failed, if it has failed, and on which port.
    pub fn failure(&self, server: ServerId) -> Option<&(Channel, PeerCloseReason)> {
        self.peers.get(&server).and_then(|peer| peer.failure.as_ref())
    }

    /// Is there a connection on which this server sends notifications?
    pub fn receives_notifications_from_us(&self, server: ServerId) -> bool {
        self.peers.get(&server).is_some_and(|peer| !peer.listeners.is_empty())
    }

    /// A connection whose [`Interest`] may have changed.
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
        // Applies if the host has closed the socket of its own accord.
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

    /// Sets the core's ensemble id, for greetings.
    pub(super) fn set_ensemble(&mut self, ensemble: u64) {
        self.local.ensemble = ensemble;
    }

    /// Queues the core's messages to other servers, and executes its commands.
    pub(super) fn deliver(
        &mut self,
        commands: &mut Vec<PeerCommand>,
        election: &mut Vec<(ServerId, Notification)>,
        now: Instant,
    ) {
        for (to, notification) in election.drain(..) {
            if !self.members.contains(to) {
                self.answer_unlisted(to, &notification);
                continue;
            }
            self.peers.entry(to).or_default().newest = Some(notification);
            self.send_newest(to, now);
        }
        for command in commands.drain(..) {
            match command {
                PeerCommand::Dial(to) => self.peers.entry(to).or_default().dials += 1,
                PeerCommand::DialMaster(to) => {
                    self.peers.entry(to).or_default().master_dials += 1;
                }
                PeerCommand::Send(link, message) => {
                    // The link may be closed already; the core's `Down` event is then in the queue.
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

    /// Queues an input for the core.
    pub(super) fn push(&mut self, input: Input) {
        if let Input::Election(from, notification) = &input {
            self.end_pauses(*from);
            if notification.server_state == ServerState::Looking
                && let Some(peer) = self.peers.get_mut(from)
            {
                peer.pauses.on_looking();
            }
        }
        self.inputs.push_back(input);
        self.reads &= self.has_room();
    }

    /// May more inputs be queued?
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
        conns.chain(dials.map(|(until, _)| until.unwrap_or_default())).min()
    }

    /// Executes what is due at this time.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        let is_due = |conn: &PeerConn| conn.due_at().is_some_and(|due| due <= now);
        let due = self.conns.iter().filter(|(_, conn)| is_due(conn)).map(|(link, _)| *link);
        for link in due.collect::<Vec<_>>() {
            // The handling of an earlier connection may have changed this one.
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
                // While reads are paused, the rest of the message may have arrived unread.
                Phase::Open if !self.reads => {}
                Phase::Open => self.close(link, PeerCloseReason::Unfinished(sync_limit), now),
                Phase::Dialling | Phase::Closed { .. } => conn.deadline = None,
            }
        }
    }

    /// Takes the complete messages in the buffer.
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
            (Channel::Election, _) if conn.paused_until.is_some() => return,
            // The other end answers on a connection of this server if it does not list this server.
            (Channel::Election, _) => conn.take_newest(now).map(|newest| {
                if let Some((notification, configs)) = newest {
                    if configs != NotedConfigs::default() {
                        self.push(Input::EnsembleConfig(from, configs));
                    }
                    self.push(Input::Election(from, notification));
                }
            }),
            // Messages that arrive together with a greeting wait as well.
            (Channel::Quorum, _) if !self.reads => return,
            (Channel::Quorum, _) => self.read_messages(link, dialled, from),
        };
        match (read, self.conns.get_mut(&link)) {
            (Err(bad), _) => self.close(link, PeerCloseReason::Malformed(bad), now),
            (Ok(()), Some(conn)) => conn.note_read(before, now),
            (Ok(()), None) => {}
        }
    }

    /// Reads a connection again after a pause, which must not count as time of an incomplete
    /// message.
    fn resume(&mut self, link: LinkId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        conn.unfinished.ended();
        conn.unfinished.note(conn.buffer.len(), now);
        if !conn.buffer.is_empty() {
            self.read(link, now);
        }
    }

    /// Hands all complete messages of a link to the core.
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
        let mut first = false;
        while let Some(message) = conn.reader.decode_message(dialled, &mut conn.buffer)? {
            first |= !std::mem::replace(&mut conn.heard, true);
            conn.unfinished.ended();
            self.inputs.push_back(Input::Peer(link, PeerEvent::Message(message)));
        }
        self.reads &= self.has_room();
        if first {
            self.end_pauses(from);
        }
        Ok(())
    }

    /// Queues the newest notification for a server, unless an earlier one has not left yet.
    fn send_newest(&mut self, to: ServerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let Some(link) = peer.sender else { return };
        let conn = self.conns.get_mut(&link).filter(|conn| conn.is_open());
        let Some(conn) = conn.filter(|conn| conn.sending.is_none()) else { return };
        let Some(notification) = peer.newest.take() else { return };
        conn.sending = Some(notification);
        conn.deadline = Some(now.after(self.options.connect_timeout));
        self.queue_notification(link, &notification);
    }

    /// Queues the bytes that `encode` writes.
    fn queue(&mut self, link: LinkId, encode: impl FnOnce(&mut Writer, &mut Vec<u8>)) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        encode(&mut conn.writer, &mut conn.output.bytes);
        if !std::mem::replace(&mut conn.due, true) {
            self.due.push_back(link);
        }
    }

    fn end_pauses(&mut self, server: ServerId) {
        if let Some(peer) = self.peers.get_mut(&server) {
            peer.pauses.on_message();
        }
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished::new(self.config.sync_limit())
    }
}

impl Peer {
    /// The channel to be dialled next, and when its pause ends.
    fn next_dial(&self) -> Option<(Option<Instant>, Channel)> {
        let link = (self.dials + self.master_dials > 0).then_some(Channel::Quorum);
        let sends = self.newest.is_some() && self.sender.is_none();
        let channels = link.into_iter().chain(sends.then_some(Channel::Election));
        channels
            .map(|channel| (self.pauses.until(channel), channel))
            .min_by_key(|(until, _)| *until)
    }
}
