//! The loop around the core: inputs in, orders out.
//!
//! Owns the [`Server`]. Must not decide anything the core could decide, nor wait for anything but
//! the next input.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Sleep;
use zabkeeper_core::io::Mark;
use zabkeeper_core::{
    Halted, Input, Instant, LinkId, Mode, Notice, Now, Outbox, Outline, OutlineCompared, Server,
    ServerId, Status, Zxid,
};

use crate::admin;
use crate::disk::Disk;
use crate::peers;
use crate::serve::announce;
use crate::shared::Shared;

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
    disk: Disk,
    outbox: Outbox,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    announced: bool,
    /// What operators were told last.
    role: Option<(Mode, Option<ServerId>, bool)>,
    /// While nobody is served: since when, and when operators are told next what for.
    waits: Option<(Instant, Instant)>,
    /// A state that was set aside and is still to be compared with the one that this server is
    /// filled with.
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
        disk: Disk,
        set_aside: Option<Outline>,
    ) -> EventLoop {
        EventLoop {
            server,
            shared,
            disk,
            outbox: Outbox::default(),
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
            self.shared.driver().count_proposals(&self.outbox);
            if std::mem::take(&mut self.outbox.marks).contains(Mark::RecordTooLarge) {
                self.shared.note_too_large();
            }
            self.tell_notices();
            self.disk.send(&mut self.outbox.disk);
            self.deliver(now);
            self.tell_operators();
            self.compare_set_aside();
            if let Some(ended) = self.ended(now.mono) {
                return self.finish(ended);
            }
            self.sleep().await;
        }
    }

    /// Steps the core with the inputs of a turn.
    fn take_turn(&mut self, now: Now) {
        let mut driver = self.shared.driver();
        for event in self.disk.completions() {
            driver.push(Input::Disk(event));
        }
        driver.begin_turn(now);
        self.outbox.cost = 0;
        while let Some(input) = driver.next_input(now, &self.server, self.outbox.cost) {
            self.outbox.cost = 0;
            self.server.step(now, input, &mut self.outbox);
        }
    }

    /// Until there is an input or a deadline has come; sometimes shorter.
    async fn sleep(&mut self) {
        let compares = self.set_aside.is_some() && self.announced;
        if self.shared.driver().has_work() || compares {
            return tokio::task::yield_now().await;
        }
        let tell_at = self.waits.map(|(_, tell_at)| tell_at);
        let due = self.shared.driver().next_deadline(&self.server);
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
        if at <= self.shared.clock.mono() {
            // What lies in the sockets has come before: this process may have stood still.
            tokio::task::yield_now().await;
        }
    }

    /// Offers what the core has to say to the sockets, each once, wakes whose socket is to be
    /// treated otherwise, and opens connections to other servers.
    fn deliver(&mut self, now: Now) {
        let mut driver = self.shared.driver();
        driver.deliver(now, &self.server, &mut self.outbox);
        while let Some(id) = driver.next_to_flush() {
            if let Some(conn) = self.shared.conn(id) {
                conn.flush(&mut driver, now.mono, &self.shared);
            }
        }
        while let Some(dial) = driver.peers.next_dial(now.mono, || LinkId(self.shared.next_id())) {
            tokio::task::spawn_local(peers::dial(Rc::clone(&self.shared), dial));
        }
        while let Some(id) = driver.next_changed() {
            if let Some(conn) = self.shared.conn(id) {
                conn.changed.notify_one();
            }
        }
        while let Some((conn, query)) = driver.four_letter.next_query() {
            admin::collect(&self.shared, &mut driver, conn, query);
        }
        for note in driver.clients.take_notes() {
            self.shared.log(&note);
        }
        for note in driver.peers.take_notes() {
            peers::log(&self.shared.settings, &note);
        }
    }

    /// Announces once that clients are served, and logs changes of this server's role.
    fn tell_operators(&mut self) {
        let alone = self.shared.settings.ensemble.is_none();
        if alone && self.announced {
            return;
        }
        let status = self.server.status();
        let role = (status.mode, status.leader, status.serving);
        if !alone && self.role != Some(role) {
            self.role = Some(role);
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

    /// Once this server is filled: names the first node in which the state that it had set aside
    /// was not the ensemble's.
    fn compare_set_aside(&mut self) {
        let Some(outline) = self.set_aside.as_mut().filter(|_| self.announced) else { return };
        match self.server.compare_outline(outline, COMPARED) {
            OutlineCompared::Unfinished => return,
            OutlineCompared::Alike => tracing::warn!(
                "the data that was set aside differs in no node for another reason than \
                 transactions of later"
            ),
            OutlineCompared::Differs { path, what } => {
                tracing::warn!(
                    "the first node in which the data that was set aside differs is {path:?}: \
                     {what}"
                );
            }
        }
        self.set_aside = None;
    }

    /// Writes what the core has to say to operators. Connections are still known: what closes them
    /// comes later.
    fn tell_notices(&mut self) {
        for notice in self.outbox.notices.drain(..) {
            match &notice {
                Notice::Loading { .. } => tracing::info!("{notice}"),
                Notice::LeavesLeader { .. } => tracing::info!("{notice}"),
                Notice::SessionExpires { .. } => tracing::info!(kind = "expires", "{notice}"),
                Notice::SessionExpired { conn, .. } => {
                    let peer = self.shared.driver().clients.peer(*conn);
                    let from = peer.map_or_else(String::new, |peer| format!(" from {peer}"));
                    tracing::info!(kind = "expired", "{notice}{from}");
                }
                Notice::VotersDiffer { .. } => tracing::warn!("{notice}"),
                Notice::StatesDiffer { .. } => tracing::warn!(kind = "differ", "{notice}"),
            }
        }
    }

    /// Waiting is never silent: whoever starts a server, or has lost a quorum, reads what is
    /// missing.
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
            let troubles = peers::troubles(&self.shared);
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
            Some(_) => self.shared.driver().clients.unanswered() == 0,
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
