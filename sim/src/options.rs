//! Everything that is drawn before a run begins, and printed with it.
//!
//! Owns profiles and their ranges. Must not draw anything while the run goes on.

use std::fmt;
use std::time::Duration;

use zabkeeper_core::throttle::{ThrottleOptions, Weights};
use zabkeeper_core::{AuthOptions, Config, Limits, ServerId, SessionOptions, TreeOptions, Voters};

use crate::buggify::Choice;
use crate::faults::{Fault, FaultPlan, Selection};
use crate::fork::{self, Fork};
use crate::fs::Pace;
use crate::model::{LocalRules, Rules};
use crate::seed::{Dice, Seeds};
use crate::stream::LinkPace;
use crate::targets::{self, Rule};
use crate::workload::{self, OpMix};

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
    pub faults: Vec<Selection>,
    /// What strikes at marks, instead of what is drawn.
    pub rules: Option<Vec<Rule>>,
    /// Promises whose breaking does not count.
    pub without: Vec<String>,
    /// Where the run leaves the way of its seed.
    pub forks: Vec<Fork>,
    /// Which unlikely choices are forced.
    pub buggify: Choice,
}

/// The resolved settings of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Where they come from.
    pub profile: Profile,
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
    /// Which servers keep new sessions to themselves.
    pub local: LocalRules,
    /// Of every client.
    pub workload: WorkloadOptions,
    /// How disks behave when they are well.
    pub disk: Pace,
    /// How connections of clients behave.
    pub link: LinkPace,
    /// What is between servers.
    pub peers: PeerOptions,
    /// Goes into the keys of all hash maps, and must change nothing.
    pub map_salt: u64,
    /// Nobody asks for anything for so long before the audit: for what takes its time.
    pub rest: Duration,
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
    /// Commands that the log worker takes at once.
    pub batch_commands: usize,
    /// Virtual time of one step, ns.
    pub step_ns: u64,
    /// Some deadlines come late by up to this, us.
    pub timer_slack_us: u64,
}

/// How many clients may connect in a time; see [`ThrottleOptions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Zero lets everybody in.
    pub tokens: u32,
    /// Time in which the bucket gets a token.
    pub fill: Duration,
    /// Time between changes of random drops; zero: there are none.
    pub freeze: Duration,
    /// What their probability gains and loses, in millionths.
    pub drops: (u32, u32),
    /// Does a new session cost more than an old one?
    pub weighted: bool,
}

impl Throttle {
    /// As a user would have it who configures nothing.
    pub(crate) const OPEN: Throttle = Throttle {
        tokens: 0,
        fill: Duration::from_millis(1),
        freeze: Duration::ZERO,
        drops: (20_000, 2_000),
        weighted: false,
    };

    /// As the core has it.
    pub fn options(&self) -> ThrottleOptions {
        let Throttle { tokens, fill, freeze, drops, weighted } = *self;
        ThrottleOptions {
            tokens,
            fill_time: fill,
            freeze_time: (!freeze.is_zero()).then_some(freeze),
            drop_increase: drops.0,
            drop_decrease: drops.1,
            decrease_ratio: 500_000,
            weights: weighted.then(Weights::default),
            ..ThrottleOptions::default()
        }
    }

    /// In few runs, and never so few that a crowd of clients is not let in within seconds.
    fn draw(dice: &mut Dice) -> Throttle {
        if !dice.chance(1, 8) {
            return Throttle::OPEN;
        }
        let drops = dice.chance(1, 2);
        Throttle {
            tokens: dice.range_u32(1, 6),
            fill: Duration::from_millis(dice.magnitude(1, 150)),
            freeze: Duration::from_millis(if drops { dice.magnitude(1, 50) } else { 0 }),
            drops: (dice.range_u32(20_000, 300_000), dice.range_u32(50_000, 300_000)),
            weighted: dice.chance(1, 2),
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
    /// One access control list in so many grants little; zero: all are open.
    pub narrow_one_in: u64,
    /// One path in so many is odd; zero: none.
    pub odd_one_in: u64,
    /// After one call in so many a client is idle for longer than its session timeout; zero: never.
    pub idle_one_in: u64,
    /// Do multis create ephemeral nodes?
    pub ephemeral_parts: bool,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 8] = [
        Profile::Default,
        Profile::Swarm,
        Profile::Calm,
        Profile::Crashy,
        Profile::Disk,
        Profile::Net,
        Profile::Session,
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
            Profile::Perf => "perf",
        }
    }

