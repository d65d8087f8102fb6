//! Normalizes the messages of a server into lines that must be equal for both servers.
//!
//! zxids become offsets from the first zxid of the episode, sessions their index in it; times are
//! only checked for consistency; lists without a specified order are sorted. Everything else is
//! unchanged.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::jute::{Reader, show};
use crate::request::{PREFIX, op_name, replace};

/// The names and numbers of one server in an episode.
#[derive(Default)]
pub(crate) struct Names {
    /// The subtree of this play; `PREFIX` replaces it in compared lines.
    pub(crate) prefix: String,
    /// Pairs of a zxid and a base: zxids from the first on are shown as offsets from the second.
    bases: Vec<(i64, i64)>,
    pub(crate) newest: i64,
    sessions: Vec<i64>,
    /// The time of each transaction, by zxid.
    times: BTreeMap<i64, i64>,
}

impl Names {
    pub(crate) fn new(prefix: &str, zxid: i64) -> Names {
        let bases = vec![(zxid, zxid)];
        Names { prefix: prefix.to_owned(), bases, newest: zxid, ..Names::default() }
    }

    /// Realigns the two servers: `zxid`, this server's newest, is shown as offset `told_as` from
    /// now on.
    pub(crate) fn rebase(&mut self, zxid: i64, told_as: i64) {
        self.newest = self.newest.max(zxid);
        self.bases.push((zxid, zxid - told_as));
    }

    pub(crate) fn distance(&self, zxid: i64) -> Option<i64> {
        self.bases.iter().rev().find(|base| base.0 <= zxid).map(|base| zxid - base.1)
    }

    /// The zxid whose offset is `distance` less than that of the newest one: the same point in the
    /// episode on both servers, even if one of them has used more zxids since.
    pub(crate) fn behind(&self, distance: i64) -> i64 {
        let told = self.distance(self.newest).unwrap_or(0).saturating_sub(distance);
        let mut before = i64::MAX;
        for &(from, base) in self.bases.iter().rev() {
            let zxid = told.saturating_add(base).min(before);
            if zxid >= from {
                return zxid;
            }
            before = from - 1;
        }
        told.saturating_add(self.bases.first().map_or(0, |base| base.1))
    }

    fn zxid(&mut self, zxid: i64) -> String {
        self.newest = self.newest.max(zxid);
        match (zxid, self.distance(zxid)) {
            (0 | -1, _) => zxid.to_string(),
            (_, Some(distance)) => format!("+{distance}"),
            (_, None) => "old".to_owned(),
        }
    }

    pub(crate) fn session(&mut self, id: i64) -> String {
        if id == 0 {
            return "none".to_owned();
        }
        let index = self.sessions.iter().position(|&known| known == id).unwrap_or_else(|| {
            self.sessions.push(id);
            self.sessions.len() - 1
        });
        format!("s{index}")
    }

