//! The settings of a run, drawn before it begins and printed with it.
//!
//! Owns profiles, the settings and the configuration of servers. `draw` contains the ranges, `text`
//! the output. Must not draw anything during a run.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::driver::four_letter::PART_LINES;
use zabkeeper_core::driver::{self, ClientLimits, TurnLimits};
use zabkeeper_core::throttle::{ThrottleOptions, Weights};
use zabkeeper_core::wire::{FourLetterCommand, MAX_FRAME_DEFAULT};
use zabkeeper_core::{
    AuthOptions, Config, EnsembleConfig, Limits, Members, Membership, ReconfigOptions, ServerId,
    SessionOptions, TreeOptions, Voters, WallMs,
};

use crate::check::ensemble;
use crate::check::model::LocalRules;
use crate::clients::program::Recipe;
use crate::clients::workload::{Op, OpMix, WorkloadOptions};
use crate::engine::fork::{self, Fork};
use crate::engine::seed::{Rng, Seeds};
use crate::engine::selection::Selection;
use crate::faults::buggify::Choice;
use crate::faults::catalog::{Fault, FaultPlan};
use crate::faults::heal::LeftOut;
use crate::faults::targets::{self, Rule};
use crate::machine::fs::Pace;
use crate::network::stream::LinkPace;
use crate::workload::Custom;

mod bounds;
mod buggify;
mod custom;
mod draw;
#[cfg(test)]
mod drawn;
mod groups;
mod older;
mod oracle;
mod rare;
mod text;

pub use groups::Groups;
pub use older::{Older, config_of_older};

pub(crate) use draw::{draw_pace, draw_room};

/// A named preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "`sentence` is the documentation")]
pub enum Profile {
    #[default]
    Default,
    Swarm,
    Calm,
    Crashy,
    Disk,
    Net,
    Session,
    Lite,
    Perf,
}

/// Settings that the command line fixes instead of drawing them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// Virtual length of the phase of faults.
    pub duration: Option<Duration>,
    /// Number of servers, one to seven.
    pub servers: Option<u32>,
    /// Number of clients.
    pub clients: Option<u32>,
    /// Changes of the fault selection.
    pub faults: Vec<Selection<Fault>>,
    /// Changes of the operation mix.
    pub ops: Vec<Selection<Op>>,
    /// Faults at marks, instead of drawn ones.
    pub rules: Option<Vec<Rule>>,
    /// Promises whose violation does not fail the run.
    pub without: Vec<String>,
    /// Places at which the run forks.
    pub forks: Vec<Fork>,
    /// Unlikely settings that are forced.
    pub buggify: Choice,
    /// The recipe of programs, which then are in every run that can have them.
    pub recipe: Option<Recipe>,
    /// The user's workload.
    pub custom: Option<Custom>,
}

/// Default of `outbound_bytes`.
pub const OUTBOUND_BYTES: usize = 64 << 10;
/// Default of `digest_txns`.
pub const DIGEST_TXNS: u64 = 16;
/// Default of `disk_audit_txns`.
pub const DISK_AUDIT_TXNS: u64 = 128;

