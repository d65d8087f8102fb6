//! A client of the simulated world: the real session of the client library, and a user of it.
//!
//! Owns the session; `calls` has its calls, `conns` its connections, `incarnations` the beginning
//! and end of sessions, `deadlines` the check of its timeouts, `reports` the program of a user's
//! workload. Must not check the server: oracles read the frames on its connections.

use std::collections::BTreeMap;

use zabkeeper_client::{CallId, Disconnect, Effect, Input, LinkId, Outbox, State};
use zabkeeper_core::wire::Password;
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, Zxid};

use crate::check::checker::Check;
use crate::check::guard;
use crate::check::observe::{ClientId, Observation};
use crate::clients::diary::Word;
use crate::clients::workload::Ops;
use crate::clients::workload::WorkloadOptions;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::machine::node::Clock;
use crate::network::stream::{Delivery, End};
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::record::trace::Kind;
use crate::workload::Mailbox;
use crate::world::options::PING_PERCENT;
use crate::world::shared::{Event, Shared};

pub(crate) use conns::whole_frame;

use calls::{Call, Probe};
use conns::Tap;
#[cfg(test)]
pub(crate) use incarnations::library_config;
use library::Library;
use memory::Memory;

mod calls;
mod conns;
mod deadlines;
mod incarnations;
mod library;
mod memory;
mod reports;

/// A client.
pub struct Client {
    id: ClientId,
    /// One session per incarnation; events of earlier incarnations are void.
    incarnation: u64,
    library: Option<Library>,
    out: Outbox,
    links: BTreeMap<LinkId, Option<ConnId>>,
    conns: BTreeMap<ConnId, Tap>,
    calls: BTreeMap<CallId, Call>,
    next_call: u64,
    ops: Ops,
    rng: Rng,
    /// Stream for the times of calls.
    pace: Rng,
    clock: Clock,
    /// It accepts a read-only server.
    read_only: bool,
    /// The library pings after this share of the session timeout, in percent.
    pings_percent: u32,
    frozen_until: Instant,
    deadline_at: Option<Instant>,
    probe: Probe,
    /// The session that the next incarnation resumes, and the timeout that it requests, ms.
    resumed: Option<((SessionId, Password), u64)>,
    absent: bool,
    /// Whether it vanishes right after it has reconnected.
    abandons: bool,
    memory: Memory,
    /// Transaction events that the library has delivered.
    events: u64,
    /// The reports of the program, if it is one of the user's workload.
    mailbox: Option<Mailbox>,
    /// Programs of the user's workload stand still.
    paused: bool,
    /// Its requests, replies and events, if recorded. Such a client has only one session.
    diary: Option<Vec<Word>>,
}

impl Client {
    /// A client without a session; [`Client::start_session`] begins one.
    pub fn new(id: ClientId, shared: &mut Shared) -> Client {
        let seeds = shared.seeds;
        let stream = |domain| seeds.stream(domain, id.0.into());
        let drifts = shared.options.faults.has(Fault::ClientDrift);
        let drift = if drifts { drawn_drift(&mut stream("client/clock")) } else { 0 };
        shared.recorder.counters.faults[Fault::ClientDrift as usize] += u64::from(drift != 0);
        let WorkloadOptions { late_one_in, late_percent, read_only_one_in, .. } =
            shared.options.workload;
        let read_only =
            read_only_one_in > 0 && stream("client/read-only").chance(1, read_only_one_in);
        let late = late_one_in > 0 && stream("client/pings").chance(1, late_one_in);
        let pings_percent = if late { late_percent } else { PING_PERCENT };
        Client {
            id,
            incarnation: 0,
            library: None,
            out: Outbox::default(),
            links: BTreeMap::new(),
            conns: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            ops: Ops::new(id, stream("client/ops")),
            rng: stream("client/life"),
            pace: stream("client/pace"),
            clock: Clock::new(Instant(0), 0, drift, 0),
            read_only,
            pings_percent,
            frozen_until: Instant(0),
            deadline_at: None,
            probe: Probe::NotAsked,
            resumed: None,
            absent: false,
            abandons: false,
            memory: Memory::default(),
            events: 0,
            mailbox: None,
            paused: false,
            diary: None,
        }
    }

    /// The client never begins a session, and liveness does not require a write of it.
    pub fn stay_away(&mut self) {
        self.absent = true;
    }

    /// Records its requests, replies and events from now on; it has only one session.
    pub fn keep_diary(&mut self) {
        self.diary = Some(Vec::new());
    }

