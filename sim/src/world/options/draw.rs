//! Draws the settings of a run from its seed.
//!
//! Owns the ranges, and which settings exclude each other. Must not know their effects.

use std::time::Duration;

use super::*;
use crate::engine::selection::Selectable;

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
/// About the bytes that a call may add to a snapshot; calls last for `CALLED_FOR` seconds.
const KEPT_PER_CALL: u64 = 50;
/// See `KEPT_PER_CALL`.
const CALLED_FOR: u64 = 60;
/// Bytes of snapshots per second that a swarm server may write, and their slices per second. With
/// more, a run takes a minute of CPU time in which little else happens (seed 0x79a1060: a tree of
/// thousands of nodes every 4 to 7 transactions in slices of 91 bytes, 20 million disk operations
/// and 6 GB).
const SNAPSHOT_BYTES: u64 = 2_000_000;
/// See `SNAPSHOT_BYTES`.
const SLICES: u64 = 1_000;

impl Options {
    /// Draws all settings that `pinned` leaves open.
    pub fn draw(seeds: Seeds, profile: Profile, pinned: &Pinned) -> Options {
        let wide = profile == Profile::Swarm;
        let mut faults = draw_faults(profile, &mut seeds.stream("config/faults", 0));
        // Without faults, no unlikely setting that resembles a fault is drawn, and the heal leaves
        // no server out.
        let quiet = faults.on().next().is_none();
        let at_marks = allowed_at_marks(profile, &faults, pinned);
        let one_in = if wide { 4 } else { 8 };
        let rules = match (&at_marks, &pinned.rules) {
            (Some(allowed), _) => {
                targets::draw(one_in, allowed, &mut seeds.stream("config/marks", 0))
            }
            (None, rules) => rules.clone().unwrap_or_default(),
        };
        let clients = match pinned.clients {
            Some(clients) => clients,
            None if wide => seeds.stream("config/clients", 0).range_u32(1, 30),
            None if profile == Profile::Lite => 4,
            None => 12,
        };
        let servers = match pinned.servers {
            Some(servers) => servers,
            None => draw_servers(profile, &mut seeds.stream("config/servers", 0)),
        };
        let mut server = if profile == Profile::Perf {
            ServerOptions { auth: workload::known(), ..ServerOptions::usual() }
        } else {
            ServerOptions::draw(wide, &mut seeds.stream("config/server", 0))
        };
        if profile != Profile::Perf {
            let rng = &mut seeds.stream("config/auth", 0);
            server.auth.x509 = rng.chance(1, 3);
            server.auth.ensemble = rng.chance(1, 3);
            server.throttle = Throttle::draw(&mut seeds.stream("config/throttle", 0));
            let rng = &mut seeds.stream("config/records", 0);
            if rng.chance(1, 8) {
                let bytes = rng.magnitude(400, 20_000);
                server.limits.record_bytes = usize::try_from(bytes).expect("small");
            }
            let rng = &mut seeds.stream("config/timeouts", 0);
            if rng.chance(1, 4) {
                server.session_ticks = (rng.range_u32(1, 4), rng.range_u32(10, 60));
            }
        }
        let local = draw_local(profile, servers, &mut seeds.stream("config/local", 0));
        if wide && !local.servers.is_empty() {
            // A session is upgraded only once, so many upgrades need many sessions.
            let many = seeds.stream("config/local", 1).chance(1, 2);
            if many && faults.on().nth(1).is_some() {
                faults.switch_on(Fault::ClientClose, (8, 1));
            }
        }
        faults.select(&pinned.faults);
        let config_change_one_in =
            draw_config_changes(profile, &local, &mut seeds.stream("config/retold", 0));
        let mut workload = match profile {
            Profile::Perf => WorkloadOptions::perf(),
            Profile::Default
            | Profile::Swarm
            | Profile::Calm
            | Profile::Crashy
            | Profile::Disk
            | Profile::Net
            | Profile::Session
            | Profile::Lite => {
                let mut rng = seeds.stream("config/workload", 0);
                WorkloadOptions::draw(wide, server.tick_ms.into(), &mut rng)
            }
        };
        let mut rng = seeds.stream("config/pace", 0);
        let disk = Pace {
            sync_mean: rng.magnitude(50_000, if wide { 20_000_000 } else { 3_000_000 }),
            op_mean: rng.magnitude(1_000, 50_000),
            per_kib: rng.magnitude(100, 5_000),
            steady: false,
        };
        let load = workload.writes_per_second(clients, servers) * SYNCS_PER_WRITE * disk.sync_mean;
        if disk.sync_mean > SLOW_SYNC || load > CARRIED {
            server.batch_commands = usize::MAX;
        }
        if wide && seeds.stream("config/forgetful", 0).chance(1, 3) {
            // Then even a learner that has missed little needs a snapshot.
            let mut rng = seeds.stream("config/forgetful", 1);
            let limits = &mut server.limits;
            limits.snapshots_kept = 1;
            limits.snapshot_txns = limits.snapshot_txns.min(rng.range_u32(5, 60));
        }
        if wide {
            bound_snapshots(&mut server.limits, workload.calls_per_second);
        }
        let cut = rng.range(2, 20);
        let link = LinkPace {
            min: rng.magnitude(10_000, 1_000_000),
            mean: rng.magnitude(20_000, if wide { 50_000_000 } else { 2_000_000 }),
            tail_one_in: if faults.has(Fault::NetTail) { 200 } else { 0 },
            cut_one_in: if faults.has(Fault::NetCut) { cut } else { 0 },
        };
        let mut peers =
            PeerOptions::draw(wide, link, &faults, &mut seeds.stream("config/peers", 0));
        // Many short runs, and so many heals, find defects of a single reign; long runs find those
        // that accumulate.
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
        let usual = *seeds.stream("config/duration", 0).pick(usual);
        let duration = pinned.duration.unwrap_or(Duration::from_secs(usual));
        workload.ephemeral_parts = !local.servers.is_empty();
        if profile != Profile::Perf {
            // Half of the calls of some runs, and three quarters in others, use the same two paths.
            let mut rng = seeds.stream("config/hot", 0);
            workload.hot = workload.paths * *rng.pick(&[0, 0, 1, 3]);
            // Few paths per setWatches request, so that clients with few watches also send several
            // requests.
            let rng = &mut seeds.stream("config/watches", 0);
            if rng.chance(1, 2) {
                workload.watches_bytes = *rng.pick(&[1, 8, 20, 60]);
            }
            // Half of the calls follow a reply or an event: a closed loop, with herds of clients at
            // a watch.
            if wide && seeds.stream("config/eager", 0).chance(1, 4) {
                workload.eager_one_in = 2;
                workload.calls_per_second = workload.calls_per_second.div_ceil(2);
            }
            // Half of the ACLs are restricted.
            if wide && seeds.stream("config/lists", 0).chance(1, 8) {
                workload.narrow_one_in = 2;
            }
        }
        if profile != Profile::Perf {
            rare::draw(seeds, servers, &mut server, &mut workload, &mut peers);
        }
        workload.mix.select(&pinned.ops);
        let rest = draw_rest(profile, &mut seeds.stream("config/rest", 0));
        let gone_one_in = if rest.is_zero() || !faults.has(Fault::ClientDeath) { 0 } else { 2 };
        let mut options = Options {
            profile: Some(profile),
            duration,
            servers,
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
            members: None,
            map_salt: 0,
            fault_events: if wide && pinned.duration.is_none() { FAULT_EVENTS } else { 0 },
            unhealed: profile == Profile::Lite,
            digest_txns: DIGEST_TXNS,
            disk_audit_txns: DISK_AUDIT_TXNS,
            rest,
            gone_one_in,
            left_out: if quiet || profile == Profile::Lite {
                LeftOut::default()
            } else {
                LeftOut::draw(servers, &mut seeds.stream("config/heal", 0))
            },
            without: pinned.without.clone(),
        };
        draw_growth(&mut options, !quiet, &mut seeds.stream("config/growth", 0));
        let carries = disk.sync_mean <= SLOW_SYNC && load <= CARRIED / 2;
        let rng = &mut seeds.stream("config/buggify", 0);
        pinned.buggify.apply(&mut options, (!quiet, carries), rng);
        options
    }
}

