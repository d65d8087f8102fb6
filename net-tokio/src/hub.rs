//! The loop around the core: inputs in, orders out.
//!
//! Owns the [`Server`]. Must not decide anything the core could decide, nor wait for anything but the next input.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Sleep;
use zabkeeper_core::io::{ClientCommand, ClientEvent, Mark};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{
    Halted, Input, Instant, Mode, Notice, Now, Outbox, Outline, OutlineCompared, Pressure, Server,
    ServerId, Status, Zxid,
};

use crate::conn::{Conn, Due};
use crate::disk::Disk;
use crate::peers::Peers;
use crate::serve::announce;
use crate::shared::Shared;

/// Inputs of servers, and of clients, stepped in a turn, before their orders are handed out: bounds the delay of the first by
/// the work of the others.
const BATCH: usize = 4096;

/// Units of work, as the core counts them, after which a turn takes no more from servers, or from clients: some ten
/// milliseconds. One input is not interrupted.
const TURN_UNITS: u64 = 10_000;

/// Connections to which events are sent before the hub looks for inputs again: a change that ten thousand clients hear of
/// is to hold up nobody else's request for longer than some milliseconds.
const TOLD: usize = 256;

/// Questions of operators that are answered in a turn, each with a part of a listing at most.
const QUESTIONS: usize = 4;

/// Nodes of a state that was set aside that are compared in a turn.
const COMPARED: usize = 1000;

/// How long a server waits for others before it says so, and how often it says so then.
const WAIT_TOLD_FIRST: Duration = Duration::from_secs(5);
const WAIT_TOLD_AGAIN: Duration = Duration::from_secs(15);

/// Time for the log's end to be recorded when the server stops with requests unanswered.
const LAST_RECORD: Duration = Duration::from_secs(1);

/// Steps the core until it halts or is told to stop.
pub(crate) struct EventLoop {
    server: Server,
    shared: Rc<Shared>,
    peers: Rc<Peers>,
    disk: Disk,
    outbox: Outbox,
    /// Have an answer to be sent, in this turn.
    answered: Vec<Rc<Conn>>,
    /// Have events to be sent, oldest first.
    told: VecDeque<Rc<Conn>>,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    announced: bool,
    /// What operators were told last.
    role: Option<(Mode, Option<ServerId>, bool)>,
    /// While nobody is served: since when, and when operators are told next what for.
    waits: Option<(Instant, Instant)>,
    /// A state that was set aside and is still to be compared with the one that this server is filled with.
    set_aside: Option<Outline>,
}

/// How the hub ended.
pub(crate) enum Ended {
    /// As told; all writes were done in time or not.
    Stopped { complete: bool },
    /// The server has halted, after it had applied this much.
    Halted(Halted, Zxid),
}

impl EventLoop {
    pub(crate) fn new(
        server: Server,
        shared: Rc<Shared>,
        peers: Rc<Peers>,
        disk: Disk,
        set_aside: Option<Outline>,
    ) -> EventLoop {
        EventLoop {
            server,
            shared,
            peers,
            disk,
            outbox: Outbox::default(),
            answered: Vec::new(),
            told: VecDeque::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: Instant::default(),
            announced: false,
            role: None,
            waits: None,
            set_aside,
        }
    }

    pub(crate) async fn run(mut self) -> Ended {
        loop {
            let now = self.shared.clock.now();
            self.take_turn(now);
            self.note_proposals();
            if std::mem::take(&mut self.outbox.marks).contains(Mark::RecordTooLarge) {
                self.shared.note_too_large();
            }
            self.tell_notices();
            self.disk.send(&mut self.outbox.disk);
            self.peers.set_ensemble(self.server.ensemble_id());
            self.peers.carry_out(&mut self.outbox);
            self.deliver(now.mono);
            self.tell_operators();
            self.compare_set_aside();
            if let Some(ended) = self.ended(now.mono) {
                return self.finish(ended);
            }
            self.sleep().await;
        }
    }

