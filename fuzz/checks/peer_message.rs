//! Messages of other servers that are near what a server expects: its epoch, its last zxid,
//! sessions that may exist.
//!
//! Owns how the bytes of an input become a message. Must not send them.

use bytes::Bytes;
use zabkeeper_core::peer::{
    FromLeader, FromLearner, Notification, PeerMessage, ServerState, SessionKind, Vote,
};
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::{
    ConnId, Epoch, ErrorCode, HistoryInfo, HistoryStatus, Identity, Instant, Seed, ServerId,
    SessionId, Status, WallMs, Zxid,
};

use super::request;
use super::source::Source;

/// What messages are drawn around: the status of the server that gets them, and its clock.
pub(super) struct Around {
    pub(super) status: Status,
    pub(super) now: Instant,
}

impl Around {
    pub(super) fn message(&self, source: &mut Source<'_>) -> PeerMessage {
        let timeout_ms = 4_000 + u32::from(source.byte());
        match source.below(23) {
            kind @ (0 | 2 | 5 | 9 | 11 | 14..=17 | 19) => {
                PeerMessage::Learner(self.learner_message(kind, timeout_ms, source))
            }
            kind @ (1 | 3 | 4 | 6..=8 | 10 | 12 | 13 | 18 | 21 | 22) => {
                PeerMessage::Leader(self.leader_message(kind, timeout_ms, source))
            }
            _ => PeerMessage::Learner(self.request(timeout_ms, source)),
        }
    }

    fn learner_message(&self, kind: u8, timeout_ms: u32, source: &mut Source<'_>) -> FromLearner {
        match kind {
            19 => FromLearner::Loading { done: 1, all: 0 },
            0 => FromLearner::FollowerInfo {
                accepted: self.epoch(source),
                history: history(source),
                ensemble: ensemble(source),
            },
            2 => FromLearner::AckEpoch {
                fresh: source.byte() & 1 == 0,
                current: self.epoch(source),
                last: self.zxid(source),
                nonce: u64::from(source.below(3)),
            },
            5 => FromLearner::SyncAt { last: self.zxid(source), nonce: u64::from(source.below(3)) },
            9 => FromLearner::AckNewLeader { epoch: self.epoch(source) },
            11 => FromLearner::Ack { zxid: self.zxid(source) },
            14 => FromLearner::Pong {
                round: u64::from(source.byte()),
                sent: Instant(near(source, self.now.0)),
                echo: Instant(near(source, self.now.0)),
                touched: vec![(session(source), timeout_ms)],
                digests: vec![(self.zxid(source), source.byte().into())],
            },
            15 => FromLearner::CreateSession { timeout_ms, origin: origin(source) },
            16 => FromLearner::Revalidate { conn: ConnId(7), session: session(source), timeout_ms },
            17 => FromLearner::Sync { conn: ConnId(7), request: u64::from(source.byte()) },
            _ => unreachable!("no message of a learner has the number {kind}"),
        }
    }

    fn leader_message(&self, kind: u8, timeout_ms: u32, source: &mut Source<'_>) -> FromLeader {
        match kind {
            18 => FromLeader::Differs { zxid: self.zxid(source) },
            22 => {
                let bytes = Bytes::copy_from_slice(source.bytes());
                FromLeader::Inform(Entry { zxid: self.zxid(source), bytes })
            }
            21 => FromLeader::TakeOver {
                vote: Vote {
                    epoch: self.epoch(source),
                    zxid: self.zxid(source),
                    candidate: ServerId(source.byte().into()),
                },
            },
            1 => FromLeader::LeaderInfo {
                epoch: self.epoch(source),
                empty: source.byte() & 1 == 0,
                ensemble: ensemble(source),
                blank: source.byte() & 1 == 0,
            },
            3 => FromLeader::Trunc { to: self.zxid(source) },
            4 => FromLeader::Snap {
                zxid: self.zxid(source),
                index: u32::from(source.below(3)),
                last: source.byte() & 1 == 0,
                bytes: Bytes::copy_from_slice(source.bytes()),
            },
            6 => {
                let bytes = Bytes::copy_from_slice(source.bytes());
                FromLeader::Proposal(Entry { zxid: self.zxid(source), bytes })
            }
            7 => {
                let next = self.status.appended.next().unwrap_or(Zxid::ZERO);
                let op = match source.below(3) {
                    0 => TxnOp::CloseSession,
                    1 => TxnOp::CreateSession { timeout_ms },
                    _ => TxnOp::Error { code: ErrorCode::NoNode },
                };
                let session = session(source);
                let txn = Txn { zxid: next, session, time: WallMs(0), origin: None, op };
                FromLeader::Proposal(txn.encode())
            }
            8 => FromLeader::NewLeader {
                epoch: self.epoch(source),
                voters: [ServerId(source.byte().into())].into(),
                established: [ServerId(source.byte().into())].into(),
                identity: Identity {
                    id: ensemble(source),
                    ..Seed::from(1).identity(self.epoch(source))
                },
                nonces: vec![Seed::from(1).epoch_nonce(self.epoch(source)); source.byte().into()],
            },
            10 => FromLeader::UpToDate { committed: self.zxid(source) },
            12 => FromLeader::Commit { zxid: self.zxid(source) },
            13 => FromLeader::Ping { round: 1, sent: self.now, echo: Instant(0) },
            _ => unreachable!("no message of a leader has the number {kind}"),
        }
    }

