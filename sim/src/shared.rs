//! What all parts of a world act through: the time, the queue, the network, the trace, the judge and the counters.
//!
//! Owns nothing of a server or a client. It exists so that they can be borrowed apart from it.

use std::collections::BTreeMap;

use zabkeeper_client::LinkId;
use zabkeeper_core::io::Marks;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::Lane;
use zabkeeper_core::{ConnId, Instant, ServerId, Zxid};

use crate::agenda::Agenda;
use crate::chronicle::{Chronicle, Hit, Lines, Place, Strikes};
use crate::fs::Crash;
use crate::heal::Fate;
use crate::judge::{Check, Judge};
use crate::observe::{ClientId, Observation};
use crate::options::Options;
use crate::queue::Queue;
use crate::reach::Reach;
use crate::roles::Roles;
use crate::seed::Seeds;
use crate::stream::{Arrival, Break, Network, Party};
use crate::tally::Tally;
use crate::targets::Targets;
use crate::trace::{Kind, Stamp, Trace, plain};
use crate::workload::KeySpace;

/// Something that will happen. Whatever names a life is void once that life is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum Event {
    /// Something arrives at an end of a connection.
    Arrival(Arrival),
    /// A server's process gets to run.
    Wake { server: ServerId, life: u64 },
    /// A server's deadline has come.
    Deadline { server: ServerId, life: u64 },
    /// A worker of a server's disk has finished.
    LaneDone { server: ServerId, life: u64, lane: Lane },
    /// The log of a server may have got nothing for a while.
    Quiet { server: ServerId, life: u64 },
    /// Somebody looks at what a power failure would leave on a server's disk now.
    Look { server: ServerId, life: u64 },
    /// A server has read its disk.
    Recovered { server: ServerId, life: u64 },
    /// A server's machine is switched on, or its process started.
    Start { server: ServerId },
    /// The ensemble grows.
    Grow,
    /// A server ends.
    Crash { server: ServerId, life: u64, how: Crash },
    /// The same in the midst of a recovery, unless all has been healed meanwhile.
    CrashInRecovery { server: ServerId, life: u64, how: Crash },
    /// A server is no longer slow.
    Relief { server: ServerId },
    /// A client's attempt to connect reaches the server.
    Dial { client: ClientId, life: u64, link: LinkId, server: ServerId },
    /// The client learns how it went.
    Dialled { client: ClientId, life: u64, link: LinkId, conn: Option<ConnId>, server: ServerId },
    /// A server's attempt to have a link reaches the other one.
    PeerDial { from: ServerId, life: u64, conn: ConnId, to: ServerId },
    /// The server learns how it went.
    PeerDialled { from: ServerId, life: u64, conn: ConnId, to: ServerId, stands: bool },
    /// A notification arrives, if it can.
    Notified { from: ServerId, to: ServerId, what: Notification, sent: Instant },
    /// A client's deadline has come.
    ClientDeadline { client: ClientId, life: u64 },
    /// A client sees whether a fresh write gets through.
    Probe { client: ClientId, life: u64 },
    /// A client that has lost its session gets a new one.
    Birth { client: ClientId, life: u64 },
    /// Somebody who does not keep the protocol connects, or leaves.
    Intruder { conn: ConnId, server: ServerId },
    /// Somebody who is no server gives up a connection with one.
    StrangerLeaves { conn: ConnId },
    /// One that speaks the language of servers says its next word.
    RogueSpeaks { conn: ConnId },
    /// A partition that was planned with others begins.
    Parts { partition: usize },
    /// A connection breaks, if there are still faults.
    Breaks { conn: ConnId, how: Break },
}

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// When all faults stopped.
    pub healed: Option<Instant>,
    /// Whom the heal has left out.
    pub outside: BTreeMap<ServerId, Fate>,
    /// Virtual time.
    pub now: Instant,
    /// What will happen.
    pub queue: Queue<Event>,
    /// What will happen because somebody decides it.
    pub agenda: Agenda,
    /// What strikes at marks.
    pub targets: Targets,
    /// What is under way.
    pub net: Network,
    /// Which servers reach each other.
    pub reach: Reach,
    /// Who led and followed when.
    pub roles: Roles,
    /// Which fault hit whom.
    pub strikes: Strikes,
    /// What has happened.
    pub trace: Trace,
    /// The same, collected for people.
    pub chronicle: Option<Box<Chronicle>>,
    /// The same, as lines of states.
    pub lines: Option<Box<Lines>>,
    /// Who looks at it.
    pub judge: Judge,
    /// How often.
    pub tally: Tally,
    /// The newest transaction that any server has applied.
    pub newest: Zxid,
    /// As drawn.
    pub options: Options,
    /// The paths that clients use.
    pub keys: KeySpace,
    /// For streams of what comes into being during the run.
    pub seeds: Seeds,
}

