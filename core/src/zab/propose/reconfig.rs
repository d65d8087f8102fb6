//! Decides requests to reconfigure the ensemble (Java `PrepRequestProcessor`, `OpCode.reconfig`).
//!
//! Owns the order of the checks (edge 207) and the next configuration. Must not know links.

use std::collections::BTreeSet;

use super::prep::PrepContext;
use crate::auth::Access;
use crate::error::ErrorCode;
use crate::ids::ServerId;
use crate::membership::EnsembleConfig;
use crate::replica::Membership;
use crate::tree::CONFIG_NODE;
use crate::txn::TxnOp;
use crate::wire::{Perms, ReconfigRequest};

/// What a leader knows about the ensemble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ensemble<'a> {
    /// The configurations.
    pub(super) membership: &'a Membership,
    /// The servers that have this leader's history, itself included. Observers do not acknowledge,
    /// so they are not among them.
    pub(super) synced: &'a BTreeSet<ServerId>,
}

/// The next configuration, or why there is none.
pub(super) fn decide(
    context: &PrepContext<'_>,
    request: &ReconfigRequest,
) -> Result<TxnOp, ErrorCode> {
    // RECONF-01.
    let (Some(ensemble), Some(options)) = (context.ensemble, &context.config.reconfig) else {
        return Err(ErrorCode::ReconfigDisabled);
    };
    let membership = ensemble.membership;
    if context.config.members().alone() && !options.single_voter {
        return Err(ErrorCode::Unimplemented);
    }
    // RECONF-03.
    if membership.is_changing() || !membership.is_established() {
        return Err(ErrorCode::ReconfigInProgress);
    }
    // RECONF-04.
    let active = membership.active();
    if request.version != -1 && request.version.cast_unsigned() != active.version.0 {
        return Err(ErrorCode::BadVersion);
    }
    // RECONF-05, RECONF-06.
    let next = match &request.new_members {
        Some(text) => EnsembleConfig::parse(&text.replace(',', "\n")),
        None => {
            let part = |list: &Option<String>| list.clone().unwrap_or_default();
            active.changed(&part(&request.joining), &part(&request.leaving))
        }
    };
    let next = next.map_err(|_| ErrorCode::BadArguments)?.at(context.zxid);
    // RECONF-07.
    let voters = next.members().voters();
    if voters.alone() && !options.single_voter {
        return Err(ErrorCode::BadArguments);
    }
    // RECONF-08.
    if !voters.is_quorum(|id| ensemble.synced.contains(&id)) {
        return Err(ErrorCode::NewConfigNoQuorum);
    }
    // RECONF-02.
    let node = context.tree.find(CONFIG_NODE).ok_or(ErrorCode::NoNode)?;
    let acl = context.tree.share_acl(node);
    if !context.who().may(&acl, &Access::new(Perms::WRITE, CONFIG_NODE)) {
        return Err(ErrorCode::NoAuth);
    }
    Ok(TxnOp::Reconfig { config: next.to_string() })
}
