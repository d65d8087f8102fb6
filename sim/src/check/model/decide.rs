//! The only right transaction for a write on the present state, success or refusal, with
//! ZooKeeper's order of checks.
//!
//! Owns DATA-05 to DATA-09 as a function of state and request. Must not change the model.

use bytes::Bytes;
use zabkeeper_core::txn::{Lifetime, TxnOp};
use zabkeeper_core::wire::{Acl, Id, OpCode, Perms, ReconfigRequest, Request};
use zabkeeper_core::{ErrorCode, WallMs, Zxid};

use super::stage::{Header, Stage, length};
use super::{Asker, CONFIG_NODE, Model, Node, bounds, lifetime, path};
use crate::check::ensemble::{self, Ensemble};

/// The circumstances of a request.
#[derive(Clone, Copy)]
struct Case<'a> {
    /// Whether the session is global. A local session cannot own nodes.
    global: bool,
    ids: &'a [Id],
    applied: Zxid,
}

impl Model {
    /// The only right outcome of a write on the present state, by a session that is alive or local;
    /// `None` if the request is no write.
    pub fn decide(&self, asker: Asker<'_>, request: &Request) -> Option<TxnOp> {
        self.decide_over(asker, request, self.tip())
    }

    /// As [`Self::decide`], for a leader without reconfigurations.
    pub fn decide_without_reconfig(
        &mut self,
        asker: Asker<'_>,
        request: &Request,
    ) -> Option<TxnOp> {
        let first = self.rules.first_config.take();
        let decided = self.decide(asker, request);
        self.rules.first_config = first;
        decided
    }

    /// As [`Self::decide`], for a leader that had applied up to `applied`: quotas are checked on
    /// the applied state (DATA-32), everything else on all proposals.
    pub fn decide_over(&self, asker: Asker<'_>, request: &Request, applied: Zxid) -> Option<TxnOp> {
        let Asker { session, ids } = asker;
        let case = Case { global: self.is_alive(session), ids, applied };
        let mut stage = Stage::new(self, Header { session, zxid: Zxid(u64::MAX), time: WallMs(0) });
        let decided = match request {
            Request::CloseSession => Ok(TxnOp::CloseSession),
            Request::Multi(requests) => Ok(stage.decide_multi(case, requests)),
            // Records of other operations are decoded before a zxid is assigned (edge 59).
            Request::Undecodable { op: OpCode::Multi } => Err(ErrorCode::Marshalling),
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
            | Request::Undecodable { .. }
            | Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Sasl { .. }
            | Request::Reconfig
            | Request::Reconfigure(_)
            | Request::Throttled { .. }
            | Request::Unknown { .. } => {
                let fits = |op| self.rules().fits(bounds::of_op(&op)).map(|()| op);
                stage.decide_one(case, request)?.and_then(fits)
            }
        };
        Some(decided.unwrap_or_else(|code| TxnOp::Error { code }))
    }
}

impl Model {
    /// The configuration that this request asks for, of a leader that has applied `applied`
    /// (RECONF-01, RECONF-03 to RECONF-07).
    ///
    /// # Errors
    /// The first check that refuses it, whoever asks.
    pub fn next_config(
        &self,
        request: &ReconfigRequest,
        applied: Zxid,
    ) -> Result<Ensemble, ErrorCode> {
        if self.rules().first_config.is_none() {
            return Err(ErrorCode::ReconfigDisabled);
        }
        let node = self.node(CONFIG_NODE).expect("nobody can delete it");
        let text = node.data.clone().unwrap_or_default();
        let version = ensemble::version(&text).ok_or(ErrorCode::ReconfigInProgress)?;
        if node.mzxid > applied {
            return Err(ErrorCode::ReconfigInProgress);
        }
        if request.version != -1 && request.version.cast_unsigned() != version {
            return Err(ErrorCode::BadVersion);
        }
        let text = std::str::from_utf8(&text).expect("reconfigurations write text");
        let active = Ensemble::parse(text).expect("earlier requests were of this form");
        let next = match &request.new_members {
            Some(lines) => Ensemble::parse(&lines.replace(',', "\n")),
            None => active.changed(
                request.joining.as_deref().unwrap_or_default(),
                request.leaving.as_deref().unwrap_or_default(),
            ),
        };
        next.filter(|next| next.voters().len() > 1).ok_or(ErrorCode::BadArguments)
    }
}

