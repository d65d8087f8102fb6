//! Words for evidence, where a type has none that fit.
//!
//! Owns these words. Must not judge.

use std::fmt::Display;

use zabkeeper_core::SessionId;
use zabkeeper_core::store::DurableState;

use super::Attached;
use super::conn::Who;

/// What is there, or that nothing is.
pub(super) fn maybe(what: Option<impl Display>) -> String {
    what.map_or_else(|| "nothing".to_owned(), |what| what.to_string())
}

/// Somebody got a session that is not his.
pub(super) fn made_for_another(who: Who, session: SessionId, attached: Option<Attached>) -> String {
    let on = maybe(attached);
    format!("{who}: got the session {session}, made for another; it goes on with {on}")
}

/// What a disk says of epochs and its snapshot.
pub(super) fn kept(state: &DurableState) -> String {
    let DurableState { accepted_epoch, current_epoch, snapshot, damaged, .. } = state;
    let damaged = if *damaged { ", damaged" } else { "" };
    format!(
        "promised epoch {}, history of epoch {}, snapshot {snapshot}{damaged}",
        accepted_epoch.0, current_epoch.0
    )
}
