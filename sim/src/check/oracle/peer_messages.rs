//! Messages between servers: votes, promises and acknowledgements compared with what is durable at
//! the sender; and the acknowledgements that a follower has to send to its leader (L8).
//!
//! Owns the state of each server's links. Must not check what a message does not state.
//!
//! A message is checked in the step that sends it: the disk must have confirmed before what it
//! vouches for.

use std::fmt;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage, ServerState, Vote};
use zabkeeper_core::store::THIS_SERVER;
use zabkeeper_core::{Epoch, HistoryInfo, HistoryStatus, Instant, LinkId, ServerId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use super::epochs::Promises;
use super::hand_over::HandOvers;
use super::link::{Link, MessageKind, Sent};
use super::text::{self, kept};
use super::voters::{Past, Voters};
use super::zab::{Server, Zab};

/// A message in the step that sends it.
struct Sending<'a> {
    by: ServerId,
    link: LinkId,
    to: Option<&'a Link>,
    message: &'a PeerMessage,
}

impl fmt::Display for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sending { by, link, to, message } = self;
        match to.map(|link| link.peer) {
            Some(peer) => write!(f, "server {by} says to server {peer} on {link}: {message}"),
            None => write!(f, "server {by} says on {link}: {message}"),
        }
    }
}

impl Server {
    /// The links on which it has acknowledged NEWLEADER to the leader that it follows.
    fn entered(&self) -> impl Iterator<Item = (&LinkId, &Link)> {
        let leads = |view: &Link| self.follows == Some(view.peer);
        self.links.iter().filter(move |(_, view)| view.sent.entered && leads(view))
    }
}

impl Server {
    /// The server handles this message at `at`; `before` are the voters that its sender knew
    /// before, if it is a promise.
    fn message(
        &mut self,
        link: LinkId,
        message: &PeerMessage,
        (at, sent_at): (Instant, Option<Instant>),
        before: Option<Voters>,
    ) {
        let Some(view) = self.links.get_mut(&link) else {
            return;
        };
        view.received = at;
        view.spoken = sent_at.unwrap_or(at).max(view.spoken);
        if let PeerMessage::Leader(FromLeader::Ping { echo, .. }) = message
            && let Some(answered) = view.evidence.echoed(*echo)
        {
            view.proven = answered.max(view.proven);
        }
        if let Some(asked) = view.evidence.received(message, at) {
            if let PeerMessage::Learner(FromLearner::Pong { .. }) = message {
                view.proven = asked.max(view.proven);
            }
            let confirmed = self.confirmed.entry(view.peer).or_default();
            *confirmed = asked.max(*confirmed);
        }
        view.note(message);
        if let PeerMessage::Learner(FromLearner::AckEpoch { fresh: true, current, last, .. }) =
            message
        {
            let (peer, history_status) =
                (view.peer, view.history_status.unwrap_or(HistoryStatus::Lost));
            if let Some(before) = before {
                let past = Past { history_status, epoch: *current, before };
                self.promises.pasts.insert(peer, past);
            }
            let held = self.disk_model.issued();
            let own = (held.state.current_epoch, held.path.end());
            if history_status == HistoryStatus::Complete && (*current, *last) > own {
                self.promises.better.get_or_insert((peer, *current, *last));
            }
        }
    }
}

impl Zab {
    /// The voters of the last established epoch, as in this server's durable state file. A server
    /// that is none of them has acknowledged nothing in that epoch.
    pub(super) fn voters_before(&self, id: ServerId) -> Voters {
        let state = &self.servers[&id].disk_model.durable().state;
        let itself = |voter: &ServerId| if *voter == THIS_SERVER { id } else { *voter };
        if state.voters.is_empty() {
            return self.voters.clone();
        }
        self.voters.listed(state.voters.iter().map(itself))
    }

