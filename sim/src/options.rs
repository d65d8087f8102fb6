//! Everything that is drawn before a run begins, and printed with it.
//!
//! Owns profiles, what there is to be set, and the configuration that servers get. `draw` has the ranges, `text` the lines.
//! Must not draw anything while the run goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::driver::{self, ClientLimits, TurnLimits};
use zabkeeper_core::throttle::{ThrottleOptions, Weights};
use zabkeeper_core::wire::MAX_FRAME_DEFAULT;
use zabkeeper_core::{
    AuthOptions, Config, Limits, Membership, ServerId, SessionOptions, TreeOptions, Voters, WallMs,
};

use crate::buggify::Choice;
use crate::faults::{Fault, FaultPlan};
use crate::fork::{self, Fork};
use crate::fs::Pace;
use crate::heal::LeftOut;
use crate::model::{LocalRules, Rules, TimeoutBounds};
use crate::seed::{Dice, Seeds};
use crate::selection::Selection;
use crate::stream::LinkPace;
use crate::targets::{self, Rule};
use crate::workload::{self, Op, OpMix};

mod draw;
#[cfg(test)]
mod drawn;
mod rare;
mod text;

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

/// What a user pins instead of having it drawn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// Virtual length of the safety phase.
    pub duration: Option<Duration>,
    /// Number of servers, one to seven.
    pub servers: Option<u32>,
    /// Number of clients.
    pub clients: Option<u32>,
    /// Changes of the fault selection.
    pub faults: Vec<Selection<Fault>>,
    /// Changes of what clients ask for.
    pub ops: Vec<Selection<Op>>,
    /// What strikes at marks, instead of what is drawn.
    pub rules: Option<Vec<Rule>>,
    /// Promises whose breaking does not count.
    pub without: Vec<String>,
    /// Where the run leaves the way of its seed.
    pub forks: Vec<Fork>,
    /// Which unlikely choices are forced.
    pub buggify: Choice,
}

/// See `outbound_bytes`; where nobody says.
pub const OUTBOUND_BYTES: usize = 64 << 10;
/// See `digest_txns`; where nobody says.
pub const DIGEST_TXNS: u64 = 16;
/// See `truth_txns`; where nobody says.
pub const TRUTH_TXNS: u64 = 128;

/// The resolved settings of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Where they come from; `None`: from a schedule.
    pub profile: Option<Profile>,
    /// Virtual length of the safety phase.
    pub duration: Duration,
    /// Number of servers, all of them voters.
    pub servers: u32,
    /// Number of clients.
    pub clients: u32,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// What strikes at marks.
    pub rules: Vec<Rule>,
    /// What may, where rules are drawn.
    pub at_marks: Option<FaultPlan>,
    /// Where the run leaves the way of its seed.
    pub forks: Vec<Fork>,
    /// Of every server.
    pub server: ServerOptions,
    /// Which servers keep new sessions to themselves, when they are first started.
    pub local: LocalRules,
    /// One restart in so many is with other settings than the start before; zero: none.
    pub retold_one_in: u64,
    /// Of every client.
    pub workload: WorkloadOptions,
    /// How disks behave when they are well.
    pub disk: Pace,
    /// How connections of clients behave.
    pub link: LinkPace,
    /// What is between servers.
    pub peers: PeerOptions,
    /// At first so many servers are the ensemble; zero, or all: it never grows.
    pub grows_from: u32,
    /// When all the others join it.
    pub grows_at: Duration,
    /// What `/zookeeper/config` shows in an ensemble, where it is not what these servers are called.
    pub members: Option<String>,
    /// Goes into the keys of all hash maps, and must change nothing.
    pub map_salt: u64,
    /// The phase with faults ends after so many events, however short it has been; zero: there is no bound.
    pub fault_events: u64,
    /// The run ends where its faults would be healed.
    pub unhealed: bool,
    /// Digests are compared after so many applied transactions; with many nodes after more.
    pub digest_txns: u64,
    /// Ground truth is looked at after so many applied transactions; with a long log after more.
    pub truth_txns: u64,
    /// Nobody asks for anything for so long before the audit: for what takes its time.
    pub rest: Duration,
    /// One client in so many is gone for good before that, without a word; zero: none.
    pub gone_one_in: u32,
    /// Whom the heal leaves out.
    pub left_out: LeftOut,
    /// Promises whose breaking does not count.
    pub without: Vec<String>,
}

