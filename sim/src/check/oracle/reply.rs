//! Replies and events that clients read, checked at the zxid that they name.
//!
//! Owns the checks of their order, staleness and results. A reply's zxid names the state that it
//! shows: for a write its own transaction, for any other request the last one applied when the
//! reply was built.

use bytes::Bytes;
use zabkeeper_core::wire::{
    EventType, FromServer, Reply, ReplyBody, Request, SetWatches, WatchEvent, XID_AUTH,
};
use zabkeeper_core::{ConnId, ErrorCode, Zxid};

use super::Oracles;
use super::catalog::{Id, Verdict};
use super::conn::{Asked, AuthAsked, Phase, Who};
use super::read_only::needs_leader;
use super::text::maybe;
use super::watch::{Audience, Kept, Slot, describe};
use crate::check::model::{Asker, Resumption, Table, is_quota};

/// A reply that is being checked.
struct Answer<'a> {
    conn: ConnId,
    who: Who,
    asked: &'a Asked,
    /// The zxid of the state that it shows.
    zxid: Zxid,
    result: Result<ReplyBody, ErrorCode>,
}

impl Answer<'_> {
    fn evidence(&self, what: &str) -> Vec<String> {
        let Asked { xid, request, .. } = self.asked;
        vec![
            format!("{}: {what}", self.who),
            format!("#{xid} {request}, answered at {}", self.zxid),
        ]
    }
}

impl Oracles {
    /// The client has read a frame after the connect response.
    pub(super) fn read(&mut self, id: ConnId, frame: &Bytes) -> Verdict {
        let who = self.who(id);
        let phase = self.conns[&id].phase;
        self.checks.check(Id::C2, phase == Phase::Open, || {
            vec![format!("{who}: a frame of {} bytes while {phase:?}", frame.len())]
        })?;
        match FromServer::decode(frame.clone()) {
            Err(error) => Oracles::fault(Id::C9, vec![format!("{who}: a frame: {error}")]),
            Ok(FromServer::Event(event)) => self.event_received(id, &event, who),
            Ok(FromServer::Reply { xid, zxid, err, body }) => {
                self.answered(id, who, (xid, zxid, err), body)
            }
        }
    }

    fn answered(
        &mut self,
        id: ConnId,
        who: Who,
        (xid, zxid, err): (i32, i64, i32),
        body: Bytes,
    ) -> Verdict {
        let header = format_args!("reply #{xid} at {zxid:#x} with {err}");
        let conn = self.conns.get_mut(&id).expect("has a phase");
        if xid == XID_AUTH
            && let Some(AuthAsked { credential, right, ids }) = conn.auths.pop_front()
        {
            if right.is_err() {
                conn.phase = Phase::Over;
            } else if conn.phase == Phase::Open {
                self.sessions.entry(conn.session).or_default().believed.insert(credential);
            }
            conn.shown.answered = ids;
            let code = right.map_or_else(ErrorCode::wire, |()| 0);
            return self.checks.check(Id::C9, (zxid, err) == (0, code), || {
                vec![format!("{who}: auth: {header}; right: {right:?}")]
            });
        }
        let next = conn.answer_next();
        self.checks.check(Id::C2, next.as_ref().is_some_and(|next| next.xid == xid), || {
            let due = next.as_ref().map(|next| format!("#{} {}", next.xid, next.request));
            vec![format!("{who}: {header}; next in order is {due:?}")]
        })?;
        let asked = next.expect("held");
        // A read-only server refuses a check that is no part of a multi like one that is (RO-03).
        let read_only = conn.read_only.is_some() && needs_leader(&asked.request);
        if let Request::Unknown { .. } = asked.request
            && !read_only
        {
            conn.phase = Phase::Over;
            let right = zxid == -1 && err == ErrorCode::Unimplemented.wire();
            return self.checks.check(Id::C9, right, || {
                vec![format!("{who}: {header}, and {} must be refused", asked.request)]
            });
        }
        let result = match FromServer::reply(xid, zxid, err, body, asked.request.reply_kind()) {
            Ok(Reply { result, .. }) => result,
            Err(error) => {
                let what = format!("{who}: {header} to {}: {error}", asked.request);
                return Oracles::fault(Id::C9, vec![what]);
            }
        };
        let zxid = Zxid(u64::try_from(zxid).unwrap_or(u64::MAX));
        let answer = Answer { conn: id, who, asked: &asked, zxid, result };
        self.is_of_its_period(who, &asked, zxid)?;
        self.is_in_its_place(&answer)?;
        if self.is_refused_read_only(who, &asked, &answer.result)? {
            // Nothing was executed.
        } else if asked.request.is_write() {
            self.write_answered(&answer)?;
        } else {
            self.read_answered(&answer)?;
        }
        self.remember(&answer);
        Ok(())
    }