    /// What it is for.
    pub fn sentence(self) -> &'static str {
        match self {
            Profile::Default => "most faults, at rates drawn around the usual ones",
            Profile::Swarm => "a random half of everything, at rates that differ widely",
            Profile::Calm => "no faults",
            Profile::Crashy => "crashes of every kind, four times as often",
            Profile::Disk => "a disk in trouble, and power failures",
            Profile::Net => "connections in trouble",
            Profile::Session => "clients in trouble, and what they meet on the way",
            Profile::Perf => "no faults, many calls: for measuring speed",
        }
    }

    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

/// Servers of an ensemble where nothing else is said.
const SERVERS: u32 = 5;
/// More servers are never simulated.
pub const SERVERS_MAX: u32 = 7;

/// A disk whose syncs take longer than this, in ns, carries the load only with group commit. Without it the service is
/// overloaded for as long as clients come back, faults or not, and that it does not recover proves nothing (seed 0x30e2b
/// of the swarm: one write to a batch, one batch to a segment, four syncs of 8 ms each, 93 calls a second).
const SLOW_SYNC: u64 = 3_000_000;
/// Syncs that a write costs without group commit, at most: two for a segment of its own, one for its batch, and two for
/// the state file, which with snapshots as frequent as they are drawn follows every second write.
const SYNCS_PER_WRITE: u64 = 4;
/// What the calls, all of them writes, may take of a disk's time without group commit, in ns of a second. Half of it
/// lets the log catch up as fast as it fell behind, and leaves room for sessions that come and go.
const CARRIED: u64 = 500_000_000;
/// Bytes that a call may add to a snapshot, about, and calls last for so many seconds.
const KEPT_PER_CALL: u64 = 50;
/// See `KEPT_PER_CALL`.
const CALLED_FOR: u64 = 60;
/// Bytes of snapshots that a server of the swarm writes in a second, about, and in how many slices. Beyond that a run is a
/// minute of CPU time in which little else happens (seed 0x79a1060: a tree of thousands of nodes every 4 to 7
/// transactions in slices of 91 bytes, 20 million operations of disks and 6 GB).
const SNAPSHOT_BYTES: u64 = 2_000_000;
/// See `SNAPSHOT_BYTES`.
const SLICES: u64 = 1_000;