    /// The server is about to handle this event of one of its links.
    pub(super) fn received(&mut self, id: ServerId, link: LinkId, event: &PeerEvent, at: Instant) {
        let sent_at = self.takes_off(id, link, event);
        let promises =
            matches!(event, PeerEvent::Message(PeerMessage::Learner(FromLearner::AckEpoch { .. })));
        let promiser =
            self.peer_of(id, link).filter(|peer| promises && self.servers.contains_key(peer));
        let before = promiser.map(|peer| self.voters_before(peer));
        // The leader need not have the history of a server without weight.
        let cannot_lead = promiser.is_some_and(|peer| !self.voters_of(id).may_lead(peer));
        let server = self.server(id);
        match event {
            PeerEvent::Up { peer, .. } => {
                server.links.insert(link, Link::new(*peer, at));
            }
            PeerEvent::Down | PeerEvent::Unreachable { .. } => {
                server.links.remove(&link);
            }
            PeerEvent::Version(_) => {
                if let Some(link) = server.links.get_mut(&link) {
                    link.older = true;
                }
            }
            PeerEvent::Drained => {}
            PeerEvent::Message(message) => {
                server.cause = Some(link);
                let better = server.promises.better;
                server.message(link, message, (at, sent_at), before);
                if cannot_lead {
                    server.promises.better = better;
                }
                self.note_agreement(id, at);
            }
        }
    }

    /// The send time of the message that is about to be handled, if its sender still has the link.
    fn takes_off(&mut self, id: ServerId, link: LinkId, event: &PeerEvent) -> Option<Instant> {
        let PeerEvent::Message(message) = event else {
            return None;
        };
        let peer = self.peer_of(id, link)?;
        let underway = &mut self.server(peer).links.get_mut(&link)?.underway;
        let kind = MessageKind::of(message);
        while let Some((sent, at)) = underway.pop_front() {
            if sent == kind {
                return Some(at);
            }
        }
        None
    }

    /// Checks the commands of a step to its links, in order.
    pub(super) fn on_sent(
        &mut self,
        checks: &mut Checks,
        by: ServerId,
        commands: &[PeerCommand],
        at: Instant,
    ) -> Verdict {
        for command in commands {
            let (link, message) = match command {
                PeerCommand::Send(link, message) => (link, message),
                PeerCommand::Close(link, _) => {
                    self.server(by).links.remove(link);
                    continue;
                }
                PeerCommand::Dial(_) | PeerCommand::DialMaster(_) => continue,
            };
            if !self.servers[&by].acts_as_leader() {
                self.feeds(checks, by, message)?;
            } else if let PeerMessage::Leader(FromLeader::LeaderInfo { epoch, .. }) = message {
                // A leader that turns a learner away names the epoch that it knows, and proposes
                // none (seed 0x5e5889f90014 at 5e5889f).
                let closes = |other: &PeerCommand| matches!(other, PeerCommand::Close(closed, _) if closed == link);
                if !commands.iter().any(closes) {
                    self.proposes_epoch(by, *epoch);
                }
            } else if let PeerMessage::Leader(FromLeader::NewLeader { epoch, .. }) = message {
                self.has_promises(checks, by, *epoch, at)?;
            } else if let PeerMessage::Leader(FromLeader::UpToDate { .. }) = message {
                self.establishes(checks, by, at)?;
            }
            self.is_confirmed(checks, by, *link, message, at)?;
            let to = self.servers[&by].links.get(link);
            let sending = Sending { by, link: *link, to, message };
            self.is_true(checks, &sending)?;
            self.is_for_observers(checks, &sending)?;
            let epoch = to.and_then(|link| link.epoch);
            if let Some(view) = self.server(by).links.get_mut(link) {
                view.sent.add(message);
                view.underway.push_back((MessageKind::of(message), at));
            }
            if let (PeerMessage::Learner(FromLearner::AckEpoch { fresh: true, .. }), Some(epoch)) =
                (message, epoch)
            {
                let first = self.server(by).promised.insert(epoch);
                checks.check(Id::Z14, first, || {
                    vec![format!("server {by} promises epoch {epoch} as new, and did so before")]
                })?;
            }
        }
        self.has_changed(by);
        Ok(())
    }

