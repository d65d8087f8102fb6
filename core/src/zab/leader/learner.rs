//! A learner as its leader sees it (Java `LearnerHandler`, `LearnerMaster`): its stage, and what it
//! is sent next.
//!
//! Owns the stages from FOLLOWERINFO to live proposals. Must not decide anything about the epoch:
//! `leader` does.
//!
//! ```text
//! Informed ─► Promising ─► Promised ─► Truncating ─┐
//!                             │    ▲───────────────┘ last zxid reported
//!                             ├──► Snapshotting ───┐
//!                             ▼                    │ installed
//!                         CatchingUp ◄─────────────┘
//!                             │ nothing is left to send: NEWLEADER
//!                             ▼
//!                           Live ─► Synced ─► Serving        receives each proposal as it is made
//! ```
//!
//! A learner that observes is sent a transaction when it is committed, so it never has to truncate
//! what this leader has sent. It is synchronised once the leader serves, and it serves once
//! everything is committed that was logged before it came: writes of its clients, which an earlier
//! link has forwarded, may be among that.

use super::FollowerInfo;
use crate::cx::Cx;
use crate::ids::{Epoch, Instant, LinkId, ServerId, Zxid};
use crate::io::Mark;
use crate::log::Log;
use crate::membership::{HistoryInfo, HistoryStatus};
use crate::peer::FromLeader;
use crate::peer::greeting::FIRST_RECONFIGURABLE;
use crate::replica::Replica;
use crate::store::{DiskCommand, Entry};

/// See the module.
#[derive(Debug)]
pub(super) struct Learner {
    pub(super) link: LinkId,
    pub(super) server: ServerId,
    /// Is it a voter? Nothing that another learner promises or acknowledges counts.
    pub(super) votes: bool,
    /// Its history, from FOLLOWERINFO.
    pub(super) history: HistoryInfo,
    /// Its accepted epoch, from FOLLOWERINFO.
    pub(super) accepted: Epoch,
    /// Does it run a release that cannot read a reconfiguration?
    pub(super) older: bool,
    pub(super) stage: Stage,
    /// The last transaction that it has been sent.
    sent: Zxid,
    /// Has it been sent the voters of this epoch?
    sent_voters: bool,
    /// Has it recorded them durably?
    keeps_voters: bool,
    /// Is a disk read for it under way?
    reading: bool,
    /// Must the send queue of the link drain before more is sent?
    awaiting_drain: bool,
    /// When the learner was last known to be alive. While it serves, this is the send time of the
    /// newest ping that it has answered: a message that has waited in a queue does not show that
    /// the learner is alive now.
    last_received: Instant,
    /// The learner's clock in its last PONG.
    echo: Instant,
    /// When `sent` was sent, if the learner was live.
    sent_at: Instant,
    /// The proposal whose acknowledgement is timed, and since when (Java `SyncLimitCheck`). If any
    /// acknowledgement restarted the time, a learner that lags further and further would be kept,
    /// and the proposals that wait for it would have no bound.
    marked: Option<(Zxid, Instant)>,
    /// The zxid that it has acknowledged.
    acked: Zxid,
    /// The zxid that it had been sent before a ping that it has answered.
    received: Zxid,
    /// The zxid that it had been sent before a ping that it has not answered, and the time of that
    /// ping. Later pings leave the mark alone, so there is one at most.
    pinged: Option<(Zxid, Instant)>,
    /// If it observes: the end of the log when its synchronisation began, which must be committed
    /// before it serves. It forwards every write again that is not in its history then.
    known_from: Zxid,
    /// Has its state file certainly no mark that it may have lost data? With that mark it can lead
    /// no ensemble and elect no leader, and it acknowledges no proposal.
    pub(super) is_complete: bool,
    /// Has it fed observers, and relayed their requests?
    pub(super) relays: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Has sent FOLLOWERINFO.
    Informed,
    /// Has been sent LEADERINFO.
    Promising,
    /// Has sent ACKEPOCH: its history ends at `last`, and the leader may synchronise it.
    Promised { last: Zxid },
    /// Has been sent TRUNC, and will report its last zxid.
    Truncating,
    /// Is being sent a snapshot, of which chunk `next` is due; after the last chunk it reports its
    /// last zxid.
    Snapshotting { zxid: Zxid, next: Option<u32> },
    /// Is being sent the log.
    CatchingUp,
    /// Has been sent the whole history and NEWLEADER, and receives new proposals.
    Live,
    /// Has the history and the epoch durably.
    Synced,
    /// Serves clients.
    Serving,
}