    /// Steps the core: with what has come from the disk, with some of what has come from servers and clients, and with its own
    /// deadline. However much clients ask for, the others have their turn.
    fn take_turn(&mut self, now: Now) {
        for event in self.disk.completions() {
            self.step(now, Input::Disk(event));
        }
        let mut spent = 0;
        for _ in 0..BATCH {
            if spent >= TURN_UNITS {
                break;
            }
            let Some(input) = self.shared.next_of_servers() else { break };
            spent += self.step(now, input);
        }
        let (mut spent, mut cost) = (0, 0);
        for _ in 0..BATCH {
            if spent >= TURN_UNITS {
                break;
            }
            let Some(input) = self.shared.next_of_clients(std::mem::take(&mut cost)) else { break };
            cost = self.step(now, input);
            spent += cost;
        }
        self.shared.end_turn(cost);
        if self.server.next_deadline().is_some_and(|(at, _)| at <= now.mono) {
            // What has arrived counts, although it waits for a later turn (SESS-05).
            for conn in self.shared.unheard() {
                self.step(now, Input::Client(conn, ClientEvent::Heard));
            }
            self.step(now, Input::Timeout);
        }
    }

    /// Gives what it has cost.
    fn step(&mut self, now: Now, input: Input) -> u64 {
        self.outbox.cost = 0;
        self.server.step(now, input, &mut self.outbox);
        self.outbox.cost
    }

    /// Until there is an input or the deadline has come; sometimes shorter.
    async fn sleep(&mut self) {
        let compares = self.set_aside.is_some() && self.announced;
        let has_work = self.shared.has_inputs() || self.shared.has_questions();
        if !self.told.is_empty() || has_work || compares {
            return tokio::task::yield_now().await;
        }
        let tell_at = self.waits.map(|(_, tell_at)| tell_at);
        let due = self.server.next_deadline().map(|(at, _)| at);
        let deadlines = [due, self.shared.stopping(), tell_at];
        let Some(at) = deadlines.into_iter().flatten().min() else {
            return self.shared.wake().notified().await;
        };
        if at != self.timer_at {
            self.timer_at = at;
            self.timer.as_mut().reset(self.shared.clock.timer(at));
        }
        tokio::select! {
            biased;
            () = self.shared.wake().notified() => {}
            () = self.timer.as_mut() => {}
        }
    }

    /// Encodes what the core has to say to clients into their buffers, and sends each buffer once: all answers, and some of
    /// the events.
    fn deliver(&mut self, now: Instant) {
        let mut traffic = self.shared.traffic.borrow_mut();
        let mut current: Option<Rc<Conn>> = None;
        for (id, command) in self.outbox.clients.drain(..) {
            // Answers to one connection tend to come together.
            let conn = match current.take() {
                Some(conn) if conn.id == id => Some(conn),
                _ => self.shared.conn(id),
            };
            let Some(conn) = conn.filter(|conn| !conn.is_closed()) else {
                continue;
            };
            if matches!(command, ClientCommand::Close) {
                conn.forget_load(&mut traffic.load);
                self.shared.close(&conn);
            } else if let ClientCommand::Complaint(what) = &command {
                tracing::warn!("closed the connection from {}: {what}", conn.peer);
            } else {
                match conn.queue(&command, now, &mut traffic) {
                    Some(Due::Answered) => self.answered.push(Rc::clone(&conn)),
                    Some(Due::Told) => self.told.push_back(Rc::clone(&conn)),
                    Some(Due::No) | None => {}
                }
            }
            current = Some(conn);
        }
        drop(traffic);
        let told = TOLD.min(self.told.len());
        for conn in self.answered.drain(..).chain(self.told.drain(..told)) {
            conn.flush(&self.shared);
        }
        self.shared.set_reading(self.server.pressure() == Pressure::Accept);
        self.shared.let_in();
    }

    /// Sizes what a leader proposes, which is what it appends.
    fn note_proposals(&self) {
        if !self.role.is_some_and(|(mode, ..)| mode == Mode::Leader) {
            return;
        }
        let mut traffic = self.shared.traffic.borrow_mut();
        for command in &self.outbox.disk {
            if let DiskCommand::Append { entry, .. } = command {
                traffic.proposals.add(entry.bytes.len());
            }
        }
    }

    /// Answers questions, announces once that clients are served, and tells what has become of this server's role.
    fn tell_operators(&mut self) {
        for _ in 0..QUESTIONS {
            let Some(question) = self.shared.take_question() else { break };
            question(&self.server);
        }
        let alone = self.shared.settings.ensemble.is_none();
        if alone && self.announced {
            return;
        }
        let status = self.server.status();
        let role = (status.mode, status.leader, status.serving);
        if !alone && self.role != Some(role) {
            self.role = Some(role);
            let leads = status.mode == Mode::Leader && status.serving;
            self.shared.leading_since.set(leads.then(|| self.shared.clock.mono()));
            tell_role(&status);
        }
        if status.serving && !self.announced {
            self.announced = true;
            announce(&self.shared.settings, &status);
        }
        if !alone {
            self.tell_what_it_waits_for(status.serving);
        }
    }

