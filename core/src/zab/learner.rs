//! A learner as its leader sees it (Java `LearnerHandler`, `LearnerMaster`): where it stands, and what it is sent next.
//!
//! Owns the way from the first word to live proposals. Must not decide anything about the epoch: `leader` does.
//!
//! ```text
//! Informed ─► Promising ─► Promised ─► Truncating ─┐
//!                             │    ▲───────────────┘ where it ends now
//!                             ├──► Snapshotting ───┐
//!                             ▼                    │ installed
//!                         CatchingUp ◄─────────────┘
//!                             │ nothing is left to send: NEWLEADER
//!                             ▼
//!                           Live ─► Synced ─► Serving        gets each proposal when it is made
//! ```

use crate::cx::Cx;
use crate::ids::{Epoch, Instant, LinkId, ServerId, Zxid};
use crate::io::Mark;
use crate::peer::FromLeader;
use crate::quorum::HistoryInfo;
use crate::replica::Replica;
use crate::store::{DiskCommand, Entry};

/// See the module.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) link: LinkId,
    pub(super) server: ServerId,
    /// What it said of its history when it came.
    pub(super) history: HistoryInfo,
    /// The highest epoch that it had promised then.
    pub(super) accepted: Epoch,
    pub(super) stage: Stage,
    /// The last transaction that it has been sent.
    sent: Zxid,
    /// Was it told to keep the voters of this epoch?
    told_voters: bool,
    /// Are they on its disk?
    keeps_voters: bool,
    /// Is a piece for it being read from the disk?
    reading: bool,
    /// Is something on its way that has to leave before more is sent?
    filling: bool,
    /// When it was last heard of. While it serves, that is when the newest ping that it has answered was sent: a word
    /// that has waited to be read says nothing of now.
    heard: Instant,
    /// The learner's clock, as its last answer to a ping gave it.
    echo: Instant,
    /// Since when it owes acknowledgements without having sent any.
    owes_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Has said what it promised before.
    Informed,
    /// Has been told the epoch.
    Promising,
    /// Its history ends here, and the leader may begin to mend it.
    Promised { last: Zxid },
    /// Is told to forget its end, and asked where it ends then.
    Truncating,
    /// Is sent a snapshot, of which this piece is next; after the last one it says so.
    Snapshotting { zxid: Zxid, next: Option<u32> },
    /// Is sent the log.
    CatchingUp,
    /// Has been sent everything, and gets whatever is new.
    Live,
    /// Has all of it on its disk, and the epoch.
    Synced,
    /// Serves clients.
    Serving,
}

impl Learner {
    pub(super) fn new(
        link: LinkId,
        server: ServerId,
        history: HistoryInfo,
        accepted: Epoch,
        now: Instant,
    ) -> Learner {
        Learner {
            link,
            server,
            history,
            accepted,
            stage: Stage::Informed,
            sent: Zxid::ZERO,
            told_voters: false,
            keeps_voters: false,
            reading: false,
            filling: false,
            heard: now,
            echo: Instant(0),
            owes_since: None,
        }
    }

