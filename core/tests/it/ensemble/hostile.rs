//! A hostile server that sends arbitrary messages on established links.
//!
//! Owns these messages. They may cost the ensemble a link, or the session or connection that they
//! name. But no server panics or logs an inapplicable transaction, and all that was logged survives
//! a restart. (The driver decides which servers get a link.)

use std::sync::Arc;

use zabkeeper_core::peer::{FromLeader, FromLearner, SessionKind};
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::{Lifetime, Origin, Txn, TxnOp};
use zabkeeper_core::wire::{Acl, Id, Perms, Request};
use zabkeeper_core::{ErrorCode, Halted, HistoryInfo, HistoryStatus, Mode, SessionId};

use super::*;

const LEADER: ServerId = ServerId(3);
const HOSTILE: ServerId = ServerId(1);
const FAR: Zxid = Zxid(u64::MAX >> 1);

/// Three serving servers with s3 as leader, and a node created by a client of s2.
fn ensemble() -> Play {
    let mut play = Play::new();
    for line in [
        "ensemble 3",
        "start",
        "s2 c1 open timeout=60000",
        "settle",
        "s2 c1 create /kept",
        "settle",
    ] {
        play.command(&Vec::from_iter(line.split_whitespace()));
    }
    assert_eq!(play.server(LEADER).unwrap().status().mode, Mode::Leader);
    play
}

impl Play {
    fn run_line(&mut self, line: &str) {
        self.command(&Vec::from_iter(line.split_whitespace()));
    }

    /// `to` receives `message` from `from`, on the newest link between them.
    fn inject(&mut self, from: ServerId, to: ServerId, message: PeerMessage) {
        let end = self.wires.iter().rev().find_map(|wire| {
            let ours = wire.ends.iter().position(|end| end.server == to && end.up)?;
            (wire.ends[1 - ours].server == from).then_some(wire.ends[ours].link)
        });
        if let Some(link) = end {
            self.step(to, Input::Peer(link, PeerEvent::Message(message)));
        }
    }

    /// Someone comes to the leader in the name of `peer`, says FOLLOWERINFO, and is gone.
    fn visits(&mut self, peer: ServerId, accepted: Epoch, history: HistoryInfo) {
        let info = FromLearner::FollowerInfo { accepted, history, ensemble: 0 };
        let message = PeerEvent::Message(PeerMessage::Learner(info));
        for event in [PeerEvent::Up { peer, dialled: false }, message, PeerEvent::Down] {
            self.step(LEADER, Input::Peer(LinkId(1 << 40), event));
        }
    }

    /// The newest session created for a client of this server.
    fn newest_session(&self, of: ServerId) -> Option<SessionId> {
        let sessions = self.server(LEADER).unwrap().sessions();
        let byte = u8::try_from(of.0).unwrap();
        sessions.iter().map(|info| info.id).filter(|id| id.0.to_be_bytes()[0] == byte).max()
    }

    /// Restarts all servers, and checks that they can apply what is on their disks, and serve.
    fn survives(mut self, story: &str) {
        let halted = |play: &Play| {
            let status = (1..=3).map(|n| play.server(ServerId(n)).unwrap().status());
            Vec::from_iter(status.filter_map(|status| status.halted))
        };
        assert!(halted(&self).is_empty(), "{story}: {:?}", halted(&self));
        for line in ["kill 1 2 3", "boot 1 2 3", "wait 20000"] {
            self.run_line(line);
        }
        assert!(halted(&self).is_empty(), "{story}: {:?}", halted(&self));
        let mut digests = BTreeSet::new();
        for n in 1..=3 {
            let server = self.server(ServerId(n)).unwrap();
            assert!(server.status().serving, "{story}: s{n} does not serve\n{}", self.trace);
            digests.insert((server.status().applied, server.digest()));
        }
        assert_eq!(digests.len(), 1, "{story}");
    }
}

fn origin(request: u64) -> Origin {
    Origin { server: HOSTILE, conn: ConnId(7_000), request }
}

fn create(path: &str, flags: i32) -> Request {
    let acl = vec![Acl { perms: Perms(31), scheme: "world".into(), id: "anyone".into() }];
    Request::Create { path: path.into(), data: None, acl, flags, with_stat: false }
}

