//! Applies committed transactions to the state (Java `DataTree.processTxn`).
//!
//! Owns which changes a transaction makes, and which watches it fires. `apply` is deterministic and
//! executes what the leader has decided: a transaction that does not fit the state is an error,
//! which halts the server. Must not know roles, nor the client of a transaction.

use std::sync::Arc;

use super::{Replica, Unapplied};
use crate::error::Inapplicable;
use crate::ids::{ConnId, ServerId, Zxid};
use crate::membership::EnsembleConfig;
use crate::status::Halted;
use crate::tree::{self, CONFIG_NODE, NewNode};
use crate::txn::{Origin, Txn, TxnOp};
use crate::wire::{Acl, EventType, Stat};

/// A transaction that was just applied.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) txn: Txn,
    pub(crate) effects: Effects,
}

/// The effects of applying a transaction.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The stats of the nodes created and changed, in order.
    pub(crate) stats: Vec<Stat>,
    /// The watch events to send, in order.
    pub(crate) fired: Vec<Fired>,
    /// Ephemeral nodes deleted because their session has ended.
    pub(crate) ephemerals_deleted: usize,
    /// Units of work spent; see [`Outbox`](crate::Outbox).
    pub(crate) units: u64,
}

/// A watch event and the connections that receive it.
#[derive(Debug)]
pub(crate) struct Fired {
    pub(crate) event: EventType,
    pub(crate) path: String,
    /// Ascending, without duplicates.
    pub(crate) conns: Vec<ConnId>,
    /// The ACL of the node: only clients that may read the node receive the event (WATCH-17).
    pub(crate) acl: Arc<[Acl]>,
}

/// Units of work for copying data.
fn kib(data: Option<&[u8]>) -> u64 {
    data.map_or(0, |data| data.len() as u64 >> 10)
}

impl Replica {
    /// The zxid of the next transaction to apply, and its origin if it was logged since this
    /// process started.
    pub(crate) fn next_unapplied(&self) -> Option<(Zxid, Option<Origin>)> {
        match self.unapplied.front()? {
            Unapplied::Decided(txn) => Some((txn.zxid, txn.origin)),
            Unapplied::Recovered(entry) => Some((entry.zxid, None)),
        }
    }

    /// Applies the next committed transaction, if there is one.
    ///
    /// # Errors
    /// A transaction that does not fit the state. The state is unusable afterwards.
    pub(crate) fn apply_next(&mut self) -> Result<Option<Applied>, Halted> {
        self.check_watermarks();
        if self.log.applied() == self.log.committed() {
            return Ok(None);
        }
        let txn = match self.unapplied.pop_front().expect("what is committed was logged") {
            Unapplied::Decided(txn) => txn,
            Unapplied::Recovered(entry) => Txn::decode(&entry).expect("checked at recovery"),
        };
        let mut effects = Effects::default();
        if let Err(error) = self.apply_op(&txn, &txn.op, &mut effects) {
            let (zxid, record) = (txn.zxid, txn.op.to_string());
            return Err(Halted::Inapplicable {
                zxid,
                session: txn.session,
                record,
                what: error.what,
            });
        }
        self.log.apply(txn.zxid);
        self.tree.settle_digest();
        self.snapshots.txns = self.snapshots.txns.saturating_add(1);
        Ok(Some(Applied { txn, effects }))
    }