    /// Once this server is filled: names the first node in which the state that it had set aside was not the ensemble's.
    fn compare_set_aside(&mut self) {
        let Some(outline) = self.set_aside.as_mut().filter(|_| self.announced) else { return };
        match self.server.compare_outline(outline, COMPARED) {
            OutlineCompared::Unfinished => return,
            OutlineCompared::Alike => tracing::warn!(
                "the data that was set aside differs in no node for another reason than transactions of later"
            ),
            OutlineCompared::Differs { path, what } => {
                tracing::warn!(
                    "the first node in which the data that was set aside differs is {path:?}: {what}"
                );
            }
        }
        self.set_aside = None;
    }

    /// Writes what the core has to say to operators. Connections are still known: what closes them comes later.
    fn tell_notices(&mut self) {
        for notice in self.outbox.notices.drain(..) {
            match &notice {
                Notice::Loading { .. } => tracing::info!("{notice}"),
                Notice::LeavesLeader { .. } => tracing::info!("{notice}"),
                Notice::SessionExpires { .. } => tracing::info!(kind = "expires", "{notice}"),
                Notice::SessionExpired { conn, .. } => {
                    let conn = self.shared.conn(*conn);
                    let from = conn.map_or_else(String::new, |conn| format!(" from {}", conn.peer));
                    tracing::info!(kind = "expired", "{notice}{from}");
                }
                Notice::VotersDiffer { .. } => tracing::warn!("{notice}"),
                Notice::StatesDiffer { .. } => tracing::warn!(kind = "differ", "{notice}"),
            }
        }
    }

    /// Waiting is never silent: whoever starts a server, or has lost a quorum, reads what is missing.
    fn tell_what_it_waits_for(&mut self, serving: bool) {
        if serving || self.shared.stopping().is_some() {
            self.waits = None;
            return;
        }
        let now = self.shared.clock.mono();
        let (since, tell_at) = *self.waits.get_or_insert((now, now.after(WAIT_TOLD_FIRST)));
        if now < tell_at {
            return;
        }
        self.waits = Some((since, now.after(WAIT_TOLD_AGAIN)));
        if let Some(waiting) = self.server.waiting() {
            let seconds = now.since(since).as_secs();
            let troubles = self.peers.troubles();
            tracing::warn!("nobody is served for {seconds} s: {waiting}{troubles}");
        }
    }

    fn ended(&self, now: Instant) -> Option<Ended> {
        let stopping = self.shared.stopping();
        if self.server.halted().is_none() && stopping.is_none() {
            return None;
        }
        let status = self.server.status();
        if let Some(why) = status.halted {
            return Some(Ended::Halted(why, status.applied));
        }
        let complete = match self.shared.settings.ensemble {
            None => {
                status.outstanding == 0
                    && status.applied == status.appended
                    && status.durable == status.appended
            }
            // Others go on writing: all that is owed is answers to what has been read.
            Some(_) => self.shared.unanswered() == 0,
        };
        let latest = stopping?;
        (complete || now >= latest).then_some(Ended::Stopped { complete })
    }

    fn finish(self, ended: Ended) -> Ended {
        match ended {
            // Whatever is still queued is written and synced before this returns.
            Ended::Stopped { complete: true } => self.disk.join(),
            // A disk that does not answer would keep the process for ever.
            Ended::Stopped { complete: false } => self.disk.join_within(LAST_RECORD),
            Ended::Halted(..) => {}
        }
        ended
    }
}

/// Logs what a server of an ensemble is doing now.
fn tell_role(status: &Status) {
    let (epoch, zxid) = (status.current_epoch, status.appended);
    let leader = status.leader.map_or_else(String::new, |id| format!("server {id}"));
    match (status.mode, status.serving) {
        (Mode::Looking, _) => tracing::info!(%epoch, %zxid, "looks for a leader"),
        (Mode::Follower, false) => tracing::info!(%epoch, %zxid, "joins {leader}"),
        (Mode::Follower, true) => tracing::info!(%epoch, %zxid, "follows {leader}"),
        (Mode::Leader | Mode::Standalone, false) => {
            tracing::info!(%epoch, %zxid, "elected, gathers a quorum");
        }
        (Mode::Leader | Mode::Standalone, true) => tracing::info!(%epoch, %zxid, "leads"),
    }
}