impl Options {
    /// Draws what `pinned` leaves open.
    pub fn draw(seeds: Seeds, profile: Profile, pinned: &Pinned) -> Options {
        let wide = profile == Profile::Swarm;
        let mut faults = draw_faults(profile, &mut seeds.stream("config/faults", 0));
        let at_marks = allowed_at_marks(profile, &faults, pinned);
        let one_in = if wide { 4 } else { 8 };
        let rules = match (&at_marks, &pinned.rules) {
            (Some(allowed), _) => {
                targets::draw(one_in, allowed, &mut seeds.stream("config/marks", 0))
            }
            (None, rules) => rules.clone().unwrap_or_default(),
        };
        faults.select(&pinned.faults);
        let clients = match pinned.clients {
            Some(clients) => clients,
            None if wide => seeds.stream("config/clients", 0).range_u32(1, 30),
            None => 12,
        };
        let servers = match pinned.servers {
            Some(servers) => servers,
            None => draw_servers(profile, &mut seeds.stream("config/servers", 0)),
        };
        let mut server = if profile == Profile::Perf {
            ServerOptions::usual()
        } else {
            ServerOptions::draw(wide, &mut seeds.stream("config/server", 0))
        };
        if profile != Profile::Perf {
            let dice = &mut seeds.stream("config/auth", 0);
            server.auth.x509 = dice.chance(1, 3);
            server.auth.ensemble = dice.chance(1, 3);
            server.throttle = Throttle::draw(&mut seeds.stream("config/throttle", 0));
            let dice = &mut seeds.stream("config/timeouts", 0);
            if dice.chance(1, 4) {
                server.session_ticks = (dice.range_u32(1, 4), dice.range_u32(10, 60));
            }
        }
        let local = draw_local(profile, servers, &mut seeds.stream("config/local", 0));
        let mut workload = match profile {
            Profile::Perf => WorkloadOptions::perf(),
            Profile::Default
            | Profile::Swarm
            | Profile::Calm
            | Profile::Crashy
            | Profile::Disk
            | Profile::Net
            | Profile::Session => {
                let mut dice = seeds.stream("config/workload", 0);
                WorkloadOptions::draw(wide, server.tick_ms.into(), &mut dice)
            }
        };
        let mut dice = seeds.stream("config/pace", 0);
        let disk = Pace {
            sync_mean: dice.magnitude(50_000, if wide { 20_000_000 } else { 3_000_000 }),
            op_mean: dice.magnitude(1_000, 50_000),
            per_kib: dice.magnitude(100, 5_000),
            steady: false,
        };
        let load = workload.writes_per_second(clients, servers) * SYNCS_PER_WRITE * disk.sync_mean;
        if disk.sync_mean > SLOW_SYNC || load > CARRIED {
            server.batch_commands = usize::MAX;
        }
        if wide && seeds.stream("config/forgetful", 0).chance(1, 3) {
            // Who has missed little needs a snapshot already.
            let mut dice = seeds.stream("config/forgetful", 1);
            let limits = &mut server.limits;
            limits.snapshots_kept = 1;
            limits.snapshot_txns = limits.snapshot_txns.min(dice.range_u32(5, 60));
        }
        if wide {
            bound_snapshots(&mut server.limits, workload.calls_per_second);
        }
        let cut = dice.range(2, 20);
        let link = LinkPace {
            min: dice.magnitude(10_000, 1_000_000),
            mean: dice.magnitude(20_000, if wide { 50_000_000 } else { 2_000_000 }),
            tail_one_in: if faults.has(Fault::NetTail) { 200 } else { 0 },
            cut_one_in: if faults.has(Fault::NetCut) { cut } else { 0 },
        };
        let peers = PeerOptions::draw(wide, link, &faults, &mut seeds.stream("config/peers", 0));
        let duration = pinned.duration.unwrap_or(Duration::from_secs(60));
        workload.ephemeral_parts = !local.servers.is_empty();
        if profile != Profile::Perf {
            // Half of the calls of some runs, and three quarters of those of others, are about the same two paths.
            let mut dice = seeds.stream("config/hot", 0);
            workload.hot = workload.paths * *dice.pick(&[0, 0, 1, 3]);
            // Lists come and go: half of them grant little.
            if wide && seeds.stream("config/lists", 0).chance(1, 8) {
                workload.narrow_one_in = 2;
            }
        }
        let quiet = matches!(profile, Profile::Calm | Profile::Perf);
        let mut options = Options {
            profile,
            duration,
            servers,
            clients,
            faults,
            rules,
            at_marks,
            forks: pinned.forks.clone(),
            server,
            local,
            workload,
            disk,
            link,
            peers,
            map_salt: 0,
            rest: draw_rest(profile, &mut seeds.stream("config/rest", 0)),
            without: pinned.without.clone(),
        };
        let carries = disk.sync_mean <= SLOW_SYNC && load <= CARRIED / 2;
        let dice = &mut seeds.stream("config/buggify", 0);
        pinned.buggify.apply(&mut options, (!quiet, carries), dice);
        options
    }

    /// The voters.
    pub fn voters(&self) -> impl Iterator<Item = ServerId> + use<> {
        (1..=u64::from(self.servers)).map(ServerId)
    }

    /// What all servers are told that decides about requests.
    pub fn rules(&self) -> Rules {
        let config = self.config(ServerId(1));
        Rules {
            auth: self.server.auth.clone(),
            tree: self.server.tree.clone(),
            local: self.local.clone(),
            epoch_txns: self.server.limits.epoch_txns,
            tick: config.tick(),
            sync_limit: config.sync_limit(),
            timeouts_ms: (config.negotiate(0), config.negotiate(i32::MAX)),
        }
    }

