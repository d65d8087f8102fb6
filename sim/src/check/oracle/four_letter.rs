//! Answers to four-letter commands, read from the socket as operators read them, compared with what
//! the simulator knows.
//!
//! Owns O2 and the parsers of the answers, which share nothing with the code that prints them. Must
//! not check what servers report of themselves: `operators` does.
//!
//! A short answer is true at the end of the turn in which it was made. Of a long one (`dump`,
//! `wchc`, `wchp`), each line is true at the end of some turn between the command and the end of
//! the answer, and what is true all the time is in it.

mod fields;
mod figures;
mod lists;

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::wire::FourLetterCommand;
use zabkeeper_core::{ConnId, Mode, ServerId};

use super::Oracles;
use super::catalog::{Id, Verdict};
use crate::check::answers::{Answer, Moment};

/// The result of a comparison: what is wrong.
type Found = Result<(), String>;

/// Answers on their way to operators, and the last counters that were read of each server.
#[derive(Clone, Default, Debug)]
pub(super) struct Answers {
    sent: BTreeMap<ConnId, (ServerId, Answer)>,
    counters: BTreeMap<ServerId, Seen>,
}

/// Counters in an answer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The incarnation of the server, and how often its counters were reset before.
    begun: (u64, u64),
    turn: u64,
    received: u64,
    sent: u64,
}

impl Answers {
    /// The connection's client reads nothing more.
    pub(super) fn closed(&mut self, conn: ConnId) {
        self.sent.remove(&conn);
    }
}

impl Oracles {
    /// A server has sent an answer to the end.
    pub(super) fn answer_is_sent(&mut self, conn: ConnId, answer: &Answer) {
        if let Some(view) = self.conns.get(&conn).filter(|view| !view.closed) {
            self.answers.sent.insert(conn, (view.server, answer.clone()));
        }
    }

    /// An operator has read this to the end of the connection. Bytes may be lost on the way.
    pub(super) fn answer_is_read(&mut self, conn: ConnId, text: &Bytes) -> Verdict {
        let Some((server, answer)) = self.answers.sent.remove(&conn) else { return Ok(()) };
        if answer.length != text.len() {
            return Ok(());
        }
        let found = match str::from_utf8(text) {
            Ok(text) => compare(&answer, text)
                .and_then(|()| self.answers.counters_grow(server, &answer, text)),
            Err(error) => Err(format!("the text is not UTF-8: {error}")),
        };
        let command = answer.command.name();
        self.checks.check(Id::O2, found.is_ok(), || {
            let text = String::from_utf8_lossy(text);
            let why = found.err().unwrap_or_default();
            vec![format!("server {server} answers {command} on {conn}: {why}"), text.into_owned()]
        })
    }
}

impl Answers {
    /// Counters never decrease but by a reset.
    fn counters_grow(&mut self, server: ServerId, answer: &Answer, text: &str) -> Found {
        let Some((received, sent)) = figures::traffic(answer.command, text) else { return Ok(()) };
        let Some(moment) = answer.moments.last().filter(|at| !at.counters.mixed) else {
            return Ok(());
        };
        let begun = (answer.incarnation, moment.counters.resets);
        let new = Seen { begun, turn: moment.turn, received, sent };
        // Answers of one turn may have been made in any order.
        let old = self.counters.get(&server).copied();
        let old = old.filter(|old| old.begun == begun && old.turn != new.turn);
        let (first, last) = match old {
            Some(old) if old.turn > new.turn => (new, old),
            Some(old) => (old, new),
            None => (new, new),
        };
        if old.is_none_or(|old| old.turn < new.turn) {
            self.counters.insert(server, new);
        }
        let grows = first.received <= last.received && first.sent <= last.sent;
        if grows { Ok(()) } else { Err(format!("after {first:?} came {last:?}")) }
    }
}