fn request(session: SessionId, request: Request, session_kind: SessionKind) -> PeerMessage {
    let ids = [Arc::new(Id { scheme: "ip".into(), id: "::1".into() })].into();
    PeerMessage::Learner(FromLearner::Request {
        session,
        origin: origin(1),
        ids,
        request,
        session_kind,
    })
}

/// If both transactions were logged, no server could ever apply the second one.
#[test]
fn proposed_session_is_not_created_again_by_an_upgrade() {
    let mut play = ensemble();
    let begin = || {
        PeerMessage::Learner(FromLearner::CreateSession { timeout_ms: 60_000, origin: origin(0) })
    };
    play.inject(HOSTILE, LEADER, begin());
    play.run_line("settle");
    let SessionId(first) = play.newest_session(HOSTILE).expect("it has begun one");
    let (next, ephemeral) = (SessionId(first + 1), || create("/e", 1));
    play.inject(HOSTILE, LEADER, begin());
    play.inject(
        HOSTILE,
        LEADER,
        request(next, ephemeral(), SessionKind::Upgrading { timeout_ms: 60_000 }),
    );
    play.run_line("settle");
    // The reverse order: an upgrade uses the next session id before the leader assigns it.
    let next = SessionId(first + 2);
    play.inject(
        HOSTILE,
        LEADER,
        request(next, ephemeral(), SessionKind::Upgrading { timeout_ms: 60_000 }),
    );
    play.inject(HOSTILE, LEADER, begin());
    play.inject(HOSTILE, LEADER, begin());
    play.run_line("settle");
    assert!(play.server(LEADER).unwrap().sessions().len() >= 4);
    play.survives("begun twice");
}

#[test]
fn requests_impossible_for_clients_are_refused_before_logging() {
    for (what, session, asked, session_kind) in [
        ("local, unknown", 7, Request::CloseSession, SessionKind::Local),
        ("local, of another", 0x0200_0000_0000_0001, create("/x", 0), SessionKind::Local),
        ("upgrade of nobody's", 0, create("/x", 1), SessionKind::Upgrading { timeout_ms: 9 }),
        (
            "upgrade of a container",
            i64::MIN,
            create("/x", 1),
            SessionKind::Upgrading { timeout_ms: 9 },
        ),
        ("reads", 0x0100_0000_0000_0001, Request::Multi(vec![Request::Ping]), SessionKind::Local),
        (
            "an end in a multi",
            0x0100_0000_0000_0001,
            Request::Multi(vec![Request::CloseSession]),
            SessionKind::Local,
        ),
    ] {
        let mut play = ensemble();
        let before = play.server(LEADER).unwrap().status().appended;
        play.inject(HOSTILE, LEADER, request(SessionId(session), asked, session_kind));
        let status = play.server(LEADER).unwrap().status();
        assert_eq!((status.appended, status.learners), (before, 1), "{what}");
        play.run_line("settle");
        play.survives(what);
    }
}

/// If it counted, all servers would promise the epoch after it, and no epoch would be left for the
/// next election.
#[test]
fn single_promise_near_the_last_epoch_is_ignored() {
    for ahead in [Epoch::LEAD_MAX + 1, Epoch::END.0 - 2, Epoch::END.0 - 1, u32::MAX] {
        for history_status in
            [HistoryStatus::Complete, HistoryStatus::Uninitialized, HistoryStatus::Lost]
        {
            let mut play = Play::new();
            for line in ["ensemble 3", "boot 3", "settle"] {
                play.run_line(line);
            }
            play.visits(HOSTILE, Epoch(ahead), HistoryInfo::new(history_status, Epoch(0)));
            play.run_line("boot 1 2");
            play.run_line("wait 20000");
            for n in 1..=3 {
                let status = play.server(ServerId(n)).unwrap().status();
                assert!(
                    status.serving && status.accepted_epoch < Epoch(9),
                    "{ahead} {history_status:?} s{n}"
                );
            }
        }
    }
}

