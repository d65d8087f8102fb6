//! Builds the observations of a correct ensemble, one step at a time, so that a scenario can change
//! a single one. `clients` has the steps of clients, `requests` their requests.

use std::time::Duration;

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::peer::{FromLearner, PeerMessage};
use zabkeeper_core::store::{DurableState, Entry};
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::{Id, Password, RequestFrame};
use zabkeeper_core::{ConnId, Epoch, Instant, Mode, ServerId, SessionId, WallMs, Zxid};

use super::cast::{self, Member};
use crate::check::model::{Asker, Model, Rules};
use crate::check::observe::{ClientId, Holder, Observation, Observed};
use crate::check::oracle::handshake::zookeeper_password;
use crate::check::oracle::{Oracles, Violation};

pub(super) use requests::{
    container, create, create_for, create_with, data, delete, get, only, set, timed,
    watch_children, watch_data, watch_exists,
};

mod clients;
mod requests;

pub(super) const SERVER: ServerId = ServerId(1);
const TIMEOUT_MS: u32 = 4_000;

/// A correct ensemble with its clients, and the oracles that check it.
pub(super) struct History {
    pub(super) oracles: Oracles,
    violation: Option<Violation>,
    at_ms: u64,
    /// The committed state.
    pub(super) model: Model,
    pub(super) members: BTreeMap<ServerId, Member>,
    pub(super) leader: ServerId,
    pub(super) epoch: Epoch,
    /// The timeout in connect requests, ms.
    asks_ms: i32,
    /// The field `readOnly` of connect requests.
    pub(super) accepts_read_only: Option<bool>,
    client_conns: Vec<ClientConn>,
}

/// A connection, as both the server and the client see it.
struct ClientConn {
    client: ClientId,
    server: ServerId,
    session: SessionId,
    /// The identities that the client has sent.
    ids: Vec<Id>,
    seen: Zxid,
    xid: i32,
    asked: VecDeque<(RequestFrame, Option<Zxid>)>,
    writes: u64,
}

/// Runs a scenario twice: without its fault, which must pass, and with it, which oracle `id` must
/// report. One server with default rules.
#[track_caller]
pub(super) fn check_pair(id: &str, scenario: impl Fn(&mut History, bool)) {
    check_pair_of(1, id, scenario);
}

/// As [`check_pair`], with these rules.
#[track_caller]
pub(super) fn check_pair_under(rules: &Rules, id: &str, scenario: impl Fn(&mut History, bool)) {
    run_pair(|| History::with(rules.clone()), id, scenario);
}

/// As [`check_pair`], with this many servers, of which the first leads and the others follow.
#[track_caller]
pub(super) fn check_pair_of(servers: u64, id: &str, scenario: impl Fn(&mut History, bool)) {
    run_pair(|| History::of(servers), id, scenario);
}

/// As [`check_pair`], with three servers that have been together for a while, and three seconds for
/// each commit and answer.
#[track_caller]
pub(super) fn check_pair_in_time(id: &str, scenario: impl Fn(&mut History, bool)) {
    let begin = || {
        let (sync_limit, commit_within) = (Duration::from_secs(5), Duration::from_secs(3));
        let answer_within = commit_within;
        let mut history = History::under(
            3,
            Rules { sync_limit, commit_within, answer_within, ..Rules::default() },
        );
        history.begins_leading(SERVER, &[2, 3].map(ServerId));
        history.waits(4_000);
        history
    };
    run_pair(begin, id, scenario);
}

/// As [`check_pair`], from this beginning.
#[track_caller]
pub(super) fn check_pair_from(
    begin: impl Fn() -> History,
    id: &str,
    scenario: impl Fn(&mut History, bool),
) {
    run_pair(begin, id, scenario);
}

#[track_caller]
fn run_pair(begin: impl Fn() -> History, id: &str, scenario: impl Fn(&mut History, bool)) {
    let mut correct = begin();
    scenario(&mut correct, false);
    correct.passes();
    let mut broken = begin();
    scenario(&mut broken, true);
    let caught =
        broken.violation.unwrap_or_else(|| panic!("the violation of {id} is not reported"));
    assert_eq!(caught.id, id, "{caught}");
    assert!(!caught.evidence.is_empty(), "a violation must be explained");
}

impl History {
    /// One server that leads.
    pub(super) fn new() -> History {
        History::of(1)
    }

