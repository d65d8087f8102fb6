//! Partitions between servers.
//!
//! Owns which pairs are cut, and for how long. Clients still reach every server.

use zabkeeper_core::{Instant, ServerId};

use super::World;
use crate::check::observe::Observation;
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::network::stream::{Break, End, Party};
use crate::record::injection::{Hit, pairs_text};
use crate::record::trace::Kind;
use crate::world::shared::Event;

const MS: u64 = 1_000_000;
/// Bytes in flight arrive within this time after the end of a partition, ns, or within the
/// partition's own duration if that is longer: TCP retransmits with exponential backoff.
const RETRANSMISSION: u64 = 400 * MS;

/// Sender and receiver of a cut direction.
type Direction = (ServerId, ServerId);

/// A partition that begins later than the fault that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    fault: Fault,
    whom: Whom,
    until: Instant,
    rng: Rng,
}

#[derive(Clone, Debug)]
enum Whom {
    /// Cuts these directions.
    Cut(Vec<Direction>),
    /// Cuts both directions around the leader of the newest epoch at that time.
    Leader,
    /// Cuts both directions around this server; only the other servers see their links break.
    Unaware(ServerId),
}

impl World {
    /// Begins a partition, around the server `only` if given. Returns whether there was anything to
    /// cut.
    pub(super) fn part(&mut self, fault: Fault, only: Option<ServerId>) -> bool {
        let servers: Vec<ServerId> = self.nodes.keys().copied().collect();
        let leaders = self.leaders();
        let rng = &mut self.fault_rng[fault as usize];
        let isolates = fault == Fault::NetIsolateLeader;
        let mut unaware = None;
        let cut = if let Some(only) = only.filter(|_| !isolates) {
            around(fault, &servers, only, rng)
        } else if fault == Fault::NetOneWay {
            one_way(&servers, rng)
        } else if fault == Fault::NetPartial {
            partial(&servers, rng)
        } else if fault == Fault::NetSplit {
            split(&servers, rng)
        } else if leaders.is_empty() {
            Vec::new()
        } else {
            let leader = *rng.pick(&leaders);
            let (cut, others_know) = isolated(&servers, leader, rng);
            unaware = others_know.then_some(leader);
            cut
        };
        if cut.is_empty() {
            return false;
        }
        let limit = self.shared.options.server.sync_limit_ns();
        let lasts = match unaware {
            // Around the time that an isolated leader needs to notice the loss of its quorum.
            Some(_) => rng.range(limit / 2, 2 * limit),
            None => rng.magnitude(50, 20_000) * MS,
        };
        let until = Instant(self.shared.now.0 + lasts);
        match unaware {
            Some(leader) if rng.chance(1, 2) => self.keep_from(fault, leader, until),
            Some(leader) => self.cut_unaware(fault, leader, until),
            None => self.cut_all(fault, cut, until),
        }
        true
    }

    /// The leader can still send for a moment but receives nothing; then it is cut off completely.
    /// Some of the replies arrive after it has lost the leadership.
    fn keep_from(&mut self, fault: Fault, leader: ServerId, until: Instant) {
        let limit = self.shared.options.server.sync_limit_ns();
        let after = self.fault_rng[fault as usize].below(limit / 4);
        let mut cut = self.all_around(leader);
        cut.retain(|(_, to)| *to == leader);
        self.cut_all(fault, cut, Instant(self.shared.now.0 + after));
        self.part_later(fault, after, Whom::Unaware(leader), until);
    }

    /// Cuts both directions around the server; only the other servers see their links break.
    fn cut_unaware(&mut self, fault: Fault, server: ServerId, until: Instant) {
        self.cut_all(fault, self.all_around(server), until);
        self.leave_unaware(server, until);
    }

    /// Both directions between this server and all others.
    pub(super) fn all_around(&self, server: ServerId) -> Vec<Direction> {
        between(server, &Vec::from_iter(self.nodes.keys().copied()))
    }

    /// Breaks the server's links so that only the other ends learn of it.
    pub(super) fn leave_unaware(&mut self, server: ServerId, until: Instant) {
        let shared = &mut self.shared;
        shared.describe(|| format!("s{server} does not learn of it"));
        for (conn, [dialler, acceptor]) in shared.net.list().collect::<Vec<_>>() {
            let first = match (dialler, acceptor) {
                (Party::Server(_), Party::Server(to)) if to == server => End::Dialler,
                (Party::Server(from), Party::Server(_)) if from == server => End::Acceptor,
                _ => continue,
            };
            let how = Break::HalfOpen { first, late: until, on_write: false };
            shared.net.break_off(shared.now, conn, how);
        }
        shared.schedule_arrivals();
        self.load_leader(server, until);
    }

