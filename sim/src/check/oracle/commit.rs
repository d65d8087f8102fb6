//! Committed transactions: whether a client asked for each, and whether it is exactly what the
//! request demands.
//!
//! Owns the matching of transactions to requests. The n-th write of a connection becomes its n-th
//! transaction, because a server executes the requests of a connection in order and each write
//! takes a zxid, even if it is refused; so the matching needs no hint from the server. Checking
//! here, on the latest state of the model, also covers requests that were never answered.

use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::{Id as Identity, ReconfigRequest, Request};
use zabkeeper_core::{ErrorCode, Instant, ServerId, SessionId, Zxid};

use super::catalog::{Broken, Id, Verdict};
use super::conn::{Hello, Who};
use super::epochs::Proposed;
use super::session_liveness::Pause;
use super::text::maybe;
use super::zab::Committed;
use super::{Oracles, Violation};
use crate::check::ensemble::{self, Ensemble};
use crate::check::model::{Asker, CONFIG_NODE, Kind, is_quota};

/// Data from this length on is unique to one write attempt (C8); shorter data may repeat.
const UNIQUE_DATA_BYTES: usize = 8;

impl Oracles {
    /// The log of this server is committed up to `zxid`.
    pub(super) fn commit_up_to(&mut self, id: ServerId, zxid: Zxid) -> Verdict {
        for committed in self.zab.chain(&mut self.checks, id, zxid)? {
            self.commit(&committed)?;
        }
        self.zab.compare_disks(&mut self.checks, &self.model)
    }

    /// The servers, which are not observed, have committed this transaction. Nobody knows what its
    /// leader had applied, nor which servers were synced with it, so each of these passes.
    pub(in crate::check) fn commit_unobserved(
        &mut self,
        at: Instant,
        txn: &Txn,
    ) -> Result<(), Violation> {
        self.order += 1;
        self.now = at;
        let refused = txn.op == TxnOp::Error { code: ErrorCode::NewConfigNoQuorum };
        let proposed = Proposed {
            order: self.order,
            at,
            by: ServerId(0),
            leads_since: at,
            applied: Zxid::ZERO,
            synced: refused.then(BTreeSet::new),
            older: false,
        };
        let entry = txn.encode();
        self.commit(&Committed { entry, proposed }).map_err(|broken| broken.at(at))
    }

    fn commit(&mut self, committed: &Committed) -> Verdict {
        let txn = match Txn::decode(&committed.entry) {
            Ok(txn) => txn,
            Err(corrupt) => return Oracles::fault(Id::Z2, vec![corrupt.to_string()]),
        };
        // The model applies the transaction even where a muted oracle rejects it.
        let asked_for = self.was_asked_for(&txn, &committed.proposed);
        self.checks.unless_muted(asked_for)?;
        self.checks.check(Id::S1, true, Vec::new)?;
        let shown = txn.to_string();
        let ended = matches!(txn.op, TxnOp::CloseSession).then_some(txn.session);
        let firings = self.model.apply(txn).map_err(|wrong| {
            let id = match wrong.kind {
                Kind::Order => Id::Z4,
                Kind::Structure => Id::C9,
                Kind::Ephemeral => Id::S1,
                Kind::Session => Id::S4,
            };
            Broken::new(id, vec![wrong.what, format!("transaction: {shown}")])
        })?;
        self.stamps.push((self.model.tip(), self.now));
        if let Some(ended) = ended {
            self.ends(ended, &committed.proposed, &shown)?;
        }
        for firing in &firings {
            for conn in self.armed.take(firing) {
                let conn = self.conns.get_mut(&conn).expect("closing disarms");
                conn.watches.fire(firing);
            }
        }
        Ok(())
    }

    /// S6: the closeSession is committed. No client that was accepted has asked after its proposal.
    fn ends(&mut self, session: SessionId, proposed: &Proposed, shown: &str) -> Verdict {
        let view = self.sessions.entry(session).or_default();
        view.ended = Some(proposed.order);
        let late = view.attached.filter(|attached| attached.asked > proposed.order);
        self.checks.check(Id::S6, late.is_none(), || {
            let what = format!(
                "its end was proposed at {}; {} asked for it after that, and was let go on",
                proposed.at,
                maybe(late)
            );
            vec![what, format!("transaction: {shown}")]
        })
    }