    /// The configuration of one server.
    pub fn config(&self, id: ServerId) -> Config {
        let (init, sync) = self.server.phase_ticks;
        let mut config = config(id, Voters::new(self.voters()), self.server.tick_ms)
            .with_phase_limits(init, sync)
            .and_then(|config| config.with_tree(self.server.tree.clone()))
            .and_then(|config| {
                let (tick, (min, max)) = (config.tick(), self.server.session_ticks);
                config.with_session_timeouts(tick * min, tick * max.max(min))
            })
            .expect("no limit is drawn as zero");
        config.limits = self.server.limits.clone();
        config.auth = self.server.auth.clone();
        config.map_salt = self.map_salt;
        let LocalRules { servers, upgrade } = &self.local;
        config.sessions = SessionOptions { local: servers.contains(&id), upgrade: *upgrade };
        config
    }
}

/// Sessions that nobody holds, and nodes that may go by themselves, are missed only after a while.
fn draw_rest(profile: Profile, dice: &mut Dice) -> Duration {
    let rests = profile != Profile::Perf && dice.chance(1, 4);
    Duration::from_secs(if rests { dice.range(40, 90) } else { 0 })
}

/// Ensembles are mostly of the usual size; the swarm has all sizes up to seven.
fn draw_servers(profile: Profile, dice: &mut Dice) -> u32 {
    match profile {
        Profile::Default | Profile::Calm | Profile::Perf | Profile::Net => SERVERS,
        Profile::Swarm => dice.range_u32(1, SERVERS_MAX),
        Profile::Crashy | Profile::Disk | Profile::Session => *dice.pick(&[3, SERVERS]),
    }
}

/// Few ensembles have local sessions; of those that have, in some only a part of the servers, and most upgrade.
fn draw_local(profile: Profile, servers: u32, dice: &mut Dice) -> LocalRules {
    let some = match profile {
        Profile::Perf => return LocalRules::default(),
        Profile::Swarm | Profile::Session => dice.chance(1, 3),
        Profile::Default | Profile::Calm | Profile::Crashy | Profile::Disk | Profile::Net => {
            dice.chance(1, 8)
        }
    };
    let (all, upgrade) = (dice.chance(1, 2), dice.chance(2, 3));
    let ids = (1..=u64::from(servers)).map(ServerId);
    let servers = ids.filter(|_| (dice.chance(1, 2) || all) && some).collect();
    LocalRules { servers, upgrade }
}

/// Snapshots may be the more frequent, and their slices the smaller, the fewer the calls are.
fn bound_snapshots(limits: &mut Limits, calls_per_second: u64) {
    let mean_bytes = calls_per_second * CALLED_FOR * KEPT_PER_CALL / 2;
    let bytes = mean_bytes * calls_per_second;
    let least = |enough: u64| u32::try_from(enough).unwrap_or(u32::MAX);
    limits.snapshot_txns = limits.snapshot_txns.max(least(bytes / SNAPSHOT_BYTES));
    let bytes = bytes / u64::from(limits.snapshot_txns);
    limits.snapshot_slice_bytes = limits.snapshot_slice_bytes.max(least(bytes / SLICES));
}

/// Which faults a profile draws from, which part of them, and at which of their usual rates.
type Menu = (&'static [&'static str], (u64, u64), &'static [(u64, u64)]);

fn menu(profile: Profile) -> Menu {
    match profile {
        Profile::Calm | Profile::Perf => (&[], (0, 1), &[]),
        Profile::Default => {
            (&["node", "disk", "net", "client"], (7, 8), &[(1, 2), (1, 1), (1, 1), (2, 1)])
        }
        Profile::Swarm => {
            (&["node", "disk", "net", "client"], (1, 2), &[(1, 8), (1, 3), (1, 1), (3, 1), (8, 1)])
        }
        Profile::Crashy => {
            (&["node", "disk.torn", "disk.garbage", "disk.names"], (7, 8), &[(4, 1)])
        }
        Profile::Disk => (&["disk", "node.power", "node.crash-in-step"], (7, 8), &[(4, 1)]),
        Profile::Net => (&["net", "client.garbage"], (7, 8), &[(4, 1)]),
        Profile::Session => (&["client", "net", "node.pause", "node.kill"], (7, 8), &[(2, 1)]),
    }
}

