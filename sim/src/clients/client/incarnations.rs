//! Incarnations of a client: sessions begun, resumed, closed and abandoned.
//!
//! Owns their order. Must not know its calls.

use zabkeeper_client::{Config, ConnectString, ServerAddr, Session};

use super::calls::Probe;
use super::*;
use crate::engine::decisions::Due;
use crate::network::stream::{Break, Silence};
use crate::world::options::Options;

/// Minimum pause between rounds of connection attempts: without it a server that is down would be
/// dialled a thousand times a second.
const ROUND_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Host name of each server, before its id.
const HOST: &str = "server";

/// The server with this name.
pub(crate) fn server_of(addr: &ServerAddr) -> ServerId {
    let id = addr.host.strip_prefix(HOST).and_then(|id| id.parse().ok());
    ServerId(id.expect("a name of the connect string"))
}

/// The configuration of the client library in this run.
pub(crate) fn library_config(
    options: &Options,
    timeout_ms: i32,
    resume: Option<(SessionId, Password)>,
) -> Config {
    let names: Vec<String> = options.all_servers().map(|id| format!("{HOST}{id}")).collect();
    let servers = names.join(",").parse::<ConnectString>().expect("a valid connect string");
    let workload = &options.workload;
    let reconnect = std::time::Duration::from_millis(workload.reconnect_ms);
    let mut config = Config::new(servers, timeout_ms);
    config.resume = resume;
    config.reconnect_delay_max = reconnect;
    config.round_pause = reconnect.max(ROUND_PAUSE);
    config.watches_bytes = workload.watches_bytes;
    config.request_bytes_max = workload.request_bytes;
    config.calls_max = workload.calls_max;
    config
}

impl Client {
    /// Begins a new session, or resumes one.
    pub fn start_session(&mut self, incarnation: u64, shared: &mut Shared) {
        if incarnation != self.incarnation || self.library.is_some() || self.absent {
            return;
        }
        // A schedule may set one of the bounds without the other.
        let (low, high) = shared.options.workload.session_ms;
        let high = high.max(low);
        let (resume, timeout) = match self.resumed.take() {
            Some((identity, timeout_ms)) => (Some(identity), timeout_ms),
            None => (None, self.rng.range(low, high)),
        };
        let timeout = i32::try_from(timeout).unwrap_or(i32::MAX);
        let mut config = library_config(&shared.options, timeout, resume);
        let is_program = u64::from(self.id.0) < shared.options.workload.programs;
        // Programs write, and their recipes return the refusal of a read-only server (seed
        // 0xbf5233a50219 of the swarm at bf5233a).
        config.read_only = self.read_only && !is_program;
        self.library = Some(if is_program {
            self.new_program(config, shared)
        } else {
            Library::Session(Box::new(Session::new(config, self.rng.word())))
        });
        shared.recorder.counters.counts.sessions += u64::from(resume.is_none());
        self.step(Input::Timeout, shared);
        let (client, incarnation) = (self.id, self.incarnation);
        if self.probe == Probe::NotAsked {
            shared.decisions.plan(Instant(shared.now.0 + 1), Due::Work { client, incarnation });
        } else {
            shared.after(0, Event::Probe { client, incarnation });
        }
    }

    /// The client vanishes without closing its session; a new incarnation begins. `silent`: its
    /// kernel sends no reset either.
    pub fn die(&mut self, silent: bool, shared: &mut Shared) {
        self.vanish(silent, shared);
        self.end(shared);
    }

    /// The client vanishes for good, without closing its session.
    pub fn leave(&mut self, silent: bool, shared: &mut Shared) {
        self.absent = true;
        self.vanish(silent, shared);
        self.end_incarnation(shared);
    }

    /// The client loses its connection, reconnects, and then vanishes as with [`Client::die`].
    pub fn abandon_later(&mut self, shared: &mut Shared) {
        self.abandons = true;
        for conn in self.conns.keys() {
            shared.net.break_off(shared.now, *conn, Break::Both);
        }
        shared.schedule_arrivals();
    }

    /// Like [`Client::die`], but the new incarnation resumes the session after `after` ns, knowing
    /// only id and password, and requests another timeout.
    pub fn restart(&mut self, silent: bool, timeout_ms: u64, after: u64, shared: &mut Shared) {
        // The nodes of a program's earlier incarnation would live on with its session.
        let Some(identity) = self.identity().filter(|_| !self.runs_program()) else {
            return self.die(silent, shared);
        };
        self.vanish(silent, shared);
        shared.observe(Observation::Forgotten { session: identity.0 });
        self.resumed = Some((identity, timeout_ms));
        self.end_incarnation(shared);
        shared.after(after, Event::SessionStart { client: self.id, incarnation: self.incarnation });
    }

    fn vanish(&mut self, silent: bool, shared: &mut Shared) {
        let conns = std::mem::take(&mut self.conns);
        for conn in conns.into_keys() {
            let late = Instant(shared.now.0 + 30_000_000_000);
            let silence = silent.then_some(Silence { late, on_write: true });
            shared.net.abandon(shared.now, conn, End::Dialler, silence);
            shared.observe(Observation::ConnClosed { conn });
        }
        shared.schedule_arrivals();
    }

    /// The client closes its session.
    pub fn close(&mut self, shared: &mut Shared) {
        self.jot(|| Word::Left);
        self.step(Input::Close, shared);
    }

    /// The session or its client has ended; the next incarnation begins within a second.
    pub(super) fn end(&mut self, shared: &mut Shared) {
        self.end_incarnation(shared);
        if self.diary.is_some() {
            return;
        }
        let after = self.rng.range(1, 1_000_000_000);
        shared.after(after, Event::SessionStart { client: self.id, incarnation: self.incarnation });
    }

    fn end_incarnation(&mut self, shared: &mut Shared) {
        self.library = None;
        self.mailbox = None;
        self.memory = Memory::default();
        self.incarnation += 1;
        self.abandons = false;
        self.links.clear();
        for conn in std::mem::take(&mut self.conns).into_keys() {
            shared.net.close(shared.now, conn, End::Dialler);
            shared.observe(Observation::ConnClosed { conn });
        }
        shared.schedule_arrivals();
        self.calls.clear();
        self.out.effects.clear();
        self.deadline_at = None;
        if self.probe == Probe::UnderWay {
            self.probe = Probe::Wanted;
        }
        self.jot(|| Word::Over);
    }
}
