//! The driver, a layer between core and host: it turns bytes of clients and other servers into
//! inputs of the core and the core's output into bytes, and schedules both.
//!
//! Owns the bytes of all connections in both directions, the bounds on the memory that remote ends
//! may occupy, and the order in which inputs reach the [`Server`]. It may delay, drop and refuse
//! input; it takes no protocol decision. Must not access a socket, a file or a clock: the host has
//! those, and calls this module.

pub mod admin;
mod admission;
mod clients;
mod close;
mod conn;
pub mod explain;
mod flush;
pub mod four_letter;
mod intake;
mod limits;
mod meter;
pub mod metrics;
mod note;
mod output;
mod peers;
mod queue;
mod recorder;
mod reports;
mod socket;
#[cfg(test)]
mod tests;
mod unfinished;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::config::Config;
use crate::ids::{ConnId, Instant, ServerId, Zxid};
use crate::io::{ClientEvent, Input, Now, Outbox, Pressure};
use crate::server::Server;
use crate::store::DiskEvent;
use crate::wire::FourLetterCommand;

pub use admission::TooManyConnections;
pub use clients::{Clients, Interest};
pub use close::ConnCloseReason;
pub use conn::{ClientLine, ClientUse};
use four_letter::{FourLetter, FourLetterOptions, Whitelist};
pub use limits::{ClientLimits, LargeRequests};
use meter::Meter;
use metrics::Sample;
pub use note::ClientNote;
pub use peers::{PeerCloseReason, PeerDial, PeerLine, PeerNote, PeerOptions, Peers};
pub use recorder::{FlightRecorder, Record};
pub use reports::{MemberAddresses, Report, ReportLevel, Reports};
pub use socket::SocketId;

/// Bounds of the work in a turn, after which the host executes the turn's orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnLimits {
    /// Inputs of other servers in a turn, and as many of clients: bounds how long either kind
    /// delays the other. Default 4,096.
    pub inputs: usize,
    /// Units of work, as the core counts them, after which a turn takes no further input of
    /// servers, or of clients. One input is not interrupted. Default 10,000, some ten milliseconds.
    pub units: u64,
}

/// The layer between a host's sockets, disk and timers and its [`Server`].
#[derive(Debug)]
pub struct Driver {
    /// Connections of clients.
    pub clients: Clients,
    /// Connections with other servers.
    pub peers: Peers,
    /// Four-letter commands.
    pub four_letter: FourLetter,
    /// Lines for the operator's log.
    pub reports: Reports,
    meter: Meter,
    is_ensemble: bool,
    /// The versions of the configuration in force and of the newest one that the parts of the
    /// driver know.
    config_versions: Option<(Zxid, Zxid)>,
    limits: TurnLimits,
    disk: VecDeque<DiskEvent>,
    turn: Turn,
    stops: bool,
    /// The core has to get [`Input::Stop`].
    sends_stop: bool,
    /// What the oracle says, until the core has got it.
    oracle: Option<bool>,
    oracle_permits: bool,
}

/// Progress of a turn.
#[derive(Debug, Default)]
struct Turn {
    stage: Stage,
    /// Inputs taken in this stage, and the units that they have cost.
    inputs: usize,
    spent: u64,
    /// Connections whose input waits for a later turn; the core receives a heartbeat for each
    /// before the deadline that is due.
    heartbeats: Vec<ConnId>,
    deadline: bool,
}

/// The source from which inputs are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Disk,
    Servers,
    Clients,
    Deadline,
}

impl Default for TurnLimits {
    fn default() -> TurnLimits {
        TurnLimits { inputs: 4096, units: 10_000 }
    }
}

impl Driver {
    /// A driver without connections. `seed` feeds the random drops of `connection_throttle_*`.
    pub fn new(
        config: Arc<Config>,
        limits: ClientLimits,
        peers: PeerOptions,
        turn: TurnLimits,
        seed: u64,
        now: Instant,
    ) -> Driver {
        Driver {
            is_ensemble: !config.members().alone(),
            config_versions: None,
            clients: Clients::new(Arc::clone(&config), limits, seed, now),
            four_letter: FourLetter::new(Arc::clone(&config), now),
            reports: Reports::new(&config),
            meter: Meter::new(now),
            peers: Peers::new(config, peers),
            limits: turn,
            disk: VecDeque::new(),
            turn: Turn::default(),
            stops: false,
            sends_stop: false,
            oracle: None,
            oracle_permits: false,
        }
    }

