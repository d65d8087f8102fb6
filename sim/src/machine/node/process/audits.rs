//! When a digest is computed, and when the disk is audited: by the number of applied transactions.
//!
//! Owns these numbers. Must not compute digests, nor look at the disk.

/// Nodes above which digests are computed less often, because each takes longer: half as often for
/// twice as many.
const DIGEST_NODES: u64 = 64;
/// Transactions above which the disk is audited less often, for the same reason.
const DISK_AUDIT_LOG: u64 = 512;
/// Factor on the rate of audits after a new snapshot whose tree changed while it was written.
const OVERTAKEN: u64 = 8;
/// Transactions above which a log is long: replaying it is most of the cost of a run.
const LONG: u64 = 8_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Audits {
    /// Transactions applied in this incarnation.
    commits: u64,
    /// Value of `commits` at the last digest.
    digest_seen: u64,
    /// Value of `commits` at the last audit of the disk.
    audited_at: u64,
    /// Was a snapshot completed in this turn, and were transactions applied while it was written?
    overtaken: bool,
}

impl Audits {
    /// Transactions applied in this incarnation.
    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// A transaction is applied.
    pub(super) fn applied(&mut self) {
        self.commits += 1;
    }

    /// A snapshot is complete; `overtaken`: transactions were applied while it was written.
    pub(super) fn snapshot_done(&mut self, overtaken: bool) {
        self.overtaken = overtaken;
    }

    /// Is a digest due? That is after `least` transactions at the earliest.
    pub(super) fn is_digest_due(&self, least: u64, nodes: usize) -> bool {
        let more = least.saturating_mul(nodes as u64) / DIGEST_NODES;
        self.commits - self.digest_seen >= least.max(more)
    }

    /// A digest is computed.
    pub(super) fn digest(&mut self) {
        self.digest_seen = self.commits;
    }

    /// Ends a turn: is the disk to be audited? An audit is due after `usual` transactions at the
    /// earliest, or a part of that after a snapshot that was overtaken.
    pub(super) fn is_due(&mut self, usual: u64) -> bool {
        let parts = if std::mem::take(&mut self.overtaken) { OVERTAKEN } else { 1 };
        let (least, seen) = (usual / parts, self.audited_at);
        let more = if seen < LONG { seen.saturating_mul(least) / DISK_AUDIT_LOG } else { seen };
        let due = self.commits - seen >= least.max(more);
        if due {
            self.audited_at = self.commits;
        }
        due
    }
}