/// One seed in eight has no faults, one in eight a single one at ten times its rate; the others a random part of
/// those of the profile.
fn draw_faults(profile: Profile, dice: &mut Dice) -> FaultPlan {
    let mut plan = FaultPlan::none();
    let (groups, part, rates) = menu(profile);
    if groups.is_empty() {
        return plan;
    }
    let members: Vec<Fault> = groups.iter().flat_map(|group| Fault::matching(group)).collect();
    match dice.below(8) {
        0 => {}
        1 => plan.switch_on(*dice.pick(&members), (10, 1)),
        _ => {
            for fault in members {
                let (on, rate) = (dice.chance(part.0, part.1), *dice.pick(rates));
                if on {
                    plan.switch_on(fault, rate);
                }
            }
        }
    }
    plan
}

/// What may strike at marks, where rules are drawn: where there are faults at all, a seed may well have a rule of a kind
/// that does not strike otherwise, as long as the profile has it, and nobody has switched it off.
fn allowed_at_marks(profile: Profile, drawn: &FaultPlan, pinned: &Pinned) -> Option<FaultPlan> {
    let mut allowed = FaultPlan::none();
    if drawn.on().next().is_some() {
        for fault in menu(profile).0.iter().flat_map(|group| Fault::matching(group)) {
            allowed.switch_on(fault, (1, 1));
        }
        allowed.select(&pinned.faults);
    }
    pinned.rules.is_none().then_some(allowed)
}

impl ServerOptions {
    /// As a user would have it who configures nothing.
    pub(crate) fn usual() -> ServerOptions {
        let limits = usual_limits(2_000);
        ServerOptions {
            tick_ms: 2_000,
            phase_ticks: (10, 5),
            limits,
            session_ticks: (2, 20),
            throttle: Throttle::OPEN,
            auth: AuthOptions::default(),
            tree: TreeOptions::default(),
            segment_bytes: 1 << 20,
            batch_inputs: 64,
            batch_commands: usize::MAX,
            step_ns: 1_000,
            timer_slack_us: 0,
        }
    }

    fn draw(wide: bool, dice: &mut Dice) -> ServerOptions {
        let tick_ms = dice.magnitude(if wide { 50 } else { 200 }, 2_000);
        let tick_ms = u32::try_from(tick_ms).expect("drawn below 2^32");
        let usual = usual_limits(tick_ms);
        let rare = |dice: &mut Dice| dice.chance(1, if wide { 2 } else { 4 });
        let limits = Limits {
            requests_per_conn: if rare(dice) {
                dice.range_u32(1, 8)
            } else {
                usual.requests_per_conn
            },
            undurable_bytes: if rare(dice) {
                dice.magnitude(64, 4_096)
            } else {
                usual.undurable_bytes
            },
            snapshot_txns: match dice.below(4) {
                0 => usual.snapshot_txns,
                1 => dice.range_u32(2, 8),
                _ => dice.range_u32(9, 300),
            },
            snapshot_slice_bytes: if rare(dice) {
                dice.range_u32(1, 400)
            } else {
                usual.snapshot_slice_bytes
            },
            snapshots_kept: dice.range_u32(1, 4),
            epoch_txns: if rare(dice) { dice.range_u32(5, 300) } else { usual.epoch_txns },
            hold: usual.hold,
            final_wait: Duration::from_millis(dice.magnitude(1, 50)),
            notify_min: Duration::from_millis(dice.magnitude(5, 100)),
            notify_max: Duration::from_millis(dice.magnitude(100, 1_000)),
            recent_bytes: if rare(dice) { dice.magnitude(64, 16_384) } else { usual.recent_bytes },
            // The model has no such bound, and no client asks for as much.
            record_bytes: usual.record_bytes,
            bulk_bytes: if rare(dice) { dice.range_u32(1, 2_000) } else { usual.bulk_bytes },
            prefer_snapshots: false,
        };
        ServerOptions {
            tick_ms,
            phase_ticks: (dice.range_u32(3, 10), dice.range_u32(2, 5)),
            limits,
            session_ticks: (2, 20),
            throttle: Throttle::OPEN,
            auth: workload::known(),
            tree: draw_tree(dice),
            segment_bytes: *dice.pick(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]),
            batch_inputs: *dice.pick(&[1, 4, 64]),
            batch_commands: *dice.pick(&[1, 3, usize::MAX]),
            // What is to be done within a tick must fit into it: sessions may be that short, and with 7 servers and 71 ms a
            // step of 198 us kept a leader busy for ever with clients that had just expired (swarm 0xc1070067).
            step_ns: dice.magnitude(200, 200_000).min(u64::from(tick_ms) * 1_000),
            timer_slack_us: 0,
        }
    }
}

