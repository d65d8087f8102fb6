//! Bytes stay in order, and connections break in every permitted way.

use super::*;
use crate::engine::seed::Seeds;

const CONN: ConnId = ConnId(1);
const PACE: LinkPace = LinkPace { min: 10, mean: 100, tail_one_in: 50, cut_one_in: 2 };

struct Rig {
    net: Network,
    arrivals: Vec<Arrival>,
}

fn rig(seed: u64) -> Rig {
    let mut net = Network::new(0);
    let conn = net.allocate();
    let ends = [Party::Client(ClientId(0)), Party::Server(ServerId(1))];
    let attempt = net.attempt(Seeds::new(seed), ends);
    net.open(conn, attempt, PACE);
    Rig { net, arrivals: Vec::new() }
}

impl Rig {
    fn send(&mut self, now: u64, from: End, text: &'static str) {
        self.net.send(Instant(now), CONN, from, Bytes::from_static(text.as_bytes()));
    }

    /// The bytes that reach `to` up to `until`, and how the connection ended.
    fn received(&mut self, to: End, until: u64) -> (String, Option<Delivery>) {
        let (mut text, mut end) = (String::new(), None);
        loop {
            self.arrivals.extend(self.net.take_arrivals());
            self.arrivals.sort_by_key(|arrival| arrival.at);
            let due = |a: &Arrival| a.to == to && a.at.0 <= until;
            let Some(next) = self.arrivals.iter().position(due) else {
                return (text, end);
            };
            let arrival = self.arrivals.remove(next);
            match self.net.arrive(arrival.at, CONN, to) {
                Delivery::Nothing => {}
                Delivery::Later(at) => self.arrivals.push(Arrival { at, ..arrival }),
                Delivery::Bytes(bytes) => {
                    text.push_str(std::str::from_utf8(&bytes).expect("ASCII"));
                }
                Delivery::Closed => end = Some(Delivery::Closed),
                Delivery::Reset => end = Some(Delivery::Reset),
            }
        }
    }
}

#[test]
fn split_writes_arrive_in_order() {
    for seed in 0..50 {
        let mut rig = rig(seed);
        for text in ["alpha", "beta", "gamma"] {
            rig.send(0, End::Dialler, text);
        }
        assert_eq!(rig.received(End::Acceptor, u64::MAX).0, "alphabetagamma");
    }
}

#[test]
fn close_arrives_after_all_bytes_and_closer_receives_nothing() {
    let mut rig = rig(1);
    rig.send(0, End::Acceptor, "last words");
    rig.send(0, End::Dialler, "unheard");
    rig.net.close(Instant(1), CONN, End::Acceptor);
    assert_eq!(rig.received(End::Acceptor, u64::MAX), (String::new(), None));
    let received = rig.received(End::Dialler, u64::MAX);
    assert_eq!(received, ("last words".into(), Some(Delivery::Closed)));
    assert_eq!(rig.net.list().count(), 0);
}

#[test]
fn reset_truncates_at_any_byte() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let mut rig = rig(seed);
        rig.send(0, End::Dialler, "abcdef");
        rig.net.break_off(Instant(1), CONN, Break::Both);
        let (text, end) = rig.received(End::Acceptor, u64::MAX);
        assert!("abcdef".starts_with(&text));
        assert_eq!(end, Some(Delivery::Reset));
        assert_eq!(rig.received(End::Dialler, u64::MAX).1, Some(Delivery::Reset));
        lengths.insert(text.len());
    }
    assert_eq!(lengths.len(), 7);
}

#[test]
fn half_open_connection_discards_writes_until_its_reset() {
    let mut rig = rig(2);
    let late = Instant(1_000_000);
    let how = Break::HalfOpen { first: End::Acceptor, late, on_write: false };
    rig.net.break_off(Instant(1), CONN, how);
    rig.send(5, End::Dialler, "swallowed");
    assert_eq!(rig.received(End::Acceptor, 100), (String::new(), Some(Delivery::Reset)));
    assert_eq!(rig.received(End::Dialler, 999_999), (String::new(), None));
    assert_eq!(rig.received(End::Dialler, 1_000_000).1, Some(Delivery::Reset));
}

#[test]
fn bytes_in_flight_may_arrive_late_on_a_half_open_connection() {
    let late = Instant(1_000_000_000);
    let arrives = |seed| {
        let mut rig = rig(seed);
        rig.send(0, End::Acceptor, "on its way");
        let how = Break::HalfOpen { first: End::Acceptor, late, on_write: false };
        rig.net.break_off(Instant(1), CONN, how);
        let soon = rig.received(End::Dialler, late.0 / 10).0;
        let (then, end) = rig.received(End::Dialler, late.0);
        assert_eq!(end, Some(Delivery::Reset));
        assert!("on its way".starts_with(&format!("{soon}{then}")), "{soon:?}, {then:?}");
        (!soon.is_empty(), !then.is_empty())
    };
    let met: Vec<(bool, bool)> = (0..60).map(arrives).collect();
    assert!(met.contains(&(true, false)) && met.contains(&(false, true)), "{met:?}");
}