/// The resolved settings of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The profile they were drawn from; `None`: they come from a schedule.
    pub profile: Option<Profile>,
    /// Virtual length of the phase of faults.
    pub duration: Duration,
    /// Number of servers.
    pub servers: u32,
    /// How many of them, the last ones, are observers.
    pub observers: u32,
    /// Do followers feed them?
    pub observer_masters: bool,
    /// Number of clients.
    pub clients: u32,
    /// The faults that are injected by time.
    pub faults: FaultPlan,
    /// The faults that are injected at marks.
    pub rules: Vec<Rule>,
    /// The faults that may be injected at marks, where rules are drawn.
    pub at_marks: Option<FaultPlan>,
    /// Places at which the run forks.
    pub forks: Vec<Fork>,
    /// Settings of every server.
    pub server: ServerOptions,
    /// The servers that create local sessions, as of their first start.
    pub local: LocalRules,
    /// One restart in this many changes some settings; zero: none.
    pub config_change_one_in: u64,
    /// Settings of every client.
    pub workload: WorkloadOptions,
    /// Latencies of healthy disks.
    pub disk: Pace,
    /// Latencies of client connections.
    pub link: LinkPace,
    /// Settings of the links between servers.
    pub peers: PeerOptions,
    /// Initial number of servers of the ensemble; zero, or all: it never grows.
    pub grows_from: u32,
    /// When the remaining servers join.
    pub grows_at: Duration,
    /// Number of servers in the first configuration, if clients reconfigure the ensemble; the
    /// others list these and themselves. Zero: the configuration is static.
    pub reconfig_from: u32,
    /// Groups and weights of the servers.
    pub groups: Groups,
    /// The voter that an oracle may permit to go on without the other one; zero: there is no
    /// oracle.
    pub oracle: u32,
    /// The servers of the last release.
    pub older: Older,
    /// Content of `/zookeeper/config`, if it differs from the servers' own list.
    pub members: Option<String>,
    /// Salt for the keys of all hash maps; it must not change the run.
    pub map_salt: u64,
    /// The phase of faults ends after this many events, even if it is short; zero: no bound.
    pub fault_events: u64,
    /// The run ends where its faults would be healed.
    pub unhealed: bool,
    /// Digests are compared every this many applied transactions; less often with many nodes.
    pub digest_txns: u64,
    /// Recovery of the durable bytes is sampled every this many applied transactions; less often
    /// with a long log.
    pub disk_audit_txns: u64,
    /// Idle time before the audit, for activities that need time.
    pub rest: Duration,
    /// One client in this many vanishes for good before the rest; zero: none.
    pub gone_one_in: u32,
    /// The servers that the heal leaves out.
    pub left_out: LeftOut,
    /// Promises whose violation does not fail the run.
    pub without: Vec<String>,
    /// The user's workload; its programs do not use a recipe of the run.
    pub custom: Option<Custom>,
}

/// Settings of the links between servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerOptions {
    /// Latencies of links.
    pub link: LinkPace,
    /// Bytes that a link holds in flight; more bytes wait in the sender.
    pub window: usize,
    /// Queued inputs of other servers above which a driver pauses reads of their connections.
    pub inputs: usize,
    /// Timeout of an unanswered connection attempt, ms.
    pub dial_timeout_ms: u64,
    /// Delivery of notifications.
    pub votes: VotePace,
    /// Notifications travel on connections of the election channel, as between real servers.
    pub election_conns: bool,
    /// Some messages of the synchronization phase stall their link for up to this, ms.
    pub words_late_ms: u64,
}

/// Delivery of election notifications: one in this many is affected; zero: none. On connections of
/// the election channel it is a write that is affected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VotePace {
    /// It is lost; with its connection, if it has one.
    pub lost_one_in: u64,
    /// It is duplicated, much later; never on a connection.
    pub twice_one_in: u64,
    /// It is delayed, behind newer ones; on a connection, those behind it are as well.
    pub late_one_in: u64,
}

/// Settings of a server: its configuration, and the limits of its host and driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The tick, ms.
    pub tick_ms: u32,
    /// `initLimit` and `syncLimit`, in ticks.
    pub phase_ticks: (u32, u32),
    /// See [`Limits`].
    pub limits: Limits,
    /// Bounds of session timeouts, in ticks.
    pub session_ticks: (u32, u32),
    /// Servers with other bounds, as if an operator had forgotten to configure them.
    pub other_sessions: BTreeSet<ServerId>,
    /// The other bounds, in ticks.
    pub other_session_ticks: (u32, u32),
    /// Maximum length of a client's frame, bytes (`jute.maxbuffer`).
    pub frame_bytes: u32,
    /// Bytes in flight to a client above which the network accepts no more.
    pub outbound_bytes: usize,
    /// The driver's limits on clients.
    pub clients: ClientBounds,
    /// Connection throttling.
    pub throttle: Throttle,
    /// The four-letter command that is not on the whitelist, by its number from one; zero: all are.
    pub refused_command: u32,
    /// Lines of a part of a long answer to a four-letter command.
    pub part_lines: usize,
    /// See [`AuthOptions`].
    pub auth: AuthOptions,
    /// See [`TreeOptions`].
    pub tree: TreeOptions,
    /// Whether servers that find no leader serve read-only clients.
    pub read_only_mode: bool,
    /// Whether a leader serves clients.
    pub leader_serves: bool,
    /// Size of a log segment, bytes.
    pub segment_bytes: u64,
    /// Inputs that the driver takes in a turn.
    pub batch_inputs: usize,
    /// Units of work after which the driver takes no more inputs in a turn.
    pub turn_units: u64,
    /// Commands that the log worker takes at once.
    pub batch_commands: usize,
    /// Virtual time of one step, ns.
    pub step_ns: u64,
    /// Some timers fire late by up to this, us.
    pub timer_slack_us: u64,
    /// The log worker pauses after each batch for up to this, us.
    pub log_pause_us: u64,
    /// The snapshot worker pauses after each piece for up to this, us.
    pub snapshot_pause_us: u64,
}

