//! A client of the simulated world: the real session of the client library, and a user of it.
//!
//! Owns the session and its calls; `conns` its connections, `incarnations` the beginning and end of
//! sessions, `patience` the check of its timeouts. Must not check the server: oracles read the
//! frames on its connections.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use zabkeeper_client::{
    CallId, Disconnect, Effect, Failure, Input, LinkId, Outbox, Session, State,
};
use zabkeeper_core::wire::{Password, Request};
use zabkeeper_core::{ConnId, Instant, ServerId, SessionId, Zxid};

use crate::check::checker::Check;
use crate::check::guard;
use crate::check::observe::{ClientId, Observation};
use crate::clients::diary::Word;
use crate::clients::workload::CallOutcome;
use crate::clients::workload::WorkloadOptions;
use crate::clients::workload::{Op, Ops};
use crate::engine::decisions::Act;
use crate::engine::decisions::Due;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::machine::node::Clock;
use crate::network::stream::{Delivery, End};
use crate::record::trace::Kind;
use crate::world::options::PING_PERCENT;
use crate::world::shared::{Event, Shared};

pub(crate) use conns::whole_frame;

use conns::Tap;
#[cfg(test)]
pub(crate) use incarnations::library_config;
use memory::Memory;
use patience::Patience;

mod conns;
mod incarnations;
mod memory;
mod patience;

/// Interval between attempts of the probe write, ns.
const PROBE_PAUSE: u64 = 20_000_000;

/// A client.
pub struct Client {
    id: ClientId,
    /// One session per incarnation; events of earlier incarnations are void.
    incarnation: u64,
    session: Option<Session>,
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
    /// Its requests, replies and events, if recorded. Such a client has only one session.
    diary: Option<Vec<Word>>,
}

/// A call in flight.
struct Call {
    op: Op,
    path: String,
    probe: bool,
}

/// State of the probe: a write that proves liveness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    NotAsked,
    Wanted,
    UnderWay,
    Done,
}

