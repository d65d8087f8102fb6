//! Draws the settings of a run from its seed.
//!
//! Owns which settings exclude each other, and the ranges of the workload and the network; `faults`
//! and `servers` have the others. Must not know the effects of settings.

use std::time::Duration;

use faults::{allowed_at_marks, draw_apart, draw_faults};

pub(crate) use servers::{draw_pace, draw_room};

use super::*;

mod faults;
mod servers;
#[cfg(test)]
mod tests;

const SERVERS: u32 = 5;

/// Events after which the faults of a swarm run end. One run in ten would have more, and those runs
/// would take a third of the total time; other runs find more in it.
const FAULT_EVENTS: u64 = 300_000;
/// A disk whose mean sync takes longer than this, ns, carries the load only with group commit.
/// Without group commit the service stays overloaded as long as clients reconnect, even without
/// faults, so a missing recovery proves nothing (seed 0x30e2b of the swarm: one write per batch,
/// one batch per segment, four syncs of 8 ms each, 93 calls a second).
const SLOW_SYNC: u64 = 3_000_000;
/// Maximum number of syncs per write without group commit: two for a new segment, one for the
/// batch, and two for the state file, which with the most frequent snapshots follows every write.
const SYNCS_PER_WRITE: u64 = 5;
/// Disk time that the calls, all of them taken as writes, may need without group commit, ns per
/// second. Half of a second lets the log catch up as fast as it fell behind, and leaves room for
/// new and expiring sessions.
const CARRIED: u64 = 500_000_000;
impl Options {
    /// Draws all settings that `pinned` leaves open.
    pub fn draw(seeds: Seeds, profile: Profile, pinned: &Pinned) -> Options {
        let wide = profile == Profile::Swarm;
        let mut faults = draw_faults(profile, &mut seeds.stream("config/faults", 0));
        // Without faults, no unlikely setting that resembles a fault is drawn, and the heal leaves
        // no server out.
        let quiet = faults.on().next().is_none();
        let at_marks = allowed_at_marks(profile, &faults, pinned);
        let rules = draw_rules(seeds, wide, at_marks.as_ref(), pinned);
        let clients = pinned.clients.unwrap_or_else(|| draw_clients(seeds, profile));
        let servers = pinned.servers.unwrap_or_else(|| draw_servers(profile, seeds));
        let mut server = ServerOptions::draw_for(profile, seeds);
        let local = draw_local(profile, servers, &mut seeds.stream("config/local", 0));
        draw_upgrades(wide, &local, &mut faults, seeds);
        draw_apart(profile, &mut faults, seeds);
        faults.select(&pinned.faults);
        let config_change_one_in = draw_config_changes(profile, &local, seeds);
        let mut workload = draw_workload(profile, server.tick_ms.into(), &local, seeds);
        let mut rng = seeds.stream("config/pace", 0);
        let disk = draw_disk(wide, &mut rng);
        let load = workload.writes_per_second(clients, servers) * SYNCS_PER_WRITE * disk.sync_mean;
        if disk.sync_mean > SLOW_SYNC || load > CARRIED {
            server.batch_commands = usize::MAX;
        }
        if wide {
            server.draw_snapshots(seeds, workload.calls_per_second);
        }
        let link = draw_link(wide, &faults, &mut rng);
        let mut peers = PeerOptions::draw(wide, link, &faults, seeds);
        if profile != Profile::Perf {
            workload.draw_contention(wide, seeds);
            rare::draw(seeds, servers, &mut server, &mut workload, &mut peers);
            rare::draw_read_only(seeds, (servers, &local), &mut server, &mut workload);
            rare::draw_leader_serves(seeds, servers, &mut server);
            let rules = (&local, config_change_one_in);
            let programs = (clients, pinned.recipe);
            rare::draw_programs(seeds, programs, rules, &server, &mut workload);
        }
        if wide && faults.has(Fault::ClientSlow) {
            rare::draw_small_output(seeds, &mut server);
        }
        workload.mix.select(&pinned.ops);
        let rest = draw_rest(profile, seeds);
        let gone_one_in = if rest.is_zero() || !faults.has(Fault::ClientDeath) { 0 } else { 2 };
        let mut options = Options {
            profile: Some(profile),
            duration: pinned.duration.unwrap_or_else(|| draw_duration(profile, seeds)),
            servers,
            observers: 0,
            observer_masters: false,
            clients,
            faults,
            rules,
            at_marks,
            forks: pinned.forks.clone(),
            server,
            local,
            config_change_one_in,
            workload,
            disk,
            link,
            peers,
            grows_from: 0,
            grows_at: Duration::ZERO,
            reconfig_from: 0,
            groups: Groups::default(),
            oracle: 0,
            older: Older::default(),
            members: None,
            map_salt: 0,
            fault_events: if wide && pinned.duration.is_none() { FAULT_EVENTS } else { 0 },
            unhealed: profile == Profile::Lite,
            digest_txns: DIGEST_TXNS,
            disk_audit_txns: DISK_AUDIT_TXNS,
            rest,
            gone_one_in,
            left_out: draw_left_out(profile, quiet, servers, seeds),
            without: pinned.without.clone(),
            custom: pinned.custom.clone(),
        };
        draw_growth(&mut options, !quiet, &mut seeds.stream("config/growth", 0));
        draw_observers(&mut options, &mut seeds.stream("config/observers", 0));
        let by_followers = seeds.stream("config/observer_masters", 0).chance(1, 2);
        options.observer_masters = options.observers > 0 && by_followers;
        draw_reconfigurations(&mut options, !pinned.ops.is_empty(), seeds);
        options.draw_groups(&mut seeds.stream("config/groups", 0));
        options.draw_oracle(&mut seeds.stream("config/oracle", 0));
        options.draw_older(pinned.ops.is_empty(), &mut seeds.stream("config/older", 0));
        let carries = disk.sync_mean <= SLOW_SYNC && load <= CARRIED / 2;
        let mut rng = seeds.stream("config/buggify", 0);
        pinned.buggify.apply(&mut options, (!quiet, carries), &mut rng);
        options.suit_workload();
        options
    }
}