    /// ZAB-15, L8: after each step, a follower that has acknowledged NEWLEADER has acknowledged all
    /// that its disk has confirmed. A server whose disk was found damaged is exempt until it has a
    /// history again; an observer acknowledges no proposal.
    pub(super) fn has_acknowledged_all(&self, checks: &mut Checks, id: ServerId) -> Verdict {
        let Some(server) = self.servers.get(&id).filter(|server| !server.halted) else {
            return Ok(());
        };
        if server.disk_model.durable().state.damaged {
            return Ok(());
        }
        let end = server.disk_model.kept().end();
        let Some(votes) = self.acknowledges(id) else {
            return Ok(());
        };
        for (link, view) in server.entered() {
            let Sent { acknowledged, .. } = view.sent;
            let right = if votes { acknowledged >= end } else { acknowledged == Zxid::ZERO };
            checks.check(Id::L8, right, || {
                let peer = view.peer;
                vec![format!(
                    "server {id} has acknowledged up to {acknowledged} to server {peer} on {link}, \
                     and its log is durable \
                     up to {end}"
                )]
            })?;
        }
        Ok(())
    }

    /// L8: a follower that begins to serve has forwarded every client sync that waits to its
    /// leader, no later than in that step.
    pub(super) fn asks_anew(&self, checks: &mut Checks, id: ServerId, syncs: usize) -> Verdict {
        for (link, view) in self.servers.get(&id).into_iter().flat_map(Server::entered) {
            let (peer, asked) = (view.peer, view.sent.syncs);
            checks.check(Id::L8, asked >= syncs, || {
                vec![format!(
                    "server {id} follows server {peer} on {link}, {syncs} syncs of its clients \
                     wait, and it has asked for \
                     {asked}"
                )]
            })?;
        }
        Ok(())
    }

    /// A prospective leader begins to collect promises for this epoch.
    fn proposes_epoch(&mut self, id: ServerId, epoch: Epoch) {
        if self.servers[&id].promises.epoch != epoch {
            let own = Some(self.past(id));
            self.server(id).promises = Promises { epoch, own, ..Promises::default() };
        }
    }

    /// Z1, Z27: before a leader sends NEWLEADER, enough voters have promised it the epoch, and none
    /// of those with a complete history has a better one.
    fn has_promises(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        epoch: Epoch,
        at: Instant,
    ) -> Verdict {
        let begun = self.epochs.of(epoch).and_then(|view| view.begun.as_ref());
        if begun.is_none_or(|begun| begun.leader != id) {
            self.begins(checks, id, epoch, at)?;
        }
        if self.epochs.of(epoch).is_some_and(|view| view.decided) {
            return Ok(());
        }
        let server = &self.servers[&id];
        let mut pasts = server.promises.pasts.clone();
        if server.disk_model.durable().state.accepted_epoch == epoch {
            pasts.insert(id, server.promises.own.clone().unwrap_or_else(|| self.past(id)));
        }
        let nothing = server.disk_model.issued().path.end() == Zxid::ZERO;
        let voters = self.voters_of(id);
        let may_decide = match self.is_configured(id) {
            false => voters.may_decide(&pasts, nothing),
            true => voters.may_decide_by_log(&pasts, nothing),
        };
        // One of two voters begins alone only if it was a voter of the last established epoch, as
        // the other one was, and has all that it has acknowledged.
        let knows_all = |past: &Past| {
            past.history_status == HistoryStatus::Complete && past.before == self.voters
        };
        let alone = self.goes_alone(id) && pasts.get(&id).is_some_and(knows_all);
        checks.check(Id::Z1, may_decide || alone, || {
            vec![format!(
                "server {id} leads epoch {epoch}; promised by {pasts:?}, its own disk says: {}",
                kept(&server.disk_model.durable().state)
            )]
        })?;
        let better = server.promises.better;
        checks.check(Id::Z27, better.is_none(), || {
            let end = server.disk_model.issued().path.end();
            let (peer, current, last) = better.expect("there is one");
            vec![format!(
                "server {id} begins epoch {epoch} with a history that ends at {end}; server \
                 {peer}, which has promised it \
                 the epoch, has one of epoch {current} that ends at {last}"
            )]
        })?;
        self.epochs.of_mut(epoch).decided = true;
        Ok(())
    }

    /// What a server knows of earlier epochs, by its disk.
    fn past(&self, id: ServerId) -> Past {
        let epoch = self.servers[&id].disk_model.durable().state.current_epoch;
        Past { history_status: self.worth(id), epoch, before: self.voters_before(id) }
    }