impl Client {
    /// A client without a session; [`Client::start_session`] begins one.
    pub fn new(id: ClientId, shared: &mut Shared) -> Client {
        let seeds = shared.seeds;
        let stream = |domain| seeds.stream(domain, id.0.into());
        let drifts = shared.options.faults.has(Fault::ClientDrift);
        let drift = if drifts { drawn_drift(&mut stream("client/clock")) } else { 0 };
        shared.counters.faults[Fault::ClientDrift as usize] += u64::from(drift != 0);
        let WorkloadOptions { late_one_in, late_percent, .. } = shared.options.workload;
        let late = late_one_in > 0 && stream("client/pings").chance(1, late_one_in);
        let pings_percent = if late { late_percent } else { PING_PERCENT };
        Client {
            id,
            incarnation: 0,
            session: None,
            out: Outbox::default(),
            links: BTreeMap::new(),
            conns: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            ops: Ops::new(id, stream("client/ops")),
            rng: stream("client/life"),
            pace: stream("client/pace"),
            clock: Clock::new(Instant(0), 0, drift, 0),
            pings_percent,
            frozen_until: Instant(0),
            deadline_at: None,
            probe: Probe::NotAsked,
            resumed: None,
            absent: false,
            abandons: false,
            memory: Memory::default(),
            events: 0,
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
        self.session.as_ref().map(Session::state)
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
        let session = self.session.as_ref()?;
        (session.id() != SessionId(0)).then(|| (session.id(), session.password()))
    }

    /// Like [`Client::identity`], with the last zxid that it has seen.
    pub fn memory(&self) -> Option<(SessionId, Password, Zxid)> {
        let (id, password) = self.identity()?;
        self.session.as_ref().map(|session| (id, password, session.last_zxid()))
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
        let calls = if calls.is_empty() { "no call".to_owned() } else { calls.join(", ") };
        let session = match self.session.as_ref().map(|session| (session.id(), session.state())) {
            None => "has no session".to_owned(),
            Some((SessionId(0), state)) => format!("asks for a session ({state:?})"),
            Some((SessionId(id), state)) => format!("has session {id:#x} ({state:?})"),
        };
        let loss = self.session.as_ref().and_then(Session::last_loss);
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

    /// Requests a probe write.
    pub fn ask_for_probe(&mut self, shared: &mut Shared) {
        if self.absent {
            return;
        }
        self.probe = Probe::Wanted;
        let (client, incarnation) = (self.id, self.incarnation);
        shared.after(0, Event::Probe { client, incarnation });
    }

    /// Whether the probe write has succeeded, or none was requested.
    pub fn is_proven(&self) -> bool {
        matches!(self.probe, Probe::Done | Probe::NotAsked)
    }

    /// Tries the probe write until it succeeds.
    pub fn probe(&mut self, incarnation: u64, shared: &mut Shared) {
        if incarnation != self.incarnation || self.session.is_none() {
            return;
        }
        let client = self.id;
        let connected = self.session.as_ref().is_some_and(|s| s.state() == State::Connected);
        if self.probe == Probe::Wanted && connected {
            self.probe = Probe::UnderWay;
            let request = self.ops.probe();
            self.submit(Op::Create, request, true, shared);
        }
        if self.probe != Probe::Done && incarnation == self.incarnation {
            shared.after(PROBE_PAUSE, Event::Probe { client, incarnation });
        }
    }

    /// Draws from streams of this tree from now on.
    pub fn draw_anew(&mut self, seeds: Seeds) {
        let stream = |domain| seeds.stream(domain, self.id.0.into());
        self.ops.draw_anew(stream("client/ops"));
        self.rng = stream("client/life");
        self.pace = stream("client/pace");
    }

    /// Makes the next calls, drawn from its streams, and plans the following ones.
    pub fn work(&mut self, incarnation: u64, shared: &mut Shared) {
        if incarnation != self.incarnation || !self.calls_freely() {
            return;
        }
        let (client, options) = (self.id, &shared.options.workload);
        let due = Due::Work { client, incarnation };
        if let Some(until) = self.still_frozen(shared.now) {
            return shared.decisions.put_off(until, due);
        }
        let mean = 1_000_000_000 * u64::from(shared.options.clients) / options.calls_per_second;
        let (count, gap) = if options.idle_one_in > 0 && self.pace.chance(1, options.idle_one_in) {
            // Long enough for the session to be kept alive by pings alone.
            (0, options.session_ms.1 * 2_000_000)
        } else if self.pace.chance(1, 10) {
            let count = 1 + self.pace.upto(options.depth - 1);
            (count, mean * count as u64)
        } else {
            (1, self.pace.exponential(mean))
        };
        for _ in 0..count {
            if incarnation == self.incarnation && self.calls.len() < shared.options.workload.depth {
                let op = self.ops.next(&shared.options.workload);
                self.call(op, shared);
            }
        }
        if incarnation == self.incarnation {
            shared.decisions.plan(Instant(shared.now.0 + gap.max(1)), due);
        }
    }

    /// Makes a call in response to a reply or an event. After an event it only reads: if all
    /// waiting clients wrote, their writes would trigger the next event for all.
    pub fn go_on(&mut self, incarnation: u64, reads: bool, shared: &mut Shared) {
        if incarnation == self.incarnation && self.has_time(shared) {
            let options = &shared.options.workload;
            let op = if reads { self.ops.next_read(options) } else { Some(self.ops.next(options)) };
            if let Some(op) = op {
                self.call(op, shared);
            }
        }
    }

    /// Makes the call that a schedule demands, if possible. Returns the time to retry at if the
    /// client is frozen.
    pub fn call_as(&mut self, op: Op, choices: &[u64], shared: &mut Shared) -> Option<Instant> {
        if self.calls_freely() {
            if let Some(until) = self.still_frozen(shared.now) {
                return Some(until);
            }
            if self.calls.len() < shared.options.workload.depth {
                self.ops.choose(choices.to_vec());
                self.call(op, shared);
            }
        }
        None
    }

    /// Makes this many random calls at once, if possible; with `contended` all use this path.
    pub fn burst(&mut self, calls: u64, contended: Option<usize>, shared: &mut Shared) {
        self.ops.focus(contended);
        for _ in 0..calls {
            if !self.has_time(shared) {
                break;
            }
            match contended.and_then(|_| self.ops.contend(&shared.options.workload)) {
                Some(op) => self.call(op, shared),
                None => self.call_any(shared),
            }
        }
        self.ops.focus(None);
    }

    /// Makes a call of this kind, if possible.
    pub fn ask(&mut self, op: Op, shared: &mut Shared) {
        if self.has_time(shared) {
            self.call(op, shared);
        }
    }

    /// Makes a random call.
    pub fn call_any(&mut self, shared: &mut Shared) {
        let op = self.ops.next(&shared.options.workload);
        self.call(op, shared);
    }

    /// Makes this call.
    pub fn call_this(&mut self, op: Op, request: Request, shared: &mut Shared) {
        self.submit(op, request, false, shared);
    }

    fn has_time(&self, shared: &Shared) -> bool {
        let awake = self.still_frozen(shared.now).is_none();
        awake && self.calls_freely() && self.calls.len() < shared.options.workload.depth
    }

    /// Whether it has a session and no probe is requested.
    fn calls_freely(&self) -> bool {
        self.session.is_some() && self.probe == Probe::NotAsked
    }

    fn call(&mut self, op: Op, shared: &mut Shared) {
        if shared.decisions.is_recording() {
            self.ops.record();
        }
        let request = self.ops.request(op, &shared.options.workload, &shared.keys);
        let choices = self.ops.recorded();
        shared.decisions.begin();
        shared.tell(|| request.to_string());
        let incarnation = self.incarnation;
        for (op, request) in self.ops.take_before().into_iter().chain([(op, request)]) {
            if incarnation == self.incarnation && self.session.is_some() {
                self.submit(op, request, false, shared);
            }
        }
        shared.decisions.end(shared.now, Act::Call(self.id, op), choices, true);
    }

    fn submit(&mut self, op: Op, request: Request, probe: bool, shared: &mut Shared) {
        self.next_call += 1;
        let call = CallId(self.next_call);
        let path = path_of(&request).to_owned();
        shared.note(Kind::Call, (self.id.0.into(), call.0), &[op as u8], || {
            format!("client {} {call} {request}", self.id.0)
        });
        if let Some(timeline) = &mut shared.timeline {
            timeline.called(shared.now, self.id, call.0, request.to_string());
        }
        self.calls.insert(call, Call { op, path, probe });
        self.jot(|| Word::Asked(request.clone()));
        self.step(Input::Submit(call, request), shared);
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
        let Some(session) = &mut self.session else {
            return;
        };
        let (out, now) = (&mut self.out, self.clock.read(shared.now).mono);
        if let Err(panic) = guard::catch(|| session.step(now, input, out)) {
            return shared.panicked("Session::step", &panic);
        }
        let incarnation = self.incarnation;
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
        }
    }

    fn plan(&mut self, shared: &mut Shared) {
        let at = self.session.as_ref().and_then(Session::next_deadline);
        let at = at.map(|at| self.clock.when(at));
        self.check_patience(at, shared);
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
                let server = ServerId(server as u64 + 1);
                let after = shared.options.link.draw(&mut self.rng);
                let (client, incarnation) = (self.id, self.incarnation);
                shared.after(after, Event::Dial { client, incarnation, link, server });
            }
            Effect::Send { link, bytes } => self.send(link, bytes, shared),
            Effect::HangUp { link } => {
                if let Some(Some(conn)) = self.links.remove(&link) {
                    self.conns.remove(&conn);
                    shared.note(Kind::Conn, (self.id.0.into(), conn.0), b"hang up", || {
                        format!("client {} hangs up {conn}", self.id.0)
                    });
                    shared.net.close(shared.now, conn, End::Dialler);
                    shared.schedule_arrivals();
                    shared.observe(Observation::ConnClosed { conn });
                }
            }
            Effect::Completed(call, result) => self.completed(call, result, shared),
            Effect::Event(event) => {
                self.jot(|| Word::Heard(event.clone()));
                shared.counters.counts.watch_events += 1;
                self.events += u64::from(event.zxid.is_some());
                shared.note(Kind::Call, (self.id.0.into(), 0), event.path.as_bytes(), || {
                    format!("client {} hears {:?} {}", self.id.0, event.event, event.path)
                });
                self.heard(true, shared);
            }
            Effect::State(State::Connected) if self.abandons => self.die(false, shared),
            Effect::State(State::Connecting | State::Connected) => {}
            Effect::State(state @ (State::Expired | State::AuthFailed | State::Closed)) => {
                shared.counters.counts.sessions_expired += u64::from(state == State::Expired);
                let left = self.calls.len();
                let none = if left == 0 { Ok(()) } else { Err(format!("{left} calls never end")) };
                shared.check(Check::CALLS, none);
                self.end(shared);
            }
        }
    }

    fn completed(
        &mut self,
        call: CallId,
        result: Result<zabkeeper_client::Done, Failure>,
        shared: &mut Shared,
    ) {
        let Some(Call { op, path, probe }) = self.calls.remove(&call) else {
            let evidence = format!("client {}: {call} ended twice", self.id.0);
            return shared.check(Check::CALLS, Err(evidence));
        };
        let outcome = match &result {
            Ok(_) => CallOutcome::Done,
            Err(Failure::Code(_) | Failure::UnknownCode(_)) => CallOutcome::Refused,
            Err(Failure::ConnectionLoss) => CallOutcome::Unknown,
            Err(
                Failure::SessionExpired
                | Failure::AuthFailed
                | Failure::Closed
                | Failure::Full
                | Failure::TooLarge
                | Failure::RelativePath
                | Failure::NotACall,
            ) => CallOutcome::Over,
        };
        self.jot(|| Word::Answered(result.clone()));
        shared.counters.call(op, outcome);
        if let Some(timeline) = &mut shared.timeline {
            timeline.ended(shared.now, self.id, call.0, outcome, answer_text(&result));
        }
        let zxid = result.as_ref().map_or(0, |done| done.zxid.0);
        let told = [op as u8, outcome as u8];
        shared.note(Kind::Call, (self.id.0.into(), call.0 ^ zxid.rotate_left(8)), &told, || {
            format!("client {} {call} {result:?}", self.id.0)
        });
        if let Ok(done) = &result {
            self.ops.learn(&path, &done.body);
        }
        if probe {
            self.probe = if outcome == CallOutcome::Done { Probe::Done } else { Probe::Wanted };
        }
        self.heard(false, shared);
    }

    /// Some clients make the next call at once after a reply or an event.
    fn heard(&mut self, reads: bool, shared: &mut Shared) {
        let one_in = shared.options.workload.eager_one_in;
        if one_in > 0 && self.pace.chance(1, one_in) {
            let (client, incarnation) = (self.id, self.incarnation);
            let at = Instant(shared.now.0 + 1);
            shared.decisions.plan(at, Due::GoOn { client, incarnation, reads });
        }
    }

    /// The library disconnects when the server violates the protocol; streams never corrupt bytes.
    fn check_loss(&self, shared: &mut Shared) {
        let broken = match self.session.as_ref().and_then(Session::last_loss) {
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
            | None => Ok(()),
        };
        shared.check(Check::PROTOCOL, broken);
    }
}