    fn was_asked_for(&mut self, txn: &Txn, proposed: &Proposed) -> Verdict {
        match (&txn.op, txn.origin) {
            (TxnOp::CreateSession { .. }, Some(origin)) => {
                self.session_was_asked_for(txn, origin, proposed)
            }
            (TxnOp::MoveSession { server }, Some(origin)) => {
                // A closed connection that has nothing left to execute is already removed; then the
                // handshake is not checked.
                let conn = self.conns.get(&origin.conn);
                let hello = conn.map(|conn| conn.hello.as_ref());
                let asks = |hello: &Hello| hello.request.session == txn.session;
                let asked = hello.is_none_or(|hello| hello.is_some_and(asks));
                let right = asked && *server == origin.server && origin.request == 0;
                self.checks.check(Id::S5, right, || {
                    let what = format!("no handshake on {} asks for that", origin.conn);
                    vec![what, format!("transaction: {txn}")]
                })
            }
            (TxnOp::UpgradeSession { timeout_ms, server }, _) => {
                self.upgrade_was_asked_for(txn.session, *server, &|| txn.to_string())?;
                self.liveness.created(txn.session, proposed.by, proposed.at);
                let view = self.sessions.entry(txn.session).or_default();
                view.timeouts.are_created(*timeout_ms);
                Ok(())
            }
            (TxnOp::CloseSession, None) => self.session_has_expired(txn, proposed),
            (TxnOp::CreateSession { .. }, None) => Oracles::fault(
                Id::S6,
                vec!["a session that nobody asked for".to_owned(), format!("transaction: {txn}")],
            ),
            (_, Some(origin)) => self.write_was_asked_for(txn, origin, proposed),
            (TxnOp::Reconfig { config }, None) => self.is_the_first_config(txn, config),
            (_, None) => {
                self.lapsed.push(self.now);
                let nobodys = txn.session == SessionId(0);
                let goes = nobodys
                    && matches!(&txn.op, TxnOp::Delete { path } if self.model.may_go(path, txn.time));
                self.checks.check(Id::C11, goes, || {
                    let what = "it has no origin; on their own servers only delete containers that \
                                were used and nodes whose time is over";
                    vec![what.to_owned(), format!("transaction: {txn}")]
                })
            }
        }
    }

    /// RECONF-09, Z22: the first leader puts the configuration of the files into the log, with the
    /// version of its epoch.
    fn is_the_first_config(&mut self, txn: &Txn, config: &str) -> Verdict {
        let node = self.model.node(CONFIG_NODE).and_then(|node| node.data.as_ref());
        let known = node.and_then(|data| ensemble::version(data));
        let version = Zxid::start_of(txn.zxid.epoch()).0;
        let first = self.model.rules().first_config.as_deref().and_then(Ensemble::parse);
        let right = known.is_none() && first.is_some_and(|first| first.text(version) == config);
        self.checks.check(Id::Z22, right, || {
            vec!["nobody asked for this configuration".to_owned(), format!("transaction: {txn}")]
        })
    }

    fn session_was_asked_for(&mut self, txn: &Txn, origin: Origin, proposed: &Proposed) -> Verdict {
        let evidence = |what: &str| vec![format!("{}: {what}", origin.conn), txn.to_string()];
        let global = !self.conns.get(&origin.conn).is_some_and(|conn| conn.begins_local);
        self.checks
            .check(Id::S8, global, || evidence("its server keeps new sessions to itself"))?;
        let fresh = !self.locals.ever_had(txn.session);
        self.checks.check(Id::S4, fresh, || {
            evidence("a server has kept a session of this id to itself")
        })?;
        let Some(conn) = self.conns.get_mut(&origin.conn) else {
            return Oracles::fault(Id::C8, evidence("no handshake there waits for a session"));
        };
        let hello = conn.hello.as_ref();
        let asked = hello.is_some_and(|hello| hello.request.session == SessionId(0));
        self.checks.check(Id::S6, asked, || evidence("the handshake asks for no new session"))?;
        let first = conn.session == SessionId(0);
        self.checks.check(Id::C8, first, || evidence("a second session for one handshake"))?;
        conn.session = txn.session;
        let received = conn.hello.as_ref().map_or(Instant::default(), |hello| hello.at);
        self.liveness.created(txn.session, proposed.by, received.max(proposed.at));
        if conn.closed && !conn.may_execute() {
            self.conns.remove(&origin.conn);
        }
        if let TxnOp::CreateSession { timeout_ms } = txn.op {
            let view = self.sessions.entry(txn.session).or_default();
            view.timeouts.are_created(timeout_ms);
        }
        Ok(())
    }

