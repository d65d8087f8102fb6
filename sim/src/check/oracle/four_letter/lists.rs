//! Answers that consist of lists: connections, sessions, ephemeral nodes, watches.
//!
//! Owns their comparison with moments. Must not know figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use zabkeeper_core::{ConnId, Instant, Mode, SessionId, SessionInfo};

use super::Found;
use super::fields::{Fields, before, behind, between, cut, latency, number, seconds, session};
use crate::check::answers::{ConnFacts, Moment};
use crate::check::observe::SelfReport;

/// The answer to `cons`.
pub(super) fn connections(now: &Moment, text: &str) -> Found {
    let body = before(text, "\n\n")?;
    each(now, body, |facts, fields| {
        let Some((session, timeout_ms)) = facts.served else { return Ok(()) };
        fields.is("sid", session)?;
        fields.is("to", timeout_ms)?;
        fields.is("est", facts.since.0)?;
        let (xid, zxid) = facts.last;
        if let Some(xid) = xid {
            fields.is("lcxid", format!("{xid:#x}"))?;
        }
        fields.is("lzxid", format!("{:#x}", zxid.unwrap_or(-1)))?;
        let times = [fields.take("minlat")?, fields.take("avglat")?, fields.take("maxlat")?];
        // The mean is cut to whole ms.
        latency(times, facts.latency_max_ms)?;
        if number(fields.take("llat")?)? > number(times[2])? {
            return Err("the last latency is above the longest one".to_owned());
        }
        number(fields.take("lresp")?)?;
        fields.take("lop").map(drop)
    })
}

/// The connections in the answer to `stat`.
pub(super) fn brief(now: &Moment, text: &str) -> Found {
    each(now, text, |_, _| Ok(()))
}

/// Checks a line for each connection.
fn each(now: &Moment, text: &str, more: impl Fn(&ConnFacts, &mut Fields<'_>) -> Found) -> Found {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() != now.conns.len() {
        return Err(format!("{} connections are listed, not {}", lines.len(), now.conns.len()));
    }
    for (line, facts) in lines.into_iter().zip(&now.conns) {
        let (address, rest) = cut(behind(line, " /")?, "](")?;
        let (address, _) = address.rsplit_once('[').ok_or("no interest is shown")?;
        if address != facts.peer.to_string() {
            return Err(format!("{address} is listed where {} is connected", facts.peer));
        }
        let mut fields = Fields::of(before(rest, ")")?.split(','), "=")?;
        fields.is_between("queued", facts.unanswered)?;
        if !now.counters.mixed {
            fields.is_between("recved", facts.received)?;
            fields.is_between("sent", facts.sent)?;
            more(facts, &mut fields)?;
            fields.end()?;
        }
    }
    Ok(())
}

/// The answer to `wchs`.
pub(super) fn watch_summary(now: &Moment, text: &str) -> Found {
    let report = now.report.as_ref().ok_or("the server does not serve")?;
    let conns: BTreeSet<ConnId> = report.by_conn.iter().map(|(conn, _)| *conn).collect();
    let paths: BTreeSet<&str> = report.by_path.iter().map(|(_, path)| path.as_str()).collect();
    let (summary, total) = cut(before(text, "\n")?, "\nTotal watches:")?;
    between("watches", number(total)?, exactly(report.by_conn.len()))?;
    let (listed, rest) = cut(summary, " connections watching ")?;
    between("watching connections", number(listed)?, exactly(conns.len()))?;
    between("watched paths", number(before(rest, " paths")?)?, exactly(paths.len()))
}

