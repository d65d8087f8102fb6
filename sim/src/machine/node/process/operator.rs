//! A server process and its operators: four-letter commands that have arrived, the facts of the
//! process for the answers, and the simulator's own knowledge at the time of the answers.
//!
//! Owns the commands whose answer is incomplete. Must not make answers: the driver does, and an
//! oracle compares them with what is collected here.

use std::rc::Rc;
use std::time::Duration;

use zabkeeper_core::driver::Interest;
use zabkeeper_core::driver::four_letter::{
    Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions, HostFacts, HostQuery,
    Whitelist,
};
use zabkeeper_core::wire::{FourLetterCommand, WatcherType};
use zabkeeper_core::{Mode, Status};

use super::traffic::Traffic;
use super::*;
use crate::check::answers::{Answer, Moment, Settings};
use crate::check::observe::SelfReport;
use crate::record::sometimes::Sometimes;
use crate::world::options::Options;

/// ZooKeeper's trace mask at the start of a server.
const TRACE_MASK: i64 = 306;

/// Ports that answers show; no socket uses them.
const CLIENT_PORT: u16 = 2181;
pub(super) const QUORUM_PORT: u16 = 2888;
pub(super) const ELECTION_PORT: u16 = 3888;
const BACKLOG: u32 = 1024;

/// The time limit for a part of a long answer.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest number of file descriptors, which `mntr` shows.
const DESCRIPTORS_MAX: u64 = 1_024;

/// Operators of one process.
#[derive(Debug)]
pub(in crate::machine::node) struct Operators {
    pub(super) traffic: Traffic,
    asked: BTreeMap<ConnId, Asked>,
    settings: Rc<Settings>,
    trace_mask: i64,
    started: Instant,
    /// The mode at the end of the last turn, and since when the server leads others.
    mode: Option<Mode>,
    leading_since: Option<Instant>,
    turn: u64,
}

/// A command that has arrived.
#[derive(Debug)]
struct Asked {
    answer: Answer,
    /// All bytes of the command have arrived, its mask included.
    whole: bool,
    /// The driver has made the whole answer.
    made: bool,
}

/// Options of four-letter commands for a server of a run.
pub(in crate::machine::node) fn four_letter(
    config: &Config,
    options: &Options,
) -> FourLetterOptions {
    let ensemble = || EnsembleInfo {
        election_ports: ELECTION_PORT.to_string(),
        quorum_ports: QUORUM_PORT.to_string(),
        observes: config.members().is_observer(config.id()),
        voters: config.voters().ids().count(),
        membership: members(config).join("\n") + "\nversion=0",
    };
    let all = FourLetterCommand::all();
    let whitelist = match options.server.refused() {
        None => Whitelist::All,
        Some(refused) => {
            let allowed = all.filter(|command| *command != refused);
            Whitelist::These(allowed.map(|command| command.name().to_owned()).collect())
        }
    };
    FourLetterOptions {
        whitelist,
        client_host: "10.0.0.1".to_owned(),
        client_port: CLIENT_PORT,
        data_dir: dirs(config)[0].clone(),
        log_dir: dirs(config)[1].clone(),
        backlog: BACKLOG,
        part_lines: options.server.part_lines,
        ensemble: (!config.members().alone()).then(ensemble),
        ..FourLetterOptions::default()
    }
}

fn members(config: &Config) -> Vec<String> {
    let line = |id: ServerId| {
        let role = if config.members().is_observer(id) { "observer" } else { "participant" };
        format!("server.{id}=10.0.1.{id}:{QUORUM_PORT}:{ELECTION_PORT}:{role}")
    };
    config.members().ids().map(line).collect()
}

fn dirs(config: &Config) -> [String; 2] {
    ["data", "log"].map(|dir| format!("/{dir}/s{}", config.id()))
}

/// The lines of `conf`, from the settings of the run.
fn settings(config: &Config) -> Settings {
    let alone = config.members().alone();
    let [data, log] = dirs(config);
    let ms = |time: Duration| time.as_millis().to_string();
    let mut values = vec![
        ("clientPort", CLIENT_PORT.to_string()),
        ("secureClientPort", "-1".to_owned()),
        ("dataDir", data),
        ("dataLogDir", log),
        ("tickTime", ms(config.tick())),
        ("maxClientCnxns", "0".to_owned()),
        ("minSessionTimeout", ms(config.session_timeout_min())),
        ("maxSessionTimeout", ms(config.session_timeout_max())),
        ("clientPortListenBacklog", BACKLOG.to_string()),
        ("serverId", if alone { "0".to_owned() } else { config.id().to_string() }),
    ];
    if alone {
        return Settings { values, members: Vec::new(), reconfigurable: false };
    }
    let ticks = |limit: Duration| limit.as_nanos() / config.tick().as_nanos();
    values.extend([
        ("initLimit", ticks(config.init_limit()).to_string()),
        ("syncLimit", ticks(config.sync_limit()).to_string()),
        ("electionAlg", "3".to_owned()),
        ("electionPort", ELECTION_PORT.to_string()),
        ("quorumPort", QUORUM_PORT.to_string()),
        ("peerType", u8::from(config.members().is_observer(config.id())).to_string()),
        ("version", "0".to_owned()),
    ]);
    let reconfigurable = config.reconfig.is_some();
    Settings { values, members: members(config), reconfigurable }
}

