//! How a client comes into being and ends: sessions begun, taken up again, closed and left behind.
//!
//! Owns the order of its lives. Must not know what it calls.

use zabkeeper_client::{Config, ConnectString};

use super::*;
use crate::options::Options;
use crate::stream::{Break, Silence};

/// Least pause between attempts to connect: without any, a server that is down is dialled a thousand times a second.
const ROUND_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What the client library is told in this run.
pub(crate) fn library_config(
    options: &Options,
    timeout_ms: i32,
    resume: Option<(SessionId, Password)>,
) -> Config {
    let names: Vec<String> = options.voters().map(|id| format!("server{id}")).collect();
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
    /// Begins a new session, or goes on with one.
    pub fn birth(&mut self, life: u64, shared: &mut Shared) {
        if life != self.life || self.session.is_some() || self.absent {
            return;
        }
        // A schedule may say one without the other.
        let (low, high) = shared.options.workload.session_ms;
        let high = high.max(low);
        let (resume, timeout) = match self.resumed.take() {
            Some((identity, timeout_ms)) => (Some(identity), timeout_ms),
            None => (None, self.dice.range(low, high)),
        };
        let timeout = i32::try_from(timeout).unwrap_or(i32::MAX);
        let config = library_config(&shared.options, timeout, resume);
        self.session = Some(Session::new(config, self.dice.word()));
        shared.tally.counts.sessions += u64::from(resume.is_none());
        self.step(Input::Timeout, shared);
        let (client, life) = (self.id, self.life);
        if self.probe == Probe::NotAsked {
            shared.agenda.plan(Instant(shared.now.0 + 1), Due::Work { client, life });
        } else {
            shared.after(0, Event::Probe { client, life });
        }
    }

    /// The client vanishes without a word; a new one takes its place. `silent`: not even its kernel speaks.
    pub fn die(&mut self, silent: bool, shared: &mut Shared) {
        self.vanish(silent, shared);
        self.end(shared);
    }

    /// The client vanishes without a word, for good.
    pub fn leave(&mut self, silent: bool, shared: &mut Shared) {
        self.absent = true;
        self.vanish(silent, shared);
        self.leave_life(shared);
    }

    /// The client vanishes as with `die`, but it loses its connection first, and comes back once more.
    pub fn fade(&mut self, shared: &mut Shared) {
        self.fades = true;
        for conn in self.conns.keys() {
            shared.net.break_off(shared.now, *conn, Break::Both);
        }
        shared.schedule_arrivals();
    }

    /// The same, but the new one goes on with the session `after` ns: it knows no more of it than id and password, and asks
    /// for another timeout.
    pub fn restart(&mut self, silent: bool, timeout_ms: u64, after: u64, shared: &mut Shared) {
        let Some(identity) = self.identity() else {
            return self.die(silent, shared);
        };
        self.vanish(silent, shared);
        shared.observe(Observation::Forgotten { session: identity.0 });
        self.resumed = Some((identity, timeout_ms));
        self.leave_life(shared);
        shared.after(after, Event::Birth { client: self.id, life: self.life });
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

    /// The client ends its session as a good client does.
    pub fn close(&mut self, shared: &mut Shared) {
        self.jot(|| Word::Left);
        self.step(Input::Close, shared);
    }

    /// The session is over, or the client that had it; the next one begins a little later.
    pub(super) fn end(&mut self, shared: &mut Shared) {
        self.leave_life(shared);
        if self.diary.is_some() {
            return;
        }
        let after = self.dice.range(1, 1_000_000_000);
        shared.after(after, Event::Birth { client: self.id, life: self.life });
    }

    fn leave_life(&mut self, shared: &mut Shared) {
        self.session = None;
        self.memory = Memory::default();
        self.life += 1;
        self.fades = false;
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
