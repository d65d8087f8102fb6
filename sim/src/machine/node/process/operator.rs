//! What a server process knows for answers to operators beside its core and its driver.
//!
//! Owns the settings and facts that answers show, and what oracles see of the server when one is
//! asked for. Must not make the answers: the driver does.

use zabkeeper_core::driver::four_letter::{
    Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions, HostFacts, HostQuery,
    Whitelist,
};
use zabkeeper_core::wire::FourLetterCommand;

use super::*;
use crate::check::observe::SelfReport;

/// The settings of the server's driver: all commands are answered.
pub(in crate::node) fn four_letter(config: &Config) -> FourLetterOptions {
    let member = |ServerId(id)| format!("server.{id}=10.0.1.{id}:2888:3888:participant");
    let ensemble = || EnsembleInfo {
        election_port: 3888,
        quorum_port: 2888,
        members: config.voters().ids().map(member).collect(),
    };
    FourLetterOptions {
        whitelist: Whitelist::All,
        data_dir: "/data/zabkeeper".to_owned(),
        log_dir: "/log/zabkeeper".to_owned(),
        backlog: 1024,
        ensemble: (!config.voters().alone()).then(ensemble),
        ..FourLetterOptions::default()
    }
}

impl Process {
    /// Bytes are read from a client. If they are a four-letter command, oracles look at the server.
    pub(super) fn asks(&mut self, id: SocketId, bytes: &[u8], shared: &mut Shared) {
        let command = bytes.first_chunk().and_then(FourLetterCommand::recognise);
        let SocketId::Client(conn) = id else { return };
        let is_first = command.is_some() && !self.known.contains(&conn);
        if is_first && self.server.status().serving {
            self.show(shared);
        }
    }

    /// Supplies the facts that answers wait for.
    pub(super) fn supply(&mut self, disk: &RefCell<Disk>) {
        while let Some((conn, query)) = self.driver.four_letter.next_query() {
            let facts = match query {
                HostQuery::DiskUse => {
                    let snapshots = disk.borrow().used();
                    HostFacts::DiskUse(DiskUse { snapshots, log: snapshots })
                }
                HostQuery::Descriptors => {
                    let open = self.sockets.len();
                    HostFacts::Descriptors(Some(Descriptors { open, limit: 1_024 }))
                }
                HostQuery::Environment => HostFacts::Environment(Environment {
                    host: Some(format!("s{}", self.id)),
                    ..Environment::default()
                }),
            };
            self.driver.four_letter.supply(conn, facts);
        }
    }

    /// Shows the oracles what operators would be told now.
    pub(in crate::machine::node) fn show(&self, shared: &mut Shared) -> SelfReport {
        let server = &self.server;
        let report = SelfReport {
            status: server.status(),
            sessions: server.sessions(),
            unapplied: self.unapplied.len(),
            local_sessions: server.local_sessions(),
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
            open: &self.known,
        });
        let strays = server.backlog().strays;
        let none = (strays == 0).then_some(()).ok_or_else(|| {
            format!("s{}: {strays} sessions and connections that do not know each other", self.id)
        });
        shared.check(Check::NAMES, none);
        report
    }
}