/// The answer to `wchc` or `wchp`.
pub(super) fn watches(moments: &[&Moment], text: &str, by_session: bool) -> Found {
    let mut listed = Vec::new();
    for (head, line) in pairs(before(text, "\n")?)? {
        let (id, path) = if by_session { (head, line) } else { (line, head) };
        listed.push((session(id)?, path.to_owned()));
    }
    let named = |at: &Moment| -> Vec<((SessionId, String), ConnId)> {
        let pairs = at.report.iter().flat_map(|report| &report.by_conn);
        pairs.map(|(conn, path)| ((session_of(at, *conn), path.clone()), *conn)).collect()
    };
    let [first, .., last] = moments else {
        let right = named(moments[0]).into_iter().map(|(pair, _)| pair).collect();
        return same("watches", listed, right);
    };
    // A client that asks for nothing can only lose watches.
    let facts = |at: &Moment, conn| at.conns.iter().find(|facts| facts.conn == conn).cloned();
    let rests = |conn: ConnId| match (facts(first, conn), facts(last, conn)) {
        (Some(old), Some(new)) => old.processed == new.processed && old.unanswered.1 == 0,
        (_, None) | (None, _) => false,
    };
    let all: Vec<BTreeSet<(SessionId, String)>> = moments
        .iter()
        .map(|at| {
            let sure = named(at).into_iter().filter(|(_, conn)| rests(*conn));
            sure.map(|(pair, _)| pair).collect()
        })
        .collect();
    let any: BTreeSet<(SessionId, String)> =
        moments.iter().flat_map(|at| named(at)).map(|(pair, _)| pair).collect();
    within("watches", &listed, &all, &any)
}

/// The answer to `dump`.
pub(super) fn dump(moments: &[&Moment], text: &str) -> Found {
    let sessions = behind(text, "SessionTracker dump:\n")?;
    let (sessions, rest) = cut(sessions, "ephemeral nodes dump:\nSessions with Ephemerals (")?;
    let (owners, rest) = cut(rest, "):\n")?;
    let (ephemerals, conns) = cut(rest, "Connections dump:\nConnections ")?;
    let begins = |at: &&&Moment| -> Found {
        let report = at.report.as_ref().ok_or("the server does not serve")?;
        between("owners", number(owners)?, exactly(report.ephemerals.len()))?;
        tracked(at, report, sessions)?;
        connected(at, conns)
    };
    let mut found = Ok(());
    let begun = moments.iter().any(|at| {
        found = begins(&at);
        found.is_ok()
    });
    if !begun {
        return found;
    }
    let mut listed = Vec::new();
    for (head, path) in pairs(ephemerals)? {
        listed.push((session(before(head, ":")?)?, path.to_owned()));
    }
    let owned = |at: &&Moment| at.ephemerals.iter().cloned().collect();
    let all: Vec<BTreeSet<_>> = moments.iter().map(owned).collect();
    let any = all.iter().flatten().cloned().collect();
    let unique: BTreeSet<_> = listed.iter().collect();
    if unique.len() != listed.len() {
        return Err("an ephemeral node is listed twice".to_owned());
    }
    within("ephemeral nodes", &listed, &all, &any)
}

/// The sessions of `dump`.
fn tracked(at: &Moment, report: &SelfReport, text: &str) -> Found {
    let mut text = text;
    if let Some(rest) = text.strip_prefix("Local Session ") {
        let (sets, rest) = sets(rest)?;
        expiring(at, &report.local_sessions, &sets)?;
        text = rest.strip_prefix("Global ").unwrap_or(rest);
    } else if !report.local_sessions.is_empty() {
        return Err("local sessions are missing".to_owned());
    }
    if matches!(report.status.mode, Mode::Leader | Mode::Standalone) {
        let (sets, rest) = sets(behind(text, "Session ")?)?;
        expiring(at, &report.sessions, &sets)?;
        return if rest.is_empty() { Ok(()) } else { Err(format!("what is {rest:?}?")) };
    }
    let text = text.strip_prefix("Global ").unwrap_or(text);
    let (count, lines) = cut(behind(text, "Sessions(")?, "):\n")?;
    between("sessions", number(count)?, exactly(report.sessions.len()))?;
    let right = report.sessions.iter().map(|info| format!("{}\t{}ms", info.id, info.timeout_ms));
    same("sessions", lines.lines().map(str::to_owned).collect(), right.collect())
}

/// Groups of lines below the second at which they expire.
type Sets<'a> = Vec<(i64, Vec<&'a str>)>;