    /// S3: a leader expires the session. An answered request touched the session no earlier than it
    /// was sent. Clocks run up to a tenth fast, so an eighth is allowed.
    fn session_has_expired(&mut self, txn: &Txn, proposed: &Proposed) -> Verdict {
        let Some(expiry) = self.liveness.before_expiry(txn.zxid) else {
            return Ok(());
        };
        let silent = proposed.at.since(expiry.received.max(proposed.leads_since));
        let timeout = expiry.timeout_in(proposed.leads_since);
        self.checks.check(Id::S3, silent >= timeout * 7 / 8, || {
            let Proposed { at, by, leads_since, .. } = *proposed;
            vec![
                format!("silent for {silent:?}, and its timeout is {timeout:?}"),
                format!(
                    "the last message of {} came at {}; s{by}, which led from {leads_since} on, \
                     ended it at {at}",
                    txn.session, expiry.received
                ),
                format!("transaction: {txn}"),
            ]
        })?;
        // SESS-06: a leader that stood still for longer than a client may be silent has not
        // listened to any client.
        let Pause { begin: stood, end: awake, .. } = expiry.stood_still;
        // A deadline may be one tick late, and a delay of one more tick is no standstill.
        let tick = self.model.rules().tick;
        let longest = Duration::from_millis(expiry.greatest_ms.into()) + tick * 2;
        let deaf = !tick.is_zero()
            && proposed.leads_since < stood
            && awake <= proposed.at
            && awake.since(stood) > longest * 9 / 8;
        let listened = proposed.at.since(awake);
        self.checks.check(Id::S3, !deaf || listened >= timeout * 7 / 8, || {
            let still = awake.since(stood);
            let what = format!(
                "its leader stood still for {still:?} and has listened for {listened:?} since; the \
                 timeout is {timeout:?}"
            );
            vec![what, format!("transaction: {txn}")]
        })
    }

    fn write_was_asked_for(&mut self, txn: &Txn, origin: Origin, proposed: &Proposed) -> Verdict {
        self.learns_its_session(origin.conn, txn.session);
        self.may_write(origin.conn, &|| format!("transaction: {txn}"))?;
        let who = self.who(origin.conn);
        let Oracles { checks, conns, model, sessions, locals, .. } = self;
        let evidence = |what: String| vec![format!("{who}: {what}"), format!("transaction: {txn}")];
        let twice = || evidence("no write there waits to be done".to_owned());
        let Some(conn) = conns.get_mut(&origin.conn) else {
            return Oracles::fault(Id::C8, twice());
        };
        let rising = conn.last_origin.is_none_or(|last| last < origin.request);
        checks.check(Id::C8, rising, || {
            evidence(format!("write {} again, or out of order", origin.request))
        })?;
        conn.last_origin = Some(origin.request);
        let (session, welcomed) = (conn.session, conn.welcomed);
        let Some(asked) = conn.execute_next() else {
            return Oracles::fault(Id::C8, twice());
        };
        asked.txn = Some(txn.zxid);
        let xid = asked.xid;
        let (request, ids) = (asked.request.clone(), asked.ids.clone());
        if conn.closed && !conn.may_execute() {
            conns.remove(&origin.conn);
        }

        let shown = format!("#{xid} {request}");
        checks.check(Id::C9, txn.session == session, || {
            evidence(format!("{shown} became a transaction of session {}", txn.session))
        })?;
        let view = sessions.entry(session).or_default();
        // Only a handshake sent after this connection was accepted counts: of two concurrent
        // handshakes, either may have been accepted last.
        let later = |asked: u64| welcomed.is_some_and(|welcomed| welcomed < asked);
        let moved = view.attached.filter(|to| to.conn != origin.conn && later(to.asked));
        let moved = moved.filter(|to| to.order < proposed.order);
        checks.check(Id::S5, moved.is_none(), || {
            let to = moved.map(|to| {
                let server = conns.get(&to.conn).map(|conn| format!(", server {}", conn.server));
                let server = server.unwrap_or_default();
                format!("{} of client {}{server}, at {}", to.conn, to.client.0, to.at)
            });
            evidence(format!("{shown} was taken up after the session had moved to {}", maybe(to)))
        })?;
        if says_closing(&txn.op) {
            view.closing = true;
            return Ok(());
        }
        let local = model.session(session).is_none() && locals.was_of(session, origin.server);
        checks.check(Id::S1, local || model.is_alive(session), || {
            evidence(format!("{shown}: the session is not alive"))
        })?;
        let goes_on = matches!(txn.op, TxnOp::CloseSession) || !view.closing;
        checks.check(Id::C9, goes_on, || {
            evidence(format!("{shown}: an earlier reply reported that the session is closing"))
        })?;
        if local {
            self.owns_nothing(session, (&request, &txn.op), who)?;
        }
        self.is_the_right_outcome(txn, &request, (&ids, proposed), who)?;
        self.is_written_once(txn, &request)
    }

