//! What a server process says to operators: the four-letter words, as the shipped driver answers
//! them from its core.
//!
//! Owns which questions a word asks of the server. The text is shorter than the shipped one, and
//! has none of what only a driver knows (traffic, latencies, files): words about that are answered
//! without a question.

use std::fmt::Write;

use zabkeeper_core::wire::Word;

use super::*;
use crate::check::observe::SelfReport;

impl Process {
    /// An operator asks.
    pub(super) fn answer_operator(&mut self, word: Word, shared: &mut Shared) -> String {
        match word {
            Word::Ruok => "imok".to_owned(),
            Word::Envi
            | Word::Gtmk
            | Word::Stmk
            | Word::TelnetClose
            | Word::Cons
            | Word::Crst
            | Word::Dirs
            | Word::Hash
            | Word::Srst => word.name().to_owned(),
            Word::Conf => {
                let config = shared.options.config(self.id);
                let (min, max) = (config.session_timeout_min(), config.session_timeout_max());
                format!("sessionTimeout={min:?}..{max:?}")
            }
            Word::Mntr => {
                let dropped = self.driver.clients.drop_probability();
                format!("{}drop_probability {dropped}\n", self.report(word, shared))
            }
            Word::Isro
            | Word::Dump
            | Word::Srvr
            | Word::Stat
            | Word::Wchc
            | Word::Wchp
            | Word::Wchs => self.report(word, shared),
        }
    }

    fn report(&self, word: Word, shared: &mut Shared) -> String {
        let server = &self.server;
        if !server.status().serving {
            return "This ZooKeeper instance is not currently serving requests\n".to_owned();
        }
        let report = self.show(shared);
        let mut text = String::new();
        let lines: Vec<String> = match word {
            Word::Dump => {
                let sessions = report.sessions.iter().chain(&report.local_sessions);
                let sessions = sessions.map(|session| format!("{session:?}"));
                let owned = report.ephemerals.iter().map(|owned| format!("{owned:?}"));
                sessions.chain(owned).collect()
            }
            Word::Wchc => report.by_conn.iter().map(|watch| format!("{watch:?}")).collect(),
            Word::Wchp => report.by_path.iter().map(|watch| format!("{watch:?}")).collect(),
            Word::Wchs => vec![format!("{:?}", report.watched)],
            Word::Conf
            | Word::Cons
            | Word::Crst
            | Word::Dirs
            | Word::Envi
            | Word::Gtmk
            | Word::Hash
            | Word::Isro
            | Word::Mntr
            | Word::Ruok
            | Word::Srst
            | Word::Srvr
            | Word::Stat
            | Word::Stmk
            | Word::TelnetClose => vec![format!("{:?}", report.status)],
        };
        for line in lines {
            writeln!(text, "{line}").expect("text takes all");
        }
        text
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