    /// This many servers, of which the first leads and the others follow.
    pub(super) fn of(servers: u64) -> History {
        let mut history = History::blank(servers);
        let followers: Vec<ServerId> = (2..=servers).map(ServerId).collect();
        history.begins_leading(SERVER, &followers);
        history
    }

    /// This many servers, started for the first time.
    pub(super) fn blank(servers: u64) -> History {
        let [tick, sync_limit, init_limit, begin_limit] = [1, 5, 10, 11].map(Duration::from_secs);
        let limits = Rules { tick, sync_limit, init_limit, begin_limit, ..Rules::default() };
        History::under(servers, limits)
    }

    /// One server with these rules that leads.
    pub(super) fn with(rules: Rules) -> History {
        let mut history = History::under(1, rules);
        history.begins_leading(SERVER, &[]);
        history
    }

    pub(super) fn under(servers: u64, rules: Rules) -> History {
        let ids: Vec<ServerId> = (1..=servers).map(ServerId).collect();
        let mut history = History {
            oracles: Oracles::new(&ids, rules.clone()),
            violation: None,
            at_ms: 0,
            model: Model::new(rules),
            members: cast::cast(servers),
            leader: SERVER,
            epoch: Epoch(0),
            asks_ms: 4_000,
            accepts_read_only: None,
            client_conns: Vec::new(),
        };
        ids.into_iter().for_each(|id| history.returns(id));
        history
    }

    #[track_caller]
    pub(super) fn passes(mut self) {
        self.ends();
        self.is_quiet();
    }

    #[track_caller]
    pub(super) fn is_quiet(&self) {
        if let Some(violation) = &self.violation {
            panic!("false alarm: {violation}");
        }
    }

    /// Like the world, observes nothing after a violation.
    pub(super) fn sees(&mut self, what: Observation<'_>) {
        self.at_ms += 1;
        if self.violation.is_none() {
            let seen = Observed { at: Instant(self.at_ms * 1_000_000), what };
            self.violation = self.oracles.observe(&seen).err();
        }
    }

    pub(super) fn waits(&mut self, ms: u64) {
        self.at_ms += ms;
    }

    pub(super) fn tip(&self) -> Zxid {
        self.model.tip()
    }

    pub(super) fn next_zxid(&self) -> Zxid {
        let tip = self.tip();
        let same_epoch = (tip.epoch() == self.epoch).then_some(tip);
        same_epoch.unwrap_or(Zxid::start_of(self.epoch)).next().expect("room")
    }

    pub(super) fn session(&self, conn: ConnId) -> SessionId {
        self.client_conn(conn).session
    }

    fn client_conn(&self, conn: ConnId) -> &ClientConn {
        &self.client_conns[usize::try_from(conn.0).unwrap()]
    }

    fn client_conn_mut(&mut self, conn: ConnId) -> &mut ClientConn {
        &mut self.client_conns[usize::try_from(conn.0).unwrap()]
    }

    // Handshakes.

    /// A follower applies all that is committed.
    pub(super) fn catches_up(&mut self, server: ServerId) {
        if server != self.leader {
            self.follows(server);
        }
    }

    pub(super) fn session_txn(&self, conn: ConnId, session: SessionId) -> Txn {
        Txn {
            zxid: self.next_zxid(),
            session,
            time: WallMs(0),
            origin: Some(Origin { server: self.client_conn(conn).server, conn, request: 0 }),
            op: TxnOp::CreateSession { timeout_ms: TIMEOUT_MS },
        }
    }

    // Requests.

    /// The server executes the next write of the connection.
    pub(super) fn does(&mut self, conn: ConnId) -> Zxid {
        self.does_as(conn, |_| {})
    }

    pub(super) fn does_as(&mut self, conn: ConnId, change: impl Fn(&mut Txn)) -> Zxid {
        let mut txn = self.decides(conn);
        change(&mut txn);
        self.commits(txn)
    }

    /// The right transaction for a client's create of this path.
    pub(super) fn wants(&mut self, path: &str) -> Entry {
        let a = self.client(0);
        self.asks(a, create(path));
        self.decides(a).encode()
    }

