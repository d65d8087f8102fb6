//! Applies committed transactions, one at a time: checks each against the state and changes it.
//!
//! Owns every change of the model. A transaction is staged first, and a wrong one changes nothing.
//! Must not check why a transaction was proposed: `decide` and the oracles do.

use std::collections::BTreeSet;
use std::sync::Arc;

use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{SessionId, digest};

use super::stage::{Changes, Header, Move, Stage, demand, wrong};
use super::{Firing, Kind, Logged, Model, Node, Session, Wrong, path, session_share};

impl Model {
    /// Applies the next transaction and returns its firings, in the order of their events.
    ///
    /// # Errors
    /// The state does not allow the transaction; the model is unchanged.
    pub fn apply(&mut self, txn: Txn) -> Result<Vec<Firing>, Wrong> {
        if txn.zxid <= self.tip() {
            return Err(wrong(Kind::Order, format!("{} follows {}", txn.zxid, self.tip())));
        }
        match &txn.op {
            TxnOp::CreateSession { .. } | TxnOp::UpgradeSession { .. } => {
                let id = txn.session;
                let fresh = id != SessionId(0) && !self.sessions.contains_key(&id);
                demand(fresh, Kind::Session, || format!("{}: the id is not new", txn.op))?;
            }
            TxnOp::CloseSession | TxnOp::MoveSession { .. } => {
                let id = txn.session;
                let live = self.is_alive(id);
                demand(live, Kind::Session, || format!("{} {id}: it is not alive", txn.op))?;
            }
            TxnOp::Create { .. }
            | TxnOp::Delete { .. }
            | TxnOp::SetData { .. }
            | TxnOp::SetAcl { .. }
            | TxnOp::Check { .. }
            | TxnOp::Multi(_)
            | TxnOp::MultiRefused { .. }
            | TxnOp::Reconfig { .. }
            | TxnOp::Error { .. } => {}
        }
        let header = Header { zxid: txn.zxid, session: txn.session, time: txn.time };
        let mut stage = Stage::new(self, header);
        stage.run(&txn.op)?;
        let changes = stage.finish();
        Ok(self.commit(txn, changes))
    }

    fn commit(&mut self, txn: Txn, changes: Changes) -> Vec<Firing> {
        let zxid = txn.zxid;
        let Changes { nodes, moves, firings, stats } = changes;
        for (path, node) in nodes {
            self.put(&txn, path, node);
        }
        for Move { came, path, owner } in moves {
            let parent = path::parent(&path).expect("a node's path has a slash");
            let parent = self.paths.get_mut(parent).expect("a node has a parent");
            parent.moved(zxid, came, path::name(&path));
            if let Some(session) = self.sessions.get_mut(&owner) {
                session.moves.push((zxid, came, path.clone()));
                if came {
                    session.ephemerals.insert(path);
                } else {
                    session.ephemerals.remove(&path);
                }
            }
        }
        for firing in &firings {
            let history = self.paths.get_mut(&firing.path).expect("what changed has a history");
            let firing = Arc::new(firing.clone());
            history.fired(firing.clone());
            self.firings.push(firing);
        }
        match &txn.op {
            TxnOp::CreateSession { timeout_ms } | TxnOp::UpgradeSession { timeout_ms, .. } => {
                self.create_session(&txn, *timeout_ms);
            }
            TxnOp::MoveSession { server } => {
                if let Some(session) = self.sessions.get_mut(&txn.session) {
                    let before = session_share(txn.session, session);
                    session.servers.push((zxid, *server));
                    let after = session_share(txn.session, session);
                    self.digest = self.digest.wrapping_add(after).wrapping_sub(before);
                }
            }
            TxnOp::CloseSession => self.close_session(&txn),
            TxnOp::Create { .. }
            | TxnOp::Delete { .. }
            | TxnOp::SetData { .. }
            | TxnOp::SetAcl { .. }
            | TxnOp::Check { .. }
            | TxnOp::Multi(_)
            | TxnOp::MultiRefused { .. }
            | TxnOp::Reconfig { .. }
            | TxnOp::Error { .. } => {}
        }
        self.log.push(Logged { txn, digest: self.digest, stats });
        firings
    }

    fn create_session(&mut self, txn: &Txn, timeout_ms: u32) {
        let ephemerals = BTreeSet::new();
        let (created, moves) = (txn.zxid, Vec::new());
        let servers = Vec::new();
        let first = if let TxnOp::UpgradeSession { server, .. } = txn.op {
            Some(server)
        } else {
            txn.origin.map(|origin| origin.server)
        };
        let session =
            Session { timeout_ms, created, ended: None, ephemerals, moves, first, servers };
        self.digest = self.digest.wrapping_add(session_share(txn.session, &session));
        self.sessions.insert(txn.session, session);
        self.living.insert(txn.session);
        self.uses_up(txn.session);
    }

    /// Raises the highest session id of the session's server, which the digest covers.
    fn uses_up(&mut self, id: SessionId) {
        let server = id.0.to_be_bytes()[0];
        let before = self.last_sessions.get(&server).copied();
        let last = before.map_or(id, |before| before.max(id));
        let shares = |id| digest::last_session(server, id);
        self.digest = self.digest.wrapping_sub(before.map_or(0, shares)).wrapping_add(shares(last));
        self.last_sessions.insert(server, last);
    }

    fn close_session(&mut self, txn: &Txn) {
        let session = self.sessions.get_mut(&txn.session).expect("demanded");
        session.ended = Some(txn.zxid);
        self.living.remove(&txn.session);
        self.ended.push(txn.session);
        self.digest = self.digest.wrapping_sub(session_share(txn.session, session));
    }

    /// Replaces a node and updates the digest.
    fn put(&mut self, txn: &Txn, path: String, node: Option<Node>) {
        let share = |node: &Node| node.share(&path);
        let added = node.as_ref().map_or(0, share);
        let removed = self.node(&path).map_or(0, share);
        self.digest = self.digest.wrapping_add(added).wrapping_sub(removed);
        self.paths.entry(path).or_default().set(txn.zxid, node);
    }
}
