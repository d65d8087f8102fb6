//! Servers that cannot reach each other.
//!
//! Owns which pairs are cut off, and for how long. Clients reach every server meanwhile.

use zabkeeper_core::{Instant, ServerId};

use super::World;
use crate::chronicle::{Hit, pairs_text};
use crate::faults::Fault;
use crate::observe::Observation;
use crate::seed::Dice;
use crate::stream::{End, Party};
use crate::trace::Kind;

const MS: u64 = 1_000_000;
/// What was under way arrives within this time after the end of a partition, ns: senders try again now and then.
const RETRANSMISSION: u64 = 400 * MS;

/// From whom nothing gets to whom.
type Direction = (ServerId, ServerId);

impl World {
    /// A partition begins, around the server `only` where one is given; says whether there was anything to part.
    pub(super) fn partition(&mut self, fault: Fault, only: Option<ServerId>) -> bool {
        let servers: Vec<ServerId> = self.nodes.keys().copied().collect();
        let leaders = self.leaders();
        let dice = &mut self.fault_dice[fault as usize];
        let isolates = fault == Fault::NetIsolateLeader;
        let cut = if let Some(only) = only.filter(|_| !isolates) {
            around(fault, &servers, only, dice)
        } else if fault == Fault::NetOneWay {
            one_way(&servers, dice)
        } else if fault == Fault::NetPartial {
            partial(&servers, dice)
        } else if fault == Fault::NetSplit {
            split(&servers, dice)
        } else if leaders.is_empty() {
            Vec::new()
        } else {
            let leader = *dice.pick(&leaders);
            isolated(&servers, leader, dice)
        };
        if cut.is_empty() {
            return false;
        }
        let ms = dice.magnitude(50, 20_000);
        let until = Instant(self.shared.now.0 + ms * MS);
        let shared = &mut self.shared;
        let ends: Vec<u8> = cut.iter().flat_map(|(from, to)| [from.0, to.0].map(low)).collect();
        shared.note(Kind::Fault, (fault as u64, ms), &ends, || {
            format!("{fault} for {ms} ms: {}", pairs_text(&cut))
        });
        shared.hit(Hit::Pairs(cut.clone()), Some(until));
        for (from, to) in cut {
            self.cut_off(fault, from, to, until);
        }
        true
    }

    /// Nothing more passes in this direction: what is under way waits.
    pub(super) fn cut_off(&mut self, fault: Fault, from: ServerId, to: ServerId, until: Instant) {
        let shared = &mut self.shared;
        shared.reach.cut(from, to, until);
        shared.observe(Observation::Struck { servers: &[from, to], until });
        let (from, to) = (Party::Server(from), Party::Server(to));
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
        for (conn, end) in stalled {
            let again = self.fault_dice[fault as usize].below(RETRANSMISSION);
            shared.net.stall(conn, end, Instant(until.0 + again));
        }
    }
}

fn low(id: u64) -> u8 {
    u8::try_from(id).expect("at most seven servers")
}

/// Between one server and all others, or, in part, one of them.
fn around(fault: Fault, servers: &[ServerId], one: ServerId, dice: &mut Dice) -> Vec<Direction> {
    let others: Vec<ServerId> = servers.iter().copied().filter(|other| *other != one).collect();
    if others.is_empty() {
        return Vec::new();
    }
    if fault == Fault::NetPartial {
        let other = *dice.pick(&others);
        return vec![(one, other), (other, one)];
    }
    if fault == Fault::NetOneWay {
        let from = dice.chance(1, 2);
        return others.into_iter().map(|o| if from { (one, o) } else { (o, one) }).collect();
    }
    others.into_iter().flat_map(|other| [(one, other), (other, one)]).collect()
}

/// Both directions between two parts.
fn split(servers: &[ServerId], dice: &mut Dice) -> Vec<Direction> {
    let one_way = one_way(servers, dice);
    one_way.into_iter().flat_map(|(from, to)| [(from, to), (to, from)]).collect()
}

/// From one part to the other.
fn one_way(servers: &[ServerId], dice: &mut Dice) -> Vec<Direction> {
    let inside: Vec<bool> = servers.iter().map(|_| dice.chance(1, 2)).collect();
    let part = |wanted| {
        servers.iter().zip(&inside).filter(move |(_, is)| **is == wanted).map(|(server, _)| *server)
    };
    part(true).flat_map(|from| part(false).map(move |to| (from, to))).collect()
}

/// Both directions between some pairs, which may leave everybody reachable through somebody.
fn partial(servers: &[ServerId], dice: &mut Dice) -> Vec<Direction> {
    let mut cut = Vec::new();
    for (index, one) in servers.iter().enumerate() {
        for other in &servers[index + 1..] {
            if dice.chance(1, 3) {
                cut.extend([(*one, *other), (*other, *one)]);
            }
        }
    }
    cut
}

/// To one server, from it, or both.
fn isolated(servers: &[ServerId], one: ServerId, dice: &mut Dice) -> Vec<Direction> {
    let ways = dice.below(3);
    let others = servers.iter().copied().filter(|server| *server != one);
    let pair = |other| match ways {
        0 => vec![(one, other)],
        1 => vec![(other, one)],
        _ => vec![(one, other), (other, one)],
    };
    others.flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::seed::Seeds;

    fn dice() -> Dice {
        Seeds::new(5).stream("test", 0)
    }

    const FIVE: [ServerId; 5] = [ServerId(1), ServerId(2), ServerId(3), ServerId(4), ServerId(5)];

    #[test]
    fn a_split_has_two_parts_that_are_whole_and_a_one_way_cut_is_one_way() {
        let mut dice = dice();
        for _ in 0..100 {
            let cut = split(&FIVE, &mut dice);
            assert!(cut.iter().all(|(a, b)| cut.contains(&(*b, *a))));
            let ways = one_way(&FIVE, &mut dice);
            let (from, to): (BTreeSet<_>, BTreeSet<_>) = ways.into_iter().unzip();
            assert!(from.is_disjoint(&to));
        }
    }

    #[test]
    fn partial_cuts_leave_bridges_and_isolation_has_three_forms() {
        let mut dice = dice();
        let lone =
            |cut: &[Direction], s| FIVE.iter().filter(|o| **o != s).all(|o| cut.contains(&(s, *o)));
        let bridged = (0..100).filter(|_| {
            let cut = partial(&FIVE, &mut dice);
            !cut.is_empty() && FIVE.iter().all(|s| !lone(&cut, *s))
        });
        assert!(bridged.count() > 50);
        let forms: BTreeSet<Vec<Direction>> =
            (0..50).map(|_| isolated(&FIVE, ServerId(2), &mut dice)).collect();
        assert_eq!(forms.len(), 3);
    }

    #[test]
    fn one_server_cannot_be_parted() {
        let one = &FIVE[..1];
        for _ in 0..20 {
            assert!(split(one, &mut dice()).is_empty() && partial(one, &mut dice()).is_empty());
            assert!(isolated(one, ServerId(1), &mut dice()).is_empty());
        }
    }
}
