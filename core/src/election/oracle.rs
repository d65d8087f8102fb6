//! The oracle of two voters in an election (QV-03).
//!
//! Owns how long the other voter has to be silent before this one decides without it, and when an
//! election ends because a leader is there already. Must not choose a candidate.
//!
//! With the permission of the oracle, one of two voters decides alone after it has received nothing
//! from the other for twice `notify_max`. A server that looks sends its notification once in
//! `notify_max` at least, and one that leads answers each of them. Without the permission, the
//! server trusts the other one that says that it leads: that leader may have the permission, and so
//! have no follower that confirms its word.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::Election;
use crate::config::Limits;
use crate::ids::{Instant, ServerId};
use crate::membership::Voters;
use crate::peer::{Notification, ServerState};

/// What the oracle says to this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Oracle {
    /// There is none.
    #[default]
    Absent,
    /// This server may not lead without the other voter.
    Refuses,
    /// It may.
    Permits,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct AwaitOracle {
    says: Oracle,
    /// The time of this server's vote.
    since: Instant,
    /// When the last notification of each other server came.
    heard: BTreeMap<ServerId, Instant>,
    /// When the silence of the other voter is long enough; `None` if that would change nothing.
    until: Option<Instant>,
}

impl AwaitOracle {
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    pub(super) fn on_notification(&mut self, from: ServerId, now: Instant) {
        self.heard.insert(from, now);
    }

    /// The voters of which a quorum decides: this server alone, if the oracle permits it and the
    /// other voter is silent.
    pub(super) fn without_silent<'a>(
        &mut self,
        own: ServerId,
        voters: &'a Voters,
        limits: &Limits,
        now: Instant,
    ) -> Cow<'a, Voters> {
        self.until = None;
        if self.says != Oracle::Permits {
            return Cow::Borrowed(voters);
        }
        let wait = silence(limits);
        let until = |id: ServerId| self.heard.get(&id).unwrap_or(&self.since).after(wait);
        let present = voters.on_oracle(own, |id| until(id) > now);
        if let Cow::Borrowed(_) = present {
            let others = voters.ids().filter(|id| *id != own).map(until);
            self.until = others.filter(|until| *until > now).min();
        }
        present
    }

    /// When the silence of the other voter is long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Does the word of a leader suffice, without a quorum that follows it?
    pub(super) fn trusts(&self, voters: &Voters) -> bool {
        self.says == Oracle::Refuses && voters.has_two()
    }
}

fn silence(limits: &Limits) -> Duration {
    limits.notify_max * 2
}

impl Election {
    /// Sets what the oracle says.
    pub(crate) fn set_oracle(&mut self, says: Oracle) {
        self.oracle.says = says;
    }

    /// The leader that a quorum, itself included, names in its last notifications, and the leader's
    /// own notification, which states that it leads (FLE-07). These notifications need agree on
    /// nothing else: a leader that was restarted, and elected by the links of its followers, has
    /// another round and epoch than they have. The leader found is never this server: servers that
    /// still follow its earlier epoch will notice that it looks. Its followers may be heard before
    /// a configuration that makes it a candidate is (seed 0x112902001a8c of the swarm at 1dddf9d).
    ///
    /// While a reconfiguration is logged here, a quorum of the voters before it or after it
    /// suffices: the leader may not know it, and go on without this server (seed 0xf583b79745c9 of
    /// the swarm at f583b79).
    pub(super) fn established(&self, voters: &Voters) -> Option<(ServerId, Notification)> {
        let trusts = self.oracle.trusts(voters);
        self.out_of_election.iter().map(|(id, notification)| (*id, *notification)).find(
            |(leader, notification)| {
                let names = |id| {
                    let other = self.out_of_election.get(&id);
                    other.is_some_and(|other| other.vote.candidate == *leader)
                };
                notification.server_state == ServerState::Leading
                    && notification.vote.candidate == *leader
                    && self.may_stand(notification.vote, voters)
                    && (trusts || voters.is_quorum_of_either(names))
            },
        )
    }
}
