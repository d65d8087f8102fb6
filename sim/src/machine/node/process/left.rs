//! Names of the state that a server still holds.
//!
//! Owns these names. Must not decide when a server should hold nothing.

use zabkeeper_core::Backlog;

/// Each kind of state, with its amount.
pub(super) fn kinds(backlog: &Backlog) -> [(&'static str, usize); 11] {
    let Backlog { undurable_bytes, tail_faults, walks, chunks, chunks_at_disk, .. } = *backlog;
    let Backlog { requests, syncs, changes, upgrades, strays, lists, .. } = *backlog;
    [
        ("bytes counted as not durable", usize::try_from(undurable_bytes).unwrap_or(usize::MAX)),
        ("faults of the part of the log in memory", tail_faults),
        ("snapshots begun that nobody writes", walks),
        ("chunks of a leader's snapshot", chunks),
        ("chunks of snapshots whose writing is not confirmed", chunks_at_disk),
        ("requests", requests),
        ("syncs", syncs),
        ("changes that are not applied", changes),
        ("upgrades of local sessions that are not applied", upgrades),
        ("sessions and connections that do not refer to each other", strays),
        ("access control lists that no node has", lists),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E3.
    #[test]
    fn every_kind_of_remaining_state_has_a_name() {
        assert!(kinds(&Backlog::default()).iter().all(|(_, count)| *count == 0));
        let one = Backlog {
            undurable_bytes: 1,
            tail_faults: 1,
            walks: 1,
            chunks: 1,
            chunks_at_disk: 1,
            requests: 1,
            syncs: 1,
            changes: 1,
            upgrades: 1,
            strays: 1,
            lists: 1,
        };
        assert!(kinds(&one).iter().all(|(_, count)| *count == 1));
    }
}
