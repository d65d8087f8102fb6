//! The state that all parts of a world act through: time, event queue, network, records, checker.
//!
//! Owns no state of a single server or client, so that those can be borrowed separately from it.

use std::collections::BTreeMap;

use zabkeeper_client::LinkId;
use zabkeeper_core::driver::PeerDial;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::Lane;
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, Zxid};

use crate::check::checker::{Check, Checker};
use crate::check::judge::{Origin, Said};
use crate::check::observe::{ClientId, Observation};
use crate::clients::workload::KeySpace;
use crate::engine::decisions::Decisions;
use crate::engine::queue::Queue;
use crate::engine::seed::Seeds;
use crate::faults::catalog::Fault;
use crate::faults::heal::Fate;
use crate::faults::targets::Targets;
use crate::machine::fs::Crash;
use crate::network::reach::Reach;
use crate::network::stream::{Arrival, Break, Network};
use crate::record::event::RunEvent;
use crate::record::injection::{Hit, Injection};
use crate::record::recorder::Recorder;
use crate::record::sometimes::Sometimes;
use crate::record::trace::{Kind, Stamp, entries};
use crate::record::unreceived::Unreceived;
use crate::world::options::Options;

/// A future event. An event that names an `incarnation` is void once that incarnation is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum Event {
    /// Bytes or a close arrive at one end of a connection.
    Arrival(Arrival),
    /// A server's process is scheduled.
    Wake { server: ServerId, incarnation: u64 },
    /// A server's timer fires.
    Deadline { server: ServerId, incarnation: u64 },
    /// A worker thread of a server's disk has finished its job.
    LaneDone { server: ServerId, incarnation: u64, lane: Lane },
    /// A server's log may have been idle long enough to count as quiet.
    Quiet { server: ServerId, incarnation: u64 },
    /// Samples what a power failure would leave on a server's disk at this moment.
    Look { server: ServerId, incarnation: u64 },
    /// A server has finished reading its disk.
    Recovered { server: ServerId, incarnation: u64 },
    /// A server's process starts.
    Start { server: ServerId },
    /// The ensemble grows.
    Grow,
    /// An operator changes the release of a server.
    ChangeRelease { server: ServerId, to_older: bool },
    /// The oracle permits a server to go on without the other voter, or does not any more.
    Oracle { permits: bool },
    /// A server's process or machine crashes.
    Crash { server: ServerId, incarnation: u64, how: Crash },
    /// A process that is to stop ends.
    Exits { server: ServerId, incarnation: u64 },
    /// A crash during recovery; void if the world has been healed meanwhile.
    CrashInRecovery { server: ServerId, incarnation: u64, how: Crash },
    /// The end of a slow period of a server.
    Relief { server: ServerId },
    /// A client's connection attempt reaches the server.
    Dial { client: ClientId, incarnation: u64, link: LinkId, server: ServerId },
    /// The client learns the result of its connection attempt.
    Dialled {
        client: ClientId,
        incarnation: u64,
        link: LinkId,
        conn: Option<ConnId>,
        server: ServerId,
    },
    /// A server's attempt to connect to another server reaches it.
    PeerDial { from: ServerId, incarnation: u64, dial: PeerDial },
    /// The server learns the result of its attempt.
    PeerDialled { from: ServerId, incarnation: u64, dial: PeerDial, stands: bool },
    /// An election notification that travels without a connection arrives, unless a partition is
    /// in its way.
    Notified { from: ServerId, to: ServerId, what: Notification, sent: Instant },
    /// A client's timer fires.
    ClientDeadline { client: ClientId, incarnation: u64 },
    /// A client checks whether a new write succeeds.
    Probe { client: ClientId, incarnation: u64 },
    /// A client without a session begins a new one.
    SessionStart { client: ClientId, incarnation: u64 },
    /// A bad client (a client that violates the protocol) connects or disconnects.
    BadClient { conn: ConnId, server: ServerId },
    /// A bad peer (no server, no client) closes its connection to a server.
    BadPeerCloses { conn: ConnId },
    /// A byzantine peer (a peer that imitates a server) sends its next message.
    ByzantinePeerSends { conn: ConnId },
    /// A partition begins that was planned together with others.
    Parts { partition: usize },
    /// A connection breaks; void once the world has been healed.
    Breaks { conn: ConnId, how: Break },
}

