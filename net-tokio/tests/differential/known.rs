//! Intended differences from ZooKeeper. The rows of `docs/compatibility.md` named in `why` document
//! them.

use crate::jute::Reader;
use crate::play::{Step, is_intrusion};
use crate::request::Request;

/// An intended difference.
pub(crate) struct Known {
    /// Name in reports.
    pub(crate) name: &'static str,
    /// The reason, and the rows of `docs/compatibility.md`.
    pub(crate) why: &'static str,
    /// May trees and watches differ afterwards? Then the episode ends.
    pub(crate) parts: bool,
    /// Do these two answers show this known difference? The arguments are the step, ZooKeeper's
    /// lines and ours.
    pub(crate) applies: fn(&Step, &[String], &[String]) -> bool,
}

/// All intended differences.
pub(crate) const DIFFERENCES: &[Known] = &[
    Known {
        name: "reconnect with a wrong password",
        why: "ZooKeeper closes the owner's connection before it looks at the password: anyone who \
            knows an id could \
              throw out its owner. We look first (HS-09).",
        parts: false,
        applies: |step, real, ours| {
            let thrown_out = |line: &&String| line.ends_with(" closed");
            is_intrusion(step)
                && real.iter().filter(thrown_out).count()
                    == ours.iter().filter(thrown_out).count() + 1
        },
    },
    Known {
        name: "internal operations from clients",
        why: "createSession, deleteContainer and error are for servers; ZooKeeper takes them from \
            anybody (OP-20, OP-N10).",
        parts: false,
        applies: |step, _, ours| {
            step.requests().iter().any(|request| matches!(request.op, -10 | -1 | 20))
                && ours.iter().any(|line| line.contains(" zxid -1 err -6 "))
        },
    },
    Known {
        name: "connections that watch",
        why: "ZooKeeper counts a connection whose watches have all fired until it closes \
            (WATCH-28).",
        parts: false,
        applies: |step, real, ours| {
            let number = |line: &str| -> Option<u64> {
                line.strip_prefix("wchs ")?.split_once(" connections ")?.0.parse().ok()
            };
            let is_known = |(real, ours): (&String, &String)| {
                real == ours || number(ours).is_some_and(|ours| Some(ours) < number(real))
            };
            *step == Step::Words && real.len() == ours.len() && real.iter().zip(ours).all(is_known)
        },
    },
    Known {
        name: "null within an access control list",
        why: "ZooKeeper finds it when it first compares it with something, which depends on the \
            entries before it. Here a \
              list with one is no record (WIRE-01).",
        parts: true,
        applies: |step, real, ours| {
            step.requests().iter().any(has_null_in_list)
                && real
                    .iter()
                    .map(|line| before_error(line))
                    .eq(ours.iter().map(|line| before_error(line)))
        },
    },
    Known {
        name: "a list on its way",
        why: "Until a setACL is committed, ZooKeeper goes by the list before it: what is sent \
            right behind it is allowed, or \
              refused, by a list that is gone. Here the new one holds at once (DATA-08).",
        parts: true,
        applies: |step, real, ours| {
            let behind = step.requests().iter().skip_while(|request| request.op != 7).skip(1);
            // Also matches a result within a multi.
            let refused = |line: &String| line.contains(" -102");
            let first = real.iter().zip(ours).find(|(real, ours)| real != ours);
            behind.count() > 0 && first.is_some_and(|(real, ours)| refused(real) != refused(ours))
        },
    },
    Known {
        name: "null among the paths to watch",
        why: "ZooKeeper does what stands before it in a setWatches, and then answers -5; a null to \
            watch for good it keeps. \
              Here a list with one is no record (OP-101, OP-105).",
        parts: true,
        applies: |step, real, ours| {
            let is_answer = |line: &&String| !line.contains(" event ");
            let answers = |lines: &[String]| -> Vec<String> {
                lines.iter().filter(is_answer).map(|line| before_error(line).to_owned()).collect()
            };
            step.requests().iter().any(watches_null) && answers(real) == answers(ours)
        },
    },
];

/// The part of a line before the error code: connection, operation, xid and zxid.
fn before_error(line: &str) -> &str {
    line.split(" err ").next().unwrap_or(line)
}

fn has_null_in_list(request: &Request) -> bool {
    let lists = request.text.split('[').skip(1);
    lists.filter_map(|list| list.split(']').next()).any(|list| list.contains(" null"))
}

fn watches_null(request: &Request) -> bool {
    let lists = match request.op {
        101 => 3,
        105 => 5,
        _ => return false,
    };
    let mut body = Reader(&request.body);
    let Some(_relative_zxid) = body.long() else { return false };
    let mut found = false;
    for _ in 0..lists {
        let Some(paths) = body.vector(Reader::buffer) else { return false };
        found |= paths.is_none_or(|paths| paths.contains(&None));
    }
    found
}

/// The index of the first known difference that applies.
pub(crate) fn find(step: &Step, lines: &[Vec<String>]) -> Option<usize> {
    let [real, ours] = lines else { return None };
    DIFFERENCES.iter().position(|known| (known.applies)(step, real, ours))
}