/// The faults at marks.
fn draw_rules(
    seeds: Seeds,
    wide: bool,
    at_marks: Option<&FaultPlan>,
    pinned: &Pinned,
) -> Vec<Rule> {
    match (at_marks, &pinned.rules) {
        (Some(allowed), _) => {
            let one_in = if wide { 4 } else { 8 };
            targets::draw(one_in, allowed, &mut seeds.stream("config/marks", 0))
        }
        (None, rules) => rules.clone().unwrap_or_default(),
    }
}

fn draw_clients(seeds: Seeds, profile: Profile) -> u32 {
    match profile {
        Profile::Swarm => seeds.stream("config/clients", 0).range_u32(1, 30),
        Profile::Lite => 4,
        Profile::Default
        | Profile::Calm
        | Profile::Crashy
        | Profile::Disk
        | Profile::Net
        | Profile::Session
        | Profile::Perf => 12,
    }
}

fn draw_workload(
    profile: Profile,
    tick_ms: u64,
    local: &LocalRules,
    seeds: Seeds,
) -> WorkloadOptions {
    let wide = profile == Profile::Swarm;
    let drawn = match profile {
        Profile::Perf => WorkloadOptions::perf(),
        Profile::Default
        | Profile::Swarm
        | Profile::Calm
        | Profile::Crashy
        | Profile::Disk
        | Profile::Net
        | Profile::Session
        | Profile::Lite => {
            WorkloadOptions::draw(wide, tick_ms, &mut seeds.stream("config/workload", 0))
        }
    };
    WorkloadOptions { ephemeral_parts: !local.servers.is_empty(), ..drawn }
}