    fn apply_op(
        &mut self,
        txn: &Txn,
        op: &TxnOp,
        effects: &mut Effects,
    ) -> Result<(), Inapplicable> {
        effects.units += 1;
        match op {
            TxnOp::Create { path, data, acl, lifetime, parent_creates } => {
                effects.units += kib(data.as_deref());
                if !lifetime.is_possible() {
                    return Err(Inapplicable::new(format!(
                        "{lifetime:?} of {path} is out of range"
                    )));
                }
                let owner = lifetime.owner(txn.session);
                let data = data.as_deref();
                let new = NewNode { path, data, acl, owner, parent_creates: *parent_creates };
                effects.stats.push(self.tree.create(new, txn.zxid, txn.time)?);
                self.fire(EventType::NodeCreated, path, effects);
                self.fire_on_parent(path, effects);
            }
            TxnOp::Delete { path } => self.delete(path, txn.zxid, effects)?,
            TxnOp::SetData { path, data, version } => {
                let data = data.as_deref();
                effects.units += kib(data);
                let stat = self.tree.set_data(path, data, *version, txn.zxid, txn.time)?;
                effects.stats.push(stat);
                self.fire(EventType::NodeDataChanged, path, effects);
            }
            TxnOp::SetAcl { path, acl, version } => {
                effects.stats.push(self.tree.set_acl(path, acl, *version)?);
            }
            TxnOp::Multi(ops) => {
                for op in ops {
                    self.apply_op(txn, op, effects)?;
                }
            }
            TxnOp::CreateSession { timeout_ms } => {
                let owner = txn.origin.map(|origin| origin.server);
                self.create_session(txn, *timeout_ms, owner)?;
            }
            TxnOp::UpgradeSession { timeout_ms, server } => {
                self.create_session(txn, *timeout_ms, Some(*server))?;
            }
            TxnOp::MoveSession { server } => self.sessions.move_to(txn.session, *server)?,
            TxnOp::CloseSession => {
                let ephemerals = self.tree.ephemerals(txn.session, "").map(str::to_owned);
                for path in Vec::from_iter(ephemerals) {
                    self.delete(&path, txn.zxid, effects)?;
                    effects.ephemerals_deleted += 1;
                }
                self.sessions.close(txn.session)?;
            }
            TxnOp::Reconfig { config } => self.reconfigure(config, txn, effects)?,
            TxnOp::Check { .. } | TxnOp::Error { .. } | TxnOp::MultiRefused { .. } => {}
        }
        Ok(())
    }

    /// The node of the configuration keeps the version -1 (RECONF-17).
    fn reconfigure(
        &mut self,
        config: &str,
        txn: &Txn,
        effects: &mut Effects,
    ) -> Result<(), Inapplicable> {
        let active = EnsembleConfig::parse(config).map_err(Inapplicable::new)?;
        let (data, time) = (Some(config.as_bytes()), txn.time);
        effects.stats.push(self.tree.set_data(CONFIG_NODE, data, -1, txn.zxid, time)?);
        self.membership.iter_mut().for_each(|membership| membership.activate(&active));
        self.fire(EventType::NodeDataChanged, CONFIG_NODE, effects);
        Ok(())
    }

    fn create_session(
        &mut self,
        txn: &Txn,
        timeout_ms: u32,
        owner: Option<ServerId>,
    ) -> Result<(), Inapplicable> {
        let identity = self.state.identity;
        let keyed = identity.is_some_and(|identity| identity.covers(txn.zxid.epoch()));
        self.sessions.create(txn.session, timeout_ms, owner, keyed)
    }

    /// WATCH-10: each connection that watches the node's data or children gets one deletion event.
    fn delete(
        &mut self,
        path: &str,
        zxid: Zxid,
        effects: &mut Effects,
    ) -> Result<(), Inapplicable> {
        let acl = self.tree.delete(path, zxid)?;
        let event = EventType::NodeDeleted;
        let conns = self.watches.fire(event, path);
        effects.units += 1 + conns.len() as u64;
        if !conns.is_empty() {
            effects.fired.push(Fired { event, path: path.into(), conns, acl });
        }
        self.fire_on_parent(path, effects);
        Ok(())
    }

    fn fire_on_parent(&mut self, path: &str, effects: &mut Effects) {
        let (parent, _) = tree::split(path).expect("a node but the root has a parent");
        self.fire(EventType::NodeChildrenChanged, parent, effects);
    }

    /// A watch is removed even if its client may not read the node (WATCH-17, edge 123).
    fn fire(&mut self, event: EventType, path: &str, effects: &mut Effects) {
        let conns = self.watches.fire(event, path);
        if conns.is_empty() {
            return;
        }
        effects.units += conns.len() as u64;
        let id = self.tree.find(path).expect("an event is about a node that is there");
        let acl = self.tree.share_acl(id);
        effects.fired.push(Fired { event, path: path.into(), conns, acl });
    }
}
