//! A server loses its disk, or the disk's contents are damaged, and the server returns with an
//! empty disk.
//!
//! Owns the condition under which the ensemble must survive that. Otherwise it need not: the server
//! has forgotten the transactions that it acknowledged and the epochs that it accepted.

use std::collections::BTreeSet;

use zabkeeper_core::{ServerId, Status, Zxid};

use super::{World, split};
use crate::faults::catalog::Fault;
use crate::machine::fs::Crash;
use crate::machine::node::Node;

impl World {
    /// Wipes the disk of a server, if the others can spare it.
    pub(super) fn wipe_disk(&mut self, server: ServerId) -> bool {
        let ends = self.end_if_spared(server, Some(Crash::Kill));
        if ends {
            let (node, shared) = self.node(server);
            node.wipe(shared);
            self.wiped = Some(server);
        }
        ends
    }

    /// Damages durable data of a server while it is down, if the others can spare all of it. The
    /// server then either recovers everything, or refuses to start and gets an empty disk.
    /// Beforehand it is killed, loses power, or stops gracefully. Where clients reconfigure it
    /// loses no power: a leader that does not notice that the server is gone may propose a
    /// configuration that cannot do without it (seed 0xa4ac41775797 of the swarm at 2d62e42).
    pub(super) fn damage_disk(&mut self, server: ServerId) -> bool {
        if !self.can_spare(server) {
            return false;
        }
        let power = self.nodes[&server].power(&self.shared);
        // Any other value is a kill, since a schedule without this choice yields 0.
        let how = match self.fault_rng[Fault::DiskBitRot as usize].below(4) {
            2 if self.shared.options.reconfigured().is_none() => Some(power),
            3 => None,
            _ => Some(Crash::Kill),
        };
        self.end_if_spared(server, how);
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let damaged = node.damage(&mut self.fault_rng[Fault::DiskBitRot as usize], shared);
        if damaged {
            self.wiped = Some(server);
        }
        damaged
    }

    /// Ends the process if the others can spare all its data; `how` of `None` stops it gracefully.
    fn end_if_spared(&mut self, server: ServerId, how: Option<Crash>) -> bool {
        let spared = self.can_spare(server);
        if spared {
            let incarnation = self.nodes[&server].incarnation();
            self.let_end(server, incarnation, how);
        }
        spared
    }

    /// May this server's disk be erased?
    ///
    /// It may if the others can proceed as if this server had never existed. All servers must be
    /// up, so that no disk of a stopped server hides newer data. A quorum of all voters, without
    /// this server, must serve in the newest epoch that any server has accepted, and hold durably
    /// every transaction that any server knows to be committed. Then no leader of an older epoch
    /// can still find a quorum, even with this server, and every later quorum of servers with a
    /// history contains one that has everything. A server whose disk was erased before must be in
    /// that quorum: at most one server at a time lacks anything.
    fn can_spare(&self, server: ServerId) -> bool {
        let running = self.nodes.get(&server).is_some_and(Node::is_running);
        let all: Vec<Status> = self.nodes.values().filter_map(Node::status).collect();
        let voters: Vec<ServerId> = self.shared.options.voters().collect();
        let newest = all.iter().map(|status| status.accepted_epoch).max().unwrap_or_default();
        let committed = all.iter().map(|status| status.committed).max().unwrap_or(Zxid::ZERO);
        let whole = |status: &&Status| {
            let settled = status.current_epoch == newest && status.accepted_epoch == newest;
            voters.contains(&status.id)
                && status.id != server
                && status.serving
                && settled
                && status.durable >= committed
        };
        let holders: BTreeSet<ServerId> =
            all.iter().filter(whole).map(|status| status.id).collect();
        let healed =
            self.wiped.is_none_or(|wiped| holders.contains(&wiped) || !voters.contains(&wiped));
        running && healed && self.nodes.len() == all.len() && self.is_quorum(&holders)
    }
}