    /// Sets the options of four-letter commands. Without them only `srvr` is answered.
    #[must_use]
    pub fn with_four_letter(mut self, options: FourLetterOptions) -> Driver {
        let reads_trace_mask = options.whitelist.allows(FourLetterCommand::Stmk);
        self.clients.common.reads_trace_mask = reads_trace_mask;
        self.four_letter.set_options(options);
        self
    }

    /// Takes the bounds that can change while clients are connected from `newer`, and the
    /// four-letter commands that are answered.
    pub fn reload(&mut self, newer: &ClientLimits, whitelist: Whitelist) {
        self.clients.common.limits.reload(newer);
        self.clients.common.reads_trace_mask = whitelist.allows(FourLetterCommand::Stmk);
        self.four_letter.set_whitelist(whitelist);
    }

    /// Sets the members of the ensemble with their addresses, for reports. Without them the server
    /// counts as a standalone one, which has no role and waits for no other.
    #[must_use]
    pub fn with_members(mut self, members: BTreeMap<ServerId, MemberAddresses>) -> Driver {
        self.reports.set_members(members);
        self
    }

    /// Queues an input from the disk or from another server. The driver makes inputs of clients and
    /// of deadlines itself.
    pub fn push(&mut self, input: Input) {
        match input {
            Input::Disk(event) => self.disk.push_back(event),
            Input::Election(..) | Input::EnsembleConfig(..) | Input::Peer(..) => {
                self.peers.push(input);
            }
            Input::Timeout | Input::Client(..) | Input::Stop | Input::Oracle(_) => {
                unreachable!("{input} comes from the driver")
            }
        }
    }

    /// The process is to stop: stops reading from clients, and tells the core at the end of the
    /// next turn, after the requests that have been read. The host exits once
    /// [`Server::may_exit`] returns `true`, and all requests are answered as far as it waits for
    /// that.
    pub fn stop(&mut self) {
        self.stops = true;
        self.sends_stop = true;
    }

    /// The host has asked the oracle whether this server may go on without the other voter
    /// (`oraclePath`): passes on a change of the answer.
    pub fn on_oracle(&mut self, permits: bool) {
        if std::mem::replace(&mut self.oracle_permits, permits) != permits {
            self.oracle = Some(permits);
        }
    }

    /// Begins a turn. The host then calls [`Driver::next_input`] until it returns `None`, gives
    /// each input to [`Server::step`], and calls [`Driver::deliver`].
    pub fn begin_turn(&mut self, now: Now) {
        self.turn = Turn::default();
        self.meter.begin_turn(now);
        self.clients.begin_turn(now.mono);
        self.peers.begin_turn(now.mono);
    }

    /// The next input of this turn; `cost` is the cost of the previous input, in units. The order
    /// is: completions of the disk, a bounded number of inputs of servers and then of clients, the
    /// deadline of the server. The bounds keep clients from starving the others.
    pub fn next_input(&mut self, now: Now, server: &Server, cost: u64) -> Option<Input> {
        let input = self.take_input(now, server, cost)?;
        self.meter.on_input(&input, self.clients.metrics_mut());
        Some(input)
    }

    fn take_input(&mut self, now: Now, server: &Server, cost: u64) -> Option<Input> {
        let Turn { stage, .. } = self.turn;
        self.turn.spent += cost;
        if let Some(permits) = self.oracle.take() {
            return Some(Input::Oracle(permits));
        }
        if stage == Stage::Disk {
            if let Some(event) = self.disk.pop_front() {
                return Some(Input::Disk(event));
            }
            self.turn.enter(Stage::Servers);
        }
        if self.turn.stage == Stage::Servers {
            if self.turn.goes_on(&self.limits) {
                let heartbeat = self.clients.next_heartbeat();
                let heartbeat = heartbeat.map(|conn| Input::Client(conn, ClientEvent::Heartbeat));
                if let Some(input) = heartbeat.or_else(|| self.peers.next_input()) {
                    return Some(input);
                }
            }
            self.turn.enter(Stage::Clients);
        }
        if self.turn.stage == Stage::Clients {
            let cost = if stage == Stage::Clients { cost } else { 0 };
            if self.turn.goes_on(&self.limits)
                && let Some(input) = self.clients.common.queue.next(cost)
            {
                return Some(input);
            }
            self.clients.common.queue.end_turn(cost);
            self.turn.enter(Stage::Deadline);
            if server.next_deadline().is_some_and(|(at, _)| at <= now.mono) {
                // Input that has arrived renews its session, although it waits for a later turn
                // (SESS-05).
                self.turn.heartbeats = self.clients.common.queue.take_waiting();
                self.turn.deadline = true;
            }
        }
        if let Some(conn) = self.turn.heartbeats.pop() {
            return Some(Input::Client(conn, ClientEvent::Heartbeat));
        }
        if std::mem::take(&mut self.turn.deadline) {
            return Some(Input::Timeout);
        }
        std::mem::take(&mut self.sends_stop).then_some(Input::Stop)
    }