impl Learner {
    pub(super) fn new(
        link: LinkId,
        server: ServerId,
        votes: bool,
        info: FollowerInfo,
        now: Instant,
    ) -> Learner {
        let FollowerInfo { accepted, history, version } = info;
        Learner {
            link,
            server,
            votes,
            history,
            accepted,
            older: version < FIRST_RECONFIGURABLE,
            stage: Stage::Informed,
            sent: Zxid::ZERO,
            sent_voters: false,
            keeps_voters: false,
            reading: false,
            awaiting_drain: false,
            last_received: now,
            echo: Instant(0),
            sent_at: now,
            marked: None,
            acked: Zxid::ZERO,
            received: Zxid::ZERO,
            pinged: None,
            known_from: Zxid::ZERO,
            is_complete: history.history_status == HistoryStatus::Complete,
            relays: false,
        }
    }

    /// Is it sent INFORM for what is committed, instead of PROPOSAL and COMMIT? Releases before 0.3
    /// do not know that message.
    pub(super) fn is_informed(&self) -> bool {
        !self.older && !self.votes
    }

    /// The end of what it may be sent: the log, or the committed part of it.
    fn sendable(&self, log: &Log) -> Zxid {
        if self.is_informed() { log.committed() } else { log.appended() }
    }

    /// Checks that it has been sent no more than the log, and all that it may be sent once it is
    /// live.
    pub(super) fn check_sent(&self, log: &Log) {
        let Learner { server, sent, .. } = self;
        let (appended, sendable) = (log.appended(), self.sendable(log));
        assert!(*sent <= appended, "server {server} was sent {sent}, beyond {appended}");
        let lacks = self.is_live() && *sent < sendable;
        assert!(!lacks, "live server {server} was sent {sent}, short of {sendable}");
        let is_syncing = self.is_syncing();
        assert!(is_syncing || !self.reading, "a read for server {server} in {:?}", self.stage);
        let acked = !self.keeps_voters || self.sent_voters && self.is_synced();
        assert!(acked, "server {server} keeps voters that it was not sent: {:?}", self.stage);
    }

