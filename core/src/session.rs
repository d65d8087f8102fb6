//! Sessions: the replicated table, and expiry (Java `SessionTrackerImpl`, `ExpiryQueue`).
//!
//! Owns ids, passwords, timeouts and expiry. Must not know connections: `front` maps sessions to
//! them (`by_session`). Only transactions add sessions to the table or remove them; on expiry the
//! leader proposes such a transaction. Local sessions are not in the table (`front/local`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use crate::digest;
use crate::error::Inapplicable;
use crate::ids::{Instant, ServerId, SessionId, WallMs};
use crate::notice::Notice;
use crate::rng::Rng;
use crate::wire::Password;

/// Number of bits below the millisecond in an id: 2^16 ids per millisecond.
const ID_BITS: u32 = 16;

/// The global sessions that exist; equal on every replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionTable {
    live: BTreeMap<SessionId, Session>,
    /// Highest id ever assigned, by creating server (top byte of the id), so that ids stay unique
    /// when the clock is set back or the server restarts (S4).
    last: BTreeMap<u8, SessionId>,
    /// Sum of the live sessions' shares in the digest.
    digest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    /// Timeout in the createSession transaction, ms.
    timeout_ms: u32,
    /// The server that the client connected to last; only this server may write for the session
    /// (SESS-09). `None` if a snapshot does not record it.
    owner: Option<ServerId>,
    /// Whether its password comes from the ensemble's secret; otherwise it is ZooKeeper's (HS-08).
    keyed: bool,
}

/// Deadlines of live sessions: on the leader all global ones, on each server its local ones.
#[derive(Debug)]
pub(crate) struct SessionTracker {
    tick: Duration,
    sessions: BTreeMap<SessionId, Tracked>,
    /// Sessions by deadline, a multiple of the tick (SESS-04), so that sessions expire in batches.
    buckets: BTreeMap<Instant, BTreeSet<SessionId>>,
}

#[derive(Clone, Copy, Debug)]
struct Tracked {
    timeout_ms: u32,
    expires: Instant,
    /// When tracking began.
    since: Instant,
    /// When a message of the client was last reported.
    heard: Instant,
    /// The server that the client is connected to, if known, including moves not yet applied.
    owner: Option<ServerId>,
}