/// Expiration of abandoned sessions and of container and TTL nodes is noticed only after a while.
fn draw_rest(profile: Profile, rng: &mut Rng) -> Duration {
    let rests = profile != Profile::Perf && rng.chance(1, 4);
    Duration::from_secs(if rests { rng.range(40, 90) } else { 0 })
}

/// Most profiles use the usual ensemble size; the swarm uses all sizes up to seven, common ones
/// more often.
fn draw_servers(profile: Profile, rng: &mut Rng) -> u32 {
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
fn draw_config_changes(profile: Profile, local: &LocalRules, rng: &mut Rng) -> u64 {
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

/// The fewer calls, the more frequent snapshots may be, and the smaller their slices.
fn bound_snapshots(limits: &mut Limits, calls_per_second: u64) {
    let mean_bytes = calls_per_second * CALLED_FOR * KEPT_PER_CALL / 2;
    let bytes = mean_bytes * calls_per_second;
    let least = |enough: u64| u32::try_from(enough).unwrap_or(u32::MAX);
    limits.snapshot_txns = limits.snapshot_txns.max(least(bytes / SNAPSHOT_BYTES));
    let bytes = bytes / u64::from(limits.snapshot_txns);
    limits.snapshot_slice_bytes = limits.snapshot_slice_bytes.max(least(bytes / SLICES));
}

/// The faults of a profile by name, the odds that each is on, and factors of its usual rate.
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
        Profile::Lite => (&["node", "disk", "net", "client"], (1, 2), &[(2, 1), (4, 1), (8, 1)]),
    }
}

