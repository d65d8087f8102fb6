//! Four-letter commands (FLW): the commands of operators and monitoring tools, and the answers.
//!
//! Owns which answer a command gets, its effect on counters, and the commands that wait: for a
//! later turn, for facts of the process, or for a client to take a part of a long answer. Must not
//! decide when bytes leave, nor read anything but the server, the connections and the host's
//! facts.
//!
//! Invariants: a command that the whitelist refuses has no effect; one command makes one answer; a
//! turn makes at most four parts of answers that read the server.

mod conns;
pub mod date;
mod listing;
mod options;
mod samples;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::Clients;
use super::metrics::Sample;
use crate::config::Config;
use crate::ids::{ConnId, Instant, ServerId};
use crate::io::Now;
use crate::membership::EnsembleConfig;
use crate::server::Server;
use crate::status::{Mode, Status};
use crate::wire::FourLetterCommand;

pub use conns::{Dump, Pairs, dump_connections, dump_sessions, watch_summary};
use listing::Listing;
pub use options::{
    Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions, HostFacts, HostQuery,
    PART_LINES, Whitelist,
};
pub use samples::samples;
pub use text::{
    Figures, NOT_SERVING, conf, cons, dirs, envi, environment, mntr, refused, srvr, stat,
};

/// Parts of answers that are made in a turn: bounds the delay that operators cause to clients.
const PARTS_PER_TURN: usize = 4;

/// How long a client may take for each part of a long answer.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// ZooKeeper's trace mask until `stmk` sets one. The mask has no effect here.
const TRACE_MASK: i64 = 306;

/// State of all four-letter commands.
#[derive(Debug)]
pub struct FourLetter {
    options: FourLetterOptions,
    config: Arc<Config>,
    started: Instant,
    /// Since when this server serves as the leader of others; `None` if it does not.
    leading_since: Option<Instant>,
    trace_mask: i64,
    /// Commands whose answer is incomplete.
    pending: BTreeMap<ConnId, Pending>,
    /// Pending commands that can continue, oldest first.
    ready: VecDeque<ConnId>,
    queries: VecDeque<(ConnId, HostQuery)>,
}

/// A command whose answer is incomplete.
#[derive(Debug)]
struct Pending {
    command: FourLetterCommand,
    facts: Option<HostFacts>,
    /// The rest of a long answer.
    listing: Option<Listing>,
}

/// What a pending command does in a turn.
enum Step {
    /// Its answer ends with this text.
    Answer(String),
    /// A part of its answer; further parts follow.
    Part(String),
    /// It waits for this fact.
    Query(HostQuery),
}

impl FourLetter {
    pub(super) fn new(config: Arc<Config>, now: Instant) -> FourLetter {
        FourLetter {
            options: FourLetterOptions::default(),
            config,
            started: now,
            leading_since: None,
            trace_mask: TRACE_MASK,
            pending: BTreeMap::new(),
            ready: VecDeque::new(),
            queries: VecDeque::new(),
        }
    }

    pub(super) fn set_options(&mut self, options: FourLetterOptions) {
        self.options = options;
    }

    /// These commands are answered from now on.
    pub(super) fn set_whitelist(&mut self, whitelist: Whitelist) {
        self.options.whitelist = whitelist;
    }

    /// Clients are accepted here from now on; no host means every address.
    pub fn set_client_address(&mut self, host: Option<&str>, port: u16) {
        self.options.client_host = host.unwrap_or("0.0.0.0").to_owned();
        self.options.client_port = port;
    }

    /// This configuration has come into force.
    pub(super) fn set_ensemble_config(&mut self, config: &EnsembleConfig) {
        let before = self.options.ensemble.as_ref();
        self.options.ensemble = Some(EnsembleInfo::of(config, self.config.id(), before));
    }

    /// The settings that answers depend on.
    pub fn options(&self) -> &FourLetterOptions {
        &self.options
    }

    /// The id of this server.
    pub(super) fn own(&self) -> ServerId {
        self.config.id()
    }

    /// The trace mask, which has no effect (FLW-07).
    pub(super) fn trace_mask(&self) -> i64 {
        self.trace_mask
    }

    /// Sets the trace mask (FLW-08).
    pub(super) fn set_trace_mask(&mut self, mask: i64) {
        self.trace_mask = mask;
    }