    fn time(&mut self, zxid: i64, time_ms: i64) -> String {
        if time_ms == 0 {
            return "0".to_owned();
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let age = now.saturating_sub(Duration::from_millis(time_ms.unsigned_abs()));
        let known = *self.times.entry(zxid).or_insert(time_ms);
        if known != time_ms {
            return format!("ANOTHER TIME OF THE SAME ZXID {time_ms} {known}");
        }
        if time_ms < 0 || age > Duration::from_secs(24 * 3600) {
            return format!("NOT NOW {time_ms}");
        }
        "t".to_owned()
    }

    fn stat(&mut self, from: &mut Reader<'_>) -> Option<String> {
        let [czxid, mzxid, ctime, mtime] = [from.long()?, from.long()?, from.long()?, from.long()?];
        let [version, cversion, aversion] = [from.int()?, from.int()?, from.int()?];
        let owner = from.long()?;
        let [length, children] = [from.int()?, from.int()?];
        let pzxid = from.long()?;
        Some(format!(
            "{{czxid {} mzxid {} ctime {} mtime {} version {version} cversion {cversion} aversion \
             {aversion} \
             owner {} length {length} children {children} pzxid {}}}",
            self.zxid(czxid),
            self.zxid(mzxid),
            self.time(czxid, ctime),
            self.time(mzxid, mtime),
            self.session(owner),
            self.zxid(pzxid),
        ))
    }

    /// Reads the response to the handshake: session id, password, and the line.
    pub(crate) fn handshake(&mut self, frame: &[u8]) -> (i64, Vec<u8>, String) {
        let mut from = Reader(frame);
        let mut parse = || Some((from.int()?, from.int()?, from.long()?, from.buffer()?));
        let Some((version, timeout_ms, id, password)) = parse() else {
            return (0, Vec::new(), format!("handshake UNREADABLE {}", show(Some(frame))));
        };
        let judged = match password {
            // ZooKeeper's password follows from the session id (HS-08), ours must not; a later
            // reconnect checks that it is valid.
            Some(password) if id != 0 && password.len() == 16 && password != [0; 16] => {
                "right".to_owned()
            }
            password => show(password),
        };
        let line = format!(
            "handshake version {version} timeout {timeout_ms} session {} password {judged} rest \
             {:?}",
            self.session(id),
            from.0
        );
        (id, password.unwrap_or_default().to_vec(), line)
    }

    /// Reads any other frame. `op` returns the opcode of the request with an xid.
    pub(crate) fn frame(&mut self, frame: &[u8], op: impl FnOnce(i32) -> Option<i32>) -> Line {
        let mut frame = frame.to_vec();
        let prefix = self.prefix.clone();
        replace(&mut frame, prefix.as_bytes(), PREFIX.as_bytes());
        let mut from = Reader(&frame);
        let mut header = || Some((from.int()?, from.long()?, from.int()?));
        let Some((xid, zxid, err)) = header() else {
            return Line::other(format!("UNREADABLE {}", show(Some(&frame))));
        };
        let zxid_text = self.zxid(zxid);
        let op = op(xid);
        // -1 is the xid of events, unless a client has sent a request with it.
        if xid == -1 && op.is_none() {
            let body = self.event(&mut from).unwrap_or_else(|| "UNREADABLE".to_owned());
            let text = format!("event {body} zxid {zxid_text} err {err} {}", rest(&from));
            return Line { text, ends_connection: false, event_of: Some(zxid) };
        }
        let Some(op) = op else {
            return Line::other(format!(
                "NOT ASKED FOR xid {xid} zxid {zxid_text} err {err} {}",
                rest(&from)
            ));
        };
        let whole = from.0;
        let body = match err {
            0 => self.body(op, &mut from).map(|body| body + &rest(&from)),
            // multiRead: results of the operations before the one that failed.
            _ if op == 22 && !from.0.is_empty() => {
                self.body(op, &mut from).map(|body| body + &rest(&from))
            }
            _ => Some(rest(&from)),
        };
        let body = body.unwrap_or_else(|| format!("UNREADABLE {}", show(Some(whole))));
        let text = format!("{} xid {xid} zxid {zxid_text} err {err} {body}", op_name(op));
        let ends_connection = op == -11 || matches!((zxid, err), (-1, -6) | (_, -115 | -124));
        Line { text, ends_connection, event_of: None }
    }

    fn event(&mut self, from: &mut Reader<'_>) -> Option<String> {
        let [kind, state] = [from.int()?, from.int()?];
        let name = match kind {
            1 => "NodeCreated".to_owned(),
            2 => "NodeDeleted".to_owned(),
            3 => "NodeDataChanged".to_owned(),
            4 => "NodeChildrenChanged".to_owned(),
            other => format!("type {other}"),
        };
        Some(format!("{name} {} state {state}", show(from.buffer()?)))
    }

    fn body(&mut self, op: i32, from: &mut Reader<'_>) -> Option<String> {
        Some(match op {
            1 | 9 => show(from.buffer()?),
            15 | 19 | 21 => format!("{} {}", show(from.buffer()?), self.stat(from)?),
            3 | 5 | 7 => self.stat(from)?,
            4 => format!("{} {}", show(from.buffer()?), self.stat(from)?),
            6 => format!("{} {}", acl(from)?, self.stat(from)?),
            8 | 103 => texts(from)?,
            12 => format!("{} {}", texts(from)?, self.stat(from)?),
            14 | 22 => self.results(from)?,
            102 => show(from.buffer()?),
            104 | 106 => from.int()?.to_string(),
            107 => {
                let users =
                    from.vector(|from| Some((show(from.buffer()?), show(from.buffer()?))))?;
                sorted(users.map(|users| users.iter().map(|user| format!("{user:?}")).collect()))
            }
            _ => String::new(),
        })
    }

    fn results(&mut self, from: &mut Reader<'_>) -> Option<String> {
        let mut text = String::new();
        loop {
            let (op, done, err) = (from.int()?, from.byte()?, from.int()?);
            text += &format!("({op} {done} {err}) ");
            if done != 0 {
                return Some(text);
            }
            text += &match op {
                -1 => from.int()?.to_string(),
                // ZooKeeper uses type create2 for createContainer and createTTL, too.
                1 | 4 | 5 | 8 | 15 => self.body(op, from)?,
                _ => String::new(),
            };
            text.push(' ');
        }
    }
}

/// One message of a server, normalized.
pub(crate) struct Line {
    pub(crate) text: String,
    /// Does ZooKeeper close the connection after this message?
    pub(crate) ends_connection: bool,
    /// The zxid of a watch event.
    pub(crate) event_of: Option<i64>,
}

impl Line {
    pub(crate) fn other(text: String) -> Line {
        Line { text, ends_connection: false, event_of: None }
    }
}

fn rest(from: &Reader<'_>) -> String {
    if from.0.is_empty() { String::new() } else { format!(" AND {}", show(Some(from.0))) }
}

fn sorted(items: Option<Vec<String>>) -> String {
    match items {
        None => "null".to_owned(),
        Some(mut items) => {
            items.sort();
            format!("[{}]", items.join(" "))
        }
    }
}

/// A list of strings without a specified order, sorted.
fn texts(from: &mut Reader<'_>) -> Option<String> {
    Some(sorted(from.vector(|from| Some(show(from.buffer()?)))?))
}

/// An ACL in its order, except that adjacent digest entries of equal permissions are sorted: the
/// server may have expanded `auth` to them in any order.
fn acl(from: &mut Reader<'_>) -> Option<String> {
    let entries = from.vector(|from| {
        let perms = from.int()?;
        let (scheme, id) = (from.buffer()?, from.buffer()?);
        Some((scheme == Some(b"digest"), perms, format!("{perms} {} {}", show(scheme), show(id))))
    })?;
    let Some(mut entries) = entries else { return Some("null".to_owned()) };
    for run in entries.chunk_by_mut(|a, b| a.0 && b.0 && a.1 == b.1) {
        run.sort();
    }
    let entries: Vec<String> = entries.into_iter().map(|entry| entry.2).collect();
    Some(format!("[{}]", entries.join(", ")))
}

/// ZooKeeper's session password (HS-08): the first bytes of Java's `Random`, seeded with the id xor
/// a constant.
pub(crate) fn password_of(id: i64) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = (id.cast_unsigned() ^ 0xB341_5C00 ^ MULTIPLIER) & MASK;
    let mut bytes = Vec::new();
    for _ in 0..4 {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        // The top 32 of the 48 bits, the lowest byte first.
        bytes.extend_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    bytes
}
