//! The half of a client that answers the handle: it owns the session and everybody who waits.
//!
//! Owns calls, watches, timers and state streams. Must not do I/O: a driver passes it inputs and
//! carries out the effects that it leaves, as for a bare session. The driver for tokio and the
//! simulator use the same engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::BoxFuture;
use futures::stream::{FusedStream, FuturesUnordered, Stream};
use zabkeeper_core::wire::{AddWatchMode, Request, WatcherType};
use zabkeeper_core::{ErrorCode, Instant};

use super::Client;
use super::view::View;
use super::watch::{Wanted, Watch, Watchers};
use crate::session::{
    CallId, Config, ConnectString, Done, Effect, Failure, Input, Outbox, Session, State,
};

/// Commands that are taken before the engine lets the driver write to its socket.
const COMMANDS_AT_ONCE: usize = 256;

/// What a handle asks of the engine.
pub(super) enum Command {
    /// A request, the path and the kind of the watch that it sets, and who waits for the reply.
    Call { request: Asked, wanted: Option<(String, Wanted)>, reply: oneshot::Sender<Answer> },
    /// The ensemble consists of these servers now.
    Servers(ConnectString),
    /// Completes after this time.
    Sleep(Duration, oneshot::Sender<()>),
    /// Wants every state after this one, which the handle has seen.
    States(mpsc::UnboundedSender<State>, State),
    /// Completes when the session has ended, or is presumed to have expired.
    Lost(oneshot::Sender<()>),
    /// Polls this future until it ends.
    Detach(Detached),
    /// Closes the session.
    Close,
}

/// What a call asks of the session.
pub(super) enum Asked {
    /// A request, with paths as the caller knows them.
    Request(Request),
    /// The configuration of the ensemble, and a watch if the flag is set.
    Config(bool),
}

/// What a dropped guard has still to do.
pub(super) type Detached = BoxFuture<'static, ()>;

/// The answer to a call: the reply, and the watch if one was wanted and is set.
pub(super) type Answer = (Result<Done, Failure>, Option<Watch>);

#[derive(Debug)]
struct Waiter {
    reply: oneshot::Sender<Answer>,
    /// The path and the kind of the watch that it wants.
    wanted: Option<(String, Wanted)>,
    deadline: Option<Instant>,
}

/// A session with a handle: the half of a client that its driver steps. The driver's loop, besides
/// the rules of [`Session`]:
///
/// ```text
/// poll_commands(now, cx, out)     when woken: takes what handles have asked for
/// step(now, input, out)           each outcome of a dial, received bytes, the deadline
/// carry out the effects           dial, send, hang up; the engine has taken all others
/// end when is_over()
/// ```
#[derive(Debug)]
pub struct Engine {
    session: Session,
    commands: mpsc::UnboundedReceiver<Command>,
    /// By ascending id: nearly always the first call is answered first.
    calls: VecDeque<(CallId, Waiter)>,
    last_call: u64,
    /// When calls time out.
    deadlines: BTreeSet<(Instant, CallId)>,
    request_timeout: Option<Duration>,
    sleepers: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    last_sleeper: u64,
    watchers: Watchers,
    states: Vec<mpsc::UnboundedSender<State>>,
    /// Who waits for the end of the session, presumed or real.
    lost: Vec<oneshot::Sender<()>>,
    detached: FuturesUnordered<Detached>,
    view: Arc<View>,
    /// Effects of the session that the engine has not handled yet.
    scratch: Outbox,
}

impl Engine {
    /// A new session and the first handle of it. `seed` determines the order of servers, the delays
    /// and the ids of [`Client::unique_id`]: no two clients may have the same.
    pub fn new(config: Config, seed: u128) -> (Client, Engine) {
        let (sender, commands) = mpsc::unbounded();
        let view = Arc::new(View::new(seed));
        let session = Session::new(config, view.session_seed());
        view.note(&session);
        let client = Client::new(sender, view.clone());
        let engine = Engine {
            session,
            commands,
            calls: VecDeque::new(),
            last_call: 0,
            deadlines: BTreeSet::new(),
            request_timeout: None,
            sleepers: BTreeMap::new(),
            last_sleeper: 0,
            watchers: Watchers::new(),
            states: Vec::new(),
            lost: Vec::new(),
            detached: FuturesUnordered::new(),
            view,
            scratch: Outbox::default(),
        };
        (client, engine)
    }