    /// A fact that an answer waits for; the host determines it and calls [`FourLetter::supply`].
    pub fn next_query(&mut self) -> Option<(ConnId, HostQuery)> {
        self.queries.pop_front()
    }

    /// The fact that an answer waits for. The answer follows in the next turn.
    pub fn supply(&mut self, conn: ConnId, facts: HostFacts) {
        if let Some(pending) = self.pending.get_mut(&conn) {
            pending.facts = Some(facts);
            self.ready.push_back(conn);
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes the role of a server of an ensemble at the end of a turn.
    pub(super) fn note_role(&mut self, status: &Status, now: Instant) {
        let leads = status.mode == Mode::Leader && status.serving;
        self.leading_since = leads.then(|| self.leading_since.unwrap_or(now));
    }

    /// Answers commands, within the bounds of a turn.
    pub(super) fn answer(&mut self, clients: &mut Clients, server: &Server, now: Now) {
        while let Some((conn, command, mask)) = clients.next_command() {
            self.take(conn, command, mask, clients);
        }
        while let Some(conn) = clients.next_resumed() {
            self.ready.push_back(conn);
        }
        for _ in 0..PARTS_PER_TURN {
            let Some(conn) = self.ready.pop_front() else { return };
            let Some(mut pending) = self.pending.remove(&conn) else { continue };
            if !clients.awaits_answer(conn) {
                continue;
            }
            match self.step(&mut pending, clients, server, now) {
                Step::Answer(text) => clients.end_answer(conn, &text),
                Step::Part(text) => {
                    if text.is_empty() {
                        // No socket will report that an empty part was taken.
                        self.ready.push_back(conn);
                    } else {
                        clients.queue_part(conn, &text, now.mono.after(PART_TIMEOUT));
                    }
                    self.pending.insert(conn, pending);
                }
                Step::Query(query) => {
                    self.queries.push_back((conn, query));
                    self.pending.insert(conn, pending);
                }
            }
        }
    }

    /// A command has been read. Those that need nothing of the server are answered at once,
    /// however busy it is.
    fn take(
        &mut self,
        conn: ConnId,
        command: FourLetterCommand,
        mask: Option<i64>,
        clients: &mut Clients,
    ) {
        let text = match command {
            _ if !self.options.whitelist.allows(command) => refused(command),
            FourLetterCommand::Ruok => "imok".to_owned(),
            FourLetterCommand::Gtmk => self.trace_mask.to_string(),
            FourLetterCommand::Stmk => {
                self.trace_mask = mask.unwrap_or_default();
                self.trace_mask.to_string()
            }
            // FLW-19: as in ZooKeeper, the connection closes without an answer.
            FourLetterCommand::TelnetClose => String::new(),
            FourLetterCommand::Conf
            | FourLetterCommand::Cons
            | FourLetterCommand::Crst
            | FourLetterCommand::Dirs
            | FourLetterCommand::Dump
            | FourLetterCommand::Envi
            | FourLetterCommand::Hash
            | FourLetterCommand::Isro
            | FourLetterCommand::Mntr
            | FourLetterCommand::Srst
            | FourLetterCommand::Srvr
            | FourLetterCommand::Stat
            | FourLetterCommand::Wchc
            | FourLetterCommand::Wchp
            | FourLetterCommand::Wchs => {
                self.pending.insert(conn, Pending { command, facts: None, listing: None });
                return self.ready.push_back(conn);
            }
        };
        clients.end_answer(conn, &text);
    }

    fn step(
        &self,
        pending: &mut Pending,
        clients: &mut Clients,
        server: &Server,
        now: Now,
    ) -> Step {
        if let Some(listing) = &mut pending.listing {
            return listing.next(server, clients, self.options.part_lines);
        }
        if pending.command == FourLetterCommand::Envi {
            return match &pending.facts {
                Some(HostFacts::Environment(env)) => Step::Answer(envi(&self.options, env)),
                _ => Step::Query(HostQuery::Environment),
            };
        }
        let status = server.status();
        let read_only = status.mode == Mode::ReadOnly;
        match (pending.command, status.serving || read_only) {
            (FourLetterCommand::Isro, true) if read_only => Step::Answer("ro".to_owned()),
            (FourLetterCommand::Isro, true) => Step::Answer("rw".to_owned()),
            (FourLetterCommand::Isro, false) => Step::Answer("null".to_owned()),
            (FourLetterCommand::Hash, false) => Step::Answer(NOT_SERVING.trim_end().to_owned()),
            (_, false) => Step::Answer(NOT_SERVING.to_owned()),
            (_, true) => self.step_serving(pending, clients, server, &status, now),
        }
    }

    /// The commands that are answered only while the server serves clients, be they read-only.
    fn step_serving(
        &self,
        pending: &mut Pending,
        clients: &mut Clients,
        server: &Server,
        status: &Status,
        now: Now,
    ) -> Step {
        let figures = |clients| self.figures(clients, status, now.mono);
        let begin = |slot: &mut Option<Listing>, listing| {
            slot.insert(listing).next(server, clients, self.options.part_lines)
        };
        Step::Answer(match (pending.command, &pending.facts) {
            (FourLetterCommand::Conf, Some(HostFacts::DiskUse(disk))) => {
                conf(&Figures { disk: *disk, ..figures(clients) })
            }
            (FourLetterCommand::Dirs, Some(HostFacts::DiskUse(disk))) => dirs(disk),
            (FourLetterCommand::Conf | FourLetterCommand::Dirs, _) => {
                return Step::Query(HostQuery::DiskUse);
            }
            (FourLetterCommand::Mntr, Some(HostFacts::Descriptors(descriptors))) => {
                mntr(&self.samples(clients, server, status, *descriptors, now.mono))
            }
            (FourLetterCommand::Mntr, _) => return Step::Query(HostQuery::Descriptors),
            (FourLetterCommand::Cons, _) => {
                cons(&Figures { clients: clients.lines(), ..figures(clients) })
            }
            (FourLetterCommand::Srvr, _) => srvr(&figures(clients)),
            (FourLetterCommand::Stat, _) => {
                stat(&Figures { clients: clients.lines(), ..figures(clients) })
            }
            (FourLetterCommand::Wchs, _) => watch_summary(server.watch_summary()),
            (FourLetterCommand::Crst, _) => {
                clients.reset_conn_stats();
                "Connection stats reset.\n".to_owned()
            }
            (FourLetterCommand::Srst, _) => {
                clients.metrics_mut().reset();
                "Server stats reset.\n".to_owned()
            }
            // FLW-18: digests depend on the encoding of the history, which is not ZooKeeper's.
            (FourLetterCommand::Hash, _) => String::new(),
            (FourLetterCommand::Dump, _) => {
                let local = self.config.sessions.local;
                let listing = Listing::dump(server, clients, status.mode, local, now);
                return begin(&mut pending.listing, listing);
            }
            (FourLetterCommand::Wchc, _) => {
                return begin(&mut pending.listing, Listing::by_conn());
            }
            (FourLetterCommand::Wchp, _) => {
                return begin(&mut pending.listing, Listing::by_path());
            }
            (
                FourLetterCommand::Ruok
                | FourLetterCommand::Envi
                | FourLetterCommand::Gtmk
                | FourLetterCommand::Stmk
                | FourLetterCommand::TelnetClose
                | FourLetterCommand::Isro,
                _,
            ) => unreachable!("{} is answered elsewhere", pending.command.name()),
        })
    }

    /// The list of figures that `mntr` prints.
    pub(super) fn samples(
        &self,
        clients: &Clients,
        server: &Server,
        status: &Status,
        descriptors: Option<Descriptors>,
        now: Instant,
    ) -> Vec<Sample> {
        samples(&Figures {
            descriptors,
            progress: server.progress(now),
            pending_reconfig: server.pending_reconfig(now),
            ..self.figures(clients, status, now)
        })
    }

    /// The data of answers, without what the commands that need it add.
    pub(super) fn figures<'a>(
        &'a self,
        clients: &'a Clients,
        status: &'a Status,
        now: Instant,
    ) -> Figures<'a> {
        Figures {
            options: &self.options,
            config: &self.config,
            connections_per_ip: clients.limits().connections_per_ip,
            status,
            metrics: clients.metrics(),
            connections: clients.count(),
            clients: Vec::new(),
            event_bytes: clients.event_bytes(),
            now,
            uptime: now.since(self.started),
            leader_uptime: self.leading_since.map_or(Duration::ZERO, |since| now.since(since)),
            progress: Vec::new(),
            pending_reconfig: None,
            disk: DiskUse::default(),
            descriptors: None,
            drop_probability: clients.drop_probability(),
        }
    }
}