/// The shared state; see the module.
#[derive(Debug)]
pub struct Shared {
    /// When the heal ended all faults.
    pub healed: Option<Instant>,
    /// Servers that the heal leaves out.
    pub outside: BTreeMap<ServerId, Fate>,
    /// The server that the oracle permits to go on without the other voter.
    pub permitted: Option<ServerId>,
    /// Virtual time.
    pub now: Instant,
    /// Future events.
    pub queue: Queue<Event>,
    /// Future decisions: faults and client calls.
    pub decisions: Decisions,
    /// Faults that are injected at marks.
    pub targets: Targets,
    /// The network: connections and the bytes in flight.
    pub net: Network,
    /// Which servers reach each other.
    pub reach: Reach,
    /// The notifications on connections that were sent before the heal and not received.
    pub unreceived: Unreceived,
    /// The record keepers.
    pub recorder: Recorder,
    /// The oracles and the first failure.
    pub checker: Checker,
    /// The newest transaction that any server has applied.
    pub newest: Zxid,
    /// The options as drawn.
    pub options: Options,
    /// The paths that clients use.
    pub keys: KeySpace,
    /// Source of the random streams for objects created during the run.
    pub seeds: Seeds,
}

impl Shared {
    /// Whether faults are still injected, which ends with the heal.
    pub fn is_faulty(&self) -> bool {
        self.healed.is_none()
    }

    /// Schedules `event` in `ns` nanoseconds.
    pub fn after(&mut self, ns: u64, event: Event) {
        self.queue.push(Instant(self.now.0.saturating_add(ns)), event);
    }

    /// Schedules `event` at `at`, or now if `at` has passed.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    /// An event of the run: all record keepers and the oracles read it.
    pub fn record(&mut self, event: &RunEvent<'_>) {
        self.recorder.record(self.now, event);
        entries(event, &mut |kind, ends, payload, text| self.note(kind, ends, payload, text));
        event.observations(&mut |what| self.observe(what));
    }

    /// Records an entry of the trace that no [`RunEvent`] makes.
    pub fn note(
        &mut self,
        kind: Kind,
        ends: (u64, u64),
        payload: &[u8],
        text: impl FnOnce() -> String,
    ) {
        let stamp = Stamp { at: self.now, kind, ends };
        if self.decisions.describes_step() && matches!(kind, Kind::Fault | Kind::Process) {
            let text = text();
            self.decisions.describe(&text);
            return self.recorder.note(stamp, payload, &self.net, || text);
        }
        self.recorder.note(stamp, payload, &self.net, text);
    }

    /// Describes the current decision, if decisions are described.
    pub fn describe(&mut self, text: impl FnOnce() -> String) {
        if self.decisions.describes_step() {
            self.decisions.describe(&text());
        }
    }

    /// A fault hits a target, until `until` if it lasts.
    pub fn hit(&mut self, fault: Fault, hit: Hit, until: Option<Instant>) {
        self.record(&RunEvent::FaultHit(Injection { at: self.now, until, fault, hit }));
    }

    /// Passes an observation to the oracles.
    pub fn observe(&mut self, what: Observation<'_>) {
        self.recorder.observe(self.now, &what);
        self.checker.observe(self.now, self.recorder.trace.events(), what);
    }

    /// Passes what a program of the user's workload says to its judge.
    pub(crate) fn hear(&mut self, client: ClientId, session: SessionId, said: &Said) {
        let origin = Origin { at: self.now, client, session };
        self.checker.hear(self.recorder.trace.events(), origin, said);
    }

    /// Counts a condition that occurred.
    pub fn saw(&mut self, some: Sometimes) {
        self.recorder.counters.saw(some);
    }

    /// Counts a check that the world itself makes, and fails the run if it does not hold.
    pub fn check(&mut self, check: Check, found: Result<(), String>) {
        self.checker.check(self.now, self.recorder.trace.events(), check, found);
    }

    /// Reports a panic in code under test.
    pub fn panicked(&mut self, who: &str, what: &str) {
        self.check(Check::PANIC, Err(format!("{who}: {what}")));
    }

    /// Schedules the arrivals that the network has produced.
    pub fn schedule_arrivals(&mut self) {
        for arrival in self.net.take_arrivals() {
            self.queue.push(arrival.at.max(self.now), Event::Arrival(arrival));
        }
    }
}