/// A session is upgraded only once, so many upgrades need many sessions.
fn draw_upgrades(wide: bool, local: &LocalRules, faults: &mut FaultPlan, seeds: Seeds) {
    if !wide || local.servers.is_empty() {
        return;
    }
    let many = seeds.stream("config/local", 1).chance(1, 2);
    if many && faults.on().nth(1).is_some() {
        faults.switch_on(Fault::ClientClose, (8, 1));
    }
}

fn draw_disk(wide: bool, rng: &mut Rng) -> Pace {
    Pace {
        sync_mean: rng.magnitude(50_000, if wide { 20_000_000 } else { 3_000_000 }),
        op_mean: rng.magnitude(1_000, 50_000),
        per_kib: rng.magnitude(100, 5_000),
        steady: false,
    }
}

fn draw_link(wide: bool, faults: &FaultPlan, rng: &mut Rng) -> LinkPace {
    let cut = rng.range(2, 20);
    LinkPace {
        min: rng.magnitude(10_000, 1_000_000),
        mean: rng.magnitude(20_000, if wide { 50_000_000 } else { 2_000_000 }),
        tail_one_in: if faults.has(Fault::NetTail) { 200 } else { 0 },
        cut_one_in: if faults.has(Fault::NetCut) { cut } else { 0 },
    }
}

/// Many short runs, and so many heals, find defects of a single epoch; long runs find those that
/// accumulate.
fn draw_duration(profile: Profile, seeds: Seeds) -> Duration {
    let usual: &[u64] = match profile {
        Profile::Swarm => &[15, 30, 60, 60, 120],
        Profile::Lite => &[10],
        Profile::Default
        | Profile::Calm
        | Profile::Crashy
        | Profile::Disk
        | Profile::Net
        | Profile::Session
        | Profile::Perf => &[60],
    };
    Duration::from_secs(*seeds.stream("config/duration", 0).pick(usual))
}

fn draw_left_out(profile: Profile, quiet: bool, servers: u32, seeds: Seeds) -> LeftOut {
    if quiet || profile == Profile::Lite {
        return LeftOut::default();
    }
    LeftOut::draw(servers, &mut seeds.stream("config/heal", 0))
}

/// Expiration of abandoned sessions and of container and TTL nodes is noticed only after a while.
fn draw_rest(profile: Profile, seeds: Seeds) -> Duration {
    let mut rng = seeds.stream("config/rest", 0);
    let rests = profile != Profile::Perf && rng.chance(1, 4);
    Duration::from_secs(if rests { rng.range(40, 90) } else { 0 })
}

/// Most profiles use the usual ensemble size; the swarm uses all sizes up to seven, common ones
/// more often.
fn draw_servers(profile: Profile, seeds: Seeds) -> u32 {
    let mut rng = seeds.stream("config/servers", 0);
    match profile {
        Profile::Default | Profile::Calm | Profile::Perf | Profile::Net => SERVERS,
        Profile::Swarm => *rng.pick(&[1, 2, 3, 3, 3, 4, 5, 5, 5, 6, SERVERS_MAX]),
        Profile::Lite => 3,
        Profile::Crashy | Profile::Disk | Profile::Session => *rng.pick(&[3, SERVERS]),
    }
}

/// Few ensembles have local sessions; in some of those only on a part of the servers. Most upgrade.
fn draw_local(profile: Profile, servers: u32, rng: &mut Rng) -> LocalRules {
    let some = match profile {
        Profile::Perf => return LocalRules::default(),
        Profile::Swarm | Profile::Session => rng.chance(1, 3),
        Profile::Default
        | Profile::Calm
        | Profile::Crashy
        | Profile::Disk
        | Profile::Net
        | Profile::Lite => rng.chance(1, 8),
    };
    let (all, upgrade) = (rng.chance(1, 2), rng.chance(2, 3));
    let ids = (1..=u64::from(servers)).map(ServerId);
    let servers = ids.filter(|_| (rng.chance(1, 2) || all) && some).collect();
    LocalRules { servers, upgrade }
}