/// The result of a call in words, without data.
fn answer_text(result: &Result<zabkeeper_client::Done, Failure>) -> String {
    match result {
        Ok(done) => format!("done at {}", done.zxid),
        Err(why) => why.to_string(),
    }
}

/// Clock drift in thousandths, within ±100.
fn drawn_drift(rng: &mut Rng) -> i64 {
    i64::try_from(rng.upto(200)).expect("small") - 100
}

fn path_of(request: &Request) -> &str {
    match request {
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::Check { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::SetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::Sync { path }
        | Request::Watches { path, .. }
        | Request::GetAcl { path }
        | Request::SetAcl { path, .. }
        | Request::CreateContainer { path, .. }
        | Request::CreateTtl { path, .. }
        | Request::GetEphemerals { prefix: path }
        | Request::GetAllChildrenNumber { path }
        | Request::AddWatch { path, .. } => path,
        Request::Ping
        | Request::Multi(_)
        | Request::MultiRead(_)
        | Request::WhoAmI
        | Request::NoPath { .. }
        | Request::Reconfig
        | Request::Throttled { .. }
        | Request::Sasl { .. }
        | Request::Auth { .. }
        | Request::SetWatches(_)
        | Request::CloseSession
        | Request::Undecodable { .. }
        | Request::Unknown { .. } => "",
    }
}
