//! The context of a step: the clock values, the configuration, the members, randomness and the
//! outbox.
//!
//! Owns the access to all of these. A function without a `Cx` parameter cannot emit commands.

use crate::auth::Schemes;
use crate::config::Config;
use crate::ids::{ConnId, LinkId};
use crate::io::{ClientCommand, Mark, Now, Outbox, PeerCommand};
use crate::membership::{Members, Voters};
use crate::peer::PeerMessage;
use crate::rng::Rng;

/// What a function needs to act: the time, the settings, randomness and the outbox.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    /// The members of the ensemble, as this server knows them.
    pub(crate) members: &'a Members,
    /// Those of them that vote.
    pub(crate) voters: &'a Voters,
    /// Does the oracle permit this server to go on without the other voter?
    pub(crate) oracle: bool,
    pub(crate) schemes: &'a Schemes,
    pub(crate) rng: &'a mut Rng,
    pub(crate) out: &'a mut Outbox,
    /// The cost at which the step stops.
    pub(crate) stop_at: u64,
}

impl Cx<'_> {
    /// The same context for a part of the step.
    pub(crate) fn reborrow(&mut self) -> Cx<'_> {
        Cx { rng: &mut *self.rng, out: &mut *self.out, ..*self }
    }

    pub(crate) fn mark(&mut self, mark: Mark) {
        self.out.marks.hit(mark);
    }

    /// So much work has been done.
    pub(crate) fn spend(&mut self, units: u64) {
        self.out.cost += units;
    }

    /// Has the step done its share?
    pub(crate) fn is_spent(&self) -> bool {
        self.out.cost >= self.stop_at
    }

    /// From now on it may do its share.
    pub(crate) fn renew(&mut self) {
        self.stop_at = self.out.cost.saturating_add(self.config.limits.step_units.max(1));
    }

    /// From now on it does everything.
    pub(crate) fn spend_freely(&mut self) {
        self.stop_at = u64::MAX;
    }

    pub(crate) fn send(&mut self, conn: ConnId, command: ClientCommand) {
        self.out.clients.push((conn, command));
    }

    pub(crate) fn send_peer(&mut self, link: LinkId, message: impl Into<PeerMessage>) {
        self.out.peers.push(PeerCommand::Send(link, message.into()));
    }
}
