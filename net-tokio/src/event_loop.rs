//! The loop around the core: inputs in, commands out.
//!
//! Owns the [`Server`]. Must not decide anything the core could decide, nor wait for anything but
//! the next input.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Sleep;
use zabkeeper_core::driver::Driver;
use zabkeeper_core::io::Marks;
use zabkeeper_core::{
    Halted, Input, Instant, LinkId, Member, Now, Outbox, Outline, OutlineCompared, Server, Zxid,
};

use crate::admin::{self, Asks};
use crate::configs::ConfigSender;
use crate::conn;
use crate::disk::Disk;
use crate::facts;
use crate::host::Host;
use crate::logging;
use crate::peers;
use crate::shared::Shared;

/// Nodes of a state that was set aside that are compared in a turn.
const COMPARED: usize = 1000;

/// Steps the core until it halts or the server is stopped.
pub(crate) struct EventLoop {
    server: Server,
    shared: Rc<Shared>,
    host: Box<dyn Host>,
    disk: Disk,
    outbox: Outbox,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    announced: bool,
    configs: ConfigSender,
    /// Questions of the admin server.
    asks: Asks,
    /// A state that was set aside and is still to be compared with the one that this server is
    /// filled with.
    set_aside: Option<Outline>,
}

/// How the loop ended.
pub(crate) enum Ended {
    /// It was stopped, with all writes done in time or not.
    Stopped { complete: bool },
    /// The server has halted, after it had applied this much.
    Halted(Halted, Zxid),
}

/// Steps the core with the inputs of a turn.
pub(crate) fn take_turn(server: &mut Server, driver: &mut Driver, outbox: &mut Outbox, now: Now) {
    driver.begin_turn(now);
    outbox.cost = 0;
    while let Some(input) = driver.next_input(now, server, outbox.cost) {
        outbox.cost = 0;
        server.step(now, input, outbox);
    }
    driver.observe(outbox);
    outbox.notices.clear();
    outbox.marks = Marks::default();
}

/// Has a server that stops nothing more to do?
pub(crate) fn is_complete(server: &Server, driver: &Driver, is_ensemble: bool) -> bool {
    if is_ensemble {
        // Other servers continue to write: a leader hands over, and answers to requests that have
        // been read must leave.
        return server.may_exit() && driver.clients.unanswered() == 0;
    }
    let status = server.status();
    status.outstanding == 0
        && status.applied == status.appended
        && status.durable == status.appended
}