#[test]
fn restarted_machine_resets_the_connections_of_its_former_processes() {
    let silence = Silence { late: Instant(1 << 40), on_write: false };
    for (reaches, met) in [(true, Some(Delivery::Reset)), (false, None)] {
        let mut rig = rig(4);
        rig.net.abandon(Instant(1), CONN, End::Acceptor, Some(silence));
        rig.send(5, End::Dialler, "hello?");
        let [dialler, acceptor] = rig.net.parties(CONN).expect("it is known");
        rig.net.reboot(dialler, |_| true);
        rig.send(6, End::Dialler, "hello?");
        assert_eq!(rig.received(End::Dialler, 1 << 39).1, None, "nobody was there");
        rig.net.reboot(acceptor, |_| reaches);
        rig.send(1 << 39, End::Dialler, "hello?");
        assert_eq!(rig.received(End::Dialler, (1 << 40) - 1).1, met);
    }
}

#[test]
fn write_into_a_dead_connection_may_trigger_a_reset() {
    let mut rig = rig(3);
    rig.net.abandon(
        Instant(1),
        CONN,
        End::Acceptor,
        Some(Silence { late: Instant(1 << 40), on_write: true }),
    );
    rig.send(5, End::Dialler, "hello?");
    // The reset must not be queued behind the late one.
    let (_, end) = rig.received(End::Dialler, 1 << 39);
    assert_eq!(end, Some(Delivery::Reset));
}

#[test]
fn stalled_bytes_arrive_in_order_after_the_stall() {
    let mut rig = rig(4);
    rig.net.stall(CONN, End::Acceptor, Instant(1_000_000));
    rig.send(0, End::Dialler, "one");
    rig.send(10, End::Dialler, "two");
    assert_eq!(rig.received(End::Acceptor, 999_999).0, "");
    assert_eq!(rig.received(End::Acceptor, 1_000_000).0, "onetwo");
}

#[test]
fn heal_ends_stalls_and_delivers_pending_resets() {
    let mut rig = rig(5);
    rig.net.stall(CONN, End::Acceptor, Instant(1 << 40));
    rig.send(0, End::Dialler, "stuck");
    assert_eq!(rig.received(End::Acceptor, 10_000).0, "");
    rig.net.heal(Instant(20_000), LinkPace::CALM);
    assert_eq!(rig.received(End::Acceptor, 20_000).0, "stuck");
    let how = Break::HalfOpen { first: End::Acceptor, late: Instant(1 << 41), on_write: false };
    rig.net.break_off(Instant(30_000), CONN, how);
    rig.net.heal(Instant(40_000), LinkPace::CALM);
    assert_eq!(rig.received(End::Dialler, 40_000).1, Some(Delivery::Reset));
}

#[test]
fn other_connections_do_not_shift_latencies() {
    let arrivals = |others: u32| {
        let (mut net, seeds) = (Network::new(0), Seeds::new(3));
        let mut at = Vec::new();
        for _ in 0..3 {
            for other in 1..=others {
                let parties = [Party::Client(ClientId(other)), Party::Server(ServerId(1))];
                let attempt = net.attempt(seeds, parties);
                let conn = net.allocate();
                net.open(conn, attempt, PACE);
                net.send(Instant(0), conn, End::Acceptor, Bytes::from_static(b"for the other"));
            }
            net.take_arrivals();
            let parties = [Party::Client(ClientId(0)), Party::Server(ServerId(1))];
            let mut attempt = net.attempt(seeds, parties);
            let took = attempt.takes(PACE);
            let conn = net.allocate();
            net.open(conn, attempt, PACE);
            // Writes of one end do not shift the latencies of the other direction.
            for _ in 0..=others {
                net.send(Instant(0), conn, End::Dialler, Bytes::from_static(b"asked"));
            }
            net.send(Instant(0), conn, End::Acceptor, Bytes::from_static(b"answered"));
            let received = net.take_arrivals().filter(|arrival| arrival.to == End::Dialler);
            at.push((took, received.map(|arrival| arrival.at.0).collect::<Vec<_>>()));
        }
        at
    };
    let alone = arrivals(0);
    assert_eq!(alone, arrivals(1));
    assert_eq!(alone, arrivals(4));
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "each connection has streams of its own");
}

#[test]
fn slow_reader_receives_parts_with_pauses_until_a_break_or_the_heal() {
    let slow = SlowReader { until: Instant(1_000_000), part: 2, pause: 10_000 };
    for seed in 0..50 {
        let mut rig = rig(seed);
        assert_eq!(rig.net.slow_room(Instant(0), CONN, End::Dialler), None);
        rig.net.read_slowly(CONN, End::Dialler, slow);
        assert_eq!(rig.net.slow_room(Instant(0), CONN, End::Dialler), Some(2));
        assert_eq!(rig.net.slow_room(slow.until, CONN, End::Dialler), None);
        rig.send(0, End::Acceptor, "alphabetagamma");
        rig.send(0, End::Dialler, "unhindered");
        let (some, _) = rig.received(End::Dialler, 45_000);
        assert!((1..=10).contains(&some.len()), "{some}");
        let (_, end) = if seed % 2 == 0 {
            rig.net.heal(Instant(45_000), PACE);
            let (rest, end) = rig.received(End::Dialler, u64::MAX);
            assert_eq!(some + &rest, "alphabetagamma");
            assert_eq!(rig.received(End::Acceptor, u64::MAX).0, "unhindered");
            (rest, end)
        } else {
            rig.net.break_off(Instant(45_000), CONN, Break::Both);
            rig.received(End::Dialler, 45_001)
        };
        assert_eq!(end, (seed % 2 == 1).then_some(Delivery::Reset));
        assert_eq!(rig.net.slow_room(Instant(0), CONN, End::Dialler), None);
    }
}