    /// Calls without an answer after this time fail with [`Failure::TimedOut`], from the moment on
    /// at which the engine takes them (CLIENT-14). Default `None`: they wait for the session.
    pub fn with_request_timeout(mut self, timeout: Option<Duration>) -> Engine {
        self.request_timeout = timeout;
        self
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Has the session ended, and does everybody know?
    pub fn is_over(&self) -> bool {
        self.session.next_deadline().is_none()
    }

    /// When the next [`Input::Timeout`] is due; `None` once the session is over.
    pub fn next_deadline(&self) -> Option<Instant> {
        let session = self.session.next_deadline()?;
        let calls = self.deadlines.first().map(|(at, _)| *at);
        let sleepers = self.sleepers.first_key_value().map(|((at, _), _)| *at);
        calls.into_iter().chain(sleepers).chain([session]).min()
    }

    /// Handles one input of the driver. `now` must not go back.
    pub fn step(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        if input == Input::Timeout {
            self.wake_sleepers(now);
            self.time_calls_out(now);
        }
        self.pass(now, input, out);
    }

    /// Takes what the handles have asked for, some hundred commands at most; `Pending` if there was
    /// nothing. Without handles the session is closed.
    pub fn poll_commands(
        &mut self,
        now: Instant,
        cx: &mut Context<'_>,
        out: &mut Outbox,
    ) -> Poll<()> {
        let mut any = false;
        while let Poll::Ready(Some(())) = Pin::new(&mut self.detached).poll_next(cx) {
            any = true;
        }
        for _ in 0..COMMANDS_AT_ONCE {
            if self.is_over() {
                break;
            }
            // The end of the commands is told again and again, and closes the session once.
            let ended = self.commands.is_terminated();
            let command = match Pin::new(&mut self.commands).poll_next(cx) {
                Poll::Ready(command) if !ended => command.unwrap_or(Command::Close),
                Poll::Ready(_) | Poll::Pending => match self.watchers.poll_removed(cx) {
                    // The removal would come after the request, and end its watch.
                    Poll::Ready((path, mode)) if self.is_being_set(&path, mode) => continue,
                    Poll::Ready((path, mode)) => unwatch(path, mode),
                    Poll::Pending => break,
                },
            };
            any = true;
            self.obey(now, command, out);
        }
        if any { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Is a request under way that sets this watch again?
    fn is_being_set(&self, path: &str, mode: AddWatchMode) -> bool {
        let mut wanted = self.calls.iter().filter_map(|(_, waiter)| waiter.wanted.as_ref());
        wanted.any(|(other, wanted)| other == path && *wanted == Wanted::Stream(mode))
    }

    fn obey(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::Call { request, wanted, reply } => {
                self.last_call += 1;
                let call = CallId(self.last_call);
                let deadline = self.request_timeout.map(|timeout| now.after(timeout));
                self.deadlines.extend(deadline.map(|at| (at, call)));
                self.calls.push_back((call, Waiter { reply, wanted, deadline }));
                let input = match request {
                    Asked::Request(request) => Input::Submit(call, request),
                    Asked::Config(watch) => Input::ReadConfig(call, watch),
                };
                self.pass(now, input, out);
            }
            Command::Servers(servers) => self.pass(now, Input::Servers(servers), out),
            Command::Sleep(time, sleeper) => {
                self.last_sleeper += 1;
                self.sleepers.insert((now.after(time), self.last_sleeper), sleeper);
            }
            Command::States(states, seen) => {
                // The state may have changed while the command was queued.
                let state = self.session.state();
                if state == seen || states.unbounded_send(state).is_ok() {
                    self.states.push(states);
                }
            }
            Command::Lost(waiter) if self.session.is_presumed_expired() => drop(waiter),
            Command::Lost(waiter) => {
                if self.lost.len() == self.lost.capacity() {
                    // Before it grows: most guards are dropped before their session ends.
                    self.lost.retain(|waiter| !waiter.is_canceled());
                }
                self.lost.push(waiter);
            }
            Command::Detach(future) => self.detached.push(future),
            Command::Close => self.pass(now, Input::Close, out),
        }
    }

    /// Steps the session, and handles the effects that are not for the driver.
    fn pass(&mut self, now: Instant, input: Input, out: &mut Outbox) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.session.step(now, input, &mut scratch);
        self.view.note(&self.session);
        for effect in scratch.effects.drain(..) {
            match effect {
                Effect::Dial { .. } | Effect::Send { .. } | Effect::HangUp { .. } => {
                    out.effects.push(effect);
                }
                Effect::Completed(call, result) => self.complete(call, result),
                Effect::Event(event) => self.watchers.fire(&event),
                Effect::State(state) => self.tell(state),
                Effect::PresumedExpired => self.lost.clear(),
            }
        }
        self.scratch = scratch;
    }

    fn complete(&mut self, call: CallId, result: Result<Done, Failure>) {
        // A call that has timed out has no waiter any more.
        let Some(Waiter { reply, wanted, deadline }) = self.take_call(call) else { return };
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, call));
        }
        let absent = result == Err(Failure::Code(ErrorCode::NoNode));
        let is_set =
            |wanted: &(String, Wanted)| result.is_ok() || absent && wanted.1 == Wanted::Exists;
        let watch = wanted.filter(is_set).and_then(|(path, wanted)| match wanted {
            Wanted::Config => Some(self.watchers.add(&self.session.config_path(), Wanted::Data)),
            Wanted::Removal(kind) => {
                self.watchers.remove(&path, kind);
                None
            }
            Wanted::Data | Wanted::Exists | Wanted::Children | Wanted::Stream(_) => {
                Some(self.watchers.add(&path, wanted))
            }
        });
        // Who has dropped the future does not want the answer. Its watch, if any, is removed.
        let _ = reply.send((result, watch));
    }

    fn take_call(&mut self, call: CallId) -> Option<Waiter> {
        let at = self.calls.binary_search_by_key(&call, |(id, _)| *id).ok()?;
        self.calls.remove(at).map(|(_, waiter)| waiter)
    }

    fn tell(&mut self, state: State) {
        self.states.retain(|states| states.unbounded_send(state).is_ok());
        let Some(why) = state.failure() else { return };
        self.watchers.end_all(why);
        self.states.clear();
        self.lost.clear();
    }

    fn wake_sleepers(&mut self, now: Instant) {
        while let Some(entry) = self.sleepers.first_entry().filter(|entry| entry.key().0 <= now) {
            let _ = entry.remove().send(());
        }
    }

    fn time_calls_out(&mut self, now: Instant) {
        while let Some((at, call)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, call));
            if let Some(waiter) = self.take_call(call) {
                let _ = waiter.reply.send((Err(Failure::TimedOut), None));
            }
        }
    }
}