/// Is the answer right?
fn compare(answer: &Answer, text: &str) -> Found {
    let Some(now) = answer.moments.last() else {
        return Err("nobody has seen the server answer".to_owned());
    };
    let command = answer.command;
    if !answer.allowed {
        let refusal = " is not executed because it is not in the whitelist.\n";
        return is(text, &format!("{}{refusal}", command.name()));
    }
    let serves = now.report.is_some();
    match command {
        FourLetterCommand::Ruok => is(text, "imok"),
        FourLetterCommand::Gtmk => {
            let [before, after] = now.trace_masks.map(|mask| is(text, &mask.to_string()));
            before.or(after)
        }
        // The operator of a run sets this mask only.
        FourLetterCommand::Stmk => is(text, "0"),
        FourLetterCommand::TelnetClose => is(text, ""),
        FourLetterCommand::Isro => is(text, state(now)),
        FourLetterCommand::Envi => figures::environment(text),
        FourLetterCommand::Hash if serves => is(text, ""),
        FourLetterCommand::Hash => {
            is(text, "This ZooKeeper instance is not currently serving requests")
        }
        FourLetterCommand::Dump | FourLetterCommand::Wchc | FourLetterCommand::Wchp => {
            long(answer, text)
        }
        FourLetterCommand::Conf
        | FourLetterCommand::Cons
        | FourLetterCommand::Crst
        | FourLetterCommand::Dirs
        | FourLetterCommand::Mntr
        | FourLetterCommand::Srst
        | FourLetterCommand::Srvr
        | FourLetterCommand::Stat
        | FourLetterCommand::Wchs => {
            if serves {
                short(answer, now, text)
            } else {
                is(text, NOT_SERVING)
            }
        }
    }
}

/// Whom the server serves.
fn state(now: &Moment) -> &'static str {
    match now.report.as_ref().map(|report| report.status.mode) {
        None => "null",
        Some(Mode::ReadOnly) => "ro",
        Some(Mode::Looking | Mode::Standalone | Mode::Leader | Mode::Follower | Mode::Observer) => {
            "rw"
        }
    }
}

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

fn short(answer: &Answer, now: &Moment, text: &str) -> Found {
    match answer.command {
        FourLetterCommand::Conf => figures::settings(answer, now, text),
        FourLetterCommand::Cons => lists::connections(now, text),
        FourLetterCommand::Crst => is(text, "Connection stats reset.\n"),
        FourLetterCommand::Dirs => figures::directories(answer, text),
        FourLetterCommand::Mntr => figures::monitoring(answer, now, text),
        FourLetterCommand::Srst => is(text, "Server stats reset.\n"),
        FourLetterCommand::Srvr => figures::server(now, text),
        FourLetterCommand::Stat => {
            let (head, rest) = fields::cut(text, "\nClients:\n")?;
            let (clients, figures) = fields::cut(rest, "\n\n")?;
            lists::brief(now, clients)?;
            figures::server(now, &format!("{head}\n{figures}"))
        }
        FourLetterCommand::Wchs => lists::watch_summary(now, text),
        FourLetterCommand::Dump
        | FourLetterCommand::Envi
        | FourLetterCommand::Gtmk
        | FourLetterCommand::Hash
        | FourLetterCommand::Isro
        | FourLetterCommand::Ruok
        | FourLetterCommand::Stmk
        | FourLetterCommand::TelnetClose
        | FourLetterCommand::Wchc
        | FourLetterCommand::Wchp => unreachable!("{} is checked elsewhere", answer.command.name()),
    }
}

/// A server that stops serving answers to the end what it has begun, from the tree that it has: it
/// may load another one from a leader meanwhile.
fn long(answer: &Answer, text: &str) -> Found {
    if text == NOT_SERVING {
        let served = answer.moments.iter().all(|at| at.report.is_some());
        return if served { Err("the server serves".to_owned()) } else { Ok(()) };
    }
    let moments: Vec<&Moment> = answer.moments.iter().map(|at| &**at).collect();
    if moments.iter().all(|at| at.report.is_none()) {
        return is(text, NOT_SERVING);
    }
    if answer.command == FourLetterCommand::Dump {
        return lists::dump(&moments, text);
    }
    lists::watches(&moments, text, answer.command == FourLetterCommand::Wchc)
}

fn is(text: &str, right: &str) -> Found {
    if text == right { Ok(()) } else { Err(format!("the text should be {right:?}")) }
}