    /// Leaves behind a leader and some of its followers, fewer than half of the servers, with log
    /// entries that only they have. They return one by one. Some time after each return the current
    /// leader is cut off, so that a returned server may lead when the next one returns.
    pub(super) fn leave_behind(&mut self) -> bool {
        let fault = Fault::NetStragglers;
        let mut rest: Vec<ServerId> = self.nodes.keys().copied().collect();
        let limit = self.shared.options.server.sync_limit_ns();
        let (leaders, now) = (self.leaders(), self.shared.now);
        let minority = (rest.len() as u64).div_ceil(2) - 1;
        if leaders.is_empty() || minority == 0 {
            return false;
        }
        let rng = &mut self.fault_rng[fault as usize];
        let mut behind = vec![*rng.pick(&leaders)];
        rest.retain(|server| *server != behind[0]);
        for _ in 1..rng.range(1, minority) {
            behind.push(take(&mut rest, rng));
        }
        let mut returns = Vec::new();
        let mut at = now;
        while !behind.is_empty() {
            at.0 += rng.range(limit, 4 * limit);
            returns.push((take(&mut behind, rng), at));
        }
        for (one, until) in returns.clone() {
            self.cut_all(fault, between(one, &rest), until);
        }
        let (first, until) = returns[0];
        let mut back = vec![first];
        for (one, at) in &returns[1..] {
            let after = until.0 - now.0;
            self.part_later(fault, after, Whom::Cut(between(*one, &back)), *at);
            back.push(*one);
        }
        for (_, at) in returns {
            let rng = &mut self.fault_rng[fault as usize];
            let after = at.0 - now.0 + rng.range(limit / 4, 2 * limit);
            let until = Instant(now.0 + after + rng.range(2 * limit, 4 * limit));
            self.part_later(fault, after, Whom::Leader, until);
        }
        true
    }

    fn part_later(&mut self, fault: Fault, after: u64, whom: Whom, until: Instant) {
        let rng = self.fault_rng[fault as usize].fork();
        let number = self.partitions.len();
        let ms = until.0.saturating_sub(self.shared.now.0 + after) / MS;
        self.shared.describe(|| match &whom {
            Whom::Cut(cut) => format!("{} ms later for {ms} ms: {}", after / MS, pairs_text(cut)),
            Whom::Leader => format!("{} ms later for {ms} ms: whoever leads", after / MS),
            Whom::Unaware(leader) => format!("{} ms later for {ms} ms: s{leader}", after / MS),
        });
        self.partitions.push(Partition { fault, whom, until, rng });
        self.shared.after(after, Event::Parts { partition: number });
    }

    /// Begins a planned partition, if faults are still injected.
    pub(super) fn part_as_planned(&mut self, number: usize) {
        let Partition { fault, whom, until, rng } = self.partitions[number].clone();
        let newest = || self.leaders_by_epoch().pop().map(|leader| self.all_around(leader));
        let (cut, unaware) = match whom {
            Whom::Cut(cut) => (cut, None),
            Whom::Leader => (newest().unwrap_or_default(), None),
            Whom::Unaware(leader) => (self.all_around(leader), Some(leader)),
        };
        if !self.shared.is_faulty() || until <= self.shared.now || cut.is_empty() {
            return;
        }
        let before = std::mem::replace(&mut self.fault_rng[fault as usize], rng);
        match unaware {
            Some(leader) => self.cut_unaware(fault, leader, until),
            None => self.cut_all(fault, cut, until),
        }
        self.fault_rng[fault as usize] = before;
    }

    fn cut_all(&mut self, fault: Fault, cut: Vec<Direction>, until: Instant) {
        let shared = &mut self.shared;
        let ms = (until.0 - shared.now.0) / MS;
        let ends: Vec<u8> = cut.iter().flat_map(|(from, to)| [from.0, to.0].map(low)).collect();
        shared.note(Kind::Fault, (fault as u64, ms), &ends, || {
            format!("{fault} for {ms} ms: {}", pairs_text(&cut))
        });
        self.hit_and_cut(fault, cut, until);
    }

    /// Like `cut_all`, without a record in the trace.
    pub(super) fn hit_and_cut(&mut self, fault: Fault, cut: Vec<Direction>, until: Instant) {
        self.shared.hit(fault, Hit::Pairs(cut.clone()), Some(until));
        for (from, to) in cut {
            self.cut_off(fault, from, to, until);
        }
    }

    /// Cuts one direction: bytes in flight wait until the partition ends.
    pub(super) fn cut_off(&mut self, fault: Fault, from: ServerId, to: ServerId, until: Instant) {
        let shared = &mut self.shared;
        shared.reach.cut(from, to, until);
        let servers = [from, to];
        let [from, to] = servers.map(Party::Server);
        let mut stalled = Vec::new();
        for (conn, parties) in shared.net.list() {
            match parties {
                [dialler, acceptor] if (dialler, acceptor) == (from, to) => {
                    stalled.push((conn, End::Acceptor));
                }
                [dialler, acceptor] if (dialler, acceptor) == (to, from) => {
                    stalled.push((conn, End::Dialler));
                }
                _ => {}
            }
        }
        let latest = RETRANSMISSION.max(until.0.saturating_sub(shared.now.0));
        let mut over = until;
        for (conn, end) in stalled {
            let again = self.fault_rng[fault as usize].below(latest);
            let late = Instant(until.0.saturating_add(again));
            shared.net.stall(conn, end, late);
            over = over.max(late);
        }
        // Stalled bytes may arrive long after the end of the partition (seed 0x2d001e000ab9, L8).
        shared.observe(Observation::FaultInjected { servers: &servers, until: over });
    }
}