impl Shared {
    /// Do faults still strike?
    pub fn is_faulty(&self) -> bool {
        self.healed.is_none()
    }

    /// Lets `event` happen after `ns`.
    pub fn after(&mut self, ns: u64, event: Event) {
        self.queue.push(Instant(self.now.0.saturating_add(ns)), event);
    }

    /// Lets `event` happen at `at`, or now where that has passed.
    pub fn at(&mut self, at: Instant, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    /// Records an event of the trace.
    pub fn note(
        &mut self,
        kind: Kind,
        ends: (u64, u64),
        payload: &[u8],
        text: impl FnOnce() -> String,
    ) {
        let stamp = Stamp { at: self.now, kind, ends };
        let heard = self.agenda.listens() && matches!(kind, Kind::Fault | Kind::Life);
        if !heard && self.chronicle.is_none() && self.lines.is_none() {
            return self.trace.event(stamp, payload, || plain::event(&text(), &self.net));
        }
        let text = text();
        if heard {
            self.agenda.hear(&text);
        }
        self.trace.event(stamp, payload, || plain::event(&text, &self.net));
        let place = self.place();
        if let Some(lines) = &mut self.lines {
            lines.note(place, kind, &text);
        }
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.note(place, kind, ends, payload, text);
        }
    }

    /// Says of the step that happens now what it does, where somebody listens.
    pub fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.agenda.listens() {
            self.agenda.hear(&text());
        }
    }

    /// When and where in the trace the world is.
    pub fn place(&self) -> Place {
        Place { at: self.now, event: self.trace.events() }
    }

    /// Somebody is hit by the fault that strikes now.
    pub fn hit(&mut self, hit: Hit, until: Option<Instant>) {
        let between_servers = !matches!(&hit, Hit::Conn(ends) if ends.iter().any(is_no_server));
        self.strikes.hit(self.now, hit, until);
        if let Some(strike) = self.strikes.list().last().filter(|_| between_servers) {
            let (servers, until) = (strike.servers(), until.unwrap_or(self.now));
            self.observe(Observation::Struck { servers: &servers, until });
        }
        let place = self.place();
        if let (Some(lines), Some(strike)) = (&mut self.lines, self.strikes.list().last()) {
            lines.struck(place, strike);
        }
    }

    /// Shows something to the oracles.
    pub fn observe(&mut self, what: Observation<'_>) {
        let place = self.place();
        if let Some(lines) = &mut self.lines {
            lines.observe(place, &what);
        }
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.observe(place, &what);
        }
        self.judge.observe(self.now, self.trace.events(), what);
    }

    /// A server's step has hit these.
    pub fn reached(&mut self, server: ServerId, marks: Marks) {
        let place = self.place();
        if let Some(chronicle) = &mut self.chronicle {
            chronicle.reached(place, server, marks);
        }
    }

    /// Makes a check of the world's own.
    pub fn hold(&mut self, check: Check, found: Result<(), String>) {
        self.judge.hold(self.now, self.trace.events(), check, found);
    }

    /// Code under test has panicked.
    pub fn panicked(&mut self, who: &str, what: &str) {
        self.hold(Check::PANIC, Err(format!("{who}: {what}")));
    }

    /// Schedules what the network has put under way.
    pub fn schedule_arrivals(&mut self) {
        for arrival in self.net.take_arrivals() {
            self.queue.push(arrival.at.max(self.now), Event::Arrival(arrival));
        }
    }
}

/// A client, or a stranger.
pub fn is_no_server(party: &Party) -> bool {
    !matches!(party, Party::Server(_))
}