    /// The zxid is committed and recent enough, and the events up to it came before it.
    fn is_in_its_place(&mut self, answer: &Answer<'_>) -> Verdict {
        let Oracles { checks, model, conns, .. } = self;
        let conn = conns.get_mut(&answer.conn).expect("has a phase");
        let (asked, zxid, place) = (answer.asked, answer.zxid, model.at_or_before(answer.zxid));
        // The zxid at which an epoch begins is no transaction, but names a state.
        let exists = place == zxid || zxid.counter() == 0;
        let id = if asked.request.is_write() { Id::C7 } else { Id::C3 };
        checks.check(id, exists, || {
            let tip = model.tip();
            answer.evidence(&format!("{zxid} is not committed; the history has reached {tip}"))
        })?;
        if conn.replies == 0 {
            checks.check(Id::C6, place >= conn.claimed, || {
                answer.evidence(&format!("the client reported that it had seen {}", conn.claimed))
            })?;
        }
        checks.check(Id::C4, place >= conn.acknowledged, || {
            answer.evidence(&format!("its write {} was acknowledged", conn.acknowledged))
        })?;
        checks.check(Id::C3, place >= conn.floor, || {
            answer.evidence(&format!("{} was shown before", conn.floor))
        })?;
        let owner = model.session(conn.session).and_then(|session| session.moved_to(zxid));
        checks.check(Id::S5, owner.is_none_or(|owner| owner == conn.server), || {
            let owner = maybe(owner);
            answer.evidence(&format!("by then the session had moved on to server {owner}"))
        })?;
        if let Request::Sync { .. } = asked.request
            && answer.result.is_ok()
        {
            checks.check(Id::C5, place >= asked.acknowledged, || {
                answer.evidence(&format!("{} was acknowledged before it", asked.acknowledged))
            })?;
        }
        let is_resumption = matches!(asked.request, Request::SetWatches(_));
        checks.check(Id::W7, is_resumption || conn.unaccounted.is_empty(), || {
            let events: Vec<String> = conn.unaccounted.iter().map(describe).collect();
            answer.evidence(&format!("{events:?} belong to no setWatches"))
        })?;
        let audience = Audience { rules: model.rules(), ids: &conn.shown.settled };
        conn.watches.replied(checks, zxid, audience, answer.who)?;
        conn.shown.settled = conn.shown.answered.clone();
        Ok(())
    }

    fn write_answered(&mut self, answer: &Answer<'_>) -> Verdict {
        let Answer { asked, zxid, result, .. } = answer;
        if asked.request == Request::CloseSession && asked.txn.is_none() {
            return self.farewell(answer);
        }
        let checks = &mut self.checks;
        checks.check(Id::C1, *zxid > asked.seen, || {
            answer.evidence(&format!("{} had been seen when it was sent", asked.seen))
        })?;
        checks.check(Id::C7, asked.txn.is_some(), || {
            answer.evidence("answered, and no transaction of it is committed")
        })?;
        let became = asked.txn.expect("held");
        checks.check(Id::C2, became == *zxid, || {
            answer.evidence(&format!("it became the transaction {became}"))
        })?;
        let logged = self.model.logged(became).expect("committed");
        let right = logged.answer(&asked.request);
        checks.check(Id::C8, result.is_ok() || right.is_err(), || {
            answer.evidence(&format!(
                "the reply reports a failure ({result:?}), but the write is done: {}",
                logged.txn
            ))
        })?;
        checks.check(Id::C9, *result == right, || {
            answer.evidence(&format!("the answer is {result:?}; right: {right:?}"))
        })?;
        if let Request::CloseSession = asked.request {
            self.conns.get_mut(&answer.conn).expect("has a phase").phase = Phase::Over;
        }
        Ok(())
    }

    /// closeSession of a local session is answered without a transaction.
    fn farewell(&mut self, answer: &Answer<'_>) -> Verdict {
        let conn = &self.conns[&answer.conn];
        let local = self.locals.was_of(conn.session, conn.server);
        let local = local && self.model.session(conn.session).is_none();
        self.checks.check(Id::C7, local, || {
            answer.evidence("answered, and no transaction of it is committed")
        })?;
        self.checks.check(Id::C9, answer.result == Ok(ReplyBody::Empty), || {
            answer.evidence(&format!("the answer is {:?}", answer.result))
        })?;
        self.conns.get_mut(&answer.conn).expect("has a phase").phase = Phase::Over;
        Ok(())
    }