/// Connection throttling; see [`ThrottleOptions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Size of the token bucket; zero disables throttling.
    pub tokens: u32,
    /// Interval at which the bucket is filled.
    pub fill: Duration,
    /// Tokens per fill.
    pub fill_count: u32,
    /// Interval between changes of the drop probability; zero: no random drops.
    pub freeze: Duration,
    /// Increase and decrease of that probability, in millionths.
    pub drops: (u32, u32),
    /// The share of the bucket that may be missing when the probability decreases, in millionths.
    pub decrease_ratio: u32,
    /// Whether new sessions cost more than renewed ones.
    pub weighted: bool,
    /// Weights of a new global session, a new local one, and a renewal.
    pub weights: (u32, u32, u32),
}

impl Throttle {
    /// The defaults of an unconfigured server.
    pub(crate) const OPEN: Throttle = Throttle {
        tokens: 0,
        fill: Duration::from_millis(1),
        freeze: Duration::ZERO,
        drops: (20_000, 2_000),
        fill_count: 1,
        decrease_ratio: 500_000,
        weighted: false,
        weights: (3, 1, 2),
    };

    /// The core's form of these settings.
    pub fn options(&self) -> ThrottleOptions {
        let Throttle { tokens, fill, fill_count, freeze, drops, .. } = *self;
        let (global, local, renew) = self.weights;
        ThrottleOptions {
            tokens,
            fill_time: fill,
            fill_count,
            freeze_time: (!freeze.is_zero()).then_some(freeze),
            drop_increase: drops.0,
            drop_decrease: drops.1,
            decrease_ratio: self.decrease_ratio,
            weights: self.weighted.then_some(Weights { global, local, renew }),
        }
    }
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 9] = [
        Profile::Default,
        Profile::Swarm,
        Profile::Calm,
        Profile::Crashy,
        Profile::Disk,
        Profile::Net,
        Profile::Session,
        Profile::Lite,
        Profile::Perf,
    ];

    /// The name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Swarm => "swarm",
            Profile::Calm => "calm",
            Profile::Crashy => "crashy",
            Profile::Disk => "disk",
            Profile::Net => "net",
            Profile::Session => "session",
            Profile::Lite => "lite",
            Profile::Perf => "perf",
        }
    }

    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// Default of `late_percent`: about the client library's own ping time.
pub const PING_PERCENT: u32 = 33;
/// Default of `calls_max`.
pub const CALLS_MAX: usize = 10_000;
/// Maximum number of servers.
pub const SERVERS_MAX: u32 = 7;
/// Maximum number of observers.
pub const OBSERVERS_MAX: u32 = 3;
/// Maximum number of clients: a world with this many needs about a gigabyte.
pub const CLIENTS_MAX: u32 = 10_000;

