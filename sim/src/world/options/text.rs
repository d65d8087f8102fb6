//! The drawn options as text for people.
//!
//! Owns the lines, one per subject. Must not be parsed: schedules have their own format.

use std::fmt;

use super::*;
use crate::clients::program::Recipe;
use crate::faults::heal;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One line per subject.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_faults(f)?;
        self.fmt_servers(f)?;
        self.fmt_auth(f)?;
        self.fmt_bounds(f)?;
        self.fmt_rarities(f)?;
        self.fmt_storage(f)?;
        self.fmt_clients_and_links(f)?;
        self.fmt_buggify(f)?;
        let Options { disk, link, .. } = self;
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

impl Options {
    fn fmt_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { profile, duration, servers, clients, faults, .. } = self;
        let source =
            profile.map_or("schedule".to_owned(), |profile| format!("profile   {profile}"));
        let plural = if *servers == 1 { "" } else { "s" };
        writeln!(
            f,
            "{source}: {servers} server{plural}, {clients} clients, {duration:?} of faults, \
             {:?} of rest",
            self.rest
        )?;
        writeln!(f, "faults    {faults}")?;
        let fates = self.left_out.fates(*servers);
        if !fates.is_empty() {
            writeln!(f, "heal      {}", heal::describe(&fates, self.all_servers()))?;
        }
        if !self.rules.is_empty() {
            let rules: Vec<String> = self.rules.iter().map(Rule::to_string).collect();
            writeln!(f, "at marks  {}", rules.join(" "))?;
        }
        if !self.forks.is_empty() {
            writeln!(f, "forks     {}", fork::path(&self.forks))?;
        }
        Ok(())
    }

    fn fmt_servers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, limits) = (&self.server, &self.server.limits);
        writeln!(
            f,
            "server    tick={}ms init={} sync={} requests/conn={} undurable={}B epoch={}txns \
             batch={} \
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
        let Throttle { tokens, fill, fill_count, freeze, drops, decrease_ratio, .. } =
            server.throttle;
        if tokens > 0 {
            let weights = server.throttle.weighted.then_some(server.throttle.weights);
            writeln!(
                f,
                "throttle  {tokens} at once, {fill_count} in {fill:?}, drops +{} -{} at \
                 {decrease_ratio} in {freeze:?}, \
                 weights={weights:?}",
                drops.0, drops.1
            )?;
        }
        Ok(())
    }

    fn fmt_auth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        let AuthOptions { x509, ensemble, .. } = server.auth;
        if (x509, ensemble, server.session_ticks) != (false, false, (2, 20)) {
            let (min, max) = server.session_ticks;
            writeln!(
                f,
                "auth      x509={x509} ensemble={ensemble}; sessions of {min}..{max} ticks"
            )?;
        }
        let AuthOptions { skip_acl, digest_disabled, .. } = server.auth;
        if skip_acl || digest_disabled {
            writeln!(f, "auth      lists are skipped={skip_acl} without digest={digest_disabled}")?;
        }
        if !server.other_sessions.is_empty() {
            let ids: Vec<String> = server.other_sessions.iter().map(ServerId::to_string).collect();
            let (min, max) = server.other_session_ticks;
            writeln!(f, "sessions  servers {}: of {min}..{max} ticks", ids.join(" "))?;
        }
        Ok(())
    }

    fn fmt_bounds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { server, workload, .. } = self;
        let limits = &server.limits;
        writeln!(
            f,
            "bounds    hold={:?} frame={}B outbound={}B; of clients request={}B calls={}",
            limits.hold,
            server.frame_bytes,
            server.outbound_bytes,
            workload.request_bytes,
            workload.calls_max
        )?;
        let clients = server.clients;
        if clients != ClientBounds::USUAL {
            writeln!(
                f,
                "clients   output={}B events={}B requests={} and {} handshake={}ms",
                clients.output_bytes,
                clients.event_bytes,
                clients.outstanding,
                clients.throttle_max_requests,
                clients.sessionless_ms
            )?;
        }
        let (refused, part_lines) = (server.refused(), server.part_lines);
        if refused.is_some() || part_lines != PART_LINES {
            let refused = refused.map_or("none", FourLetterCommand::name);
            writeln!(f, "operators refused={refused}, answers in parts of {part_lines} lines")?;
        }
        Ok(())
    }

    /// Properties of few runs.
    fn fmt_rarities(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { workload, .. } = self;
        if !self.local.servers.is_empty() {
            let ids: Vec<String> = self.local.servers.iter().map(ServerId::to_string).collect();
            writeln!(f, "local     servers {}, upgrade={}", ids.join(" "), self.local.upgrade)?;
        }
        if self.server.read_only_mode {
            let one_in = workload.read_only_one_in;
            writeln!(f, "read-only mode, accepted by one client in {one_in}")?;
        }
        if workload.programs > 0 {
            let what = match &self.custom {
                Some(custom) => format!("run the workload of `{}`", custom.command()),
                None => format!("use the recipe {:?}", Recipe::at(workload.recipe)),
            };
            writeln!(f, "programs  {} clients {what}", workload.programs)?;
        }
        if !self.server.leader_serves {
            writeln!(f, "leaders   serve no clients")?;
        }
        if self.observers > 0 {
            let ids: Vec<String> = self.observers().map(|id| format!("s{id}")).collect();
            let fed = if self.observer_masters { ", fed by followers" } else { "" };
            writeln!(f, "ensemble  {} observes{fed}", ids.join(", "))?;
        }
        if let Some(first) = self.first_voters() {
            writeln!(f, "grows     from {} after {:?}", first.len(), self.grows_at)?;
        }
        if let Some(first) = self.reconfigured() {
            writeln!(f, "reconfig  from {} voters", first.len())?;
        }
        if let Some(weights) = self.weights() {
            let each =
                weights.voters().map(|(id, group, weight)| format!("s{id}={group}:{weight}"));
            writeln!(f, "quorums   by group:weight {}", each.collect::<Vec<_>>().join(" "))?;
        }
        if let Some(id) = self.permitted() {
            writeln!(f, "oracle    permits s{id} to go on alone while the other one is down")?;
        }
        if !self.older.servers.is_empty() {
            let Older { servers, upgrade_at, pause, .. } = &self.older;
            let ids: Vec<String> = servers.iter().map(|id| format!("s{id}")).collect();
            let ids = ids.join(", ");
            write!(f, "releases  {ids} of the last one until {upgrade_at:?}")?;
            if let Some(at) = self.downgrade_at() {
                write!(f, ", and again from {at:?}")?;
            }
            writeln!(f, ", {pause:?} from one to the next")?;
        }
        if self.peers.election_conns {
            writeln!(f, "elections by connections of their own channel")?;
        }
        if workload.late_one_in > 0 {
            let (one_in, percent) = (workload.late_one_in, workload.late_percent);
            writeln!(f, "pings     of one client in {one_in} after {percent} % of its timeout")?;
        }
        if self.config_change_one_in > 0 {
            writeln!(f, "restarts  one in {} with other settings", self.config_change_one_in)?;
        }
        Ok(())
    }

    fn fmt_storage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, limits) = (&self.server, &self.server.limits);
        if limits.record_bytes < 1 << 20 {
            writeln!(f, "records   of up to {} bytes", limits.record_bytes)?;
        }
        let TreeOptions { extended_types, enforce_quota, .. } = server.tree;
        writeln!(
            f,
            "tree      ttl={extended_types} quota={enforce_quota} containers every {}ms, {}/min, \
             unused={}ms",
            server.tree.container_check_ms,
            server.tree.container_max_per_minute,
            server.tree.container_never_used_ms,
        )?;
        writeln!(
            f,
            "snapshots every {}..{} txns or {}B, slice={}B, kept={}, compared every {}; log \
             segment={}B, batch={}",
            limits.snapshot_txns / 2 + 1,
            limits.snapshot_txns,
            limits.snapshot_bytes,
            limits.snapshot_slice_bytes,
            limits.snapshots_kept,
            limits.compare_txns,
            server.segment_bytes,
            if server.batch_commands == usize::MAX { 0 } else { server.batch_commands }
        )
    }

    fn fmt_clients_and_links(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { workload, peers, .. } = self;
        let limits = &self.server.limits;
        writeln!(
            f,
            "workload  {}/s on {} paths (two of them {}x), depth={}, data<={}B, sessions {}..{}ms, \
             narrow=1/{} eager=1/{} odd=1/{}, ops {}",
            workload.calls_per_second,
            workload.paths,
            1 + workload.hot / 2,
            workload.depth,
            workload.data_bytes,
            workload.session_ms.0,
            workload.session_ms.1,
            workload.narrow_one_in,
            workload.eager_one_in,
            workload.odd_one_in,
            workload.mix
        )?;
        writeln!(
            f,
            "peers     link {}us+{}us window={}B inputs={} dial<={}ms recent={}B bulk={}B; votes \
             lost=1/{} \
             twice=1/{} late=1/{}, wait={:?} again={:?}..{:?}",
            peers.link.min / 1_000,
            peers.link.mean / 1_000,
            peers.window,
            peers.inputs,
            peers.dial_timeout_ms,
            limits.recent_bytes,
            limits.bulk_bytes,
            peers.votes.lost_one_in,
            peers.votes.twice_one_in,
            peers.votes.late_one_in,
            limits.final_wait,
            limits.notify_min,
            limits.notify_max,
        )
    }

    /// Unlikely settings.
    fn fmt_buggify(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { server, workload, peers, .. } = self;
        let limits = &server.limits;
        let (snapshots, hops) = (limits.prefer_snapshots, workload.hops);
        let (slack_us, late_ms) = (server.timer_slack_us, peers.words_late_ms);
        if snapshots || hops || slack_us > 0 || late_ms > 0 {
            writeln!(
                f,
                "buggify   snapshots first={snapshots} timers late<={slack_us}us words \
                 late<={late_ms}ms hops={hops}"
            )?;
        }
        let (log_us, pieces_us) = (server.log_pause_us, server.snapshot_pause_us);
        if log_us > 0 || pieces_us > 0 {
            writeln!(f, "pauses    log<={log_us}us snapshots<={pieces_us}us")?;
        }
        let usual = ServerOptions::usual();
        if (limits.step_units, server.turn_units) != (usual.limits.step_units, usual.turn_units) {
            writeln!(f, "work      step={} turn={}", limits.step_units, server.turn_units)?;
        }
        let factor = limits.snapshot_size_factor;
        if factor != usual.limits.snapshot_size_factor {
            writeln!(f, "learners  snapshotSizeFactor={factor} millionths")?;
        }
        Ok(())
    }
}