    /// The records since the last call.
    pub fn take_diary(&mut self) -> Vec<Word> {
        self.diary.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn jot(&mut self, word: impl FnOnce() -> Word) {
        if let Some(diary) = &mut self.diary {
            diary.push(word());
        }
    }

    /// The state of its session, if it has one.
    pub fn state(&self) -> Option<State> {
        self.library.as_ref().map(Library::state)
    }

    /// Its id.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Its incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The session's id and password, once a server has accepted it.
    pub fn identity(&self) -> Option<(SessionId, Password)> {
        let session = self.library.as_ref()?;
        (session.id() != SessionId(0)).then(|| (session.id(), session.password()))
    }

    /// Like [`Client::identity`], with the last zxid that it has seen.
    pub fn memory(&self) -> Option<(SessionId, Password, Zxid)> {
        let (id, password) = self.identity()?;
        self.library.as_ref().map(|session| (id, password, session.last_zxid()))
    }

    /// Its connections.
    pub fn conns(&self) -> impl Iterator<Item = ConnId> + use<> {
        self.conns.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Number of calls in flight.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Its state in words, for reports about missing progress.
    pub fn describe(&self) -> String {
        let calls: Vec<String> =
            self.calls.values().map(|call| format!("{} {}", call.op.name(), call.path)).collect();
        let calls = match calls.is_empty() {
            true if self.runs_program() => "a program, which does not get on".to_owned(),
            true => "no call".to_owned(),
            false => calls.join(", "),
        };
        let session = match self.library.as_ref().map(|session| (session.id(), session.state())) {
            None => "has no session".to_owned(),
            Some((SessionId(0), state)) => format!("asks for a session ({state:?})"),
            Some((SessionId(id), state)) => format!("has session {id:#x} ({state:?})"),
        };
        let loss = self.library.as_ref().and_then(Library::last_loss);
        let loss = loss.map_or(String::new(), |loss| format!("; it lost its connection: {loss:?}"));
        format!("{session}, under way: {calls}{loss}")
    }

    /// The client does not run until then.
    pub fn freeze(&mut self, until: Instant) {
        self.frozen_until = self.frozen_until.max(until);
    }

    /// Ends a freeze and a pending abandonment.
    pub fn thaw(&mut self, shared: &mut Shared) {
        self.abandons = false;
        if self.still_frozen(shared.now).is_some() {
            self.frozen_until = shared.now;
            self.deadline_at = None;
            self.plan(shared);
        }
    }

    /// Draws from streams of this tree from now on.
    pub fn draw_anew(&mut self, seeds: Seeds) {
        let stream = |domain| seeds.stream(domain, self.id.0.into());
        self.ops.draw_anew(stream("client/ops"));
        self.rng = stream("client/life");
        self.pace = stream("client/pace");
    }

    /// The end of its freeze, if it is frozen.
    pub fn still_frozen(&self, now: Instant) -> Option<Instant> {
        (now < self.frozen_until).then_some(self.frozen_until)
    }

    /// The session's timer fires. Bytes that have arrived already are processed first.
    pub fn deadline(&mut self, incarnation: u64, shared: &mut Shared) {
        let due = self.deadline_at.is_some_and(|planned| planned <= shared.now);
        if incarnation != self.incarnation || !due {
            return;
        }
        self.deadline_at = None;
        let conns: Vec<ConnId> = self.conns.keys().copied().collect();
        for conn in conns {
            while let delivery @ (Delivery::Bytes(_) | Delivery::Closed | Delivery::Reset) =
                shared.net.arrive(shared.now, conn, End::Dialler)
            {
                self.arrive(conn, delivery, shared);
            }
        }
        self.step(Input::Timeout, shared);
    }

    fn step(&mut self, input: Input, shared: &mut Shared) {
        let Some(library) = &mut self.library else {
            return;
        };
        let (out, now) = (&mut self.out, self.clock.read(shared.now).mono);
        if let Err(panic) = guard::catch(|| library.step(now, input, out)) {
            return shared.panicked("the client library", &panic);
        }
        let incarnation = self.incarnation;
        self.listen_to_program(shared);
        self.pass_reports(shared);
        for effect in std::mem::take(&mut self.out.effects) {
            // A fading client dies upon connecting, and the remaining effects are void (seed
            // 0x8a000087 of session).
            if incarnation == self.incarnation {
                self.carry_out(effect, shared);
            }
        }
        if incarnation == self.incarnation {
            self.check_loss(shared);
            self.plan(shared);
            // The engine of a program keeps the states to itself.
            if self.runs_program()
                && let Some(state) = self.state()
            {
                self.has_state(state, shared);
            }
        }
    }

    /// Whether a program uses its session, and not the workload.
    fn runs_program(&self) -> bool {
        self.library.as_ref().is_some_and(|library| library.program().is_some())
    }

    /// The session is in this state.
    fn has_state(&mut self, state: State, shared: &mut Shared) {
        match state {
            State::Connected | State::ConnectedReadOnly if self.abandons => {
                self.die(false, shared);
            }
            State::Connecting | State::Connected | State::ConnectedReadOnly => {}
            State::Expired | State::AuthFailed | State::Closed => {
                shared.recorder.counters.counts.sessions_expired +=
                    u64::from(state == State::Expired);
                let left = self.calls.len();
                let none = if left == 0 { Ok(()) } else { Err(format!("{left} calls never end")) };
                shared.check(Check::CALLS, none);
                self.end(shared);
            }
        }
    }

    fn listen_to_program(&mut self, shared: &mut Shared) {
        let Some(library) = &self.library else { return };
        let session = library.id();
        for told in library.program().map(|program| program.take_told()).unwrap_or_default() {
            if told.is_progress() && self.probe == Probe::UnderWay {
                self.probe = Probe::Done;
            }
            shared.note(Kind::Call, (self.id.0.into(), 0), &[], || {
                format!("client {} {told:?}", self.id.0)
            });
            shared.observe(Observation::Told { client: self.id, session, told });
        }
    }

    fn plan(&mut self, shared: &mut Shared) {
        let at = self.library.as_ref().and_then(Library::next_deadline);
        let at = at.map(|at| self.clock.when(at));
        self.check_deadlines(at, shared);
        let Some(at) = at else {
            return;
        };
        let at = at.max(shared.now);
        if self.deadline_at.is_none_or(|planned| at < planned) {
            self.deadline_at = Some(at);
            shared.at(at, Event::ClientDeadline { client: self.id, incarnation: self.incarnation });
        }
    }

    fn carry_out(&mut self, effect: Effect, shared: &mut Shared) {
        match effect {
            Effect::Dial { link, server } => {
                self.links.insert(link, None);
                let server = incarnations::server_of(&server);
                let after = shared.options.link.draw(&mut self.rng);
                let (client, incarnation) = (self.id, self.incarnation);
                shared.after(after, Event::Dial { client, incarnation, link, server });
            }
            Effect::Send { link, bytes } => self.send(link, bytes, shared),
            Effect::HangUp { link } => {
                if let Some(Some(conn)) = self.links.remove(&link) {
                    self.conns.remove(&conn);
                    shared.record(&RunEvent::Client(self.id, ClientRunEvent::HangsUp { conn }));
                    shared.net.close(shared.now, conn, End::Dialler);
                    shared.schedule_arrivals();
                }
            }
            Effect::Completed(call, result) => self.completed(call, result, shared),
            Effect::Event(event) => {
                self.jot(|| Word::Event(event.clone()));
                shared.recorder.counters.counts.watch_events += 1;
                self.events += u64::from(event.zxid.is_some());
                shared.note(Kind::Call, (self.id.0.into(), 0), event.path.as_bytes(), || {
                    format!("client {} hears {:?} {}", self.id.0, event.event, event.path)
                });
                self.plan_next_call(true, shared);
            }
            Effect::State(state) => self.has_state(state, shared),
            // What a server says counts.
            Effect::PresumedExpired => {}
        }
    }

    /// The library disconnects when the server violates the protocol; streams never corrupt bytes.
    fn check_loss(&self, shared: &mut Shared) {
        let broken = match self.library.as_ref().and_then(Library::last_loss) {
            Some(
                loss @ (Disconnect::Malformed(_)
                | Disconnect::WrongXid { .. }
                | Disconnect::WrongSession { .. }
                | Disconnect::WatchesRefused(_)),
            ) => Err(format!("client {}: {loss}", self.id.0)),
            Some(
                Disconnect::DialFailed
                | Disconnect::DialTimeout
                | Disconnect::HandshakeTimeout
                | Disconnect::Silent
                | Disconnect::Disconnected,
            )
            | Some(Disconnect::ReadWriteFound)
            // No client replaces its servers.
            | Some(Disconnect::Moves)
            | None => Ok(()),
        };
        shared.check(Check::PROTOCOL, broken);
    }
}

/// Clock drift in thousandths, within ±100.
fn drawn_drift(rng: &mut Rng) -> i64 {
    i64::try_from(rng.upto(200)).expect("small") - 100
}