    /// The history status of a server, by its disk.
    fn worth(&self, id: ServerId) -> HistoryStatus {
        let held = self.servers[&id].disk_model.durable();
        match (held.state.damaged, held.state.current_epoch.0 > 0) {
            (true, _) => HistoryStatus::Lost,
            (false, true) => HistoryStatus::Complete,
            (false, false) => HistoryStatus::Uninitialized,
        }
    }

    /// Z1, Z13: a server that does not lead feeds observers in an epoch that is established, while
    /// it serves, and what it calls committed is committed.
    fn feeds(&self, checks: &mut Checks, by: ServerId, message: &PeerMessage) -> Verdict {
        let server = &self.servers[&by];
        let PeerMessage::Leader(message) = message else { return Ok(()) };
        if let FromLeader::LeaderInfo { epoch, .. } | FromLeader::NewLeader { epoch, .. } = message
        {
            let view = self.epochs.of(*epoch);
            let established = view.is_some_and(|view| view.established.is_some());
            let serves = server.serves && server.follows.is_some();
            checks.check(Id::Z1, established && serves, || {
                vec![format!("server {by} says {message}, and serves no such epoch")]
            })?;
        } else if let FromLeader::UpToDate { committed } = message {
            let end = self.committed.end();
            checks.check(Id::Z13, *committed <= end, || {
                vec![format!("server {by} says {message}, and only {end} is committed")]
            })?;
        }
        Ok(())
    }

    /// Z14, Z17: what a message vouches for is durable at its sender.
    fn is_true(&self, checks: &mut Checks, sending: &Sending<'_>) -> Verdict {
        let server = &self.servers[&sending.by];
        let (held, issued) = (server.disk_model.durable(), server.disk_model.issued());
        let (accepted, current) = (held.state.accepted_epoch, held.state.current_epoch);
        let kept = server.disk_model.kept();
        let end = kept.end();
        let epoch = sending.to.and_then(|link| link.epoch);
        let evidence = || {
            vec![
                sending.to_string(),
                format!("durable there: log up to {end}, {}", text::kept(&held.state)),
            ]
        };
        let without = |what: String| {
            move || {
                let mut lines = evidence();
                lines.push(format!("that needs {what}"));
                lines
            }
        };
        if let PeerMessage::Learner(FromLearner::FollowerInfo { history, .. }) = sending.message {
            self.has_this_history_status(checks, sending.by, history.history_status, &evidence)?;
        } else if let PeerMessage::Learner(FromLearner::AckEpoch { current: named, last, .. }) =
            sending.message
        {
            let promise =
                format!("the promise of epoch {}", text::maybe(epoch.map(|epoch| epoch.0)));
            let promised = epoch.is_some_and(|epoch| accepted >= epoch);
            checks.check(Id::Z17, promised, without(promise))?;
            checks.check(Id::Z14, epoch.is_some_and(|epoch| accepted <= epoch), evidence)?;
            // A leader's snapshot that was only partly sent may lie on the disk, ahead of the
            // server's log.
            let is_end = *last == issued.path.end() && *last <= kept.end();
            let history = format!("a history of epoch {} that ends at {last}", named.0);
            checks.check(Id::Z17, *named == current && is_end, without(history))?;
        } else if let PeerMessage::Learner(FromLearner::AckNewLeader { epoch: named }) =
            sending.message
        {
            let both = format!("promise and history of epoch {}", named.0);
            checks.check(Id::Z17, accepted >= *named && current >= *named, without(both))?;
            checks.check(Id::Z14, issued.state.accepted_epoch <= *named, evidence)?;
            self.has_initial(checks, sending.by, *named, kept, "acknowledges")?;
        } else if let PeerMessage::Learner(FromLearner::Ack { zxid }) = sending.message {
            let log = format!("the log up to {zxid}");
            checks.check(Id::Z17, kept.at_or_before(*zxid) >= *zxid, without(log))?;
            let bound = epoch.is_none_or(|epoch| issued.state.accepted_epoch <= epoch);
            checks.check(Id::Z14, bound, evidence)?;
        }
        Ok(())
    }

