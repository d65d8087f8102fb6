//! The flight recorder: what the server has decided lately, and why, in the words of the log.
//!
//! Owns a bounded number of records. Must not have any effect.

use std::collections::VecDeque;

use serde::Serialize;

use super::reports::{Report, ReportLevel};
use crate::ids::ServerId;
use crate::io::Now;

/// Records about the server and other servers, and as many about clients: some 1 MiB in all. Each
/// kind has its own room, so that a storm of clients cannot displace the change of a leader.
const RECORDS: usize = 2_000;

/// Kinds of records about clients.
const OF_CLIENTS: [&str; 5] = ["ended", "expired", "expires", "overloaded", "session"];

/// A record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Record {
    /// Number of the record since the process began, from 1 on.
    pub seq: u64,
    /// When, ms since 1970.
    pub at_ms: i64,
    /// When, ms on the monotonic clock: differences of it are durations.
    #[serde(skip)]
    pub mono_ms: u64,
    /// `debug`, `info` or `warn`.
    pub level: &'static str,
    /// What kind of record it is, from a small set.
    pub kind: &'static str,
    /// The other server that it is about, if it is about one.
    #[serde(skip)]
    pub server: Option<ServerId>,
    /// What has happened.
    pub text: String,
}

/// The newest records.
#[derive(Debug, Default)]
pub struct FlightRecorder {
    /// Number of the newest record.
    last: u64,
    servers: VecDeque<Record>,
    clients: VecDeque<Record>,
}

impl Record {
    /// Is it about clients, rather than about this server and the others?
    pub(super) fn is_about_clients(&self) -> bool {
        OF_CLIENTS.contains(&self.kind)
    }
}

impl FlightRecorder {
    pub(super) fn add(&mut self, report: &Report, now: Now) {
        let records =
            if OF_CLIENTS.contains(&report.kind) { &mut self.clients } else { &mut self.servers };
        if records.len() == RECORDS {
            records.pop_front();
        }
        self.last += 1;
        records.push_back(Record {
            seq: self.last,
            at_ms: now.wall.0,
            mono_ms: now.mono.0 / 1_000_000,
            level: match report.level {
                ReportLevel::Debug => "debug",
                ReportLevel::Info => "info",
                ReportLevel::Warn => "warn",
            },
            kind: report.kind,
            server: report.server,
            text: report.text.clone(),
        });
    }

    /// Number of the newest record; 0 before the first one.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// All records, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Record> {
        self.after(0)
    }

    /// Records with a later number than this, oldest first.
    pub fn after(&self, seq: u64) -> impl Iterator<Item = &Record> {
        let mut servers = later(&self.servers, seq).peekable();
        let mut clients = later(&self.clients, seq).peekable();
        std::iter::from_fn(move || match (servers.peek(), clients.peek()) {
            (Some(one), Some(other)) if one.seq > other.seq => clients.next(),
            (Some(_), _) => servers.next(),
            (None, _) => clients.next(),
        })
    }
}

/// The records of one kind with a later number than this.
fn later(records: &VecDeque<Record>, seq: u64) -> impl Iterator<Item = &Record> {
    let begin = records.partition_point(|record| record.seq <= seq);
    records.range(begin..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Instant, WallMs};

    fn add(recorder: &mut FlightRecorder, kind: &'static str, ms: u64) {
        let report =
            Report { level: ReportLevel::Info, kind, server: None, text: format!("{kind} {ms}") };
        let wall = WallMs(i64::try_from(ms).expect("small"));
        recorder.add(&report, Now { mono: Instant(ms * 1_000_000), wall });
    }

    #[test]
    fn clients_do_not_displace_records_about_servers() {
        let mut recorder = FlightRecorder::default();
        add(&mut recorder, "role", 1);
        for ms in 0..10_000 {
            add(&mut recorder, "ended", ms);
        }
        add(&mut recorder, "role", 10_000);
        let kinds: Vec<&str> = recorder.all().map(|record| record.kind).collect();
        assert_eq!((kinds.len(), kinds[0], kinds[RECORDS + 1]), (RECORDS + 2, "role", "role"));
        let order: Vec<u64> = recorder.after(9_999).map(|record| record.seq).collect();
        assert_eq!(order, [10_000, 10_001, 10_002]);
        assert_eq!(recorder.last(), 10_002);
    }
}
