//! Tests of the network: order, partitions, ends of connections.

use super::*;

const CLIENT: Party = Party::Client(1);
const SERVER: Party = Party::Server(1);

fn at(ms: u64) -> Instant {
    Instant(0).after(Duration::from_millis(ms))
}

/// A network with an open connection at 2 ms, and the number of the connection.
fn connected() -> (Network, u64) {
    let mut network = Network::default();
    let conn = network.next_conn();
    network.dial(conn, (CLIENT, 1), Port::Clients, None, at(0));
    assert_eq!(network.next_delivery(at(1)).unwrap().arrival, Arrival::Open);
    network.answer(conn, true, at(1));
    assert!(network.next_delivery(at(2)).is_none());
    (network, conn)
}

/// The bytes that the server receives, a line for each message.
fn received(network: &mut Network, conn: u64, now: Instant) -> Vec<Bytes> {
    while network.next_delivery(now).is_some() {}
    let mut all = Vec::new();
    while let Received::Bytes(bytes) = network.receive(conn, SERVER, 100) {
        all.push(bytes);
    }
    all
}

#[test]
fn stopped_messages_arrive_in_order_when_the_partition_ends() {
    let (mut network, conn) = connected();
    let send = |network: &mut Network, text: &'static str, ms| {
        network.send(conn, CLIENT, Bytes::from_static(text.as_bytes()), at(ms));
    };
    send(&mut network, "a", 2);
    network.isolate(1, true);
    send(&mut network, "b", 5);
    assert_eq!(received(&mut network, conn, at(8)), Vec::<Bytes>::new());
    send(&mut network, "c", 9);
    network.isolate(1, false);
    assert!(network.next_arrival() <= Some(at(9)));
    assert_eq!(received(&mut network, conn, at(9)), ["a", "b"]);
    network.close(conn, CLIENT, at(9));
    assert_eq!(received(&mut network, conn, at(10)), ["c"]);
    assert_eq!(network.receive(conn, SERVER, 100), Received::End);
}

#[test]
fn long_messages_are_received_in_parts() {
    let (mut network, conn) = connected();
    network.send(conn, CLIENT, Bytes::from_static(b"abcde"), at(2));
    assert!(network.next_delivery(at(3)).is_some());
    for part in ["ab", "cd", "e"] {
        let expected = Received::Bytes(Bytes::from_static(part.as_bytes()));
        assert_eq!(network.receive(conn, SERVER, 2), expected);
    }
    assert_eq!(network.receive(conn, SERVER, 2), Received::Nothing);
}

#[test]
fn closed_connections_leave_nothing_behind() {
    let (mut network, conn) = connected();
    network.close_all(1, at(2));
    assert!(network.next_delivery(at(3)).is_none());
    assert_eq!(network.receive(conn, CLIENT, 100), Received::End);
    network.close(conn, CLIENT, at(3));
    assert!(network.conns.is_empty() && network.messages.is_empty());

    let conn = network.next_conn();
    network.dial(conn, (Party::Server(2), 1), Port::Clients, Some(at(50)), at(10));
    network.partition([2].into());
    assert!(network.next_delivery(at(11)).is_none());
    assert_eq!(network.next_delivery(at(50)).unwrap().arrival, Arrival::DialTimeout);
    network.partition([].into());
    assert_eq!(network.next_delivery(at(60)).unwrap().arrival, Arrival::Open);
    network.answer(conn, false, at(60));
    assert!(network.conns.is_empty());
}
