//! What programs do with recipes: at most one holds a lock (R1).
//!
//! Owns who holds each lock. Must not trust a program about its session: the model knows which
//! sessions live.

use std::collections::BTreeMap;

use zabkeeper_core::{SessionId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use crate::check::model::Model;
use crate::check::observe::ClientId;
use crate::clients::program::Told;

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Locks {
    /// The last holder of each lock that has not said that it is about to release it.
    held: BTreeMap<u64, Holder>,
    /// The token of the last holder of each lock.
    tokens: BTreeMap<u64, Zxid>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: ClientId,
    session: SessionId,
    token: Zxid,
}

impl Locks {
    /// R1: who takes a lock has a higher token than all before it, and the session of a holder
    /// that has not released the lock is over.
    pub(super) fn used(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
        told: Told,
    ) -> Verdict {
        match told {
            // A client may learn late that its session is over; no lock can prevent that, and the
            // token shows it to the resource (seed 0xf583b797479e of the swarm at bc425cb).
            Told::Holds(..) if !model.is_alive(session) => Ok(()),
            Told::Holds(lock, token) => {
                let last = self.tokens.insert(lock, token).unwrap_or_default();
                let before = self.held.insert(lock, Holder { client, session, token });
                let holder = before.filter(|before| model.is_alive(before.session));
                checks.check(Id::R1, token > last && holder.is_none(), || {
                    vec![format!(
                        "client {} takes lock {lock} with token {token}; the last token was \
                         {last}, and {}",
                        client.0,
                        holder.map_or(
                            "nobody holds it".to_owned(),
                            |Holder { client, session, token }| {
                                format!(
                                    "client {} of session {session} holds it with {token}",
                                    client.0
                                )
                            }
                        )
                    )]
                })
            }
            Told::Ends(lock) => {
                let held = self.held.get(&lock);
                if held.is_some_and(|held| (held.client, held.session) == (client, session)) {
                    self.held.remove(&lock);
                }
                Ok(())
            }
        }
    }
}