/// What is between servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerOptions {
    /// How links behave.
    pub link: LinkPace,
    /// Bytes that a link holds under way; what is more waits in the sender.
    pub window: usize,
    /// Inputs of other servers that wait, above which a server's driver does not read their connections.
    pub inputs: usize,
    /// When an attempt to connect that nobody answers is given up, ms.
    pub dial_timeout_ms: u64,
    /// How notifications travel.
    pub votes: VotePace,
    /// Some words by which a learner is brought in stall their link for up to this, ms.
    pub words_late_ms: u64,
}

/// How notifications of elections travel: one in so many is treated badly; zero: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VotePace {
    /// Never arrives.
    pub lost_one_in: u64,
    /// Arrives again, much later.
    pub twice_one_in: u64,
    /// Arrives late, after newer ones.
    pub late_one_in: u64,
}

/// Settings of a server: its configuration, and how its driver behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// The unit of timeouts, ms.
    pub tick_ms: u32,
    /// Ticks that an election may take until service begins, and that leader and follower wait for each other.
    pub phase_ticks: (u32, u32),
    /// See [`Limits`].
    pub limits: Limits,
    /// Bounds of session timeouts, in ticks.
    pub session_ticks: (u32, u32),
    /// Of these servers they are others, as where an operator has forgotten some.
    pub other_sessions: BTreeSet<ServerId>,
    /// Which, in ticks.
    pub other_session_ticks: (u32, u32),
    /// Bytes of the longest frame that a client may send (`jute.maxbuffer`).
    pub frame_bytes: u32,
    /// Bytes on their way to a client above which the network takes no more.
    pub outbound_bytes: usize,
    /// What a server's driver lets clients take up.
    pub clients: ClientBounds,
    /// How many clients may connect in a time.
    pub throttle: Throttle,
    /// See [`AuthOptions`].
    pub auth: AuthOptions,
    /// See [`TreeOptions`].
    pub tree: TreeOptions,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Inputs that the driver takes at once.
    pub batch_inputs: usize,
    /// Units of work after which the driver takes no more inputs in a turn.
    pub turn_units: u64,
    /// Commands that the log worker takes at once.
    pub batch_commands: usize,
    /// Virtual time of one step, ns.
    pub step_ns: u64,
    /// Some deadlines come late by up to this, us.
    pub timer_slack_us: u64,
    /// The worker that writes the log pauses behind each batch, up to this, us.
    pub log_pause_us: u64,
    /// The one that writes snapshots does behind each piece, us.
    pub snapshot_pause_us: u64,
}

/// How many clients may connect in a time; see [`ThrottleOptions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Zero lets everybody in.
    pub tokens: u32,
    /// Time in which the bucket gets tokens.
    pub fill: Duration,
    /// How many.
    pub fill_count: u32,
    /// Time between changes of random drops; zero: there are none.
    pub freeze: Duration,
    /// What their probability gains and loses, in millionths.
    pub drops: (u32, u32),
    /// Which part of the bucket may be missing where that probability falls, in millionths.
    pub decrease_ratio: u32,
    /// Does a new session cost more than an old one?
    pub weighted: bool,
    /// What a new session, a new local one, and going on with one cost then.
    pub weights: (u32, u32, u32),
}

impl Throttle {
    /// As a user would have it who configures nothing.
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

    /// As the core has it.
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

/// What clients do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadOptions {
    /// Calls of all clients together in a virtual second, in the mean.
    pub calls_per_second: u64,
    /// Number of paths.
    pub paths: u64,
    /// How many times more the first two of them are named, between them.
    pub hot: u64,
    /// Calls of one client that may be under way at once.
    pub depth: usize,
    /// Longest data, bytes.
    pub data_bytes: usize,
    /// Least and greatest session timeout asked for, ms.
    pub session_ms: (u64, u64),
    /// Which operations, how often.
    pub mix: OpMix,
    /// Greatest delay before a reconnect, ms.
    pub reconnect_ms: u64,
    /// Bytes of paths that a client puts into one request that sets watches again.
    pub watches_bytes: usize,
    /// Bytes of the longest request that the client library sends.
    pub request_bytes: u32,
    /// Calls that it takes at once; one more fails.
    pub calls_max: usize,
    /// One client in so many pings as late as another library might; zero: none.
    pub late_one_in: u64,
    /// After which part of its session timeout, in percent.
    pub late_percent: u32,
    /// One access control list in so many grants little; zero: all are open.
    pub narrow_one_in: u64,
    /// After one answer in so many a client makes another call at once, and after one event in so many it reads; zero: none.
    pub eager_one_in: u64,
    /// One path in so many is odd; zero: none.
    pub odd_one_in: u64,
    /// After one call in so many a client is idle for longer than its session timeout; zero: never.
    pub idle_one_in: u64,
    /// Do multis create ephemeral nodes?
    pub ephemeral_parts: bool,
    /// Are clients cut off now and then as soon as their handshake, or a request that sets watches again, is answered?
    pub hops: bool,
}

