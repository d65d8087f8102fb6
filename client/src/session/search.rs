//! The search for a read-write server while a read-only one serves the session (RO-04; Java:
//! `ClientCnxn.pingRwServer`).
//!
//! Owns the link on which another server is asked, and when the next one is. Must not leave the
//! serving server: it returns the one it has found, and `session` acts.

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::Instant;

use super::connect::ServerAddr;
use super::io::{Effect, Input, LinkId, Outbox};
use super::kept::SessionState;

/// Pause before the first server is asked; each further pause is twice as long, up to the maximum.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The four-letter command that asks a server for its mode.
const QUESTION: &[u8] = b"isro";
/// The answer of a server that takes writes. A read-only server answers `ro`; all other answers
/// are texts that say why there is none.
const READ_WRITE: &[u8] = b"rw";

#[derive(Debug)]
pub(crate) struct Search {
    /// When the next server is asked. The present one has until then to answer.
    due: Instant,
    /// Pause before that time.
    pause: Duration,
    /// Number of servers asked so far.
    asked: usize,
    question: Option<Question>,
}

/// A server that has been asked and has not answered.
#[derive(Debug)]
struct Question {
    link: LinkId,
    server: ServerAddr,
    /// The beginning of its answer.
    answer: Vec<u8>,
}

impl Search {
    pub(crate) fn begin(now: Instant) -> Search {
        Search { due: now.after(PAUSE_MIN), pause: PAUSE_MIN, asked: 0, question: None }
    }

    pub(crate) fn next_deadline(&self) -> Instant {
        self.due
    }

    /// The link on which a server is asked.
    pub(crate) fn link(&self) -> Option<LinkId> {
        self.question.as_ref().map(|question| question.link)
    }

    /// Asks the next server when it is time.
    pub(crate) fn timeout(&mut self, now: Instant, kept: &mut SessionState, out: &mut Outbox) {
        if now < self.due {
            return;
        }
        self.hang_up(out);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.due = now.after(self.pause);
        let Some(server) = kept.servers.other(self.asked).cloned() else { return };
        self.asked += 1;
        let link = kept.next_link();
        out.effects.push(Effect::Dial { link, server: server.clone() });
        self.question = Some(Question { link, server, answer: Vec::new() });
    }

    /// Handles an input of its link. Returns the server if it takes writes.
    pub(crate) fn step(&mut self, input: &Input, out: &mut Outbox) -> Option<ServerAddr> {
        match input {
            Input::Dialled { link } => {
                let bytes = Bytes::from_static(QUESTION);
                out.effects.push(Effect::Send { link: *link, bytes });
            }
            Input::Received { bytes, .. } => return self.read(bytes, out),
            Input::DialFailed { .. } | Input::Disconnected { .. } => self.question = None,
            Input::Timeout
            | Input::Submit(..)
            | Input::ReadConfig(..)
            | Input::Servers(_)
            | Input::Close => unreachable!("they have no link"),
        }
        None
    }

    fn read(&mut self, bytes: &[u8], out: &mut Outbox) -> Option<ServerAddr> {
        let question = self.question.as_mut()?;
        question.answer.extend_from_slice(bytes);
        if question.answer.len() < READ_WRITE.len() {
            return None;
        }
        let takes_writes = question.answer.starts_with(READ_WRITE);
        let server = takes_writes.then(|| question.server.clone());
        self.hang_up(out);
        server
    }

    /// Gives up on the answer of the present server.
    pub(crate) fn hang_up(&mut self, out: &mut Outbox) {
        if let Some(Question { link, .. }) = self.question.take() {
            out.effects.push(Effect::HangUp { link });
        }
    }
}
