//! Answers about connections, sessions and watches: `cons`, `dump`, `stat`'s clients, `wchs`,
//! `wchc`, `wchp`.
//!
//! Owns these texts. Must not collect the data in them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::Duration;

use super::super::ClientLine;
use super::super::metrics::{ConnStats, Served, letters};
use super::date;
use crate::ids::{Instant, SessionId, WallMs};
use crate::io::Now;
use crate::status::{Mode, SessionInfo, WatchSummary};

/// What `dump` prints.
#[derive(Debug)]
pub struct Dump {
    /// Role of the server: leaders and standalone servers know when sessions expire.
    pub mode: Mode,
    /// Live sessions.
    pub sessions: Vec<SessionInfo>,
    /// Sessions that only this server knows, if it may have local sessions.
    pub local_sessions: Option<Vec<SessionInfo>>,
    /// How many sessions have ephemeral nodes.
    pub owners: usize,
    /// Every open connection.
    pub clients: Vec<ClientLine>,
    /// Both clocks.
    pub now: Now,
    /// `nio.sessionlessCnxnTimeout`: ZooKeeper looks for expired connections this often.
    pub sessionless_timeout: Duration,
}

/// The line of `stat` about a client (FLW-12).
fn brief_line(client: &ClientLine) -> String {
    // The interest of the server, with the bits of Java's selectors.
    let interest = u8::from(client.reading) + 4 * u8::from(client.writing);
    format!(
        " /{}[{interest:x}](queued={},recved={},sent={}",
        client.peer, client.unanswered, client.stats.received, client.stats.sent,
    )
}

/// The line of `cons` about a client (FLW-02).
fn full_line(client: &ClientLine) -> String {
    let mut text = brief_line(client);
    let Some(Served { session, timeout_ms }) = client.served else {
        return text + ")";
    };
    let ConnStats { latency, last_op, last_xid, last_zxid, last_response, .. } = client.stats;
    let op = last_op.map_or("NA", letters);
    let since = client.since.0;
    put(&mut text, format_args!(",sid={session},lop={op},est={since},to={timeout_ms}"));
    if let Some(xid) = last_xid {
        put(&mut text, format_args!(",lcxid={xid:#x}"));
    }
    put(
        &mut text,
        format_args!(
            ",lzxid={:#x},lresp={},llat={},minlat={},avglat={},maxlat={})",
            last_zxid.unwrap_or(-1),
            last_response.map_or(0, |at| at.0 / 1_000_000),
            latency.last_ms(),
            latency.min_ms(),
            latency.mean_whole_ms(),
            latency.max_ms(),
        ),
    );
    text
}

/// The lines of `stat`.
pub(super) fn brief(clients: &[ClientLine]) -> String {
    clients.iter().map(|client| brief_line(client) + ")\n").collect()
}

/// The lines of `cons`.
pub(super) fn full(clients: &[ClientLine]) -> String {
    clients.iter().map(|client| full_line(client) + "\n").collect::<String>() + "\n"
}

/// `dump` (FLW-05) before the ephemeral nodes, which [`Pairs`] prints.
pub fn dump_sessions(dump: &Dump) -> String {
    let mut text = "SessionTracker dump:\n".to_owned();
    if let Some(local) = &dump.local_sessions {
        text += "Local ";
        text += &session_sets(local, dump.now);
    }
    match dump.mode {
        Mode::Standalone | Mode::Leader => {
            text += if dump.local_sessions.is_some() { "Global " } else { "" };
            text += &session_sets(&dump.sessions, dump.now);
        }
        Mode::Follower | Mode::Observer | Mode::Looking | Mode::ReadOnly => {
            put(&mut text, format_args!("Global Sessions({}):\n", dump.sessions.len()));
            for session in &dump.sessions {
                put(&mut text, format_args!("{}\t{}ms\n", session.id, session.timeout_ms));
            }
        }
    }
    text += "ephemeral nodes dump:\n";
    put(&mut text, format_args!("Sessions with Ephemerals ({}):\n", dump.owners));
    text
}

/// `dump` (FLW-05) after the ephemeral nodes.
pub fn dump_connections(dump: &Dump) -> String {
    "Connections dump:\nConnections ".to_owned() + &connection_sets(dump)
}

/// Sessions by the time at which they expire.
fn session_sets(sessions: &[SessionInfo], now: Now) -> String {
    let mut sets: BTreeMap<Instant, Vec<String>> = BTreeMap::new();
    for session in sessions {
        // A session without a deadline is closing, or is about to become global.
        if let Some(expires) = session.expires {
            sets.entry(expires).or_default().push(session.id.to_string());
        }
    }
    "Session ".to_owned() + &timed_sets(&sets, now)
}

/// Connections by the time at which ZooKeeper would close them if nothing arrived: it checks at
/// intervals.
fn connection_sets(dump: &Dump) -> String {
    let interval = u64::try_from(dump.sessionless_timeout.as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut sets: BTreeMap<Instant, Vec<String>> = BTreeMap::new();
    for client in &dump.clients {
        let timeout = client.served.map_or(dump.sessionless_timeout, |served| {
            Duration::from_millis(u64::try_from(served.timeout_ms).unwrap_or(0))
        });
        let due = client.heard.after(timeout);
        let session = client.served.map_or(SessionId(0), |served| served.session);
        let line = format!("ip: /{} sessionId: {session}", client.peer);
        let set = Instant((due.0 / interval + 1).saturating_mul(interval));
        sets.entry(set).or_default().push(line);
    }
    timed_sets(&sets, dump.now)
}

fn timed_sets(sets: &BTreeMap<Instant, Vec<String>>, now: Now) -> String {
    let all: usize = sets.values().map(Vec::len).sum();
    let mut text = format!("Sets ({})/({all}):\n", sets.len());
    for (at, members) in sets {
        let ahead = i64::try_from(at.since(now.mono).as_millis()).unwrap_or(i64::MAX);
        let at = date::text(WallMs(now.wall.0.saturating_add(ahead)));
        put(&mut text, format_args!("{} expire at {at}:\n", members.len()));
        for member in members {
            put(&mut text, format_args!("\t{member}\n"));
        }
    }
    text
}

/// The answer to `wchs` (FLW-13).
pub fn watch_summary(summary: WatchSummary) -> String {
    let WatchSummary { connections, paths, watches } = summary;
    format!("{connections} connections watching {paths} paths\nTotal watches:{watches}\n")
}

/// The pairs that `wchc` (FLW-14), `wchp` (FLW-15) and `dump` (FLW-05) list: consecutive pairs with
/// the same key share one head line, and each pair has a line below it. A listing can continue in a
/// later part.
#[derive(Debug)]
pub struct Pairs<K> {
    current: Option<K>,
}

impl<K> Default for Pairs<K> {
    fn default() -> Pairs<K> {
        Pairs { current: None }
    }
}

impl<K> Pairs<K> {
    /// Adds a pair: `line` below `head`, which is the text of its `key`.
    pub fn add<Q>(&mut self, text: &mut String, key: &Q, head: impl Display, line: impl Display)
    where
        K: Borrow<Q>,
        Q: PartialEq + ToOwned<Owned = K> + ?Sized,
    {
        if self.current.as_ref().map(Borrow::borrow) != Some(key) {
            self.current = Some(key.to_owned());
            put(text, format_args!("{head}\n"));
        }
        put(text, format_args!("\t{line}\n"));
    }
}

fn put(text: &mut String, what: impl Display) {
    let _infallible = write!(text, "{what}");
}