    fn is_the_right_outcome(
        &mut self,
        txn: &Txn,
        request: &Request,
        (ids, proposed): (&[Identity], &Proposed),
        who: Who,
    ) -> Verdict {
        let asker = Asker { session: txn.session, ids };
        if let Request::Reconfigure(request) = request
            && self.had_no_quorum(request, &txn.op, proposed, who)?
        {
            return Ok(());
        }
        let versioned = |op| with_version(op, txn.zxid);
        let mut right = self.model.decide(asker, request).expect("only writes are executed");
        right = versioned(right);
        let lags =
            self.model.rules().tree.enforce_quota || matches!(request, Request::Reconfigure(_));
        if right != txn.op && lags {
            // The leader checks quotas, and whether a reconfiguration is under way, on the state
            // that it has applied, which may be older (DATA-32, RECONF-03).
            let mut states = self.model.tips_from(proposed.applied);
            let each = |at| self.model.decide_over(asker, request, at).map(versioned);
            let found = states.find_map(|at| each(at).filter(|right| *right == txn.op));
            right = found.unwrap_or(right);
        }
        if right != txn.op && proposed.older {
            // RECONF-01: the last release has no reconfigurations.
            let by_older = self.model.decide_without_reconfig(asker, request);
            right = by_older.filter(|right| *right == txn.op).unwrap_or(right);
        }
        // The order in which an `auth` entry expands to the asker's identities is left open.
        let same = asks_for_auth(request) && in_order(&right) == in_order(&txn.op);
        if !same && let Some(id) = difference(request, &right, &txn.op) {
            return self.checks.check(id, false, || {
                let wrong = format!("{request} must become {right:?}, and became {:?}", txn.op);
                vec![format!("{who}: {wrong}"), format!("transaction: {txn}")]
            });
        }
        self.checks.check(Id::C9, true, Vec::new)?;
        self.checks.check(Id::T7, true, Vec::new)?;
        if is_sequential(request) {
            self.checks.check(Id::C10, true, Vec::new)?;
        }
        if let Request::Multi(_) = request {
            self.checks.check(Id::T6, true, Vec::new)?;
        }
        if is_over(&right) {
            self.checks.check(Id::T8, true, Vec::new)?;
        }
        Ok(())
    }

    /// RECONF-08, Z22: a reconfiguration is refused for lack of a quorum of its voters exactly if
    /// there was none when the leader decided. Returns whether it was.
    fn had_no_quorum(
        &mut self,
        request: &ReconfigRequest,
        found: &TxnOp,
        proposed: &Proposed,
        who: Who,
    ) -> Result<bool, Broken> {
        let Some(synced) = &proposed.synced else {
            return Ok(false);
        };
        let refused = *found == TxnOp::Error { code: ErrorCode::NewConfigNoQuorum };
        let Ok(next) = self.model.next_config(request, proposed.applied.max(self.model.tip()))
        else {
            return Ok(false);
        };
        let voters = next.voters();
        let most = 2 * voters.intersection(synced).count() > voters.len();
        self.checks.check(Id::Z22, most != refused, || {
            let by = proposed.by;
            let what = format!("servers {synced:?} have the history of server {by}, its leader");
            vec![format!("{who}: {request} became {found:?}"), what]
        })?;
        Ok(refused)
    }

    /// C8: data of at least [`UNIQUE_DATA_BYTES`] is unique to one write attempt, so a second
    /// transaction with it means that a request was executed twice, on whichever connections.
    fn is_written_once(&mut self, txn: &Txn, request: &Request) -> Verdict {
        let attempts = match (&txn.op, request) {
            (TxnOp::Create { .. } | TxnOp::SetData { .. }, _) => slice::from_ref(request),
            (TxnOp::Multi(_), Request::Multi(requests)) => requests,
            (_, _) => &[],
        };
        for attempt in attempts {
            let (Request::Create { path, data: Some(data), .. }
            | Request::CreateContainer { path, data: Some(data), .. }
            | Request::CreateTtl { path, data: Some(data), .. }
            | Request::SetData { path, data: Some(data), .. }) = attempt
            else {
                continue;
            };
            if data.len() < UNIQUE_DATA_BYTES || is_quota(path) {
                continue;
            }
            let fresh = self.written.insert(fingerprint(path, data));
            self.checks.check(Id::C8, fresh, || {
                let what = format!("the data of {attempt} was written before");
                vec![what, format!("transaction: {txn}")]
            })?;
        }
        Ok(())
    }
}

