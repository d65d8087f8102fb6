//! The calls of a client: when it makes them, and their results.
//!
//! Owns calls in flight, and the probe write. Must not decide what a call asks for: the workload
//! does.

use zabkeeper_client::{CallId, Failure, Input};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ErrorCode, Instant};

use super::Client;
use crate::check::checker::Check;
use crate::clients::diary::Word;
use crate::clients::workload::{CallOutcome, Op};
use crate::engine::decisions::{Act, Due};
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::world::shared::{Event, Shared};

/// A call in flight.
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) path: String,
    probe: bool,
}

/// State of the probe: a write that proves liveness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Probe {
    NotAsked,
    Wanted,
    UnderWay,
    Done,
}

/// Interval between attempts of the probe write, ns.
const PROBE_PAUSE: u64 = 20_000_000;

impl Client {
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
        if incarnation != self.incarnation || self.library.is_none() {
            return;
        }
        let client = self.id;
        let connected = self.library.as_ref().is_some_and(|s| s.state().is_connected());
        if self.probe == Probe::Wanted && connected {
            self.probe = Probe::UnderWay;
            let request = self.ops.probe();
            self.submit(Op::Create, request, true, shared);
        }
        if self.probe != Probe::Done && incarnation == self.incarnation {
            shared.after(PROBE_PAUSE, Event::Probe { client, incarnation });
        }
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

    /// Whether it has a session without a program, and no probe is requested.
    fn calls_freely(&self) -> bool {
        self.library.is_some() && !self.runs_program() && self.probe == Probe::NotAsked
    }

    fn call(&mut self, op: Op, shared: &mut Shared) {
        if shared.decisions.is_recording() {
            self.ops.record();
        }
        let request = self.ops.request(op, &shared.options.workload, &shared.keys);
        let choices = self.ops.recorded();
        shared.decisions.begin();
        shared.describe(|| request.to_string());
        let incarnation = self.incarnation;
        for (op, request) in self.ops.take_before().into_iter().chain([(op, request)]) {
            if incarnation == self.incarnation && self.library.is_some() {
                self.submit(op, request, false, shared);
            }
        }
        shared.decisions.end(shared.now, Act::Call(self.id, op), choices, true);
    }

    fn submit(&mut self, op: Op, request: Request, probe: bool, shared: &mut Shared) {
        // A program proves that it makes progress by what it does anyway.
        if self.runs_program() {
            return;
        }
        self.next_call += 1;
        let call = CallId(self.next_call);
        let path = path_of(&request).to_owned();
        let called = ClientRunEvent::Called { call, op, request: &request };
        shared.record(&RunEvent::Client(self.id, called));
        self.calls.insert(call, Call { op, path, probe });
        self.jot(|| Word::Asked(request.clone()));
        self.step(Input::Submit(call, request), shared);
    }

    pub(super) fn completed(
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
                | Failure::InvalidPath(_)
                | Failure::NotACall
                // The handle's, which this client has not.
                | Failure::TimedOut
                | Failure::Lagged
                | Failure::WatchRemoved
                | Failure::UnexpectedData
                | Failure::OtherReply,
            ) => CallOutcome::Over,
        };
        self.jot(|| Word::Answered(result.clone()));
        let ended = ClientRunEvent::CallEnded { call, op, outcome, result: &result };
        shared.record(&RunEvent::Client(self.id, ended));
        if let Ok(done) = &result {
            self.ops.learn(&path, &done.body);
        }
        if probe {
            self.probe = if outcome == CallOutcome::Done { Probe::Done } else { Probe::Wanted };
            if matches!(result, Err(Failure::Code(ErrorCode::NotReadOnly))) {
                // Its user wants to write, and looks for another server.
                self.read_only = false;
                return self.close(shared);
            }
        }
        self.plan_next_call(false, shared);
    }

    /// Some clients make the next call at once after a reply or an event.
    pub(super) fn plan_next_call(&mut self, reads: bool, shared: &mut Shared) {
        let one_in = shared.options.workload.eager_one_in;
        if one_in > 0 && self.pace.chance(1, one_in) {
            let (client, incarnation) = (self.id, self.incarnation);
            let at = Instant(shared.now.0 + 1);
            shared.decisions.plan(at, Due::GoOn { client, incarnation, reads });
        }
    }
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
        | Request::Reconfigure(_)
        | Request::Throttled { .. }
        | Request::Sasl { .. }
        | Request::Auth { .. }
        | Request::SetWatches(_)
        | Request::CloseSession
        | Request::Undecodable { .. }
        | Request::Unknown { .. } => "",
    }
}