fn low(id: u64) -> u8 {
    u8::try_from(id).expect("at most seven servers")
}

/// Between one server and all others or, for `NetPartial`, one other server.
fn around(fault: Fault, servers: &[ServerId], one: ServerId, rng: &mut Rng) -> Vec<Direction> {
    let others: Vec<ServerId> = servers.iter().copied().filter(|other| *other != one).collect();
    if others.is_empty() {
        return Vec::new();
    }
    if fault == Fault::NetPartial {
        let other = *rng.pick(&others);
        return vec![(one, other), (other, one)];
    }
    if fault == Fault::NetOneWay {
        let from = rng.chance(1, 2);
        return others.into_iter().map(|o| if from { (one, o) } else { (o, one) }).collect();
    }
    between(one, &others)
}

/// Both directions between `one` and each of the `others` except itself.
fn between(one: ServerId, others: &[ServerId]) -> Vec<Direction> {
    let others = others.iter().copied().filter(|other| *other != one);
    others.flat_map(|other| [(one, other), (other, one)]).collect()
}

fn take(servers: &mut Vec<ServerId>, rng: &mut Rng) -> ServerId {
    let one = *rng.pick(servers);
    servers.retain(|server| *server != one);
    one
}

/// Both directions between two random groups.
fn split(servers: &[ServerId], rng: &mut Rng) -> Vec<Direction> {
    let one_way = one_way(servers, rng);
    one_way.into_iter().flat_map(|(from, to)| [(from, to), (to, from)]).collect()
}

/// From one random group to the other.
fn one_way(servers: &[ServerId], rng: &mut Rng) -> Vec<Direction> {
    let inside: Vec<bool> = servers.iter().map(|_| rng.chance(1, 2)).collect();
    let part = |wanted| {
        servers.iter().zip(&inside).filter(move |(_, is)| **is == wanted).map(|(server, _)| *server)
    };
    part(true).flat_map(|from| part(false).map(move |to| (from, to))).collect()
}

/// Both directions between random pairs; all servers may still be connected through others.
fn partial(servers: &[ServerId], rng: &mut Rng) -> Vec<Direction> {
    let mut cut = Vec::new();
    for (index, one) in servers.iter().enumerate() {
        for other in &servers[index + 1..] {
            if rng.chance(1, 3) {
                cut.extend([(*one, *other), (*other, *one)]);
            }
        }
    }
    cut
}

/// To one server, from it, or both. In the last case the other servers may detect it at once; the
/// server then stays in the role of leader after they have left it.
fn isolated(servers: &[ServerId], one: ServerId, rng: &mut Rng) -> (Vec<Direction>, bool) {
    let ways = rng.below(5);
    let mut cut = between(one, servers);
    cut.retain(|(from, to)| match ways {
        0 => *from == one,
        1 => *to == one,
        _ => true,
    });
    (cut, ways > 2)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::engine::seed::Seeds;

    fn rng() -> Rng {
        Seeds::new(5).stream("test", 0)
    }

    const FIVE: [ServerId; 5] = [ServerId(1), ServerId(2), ServerId(3), ServerId(4), ServerId(5)];

    #[test]
    fn split_is_symmetric_and_one_way_cut_is_not() {
        let mut rng = rng();
        for _ in 0..100 {
            let cut = split(&FIVE, &mut rng);
            assert!(cut.iter().all(|(a, b)| cut.contains(&(*b, *a))));
            let ways = one_way(&FIVE, &mut rng);
            let (from, to): (BTreeSet<_>, BTreeSet<_>) = ways.into_iter().unzip();
            assert!(from.is_disjoint(&to));
        }
    }

    #[test]
    fn partial_cut_leaves_bridges_and_isolation_has_four_forms() {
        let mut rng = rng();
        let lone =
            |cut: &[Direction], s| FIVE.iter().filter(|o| **o != s).all(|o| cut.contains(&(s, *o)));
        let bridged = (0..100).filter(|_| {
            let cut = partial(&FIVE, &mut rng);
            !cut.is_empty() && FIVE.iter().all(|s| !lone(&cut, *s))
        });
        assert!(bridged.count() > 50);
        let forms: BTreeSet<_> = (0..50).map(|_| isolated(&FIVE, ServerId(2), &mut rng)).collect();
        assert_eq!(forms.len(), 4);
    }

    #[test]
    fn single_server_has_no_partition() {
        let one = &FIVE[..1];
        for _ in 0..20 {
            assert!(split(one, &mut rng()).is_empty() && partial(one, &mut rng()).is_empty());
            assert!(isolated(one, ServerId(1), &mut rng()).0.is_empty());
        }
    }
}
