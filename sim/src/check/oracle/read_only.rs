//! Read-only mode: when a server has it, which clients it serves, and what they read (C12).
//!
//! Owns the periods in which each server is read-only, and which connections were answered as by a
//! read-only server. Must not know sessions.

use std::collections::BTreeMap;

use zabkeeper_core::wire::{ConnectRequest, ConnectResponse, OpCode, ReplyBody, Request};
use zabkeeper_core::{ConnId, ErrorCode, Instant, Mode, ServerId, Status, Zxid};

use super::Oracles;
use super::catalog::{Checks, Id, Verdict};
use super::conn::{Asked, Who};

/// A period in which a server is read-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Period {
    /// Observation number of its begin.
    begun: u64,
    /// Observation number and time of its end; `None` while it lasts.
    ended: Option<(u64, Instant)>,
    /// The state that the server shows.
    applied: Zxid,
}

/// The periods of all servers.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadOnly(BTreeMap<ServerId, Vec<Period>>);

impl ReadOnly {
    /// A server has finished a step. While it is read-only it knows no leader, and its state, which
    /// is committed, does not change.
    pub(super) fn acted(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        status: &Status,
        (order, now): (u64, Instant),
    ) -> Verdict {
        if status.mode != Mode::ReadOnly || status.halted.is_some() {
            self.ends(id, (order, now));
            return Ok(());
        }
        let applied = status.applied;
        let periods = self.0.entry(id).or_default();
        if periods.last().is_none_or(|last| last.ended.is_some()) {
            periods.push(Period { begun: order, ended: None, applied });
        }
        let shown = periods.last().map(|last| last.applied);
        let alone = status.leader.is_none() && !status.serving;
        checks.check(Id::C12, alone && shown == Some(applied), || {
            vec![format!(
                "read-only server {id} has applied {applied} after {shown:?}; its leader is {:?}",
                status.leader
            )]
        })
    }

    /// The server is not read-only any more, or its process has ended.
    pub(super) fn ends(&mut self, id: ServerId, at: (u64, Instant)) {
        if let Some(last) = self.0.get_mut(&id).and_then(|periods| periods.last_mut()) {
            last.ended.get_or_insert(at);
        }
    }

    /// The periods in which the server can have handled a request of observation `asked`.
    fn since(&self, id: ServerId, asked: u64) -> impl Iterator<Item = &Period> {
        let periods = self.0.get(&id).into_iter().flatten();
        periods.filter(move |period| period.ended.is_none_or(|(ended, _)| ended > asked))
    }
}

impl Oracles {
    /// HS-02 to HS-04: the response has the `readOnly` field exactly if the request has it. The
    /// value is true only from a read-only server, which serves only clients that accept it.
    pub(super) fn says_what_it_is(
        &mut self,
        (hello, asked): (&ConnectRequest, u64),
        response: &ConnectResponse,
        who: Who,
    ) -> Verdict {
        let conn = self.conns.get_mut(&who.id).expect("has a phase");
        let periods: Vec<Period> = self.read_only.since(conn.server, asked).copied().collect();
        let all_along = periods.iter().any(|period| period.begun < asked && period.ended.is_none());
        let right = match (hello.read_only, response.read_only) {
            (None, None) => !all_along,
            (Some(_), Some(false)) => !all_along,
            (Some(accepts), Some(true)) => accepts && !periods.is_empty(),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if response.read_only == Some(true) {
            conn.read_only = Some(periods.clone());
        }
        self.checks.check(Id::C12, right, || {
            let (found, asked) = (response.read_only, hello.read_only);
            vec![format!(
                "{who}: readOnly is {found:?} where {asked:?} was asked for; the server was \
                 read-only in {periods:?}"
            )]
        })
    }

    /// RO-01: a reply on a connection to a read-only server was made while the server was
    /// read-only, and shows its state of that time.
    pub(super) fn is_of_its_period(&mut self, who: Who, asked: &Asked, zxid: Zxid) -> Verdict {
        let Some(periods) = self.conns.get(&who.id).and_then(|conn| conn.read_only.as_ref()) else {
            return Ok(());
        };
        // The end of a period may have been observed since the handshake.
        let server = who.ends.map(|(_, server, _)| server);
        let known = server.and_then(|server| self.read_only.0.get(&server));
        let may_be = |period: &&Period| {
            let begun = periods.iter().any(|other| other.begun == period.begun);
            let open = period.ended.is_none_or(|(_, end)| asked.at <= end);
            // OP-102: the reply to a SASL packet shows no state.
            let shows = !matches!(asked.request, Request::Sasl { .. }) || zxid != Zxid::ZERO;
            begun && open && (period.applied == zxid || !shows)
        };
        let right = known.into_iter().flatten().any(|period| may_be(&period));
        self.checks.check(Id::C12, right, || {
            vec![
                format!("{who}: the server was read-only in {periods:?}"),
                format!("#{} {} of {}, answered at {zxid}", asked.xid, asked.request, asked.at),
            ]
        })
    }

    /// ERR-25, RO-03: a read-only server refuses what needs a leader, and nothing else. Returns
    /// whether the request had to be refused.
    pub(super) fn is_refused_read_only(
        &mut self,
        who: Who,
        asked: &Asked,
        result: &Result<ReplyBody, ErrorCode>,
    ) -> Result<bool, super::catalog::Broken> {
        let only = self.conns.get(&who.id).is_some_and(|conn| conn.read_only.is_some());
        let must = only && needs_leader(&asked.request);
        let refused = *result == Err(ErrorCode::NotReadOnly) && asked.txn.is_none();
        self.checks.check(Id::C12, refused == must, || {
            let of = if only { "a read-only server" } else { "a server that is not read-only" };
            vec![format!("{who}: {of} answers #{} {} with {result:?}", asked.xid, asked.request)]
        })?;
        Ok(must)
    }

    /// RO-03: no request to a read-only server becomes a transaction.
    pub(super) fn may_write(&mut self, id: ConnId, txn: &dyn Fn() -> String) -> Verdict {
        let who = self.who(id);
        let only = self.conns.get(&id).is_some_and(|conn| conn.read_only.is_some());
        self.checks.check(Id::C12, !only, || {
            vec![format!("{who}: a read-only server lets it write"), txn()]
        })
    }
}

/// Does the request need a leader, by ZooKeeper's list? The operation decides, even if its record
/// cannot be decoded.
pub(super) fn needs_leader(request: &Request) -> bool {
    const LIST: [OpCode; 11] = [
        OpCode::Sync,
        OpCode::Create,
        OpCode::Create2,
        OpCode::CreateTtl,
        OpCode::CreateContainer,
        OpCode::Delete,
        OpCode::SetData,
        OpCode::Reconfig,
        OpCode::SetAcl,
        OpCode::Multi,
        OpCode::Check,
    ];
    LIST.iter().any(|op| op.wire() == request.op())
}