/// Settings change between starts in few runs, and there mostly often. Local sessions are such a
/// setting, so runs with local sessions have more changes.
fn draw_config_changes(profile: Profile, local: &LocalRules, seeds: Seeds) -> u64 {
    let mut rng = seeds.stream("config/retold", 0);
    let parts = if local.servers.is_empty() { 1 } else { 2 };
    let often = match profile {
        Profile::Calm | Profile::Perf => return 0,
        Profile::Swarm | Profile::Session => rng.chance(parts, 4),
        Profile::Default | Profile::Crashy | Profile::Disk | Profile::Net | Profile::Lite => {
            rng.chance(1, 8)
        }
    };
    let one_in = *rng.pick(&[1, 2, 4]);
    if often { one_in } else { 0 }
}

/// Few ensembles grow. The new servers run for at least half of the phase of faults.
fn draw_growth(options: &mut Options, draws: bool, rng: &mut Rng) {
    let one_in = if options.profile == Some(Profile::Swarm) { 8 } else { 16 };
    let some = rng.chance(1, one_in);
    let half_ms = u64::try_from(options.duration.as_millis() / 2).unwrap_or(u64::MAX);
    if some && draws && options.servers > 1 && half_ms > 0 {
        options.grows_from = rng.range_u32(1, options.servers - 1);
        options.grows_at = Duration::from_millis(rng.range(half_ms.min(1_000), half_ms));
    }
}

/// In some ensembles the last servers observe. Two voters remain.
fn draw_observers(options: &mut Options, rng: &mut Rng) {
    let draws = !matches!(options.profile, Some(Profile::Calm | Profile::Perf));
    if draws && rng.chance(1, 6) && options.servers > 2 && options.grows_from == 0 {
        options.observers = rng.range_u32(1, OBSERVERS_MAX.min(options.servers - 2));
    }
}

/// In some ensembles of three servers or more that neither grow nor have observers from the start,
/// clients reconfigure. Some of the servers are members from the start.
fn draw_reconfigurations(options: &mut Options, ops_pinned: bool, seeds: Seeds) {
    let mut rng = seeds.stream("config/reconfig", 0);
    let some = match options.profile {
        Some(Profile::Calm | Profile::Perf) => return,
        Some(Profile::Swarm) => rng.chance(1, 5),
        Some(_) | None => rng.chance(1, 10),
    };
    let fixed = options.servers < 3 || options.grows_from > 0 || options.observers > 0;
    let asked = options.workload.mix.has(Op::Reconfig);
    if fixed || !(some || asked) || ops_pinned && !asked {
        return;
    }
    options.reconfigure(&mut rng);
}

impl Options {
    /// Lets clients reconfigure an ensemble of three servers or more.
    pub(super) fn reconfigure(&mut self, rng: &mut Rng) {
        self.reconfig_from = rng.range_u32(2, self.servers);
        // Configurations come with notifications, which need connections for that.
        self.peers.election_conns = true;
        if !self.workload.mix.has(Op::Reconfig) {
            self.workload.mix.set(Op::Reconfig, rng.range(1, 12));
        }
    }
}

impl PeerOptions {
    /// Notifications are lost, duplicated or delayed if [`Fault::NetVotes`] is on.
    fn draw(wide: bool, client: LinkPace, faults: &FaultPlan, seeds: Seeds) -> PeerOptions {
        let mut rng = seeds.stream("config/peers", 0);
        let link = LinkPace {
            min: rng.magnitude(10_000, 1_000_000),
            mean: rng.magnitude(20_000, if wide { 20_000_000 } else { 2_000_000 }),
            ..client
        };
        let mut one_in = |often| if rng.chance(1, 2) { rng.magnitude(often, 100) } else { 0 };
        let votes =
            VotePace { lost_one_in: one_in(3), twice_one_in: one_in(5), late_one_in: one_in(5) };
        let has = faults.has(Fault::NetVotes);
        PeerOptions {
            link,
            window: *rng.pick(&[1 << 10, 16 << 10, 256 << 10]),
            inputs: 8192,
            dial_timeout_ms: rng.magnitude(200, 5_000),
            votes: if has { votes } else { VotePace::WELL },
            election_conns: seeds.stream("config/election", 0).chance(1, 2),
            words_late_ms: 0,
        }
    }
}