    fn request(&self, timeout_ms: u32, source: &mut Source<'_>) -> FromLearner {
        let session_kind = match source.below(3) {
            0 => SessionKind::Global,
            1 => SessionKind::Local,
            _ => SessionKind::Upgrading { timeout_ms },
        };
        let (session, origin) = (session(source), origin(source));
        let request = request::request(source, false);
        FromLearner::Request { session, origin, ids: [].into(), request, session_kind }
    }

    fn epoch(&self, source: &mut Source<'_>) -> Epoch {
        let epoch = near(source, u64::from(self.status.accepted_epoch.0));
        Epoch(u32::try_from(epoch).unwrap_or(u32::MAX))
    }

    fn zxid(&self, source: &mut Source<'_>) -> Zxid {
        Zxid(near(source, self.status.appended.0))
    }
}

/// A number around `of`, or an extreme one.
fn near(source: &mut Source<'_>, of: u64) -> u64 {
    match source.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => of.wrapping_sub(1),
        3 => of.wrapping_add(1),
        4 => u64::from(u32::MAX >> 1),
        _ => of,
    }
}

fn session(source: &mut Source<'_>) -> SessionId {
    match source.below(4) {
        0 => SessionId(source.long()),
        1 => SessionId(0),
        n => SessionId(i64::from(n) << 56 | i64::from(source.byte())),
    }
}

fn origin(source: &mut Source<'_>) -> Origin {
    Origin {
        server: ServerId(u64::from(source.below(4))),
        conn: ConnId(u64::from(source.byte())),
        request: u64::from(source.byte()),
    }
}

/// A notification near the last one that the server has sent.
pub(super) fn notification(sent: Option<Notification>, source: &mut Source<'_>) -> Notification {
    let vote = Vote {
        epoch: Epoch(u32::from(source.byte())),
        zxid: Zxid(u64::from(source.byte()) << 32),
        candidate: ServerId(u64::from(source.below(4))),
    };
    let vote = if source.byte() & 1 == 0 { vote } else { sent.map_or(vote, |sent| sent.vote) };
    let server_state = *[ServerState::Looking, ServerState::Following, ServerState::Leading]
        .get(usize::from(source.below(3)))
        .expect("one of them");
    let round = match source.below(4) {
        0 => u64::MAX,
        1 => 0,
        n => sent.map_or(0, |sent| sent.round).saturating_add(u64::from(n) - 2),
    };
    let (history, ensemble) = (history(source), ensemble(source));
    Notification { server_state, round, vote, history, ensemble }
}

fn ensemble(source: &mut Source<'_>) -> u64 {
    u64::from(source.below(3))
}

fn history_status(source: &mut Source<'_>) -> HistoryStatus {
    match source.below(4) {
        0 => HistoryStatus::Uninitialized,
        1 => HistoryStatus::Lost,
        _ => HistoryStatus::Complete,
    }
}

fn history(source: &mut Source<'_>) -> HistoryInfo {
    let newcomers = source.byte().into();
    HistoryInfo {
        history_status: history_status(source),
        epoch: Epoch(source.byte().into()),
        newcomers,
    }
}
