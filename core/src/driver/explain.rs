//! Answers to the questions of an outage, from what the flight recorder has kept.
//!
//! Owns the questions and the choice of records. Must not have any effect.

use serde::Serialize;

use super::Driver;
use super::recorder::{FlightRecorder, Record};
use crate::ids::SessionId;
use crate::io::Now;
use crate::server::Server;

/// Lines of an answer at most, the newest.
const LINES: usize = 50;

/// Records that say what this server does in the ensemble.
const ROLE: &str = "role";

/// Records that say why it left a leader, or its own leadership.
const LEAVES: &str = "leaves";

/// A question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Why did the leader change?
    Leader,
    /// Why is this server not serving?
    Serving,
    /// Why did this session expire?
    Session(SessionId),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explained {
    /// In one sentence.
    pub answer: String,
    /// The records behind it, oldest first.
    pub lines: Vec<Record>,
}

impl Driver {
    /// Answers a question.
    pub fn explain(&self, question: Question, server: &Server, now: Now) -> Explained {
        let recorder = self.reports.recorder();
        match question {
            Question::Leader => leader(recorder),
            Question::Serving => self.serving(server),
            Question::Session(session) => self.session(session, server, now),
        }
    }

    fn serving(&self, server: &Server) -> Explained {
        let answer = match self.reports.waiting_text(server, &self.peers) {
            Some(waiting) => format!("this server serves nobody: {waiting}"),
            None if server.status().serving => "this server serves clients".to_owned(),
            None => "this server has halted; the end of its log says why".to_owned(),
        };
        let records = self.reports.recorder().all().filter(|record| !record.is_about_clients());
        Explained { answer, lines: newest(records) }
    }

    fn session(&self, session: SessionId, server: &Server, now: Now) -> Explained {
        let id = session.to_string();
        let records = self.reports.recorder().all().filter(|record| record.text.contains(&id));
        let lines: Vec<Record> = newest(records);
        let last = |kind: &str| lines.iter().rev().find(|record| record.kind == kind);
        let live = server.sessions_behind(Some(SessionId(session.0.saturating_sub(1)))).next();
        let answer = match (live.filter(|live| live.id == session), last("expires")) {
            (Some(live), _) => {
                let expires = live.expires.map_or_else(String::new, |at| {
                    let ms = at.since(now.mono).as_millis();
                    format!("; it expires in {ms} ms unless its client sends something")
                });
                let at = live.server.map_or_else(String::new, |server| {
                    format!("; its client has connected to server {server} last")
                });
                let timeout = live.timeout_ms;
                format!("session {id} is alive, with a timeout of {timeout} ms{at}{expires}")
            }
            (None, Some(record)) => record.text.clone(),
            (None, None) => match last("expired").or(last("ended")) {
                Some(record) => format!(
                    "session {id} has ended, and this server did not decide it: {}; ask the \
                     server that led then",
                    record.text
                ),
                None => format!(
                    "this server has no record of session {id}: its client has closed it, or it \
                     ended while another server led, or too long ago"
                ),
            },
        };
        Explained { answer, lines }
    }
}

/// How the present leader, or the search for one, came about.
fn leader(recorder: &FlightRecorder) -> Explained {
    let records: Vec<&Record> =
        recorder.all().filter(|record| !record.is_about_clients()).collect();
    let answer = match (why(&records), records.iter().rev().find(|of| of.kind == ROLE)) {
        (Some(why), Some(role)) => format!("this server {}; before that it {why}", role.text),
        (None, Some(role)) => {
            format!("this server {}; it has left no leader since it began", role.text)
        }
        (_, None) => "this server is alone, and always leads".to_owned(),
    };
    let begin = records.iter().rposition(|record| record.kind == LEAVES).unwrap_or(0);
    // What led to it came shortly before.
    let before = records[..begin].iter().rev().take(10).count();
    Explained { answer, lines: newest(records[begin - before..].iter().copied()) }
}

/// Why this server left the leader before the present one; `None` if it did not.
pub(super) fn why_leader(recorder: &FlightRecorder) -> Option<String> {
    let records: Vec<&Record> = recorder.all().collect();
    why(&records)
}

fn why(records: &[&Record]) -> Option<String> {
    let left = records.iter().rev().find(|record| record.kind == LEAVES)?;
    Some(left.text.clone())
}

fn newest<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Record> {
    let all: Vec<&Record> = records.collect();
    let skipped = all.len().saturating_sub(LINES);
    all.into_iter().skip(skipped).cloned().collect()
}