    /// The right transaction for the next write of the connection.
    pub(super) fn decides(&mut self, conn: ConnId) -> Txn {
        let zxid = self.next_zxid();
        let client_conn = &mut self.client_conns[usize::try_from(conn.0).unwrap()];
        let undone = |(frame, txn): &&mut (RequestFrame, Option<Zxid>)| {
            frame.request.is_write() && txn.is_none()
        };
        let (frame, txn) = client_conn.asked.iter_mut().find(undone).expect("a write to do");
        *txn = Some(zxid);
        client_conn.writes += 1;
        let origin = Some(Origin { server: client_conn.server, conn, request: client_conn.writes });
        let op = self
            .model
            .decide(Asker { session: client_conn.session, ids: &client_conn.ids }, &frame.request)
            .expect("a write");
        Txn { zxid, session: client_conn.session, time: WallMs(7), origin, op }
    }

    /// Proposes a transaction, makes it durable and applies it.
    pub(super) fn commits(&mut self, txn: Txn) -> Zxid {
        self.proposes(&txn.encode());
        self.applies(txn)
    }

    /// The leader logs the proposal, and all its followers do.
    pub(super) fn proposes(&mut self, entry: &Entry) {
        let leader = self.leader;
        self.logs(leader, entry);
        for id in self.followers() {
            self.gets(id, leader, entry);
        }
    }

    pub(super) fn followers(&self) -> Vec<ServerId> {
        let follow = |member: &&Member| member.mode == Mode::Follower;
        self.members.values().filter(follow).map(|member| member.id()).collect()
    }

    /// The entry becomes durable everywhere, and the leader applies it.
    pub(super) fn applies(&mut self, txn: Txn) -> Zxid {
        let zxid = txn.zxid;
        self.settles(zxid);
        // The model may refuse a wrong transaction: then the oracles must report it.
        let digest = self.model.apply(txn).is_ok().then(|| self.model.digest_at(zxid));
        self.has_applied(zxid, digest);
        zxid
    }

    /// The entry becomes durable everywhere, and the leader commits it.
    pub(super) fn settles(&mut self, zxid: Zxid) {
        let leader = self.leader;
        for id in self.followers() {
            self.confirms(id);
            self.receives(leader, id, PeerMessage::Learner(FromLearner::Ack { zxid }));
        }
        self.confirms(leader);
        self.member(leader).committed = zxid;
        self.shows(leader);
    }

    pub(super) fn has_applied(&mut self, zxid: Zxid, digest: Option<u64>) {
        let server = self.leader;
        self.member(server).applied = zxid;
        self.sees(Observation::Applied { server, zxid, digest, holder: Holder(None) });
    }

    // Replies.

    // Disks and restarts.

    pub(super) fn state(&self) -> DurableState {
        self.members[&self.leader].state.clone()
    }

    /// A sample of the durable disk: all up to `last`.
    pub(super) fn disk(&mut self, last: Zxid) {
        let digest = self.model.digest_at(last);
        self.disk_with(self.state(), last, digest);
    }

    pub(super) fn disk_with(&mut self, state: DurableState, last: Zxid, digest: u64) {
        self.sees(Observation::DurableAudit {
            server: SERVER,
            state,
            last,
            digest,
            holder: Holder(None),
        });
    }

    /// A sample of the disk as if all that is written survived.
    pub(super) fn cached(&mut self, state: DurableState, last: Zxid) {
        self.sees(Observation::CachedAudit { server: SERVER, state, last });
    }

    /// The only server stops, recovers up to `last`, and leads a new epoch.
    pub(super) fn restarts(&mut self, last: Zxid) {
        self.dies(SERVER);
        self.member(SERVER).log.retain(|entry| entry.zxid <= last);
        self.returns(SERVER);
        self.begins_leading(SERVER, &[]);
    }

    /// The audit at the end of the run.
    pub(super) fn ends(&mut self) {
        let (digest, sessions) =
            (self.model.digest_at(self.tip()), self.model.sessions_at(self.tip()));
        self.ends_with(digest, sessions);
    }

    pub(super) fn ends_with(&mut self, digest: u64, sessions: Vec<SessionId>) {
        let applied = self.tip();
        let server = self.leader;
        self.sees(Observation::Final { server, applied, digest, holder: Holder(None), sessions });
        if self.violation.is_none() {
            self.violation = self.oracles.finish().err();
        }
    }
}

/// Rules that enable containers, TTL nodes and quotas.
pub(super) fn everything() -> Rules {
    let mut rules = Rules::default();
    rules.tree.extended_types = true;
    rules.tree.enforce_quota = true;
    rules
}

/// A password that does not follow from ZooKeeper's computation.
pub(super) fn password(session: SessionId) -> Password {
    zookeeper_password(session).map(|byte| !byte)
}