impl Options {
    /// All servers.
    pub fn all_servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (1..=u64::from(self.servers)).map(ServerId)
    }

    /// The voters.
    pub fn voters(&self) -> impl Iterator<Item = ServerId> + use<> {
        (1..=u64::from(self.servers - self.observers)).map(ServerId)
    }

    /// The observers.
    pub fn observers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (u64::from(self.servers - self.observers) + 1..=u64::from(self.servers)).map(ServerId)
    }

    /// All servers, with their roles.
    fn ensemble(&self) -> Members {
        Members::new(self.core_voters()).with_observers(self.observers())
    }

    /// The voters of the first configuration, if clients reconfigure the ensemble.
    pub fn reconfigured(&self) -> Option<Vec<ServerId>> {
        let first = self.reconfig_from.min(self.servers);
        (first > 1).then(|| (1..=u64::from(first)).map(ServerId).collect())
    }

    /// The configuration in the files of a server: that of the first voters, and the server itself
    /// if it is none of them (RECONF-15).
    fn listed_by(&self, id: ServerId, first: &[ServerId]) -> EnsembleConfig {
        let listed = first.iter().filter(|first| **first != id).chain([&id]);
        let lines = listed.map(|id| ensemble::line(*id, ensemble::PARTICIPANT));
        EnsembleConfig::parse(&lines.collect::<String>()).expect("servers have different addresses")
    }

    /// The voters when the run begins, if the ensemble grows.
    pub fn first_voters(&self) -> Option<Vec<ServerId>> {
        let grows = (1..self.servers).contains(&self.grows_from) && self.reconfigured().is_none();
        grows.then(|| (1..=u64::from(self.grows_from)).map(ServerId).collect())
    }

    /// The membership that all servers have. Its time differs between servers: each adds its own
    /// start.
    fn membership(&self) -> Option<Membership> {
        let called = || {
            let ensemble = self.ensemble();
            let line = |id: ServerId| {
                let role = if ensemble.is_observer(id) { "observer" } else { "participant" };
                format!("server.{id}=10.0.1.{id}:2888:3888:{role}\n")
            };
            let lines: String = self.all_servers().map(line).collect();
            lines + &self.group_lines() + "version=0"
        };
        let text = || self.members.clone().unwrap_or_else(called);
        let is_static = self.servers > 1 && self.reconfigured().is_none();
        is_static.then(|| Membership { text: text(), since: WallMs(1) })
    }

    /// The configuration of one server.
    pub fn config(&self, id: ServerId) -> Config {
        let Some(first) = self.reconfigured() else {
            return self.config_among(id, self.ensemble());
        };
        let initial = self.listed_by(id, &first);
        let mut config = self.config_among(id, initial.members().clone());
        config.reconfig =
            Some(ReconfigOptions { initial, single_voter: false, multi_address: false });
        config
    }

    /// The same for these members.
    pub fn config_among(&self, id: ServerId, members: impl Into<Members>) -> Config {
        let (init, sync) = self.server.phase_ticks;
        let mut config = config(id, members.into(), self.server.tick_ms)
            .with_phase_limits(init, sync)
            .and_then(|config| config.with_tree(self.server.tree.clone()))
            .and_then(|config| {
                let ServerOptions { session_ticks, other_sessions, other_session_ticks, .. } =
                    &self.server;
                let others = other_sessions.contains(&id);
                let (tick, ticks) = (config.tick(), session_ticks);
                let (min, max) = if others { *other_session_ticks } else { *ticks };
                config.with_session_timeouts(tick * min, tick * max.max(min))
            })
            .expect("no limit is drawn as zero");
        config.limits = self.server.limits.clone();
        config.auth = self.server.auth.clone();
        config.read_only_mode = self.server.read_only_mode;
        config.leader_serves = self.server.leader_serves;
        config.observer_masters = self.observer_masters;
        config.oracle = self.permitted().is_some();
        config.membership = self.membership();
        config.map_salt = self.map_salt;
        let LocalRules { servers, upgrade } = &self.local;
        config.sessions = SessionOptions { local: servers.contains(&id), upgrade: *upgrade };
        config
    }
}

/// The drawn limits on clients; see [`ClientLimits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientBounds {
    /// Bytes of queued output above which the driver does not read from a client.
    pub output_bytes: usize,
    /// Bytes of queued events above which the driver closes the connection.
    pub event_bytes: u64,
    /// Unanswered requests of all clients above which the driver reads only from clients without
    /// any.
    pub outstanding: u64,
    /// Unanswered requests of all clients at which the driver reads from none; 0: no bound.
    pub throttle_max_requests: u64,
    /// Timeout of the handshake, ms.
    pub sessionless_ms: u64,
}