fn sets(text: &str) -> Result<(Sets<'_>, &str), String> {
    let (head, mut rest) = cut(behind(text, "Sets (")?, "):\n")?;
    let (count, all) = cut(head, ")/(")?;
    let mut sets = Vec::new();
    for _ in 0..number(count)? {
        let (head, lines) = cut(rest, ":\n")?;
        let (members, date) = cut(head, " expire at ")?;
        let mut set = Vec::new();
        rest = lines;
        for _ in 0..number(members)? {
            let (line, lines) = cut(rest, "\n")?;
            set.push(behind(line, "\t")?);
            rest = lines;
        }
        sets.push((seconds(date)?, set));
    }
    let found = sets.iter().map(|(_, set)| set.len()).sum();
    between("members of sets", number(all)?, exactly(found))?;
    Ok((sets, rest))
}

/// Sessions are listed below the second at which they expire by the server's clocks.
fn expiring(at: &Moment, sessions: &[SessionInfo], sets: &Sets<'_>) -> Found {
    let mut right: BTreeMap<Instant, BTreeSet<SessionId>> = BTreeMap::new();
    for info in sessions {
        if let Some(expires) = info.expires {
            right.entry(expires).or_default().insert(info.id);
        }
    }
    let second = |expires: Instant| {
        let ahead = expires.since(at.now.mono).as_millis();
        (at.now.wall.0 + i64::try_from(ahead).unwrap_or(i64::MAX)).div_euclid(1_000)
    };
    let right: Vec<_> = right.into_iter().map(|(expires, ids)| (second(expires), ids)).collect();
    let mut found = Vec::new();
    for (second, set) in sets {
        let ids: Result<BTreeSet<SessionId>, String> = set.iter().map(|id| session(id)).collect();
        found.push((*second, ids?));
    }
    same("expiring sessions", found, right)
}

/// The connections of `dump`. Who expires when depends on ZooKeeper's intervals: unit tests check
/// that.
fn connected(at: &Moment, text: &str) -> Found {
    let (sets, rest) = sets(text)?;
    let lines = sets.into_iter().flat_map(|(_, set)| set).map(str::to_owned).collect();
    let right = at.conns.iter().map(|facts| {
        let id = facts.served.map_or(SessionId(0), |(session, _)| session);
        format!("ip: /{} sessionId: {id}", facts.peer)
    });
    same("connections", lines, right.collect())?;
    if rest.is_empty() { Ok(()) } else { Err(format!("what is {rest:?}?")) }
}

fn session_of(at: &Moment, conn: ConnId) -> SessionId {
    let facts = at.conns.iter().find(|facts| facts.conn == conn);
    facts.and_then(|facts| facts.served).map_or(SessionId(0), |(session, _)| session)
}

/// Lines that begin with a tab, each with the line above them that does not.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let (mut head, mut listed) = (None, Vec::new());
    for line in text.lines() {
        match (line.strip_prefix('\t'), head) {
            (Some(line), Some(head)) => listed.push((head, line)),
            (Some(_), None) => return Err(format!("{line:?} stands below nothing")),
            (None, _) => head = Some(line),
        }
    }
    Ok(listed)
}

fn exactly(count: usize) -> crate::check::answers::Between {
    crate::check::answers::Between(count as u64, count as u64)
}

/// The same members, in any order.
fn same<T: Ord + Debug>(what: &str, mut found: Vec<T>, mut right: Vec<T>) -> Found {
    found.sort();
    right.sort();
    if found == right { Ok(()) } else { Err(format!("{what} are {found:?}, not {right:?}")) }
}

/// What is listed was there at some moment, and what was there at all of them is listed.
fn within<T: Ord + Debug>(
    what: &str,
    listed: &[T],
    all: &[BTreeSet<T>],
    any: &BTreeSet<T>,
) -> Found {
    if let Some(wrong) = listed.iter().find(|one| !any.contains(one)) {
        return Err(format!("{what}: {wrong:?} was never there, only {any:?}"));
    }
    let mut lasting = all.first().into_iter().flatten();
    match lasting.find(|one| all.iter().all(|set| set.contains(one)) && !listed.contains(one)) {
        Some(one) => Err(format!("{what}: {one:?} is missing")),
        None => Ok(()),
    }
}
