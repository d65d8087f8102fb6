//! Answers that consist of named figures: `srvr`, `stat`, `mntr`, `conf`, `dirs`, `envi`.
//!
//! Owns their comparison with a moment. Must not know lists.

use zabkeeper_core::wire::FourLetterCommand;
use zabkeeper_core::{Mode, PendingReconfig, ServerProgress, Status, Zxid};

use super::Found;
use super::fields::{Fields, before, behind, between, cut, latency, number};
use crate::check::answers::{Answer, Between, Moment};

/// The answer to `srvr`.
pub(super) fn server(now: &Moment, text: &str) -> Found {
    let status = status_of(now)?;
    let (head, rest) = cut(text, "\n")?;
    version(behind(head, "Zookeeper version: ")?)?;
    let only = "READ-ONLY mode; serving only read-only clients\n";
    let rest = if status.mode == Mode::ReadOnly { behind(rest, only)? } else { rest };
    let mut fields = Fields::of(rest.lines(), ": ")?;
    let times: Vec<&str> = fields.take("Latency min/avg/max")?.split('/').collect();
    let [min, avg, max] = times[..] else { return Err(format!("what are {times:?}?")) };
    if !now.counters.mixed {
        latency([min, avg, max], now.counters.latency_max_ms)?;
    }
    counter(now, "Received", fields.take("Received")?, now.counters.received)?;
    counter(now, "Sent", fields.take("Sent")?, now.counters.sent)?;
    fields.is("Connections", now.conns.len())?;
    fields.is_between("Outstanding", now.counters.outstanding)?;
    fields.is("Zxid", zxid(status))?;
    fields.is("Mode", mode(status.mode))?;
    fields.is("Node count", status.nodes)?;
    if status.mode == Mode::Leader {
        let sizes = fields.take("Proposal sizes last/min/max")?;
        let [last, min, max] = now.counters.proposals.1;
        let right = format!("{last}/{min}/{max}");
        if sizes != right && !now.counters.mixed {
            return Err(format!("the sizes of proposals are {sizes}, not {right}"));
        }
    }
    fields.end()
}

/// The answer to `mntr`.
pub(super) fn monitoring(answer: &Answer, now: &Moment, text: &str) -> Found {
    let status = status_of(now)?;
    let lines: Result<Vec<&str>, String> = text.lines().map(|line| behind(line, "zk_")).collect();
    let mut fields = Fields::of(lines?, "\t")?;
    version(fields.take("version")?)?;
    fields.is("server_state", mode(status.mode))?;
    fields.is("ephemerals_count", status.ephemerals)?;
    fields.is("num_alive_connections", now.conns.len())?;
    fields.is("znode_count", status.nodes)?;
    fields.is("global_sessions", status.sessions)?;
    fields.is("local_sessions", status.local_sessions)?;
    fields.is("approximate_data_size", status.data_bytes)?;
    fields.is("watch_count", now.watches)?;
    fields.is("uptime", now.uptime_ms)?;
    fields.is_between("outstanding_requests", now.counters.outstanding)?;
    let descriptors = answer.descriptors.ok_or("nobody has counted file descriptors")?;
    fields.is("open_file_descriptor_count", descriptors)?;
    fields.is("max_file_descriptor_count", 1_024)?;
    fields.is("large_requests_rejected", 0)?;
    let times = [fields.take("min_latency")?, fields.take("avg_latency")?];
    let max = fields.take("max_latency")?;
    if !now.counters.mixed {
        latency([times[0], times[1], max], now.counters.latency_max_ms)?;
    }
    for (name, right) in [
        ("packets_received", now.counters.received),
        ("packets_sent", now.counters.sent),
        ("bytes_received_count", now.counters.bytes),
        ("connection_request_count", now.counters.handshakes),
    ] {
        counter(now, name, fields.take(name)?, right)?;
    }
    // Only the driver knows which connections it refuses.
    for name in ["connection_rejected", "sessionless_connections_expired"] {
        number(fields.take(name)?)?;
    }
    let chance = fields.take("connection_drop_probability")?;
    let chance: f64 = chance.parse().map_err(|_| format!("{chance:?} is no probability"))?;
    if !(0.0..=1.0).contains(&chance) {
        return Err(format!("{chance} is no probability"));
    }
    let (count, sizes) = now.counters.proposals;
    counter(now, "proposal_count", fields.take("proposal_count")?, Between(count, count))?;
    of_role(now, status, sizes, &mut fields)?;
    if status.mode != Mode::Standalone {
        let votes = |line: &&String| line.contains(":participant");
        fields.is("quorum_size", now.settings.members.iter().filter(votes).count())?;
    }
    // The rest are measurements of the driver.
    fields.end_in_numbers()
}

/// The lines of `mntr` that depend on the role of the server.
fn of_role(now: &Moment, status: &Status, sizes: [i64; 3], fields: &mut Fields<'_>) -> Found {
    match status.mode {
        Mode::Leader => {
            fields.is("peer_state", "leading - broadcast")?;
            fields.is("synced_followers", status.synced_followers)?;
            fields.is("learners", status.learners)?;
            fields.is("pending_syncs", status.pending_syncs)?;
            fields.is("leader_uptime", now.leader_uptime_ms)?;
            fields.is("synced_non_voting_followers", 0)?;
            fields.is("synced_observers", status.synced_observers)?;
            progress(now, fields)?;
            for (name, size) in ["last", "min", "max"].into_iter().zip(sizes) {
                let name = format!("{name}_proposal_size");
                let found = fields.take(&name)?;
                if found != size.to_string() && !now.counters.mixed {
                    return Err(format!("{name:?} is {found}, not {size}"));
                }
            }
        }
        Mode::Follower => fields.is("peer_state", "following - broadcast")?,
        Mode::Observer => fields.is("peer_state", "observing - broadcast")?,
        Mode::Standalone | Mode::Looking | Mode::ReadOnly => {}
    }
    Ok(())
}