impl Operators {
    /// The operators of a process that begins at this time of its clock.
    pub(in crate::machine::node) fn new(config: &Config, started: Instant) -> Operators {
        Operators {
            traffic: Traffic::default(),
            asked: BTreeMap::new(),
            settings: Rc::new(settings(config)),
            trace_mask: TRACE_MASK,
            started,
            mode: None,
            leading_since: None,
            turn: 0,
        }
    }

    /// Counts bytes of an answer that have left.
    pub(super) fn left(&mut self, conn: ConnId, bytes: usize) {
        if let Some(asked) = self.asked.get_mut(&conn) {
            asked.answer.length += bytes;
        }
    }

    /// Has a command arrived on the connection? The output of such a connection has no bound.
    pub(super) fn has_asked(&self, conn: ConnId) -> bool {
        self.asked.contains_key(&conn)
    }

    /// The answer on a connection that closes, if it was made.
    pub(super) fn closed(&mut self, conn: ConnId) -> Option<Answer> {
        self.traffic.closed(conn);
        self.asked.remove(&conn).filter(|asked| asked.made).map(|asked| asked.answer)
    }
}

impl Process {
    /// What the operator's oracle says.
    pub(in crate::machine::node) fn on_oracle(&mut self, permits: bool, shared: &mut Shared) {
        self.driver.on_oracle(permits);
        self.ask_to_run(shared);
    }

    /// Reads bytes of a client just before the driver does.
    pub(super) fn note_read(&mut self, now: Now, id: SocketId, bytes: &[u8], shared: &Shared) {
        let SocketId::Client(conn) = id else { return };
        let operators = &mut self.operators;
        if let Some(command) = operators.traffic.read(conn, bytes, now.mono) {
            let allowed = shared.options.server.refused() != Some(command);
            let answer = Answer {
                command,
                allowed,
                length: 0,
                incarnation: self.incarnation,
                disk: None,
                descriptors: None,
                moments: Vec::new(),
            };
            operators.asked.insert(conn, Asked { answer, whole: false, made: false });
        }
    }

    /// Notes whether the driver has read the whole command.
    pub(super) fn note_whole(&mut self, id: SocketId) {
        let SocketId::Client(conn) = id else { return };
        if let Some(asked) = self.operators.asked.get_mut(&conn) {
            asked.whole = self.driver.clients.interest(conn) != Interest::Read;
        }
    }

    /// Notes the core's commands for clients, before the driver takes them.
    pub(super) fn note_commands(&mut self, now: Now, out: &Outbox) {
        let clients = &self.driver.clients;
        let operators = &mut self.operators;
        let is_open = |conn| matches!(clients.interest(conn), Interest::Read | Interest::Wait);
        operators.traffic.commanded(&out.clients, is_open, now.mono);
    }

    /// Notes a leader's proposals, which are its appends.
    pub(super) fn note_proposals(&mut self, out: &Outbox) {
        if self.operators.mode == Some(Mode::Leader) {
            self.operators.traffic.proposed(&out.disk);
        }
    }

    /// Records the simulator's own knowledge for the answers, or parts of them, that the driver has
    /// made at the end of a turn.
    pub(super) fn note_answers(&mut self, now: Now, status: &Status, shared: &mut Shared) {
        self.operators.turn += 1;
        self.operators.mode = Some(status.mode);
        let leads = status.mode == Mode::Leader && status.serving;
        let since = self.operators.leading_since.unwrap_or(now.mono);
        self.operators.leading_since = leads.then_some(since);
        let waits = |asked: &&mut Asked| asked.whole && !asked.made;
        if self.operators.asked.values_mut().all(|asked| !waits(&asked)) {
            return;
        }
        let serves = status.serving || status.mode == Mode::ReadOnly && status.halted.is_none();
        let report = serves.then(|| self.show(now.mono, shared));
        self.renew_settings();
        let clients = &self.driver.clients;
        let is_open = |conn| matches!(clients.interest(conn), Interest::Read | Interest::Wait);
        let is_made = |conn| matches!(clients.interest(conn), Interest::Shutdown);
        self.operators.asked.retain(|conn, _| clients.interest(*conn) != Interest::Close);
        let made: Vec<&Asked> = self
            .operators
            .asked
            .iter()
            .filter(|(conn, asked)| asked.whole && !asked.made && is_made(**conn))
            .map(|(_, asked)| asked)
            .collect();
        let is_done = |command| {
            made.iter().any(|asked| asked.answer.allowed && asked.answer.command == command)
        };
        let resets = [FourLetterCommand::Srst, FourLetterCommand::Crst];
        let resets = resets.map(|command| serves && is_done(command));
        let answers = made.len() as u64;
        let mixed = answers > 1 && (resets[0] || resets[1]);
        let trace_mask = self.operators.trace_mask;
        if is_done(FourLetterCommand::Stmk) {
            self.operators.trace_mask = 0;
        }
        let moment = Rc::new(Moment {
            turn: self.operators.turn,
            now,
            report,
            ephemerals: self
                .server
                .ephemerals()
                .flat_map(|(id, paths)| paths.map(move |path| (id, path.to_owned())))
                .collect(),
            watches: watches(&self.server),
            conns: self.operators.traffic.conns(is_open),
            counters: self.operators.traffic.counters(answers, mixed, is_open),
            settings: Rc::clone(&self.operators.settings),
            trace_masks: [trace_mask, self.operators.trace_mask],
            uptime_ms: ms(now.mono, self.operators.started),
            leader_uptime_ms: self.operators.leading_since.map_or(0, |since| ms(now.mono, since)),
        });
        // The driver ends an answer early if its client does not take a part in time.
        self.operators.asked.retain(|_, asked| {
            let first = asked.answer.moments.first().map_or(now.mono, |first| first.now.mono);
            asked.made || now.mono.since(first) < PART_TIMEOUT
        });
        for (conn, asked) in &mut self.operators.asked {
            if asked.whole && !asked.made {
                asked.made = is_made(*conn);
                if !is_long(asked.answer.command) {
                    asked.answer.moments.clear();
                }
                asked.answer.moments.push(Rc::clone(&moment));
                if asked.made && asked.answer.moments.len() > 1 {
                    shared.saw(Sometimes::AnswerInParts);
                }
                if asked.made && !asked.answer.allowed {
                    shared.saw(Sometimes::CommandRefused);
                }
            }
        }
        self.operators.traffic.answered(answers, resets);
    }