impl SessionTable {
    pub(crate) fn restore(
        live: impl IntoIterator<Item = (SessionId, u32)>,
        owners: impl IntoIterator<Item = (SessionId, ServerId)>,
        last: impl IntoIterator<Item = (u8, SessionId)>,
        keyed: impl IntoIterator<Item = SessionId>,
    ) -> SessionTable {
        let session = |timeout_ms| Session { timeout_ms, owner: None, keyed: false };
        let live = live.into_iter().map(|(id, timeout_ms)| (id, session(timeout_ms))).collect();
        let mut table = SessionTable { live, last: last.into_iter().collect(), digest: 0 };
        for (id, owner) in owners {
            if let Some(session) = table.live.get_mut(&id) {
                session.owner = Some(owner);
            }
        }
        for id in keyed {
            if let Some(session) = table.live.get_mut(&id) {
                session.keyed = true;
            }
        }
        let shares = table.live.iter().map(|(id, session)| session.share(*id));
        table.digest = shares.fold(0, u64::wrapping_add);
        table
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (SessionId, u32)> {
        self.live.iter().map(|(id, session)| (*id, session.timeout_ms))
    }

    /// The same, starting after `last`.
    pub(crate) fn live_behind(
        &self,
        last: Option<SessionId>,
    ) -> impl Iterator<Item = (SessionId, u32)> {
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        let live = self.live.range((behind, Bound::Unbounded));
        live.map(|(id, session)| (*id, session.timeout_ms))
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = (SessionId, ServerId)> {
        self.live.iter().filter_map(|(id, session)| session.owner.map(|owner| (*id, owner)))
    }

    /// Sessions whose passwords come from the ensemble's secret.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = SessionId> {
        self.live.iter().filter_map(|(id, session)| session.keyed.then_some(*id))
    }

    /// Whether the session has ZooKeeper's password. A session not in the table was created after
    /// the secret, or has ended.
    pub(crate) fn has_zookeeper_password(&self, id: SessionId) -> bool {
        self.live.get(&id).is_some_and(|session| !session.keyed)
    }

    /// Timeout in the createSession transaction, ms; `None` if there is no such session.
    pub(crate) fn timeout_ms(&self, id: SessionId) -> Option<u32> {
        self.live.get(&id).map(|session| session.timeout_ms)
    }

    /// The server that the client connected to last, if known.
    pub(crate) fn owner(&self, id: SessionId) -> Option<ServerId> {
        self.live.get(&id)?.owner
    }

    pub(crate) fn last(&self) -> impl Iterator<Item = (u8, SessionId)> {
        self.last.iter().map(|(server, id)| (*server, *id))
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// # Errors
    /// If the session exists: every id is assigned once.
    pub(crate) fn create(
        &mut self,
        id: SessionId,
        timeout_ms: u32,
        owner: Option<ServerId>,
        keyed: bool,
    ) -> Result<(), Inapplicable> {
        if self.live.contains_key(&id) {
            return Err(Inapplicable::new(format!("session {id} exists")));
        }
        let session = Session { timeout_ms, owner, keyed };
        self.digest = self.digest.wrapping_add(session.share(id));
        self.live.insert(id, session);
        let last = self.last.entry(id.server_byte()).or_insert(id);
        *last = id.max(*last);
        Ok(())
    }

    /// # Errors
    /// If there is no such session.
    pub(crate) fn move_to(&mut self, id: SessionId, owner: ServerId) -> Result<(), Inapplicable> {
        let session = self.live.get_mut(&id).ok_or_else(|| Inapplicable::new(no_session(id)))?;
        let before = session.share(id);
        session.owner = Some(owner);
        self.digest = self.digest.wrapping_sub(before).wrapping_add(session.share(id));
        Ok(())
    }

    /// # Errors
    /// If there is no such session.
    pub(crate) fn close(&mut self, id: SessionId) -> Result<(), Inapplicable> {
        let session = self.live.remove(&id).ok_or_else(|| Inapplicable::new(no_session(id)))?;
        self.digest = self.digest.wrapping_sub(session.share(id));
        Ok(())
    }

    /// The first id for sessions that a server begins to create at this wall-clock time; its leader
    /// assigns the id for global ones (SESS-01).
    pub(crate) fn first_id(&self, server: ServerId, now: WallMs, rng: &mut Rng) -> SessionId {
        let by_clock = by_clock(server, now);
        match self.last.get(&server.session_byte()) {
            Some(last) if *last >= by_clock => leap_over(*last, rng),
            _ => by_clock,
        }
    }

    /// The first id for local sessions (SESS-14). No replica knows the local ids that the server
    /// assigned before a restart, and after a step of the clock these may be from the same
    /// millisecond.
    pub(crate) fn first_local_id(&self, server: ServerId, now: WallMs, rng: &mut Rng) -> SessionId {
        // Only the lower half of a millisecond's ids, so that the range stays below that of the
        // next one.
        let apart = rng.below(1 << (ID_BITS - 1));
        SessionId(self.first_id(server, now, rng).0 + i64::from(apart))
    }

    /// Like [`SessionTable::first_id`], but above a local session that was upgraded: the ids after
    /// it may belong to local sessions that only their server knows (SESS-14).
    pub(crate) fn first_id_behind(
        &self,
        session: SessionId,
        server: ServerId,
        now: WallMs,
        rng: &mut Rng,
    ) -> SessionId {
        let first = self.first_id(server, now, rng);
        if first > session { first } else { leap_over(session, rng) }
    }

    /// The id after the local session `last`. If the ensemble has met a higher id of this server,
    /// then the server's local sessions before a restart may have any id above it, so that the
    /// server begins again as after a start.
    pub(crate) fn local_id_after(
        &self,
        last: SessionId,
        server: ServerId,
        now: WallMs,
        rng: &mut Rng,
    ) -> SessionId {
        match self.last.get(&last.server_byte()) {
            Some(known) if *known > last => self.first_local_id(server, now, rng),
            _ => next_id(last),
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        let last = self.last().map(|(server, id)| digest::last_session(server, id));
        last.fold(self.digest, u64::wrapping_add)
    }
}

impl Session {
    /// The session's share in the digest.
    fn share(&self, id: SessionId) -> u64 {
        digest::session(id, self.timeout_ms, self.owner, self.keyed)
    }
}

fn no_session(id: SessionId) -> String {
    format!("there is no session {id}")
}

/// The id after this one; skips the value that marks container nodes.
pub(crate) fn next_id(id: SessionId) -> SessionId {
    match id.0.wrapping_add(1) {
        i64::MIN => SessionId(i64::MIN + 1),
        next => SessionId(next),
    }
}

/// As in Java: `(ms << 24) >>> 8`, with the server's id in the top byte.
fn by_clock(server: ServerId, now: WallMs) -> SessionId {
    let clock = ((now.0.cast_unsigned() << 24) >> 8).cast_signed();
    SessionId((i64::from(server.session_byte()) << 56) | clock)
}

/// An id above `last` for a clock that is behind it. Local ids above `last` are unknown here, so
/// the gap is random.
fn leap_over(last: SessionId, rng: &mut Rng) -> SessionId {
    let leap_ms = i64::from(1 + rng.below(1 << 20));
    SessionId(((last.0 >> ID_BITS) + leap_ms) << ID_BITS)
}

/// The password that ZooKeeper gives a session (HS-08): 16 bytes of Java's `Random`, seeded with
/// the id and a constant. Any client that knows the id can compute it. Used for sessions that are
/// older than their ensemble's secret.
pub(crate) fn zookeeper_password(id: SessionId) -> Password {
    const MASK: u64 = (1 << 48) - 1;
    const MULTIPLIER: u64 = 0x5_deec_e66d;
    let mut state = ((id.0 ^ 0xb341_5c00).cast_unsigned() ^ MULTIPLIER) & MASK;
    let mut password = Password::default();
    for word in password.as_chunks_mut::<4>().0 {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xb) & MASK;
        let high_bits = u32::try_from(state >> 16).expect("48 bits less 16");
        *word = high_bits.to_le_bytes();
    }
    password
}

impl SessionTracker {
    /// Tracks all sessions of the table with a full timeout from now on (SESS-10).
    pub(crate) fn new(table: &SessionTable, tick: Duration, now: Instant) -> SessionTracker {
        let mut tracker =
            SessionTracker { tick, sessions: BTreeMap::new(), buckets: BTreeMap::new() };
        for (id, timeout_ms) in table.live() {
            tracker.track(id, timeout_ms, now);
        }
        for (id, owner) in table.owners() {
            tracker.set_owner(id, owner);
        }
        tracker
    }

    /// Begins to track a session, or changes its timeout (SESS-16).
    pub(crate) fn track(&mut self, id: SessionId, timeout_ms: u32, now: Instant) {
        let expires = self.deadline(timeout_ms, now);
        let before = self.sessions.get(&id).copied();
        let owner = before.and_then(|tracked| tracked.owner);
        let since = before.map_or(now, |tracked| tracked.since);
        self.sessions.insert(id, Tracked { timeout_ms, expires, since, heard: now, owner });
        if let Some(before) = before {
            self.leave_bucket(before.expires, id);
        }
        self.buckets.entry(expires).or_default().insert(id);
    }

    /// A server reports activity of the session, and the timeout that it granted. The timeout
    /// counts only if the client is connected to that server as far as known, so that a later
    /// server's grant stays (SESS-16).
    pub(crate) fn touch_by(
        &mut self,
        server: ServerId,
        id: SessionId,
        timeout_ms: u32,
        now: Instant,
    ) -> bool {
        let here = self.sessions.get(&id).is_some_and(|tracked| tracked.owner == Some(server));
        self.touch(id, here.then_some(timeout_ms), now)
    }

    /// Records activity of the session; `false` if it is closing or gone (SESS-08). `granted_ms`:
    /// the timeout granted to the client, if known. A new leader knows only the timeout from the
    /// createSession transaction (SESS-16).
    pub(crate) fn touch(&mut self, id: SessionId, granted_ms: Option<u32>, now: Instant) -> bool {
        let Some(tracked) = self.sessions.get_mut(&id) else {
            return false;
        };
        tracked.heard = now;
        let Tracked { timeout_ms: before, expires, .. } = *tracked;
        let timeout_ms = granted_ms.unwrap_or(before);
        // Most touches keep the session in its bucket and need no further change.
        if timeout_ms != before || self.deadline(timeout_ms, now) > expires {
            self.track(id, timeout_ms, now);
        }
        true
    }

    /// Gives all sessions a full timeout from now on, because this server was not reading from
    /// clients.
    pub(crate) fn touch_all(&mut self, now: Instant) {
        for id in Vec::from_iter(self.sessions.keys().copied()) {
            self.touch(id, None, now);
        }
    }

    /// The client has connected to `owner`: only that server may write for the session (SESS-09).
    pub(crate) fn set_owner(&mut self, id: SessionId, owner: ServerId) {
        if let Some(tracked) = self.sessions.get_mut(&id) {
            tracked.owner = Some(owner);
        }
    }

    /// Whether `server` may act for the session. If its owner is unknown, `server` becomes the
    /// owner.
    pub(crate) fn check_owner(&mut self, id: SessionId, server: ServerId) -> bool {
        let Some(tracked) = self.sessions.get_mut(&id) else {
            return false;
        };
        *tracked.owner.get_or_insert(server) == server
    }

    /// Whether the session is tracked: neither closing nor gone.
    pub(crate) fn is_live(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// The server that the client is connected to, if known, including moves not yet applied.
    pub(crate) fn owner(&self, id: SessionId) -> Option<ServerId> {
        self.sessions.get(&id)?.owner
    }

    /// Sessions by id, with the timeout negotiated last (ms) and the deadline.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, u32, Instant)> {
        self.sessions.iter().map(|(id, tracked)| (*id, tracked.timeout_ms, tracked.expires))
    }

    /// Timeout negotiated last (ms) and deadline.
    pub(crate) fn get(&self, id: SessionId) -> Option<(u32, Instant)> {
        self.sessions.get(&id).map(|tracked| (tracked.timeout_ms, tracked.expires))
    }

    /// Stops tracking a closing session, so that no touch revives it (SESS-06).
    pub(crate) fn set_closing(&mut self, id: SessionId) {
        if let Some(tracked) = self.sessions.remove(&id) {
            self.leave_bucket(tracked.expires, id);
        }
    }

    /// The next deadline.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.buckets.first_key_value().map(|(deadline, _)| *deadline)
    }

    /// Removes the sessions whose deadline has passed, `most` of them at most, and returns them
    /// with a notice for the operator.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> Vec<(SessionId, Notice)> {
        let due = self.buckets.range(..=now).flat_map(|(_, ids)| ids);
        let due: Vec<SessionId> = due.copied().take(most).collect();
        due.into_iter().map(|id| (id, self.expire_one(id, now))).collect()
    }