/// The removal of a watch that nobody reads any more.
fn unwatch(path: String, mode: AddWatchMode) -> Command {
    let kind = match mode {
        AddWatchMode::Persistent => WatcherType::Persistent,
        AddWatchMode::PersistentRecursive => WatcherType::PersistentRecursive,
    };
    let request = Asked::Request(Request::Watches { path, kind, remove: true });
    Command::Call { request, wanted: None, reply: oneshot::channel().0 }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use zabkeeper_core::SessionId;
    use zabkeeper_core::wire::ConnectResponse;

    use super::*;
    use crate::session::LinkId;

    /// An engine whose session a server has accepted, and its handle.
    fn connected() -> (Client, Engine) {
        connected_after(|_| {})
    }

    /// The same; the handle is used while the server's answer is on its way.
    fn connected_after(meanwhile: impl FnOnce(&Client)) -> (Client, Engine) {
        let config = Config::new("server".parse().expect("valid"), 4_000);
        let (client, mut engine) = Engine::new(config, 7);
        let (out, link) = (&mut Outbox::default(), LinkId(1));
        engine.step(Instant(0), Input::Timeout, out);
        engine.step(Instant(0), Input::Dialled { link }, out);
        let response = ConnectResponse {
            timeout_ms: 4_000,
            session: SessionId(5),
            password: Default::default(),
            read_only: Some(false),
        };
        let mut bytes = BytesMut::new();
        response.encode(&mut bytes);
        meanwhile(&client);
        engine.step(Instant(0), Input::Received { link, bytes: bytes.freeze() }, out);
        assert_eq!(client.state(), State::Connected);
        (client, engine)
    }

    /// Who waits for a connection would wait for the next one.
    #[test]
    fn state_that_changes_while_its_stream_is_queued_is_told() {
        let mut states = None;
        let (client, mut engine) = connected_after(|client| states = Some(client.states()));
        let cx = &mut Context::from_waker(futures::task::noop_waker_ref());
        assert!(engine.poll_commands(Instant(0), cx, &mut Outbox::default()).is_ready());
        let mut states = states.expect("asked for");
        assert_eq!(Pin::new(&mut states).poll_next(cx), Poll::Ready(Some(State::Connected)));
        assert!(Pin::new(&mut states).poll_next(cx).is_pending());
        drop(client);
    }

    /// A driver would spin until the server answers (seed 95575435697574 of the swarm at 56ece3e).
    #[test]
    fn dropping_the_last_handle_closes_the_session_once() {
        let (client, mut engine) = connected();
        let cx = &mut Context::from_waker(futures::task::noop_waker_ref());
        let out = &mut Outbox::default();
        assert!(engine.poll_commands(Instant(0), cx, out).is_pending());
        drop(client.clone());
        assert!(engine.poll_commands(Instant(0), cx, out).is_pending());
        drop(client);
        assert!(engine.poll_commands(Instant(0), cx, out).is_ready());
        assert!(matches!(&out.effects[..], [Effect::Send { .. }]), "closeSession");
        assert!(engine.poll_commands(Instant(0), cx, out).is_pending());
        assert!(!engine.is_over());
    }
}