/// Modes of a power failure's data loss, which have no effect without a power failure.
const NOT_ALONE: [Fault; 3] = [Fault::DiskTorn, Fault::DiskGarbage, Fault::DiskNames];

/// One seed in eight has no faults, and one in eight a single fault at ten times its rate; the
/// others have a random subset of the profile's faults.
fn draw_faults(profile: Profile, rng: &mut Rng) -> FaultPlan {
    let mut plan = FaultPlan::none();
    let (groups, part, rates) = menu(profile);
    if groups.is_empty() {
        return plan;
    }
    let members: Vec<Fault> = groups.iter().flat_map(|group| Fault::matching(group)).collect();
    match rng.below(8) {
        0 => {}
        1 => {
            let alone =
                Vec::from_iter(members.into_iter().filter(|fault| !NOT_ALONE.contains(fault)));
            plan.switch_on(*rng.pick(&alone), (10, 1));
        }
        _ => {
            for fault in members {
                let (on, rate) = (rng.chance(part.0, part.1), *rng.pick(rates));
                if on {
                    plan.switch_on(fault, rate);
                }
            }
        }
    }
    plan
}

/// The faults that may be injected at marks, if rules are drawn. A seed with several faults may
/// also have rules with faults that are not injected by time, as long as they are in the profile
/// and not deselected.
fn allowed_at_marks(profile: Profile, drawn: &FaultPlan, pinned: &Pinned) -> Option<FaultPlan> {
    let mut allowed = drawn.clone();
    if drawn.on().nth(1).is_some() {
        for fault in menu(profile).0.iter().flat_map(|group| Fault::matching(group)) {
            allowed.switch_on(fault, (1, 1));
        }
        allowed.select(&pinned.faults);
    }
    pinned.rules.is_none().then_some(allowed)
}