impl EventLoop {
    pub(crate) fn new(
        server: Server,
        shared: Rc<Shared>,
        host: impl Host + 'static,
        disk: Disk,
        configs: ConfigSender,
        asks: Asks,
        set_aside: Option<Outline>,
    ) -> EventLoop {
        EventLoop {
            server,
            shared,
            host: Box::new(host),
            disk,
            outbox: Outbox::default(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            timer_at: Instant::default(),
            announced: false,
            configs,
            asks,
            set_aside,
        }
    }

    pub(crate) async fn run(mut self) -> Ended {
        loop {
            let now = self.shared.clock.now();
            self.take_turn(now);
            self.disk.send(&mut self.outbox.disk);
            self.deliver(now);
            admin::answer(&mut self.asks, &mut self.shared.driver(), &self.server, now);
            self.configs.send_of(&self.server);
            self.announce();
            self.compare_set_aside();
            if let Some(ended) = self.ended(now.mono) {
                return self.finish(ended);
            }
            self.sleep().await;
        }
    }

    /// Steps the core with the inputs of a turn, and with what the disk has done.
    fn take_turn(&mut self, now: Now) {
        let mut driver = self.shared.driver();
        let (events, writes) = self.disk.completions();
        for event in events {
            driver.push(Input::Disk(event));
        }
        for write in writes {
            driver.clients.metrics_mut().storage.count_write(write, now.mono);
        }
        take_turn(&mut self.server, &mut driver, &mut self.outbox, now);
    }

    /// Until there is an input or a deadline has come; sometimes shorter.
    async fn sleep(&mut self) {
        let compares = self.set_aside.is_some() && self.announced;
        if self.shared.driver().has_work() || compares || !self.asks.is_empty() {
            return tokio::task::yield_now().await;
        }
        let due = self.shared.driver().next_deadline(&self.server);
        let Some(at) = due.into_iter().chain(self.shared.stopping()).min() else {
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
            // The process may have stalled: bytes in the sockets arrived before the deadline.
            tokio::task::yield_now().await;
        }
    }

    /// Offers queued output to each socket once, and wakes tasks whose `Interest` has changed.
    /// Opens connections to other servers, and collects facts that answers wait for.
    fn deliver(&mut self, now: Now) {
        let mut driver = self.shared.driver();
        driver.deliver(now, &self.server, &mut self.outbox);
        while let Some(id) = driver.next_to_flush() {
            if let Some(socket) = self.shared.socket(id) {
                conn::flush(&socket, &mut driver, now.mono, &self.shared);
            }
        }
        while let Some(dial) = driver.peers.next_dial(now.mono, || LinkId(self.shared.next_id())) {
            let mut lines: Vec<Member> = self.server.lines_of(dial.to).cloned().collect();
            if lines.is_empty()
                && let Some(ensemble) = &self.shared.settings.ensemble
            {
                lines.extend(ensemble.member(dial.to).cloned());
            }
            self.shared.spawn(peers::dial(Rc::clone(&self.shared), dial, lines));
        }
        while let Some(id) = driver.next_changed() {
            if let Some(socket) = self.shared.socket(id) {
                socket.changed.notify_one();
            }
        }
        while let Some((conn, query)) = driver.four_letter.next_query() {
            facts::collect(&self.shared, &mut driver, conn, query);
        }
        while let Some(ask) = self.shared.next_ask_for_samples() {
            let samples = driver.samples(&self.server, ask.descriptors, now.mono);
            // Whoever asked may have given up.
            let _given_up = ask.answer.send(samples);
        }
        driver.report_notes();
        while let Some(report) = driver.reports.next_line(now) {
            logging::log(&report);
        }
    }

    /// Tells the host and logs, once, that clients are served.
    fn announce(&mut self) {
        if self.announced {
            return;
        }
        let status = self.server.status();
        if !status.serving {
            return;
        }
        self.announced = true;
        let settings = &self.shared.settings;
        let everywhere = self.shared.client_address("*");
        tracing::info!(
            address = %everywhere,
            data = %settings.data_dir.display(),
            zxid = %status.applied,
            nodes = status.nodes,
            sessions = status.sessions,
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        self.host.serving(&everywhere, &self.shared.client_address("127.0.0.1"));
    }

    /// Once this server is filled: names the first node in which the state that it had set aside
    /// was not the ensemble's.
    fn compare_set_aside(&mut self) {
        let Some(outline) = self.set_aside.as_mut().filter(|_| self.announced) else { return };
        match self.server.compare_outline(outline, COMPARED) {
            OutlineCompared::Unfinished => return,
            OutlineCompared::Alike => {
                tracing::warn!("the data that was set aside differs only by later transactions")
            }
            OutlineCompared::Differs { path, what } => {
                tracing::warn!(
                    "the first node in which the data that was set aside differs is {path:?}: \
                     {what}"
                );
            }
        }
        self.set_aside = None;
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
        let is_ensemble = self.shared.settings.ensemble.is_some();
        let complete = is_complete(&self.server, &self.shared.driver(), is_ensemble);
        let latest = stopping?;
        (complete || now >= latest).then_some(Ended::Stopped { complete })
    }

    fn finish(self, ended: Ended) -> Ended {
        match ended {
            // Whatever is still queued is written and synced before this returns.
            Ended::Stopped { complete: true } => self.disk.join(),
            // A disk that does not answer would keep the server for ever.
            Ended::Stopped { complete: false } | Ended::Halted(..) => drop(self.disk),
        }
        ended
    }
}