impl Stage<'_> {
    /// All operations or none, each on the state that the earlier ones leave (MULTI-01, MULTI-03).
    fn decide_multi(&mut self, case: Case<'_>, requests: &[Request]) -> TxnOp {
        let mut ops = Vec::new();
        let mut bytes = 0;
        for (failed, request) in requests.iter().enumerate() {
            match self.decide_one(case, request).expect("a multi holds only writes and checks") {
                Ok(op) => {
                    bytes += bounds::of_op(&op);
                    if let Err(code) = self.rules().fits(bytes) {
                        // The size check comes first: a later failing operation would not change
                        // this outcome.
                        return TxnOp::Error { code };
                    }
                    self.run(&op).expect("just decided on this state");
                    ops.push(op);
                }
                Err(code) => {
                    if code == ErrorCode::Marshalling {
                        // In ZooKeeper, a quota that cannot be parsed fails the whole multi without
                        // results.
                        return TxnOp::Error { code };
                    }
                    let index = |index| u32::try_from(index).expect("a frame has fewer");
                    let (count, failed) = (index(requests.len()), index(failed));
                    return TxnOp::MultiRefused { count, failed, code };
                }
            }
        }
        TxnOp::Multi(ops)
    }

    /// Decides an operation that may be part of a multi.
    fn decide_one(&self, case: Case<'_>, request: &Request) -> Option<Result<TxnOp, ErrorCode>> {
        let ids = case.ids;
        Some(match request {
            Request::Create { path, data, acl, .. }
            | Request::CreateContainer { path, data, acl, .. }
            | Request::CreateTtl { path, data, acl, .. } => {
                let kind = lifetime::asked(request, &self.rules().tree);
                kind.and_then(|kind| self.decide_create(case, (path, data), acl, kind))
            }
            Request::Delete { path, version } => self
                .decide_delete(ids, path, *version)
                .map(|()| TxnOp::Delete { path: path.clone() }),
            Request::SetData { path, data, version } => {
                let (path, data) = (path.clone(), data.clone());
                let next = self.decide_set(case, &path, &data, *version);
                next.map(|version| TxnOp::SetData { path, data, version })
            }
            Request::Check { path, version } => self
                .decide_version(ids, path, *version, Perms::READ)
                .map(|_| TxnOp::Check { path: path.clone() }),
            Request::SetAcl { path, acl, version } => {
                let decided = self.decide_acl(ids, path, acl, *version);
                decided.map(|(acl, version)| TxnOp::SetAcl { path: path.clone(), acl, version })
            }
            // A null path passes the decoder; it fails where the path is validated or where it is
            // split.
            Request::NoPath {
                op: OpCode::SetData | OpCode::SetAcl | OpCode::Check,
                in_list: false,
            } => Err(ErrorCode::BadArguments),
            Request::NoPath { op, .. } if op.is_write() && *op != OpCode::Multi => {
                Err(ErrorCode::Marshalling)
            }
            Request::Reconfig => Err(ErrorCode::ReconfigDisabled),
            Request::Reconfigure(request) => self.decide_reconfig(case, request),
            Request::Multi(_)
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::GetAcl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Sasl { .. }
            | Request::Throttled { .. }
            | Request::Unknown { .. } => return None,
        })
    }

    /// create (DATA-05), from the session check on.
    fn decide_create(
        &self,
        case: Case<'_>,
        (asked, data): (&str, &Option<Bytes>),
        acl: &[Acl],
        (sequential, lifetime): (bool, Lifetime),
    ) -> Result<TxnOp, ErrorCode> {
        if lifetime == Lifetime::Ephemeral && !case.global {
            return Err(ErrorCode::EphemeralOnLocalSession);
        }
        let parent_path = path::parent(asked).ok_or(ErrorCode::BadArguments)?;
        let acl = self.rules().fix(case.ids, acl)?;
        let parent = self.node(parent_path).ok_or(ErrorCode::NoNode)?;
        self.grants(case.ids, parent, Perms::CREATE)?;
        let path = match sequential {
            true => format!("{asked}{:010}", parent.creates),
            false => asked.to_owned(),
        };
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.node(&path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if parent.lifetime == Lifetime::Ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.check_quota(case, &path, (1, bytes(data)))?;
        let (data, parent_creates) = (data.clone(), parent.creates.wrapping_add(1));
        Ok(TxnOp::Create { path, data, acl, lifetime, parent_creates })
    }

    /// reconfig (edge 207), without the version of the new configuration. The check for a quorum of
    /// the new voters comes before that of the permission, and belongs to the oracles: it depends
    /// on the leader's links.
    fn decide_reconfig(
        &self,
        case: Case<'_>,
        request: &ReconfigRequest,
    ) -> Result<TxnOp, ErrorCode> {
        let next = self.model().next_config(request, case.applied)?;
        let node = self.node(CONFIG_NODE).expect("nobody can delete it");
        self.grants(case.ids, node, Perms::WRITE)?;
        Ok(TxnOp::Reconfig { config: next.text(0) })
    }

    fn decide_delete(&self, ids: &[Id], asked: &str, version: i32) -> Result<(), ErrorCode> {
        let parent_path = path::parent(asked).ok_or(ErrorCode::BadArguments)?;
        if path::is_reserved(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.node(parent_path).ok_or(ErrorCode::NoNode)?;
        self.grants(ids, parent, Perms::DELETE)?;
        let node = self.node(asked).ok_or(ErrorCode::NoNode)?;
        if version != -1 && version != node.version {
            return Err(ErrorCode::BadVersion);
        }
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        Ok(())
    }

    /// setData (DATA-07): the version that the node gets. The quota is asked before the version.
    fn decide_set(
        &self,
        case: Case<'_>,
        asked: &str,
        data: &Option<Bytes>,
        version: i32,
    ) -> Result<i32, ErrorCode> {
        if asked == CONFIG_NODE && self.rules().first_config.is_some() {
            return Err(ErrorCode::BadArguments);
        }
        let next = self.decide_version(case.ids, asked, -1, Perms::WRITE)?;
        let node = self.node(asked).expect("it has a version");
        self.check_quota(case, asked, (0, bytes(data) - length(node)))?;
        self.decide_version(case.ids, asked, version, Perms::WRITE).map(|_| next)
    }

    /// check (DATA-09): the version after the next change.
    fn decide_version(
        &self,
        ids: &[Id],
        asked: &str,
        version: i32,
        perms: Perms,
    ) -> Result<i32, ErrorCode> {
        if !path::is_valid(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.node(asked).ok_or(ErrorCode::NoNode)?;
        self.grants(ids, node, perms)?;
        if version != -1 && version != node.version {
            return Err(ErrorCode::BadVersion);
        }
        Ok(node.version.wrapping_add(1))
    }

    /// setACL (DATA-08): the list as it is stored, and the version that it gets.
    fn decide_acl(
        &self,
        ids: &[Id],
        asked: &str,
        acl: &[Acl],
        version: i32,
    ) -> Result<(Vec<Acl>, i32), ErrorCode> {
        if !path::is_valid(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = self.rules().fix(ids, acl)?;
        let node = self.node(asked).ok_or(ErrorCode::NoNode)?;
        self.grants(ids, node, Perms::ADMIN)?;
        if version != -1 && version != node.aversion {
            return Err(ErrorCode::BadVersion);
        }
        Ok((acl, node.aversion.wrapping_add(1)))
    }

    fn check_quota(&self, case: Case<'_>, asked: &str, more: (i64, i64)) -> Result<(), ErrorCode> {
        self.model().check_quota(asked, more, case.applied)
    }

    fn grants(&self, ids: &[Id], node: &Node, wanted: Perms) -> Result<(), ErrorCode> {
        if self.rules().may(ids, &node.acl, wanted) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }
}

fn bytes(data: &Option<Bytes>) -> i64 {
    i64::try_from(data.as_ref().map_or(0, Bytes::len)).expect("data fits a frame")
}