impl Throttle {
    /// Throttles in few runs, and never so much that many clients need more than seconds to
    /// connect.
    fn draw(rng: &mut Rng) -> Throttle {
        if !rng.chance(1, 8) {
            return Throttle::OPEN;
        }
        let drops = rng.chance(3, 4);
        Throttle {
            tokens: rng.range_u32(1, 6),
            fill: Duration::from_millis(rng.magnitude(1, 150)),
            freeze: Duration::from_millis(if drops { rng.magnitude(1, 50) } else { 0 }),
            drops: (rng.range_u32(20_000, 300_000), rng.range_u32(50_000, 300_000)),
            weighted: rng.chance(1, 2),
            ..Throttle::OPEN
        }
    }
}

impl ServerOptions {
    fn draw(wide: bool, rng: &mut Rng) -> ServerOptions {
        let tick_ms = rng.magnitude(if wide { 50 } else { 200 }, 2_000);
        let tick_ms = u32::try_from(tick_ms).expect("drawn below 2^32");
        let usual = usual_limits(tick_ms);
        let rare = |rng: &mut Rng| rng.chance(1, if wide { 2 } else { 4 });
        let mut limits = usual.clone();
        draw_room(&mut limits, &usual, rare, rng);
        limits.snapshot_txns = match rng.below(4) {
            0 => usual.snapshot_txns,
            1 => rng.range_u32(1, 8),
            _ => rng.range_u32(9, 300),
        };
        if rare(rng) {
            limits.snapshot_slice_bytes = rng.range_u32(1, 400);
        }
        limits.snapshots_kept = rng.range_u32(1, 4);
        if rare(rng) {
            limits.epoch_txns = rng.range_u32(5, 300);
        }
        draw_pace(&mut limits, &usual, tick_ms, rare, rng);
        let mut options = ServerOptions {
            tick_ms,
            phase_ticks: (rng.range_u32(3, 10), rng.range_u32(2, 5)),
            limits,
            session_ticks: (2, 20),
            other_sessions: BTreeSet::new(),
            other_session_ticks: (2, 20),
            frame_bytes: MAX_FRAME_DEFAULT,
            outbound_bytes: OUTBOUND_BYTES,
            refused_command: 0,
            part_lines: PART_LINES,
            clients: ClientBounds::USUAL,
            throttle: Throttle::OPEN,
            auth: workload::known(),
            tree: draw_tree(rng),
            segment_bytes: *rng.pick(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]),
            batch_inputs: *rng.pick(&[1, 4, 64, 4_096]),
            turn_units: 10_000,
            batch_commands: *rng.pick(&[1, 3, usize::MAX]),
            // The work of one tick must fit into it, since session timeouts may be that short: with
            // 7 servers and a tick of 71 ms, a step of 198 us kept a leader busy for ever with
            // clients whose sessions had just expired (swarm 0xc1070067).
            step_ns: rng.magnitude(200, 200_000).min(u64::from(tick_ms) * 1_000),
            timer_slack_us: 0,
            log_pause_us: 0,
            snapshot_pause_us: 0,
        };
        if rare(rng) {
            options.limits.snapshot_bytes = rng.magnitude(500, 100_000);
        }
        options.limits.compare_txns = *rng.pick(&[1, 7, 50, usual.compare_txns]);
        options
    }
}

/// Limits on queued requests and undurable bytes; mostly the usual ones.
pub(crate) fn draw_room(
    limits: &mut Limits,
    usual: &Limits,
    rare: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) {
    limits.requests_per_conn =
        if rare(rng) { rng.range_u32(1, 8) } else { usual.requests_per_conn };
    limits.undurable_bytes =
        if rare(rng) { rng.magnitude(64, 4_096) } else { usual.undurable_bytes };
}