    /// Does it receive proposals as they are made?
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live | Stage::Synced | Stage::Serving)
    }

    /// Has it the leader's history durably?
    pub(super) fn is_synced(&self) -> bool {
        matches!(self.stage, Stage::Synced | Stage::Serving)
    }

    /// Has it also recorded the voters of this epoch?
    pub(super) fn is_ready(&self) -> bool {
        self.is_synced() && self.keeps_voters
    }

    /// May it serve, as soon as the leader does?
    pub(super) fn may_serve(&self, log: &Log) -> bool {
        let knows = !self.is_informed() || self.known_from <= log.committed();
        self.stage == Stage::Synced && self.keeps_voters && knows
    }

    /// Has it been sent the whole log?
    pub(super) fn has_log(&self, log: &Log) -> bool {
        self.sent == log.appended()
    }

    /// Is its history being synchronised with the leader's?
    pub(super) fn is_syncing(&self) -> bool {
        matches!(self.stage, Stage::Truncating | Stage::Snapshotting { .. } | Stage::CatchingUp)
    }

    /// The learner has reported its last zxid after TRUNC or a snapshot: marks what follows.
    pub(super) fn note_answer(&self, last: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        let shares = replica.history().last_at_or_before(last) == Some(last);
        let complete = last == self.sendable(replica.log());
        match (self.stage == Stage::Truncating, shares, complete) {
            (true, false, _) => cx.mark(Mark::SyncTruncAgain),
            (true, true, true) => cx.mark(Mark::SyncTruncOnly),
            (true, true, false) => cx.mark(Mark::SyncTruncDiff),
            (false, _, false) => cx.mark(Mark::SyncSnapDiff),
            (false, _, true) => {}
        }
    }

    /// The zxid after which it needs the log, or the zxid of the snapshot that it needs.
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

    /// Begins or continues to synchronise a learner whose history ends at `last` (ZAB-07). The
    /// leader's history is final by now.
    pub(super) fn choose_sync_mode(
        &mut self,
        last: Zxid,
        replica: &Replica,
        epoch: Epoch,
        cx: &mut Cx<'_>,
    ) {
        let current = replica.state().current_epoch;
        assert!(epoch == current, "synchronisation with epoch {epoch} in epoch {current}");
        assert!(!self.is_live() && !self.reading, "{last} is reported in {:?}", self.stage);
        match replica.history().last_at_or_before(last) {
            Some(shared) if shared == last => {
                cx.mark(if last == self.sendable(replica.log()) {
                    Mark::SyncDiffEmpty
                } else {
                    Mark::SyncDiff
                });
                self.sent = last;
                self.stage = Stage::CatchingUp;
                self.send_next(replica, epoch, cx);
            }
            Some(shared) => {
                // The learner may lack this zxid; each further TRUNC goes further back, so this
                // ends.
                cx.mark(Mark::SyncTrunc);
                self.stage = Stage::Truncating;
                cx.send_peer(self.link, FromLeader::Trunc { to: shared });
            }
            None => match replica.newest_snapshot() {
                Some(zxid) => {
                    cx.mark(Mark::SyncSnap);
                    self.stage = Stage::Snapshotting { zxid, next: Some(0) };
                    self.send_next(replica, epoch, cx);
                }
                // The snapshot was unreadable: another one is being taken.
                None => {
                    cx.mark(Mark::SyncAwaitsSnapshot);
                    self.stage = Stage::Promised { last };
                }
            },
        }
    }

    /// The same for a learner that has just promised: it may be sent a snapshot although the log
    /// would suffice, because that part of the log is larger than a share of the snapshot, or
    /// always (`prefer_snapshots`). A learner holds what it receives of the log in memory, because
    /// nothing of it is applied before the learner serves; a snapshot becomes its state.
    pub(super) fn start_sync(
        &mut self,
        last: Zxid,
        replica: &Replica,
        epoch: Epoch,
        cx: &mut Cx<'_>,
    ) {
        self.known_from = replica.log().appended();
        let shares = replica.history().last_at_or_before(last) == Some(last);
        let newer = replica.newest_snapshot().filter(|zxid| shares && *zxid > last);
        let (limits, in_memory) = (&cx.config.limits, replica.recent().since(last).is_some());
        let is_smaller =
            |zxid| !in_memory && replica.is_log_large(last, zxid, limits.snapshot_size_factor);
        let Some(zxid) = newer.filter(|zxid| limits.prefer_snapshots || is_smaller(*zxid)) else {
            return self.choose_sync_mode(last, replica, epoch, cx);
        };
        let preferred = limits.prefer_snapshots;
        cx.mark(if preferred { Mark::SyncSnapPreferred } else { Mark::SyncSnapSmaller });
        self.stage = Stage::Snapshotting { zxid, next: Some(0) };
        self.send_next(replica, epoch, cx);
    }

    /// Sends the next chunk or the next log entries, if the link has room.
    pub(super) fn send_next(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        if self.reading || self.awaiting_drain {
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
        let sendable = self.sendable(replica.log());
        let recent = replica.recent().since(self.sent);
        let Some(recent) = recent else {
            // What follows may be on the disk only, and not committed yet.
            if self.sent < sendable {
                cx.mark(Mark::SyncFromDisk);
                self.reading = true;
                let (link, after) = (self.link, self.sent);
                cx.out.disk.push(DiskCommand::ReadLog { link, after, bytes: bulk });
            }
            return;
        };
        cx.mark(Mark::SyncFromMemory);
        let mut bytes = 0;
        for entry in recent.take_while(|entry| entry.zxid <= sendable) {
            if bytes > u64::from(bulk) {
                self.awaiting_drain = true;
                return;
            }
            bytes += entry.bytes.len() as u64;
            self.sent = entry.zxid;
            cx.send_peer(self.link, FromLeader::Proposal(entry.clone()));
        }
        // The learner becomes live in the step that sends the last entry, so it misses no proposal.
        self.stage = Stage::Live;
        self.check_sent(replica.log());
        self.send_voters(replica, epoch, cx);
    }

    /// Sends NEWLEADER with the voters to record: those of the last established epoch, until a
    /// quorum has the history.
    fn send_voters(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        self.sent_voters = keeps_voters(replica, cx);
        if !self.is_synced() {
            // Its answer shows that it has all that precedes this message.
            self.pinged = Some((self.sent, cx.now.mono));
        }
        cx.send_peer(self.link, replica.new_leader(epoch, cx));
    }

    /// Sends NEWLEADER again once the leader has recorded the voters of this epoch, if the learner
    /// has recorded the former ones.
    pub(super) fn renew_voters(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        if self.is_synced() && !self.sent_voters && keeps_voters(replica, cx) {
            cx.mark(Mark::VotersRenewed);
            self.send_voters(replica, epoch, cx);
        }
    }

    /// The disk has read log entries for the learner.
    ///
    /// # Errors
    /// The entries are unreadable or wrong: the learner must connect again.
    pub(super) fn on_log_read(
        &mut self,
        found: Result<Vec<Entry>, String>,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        let reads = self.reading && self.stage == Stage::CatchingUp;
        assert!(reads, "the log was read for a learner in {:?}", self.stage);
        self.reading = false;
        let sendable = self.sendable(replica.log());
        for entry in found? {
            if entry.zxid <= self.sent || entry.zxid > replica.log().appended() {
                return Err(format!("the disk read {} after {}", entry.zxid, self.sent));
            }
            if entry.zxid > sendable {
                break;
            }
            self.sent = entry.zxid;
            cx.send_peer(self.link, FromLeader::Proposal(entry));
        }
        self.awaiting_drain = true;
        Ok(())
    }

    /// The disk has read a chunk of a snapshot for the learner.
    ///
    /// # Errors
    /// As [`Learner::on_log_read`].
    pub(super) fn on_snapshot_read(
        &mut self,
        index: u32,
        found: Result<(bytes::Bytes, bool), String>,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        assert!(self.reading, "chunk {index} was read for a learner in {:?}", self.stage);
        self.reading = false;
        let (bytes, last) = found?;
        if let Stage::Snapshotting { zxid, next } = &mut self.stage {
            assert!(*next == Some(index), "chunk {index} was read instead of {next:?}");
            *next = (!last).then_some(index + 1);
            cx.send_peer(self.link, FromLeader::Snap { zxid: *zxid, index, bytes, last });
            self.awaiting_drain = true;
        }
        Ok(())
    }

    /// The leader serves, and the learner is ready to serve: sends UPTODATE.
    pub(super) fn serve(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        let ready = self.may_serve(replica.log());
        assert!(ready, "server {} is to serve in {:?}", self.server, self.stage);
        self.check_sent(replica.log());
        self.stage = Stage::Serving;
        // The learner was silent because it waited for UPTODATE. From now on the shorter silence
        // limit applies.
        self.last_received = cx.now.mono;
        let committed = replica.log().committed();
        cx.send_peer(self.link, FromLeader::UpToDate { committed });
    }

    /// The send queue of the link is empty.
    pub(super) fn on_drained(&mut self, replica: &Replica, epoch: Epoch, cx: &mut Cx<'_>) {
        // Until the learner serves, draining the link is a sign of life, because it may send
        // nothing for long. A serving learner answers pings; for it, draining proves nothing,
        // because a ping may be sent to a machine that is down.
        if self.stage != Stage::Serving {
            self.last_received = cx.now.mono;
        }
        self.awaiting_drain = false;
        self.send_next(replica, epoch, cx);
    }

    /// Sends a new proposal, if the learner is live and votes.
    pub(super) fn propose(&mut self, entry: &Entry, cx: &mut Cx<'_>) {
        if self.is_live() {
            if self.is_informed() {
                return;
            }
            assert!(entry.zxid > self.sent, "{} is sent after {}", entry.zxid, self.sent);
            self.sent = entry.zxid;
            if matches!(self.stage, Stage::Live) {
                cx.mark(Mark::SyncProposalLive);
            }
            if self.votes {
                self.sent_at = cx.now.mono;
                self.marked.get_or_insert((entry.zxid, cx.now.mono));
            }
            cx.send_peer(self.link, FromLeader::Proposal(entry.clone()));
        } else if matches!(self.stage, Stage::CatchingUp | Stage::Snapshotting { .. }) {
            cx.mark(Mark::SyncMeanwhile);
        }
    }

    /// The history is committed up to `zxid`: sends COMMIT if the learner serves. If it is to be
    /// informed, sends INFORM for each transaction that it lacks, or PROPOSAL until it serves.
    pub(super) fn commit(&mut self, zxid: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        let serves = self.stage == Stage::Serving;
        if self.is_informed() && self.stage == Stage::CatchingUp {
            return self.send_next(replica, replica.state().current_epoch, cx);
        }
        if !self.is_informed() || !self.is_live() || zxid <= self.sent {
            if serves {
                cx.send_peer(self.link, FromLeader::Commit { zxid });
            }
            return;
        }
        cx.mark(if serves { Mark::Informed } else { Mark::InformedEarly });
        for entry in self.lacking(replica).take_while(|entry| entry.zxid <= zxid) {
            let entry = entry.clone();
            let message =
                if serves { FromLeader::Inform(entry) } else { FromLeader::Proposal(entry) };
            cx.send_peer(self.link, message);
        }
        self.sent = zxid;
    }

    /// What a live learner has not been sent.
    fn lacking<'a>(&self, replica: &'a Replica) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let recent = replica.recent().since(self.sent);
        recent.expect("what learners are to be informed of stays in memory")
    }

    /// The learner is a voter from now on, or is none. One that does not vote acknowledges nothing.
    /// A new voter is sent what is not committed yet: its acknowledgement may be needed.
    pub(super) fn set_votes(&mut self, votes: bool, replica: &Replica, cx: &mut Cx<'_>) {
        let was_informed = self.is_informed();
        self.votes = votes;
        self.marked = self.marked.filter(|_| votes);
        if was_informed && !self.is_informed() && self.is_live() {
            cx.mark(Mark::ObserverVotes);
            let lacking = Vec::from_iter(self.lacking(replica).cloned());
            lacking.iter().for_each(|entry| self.propose(entry, cx));
        }
    }

    /// The learner is sent LEADERINFO. Without data, it takes for lost what it may have had, unless
    /// it is told that there was nothing.
    pub(super) fn on_leader_info(&mut self, empty: bool) {
        self.stage = Stage::Promising;
        self.is_complete |= empty && self.history.history_status == HistoryStatus::Uninitialized;
    }

    /// The learner has sent a message. Until it serves, any message is a sign of life.
    pub(super) fn on_message(&mut self, now: Instant) {
        if self.stage != Stage::Serving {
            self.last_received = now;
        }
    }

    /// The learner has answered the ping that this leader sent at `echo`; `sent` is the learner's
    /// own clock.
    pub(super) fn on_pong(&mut self, sent: Instant, echo: Instant, now: Instant) {
        self.echo = sent;
        self.last_received = self.last_received.max(echo.min(now));
        if let Some((zxid, _)) = self.pinged.take_if(|(_, at)| *at <= echo) {
            self.received = self.received.max(zxid);
        }
    }

    /// The learner is sent a ping.
    pub(super) fn on_ping(&mut self, now: Instant) {
        self.pinged.get_or_insert((self.sent, now));
    }

    /// The zxid up to which it certainly has the log: durably, if it is a voter.
    pub(super) fn has(&self) -> Zxid {
        if self.votes { self.acked } else { self.acked.max(self.received) }
    }

    /// Since when it lacks something, at the latest.
    pub(super) fn lacks_since(&self) -> Instant {
        self.marked.map_or(self.last_received, |(_, since)| since)
    }

    /// The learner's clock value to send with the next ping.
    pub(super) fn echo(&self) -> Instant {
        self.echo
    }

    /// The learner has the content of the last NEWLEADER durably. The first time, it becomes
    /// synced, and must acknowledge all that it has been sent since, timed from now on. Returns
    /// `false` if no NEWLEADER was outstanding.
    pub(super) fn on_ack_new_leader(&mut self, now: Instant) -> bool {
        let asked = self.stage == Stage::Live
            || (self.stage == Stage::Synced && self.sent_voters && !self.keeps_voters);
        if self.stage == Stage::Live {
            self.stage = Stage::Synced;
            self.acked = self.pinged.take().map_or(self.acked, |(zxid, _)| zxid);
            self.marked = self.marked.map(|_| (self.sent, now));
        }
        self.keeps_voters |= asked && self.sent_voters;
        asked
    }

    /// The learner has acknowledged `zxid`. With the marked proposal acknowledged, the newest one
    /// that was sent becomes the next mark, timed since it was sent.
    pub(super) fn on_ack(&mut self, zxid: Zxid) {
        assert!(self.is_synced(), "an acknowledgement counts in {:?}", self.stage);
        assert!(zxid <= self.sent, "ACK {zxid} counts, and {} was sent", self.sent);
        self.acked = self.acked.max(zxid);
        self.is_complete = true;
        if self.marked.is_some_and(|(mark, _)| mark <= zxid) {
            self.marked = (zxid < self.sent).then_some((self.sent, self.sent_at));
        }
    }

    /// When the leader drops the learner, unless it shows a sign of life (ZAB-06, ZAB-18).
    pub(super) fn deadline(&self, cx: &Cx<'_>) -> Instant {
        let config = cx.config;
        let silent = if self.stage == Stage::Serving {
            self.last_received.after(config.silence_limit())
        } else {
            self.last_received.after(config.init_limit())
        };
        match self.marked {
            Some((_, since)) if self.is_synced() => silent.min(since.after(config.sync_limit())),
            Some(_) | None => silent,
        }
    }
}

/// Has the leader recorded the voters of this epoch?
fn keeps_voters(leader: &Replica, cx: &Cx<'_>) -> bool {
    leader.voters_before(cx.config.id(), cx.voters) == *cx.voters
}