/// The lines of a leader about the other servers, and about a reconfiguration.
fn progress(now: &Moment, fields: &mut Fields<'_>) -> Found {
    let report = now.report.as_ref().ok_or("the server does not serve")?;
    let others = report.progress.iter().filter(|other| other.server != report.status.id);
    for ServerProgress { server, behind, lag, .. } in others {
        let unknown = || "-1".to_owned();
        let lag = lag.as_millis().to_string();
        let [txns, ms] = match behind {
            Some(count) => [count.to_string(), lag],
            None => [unknown(), unknown()],
        };
        fields.is(&format!("learner_lag_txns_{server}"), txns)?;
        fields.is(&format!("learner_lag_ms_{server}"), ms)?;
    }
    let pending = report.pending_reconfig.as_ref();
    if now.settings.reconfigurable {
        fields.is("reconfig_in_progress", u8::from(pending.is_some()))?;
    }
    let Some(PendingReconfig { version, waited, missing_old, missing_new }) = pending else {
        return Ok(());
    };
    fields.is("reconfig_version", format!("{:x}", version.0))?;
    fields.is("reconfig_wait_ms", waited.as_millis())?;
    for (which, missing) in [("old", missing_old), ("new", missing_new)] {
        let mut ids = missing.iter().map(|of| of.server.to_string()).collect::<Vec<_>>();
        if ids.is_empty() {
            ids.push("none".to_owned());
        }
        fields.is(&format!("reconfig_missing_{which}_voters"), ids.join(","))?;
    }
    Ok(())
}

/// The answer to `conf`.
pub(super) fn settings(answer: &Answer, now: &Moment, text: &str) -> Found {
    let lines = text.lines().filter(|line| *line != "membership: ");
    let mut fields = Fields::of(lines, "=")?;
    let [snapshots, log] = answer.disk.ok_or("nobody has measured the directories")?;
    fields.is("dataDirSize", snapshots)?;
    fields.is("dataLogSize", log)?;
    for (name, value) in &now.settings.values {
        fields.is(name, value)?;
    }
    for line in &now.settings.members {
        let (name, value) = cut(line, "=")?;
        fields.is(name, value)?;
    }
    fields.end()
}

/// The answer to `dirs`.
pub(super) fn directories(answer: &Answer, text: &str) -> Found {
    let [snapshots, log] = answer.disk.ok_or("nobody has measured the directories")?;
    let mut fields = Fields::of(text.lines(), ": ")?;
    fields.is("datadir_size", snapshots)?;
    fields.is("logdir_size", log)?;
    fields.end()
}

/// The answer to `envi`: the values that the simulator has supplied, and no others.
pub(super) fn environment(text: &str) -> Found {
    let mut fields = Fields::of(behind(text, "Environment:\n")?.lines(), "=")?;
    version(fields.take("zookeeper.version")?)?;
    number(behind(fields.take("host.name")?, "s")?)?;
    fields.is("os.name", "Linux")?;
    fields.is("os.arch", "amd64")?;
    fields.is("os.memory.free", "256MB")?;
    fields.is("os.memory.max", "512MB")?;
    fields.is("os.memory.total", "512MB")?;
    behind(fields.take("java.version")?, "<NA>")?;
    for name in ["vendor", "home", "class.path", "library.path", "io.tmpdir", "compiler"] {
        fields.is(&format!("java.{name}"), "<NA>")?;
    }
    for name in ["os.version", "user.name", "user.home", "user.dir"] {
        fields.is(name, "<NA>")?;
    }
    fields.end()
}

/// Received and sent, in answers that have both.
pub(super) fn traffic(command: FourLetterCommand, text: &str) -> Option<(u64, u64)> {
    let names = if command == FourLetterCommand::Mntr {
        ["zk_packets_received\t", "zk_packets_sent\t"]
    } else if matches!(command, FourLetterCommand::Srvr | FourLetterCommand::Stat) {
        ["Received: ", "Sent: "]
    } else {
        return None;
    };
    let [received, sent] = names.map(|name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.parse().ok())
    });
    Some((received?, sent?))
}

fn counter(now: &Moment, name: &str, value: &str, right: Between) -> Found {
    let value = number(value)?;
    if now.counters.mixed { Ok(()) } else { between(name, value, right) }
}

fn status_of(now: &Moment) -> Result<&Status, String> {
    Ok(&now.report.as_ref().ok_or("the server does not serve")?.status)
}

fn version(text: &str) -> Found {
    let (ours, _) = cut(behind(text, "3.9.4-zabkeeper-")?, ", built on ")?;
    before(text, " UTC")?;
    if ours.is_empty() { Err("the version has no number".to_owned()) } else { Ok(()) }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Looking => "looking",
        Mode::ReadOnly => "read-only",
        Mode::Standalone => "standalone",
        Mode::Leader => "leader",
        Mode::Follower => "follower",
        Mode::Observer => "observer",
    }
}

/// A leader shows its epoch before it has a transaction in it.
fn zxid(status: &Status) -> String {
    let begin = Zxid(u64::from(status.current_epoch.0) << 32);
    let shown =
        if status.mode == Mode::Leader { status.applied.max(begin) } else { status.applied };
    format!("{:#x}", shown.0)
}