impl ClientBounds {
    /// The defaults of an unconfigured server.
    pub const USUAL: ClientBounds = ClientBounds {
        output_bytes: 4 << 20,
        event_bytes: 10 << 20,
        outstanding: 1_000,
        throttle_max_requests: 0,
        sessionless_ms: 10_000,
    };
}

impl Options {
    /// The driver's options for other servers; `ensemble` is the ensemble id that the server knows,
    /// `older`: it runs the last release.
    pub fn driver_peers(&self, ensemble: u64, older: bool) -> driver::PeerOptions {
        driver::PeerOptions {
            ensemble,
            inputs: self.peers.inputs,
            version: older::version(older),
            ..driver::PeerOptions::new(self.server.frame_bytes)
        }
    }
}

impl ServerOptions {
    /// The driver's limits on clients.
    pub fn client_limits(&self) -> ClientLimits {
        ClientLimits {
            max_frame: self.frame_bytes,
            connections_per_ip: None,
            throttle: self.throttle.options(),
            output_bytes: self.clients.output_bytes,
            event_bytes: self.clients.event_bytes,
            outstanding: self.clients.outstanding,
            throttle_max_requests: Some(self.clients.throttle_max_requests)
                .filter(|bound| *bound > 0),
            sessionless_timeout: Duration::from_millis(self.clients.sessionless_ms),
            ..ClientLimits::default()
        }
    }

    /// The four-letter command that is not on the whitelist.
    pub fn refused(&self) -> Option<FourLetterCommand> {
        let at = usize::try_from(self.refused_command.checked_sub(1)?).ok()?;
        FourLetterCommand::all().nth(at)
    }

    /// The driver's limits per turn.
    pub fn turn_limits(&self) -> TurnLimits {
        let (inputs, units) = (self.batch_inputs, self.turn_units);
        TurnLimits { inputs, units }
    }

    /// The tick.
    pub fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms.into())
    }

    /// `syncLimit`: timeout of the silence between leader and follower.
    pub fn sync_limit(&self) -> Duration {
        Duration::from_nanos(self.sync_limit_ns())
    }

    /// The same, ns.
    pub fn sync_limit_ns(&self) -> u64 {
        u64::from(self.tick_ms) * u64::from(self.phase_ticks.1) * 1_000_000
    }

    /// The defaults of an unconfigured server.
    pub(crate) fn usual() -> ServerOptions {
        let limits = usual_limits(2_000);
        ServerOptions {
            tick_ms: 2_000,
            phase_ticks: (10, 5),
            limits,
            session_ticks: (2, 20),
            other_sessions: BTreeSet::new(),
            other_session_ticks: (2, 20),
            frame_bytes: MAX_FRAME_DEFAULT,
            outbound_bytes: OUTBOUND_BYTES,
            clients: ClientBounds::USUAL,
            throttle: Throttle::OPEN,
            refused_command: 0,
            part_lines: PART_LINES,
            read_only_mode: false,
            leader_serves: true,
            auth: AuthOptions::default(),
            tree: TreeOptions::default(),
            segment_bytes: 1 << 20,
            batch_inputs: 64,
            turn_units: 10_000,
            batch_commands: usize::MAX,
            step_ns: 1_000,
            timer_slack_us: 0,
            log_pause_us: 0,
            snapshot_pause_us: 0,
        }
    }
}

impl VotePace {
    /// All notifications arrive once, without delay.
    pub const WELL: VotePace = VotePace { lost_one_in: 0, twice_one_in: 0, late_one_in: 0 };
}

fn config(id: ServerId, members: Members, tick_ms: u32) -> Config {
    let tick = Duration::from_millis(tick_ms.into());
    Config::new(id, members, tick).expect("ticks are never zero here, and servers are members")
}

fn usual_limits(tick_ms: u32) -> Limits {
    config(ServerId(1), Voters::new([ServerId(1)]).into(), tick_ms).limits
}