    /// Does it get proposals when they are made?
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live | Stage::Synced | Stage::Serving)
    }

    /// Has it taken over the leader's history?
    pub(super) fn is_synced(&self) -> bool {
        matches!(self.stage, Stage::Synced | Stage::Serving)
    }

    /// And does it keep the voters of this epoch?
    pub(super) fn is_ready(&self) -> bool {
        self.is_synced() && self.keeps_voters
    }

    /// Is its history being brought to the leader's?
    pub(super) fn is_mended(&self) -> bool {
        matches!(self.stage, Stage::Truncating | Stage::Snapshotting { .. } | Stage::CatchingUp)
    }

    /// It says where it ends after a truncation or a snapshot: marks what follows.
    pub(super) fn note_answer(&self, last: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        let shares = replica.history().last_at_or_before(last) == Some(last);
        let complete = last == replica.log().appended();
        match (self.stage == Stage::Truncating, shares, complete) {
            (true, false, _) => cx.mark(Mark::SyncTruncAgain),
            (true, true, true) => cx.mark(Mark::SyncTruncOnly),
            (true, true, false) => cx.mark(Mark::SyncTruncDiff),
            (false, _, false) => cx.mark(Mark::SyncSnapDiff),
            (false, _, true) => {}
        }
    }

    /// The oldest position after which it needs the log, or the snapshot that it needs.
    pub(super) fn needs(&self) -> Option<Zxid> {
        match self.stage {
            Stage::Snapshotting { zxid, .. } => Some(zxid),
            Stage::CatchingUp => Some(self.sent),
            Stage::Informed
            | Stage::Promising
            | Stage::Promised { .. }
            | Stage::Truncating
            | Stage::Live
            | Stage::Synced
            | Stage::Serving => None,
        }
    }

    /// The leader's history is settled: begins to bring the learner to it, or goes on once it says where it ends
    /// (ZAB-07).
    pub(super) fn mend(&mut self, last: Zxid, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        match replica.history().last_at_or_before(last) {
            Some(shared) if shared == last => {
                cx.mark(if last == replica.log().appended() {
                    Mark::SyncDiffEmpty
                } else {
                    Mark::SyncDiff
                });
                self.sent = last;
                self.stage = Stage::CatchingUp;
                self.pump(replica, epoch, cx);
            }
            Some(shared) => {
                // It may not have this very position; each look is further back, so this ends.
                cx.mark(Mark::SyncTrunc);
                self.stage = Stage::Truncating;
                cx.tell(self.link, FromLeader::Trunc { to: shared });
            }
            None => match replica.newest_snapshot() {
                Some(zxid) => {
                    cx.mark(Mark::SyncSnap);
                    self.stage = Stage::Snapshotting { zxid, next: Some(0) };
                    self.pump(replica, epoch, cx);
                }
                // There was one, and it could not be read: the next one is being taken.
                None => {
                    cx.mark(Mark::SyncAwaitsSnapshot);
                    self.stage = Stage::Promised { last };
                }
            },
        }
    }

    /// The same for a learner that has just promised: it may be sent a snapshot where the log would do.
    pub(super) fn bring_in(
        &mut self,
        last: Zxid,
        replica: &Replica,
        epoch: Epoch,
        cx: &mut Cx<'_>,
    ) {
        let preferred = replica.newest_snapshot().filter(|zxid| {
            let shares = replica.history().last_at_or_before(last) == Some(last);
            cx.config.limits.prefer_snapshots && shares && *zxid > last
        });
        let Some(zxid) = preferred else {
            return self.mend(last, replica, epoch, cx);
        };
        cx.mark(Mark::SyncSnapPreferred);
        self.stage = Stage::Snapshotting { zxid, next: Some(0) };
        self.pump(replica, epoch, cx);
    }

    /// Sends the next piece, if the link has room for it.
    pub(super) fn pump(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        if self.reading || self.filling {
            return;
        }
        match self.stage {
            Stage::Snapshotting { zxid, next: Some(index) } => {
                self.reading = true;
                cx.out.disk.push(DiskCommand::ReadSnapshot { link: self.link, zxid, index });
            }
            Stage::CatchingUp => self.pump_log(replica, epoch, cx),
            Stage::Snapshotting { next: None, .. }
            | Stage::Informed
            | Stage::Promising
            | Stage::Promised { .. }
            | Stage::Truncating
            | Stage::Live
            | Stage::Synced
            | Stage::Serving => {}
        }
    }

    fn pump_log(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        let bulk = cx.config.limits.bulk_bytes;
        let Some(recent) = replica.recent().since(self.sent) else {
            cx.mark(Mark::SyncFromDisk);
            self.reading = true;
            let (link, after) = (self.link, self.sent);
            return cx.out.disk.push(DiskCommand::ReadLog { link, after, bytes: bulk });
        };
        cx.mark(Mark::SyncFromMemory);
        let mut bytes = 0;
        for entry in recent {
            if bytes > u64::from(bulk) {
                self.filling = true;
                return;
            }
            bytes += entry.bytes.len() as u64;
            self.sent = entry.zxid;
            cx.tell(self.link, FromLeader::Proposal(entry.clone()));
        }
        // In this very step nothing is left, so no proposal falls between.
        self.stage = Stage::Live;
        self.tell_voters(replica, epoch, cx);
    }

    /// Tells it the epoch, and which voters it is to keep: those of before, until a quorum has the history.
    fn tell_voters(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        self.told_voters = keeps_voters(replica, cx);
        cx.tell(self.link, replica.new_leader(epoch, cx.config));
    }

    /// Once a quorum has the history, so that the leader keeps the voters of this epoch: whoever keeps those of before is told.
    pub(super) fn renew_voters(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        if self.is_synced() && !self.told_voters && keeps_voters(replica, cx) {
            cx.mark(Mark::VotersRenewed);
            self.tell_voters(replica, epoch, cx);
        }
    }

    /// The disk has read what was asked for.
    ///
    /// # Errors
    /// What is needed is not there: the learner has to begin anew.
    pub(super) fn on_log_read(
        &mut self,
        found: Result<Vec<Entry>, String>,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        self.reading = false;
        for entry in found? {
            if entry.zxid <= self.sent || entry.zxid > replica.log().appended() {
                return Err(format!("the disk read {} after {}", entry.zxid, self.sent));
            }
            self.sent = entry.zxid;
            cx.tell(self.link, FromLeader::Proposal(entry));
        }
        self.filling = true;
        Ok(())
    }

    /// The same for a piece of a snapshot.
    ///
    /// # Errors
    /// As [`Learner::on_log_read`].
    pub(super) fn on_snapshot_read(
        &mut self,
        index: u32,
        found: Result<(bytes::Bytes, bool), String>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        self.reading = false;
        let (bytes, last) = found?;
        if let Stage::Snapshotting { zxid, next } = &mut self.stage {
            *next = (!last).then_some(index + 1);
            cx.tell(self.link, FromLeader::Snap { zxid: *zxid, index, bytes, last });
            self.filling = true;
        }
        Ok(())
    }

    /// The leader serves, and the learner has all that it needs to do so, too.
    pub(super) fn serve(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        self.stage = Stage::Serving;
        // It was silent because it waited for this. From now on silence has the shorter limit, and its own time to begin.
        self.heard = cx.now.mono;
        let committed = replica.log().committed();
        cx.tell(self.link, FromLeader::UpToDate { committed });
    }

    /// The link has room again.
    pub(super) fn on_drained(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        // To take what it is to catch up with is a sign of life, as nothing else may be heard of it for long. Who serves
        // answers pings, and a ping may leave towards a machine that is gone.
        if self.stage != Stage::Serving {
            self.heard = cx.now.mono;
        }
        self.filling = false;
        self.pump(replica, epoch, cx);
    }

    /// A proposal is made.
    pub(super) fn propose(&mut self, entry: &Entry, cx: &mut Cx<'_>) {
        if self.is_live() {
            self.sent = entry.zxid;
            if matches!(self.stage, Stage::Live) {
                cx.mark(Mark::SyncProposalLive);
            }
            self.owes_since.get_or_insert(cx.now.mono);
            cx.tell(self.link, FromLeader::Proposal(entry.clone()));
        } else if matches!(self.stage, Stage::CatchingUp | Stage::Snapshotting { .. }) {
            cx.mark(Mark::SyncMeanwhile);
        }
    }

    /// It has sent something. While it catches up, that is a sign of life, whatever it is.
    pub(super) fn on_message(&mut self, now: Instant) {
        if self.stage != Stage::Serving {
            self.heard = now;
        }
    }

    /// It has answered the ping that this leader sent at `echo`, at `sent` of its own clock.
    pub(super) fn on_pong(&mut self, sent: Instant, echo: Instant, now: Instant) {
        self.echo = sent;
        self.heard = self.heard.max(echo.min(now));
    }

    /// What the next ping tells it of its own clock.
    pub(super) fn echo(&self) -> Instant {
        self.echo
    }

    /// What it was told last of epoch and voters is on its disk. With the epoch it has taken over the history; what it was
    /// sent since, it acknowledges from now on. False where nobody has asked.
    pub(super) fn on_ack_new_leader(&mut self, now: Instant) -> bool {
        let asked = self.stage == Stage::Live
            || (self.stage == Stage::Synced && self.told_voters && !self.keeps_voters);
        if self.stage == Stage::Live {
            self.stage = Stage::Synced;
            self.owes_since = self.owes_since.map(|_| now);
        }
        self.keeps_voters |= asked && self.told_voters;
        asked
    }

    /// It has acknowledged.
    pub(super) fn on_ack(&mut self, zxid: Zxid, now: Instant) {
        self.owes_since = (zxid < self.sent).then_some(now);
    }

    /// When the leader gives it up, if nothing more is heard of it (ZAB-06, ZAB-18).
    pub(super) fn deadline(&self, cx: &Cx<'_>) -> Instant {
        let config = cx.config;
        let silent = if self.stage == Stage::Serving {
            self.heard.after(config.silence_limit())
        } else {
            self.heard.after(config.init_limit())
        };
        match self.owes_since {
            Some(since) if self.is_synced() => silent.min(since.after(config.sync_limit())),
            Some(_) | None => silent,
        }
    }
}

/// Does the leader keep the voters of this epoch?
fn keeps_voters(leader: &Replica, cx: &Cx<'_>) -> bool {
    leader.voters_before(cx.config) == *cx.config.voters()
}