impl WorkloadOptions {
    /// Clients that use the same paths, wait for each other, and protect nodes.
    fn draw_contention(&mut self, wide: bool, seeds: Seeds) {
        // Half of the calls of some runs, and three quarters in others, use the same two paths.
        let mut rng = seeds.stream("config/hot", 0);
        self.hot = self.paths * *rng.pick(&[0, 0, 1, 3]);
        // Few paths per setWatches request, so that clients with few watches also send several
        // requests.
        let rng = &mut seeds.stream("config/watches", 0);
        if rng.chance(1, 2) {
            self.watches_bytes = *rng.pick(&[1, 8, 20, 60]);
        }
        // Half of the calls follow a reply or an event: a closed loop, with herds of clients at a
        // watch.
        if wide && seeds.stream("config/eager", 0).chance(1, 4) {
            self.eager_one_in = 2;
            self.calls_per_second = self.calls_per_second.div_ceil(2);
        }
        // Half of the ACLs are restricted.
        if wide && seeds.stream("config/lists", 0).chance(1, 8) {
            self.narrow_one_in = 2;
        }
    }

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
            watches_bytes: 128 << 10,
            request_bytes: MAX_FRAME_DEFAULT,
            calls_max: CALLS_MAX,
            late_one_in: 0,
            read_only_one_in: 0,
            programs: 0,
            recipe: 0,
            late_percent: PING_PERCENT,
            narrow_one_in: 0,
            eager_one_in: 0,
            odd_one_in: 0,
            idle_one_in: 0,
            ephemeral_parts: false,
            hops: false,
        }
    }

    /// Writes per second if all calls are writes. Each attempt to create a session is a write, even
    /// if its client has left by the time of the commit, after each server's share of its
    /// timeout (seed 0xd2900066 of the swarm, 5 servers: sessions of 125 to 500 ms were requested
    /// faster than four syncs each allowed).
    fn writes_per_second(&self, clients: u32, servers: u32) -> u64 {
        let (low_ms, high_ms) = self.session_ms;
        self.calls_per_second + u64::from(clients * servers) * 2_000 / (low_ms + high_ms)
    }

    fn draw(wide: bool, tick_ms: u64, rng: &mut Rng) -> WorkloadOptions {
        WorkloadOptions {
            calls_per_second: if wide { rng.magnitude(10, 400) } else { 50 },
            paths: rng.range(5, 50),
            hot: 0,
            depth: usize::try_from(rng.range(1, 16)).expect("small"),
            data_bytes: *rng.pick(&[16, 100, 3_000]),
            session_ms: (tick_ms, tick_ms * rng.range(2, 25)),
            mix: OpMix::draw(wide, rng),
            reconnect_ms: *rng.pick(&[0, 100, 1_000]),
            watches_bytes: 128 << 10,
            request_bytes: MAX_FRAME_DEFAULT,
            calls_max: CALLS_MAX,
            late_one_in: 0,
            read_only_one_in: 0,
            programs: 0,
            recipe: 0,
            late_percent: PING_PERCENT,
            narrow_one_in: *rng.pick(&[0, 0, 30, 8]),
            eager_one_in: 0,
            odd_one_in: *rng.pick(&[0, 0, 0, 40]),
            idle_one_in: *rng.pick(&[0, 100, 300]),
            ephemeral_parts: false,
            hops: false,
        }
    }
}