    fn expire_one(&mut self, session: SessionId, now: Instant) -> Notice {
        let tracked = self.sessions.remove(&session).expect("whatever is in a bucket is tracked");
        self.leave_bucket(tracked.expires, session);
        let Tracked { timeout_ms, since, heard, owner: server, .. } = tracked;
        let (silent, watched) = (now.since(heard), now.since(since));
        Notice::ExpiryProposed { session, timeout_ms, silent, watched, server }
    }

    /// The first multiple of the tick after the timeout: never early, up to a tick late (SESS-04).
    fn deadline(&self, timeout_ms: u32, now: Instant) -> Instant {
        let tick = u64::try_from(self.tick.as_nanos()).expect("a tick is shorter than 500 years");
        let due = now.after(Duration::from_millis(timeout_ms.into()));
        Instant((due.0 / tick + 1) * tick)
    }

    fn leave_bucket(&mut self, expires: Instant, id: SessionId) {
        let bucket = self.buckets.get_mut(&expires).expect("every session is in a bucket");
        bucket.remove(&id);
        if bucket.is_empty() {
            self.buckets.remove(&expires);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);
    const ID: SessionId = SessionId(7);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn expired(tracker: &mut SessionTracker, now: Instant) -> Vec<SessionId> {
        tracker.expire(now, usize::MAX).into_iter().map(|(id, _)| id).collect()
    }

    fn tracker() -> SessionTracker {
        SessionTracker::new(&SessionTable::restore([(ID, 1000)], [], [], []), TICK, at(0))
    }

    /// SESS-04.
    #[test]
    fn edge_144_session_expires_up_to_a_tick_after_its_timeout() {
        let mut tracker = tracker();
        assert!(tracker.touch(ID, None, at(120)));
        assert_eq!(tracker.next_expiry(), Some(at(1500)));
        assert!(tracker.expire(at(1499), usize::MAX).is_empty());
        assert_eq!(expired(&mut tracker, at(1500)), [ID]);
        assert!(!tracker.touch(ID, None, at(1500)), "SESS-08: no touch revives it");
    }

    /// SESS-16.
    #[test]
    fn new_timeout_counts_from_now() {
        let mut tracker = tracker();
        tracker.track(ID, 4000, at(100));
        assert_eq!(tracker.get(ID), Some((4000, at(4500))));
        tracker.track(ID, 1000, at(200));
        assert_eq!(expired(&mut tracker, at(1500)), [ID]);
        assert_eq!(tracker.next_expiry(), None);
    }

    /// SESS-16.
    #[test]
    fn touch_applies_granted_timeout() {
        let mut tracker = tracker();
        assert!(tracker.touch(ID, Some(4000), at(100)));
        assert_eq!(tracker.get(ID), Some((4000, at(4500))));
        assert!(tracker.touch(ID, None, at(1600)));
        assert_eq!(tracker.get(ID), Some((4000, at(6000))));
        assert!(tracker.touch(ID, Some(1000), at(1600)), "it may be a shorter one");
        assert_eq!(tracker.get(ID), Some((1000, at(3000))));
    }

    /// SESS-09.
    #[test]
    fn session_has_one_owner() {
        let mut tracker = tracker();
        let [one, two] = [1, 2].map(ServerId);
        assert!(tracker.check_owner(ID, one), "the first is believed");
        assert!(!tracker.check_owner(ID, two));
        tracker.set_owner(ID, two);
        tracker.track(ID, 3000, at(100));
        assert!(tracker.check_owner(ID, two) && !tracker.check_owner(ID, one));
        tracker.set_closing(ID);
        assert!(!tracker.check_owner(ID, two));
    }

    /// SESS-01.
    #[test]
    fn ids_stay_unique_when_clock_is_set_back() {
        let (server, now) = (ServerId(3), WallMs(1_700_000_000_000));
        let mut rng = Rng::new(1);
        let mut table = SessionTable::default();
        let first = table.first_id(server, now, &mut rng);
        assert_eq!(first, by_clock(server, now));
        // Of three sessions the second was upgraded to global, and the table does not know the
        // third.
        let [second, third] = [1, 2].map(|n| SessionId(first.0 + n));
        table.create(second, 4000, Some(server), true).expect("fits");
        let again = table.first_id(server, WallMs(now.0 - 1), &mut rng);
        assert!(again.0 > third.0 + 0xffff - 2, "{again} after {third}");
        assert_eq!(again.server_byte(), 3);
        let other = table.first_id(server, WallMs(now.0 - 1), &mut Rng::new(2));
        assert_ne!(other, again);
        assert_eq!(table.first_id(server, WallMs(now.0 + 1), &mut rng).0, first.0 + 0x1_0000);
    }

    /// SESS-14. Regression: a read-only server that had lost its history began a session before it
    /// learned the ids of its earlier process from a leader.
    #[test]
    fn local_id_after_a_higher_known_one_is_far_from_it() {
        let (server, now) = (ServerId(3), WallMs(1_700_000_000_000));
        let mut rng = Rng::new(1);
        let mut table = SessionTable::default();
        let before = table.first_local_id(server, now, &mut rng);
        let upgraded = next_id(before);
        let earlier = WallMs(now.0 - 60_000);
        let last = table.first_local_id(server, earlier, &mut rng);
        assert_eq!(table.local_id_after(last, server, earlier, &mut rng), next_id(last));
        table.create(upgraded, 4000, Some(server), true).expect("fits");
        let next = table.local_id_after(last, server, earlier, &mut rng);
        assert!(next.0 >= upgraded.0 + 0x1_0000 - 0xffff, "{next} after {upgraded}");
        assert!(next.0 - upgraded.0 > 0xff, "{next} is just behind {upgraded}");
        assert_eq!(next.server_byte(), 3);
        assert_eq!(table.local_id_after(next, server, earlier, &mut rng), next_id(next));
    }

    /// SESS-14. Regression: the clock was set back by as long as the server had been up.
    #[test]
    fn restarts_in_one_millisecond_assign_different_local_ids() {
        let (server, now) = (ServerId(3), WallMs(1_700_000_000_000));
        let table = SessionTable::default();
        let firsts = [1, 2, 3].map(|life| table.first_local_id(server, now, &mut Rng::new(life)));
        for (at, one) in firsts.iter().enumerate() {
            for other in &firsts[..at] {
                assert!(one.0.abs_diff(other.0) > 100, "{one} and {other}");
            }
            let next_ms = by_clock(server, WallMs(now.0 + 1));
            assert!(*one >= by_clock(server, now) && one.0 + 0x7fff < next_ms.0, "{one}");
        }
    }

    /// SESS-14.
    #[test]
    fn ids_after_an_upgrade_avoid_unknown_local_ids() {
        let (server, now) = (ServerId(3), WallMs(1_700_000_000_000));
        let (table, mut rng) = (SessionTable::default(), Rng::new(1));
        let clock = by_clock(server, now);
        let of_before = SessionId(clock.0 - 0x1_0000);
        assert_eq!(table.first_id_behind(of_before, server, now, &mut rng), clock);
        for its_clock in [clock, SessionId(clock.0 + 0x10_0007)] {
            let behind = table.first_id_behind(its_clock, server, now, &mut rng);
            assert!(behind.0 > its_clock.0 + 0xfff0, "{behind} behind {its_clock}");
            assert_eq!(behind.server_byte(), 3);
        }
    }

    /// HS-08.
    #[test]
    fn passwords_equal_zookeepers() {
        let recorded = include_str!("../tests/golden/passwords.txt");
        let pairs: Vec<_> = recorded.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(pairs.len() > 10);
        for pair in pairs {
            let (id, expected) = pair.split_once(' ').unwrap();
            let id = SessionId(u64::from_str_radix(id, 16).unwrap().cast_signed());
            let hex = zookeeper_password(id).map(|byte| format!("{byte:02x}")).concat();
            assert_eq!(hex, expected, "{id}");
        }
    }

    /// SESS-01.
    #[test]
    fn ids_contain_server_and_never_repeat() {
        let mut table = SessionTable::default();
        let server = ServerId(3);
        let mut rng = Rng::new(1);
        let first = table.first_id(server, WallMs(1_700_000_000_000), &mut rng);
        assert_eq!(first.server_byte(), 3);
        assert_eq!(
            first,
            SessionId((3 << 56) | ((1_700_000_000_000_u64 << 24) >> 8).cast_signed())
        );
        table.create(first, 4000, None, true).expect("fits");
        table.create(next_id(first), 4000, None, true).expect("fits");
        table.close(first).expect("fits");
        let after_clock_step = table.first_id(server, WallMs(1_600_000_000_000), &mut rng);
        assert!(after_clock_step.0 >= first.0 + 0x1_0000, "{after_clock_step} leaps");
        assert_eq!(after_clock_step.server_byte(), 3);
        assert_eq!(next_id(SessionId(i64::MAX)), SessionId(i64::MIN + 1));
    }
}