/// The transaction with the version that a new configuration has: the zxid of its transaction.
fn with_version(op: TxnOp, zxid: Zxid) -> TxnOp {
    let TxnOp::Reconfig { config } = &op else { return op };
    let lines = config.strip_suffix("version=0").expect("the model leaves the version open");
    TxnOp::Reconfig { config: format!("{lines}version={:x}", zxid.0) }
}

/// The oracle that is violated where `found` is not the right transaction.
fn difference(request: &Request, right: &TxnOp, found: &TxnOp) -> Option<Id> {
    if right == found {
        return None;
    }
    Some(match (right, found, request) {
        (TxnOp::Create { path, .. }, TxnOp::Create { path: other, .. }, _)
            if is_sequential(request) && path != other =>
        {
            Id::C10
        }
        (
            TxnOp::Create { acl, .. } | TxnOp::SetAcl { acl, .. },
            TxnOp::Create { acl: other, .. } | TxnOp::SetAcl { acl: other, .. },
            _,
        ) if acl != other => Id::T7,
        (TxnOp::Create { path, data: written, .. }, TxnOp::Create { path: other, data, .. }, _)
        | (
            TxnOp::SetData { path, data: written, .. },
            TxnOp::SetData { path: other, data, .. },
            _,
        ) if path == other && data != written => Id::C11,
        (TxnOp::Multi(right), TxnOp::Multi(found), Request::Multi(requests))
            if right.len() == found.len() =>
        {
            let mut each = requests.iter().zip(right.iter().zip(found));
            let first =
                each.find_map(|(request, (right, found))| difference(request, right, found));
            first.expect("they differ somewhere")
        }
        (_, _, _) if denies(right) != denies(found) => Id::T7,
        (_, _, _) if is_over(right) != is_over(found) => Id::T8,
        (TxnOp::Multi(_), _, _) | (_, TxnOp::Multi(_), _) => Id::T6,
        (_, _, _) => Id::C9,
    })
}

/// Whether the transaction is a refusal for lack of permission or an invalid ACL.
fn denies(op: &TxnOp) -> bool {
    let (TxnOp::Error { code } | TxnOp::MultiRefused { code, .. }) = op else {
        return false;
    };
    matches!(code, ErrorCode::NoAuth | ErrorCode::InvalidAcl)
}

/// Whether an ACL in the request has an entry of scheme `auth`.
fn asks_for_auth(request: &Request) -> bool {
    let parts =
        if let Request::Multi(requests) = request { requests } else { slice::from_ref(request) };
    parts.iter().any(|part| {
        let (Request::Create { acl, .. }
        | Request::CreateContainer { acl, .. }
        | Request::CreateTtl { acl, .. }
        | Request::SetAcl { acl, .. }) = part
        else {
            return false;
        };
        acl.iter().any(|acl| acl.scheme == "auth")
    })
}

/// The transaction with its ACLs sorted.
fn in_order(op: &TxnOp) -> TxnOp {
    let mut op = op.clone();
    let parts = if let TxnOp::Multi(ops) = &mut op { ops } else { slice::from_mut(&mut op) };
    for part in parts {
        if let TxnOp::Create { acl, .. } | TxnOp::SetAcl { acl, .. } = part {
            acl.sort();
        }
    }
    op
}

/// Whether the transaction is a refusal by a quota.
fn is_over(op: &TxnOp) -> bool {
    let (TxnOp::Error { code } | TxnOp::MultiRefused { code, .. }) = op else {
        return false;
    };
    *code == ErrorCode::QuotaExceeded
}

/// Whether the transaction is a refusal because the session is closing.
fn says_closing(op: &TxnOp) -> bool {
    let (TxnOp::Error { code } | TxnOp::MultiRefused { code, .. }) = op else {
        return false;
    };
    matches!(code, ErrorCode::SessionExpired | ErrorCode::UnknownSession)
}

fn is_sequential(request: &Request) -> bool {
    let parts =
        if let Request::Multi(requests) = request { requests } else { slice::from_ref(request) };
    parts.iter().any(|part| {
        matches!(
            part,
            Request::Create { flags: 2 | 3, .. }
                | Request::CreateContainer { flags: 2 | 3, .. }
                | Request::CreateTtl { flags: 6, .. }
        )
    })
}

/// FNV-1a, 64 bits: a collision among 10^5 writes has a probability below 10^-9.
fn fingerprint(path: &str, data: &[u8]) -> u64 {
    let bytes = path.bytes().chain([0]).chain(data.iter().copied());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