/// Containers are looked for often, and deleted in a hurry or slowly.
fn draw_tree(dice: &mut Dice) -> TreeOptions {
    TreeOptions {
        extended_types: dice.chance(3, 4),
        enforce_quota: dice.chance(1, 2),
        container_check_ms: dice.magnitude(200, 10_000),
        container_max_per_minute: *dice.pick(&[60, 600, 10_000]),
        container_never_used_ms: *dice.pick(&[0, 0, 3_000]),
    }
}

impl PeerOptions {
    /// Notifications are treated badly where [`Fault::NetVotes`] is on.
    fn draw(wide: bool, client: LinkPace, faults: &FaultPlan, dice: &mut Dice) -> PeerOptions {
        let link = LinkPace {
            min: dice.magnitude(10_000, 1_000_000),
            mean: dice.magnitude(20_000, if wide { 20_000_000 } else { 2_000_000 }),
            ..client
        };
        let mut one_in = |often| if dice.chance(1, 2) { dice.magnitude(often, 100) } else { 0 };
        let votes =
            VotePace { lost_one_in: one_in(3), twice_one_in: one_in(5), late_one_in: one_in(5) };
        let has = faults.has(Fault::NetVotes);
        PeerOptions {
            link,
            window: *dice.pick(&[1 << 10, 16 << 10, 256 << 10]),
            dial_timeout_ms: dice.magnitude(200, 5_000),
            votes: if has { votes } else { VotePace::WELL },
            words_late_ms: 0,
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

impl WorkloadOptions {
    fn perf() -> WorkloadOptions {
        WorkloadOptions {
            calls_per_second: 20_000,
            paths: 200,
            hot: 0,
            depth: 64,
            data_bytes: 100,
            session_ms: (10_000, 30_000),
            mix: OpMix::usual(),
            reconnect_ms: 1_000,
            narrow_one_in: 0,
            odd_one_in: 0,
            idle_one_in: 0,
            ephemeral_parts: false,
        }
    }

    /// What the disk has to carry when all calls are writes. Each attempt to get a session is one, too, even when its
    /// client has given up by the time it is committed, as it does after the servers' part of its timeout (seed
    /// 0xd2900066 of the swarm, 5 servers: sessions of 125 to 500 ms, asked for faster than four syncs each let them in).
    fn writes_per_second(&self, clients: u32, servers: u32) -> u64 {
        let (low_ms, high_ms) = self.session_ms;
        self.calls_per_second + u64::from(clients * servers) * 2_000 / (low_ms + high_ms)
    }

    fn draw(wide: bool, tick_ms: u64, dice: &mut Dice) -> WorkloadOptions {
        WorkloadOptions {
            calls_per_second: if wide { dice.magnitude(10, 400) } else { 50 },
            paths: dice.range(5, 50),
            hot: 0,
            depth: usize::try_from(dice.range(1, 16)).expect("small"),
            data_bytes: *dice.pick(&[16, 100, 3_000]),
            session_ms: (tick_ms, tick_ms * dice.range(2, 25)),
            mix: OpMix::draw(wide, dice),
            reconnect_ms: *dice.pick(&[0, 100, 1_000]),
            narrow_one_in: *dice.pick(&[0, 0, 30, 8]),
            odd_one_in: *dice.pick(&[0, 0, 0, 40]),
            idle_one_in: *dice.pick(&[0, 100, 300]),
            ephemeral_parts: false,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The drawn options, a line for each subject.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { profile, duration, servers, clients, faults, .. } = self;
        let Options { server, workload, disk, link, peers, .. } = self;
        let limits = &server.limits;
        let plural = if *servers == 1 { "" } else { "s" };
        writeln!(
            f,
            "profile   {profile}: {servers} server{plural}, {clients} clients, {duration:?} of faults, \
             {:?} of rest",
            self.rest
        )?;
        writeln!(f, "faults    {faults}")?;
        if !self.rules.is_empty() {
            let rules: Vec<String> = self.rules.iter().map(Rule::to_string).collect();
            writeln!(f, "at marks  {}", rules.join(" "))?;
        }
        if !self.forks.is_empty() {
            writeln!(f, "forks     {}", fork::path(&self.forks))?;
        }
        writeln!(
            f,
            "server    tick={}ms init={} sync={} requests/conn={} undurable={}B epoch={}txns batch={} \
             step={}ns",
            server.tick_ms,
            server.phase_ticks.0,
            server.phase_ticks.1,
            limits.requests_per_conn,
            limits.undurable_bytes,
            limits.epoch_txns,
            server.batch_inputs,
            server.step_ns
        )?;
        let Throttle { tokens, fill, freeze, drops, weighted } = server.throttle;
        if tokens > 0 {
            writeln!(
                f,
                "throttle  {tokens} at once, one in {fill:?}, drops +{} -{} in {freeze:?}, weighted={weighted}",
                drops.0, drops.1
            )?;
        }
        let AuthOptions { x509, ensemble, .. } = server.auth;
        if (x509, ensemble, server.session_ticks) != (false, false, (2, 20)) {
            let (min, max) = server.session_ticks;
            writeln!(
                f,
                "auth      x509={x509} ensemble={ensemble}; sessions of {min}..{max} ticks"
            )?;
        }
        if !self.local.servers.is_empty() {
            let ids: Vec<String> = self.local.servers.iter().map(ServerId::to_string).collect();
            writeln!(f, "local     servers {}, upgrade={}", ids.join(" "), self.local.upgrade)?;
        }
        let TreeOptions { extended_types, enforce_quota, .. } = server.tree;
        writeln!(
            f,
            "tree      ttl={extended_types} quota={enforce_quota} containers every {}ms, {}/min, unused={}ms",
            server.tree.container_check_ms,
            server.tree.container_max_per_minute,
            server.tree.container_never_used_ms,
        )?;
        writeln!(
            f,
            "snapshots every {}..{} txns, slice={}B, kept={}; log segment={}B, batch={}",
            limits.snapshot_txns / 2 + 1,
            limits.snapshot_txns,
            limits.snapshot_slice_bytes,
            limits.snapshots_kept,
            server.segment_bytes,
            if server.batch_commands == usize::MAX { 0 } else { server.batch_commands }
        )?;
        writeln!(
            f,
            "workload  {}/s on {} paths (two of them {}x), depth={}, data<={}B, sessions {}..{}ms, \
             narrow=1/{} odd=1/{}, ops {}",
            workload.calls_per_second,
            workload.paths,
            1 + workload.hot / 2,
            workload.depth,
            workload.data_bytes,
            workload.session_ms.0,
            workload.session_ms.1,
            workload.narrow_one_in,
            workload.odd_one_in,
            workload.mix
        )?;
        writeln!(
            f,
            "peers     link {}us+{}us window={}B dial<={}ms recent={}B bulk={}B; votes lost=1/{} \
             twice=1/{} late=1/{}, wait={:?} again={:?}..{:?}",
            peers.link.min / 1_000,
            peers.link.mean / 1_000,
            peers.window,
            peers.dial_timeout_ms,
            limits.recent_bytes,
            limits.bulk_bytes,
            peers.votes.lost_one_in,
            peers.votes.twice_one_in,
            peers.votes.late_one_in,
            limits.final_wait,
            limits.notify_min,
            limits.notify_max,
        )?;
        if (limits.prefer_snapshots, server.timer_slack_us, peers.words_late_ms) != (false, 0, 0) {
            writeln!(
                f,
                "buggify   snapshots first={} timers late<={}us words late<={}ms",
                limits.prefer_snapshots, server.timer_slack_us, peers.words_late_ms
            )?;
        }
        write!(
            f,
            "disk      sync={}us op={}us; link {}us+{}us tail=1/{} cut=1/{}",
            disk.sync_mean / 1_000,
            disk.op_mean / 1_000,
            link.min / 1_000,
            link.mean / 1_000,
            link.tail_one_in,
            link.cut_one_in
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, profile: Profile) -> Options {
        Options::draw(Seeds::new(seed), profile, &Pinned::default())
    }

    #[test]
    fn one_seed_in_eight_is_free_of_faults_and_one_has_a_single_one() {
        let counts: Vec<usize> =
            (0..800).map(|seed| drawn(seed, Profile::Default).faults.on().count()).collect();
        let of = |n| counts.iter().filter(|&&count| count == n).count();
        assert!((70..130).contains(&of(0)), "{}", of(0));
        assert!((70..130).contains(&of(1)), "{}", of(1));
    }

    #[test]
    fn calm_is_calm_and_pins_hold() {
        assert_eq!(drawn(1, Profile::Calm).faults, FaultPlan::none());
        let pinned = Pinned { clients: Some(3), servers: Some(4), ..Pinned::default() };
        let pins = Options::draw(Seeds::new(1), Profile::Swarm, &pinned);
        assert_eq!((pins.clients, pins.servers), (3, 4));
    }

    #[test]
    fn ensembles_have_five_servers_and_in_the_swarm_one_to_seven() {
        assert_eq!(drawn(3, Profile::Default).servers, 5);
        let sizes: std::collections::BTreeSet<u32> =
            (0..100).map(|seed| drawn(seed, Profile::Swarm).servers).collect();
        assert!(sizes.into_iter().eq(1..=7));
    }

    #[test]
    fn without_group_commit_the_disk_carries_the_load_twice() {
        let mut small = 0;
        for Options { server, workload, disk, clients, servers, .. } in
            (0..800).map(|seed| drawn(seed, Profile::Swarm))
        {
            if server.batch_commands < usize::MAX {
                small += 1;
                let writes = 1_000_000_000 / (SYNCS_PER_WRITE * disk.sync_mean);
                let asked = workload.writes_per_second(clients, servers);
                assert!(writes >= 2 * asked, "{workload:?} {disk:?}");
            }
        }
        assert!(small > 200, "small batches are drawn: {small}");
        assert_eq!(drawn(0x2111_bb02, Profile::Swarm).server.batch_commands, usize::MAX);
    }

    #[test]
    fn frequent_snapshots_and_small_slices_are_drawn_where_they_are_not_all_that_happens() {
        let (mut small, mut frequent, mut both) = (0, 0, 0);
        for Options { server, workload, .. } in (0..800).map(|seed| drawn(seed, Profile::Swarm)) {
            let Limits { snapshot_txns, snapshot_slice_bytes, .. } = server.limits;
            let mut bounded = server.limits.clone();
            bound_snapshots(&mut bounded, workload.calls_per_second);
            assert_eq!(bounded, server.limits);
            small += u32::from(snapshot_slice_bytes <= 400);
            frequent += u32::from(snapshot_txns <= 8);
            both += u32::from(snapshot_slice_bytes <= 400 && snapshot_txns <= 8);
        }
        assert!(small > 200 && frequent > 100 && both > 20, "{small} {frequent} {both}");
        let once_too_much = drawn(0x79a_1060, Profile::Swarm).server.limits;
        assert!(once_too_much.snapshot_txns > 100, "{once_too_much:?}");
        assert!(once_too_much.snapshot_slice_bytes > 1_000, "{once_too_much:?}");
    }

    #[test]
    fn a_pin_does_not_shift_other_draws() {
        let pinned = Pinned {
            faults: Selection::parse("only=node.kill").expect("valid"),
            ..Pinned::default()
        };
        for seed in 0..20 {
            let other = Options::draw(Seeds::new(seed), Profile::Default, &pinned);
            let base = drawn(seed, Profile::Default);
            assert_eq!((other.server, other.workload), (base.server, base.workload));
        }
    }
}
