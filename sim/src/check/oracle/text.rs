//! Texts for evidence that no `Display` of a type gives.
//!
//! Owns these texts. Must not check anything.

use std::fmt::Display;

use zabkeeper_core::store::DurableState;

/// The value, or that there is none.
pub(super) fn maybe(what: Option<impl Display>) -> String {
    what.map_or_else(|| "nothing".to_owned(), |what| what.to_string())
}

/// The epochs and the snapshot in a state file.
pub(super) fn kept(state: &DurableState) -> String {
    let DurableState { accepted_epoch, current_epoch, snapshot, damaged, .. } = state;
    let damaged = if *damaged { ", damaged" } else { "" };
    format!(
        "promised epoch {}, history of epoch {}, snapshot {snapshot}{damaged}",
        accepted_epoch.0, current_epoch.0
    )
}