/// Seed 0x112902001d8d of the swarm at 1dddf9d: an epoch that no server can have made a quorum with
/// one far ahead, and the leader promised that one.
#[test]
fn promises_beyond_the_last_epoch_support_no_other_one() {
    let far = 2 * Epoch::LEAD_MAX;
    for (first, last) in [(Epoch::END.0, far), (far, u32::MAX)] {
        let mut play = ensemble();
        for (peer, accepted) in [(ServerId(1), first), (ServerId(2), last)] {
            let lost = HistoryInfo::new(HistoryStatus::Lost, Epoch(0));
            play.visits(peer, Epoch(accepted), lost);
        }
        play.run_line("wait 20000");
        for n in 1..=3 {
            let status = play.server(ServerId(n)).unwrap().status();
            let stays = status.serving && status.accepted_epoch < Epoch(9);
            assert!(stays, "{first} {last} s{n} {status:?}");
        }
    }
}

/// ZAB-23: an observer whose master is no longer heard loses its link, so that it finds another
/// one. Otherwise its clients would wait for answers for ever.
#[test]
fn observer_whose_place_someone_takes_attaches_again() {
    let mut play = Play::new();
    for line in ["ensemble 3 observers 1", "config masters=1", "start", "settle"] {
        play.run_line(line);
    }
    let observer = ServerId(4);
    let accepted = play.server(observer).unwrap().status().accepted_epoch;
    play.visits(observer, accepted, HistoryInfo::new(HistoryStatus::Complete, accepted));
    play.run_line("s4 c1 open");
    play.run_line("wait 2000");
    assert!(play.newest_session(observer).is_some(), "{}", play.trace);
}

#[test]
fn promise_far_ahead_counts_if_a_quorum_has_made_it() {
    let mut play = Play::new();
    for line in ["ensemble 3", "start", "kill 1 2 3"] {
        play.run_line(line);
    }
    for n in [1, 2] {
        play.members.get_mut(&ServerId(n)).unwrap().disk.state.accepted_epoch = Epoch(1 << 20);
    }
    play.run_line("boot 1 2 3");
    play.run_line("wait 30000");
    for n in 1..=3 {
        let status = play.server(ServerId(n)).unwrap().status();
        assert!(status.serving && status.current_epoch > Epoch(1 << 20), "s{n} {status:?}");
    }
}

/// A learner forwards a request that names, as its origin, a client's request for something else.
#[test]
fn forged_origin_does_not_stop_any_server() {
    let mut play = ensemble();
    play.run_line("s1 c9 open timeout=60000");
    play.run_line("settle");
    play.run_line("hold 1->3");
    play.run_line("s1 c9 multi create /a ; create /b");
    let session = play.newest_session(HOSTILE).unwrap();
    let ids = [Arc::new(Id { scheme: "ip".into(), id: "::1".into() })].into();
    for number in [1, 5] {
        let origin = Origin { server: HOSTILE, conn: ConnId(9), request: number };
        let (request, session_kind) = (create("/c", 0), SessionKind::Global);
        let said = PeerMessage::Learner(FromLearner::Request {
            session,
            origin,
            ids: Arc::clone(&ids),
            request,
            session_kind,
        });
        play.inject(HOSTILE, LEADER, said);
    }
    play.run_line("release 1->3");
    play.run_line("settle");
    play.survives("spoken for");
}

/// A server that logged it would lead the next epoch with a log that is ahead of it.
#[test]
fn proposal_above_the_promised_epoch_is_refused_before_logging() {
    let mut play = ensemble();
    let before = play.server(HOSTILE).unwrap().status();
    let zxid = Zxid::start_of(Epoch(before.accepted_epoch.0 + 1_000)).next().unwrap();
    let op = TxnOp::Create {
        path: "/later".into(),
        data: None,
        acl: Vec::new(),
        lifetime: Lifetime::Persistent,
        parent_creates: 2,
    };
    let txn = Txn { zxid, session: SessionId(5), time: WallMs(1), origin: None, op };
    play.inject(LEADER, HOSTILE, PeerMessage::Leader(FromLeader::Proposal(txn.encode())));
    let after = play.server(HOSTILE).unwrap().status();
    assert_eq!((after.appended, after.leader), (before.appended, None));
    for line in ["wait 20000", "s2 c1 create /after", "settle"] {
        play.run_line(line);
    }
    play.survives("a proposal of a later epoch");
}