    /// Z13: a learner without a vote is sent only what a leader has committed; one of the last
    /// release, which has no observers, all that a follower is (seed 0x6140ab82d71a of the swarm at
    /// 9404290, where a byzantine peer pretends to be one).
    fn is_for_observers(&self, checks: &mut Checks, sending: &Sending<'_>) -> Verdict {
        let (
            PeerMessage::Leader(FromLeader::Proposal(entry) | FromLeader::Inform(entry)),
            Some(to),
        ) = (sending.message, sending.to)
        else {
            return Ok(());
        };
        let votes = self.voters_of(sending.by).contains(to.peer);
        if votes || to.older || self.is_changing(sending.by) {
            return Ok(());
        }
        let end = self.committed.end();
        checks.check(Id::Z13, entry.zxid <= end, || {
            vec![sending.to_string(), format!("it has no vote, and only {end} is committed")]
        })
    }

    fn has_this_history_status(
        &self,
        checks: &mut Checks,
        id: ServerId,
        history_status: HistoryStatus,
        evidence: &impl Fn() -> Vec<String>,
    ) -> Verdict {
        let is_true =
            history_status != HistoryStatus::Complete || self.worth(id) == HistoryStatus::Complete;
        checks.check(Id::Z16, is_true, evidence)
    }

    /// Checks the notifications of a step, in order.
    pub(super) fn votes(
        &mut self,
        (checks, hand_overs): (&mut Checks, &HandOvers),
        by: ServerId,
        notifications: &[(ServerId, Notification)],
    ) -> Verdict {
        for (to, notification) in notifications {
            let Notification {
                server_state,
                vote,
                history: HistoryInfo { history_status, .. },
                ..
            } = *notification;
            let server = &self.servers[&by];
            let (held, settled) = (server.disk_model.durable(), server.disk_model.is_settled());
            let zxid = server.disk_model.issued().path.end();
            let own = Vote { epoch: held.state.current_epoch, zxid, candidate: by };
            let durable = server.disk_model.kept().end();
            let evidence = || {
                let writing = if settled { "" } else { ", more under way" };
                vec![
                    format!("server {by} tells server {to}: {notification}"),
                    format!("durable there: log up to {durable}, {}{writing}", kept(&held.state)),
                ]
            };
            self.has_this_history_status(checks, by, history_status, &evidence)?;
            // An observer offers no history, and may adopt any vote.
            let voters = self.voters_of(by);
            let votes = voters.contains(by);
            let none = Vote { epoch: Epoch(0), zxid: Zxid::ZERO, candidate: by };
            if vote.candidate == by {
                let offered = if votes { vote == own && own.zxid <= durable } else { vote == none };
                let is_true = history_status != HistoryStatus::Complete || offered;
                checks.check(Id::Z16, server_state != ServerState::Looking || is_true, evidence)?;
                self.server(by).stood.insert((vote.epoch, vote.zxid));
                continue;
            }
            if server_state != ServerState::Looking {
                continue;
            }
            let rank = |vote: Vote| (vote.epoch, vote.zxid, vote.candidate);
            let better = rank(vote) > rank(own) || !voters.may_lead(by);
            // A server that stands with a history is a voter by its own configuration, which others
            // need not have logged (RECONF-10).
            let foreign = !voters.contains(vote.candidate) && vote.zxid > Zxid::ZERO;
            let eligible = voters.may_lead(vote.candidate) || foreign;
            checks.check(Id::Z16, eligible, evidence)?;
            checks.check(Id::Z16, history_status != HistoryStatus::Complete || better, || {
                let mut lines = evidence();
                lines.push(format!("a vote for itself would be better: {own}"));
                lines
            })?;
            let stood = self.servers.get(&vote.candidate).map(|server| &server.stood);
            let known = stood.is_some_and(|stood| stood.contains(&(vote.epoch, vote.zxid)))
                || hand_overs.has_named(vote);
            checks.check(Id::Z16, known, || {
                vec![
                    format!("server {by} tells server {to}: {notification}"),
                    format!("server {} has stood for election with {stood:?}", vote.candidate),
                ]
            })?;
        }
        Ok(())
    }
}
