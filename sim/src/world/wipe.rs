//! A server's disk is lost, or what is on it is damaged, and it comes back with an empty one.
//!
//! Owns the condition under which the ensemble must survive that. Outside of it nothing is promised: whoever comes back
//! has forgotten what it acknowledged and whom it promised not to follow.

use zabkeeper_core::{ServerId, Status, Zxid};

use super::{World, split};
use crate::faults::Fault;
use crate::fs::Crash;
use crate::node::Node;

impl World {
    /// The disk of a server is lost, if the others can spare it.
    pub(super) fn wipe_disk(&mut self, server: ServerId) -> bool {
        let ends = self.end_if_spared(server, Some(Crash::Kill));
        if ends {
            let (node, shared) = self.node(server);
            node.wipe(shared);
            self.wiped = Some(server);
        }
        ends
    }

    /// What is durable on a server's disk is damaged while it is down, if the others can spare all of it. It either knows
    /// everything again, or refuses to start, and gets an empty disk. Before, it is killed, loses power, or is told to stop.
    pub(super) fn damage_disk(&mut self, server: ServerId) -> bool {
        if !self.can_spare(server) {
            return false;
        }
        let power = self.nodes[&server].power(&self.shared);
        // A schedule that says nothing of it means a kill.
        let how = match self.fault_dice[Fault::DiskRot as usize].below(4) {
            2 => Some(power),
            3 => None,
            _ => Some(Crash::Kill),
        };
        self.end_if_spared(server, how);
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let damaged = node.damage(&mut self.fault_dice[Fault::DiskRot as usize], shared);
        if damaged {
            self.wiped = Some(server);
        }
        damaged
    }

    /// Its process ends, if the others can spare all that it knows; without a way given, it stops as it is told to.
    fn end_if_spared(&mut self, server: ServerId, how: Option<Crash>) -> bool {
        let spared = self.can_spare(server);
        if spared {
            let life = self.nodes[&server].life();
            self.let_end(server, life, how);
        }
        spared
    }

    /// May this server forget everything?
    ///
    /// It may if the others could go on as if it had never been: all servers are up, so that nothing is hidden on the
    /// disk of one that is not; and a majority of all voters, without it, serves in the newest epoch that any server
    /// has promised, and holds durably every transaction that any server knows to be committed. Then nobody who leads an older epoch can still find a majority, the forgetful server included, and
    /// every later majority of servers with a history contains one that has it all. A server that was wiped before
    /// must itself be among those: there is at most one at a time that lacks anything.
    fn can_spare(&self, server: ServerId) -> bool {
        let running = self.nodes.get(&server).is_some_and(Node::is_running);
        let all: Vec<Status> = self.nodes.values().filter_map(Node::status).collect();
        let newest = all.iter().map(|status| status.accepted_epoch).max().unwrap_or_default();
        let committed = all.iter().map(|status| status.committed).max().unwrap_or(Zxid::ZERO);
        let whole = |status: &&Status| {
            let settled = status.current_epoch == newest && status.accepted_epoch == newest;
            status.id != server && status.serving && settled && status.durable >= committed
        };
        let holders: Vec<ServerId> = all.iter().filter(whole).map(|status| status.id).collect();
        let healed = self.wiped.is_none_or(|wiped| holders.contains(&wiped));
        running && healed && self.nodes.len() == all.len() && holders.len() > self.nodes.len() / 2
    }
}
