//! How many notifications a server sends in one round of an election (L14): its vote when it
//! changes, its vote again after pauses that double, and an answer to each sender that is behind.
//! No fault makes it repeat a notification for ever.
//!
//! Owns how many notifications each server has sent to each other one in its round. Must not know
//! the outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::peer::{Notification, ServerState, Vote};
use zabkeeper_core::{Input, Instant, ServerId};

use super::catalog::{Checks, Id, Verdict};
use super::zab::Zab;

/// How often a server repeats an unchanged vote before its pauses have reached their maximum.
const DOUBLINGS: u32 = 9;
/// The least pause between later repetitions: the shortest random one, by a fast clock.
const PAUSE: Duration = Duration::from_millis(90);
/// A vote only rises: each voter may be its candidate once, and again with more that it has logged.
const VOTES_PER_VOTER: u32 = 2;

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Notifications(BTreeMap<ServerId, Round>);

/// What a looking server has sent and received in its round.
#[derive(Clone, Debug)]
struct Round {
    number: u64,
    since: Instant,
    vote: Vote,
    /// How many notifications each other server was sent.
    sent: BTreeMap<ServerId, u32>,
    /// How many notifications of each other server were behind or not LOOKING, so that each may
    /// have got an answer.
    asked: BTreeMap<ServerId, u32>,
}

impl Notifications {
    /// The server's process starts or ends.
    pub(super) fn restarted(&mut self, id: ServerId) {
        self.0.remove(&id);
    }

    /// The server is about to handle this input.
    pub(super) fn entered(&mut self, id: ServerId, input: &Input) {
        let Input::Election(from, notification) = input else {
            return;
        };
        if let Some(round) = self.0.get_mut(&id) {
            let older = notification.round < round.number;
            let less = notification.round == round.number && notification.vote < round.vote;
            if older || less || notification.server_state != ServerState::Looking {
                *round.asked.entry(*from).or_default() += 1;
            }
        }
    }

    /// Checks the notifications that a step sends.
    pub(super) fn acted(
        &mut self,
        (checks, zab): (&mut Checks, &Zab),
        id: ServerId,
        election: &[(ServerId, Notification)],
        now: Instant,
    ) -> Verdict {
        let votes =
            VOTES_PER_VOTER * u32::try_from(zab.voters_of(id).all().count()).unwrap_or(u32::MAX);
        for (to, notification) in election {
            if notification.server_state != ServerState::Looking {
                self.0.remove(&id);
                continue;
            }
            let anew = || Round {
                number: notification.round,
                since: now,
                vote: notification.vote,
                sent: BTreeMap::new(),
                asked: BTreeMap::new(),
            };
            let round = self.0.entry(id).or_insert_with(anew);
            if round.number != notification.round {
                *round = anew();
            }
            round.vote = notification.vote;
            let sent = round.sent.entry(*to).or_default();
            *sent += 1;
            let (sent, asked) = (*sent, round.asked.get(to).copied().unwrap_or_default());
            let since = round.since;
            let pauses = u32::try_from(now.since(since).as_nanos() / PAUSE.as_nanos());
            let most = (votes + 1) * (DOUBLINGS + 2) + pauses.unwrap_or(u32::MAX) + asked;
            checks.check(Id::L14, sent <= most, || {
                vec![format!(
                    "server {id} has sent server {to} its vote of round {} {sent} times since \
                     {since}, and received {asked} older or lower votes of it; the last one \
                     sent: {notification}",
                    notification.round
                )]
            })?;
        }
        Ok(())
    }
}