    /// Where clients reconfigure the ensemble, members and version are those in force.
    fn renew_settings(&mut self) {
        let Some(config) = self.server.ensemble_config() else { return };
        let own = u8::from(config.members().is_observer(self.id)).to_string();
        let version = format!("{:x}", config.version.0);
        let settings = Rc::make_mut(&mut self.operators.settings);
        settings.members = config.servers().map(ToString::to_string).collect();
        for (name, value) in &mut settings.values {
            match *name {
                "version" => value.clone_from(&version),
                "peerType" => value.clone_from(&own),
                _ => {}
            }
        }
    }

    /// Supplies the facts that answers wait for.
    pub(super) fn supply(&mut self, disk: &RefCell<Disk>) {
        while let Some((conn, query)) = self.driver.four_letter.next_query() {
            let Some(asked) = self.operators.asked.get_mut(&conn) else { continue };
            let facts = match query {
                HostQuery::DiskUse => {
                    let [log, snapshots] = disk.borrow().sizes_by_folder();
                    asked.answer.disk = Some([snapshots, log]);
                    HostFacts::DiskUse(DiskUse { snapshots, log })
                }
                HostQuery::Descriptors => {
                    let open = self.sockets.len();
                    asked.answer.descriptors = Some(open as u64);
                    HostFacts::Descriptors(Some(Descriptors { open, limit: DESCRIPTORS_MAX }))
                }
                HostQuery::Environment => HostFacts::Environment(Environment {
                    host: Some(format!("s{}", self.id)),
                    os: "linux",
                    arch: "x86_64",
                    memory: Some([256, 512]),
                    ..Environment::default()
                }),
            };
            self.driver.four_letter.supply(conn, facts);
        }
    }

    /// Passes the reports of the server to the oracles.
    pub(in crate::machine::node) fn show(&self, now: Instant, shared: &mut Shared) -> SelfReport {
        let server = &self.server;
        let report = SelfReport {
            status: server.status(),
            sessions: server.sessions(),
            unapplied: self.unapplied.len(),
            local_sessions: server.local_sessions(),
            progress: server.progress(now),
            pending_reconfig: server.pending_reconfig(now),
            ephemerals: server
                .ephemerals()
                .map(|(session, paths)| (session, paths.map(str::to_owned).collect()))
                .collect(),
            watched: server.watch_summary(),
            by_conn: server.watches_by_conn().map(|(conn, path)| (conn, path.to_owned())).collect(),
            by_path: server.watches_by_path().map(|(path, conn)| (conn, path.to_owned())).collect(),
        };
        shared.observe(Observation::Reported {
            server: self.id,
            report: &report,
            open: &self.known.clients,
        });
        let strays = server.backlog().strays;
        let none = (strays == 0).then_some(()).ok_or_else(|| {
            format!("s{}: {strays} sessions and connections that do not know each other", self.id)
        });
        shared.check(Check::NAMES, none);
        report
    }
}

/// Is the answer made in parts?
fn is_long(command: FourLetterCommand) -> bool {
    matches!(command, FourLetterCommand::Dump | FourLetterCommand::Wchc | FourLetterCommand::Wchp)
}

/// Watches of both tables: persistent ones are in both.
fn watches(server: &Server) -> usize {
    let kinds = [WatcherType::Children, WatcherType::Persistent];
    let child: BTreeSet<(ConnId, &str)> =
        kinds.into_iter().flat_map(|kind| server.watches_of(kind)).collect();
    server.watches_by_conn().count() + child.len()
}

fn ms(now: Instant, since: Instant) -> u64 {
    u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX)
}