impl Profile {
    /// All of them.
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

    /// As it is selected.
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

/// See `late_percent`: the client library's own time for a ping, about, and where nobody says.
pub const PING_PERCENT: u32 = 33;
/// See `calls_max`; where nobody says.
pub const CALLS_MAX: usize = 10_000;
/// More servers are never simulated.
pub const SERVERS_MAX: u32 = 7;
/// Most clients of a run: a world of them takes a gigabyte or so.
pub const CLIENTS_MAX: u32 = 10_000;

impl Options {
    /// The voters.
    pub fn voters(&self) -> impl Iterator<Item = ServerId> + use<> {
        (1..=u64::from(self.servers)).map(ServerId)
    }

    /// The voters when the run begins, if they are others than later.
    pub fn first_voters(&self) -> Option<Vec<ServerId>> {
        let grows = (1..self.servers).contains(&self.grows_from);
        grows.then(|| (1..=u64::from(self.grows_from)).map(ServerId).collect())
    }

    /// What all servers are told that decides about requests.
    pub fn rules(&self) -> Rules {
        let tick = self.server.tick();
        Rules {
            auth: self.server.auth.clone(),
            tree: self.server.tree.clone(),
            local: self.local.clone(),
            membership: self.membership(),
            record_bytes: self.server.limits.record_bytes,
            epoch_txns: self.server.limits.epoch_txns,
            tick,
            sync_limit: self.server.sync_limit(),
            init_limit: tick * self.server.phase_ticks.0,
            begin_limit: tick * (1 + self.server.phase_ticks.0),
            commit_within: self.commit_within(),
            answer_within: self.answer_within(),
            timeouts: self.timeouts(),
        }
    }

    /// Which session timeouts servers grant.
    fn timeouts(&self) -> TimeoutBounds {
        let ServerOptions { tick_ms, session_ticks, other_sessions, other_session_ticks, .. } =
            &self.server;
        let ms = |(least, most): (u32, u32)| (tick_ms * least, tick_ms * most.max(least));
        let (usual_ms, others_ms) = (ms(*session_ticks), ms(*other_session_ticks));
        TimeoutBounds { usual_ms, others: other_sessions.clone(), others_ms }
    }

    /// The least time in which servers of this world find and establish a leader, about: a few messages each way, and a few
    /// syncs. Servers that have less patience give each other up although nothing is wrong.
    pub fn least_patience(&self) -> Duration {
        const MESSAGES: u64 = 4;
        const SYNCS: u64 = 6;
        let PeerOptions { link, .. } = self.peers;
        Duration::from_nanos(MESSAGES * (link.min + link.mean) + SYNCS * self.disk.sync_mean)
    }

    /// What a write may take where nothing is wrong: the slowest message a few times, the slowest sync and the pause behind it
    /// twice, all that clients may ask for at once, and a while for other queues. Where windows do not carry what is asked
    /// for, nobody knows.
    fn commit_within(&self) -> Duration {
        // One sync in a thousand takes a hundred times as long, on a disk that is well (seed 0x3b0080042 of the swarm with one
        // server: ten seconds).
        self.commit_with(100)
    }

    /// The same where the slowest sync takes so many times as long as others.
    fn commit_with(&self, slower: u64) -> Duration {
        /// Of an exponential draw.
        const WORST: u64 = 7;
        const QUEUES: Duration = Duration::from_secs(2);
        /// Of a request besides its data.
        const FRAME: u64 = 300;
        let PeerOptions { link, window, words_late_ms, .. } = self.peers;
        let pause = Duration::from_micros(self.server.log_pause_us);
        let tail = if link.tail_one_in > 0 { 100 } else { 1 };
        let slowest = Duration::from_nanos(link.min + link.mean * WORST * tail);
        let usual_ns = link.min + link.mean * tail.min(2);
        let carried = (window as u64 * 1_000_000_000 / usual_ns.max(1)).max(1);
        let one = self.workload.data_bytes as u64 + FRAME;
        if one * self.workload.calls_per_second * 4 > carried {
            return Duration::ZERO;
        }
        let burst = one * u64::from(self.clients) * self.workload.depth as u64 * 2;
        let burst = Duration::from_millis(burst * 1_000 / carried);
        let mean = self.disk.sync_mean;
        let sync = if self.disk.steady { mean } else { mean * WORST * slower };
        let sync = Duration::from_nanos(sync).min(Duration::from_secs(10));
        let late = Duration::from_millis(words_late_ms);
        QUEUES + slowest * 4 + (sync + pause) * 2 + burst + late
    }

