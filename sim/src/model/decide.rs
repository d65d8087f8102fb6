//! What a write must become on the present state: the transaction or the refusal, in ZooKeeper's order of checks.
//!
//! Owns DATA-05 to DATA-09 as a function of state and request. Must not change anything.

use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{Acl, OpCode, Perms, Request};
use zabkeeper_core::{ErrorCode, SessionId, WallMs, Zxid};

use super::stage::{Header, Stage};
use super::{Model, path};

/// The two bits of the flags that are offered.
#[derive(Clone, Copy)]
struct Mode {
    ephemeral: bool,
    sequential: bool,
}

impl Model {
    /// The only right outcome of a write by a living session on the present state; `None` for what is no write.
    /// The ephemeral nodes of a closeSession come in no particular order.
    pub fn decide(&self, session: SessionId, request: &Request) -> Option<TxnOp> {
        let mut stage = Stage::new(self, Header { session, zxid: Zxid(u64::MAX), time: WallMs(0) });
        let decided = match request {
            Request::CloseSession => {
                let ephemerals = self.session(session).map(|s| s.ephemerals.iter().cloned());
                let ephemerals = ephemerals.into_iter().flatten().collect();
                Ok(TxnOp::CloseSession { ephemerals })
            }
            Request::Multi(requests) => Ok(stage.decide_multi(requests)),
            // Any other record is read before a zxid is dealt (edge 59).
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
            | Request::Unknown { .. } => stage.decide_one(request)?,
        };
        Some(decided.unwrap_or_else(|code| TxnOp::Error { code }))
    }
}

impl Stage<'_> {
    /// All or nothing, each on what the earlier ones left (MULTI-01, MULTI-03).
    fn decide_multi(&mut self, requests: &[Request]) -> TxnOp {
        let mut ops = Vec::new();
        for (failed, request) in requests.iter().enumerate() {
            match self.decide_one(request).expect("a multi holds only writes and checks") {
                Ok(op) => {
                    self.run(&op).expect("just decided on this state");
                    ops.push(op);
                }
                Err(code) => {
                    let index = |index| u32::try_from(index).expect("a frame has fewer");
                    let (count, failed) = (index(requests.len()), index(failed));
                    return TxnOp::MultiRefused { count, failed, code };
                }
            }
        }
        TxnOp::Multi(ops)
    }

    /// An operation that a multi could hold.
    fn decide_one(&self, request: &Request) -> Option<Result<TxnOp, ErrorCode>> {
        Some(match request {
            Request::Create { path, data, acl, flags, .. } => self
                .decide_create(path, acl, *flags)
                .map(|(path, acl, ephemeral, parent_creates)| {
                    let data = data.clone();
                    TxnOp::Create { path, data, acl, ephemeral, parent_creates }
                }),
            Request::Delete { path, version } => {
                self.decide_delete(path, *version).map(|()| TxnOp::Delete { path: path.clone() })
            }
            Request::SetData { path, data, version } => {
                let (path, data) = (path.clone(), data.clone());
                let next = self.decide_version(&path, *version, Perms::WRITE);
                next.map(|version| TxnOp::SetData { path, data, version })
            }
            Request::Check { path, version } => self
                .decide_version(path, *version, Perms::READ)
                .map(|_| TxnOp::Check { path: path.clone() }),
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
            | Request::Unknown { .. } => return None,
        })
    }

    /// Path, access control list, ephemeral or not, and children ever created with the new one.
    fn decide_create(
        &self,
        asked: &str,
        acl: &[Acl],
        flags: i32,
    ) -> Result<(String, Vec<Acl>, bool, i32), ErrorCode> {
        let mode = mode(flags)?;
        let parent_path = path::parent(asked).ok_or(ErrorCode::BadArguments)?;
        let acl = fix(acl).ok_or(ErrorCode::InvalidAcl)?;
        let parent = self.node(parent_path).ok_or(ErrorCode::NoNode)?;
        if !parent.grants(Perms::CREATE) {
            return Err(ErrorCode::NoAuth);
        }
        let path = match mode.sequential {
            true => format!("{asked}{:010}", parent.creates),
            false => asked.to_owned(),
        };
        if !path::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.node(&path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if parent.owner != SessionId(0) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        Ok((path, acl, mode.ephemeral, parent.creates.wrapping_add(1)))
    }

    fn decide_delete(&self, asked: &str, version: i32) -> Result<(), ErrorCode> {
        let parent_path = path::parent(asked).ok_or(ErrorCode::BadArguments)?;
        if path::is_reserved(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.node(parent_path).ok_or(ErrorCode::NoNode)?;
        if !parent.grants(Perms::DELETE) {
            return Err(ErrorCode::NoAuth);
        }
        let node = self.node(asked).ok_or(ErrorCode::NoNode)?;
        if version != -1 && version != node.version {
            return Err(ErrorCode::BadVersion);
        }
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        Ok(())
    }

    /// setData and check (DATA-07, DATA-09): the version after the next change.
    fn decide_version(&self, asked: &str, version: i32, perms: Perms) -> Result<i32, ErrorCode> {
        if !path::is_valid(asked) {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.node(asked).ok_or(ErrorCode::NoNode)?;
        if !node.grants(perms) {
            return Err(ErrorCode::NoAuth);
        }
        if version != -1 && version != node.version {
            return Err(ErrorCode::BadVersion);
        }
        Ok(node.version.wrapping_add(1))
    }
}

/// Flag 4 (container) makes a plain node where no container is offered (DATA-24); time to live (5, 6) is switched off
/// (edge 17).
fn mode(flags: i32) -> Result<Mode, ErrorCode> {
    match flags {
        0 | 4 => Ok(Mode { ephemeral: false, sequential: false }),
        1 => Ok(Mode { ephemeral: true, sequential: false }),
        2 => Ok(Mode { ephemeral: false, sequential: true }),
        3 => Ok(Mode { ephemeral: true, sequential: true }),
        5 | 6 => Err(ErrorCode::Unimplemented),
        _ => Err(ErrorCode::BadArguments),
    }
}

/// The list as it is stored: not empty, everyone or nobody, doubles once.
fn fix(acl: &[Acl]) -> Option<Vec<Acl>> {
    let mut fixed: Vec<Acl> = Vec::new();
    for entry in acl {
        if entry.scheme != "world" || entry.id != "anyone" {
            return None;
        }
        if !fixed.contains(entry) {
            fixed.push(entry.clone());
        }
    }
    (!fixed.is_empty()).then_some(fixed)
}