/// Waits in elections, and the synchronization of learners.
pub(crate) fn draw_pace(
    limits: &mut Limits,
    usual: &Limits,
    tick_ms: u32,
    rare: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) {
    // An elected leader waits one tick for followers. If they wait for longer before they follow,
    // no election ends; a wait nearly as long already does harm.
    let tick = Duration::from_millis(tick_ms.into());
    limits.final_wait = Duration::from_millis(rng.magnitude(1, 50)).min(tick / 8);
    limits.notify_min = Duration::from_millis(rng.magnitude(5, 100));
    limits.notify_max = Duration::from_millis(rng.magnitude(100, 1_000));
    limits.recent_bytes = if rare(rng) { rng.magnitude(64, 16_384) } else { usual.recent_bytes };
    limits.bulk_bytes = if rare(rng) { rng.range_u32(1, 2_000) } else { usual.bulk_bytes };
}

/// Containers are checked often, and deleted fast or slowly.
fn draw_tree(rng: &mut Rng) -> TreeOptions {
    TreeOptions {
        extended_types: rng.chance(3, 4),
        enforce_quota: rng.chance(1, 2),
        container_check_ms: rng.magnitude(200, 10_000),
        container_max_per_minute: *rng.pick(&[60, 600, 10_000]),
        container_never_used_ms: *rng.pick(&[0, 0, 3_000]),
    }
}

impl PeerOptions {
    /// Notifications are lost, duplicated or delayed if [`Fault::NetVotes`] is on.
    fn draw(wide: bool, client: LinkPace, faults: &FaultPlan, rng: &mut Rng) -> PeerOptions {
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
            words_late_ms: 0,
        }
    }
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
            watches_bytes: 128 << 10,
            request_bytes: MAX_FRAME_DEFAULT,
            calls_max: CALLS_MAX,
            late_one_in: 0,
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
    /// if its client has given up by the time of the commit, after each server's share of its
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

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, profile: Profile) -> Options {
        Options::draw(Seeds::new(seed), profile, &Pinned::default())
    }

    #[test]
    fn one_default_seed_in_eight_has_no_fault_and_one_has_a_single_fault() {
        let counts: Vec<usize> =
            (0..800).map(|seed| drawn(seed, Profile::Default).faults.on().count()).collect();
        let of = |n| counts.iter().filter(|&&count| count == n).count();
        assert!((70..130).contains(&of(0)), "{}", of(0));
        assert!((70..130).contains(&of(1)), "{}", of(1));
    }

    #[test]
    fn calm_profile_has_no_faults_and_pins_hold() {
        assert_eq!(drawn(1, Profile::Calm).faults, FaultPlan::none());
        let pinned = Pinned { clients: Some(3), servers: Some(4), ..Pinned::default() };
        let pins = Options::draw(Seeds::new(1), Profile::Swarm, &pinned);
        assert_eq!((pins.clients, pins.servers), (3, 4));
    }

    #[test]
    fn default_ensemble_has_five_servers_and_swarm_one_to_seven() {
        assert_eq!(drawn(3, Profile::Default).servers, 5);
        let sizes: BTreeSet<u32> =
            (0..100).map(|seed| drawn(seed, Profile::Swarm).servers).collect();
        assert!(sizes.into_iter().eq(1..=7));
    }

    #[test]
    fn disk_carries_twice_the_load_without_group_commit() {
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
    fn swarm_bounds_the_volume_of_snapshots() {
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
    fn fault_free_swarm_seeds_have_no_fault_like_settings() {
        let (mut quiet, mut single) = (0, 0);
        for options in (0..800).map(|seed| drawn(seed, Profile::Swarm)) {
            let faults: Vec<Fault> = options.faults.on().collect();
            match faults[..] {
                [] => {
                    quiet += 1;
                    assert!(!options.workload.hops && options.peers.words_late_ms == 0);
                    assert_eq!(options.left_out, LeftOut::default());
                    assert_eq!(options.rules, []);
                }
                [fault] => {
                    single += 1;
                    assert!(options.rules.iter().all(|rule| rule.fault == fault));
                }
                _ => {}
            }
        }
        assert!((70..130).contains(&quiet) && (70..130).contains(&single), "{quiet} {single}");
    }

    #[test]
    fn pinned_option_does_not_shift_other_draws() {
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