    /// What a client may have to wait where nothing is wrong with its server, nor with the quorum that this is in: what is
    /// committed for it, a ping before that, and its turn behind all others where each write has a sync of its own. Whose sync
    /// takes much longer than others is not well meanwhile.
    fn answer_within(&self) -> Duration {
        /// Syncs that a write costs without group commit, at most.
        const SYNCS: u64 = 5;
        let commit = self.commit_with(SYNCS);
        if commit.is_zero() {
            return commit;
        }
        let Pace { sync_mean, .. } = self.disk;
        let calls = u64::from(self.clients) * self.workload.depth as u64;
        let pause = self.server.log_pause_us * 1_000;
        let alone = self.server.batch_commands < usize::MAX
            || self.server.limits.undurable_bytes < ServerOptions::usual().limits.undurable_bytes;
        let turns = if alone { calls } else { 0 };
        let turns = Duration::from_nanos(turns * (SYNCS * sync_mean + pause));
        commit + self.server.tick() + turns
    }

    /// As all servers are told. That they were told at different times is their drivers' affair.
    fn membership(&self) -> Option<Membership> {
        let called = || {
            let line = |ServerId(id)| format!("server.{id}=10.0.1.{id}:2888:3888:participant\n");
            self.voters().map(line).collect::<String>() + "version=0"
        };
        let text = || self.members.clone().unwrap_or_else(called);
        (self.servers > 1).then(|| Membership { text: text(), since: WallMs(1) })
    }

    /// The configuration of one server.
    pub fn config(&self, id: ServerId) -> Config {
        self.config_among(id, Voters::new(self.voters()))
    }

    /// The same where these are the ensemble.
    pub fn config_among(&self, id: ServerId, voters: Voters) -> Config {
        let (init, sync) = self.server.phase_ticks;
        let mut config = config(id, voters, self.server.tick_ms)
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
        config.membership = self.membership();
        config.map_salt = self.map_salt;
        let LocalRules { servers, upgrade } = &self.local;
        config.sessions = SessionOptions { local: servers.contains(&id), upgrade: *upgrade };
        config
    }
}

/// What clients may take up, as far as it is drawn; see [`ClientLimits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientBounds {
    /// Bytes of queued output above which a client is not read.
    pub output_bytes: usize,
    /// Bytes of queued events above which its connection is closed.
    pub event_bytes: u64,
    /// Unanswered requests of all above which only clients are read that wait for nothing.
    pub outstanding: u64,
    /// The same, at which none is read; 0 is no bound.
    pub throttle_max_requests: u64,
    /// Time for a handshake, ms.
    pub sessionless_ms: u64,
}

impl ClientBounds {
    /// As a user would have them who configures nothing.
    pub const USUAL: ClientBounds = ClientBounds {
        output_bytes: 4 << 20,
        event_bytes: 10 << 20,
        outstanding: 1_000,
        throttle_max_requests: 0,
        sessionless_ms: 10_000,
    };
}

impl Options {
    /// What a server's driver is told of the others; `ensemble` is the id that the server has learnt.
    pub fn driver_peers(&self, ensemble: u64) -> driver::PeerOptions {
        driver::PeerOptions {
            ensemble,
            inputs: self.peers.inputs,
            ..driver::PeerOptions::new(self.server.frame_bytes)
        }
    }
}

impl ServerOptions {
    /// What a server's driver lets clients take up.
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

    /// How much it does in a turn.
    pub fn turn_limits(&self) -> TurnLimits {
        let (inputs, units) = (self.batch_inputs, self.turn_units);
        TurnLimits { inputs, units }
    }

    /// The unit of servers' patience.
    pub fn tick(&self) -> Duration {
        Duration::from_millis(self.tick_ms.into())
    }

    /// How long servers wait for a word of each other once they serve.
    pub fn sync_limit(&self) -> Duration {
        Duration::from_nanos(self.sync_limit_ns())
    }

    /// The same, ns.
    pub fn sync_limit_ns(&self) -> u64 {
        u64::from(self.tick_ms) * u64::from(self.phase_ticks.1) * 1_000_000
    }

    /// As a user would have it who configures nothing.
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
    /// All arrive, once, soon.
    pub const WELL: VotePace = VotePace { lost_one_in: 0, twice_one_in: 0, late_one_in: 0 };
}

fn config(id: ServerId, voters: Voters, tick_ms: u32) -> Config {
    let tick = Duration::from_millis(tick_ms.into());
    Config::new(id, voters, tick).expect("ticks are never zero here, and servers are voters")
}

fn usual_limits(tick_ms: u32) -> Limits {
    config(ServerId(1), Voters::new([ServerId(1)]), tick_ms).limits
}
