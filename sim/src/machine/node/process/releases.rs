//! The releases of a server and of those at the other ends of its links.
//!
//! Owns the checks of what servers of the last release get and are refused (L12). Must not
//! influence the server.

use std::collections::BTreeSet;

use zabkeeper_core::driver::{PeerCloseReason, PeerNote};
use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{ConnId, Input, LinkCloseReason, LinkId};

use super::Process;
use crate::check::checker::Check;
use crate::network::stream::Party;
use crate::record::sometimes::Sometimes;
use crate::world::shared::Shared;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Does this process run the last release?
    older: bool,
    /// The links on which the last release is spoken.
    links: BTreeSet<LinkId>,
}

impl Releases {
    /// The server is about to handle this input.
    pub(super) fn stepped(&mut self, input: &Input) {
        let Input::Peer(link, event) = input else { return };
        if let PeerEvent::Version(_) = event {
            self.links.insert(*link);
        } else if let PeerEvent::Down = event {
            self.links.remove(link);
        }
    }
}

impl Process {
    /// Sets whether the process runs the last release, before it begins.
    pub(in crate::machine::node) fn set_older(&mut self, older: bool) {
        self.releases.older = older;
    }

    pub(in crate::machine::node) fn runs_last_release(&self) -> bool {
        self.releases.older
    }

    /// A server begins to serve.
    pub(super) fn note_release(&self, shared: &mut Shared) {
        if self.releases.older {
            shared.saw(Sometimes::OlderServes);
        }
    }

    /// L12: a server of the last release can read its log, which then has no configuration.
    pub(super) fn can_read_its_log(&self, commands: &[DiskCommand], shared: &mut Shared) {
        if !self.releases.older {
            return;
        }
        for command in commands {
            let DiskCommand::Append { entry, .. } = command else { continue };
            let reads = match Txn::decode(entry) {
                Ok(Txn { op: TxnOp::Reconfig { .. }, .. }) => Err(format!(
                    "s{} runs the last release, which cannot read the configuration at {}",
                    self.id, entry.zxid
                )),
                Ok(_) | Err(_) => Ok(()),
            };
            shared.check(Check::WELCOME, reads);
        }
    }

    /// A leader with a configuration in its log refuses a server of the last release.
    pub(super) fn refuses_the_last_release(
        &self,
        link: LinkId,
        why: &LinkCloseReason,
        shared: &mut Shared,
    ) -> bool {
        let LinkCloseReason::Incompatible(what) = why else { return false };
        let older = self.releases.links.contains(&link) && !self.releases.older;
        let refuses = older
            && shared.options.reconfigured().is_some()
            && what.contains("cannot read the configuration");
        if refuses {
            shared.saw(Sometimes::OlderRefused);
        }
        refuses
    }

    /// L12: whatever a server sends, the other one can read.
    pub(super) fn can_read(&self, note: &PeerNote, shared: &mut Shared) {
        let (why, from_server) = match note {
            PeerNote::Down { link, why, .. } => {
                let parties = shared.net.parties(ConnId(link.0));
                (why, parties.is_some_and(|parties| parties.iter().all(Party::is_server)))
            }
            // Each server has an address of its own, and a bad peer has none.
            PeerNote::Rejected { why, from } => (why, !from.ip().to_string().ends_with(".0")),
            PeerNote::Up { .. } | PeerNote::DialFailed { .. } => return,
        };
        if let PeerCloseReason::Malformed(bad) = why
            && from_server
        {
            let evidence = format!("s{} cannot read what another server sends: {bad}", self.id);
            shared.check(Check::WELCOME, Err(evidence));
        }
    }
}