#[test]
fn inapplicable_transaction_halts_the_server_and_is_reported() {
    let mut play = ensemble();
    let status = play.server(HOSTILE).unwrap().status();
    let zxid = status.appended.next().unwrap();
    let op = TxnOp::Delete { path: "/none".into() };
    let txn = Txn { zxid, session: SessionId(5), time: WallMs(1), origin: None, op };
    play.inject(LEADER, HOSTILE, PeerMessage::Leader(FromLeader::Proposal(txn.encode())));
    play.inject(LEADER, HOSTILE, PeerMessage::Leader(FromLeader::Commit { zxid }));
    let halted = play.server(HOSTILE).unwrap().status().halted.expect("it has stopped");
    assert_eq!(
        halted.to_string(),
        format!(
            "transaction {zxid} of session 0x5 (delete /none) cannot be applied: /none does not \
             exist"
        )
    );
    let server = play.server(HOSTILE).unwrap();
    assert_eq!((server.status().serving, server.next_deadline()), (false, None));
    assert_eq!(server.status().applied, status.applied);
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).expect("few")].clone()
    }

    fn zxid(&mut self, near: Zxid) -> Zxid {
        match self.below(5) {
            0 => Zxid::ZERO,
            1 => FAR,
            2 => Zxid(near.0.saturating_sub(self.below(4))),
            3 => Zxid::start_of(Epoch(near.epoch().0 + 1)),
            _ => Zxid(near.0 + self.below(3)),
        }
    }

    fn epoch(&mut self, near: Epoch) -> Epoch {
        let ahead = self.pick(&[0, 1, 2, 1 << 20, Epoch::END.0 - 3 - near.0]);
        Epoch(near.0 + ahead)
    }

    fn path(&mut self) -> String {
        self.pick(&["/", "/kept", "/a", "/a/b", "a", "/zookeeper/quota", "//"]).into()
    }

    fn write(&mut self) -> Request {
        let (path, version) = (self.path(), -1);
        match self.below(9) {
            0..3 => create(&path, i32::try_from(self.below(8)).unwrap()),
            3 => Request::Delete { path, version },
            4 => Request::SetData { path, data: None, version },
            5 => Request::CloseSession,
            6 => Request::Multi(vec![create(&path, 1), Request::CloseSession]),
            7 => Request::GetData { path, watch: true },
            _ => Request::CreateTtl { path, data: None, acl: vec![], flags: 5, ttl: -9 },
        }
    }

    fn op(&mut self) -> TxnOp {
        let path = self.path();
        match self.below(9) {
            0 => TxnOp::Delete { path },
            1 => TxnOp::SetData { path, data: None, version: -7 },
            2 => TxnOp::CloseSession,
            3 => TxnOp::CreateSession { timeout_ms: 0 },
            4 => TxnOp::MoveSession { server: ServerId(9) },
            5 => TxnOp::Multi(vec![TxnOp::Delete { path }, TxnOp::CloseSession]),
            6 => TxnOp::MultiRefused { count: 2, failed: 9, code: ErrorCode::NoNode },
            7 => TxnOp::SetAcl { path, acl: vec![], version: 1 },
            _ => {
                let lifetime = Lifetime::Ttl { ms: self.below(2) << 50 };
                TxnOp::Create { path, data: None, acl: vec![], lifetime, parent_creates: -1 }
            }
        }
    }

    fn session(&mut self, play: &Play) -> SessionId {
        let newest = play.newest_session(HOSTILE).unwrap_or_default();
        let known = play.newest_session(ServerId(2)).unwrap_or_default();
        let [next, none, container, ttl] = [newest.0 + 1, 0, i64::MIN, -1].map(SessionId);
        self.pick(&[newest, next, known, none, container, ttl])
    }

    fn of_learner(&mut self, play: &Play) -> PeerMessage {
        let status = play.server(LEADER).unwrap().status();
        let zxid = self.zxid(status.appended);
        let (session, epoch) = (self.session(play), self.epoch(status.accepted_epoch));
        let timeout_ms = 60_000;
        match self.below(12) {
            0..4 => {
                let standings = [
                    SessionKind::Global,
                    SessionKind::Local,
                    SessionKind::Upgrading { timeout_ms },
                ];
                let session_kind = self.pick(&standings);
                request(session, self.write(), session_kind)
            }
            4..6 => {
                PeerMessage::Learner(FromLearner::CreateSession { timeout_ms, origin: origin(0) })
            }
            6 => PeerMessage::Learner(FromLearner::Revalidate {
                conn: ConnId(7_000),
                session,
                timeout_ms,
            }),
            7 => PeerMessage::Learner(FromLearner::Ack { zxid }),
            8 => PeerMessage::Learner(FromLearner::AckEpoch {
                fresh: true,
                current: epoch,
                last: zxid,
                nonce: 0,
            }),
            9 => {
                let history = HistoryInfo::new(HistoryStatus::Complete, epoch);
                PeerMessage::Learner(FromLearner::FollowerInfo {
                    accepted: epoch,
                    history,
                    ensemble: 0,
                })
            }
            10 => PeerMessage::Learner(FromLearner::SyncAt { last: zxid, nonce: 0 }),
            _ => PeerMessage::Learner(FromLearner::Pong {
                round: self.below(4),
                sent: Instant(u64::MAX),
                echo: Instant(u64::MAX),
                touched: vec![(session, u32::MAX)],
                digests: vec![(zxid, 7)],
            }),
        }
    }

    fn of_leader(&mut self, play: &Play) -> PeerMessage {
        let status = play.server(HOSTILE).unwrap().status();
        let zxid = self.zxid(status.appended);
        let epoch = self.epoch(status.accepted_epoch);
        match self.below(10) {
            0..3 => {
                let (session, op) = (self.session(play), self.op());
                let origin = Some(origin(self.below(3))).filter(|_| op != TxnOp::CloseSession);
                let txn = Txn { zxid, session, time: WallMs(i64::MIN), origin, op };
                PeerMessage::Leader(FromLeader::Proposal(txn.encode()))
            }
            3 => PeerMessage::Leader(FromLeader::Proposal(Entry {
                zxid,
                bytes: vec![4, 1, 4].into(),
            })),
            4..6 => PeerMessage::Leader(FromLeader::Commit { zxid: status.appended }),
            6 => PeerMessage::Leader(FromLeader::LeaderInfo {
                epoch,
                empty: false,
                ensemble: 0,
                blank: false,
            }),
            7 => PeerMessage::Leader(FromLeader::Trunc { to: zxid }),
            8 => PeerMessage::Leader(FromLeader::Snap {
                zxid,
                index: 0,
                bytes: vec![0, 9, 9].into(),
                last: true,
            }),
            _ => PeerMessage::Leader(FromLeader::UpToDate { committed: zxid }),
        }
    }
}

#[test]
fn hostile_learner_messages_leave_the_log_applicable() {
    for seed in 0..400 {
        let (mut play, mut dice) = (ensemble(), Dice(seed));
        for _ in 0..12 {
            let said = dice.of_learner(&play);
            play.inject(HOSTILE, LEADER, said);
            if dice.below(3) == 0 {
                play.run_line("settle");
            }
        }
        play.run_line("wait 3000");
        play.survives(&format!("seed {seed}"));
    }
}

/// The follower may halt on an inapplicable transaction.
#[test]
fn hostile_leader_messages_do_not_panic_the_follower() {
    let mut stopped = 0;
    for seed in 0..400 {
        let (mut play, mut dice) = (ensemble(), Dice(seed));
        for _ in 0..12 {
            let said = dice.of_leader(&play);
            play.inject(LEADER, HOSTILE, said);
        }
        let halted = play.server(HOSTILE).unwrap().status().halted;
        stopped += usize::from(matches!(halted, Some(Halted::Inapplicable { .. })));
    }
    assert!(stopped > 0, "no transaction was refused: this proves nothing");
}
