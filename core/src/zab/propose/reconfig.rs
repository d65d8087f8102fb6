//! Decides requests to reconfigure the ensemble (Java `PrepRequestProcessor`, `OpCode.reconfig`).
//!
//! Owns the order of the checks (edge 207) and the next configuration. Must not know links.

use super::prep::PrepContext;
use crate::auth::Access;
use crate::ids::{ServerId, Zxid};
use crate::membership::{EnsembleConfig, Member, Voters};
use crate::progress::{ReconfigRefusal, ServerProgress, SyncState};
use crate::replica::Membership;
use crate::tree::CONFIG_NODE;
use crate::txn::TxnOp;
use crate::wire::{Perms, ReconfigRequest};

/// What a leader knows about the ensemble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ensemble<'a> {
    /// The configurations.
    pub(super) membership: &'a Membership,
    /// How far the servers are, this leader included.
    pub(super) servers: &'a [ServerProgress],
}

/// The next configuration, or why there is none.
pub(super) fn decide(
    context: &PrepContext<'_>,
    request: &ReconfigRequest,
) -> Result<TxnOp, ReconfigRefusal> {
    // RECONF-01.
    let (Some(ensemble), Some(options)) = (context.ensemble, &context.config.reconfig) else {
        return Err(ReconfigRefusal::Disabled);
    };
    let membership = ensemble.membership;
    if context.config.members().alone() && !options.single_voter {
        return Err(ReconfigRefusal::Standalone);
    }
    let older: Vec<ServerId> = ensemble.older().collect();
    if !older.is_empty() {
        return Err(ReconfigRefusal::OlderServers(older));
    }
    // RECONF-03.
    if !membership.is_established() {
        return Err(ReconfigRefusal::NotEstablished);
    }
    if membership.is_changing() {
        return Err(ReconfigRefusal::InProgress { version: membership.newest().version });
    }
    // RECONF-04.
    let active = membership.active();
    if request.version != -1 && request.version.cast_unsigned() != active.version.0 {
        let expected = Zxid(request.version.cast_unsigned());
        return Err(ReconfigRefusal::OtherVersion { expected, active: active.version });
    }
    // RECONF-05, RECONF-06.
    let next = match &request.new_members {
        Some(text) => EnsembleConfig::parse(&text.replace(',', "\n")),
        None => {
            let part = |list: &Option<String>| list.clone().unwrap_or_default();
            active.changed(&part(&request.joining), &part(&request.leaving))
        }
    };
    let next = next.map_err(ReconfigRefusal::BadArguments)?.at(context.zxid);
    // CONF-20.
    let has_several = |member: &&Member| member.addresses.len() > 1;
    if let Some(member) = next.servers().find(has_several).filter(|_| !options.multi_address) {
        let what = format!("{member}: several addresses need multiAddress.enabled=true");
        return Err(ReconfigRefusal::BadArguments(what));
    }
    // RECONF-07.
    let voters = next.members().voters();
    if voters.alone() && !options.single_voter {
        let last = voters.ids().next().expect("an ensemble has voters");
        return Err(ReconfigRefusal::TooFewVoters(last));
    }
    // RECONF-08.
    ensemble.check_quorum(voters)?;
    // RECONF-02.
    let node = context.tree.find(CONFIG_NODE).ok_or(ReconfigRefusal::NoConfigNode)?;
    let acl = context.tree.share_acl(node);
    if !context.who().may(&acl, &Access::new(Perms::WRITE, CONFIG_NODE)) {
        return Err(ReconfigRefusal::NotPermitted);
    }
    Ok(TxnOp::Reconfig { config: next.to_string() })
}

impl Ensemble<'_> {
    /// The learners of a release that cannot read a reconfiguration.
    fn older(&self) -> impl Iterator<Item = ServerId> {
        self.servers.iter().filter(|server| server.older).map(|server| server.server)
    }

    /// Has a quorum of the next voters the history, and does it acknowledge what follows, or will
    /// once it votes?
    fn check_quorum(&self, next: &Voters) -> Result<(), ReconfigRefusal> {
        let of = |id: ServerId| self.servers.iter().find(|server| server.server == id);
        let synced = |id| of(id).is_some_and(|server| server.state == SyncState::Synced);
        // Those that only a seen configuration names are no observers (seed 0xae4a8541010d of the
        // swarm at ae4a854).
        let observes = |id| self.membership.is_observer(id);
        let ready = |id| synced(id) && !observes(id);
        if next.is_quorum(ready) {
            return Ok(());
        }
        let absent = |server| ServerProgress {
            server,
            votes: false,
            state: SyncState::Absent,
            behind: None,
            lag: Default::default(),
            older: false,
        };
        let missing = next.ids().filter(|id| !synced(*id));
        Err(ReconfigRefusal::NoQuorum {
            ready: next.ids().filter(|id| ready(*id)).collect(),
            missing: missing.map(|id| of(id).cloned().unwrap_or(absent(id))).collect(),
            observing: next.ids().filter(|id| synced(*id) && observes(*id)).collect(),
        })
    }
}