    fn read_answered(&mut self, answer: &Answer<'_>) -> Verdict {
        let Answer { asked, zxid, result, .. } = answer;
        let watch = match &asked.request {
            Request::Watches { .. } => return self.watches_answered(answer),
            Request::SetWatches(watches) => {
                self.resumed(answer, watches)?;
                None
            }
            Request::Exists { path, watch: true } | Request::GetData { path, watch: true } => {
                Some((Slot::Data, path))
            }
            Request::GetChildren { path, watch: true, .. } => Some((Slot::Child, path)),
            Request::AddWatch { path, mode } => Some((Slot::of_mode(*mode), path)),
            Request::Exists { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Auth { .. }
            | Request::CloseSession
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Reconfig
            | Request::Reconfigure(_)
            | Request::Throttled { .. }
            | Request::Sasl { .. }
            | Request::Undecodable { .. }
            | Request::Unknown { .. } => None,
        };
        let session = self.conns[&answer.conn].session;
        let asker = Asker { session, ids: &asked.ids };
        if let Some(right) = self.model.is_answer(asker, &asked.request, *zxid, result) {
            self.is_right(answer, right)?;
        }
        let Some((slot, path)) = watch else {
            return Ok(());
        };
        let conn = self.conns.get_mut(&answer.conn).expect("has a phase");
        let missing = *result == Err(ErrorCode::NoNode);
        let awaits = missing && matches!(asked.request, Request::Exists { .. });
        if result.is_ok() || awaits {
            let watch = (answer.conn, slot, path.as_str());
            conn.watches.register(&self.model, &mut self.armed, watch, *zxid);
            let kept = Kept { since: *zxid, present: result.is_ok(), absent: missing };
            conn.kept.keep(slot, path.clone(), kept);
        } else {
            conn.watches.read_failed(path);
        }
        Ok(())
    }

    /// Checks the answer to a read, which is `right` or not, under the oracle that a wrong one
    /// violates.
    fn is_right(&mut self, answer: &Answer<'_>, right: bool) -> Verdict {
        let Answer { asked, zxid, result: found, .. } = answer;
        if let (Request::GetData { path, .. }, Ok(ReplyBody::Data(data, _))) =
            (&asked.request, found)
        {
            let history = self.model.history(path);
            let written = || {
                is_quota(path) || history.is_some_and(|history| history.ever_held(data.as_deref()))
            };
            self.checks.check(Id::C11, right || written(), || {
                answer.evidence(&format!("nobody has ever written {data:?} there"))
            })?;
        }
        let session = self.conns[&answer.conn].session;
        let asker = Asker { session, ids: &asked.ids };
        let must = if right { None } else { self.model.read(asker, &asked.request, *zxid) };
        let both_succeed = found.is_ok() && !matches!(must, Some(Err(_)));
        let denied = *found == Err(ErrorCode::NoAuth) || must == Some(Err(ErrorCode::NoAuth));
        let about_acl = matches!(asked.request, Request::GetAcl { .. } | Request::WhoAmI);
        let usage = matches!(&asked.request, Request::GetData { path, .. } if is_quota(path));
        let id = match (right, denied || about_acl, both_succeed) {
            (false, true, _) => Id::T7,
            (_, false, true) if usage => Id::T8,
            (_, _, true) => Id::C3,
            (_, _, false) => Id::C9,
        };
        self.checks.check(Id::T7, true, Vec::new)?;
        self.checks.check(id, right, || {
            answer.evidence(&format!("the answer is {found:?}; right at {zxid}: {must:?}"))
        })
    }

    /// Checks the answer to checkWatches or removeWatches.
    fn watches_answered(&mut self, answer: &Answer<'_>) -> Verdict {
        let Request::Watches { path, kind, remove } = &answer.asked.request else {
            return Ok(());
        };
        let Oracles { checks, conns, armed, .. } = self;
        let conn = conns.get_mut(&answer.conn).expect("has a phase");
        let right = match conn.watches.has(path, *kind) {
            true => Ok(ReplyBody::Empty),
            false => Err(ErrorCode::NoWatcher),
        };
        checks.check(Id::C9, answer.result == right, || {
            answer.evidence(&format!("the answer is {:?}; right: {right:?}", answer.result))
        })?;
        if *remove && right.is_ok() {
            conn.watches.remove(armed, answer.conn, path, *kind);
            for slot in Slot::of_kind(*kind) {
                conn.kept.of_mut(*slot).remove(path);
            }
        }
        Ok(())
    }

    /// Checks the answer to setWatches: the events before it report all missed changes and nothing
    /// else.
    fn resumed(&mut self, answer: &Answer<'_>, watches: &SetWatches) -> Verdict {
        let Resumption { events, registered } = self.model.resume(watches, answer.zxid);
        let Oracles { checks, model, conns, armed, .. } = self;
        let conn = conns.get_mut(&answer.conn).expect("has a phase");
        let events_sent = std::mem::take(&mut conn.unaccounted);
        for event in &events_sent {
            let is_it =
                |(kind, path): &&(EventType, String)| *kind == event.event && *path == event.path;
            let owed = events.iter().filter(is_it).count();
            let times = events_sent.iter().filter(|other| *other == event).count();
            let other_type = events.iter().any(|(_, path)| *path == event.path);
            let id = if owed == 0 && other_type { Id::W4 } else { Id::W7 };
            checks.check(id, times <= owed, || {
                answer.evidence(&format!("{} came; right: {events:?}", describe(event)))
            })?;
        }
        for (kind, path) in &events {
            let received =
                events_sent.iter().any(|event| event.event == *kind && event.path == *path);
            checks.check(Id::W2, received, || {
                answer.evidence(&format!("{kind:?} of {path} was missed, and is not sent"))
            })?;
        }
        for (table, path) in &registered {
            let slot = Slot::of_table(*table);
            let since = conn.stands_again(slot, path, answer.zxid);
            let lost = since.and_then(|since| model.next_firing(*table, path, since));
            let everybody = Audience { rules: model.rules(), ids: &[] };
            let lost = lost
                .filter(|f| everybody.may_receive(&f.acl) && Some(f.zxid) <= watches.relative_zxid);
            checks.check(Id::W2, lost.is_none(), || {
                answer.evidence(&format!(
                    "{lost:?} was never sent, and the reply registers its watch as if it had been"
                ))
            })?;
            conn.watches.register(model, armed, (answer.conn, slot, path), answer.zxid);
        }
        // Persistent watches do not report changes while the client was away (WATCH-23).
        for (slot, paths) in
            [(Slot::Persistent, &watches.persistent), (Slot::Recursive, &watches.recursive)]
        {
            for path in paths {
                conn.watches.register(model, armed, (answer.conn, slot, path), answer.zxid);
                conn.stands_again(slot, path, answer.zxid);
            }
        }
        Ok(())
    }

    /// The client has read an event.
    fn event_received(&mut self, id: ConnId, event: &WatchEvent, who: Who) -> Verdict {
        let Oracles { checks, model, conns, .. } = self;
        let conn = conns.get_mut(&id).expect("has a phase");
        conn.kept.used_up(event.event, &event.path);
        if let Some(zxid) = event.zxid {
            let shown = &conn.shown;
            let audience = |ids| Audience { rules: model.rules(), ids };
            let audiences = (audience(&shown.settled[..]), audience(&shown.answered[..]));
            conn.watches.event_received(checks, model, (event, zxid), audiences, who)?;
            conn.shown.settled = conn.shown.answered.clone();
            conn.floor = conn.floor.max(zxid);
            return Ok(());
        }
        let is_resumption = |asked: &Asked| matches!(asked.request, Request::SetWatches(_));
        checks.check(Id::W7, conn.asked.front().is_some_and(is_resumption), || {
            vec![format!("{who}: {}, and no setWatches is next", describe(event))]
        })?;
        let since = conn.resent.used_up_since(event.event, &event.path);
        conn.unaccounted.push(event.clone());
        // A watch that was used up without an event, because the client may not read the node,
        // still counts as held by its client: the client may have set another one since, after the
        // node was deleted or created again.
        let strict =
            matches!(event.event, EventType::NodeDataChanged | EventType::NodeChildrenChanged);
        let changes = |(table, since): &(Table, Zxid)| {
            let since = if strict { *since } else { Zxid::ZERO };
            model.next_firing(*table, &event.path, since).is_some()
        };
        let changed = !conn.knows || since.is_empty() || since.iter().any(changes);
        checks.check(Id::W7, changed, || {
            vec![format!("{who}: {}; its watch was set behind the last change", describe(event))]
        })
    }

    /// The zxid of the reply is a lower bound for what the client and its session read later.
    fn remember(&mut self, answer: &Answer<'_>) {
        let zxid = self.model.at_or_before(answer.zxid);
        let conn = self.conns.get_mut(&answer.conn).expect("has a phase");
        let session = self.sessions.entry(conn.session).or_default();
        conn.replies += 1;
        conn.floor = conn.floor.max(zxid);
        session.seen = session.seen.max(zxid);
        self.seen = self.seen.max(zxid);
        self.zab.answered(conn.server, zxid);
        let ends = (conn.session, answer.conn, conn.server);
        let follows_since = self.zab.follows(conn.server).map(|(_, since)| since);
        self.liveness.answered(ends, answer.asked.at, follows_since);
        if answer.asked.txn.is_some() {
            conn.acknowledged = conn.acknowledged.max(zxid);
            session.acknowledged = session.acknowledged.max(zxid);
            self.acknowledged = self.acknowledged.max(zxid);
        }
    }
}