    /// Counts what the core has done in this turn, and reports the core's notices. The host calls
    /// it before it takes the commands for the disk and clears notices and marks.
    pub fn observe(&mut self, out: &Outbox) {
        self.meter.on_outbox(out, self.clients.metrics_mut());
        self.reports.on_outbox(out, &self.clients);
    }

    /// Queues the core's output for clients and other servers, and answers four-letter commands.
    /// The host then offers output to the sockets, see [`Driver::next_to_flush`], opens
    /// connections, see [`Peers::next_dial`], and collects the facts that answers wait for, see
    /// [`FourLetter::next_query`].
    pub fn deliver(&mut self, now: Now, server: &Server, out: &mut Outbox) {
        let reads = server.pressure() == Pressure::Accept && !self.stops;
        out.measures.clear();
        self.clients.deliver(&mut out.clients, reads, now.mono);
        self.follow_config(server);
        self.peers.set_ensemble(server.ensemble_id());
        self.peers.set_members(server.members());
        self.peers.deliver(&mut out.peers, &mut out.election, now.mono);
        // Only a server of an ensemble changes its role: turns of others ask for no status.
        let status = self.is_ensemble.then(|| server.status());
        if let Some(status) = &status {
            self.four_letter.note_role(status, now.mono);
            self.meter.on_turn_end(status, self.clients.metrics_mut());
        }
        self.four_letter.answer(&mut self.clients, server, now);
        if let Some(status) = &status {
            self.reports.on_turn_end(status, server, &self.peers, self.stops, now.mono);
        }
    }

    /// The list of figures that `mntr` prints, whether clients are served or not. `descriptors` are
    /// those of the process, if the system shows them.
    pub fn samples(
        &self,
        server: &Server,
        descriptors: Option<four_letter::Descriptors>,
        now: Instant,
    ) -> Vec<Sample> {
        self.four_letter.samples(&self.clients, server, &server.status(), descriptors, now)
    }

    /// Passes on a configuration that is logged or has come into force: reports and answers name
    /// the servers of the one in force, and other servers get it with notifications.
    fn follow_config(&mut self, server: &Server) {
        let Some((config, newest)) = server.ensemble_configs() else { return };
        let versions = Some((config.version, newest.version));
        if self.config_versions == versions {
            return;
        }
        self.config_versions = versions;
        self.peers.set_configs(server.noted_configs());
        self.is_ensemble |= !config.members().alone();
        self.reports.set_members(config.servers().map(MemberAddresses::of).collect());
        self.four_letter.set_ensemble_config(config);
    }

    /// Is there work for another turn, even if nothing arrives?
    pub fn has_work(&self) -> bool {
        !self.disk.is_empty()
            || self.sends_stop
            || self.oracle.is_some()
            || self.peers.has_work()
            || self.clients.has_work()
            || self.four_letter.has_work()
    }

    /// When the next turn is due, if nothing arrives before.
    pub fn next_deadline(&self, server: &Server) -> Option<Instant> {
        let due = server.next_deadline().map(|(at, _)| at);
        let own = [
            self.clients.next_deadline(),
            self.peers.next_deadline(),
            self.reports.next_deadline(),
        ];
        due.into_iter().chain(own.into_iter().flatten()).min()
    }
}

/// Notes: a checker takes them one by one; a host has them reported.
impl Driver {
    /// Are there notes to take?
    pub fn has_notes(&self) -> bool {
        self.clients.has_notes() || self.peers.has_notes()
    }

    /// Makes reports of the notes about clients and other servers.
    pub fn report_notes(&mut self) {
        for note in self.clients.take_notes() {
            self.reports.on_client_note(&note, self.clients.limits());
        }
        for note in self.peers.take_notes() {
            self.reports.on_peer_note(&note);
        }
    }
}

impl Turn {
    fn enter(&mut self, stage: Stage) {
        (self.stage, self.inputs, self.spent) = (stage, 0, 0);
    }

    /// May this stage take one more input?
    fn goes_on(&mut self, limits: &TurnLimits) -> bool {
        self.inputs += 1;
        self.inputs <= limits.inputs && self.spent < limits.units
    }
}
