//! What a script observes: the trace of outputs, statuses and digests, and checks that hold in
//! every script.
//!
//! Owns the trace. Must not change a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use zabkeeper_core::io::{ClientEvent, Outbox, PeerCommand};
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::{
    ConnId, Input, LinkCloseReason, LinkId, Mode, Notice, Server, ServerId, Zxid,
};

use super::Play;
use crate::play::identities;

impl Play {
    /// Servers that have applied the same zxid must have the same tree, and each epoch one serving
    /// leader.
    pub(super) fn check(&mut self, id: ServerId, before: Zxid) {
        let server = self.server(id).expect("it has just acted");
        let status = server.status();
        if status.applied != before && !self.forged {
            let digest = server.digest();
            let known = *self.trees.entry(status.applied).or_insert(digest);
            assert_eq!(
                known, digest,
                "s{id} has another tree at {}\n{}",
                status.applied, self.trace
            );
        }
        if status.mode == Mode::Leader && status.serving {
            let epoch = status.current_epoch;
            let leader = *self.leaders.entry(epoch).or_insert(id);
            assert_eq!(leader, id, "two leaders of epoch {epoch}\n{}", self.trace);
        }
        if self.server(id).is_some_and(Server::may_exit) && self.stopping.remove(&id) {
            self.say(format!("s{id} may exit"));
        }
    }

    pub(super) fn client(&mut self, id: ServerId, conn: ConnId, words: &[&str]) {
        let event = match words {
            ["open", options @ ..] => {
                let ids = identities(options);
                ClientEvent::Opened(self.clients.connect_request(options), ids)
            }
            ["gone"] => ClientEvent::Closed,
            ["drained"] => ClientEvent::Heartbeat,
            words => ClientEvent::Request(self.clients.request(conn, words)),
        };
        self.step(id, Input::Client(conn, event));
    }

    pub(super) fn say(&mut self, line: String) {
        if self.traced_at != self.now.mono {
            self.traced_at = self.now.mono;
            writeln!(self.trace, "[{} ms]", self.now.mono.0 / 1_000_000).unwrap();
        }
        writeln!(self.trace, "{line}").unwrap();
    }

    pub(super) fn print(&mut self, id: ServerId, out: &Outbox) {
        let disk: Vec<String> =
            out.disk.iter().map(|c| self.named_link(id, c.to_string())).collect();
        if !disk.is_empty() {
            self.say(format!("s{id} disk: {}", disk.join("; ")));
        }
        for (conn, command) in &out.clients {
            self.say(format!("s{id} {conn}: {command}"));
        }
        for notice in &out.notices {
            if let Notice::ReconfigRefused { .. }
            | Notice::ConfigHeld { .. }
            | Notice::GoesOnAlone = notice
            {
                self.say(format!("s{id} logs: {notice}"));
            }
        }
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        let mut add = |verb: String, to: ServerId| match lines.iter_mut().find(|(v, _)| *v == verb)
        {
            Some((_, all)) => all.push(to.to_string()),
            None => lines.push((verb, vec![to.to_string()])),
        };
        for (to, said) in &out.election {
            add(format!("tells|{said}"), *to);
        }
        for command in &out.peers {
            match command {
                PeerCommand::Dial(to) => add("dials|".into(), *to),
                PeerCommand::DialMaster(to) => add("dials for observers|".into(), *to),
                PeerCommand::Close(link, why) => {
                    if let Some((_, to)) = self.wire(id, *link) {
                        // The others are named by what precedes them.
                        let why = if let LinkCloseReason::Incompatible(what) = why
                            && what.contains("upgrade")
                        {
                            what
                        } else {
                            ""
                        };
                        add(format!("closes its link with|{why}"), to);
                    }
                }
                PeerCommand::Send(
                    _,
                    PeerMessage::Leader(FromLeader::Ping { .. })
                    | PeerMessage::Learner(FromLearner::Pong { .. }),
                ) if !self.show_pings => {}
                PeerCommand::Send(link, message) => {
                    if let Some((_, to)) = self.wire(id, *link) {
                        add(format!("->|{message}"), to);
                    }
                }
            }
        }
        for (what, to) in lines {
            let (verb, message) = what.split_once('|').unwrap();
            let colon = if message.is_empty() { "" } else { ": " };
            self.say(format!("s{id} {verb} {}{colon}{message}", to.join(" ")));
        }
    }

    /// Replaces the link's id by the server at its other end.
    pub(super) fn named_link(&self, id: ServerId, line: String) -> String {
        let Some((rest, link)) = line.rsplit_once(" for l") else {
            return line;
        };
        let (link, why) = link.split_once(':').unwrap_or((link, ""));
        let why = if why.is_empty() { String::new() } else { format!(":{why}") };
        match self.wire(id, LinkId(link.parse().unwrap())) {
            Some((_, to)) => format!("{rest} for s{to}{why}"),
            None => format!("{rest} for nobody{why}"),
        }
    }

    /// What a leader that serves knows of the other servers, and of a reconfiguration.
    pub(super) fn progress(&mut self) {
        let now = self.now.mono;
        for id in self.named(&[]) {
            let Some(server) = self.server(id) else { continue };
            let others = server.progress(now).into_iter().filter(|other| other.server != id);
            let others: Vec<String> = others.map(|other| other.to_string()).collect();
            let pending = server.pending_reconfig(now).map(|pending| pending.to_string());
            if !others.is_empty() {
                self.say(format!("s{id} reports: {}", others.join("; ")));
            }
            if let Some(pending) = pending {
                self.say(format!("s{id} reports: {pending}"));
            }
        }
    }

    pub(super) fn status(&mut self) {
        for id in self.named(&[]) {
            let Some(s) = self.server(id).map(Server::status) else {
                self.say(format!("s{id} is dead"));
                continue;
            };
            self.say(format!(
                "s{id} {:?}{} epochs={}/{} applied={} committed={} durable={} appended={} nodes={} \
                 sessions={}{}{}",
                s.mode,
                if s.serving { " serving" } else { "" },
                s.accepted_epoch,
                s.current_epoch,
                s.applied,
                s.committed,
                s.durable,
                s.appended,
                s.nodes,
                s.sessions,
                if s.local_sessions == 0 {
                    String::new()
                } else {
                    format!(" local={}", s.local_sessions)
                },
                s.halted.map(|why| format!(" halted: {why}")).unwrap_or_default()
            ));
        }
    }

    pub(super) fn digests(&self) -> BTreeMap<Zxid, Vec<(ServerId, u64)>> {
        let mut digests: BTreeMap<Zxid, Vec<_>> = BTreeMap::new();
        for (id, member) in &self.members {
            if let Some(server) = &member.server {
                digests.entry(server.status().applied).or_default().push((*id, server.digest()));
            }
        }
        digests
    }

    pub(super) fn digest(&mut self) {
        for (zxid, digests) in self.digests() {
            let names: Vec<String> = digests.iter().map(|(id, _)| format!("s{id}")).collect();
            self.say(format!("equal at {zxid}: {}", names.join(" ")));
        }
    }
}
