//! Four-letter commands over the connections of a driver: their effects, and what they wait for.

use bytes::BytesMut;

use super::*;
use crate::driver::tests::{Host, create, exists, frames};
use crate::driver::{ClientLimits, ConnCloseReason, Interest, TurnLimits};
use crate::wire::Request;

/// Lines for more than two parts of an answer.
const WATCHED: usize = 2_500;

/// The time limit for a part of a long answer.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

fn host(whitelist: Whitelist) -> Host {
    let mut host = Host::new(ClientLimits::default(), TurnLimits::default());
    let options = FourLetterOptions { whitelist, ..FourLetterOptions::default() };
    host.driver = host.driver.with_four_letter(options);
    host
}

/// Opens a connection that sends `bytes` and takes output only when the test reads it.
fn send(host: &mut Host, bytes: &[u8]) -> ConnId {
    let conn = host.accept(9);
    host.take(conn, Some(0));
    host.receive(conn, bytes);
    conn
}

/// Takes all queued output of the connection.
fn read(host: &mut Host, conn: ConnId) -> String {
    let mut text = String::new();
    loop {
        let bytes = host.driver.clients.output(conn);
        if bytes.is_empty() {
            return text;
        }
        text.push_str(str::from_utf8(bytes).expect("is text"));
        let length = bytes.len();
        host.driver.clients.sent(conn, length, host.now.mono);
    }
}

/// Sends a command, and takes the whole answer.
fn ask(host: &mut Host, bytes: &[u8]) -> String {
    let conn = send(host, bytes);
    host.turns(1);
    let text = read(host, conn);
    assert_eq!(host.interest(conn), Interest::Shutdown);
    assert_eq!(host.ended(conn), ConnCloseReason::ByServer);
    text
}

fn watches(count: usize) -> BytesMut {
    let watch = |number| Request::GetData { path: format!("/watched-{number}"), watch: true };
    let create = |number| create(&format!("/watched-{number}"));
    frames((0..count).flat_map(|number| [create(number), watch(number)]))
}

/// A server with a client that watches many paths.
fn watched_host() -> Host {
    let mut host = host(Whitelist::All);
    let conn = host.connect(1);
    host.receive(conn, &watches(WATCHED));
    host.turns(100);
    assert_eq!(host.server.status().watches, WATCHED);
    host
}

#[test]
fn command_is_answered_and_its_connection_ends() {
    let mut host = host(Whitelist::All);
    assert_eq!(ask(&mut host, b"ruok"), "imok");
    assert_eq!(ask(&mut host, b"isro"), "rw");
    assert_eq!(ask(&mut host, b"wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    let metrics = host.driver.clients.metrics();
    assert_eq!((metrics.received, metrics.sent), (3, 3));
    assert!(host.driver.clients.is_empty());
}

/// FLW-07, FLW-08.
#[test]
fn trace_mask_is_set_when_its_last_byte_arrives() {
    let mut host = host(Whitelist::All);
    assert_eq!(ask(&mut host, b"gtmk"), "306");
    let stmk = send(&mut host, b"stmk\0\0\0\0");
    host.turns(1);
    assert_eq!(host.interest(stmk), Interest::Read);
    host.receive(stmk, &[0, 0, 1, 2]);
    host.turns(1);
    assert_eq!(read(&mut host, stmk), "258");
    assert_eq!(ask(&mut host, b"gtmk"), "258");
}

/// CONF-27.
#[test]
fn refused_commands_have_no_effect() {
    let mut host = host(Whitelist::These(vec!["gtmk".to_owned(), "ruok".to_owned()]));
    let conn = host.connect(1);
    host.receive(conn, &exists(3));
    host.turns(2);
    for (bytes, command) in
        [(&b"srst"[..], FourLetterCommand::Srst), (b"crst", FourLetterCommand::Crst)]
    {
        assert_eq!(ask(&mut host, bytes), refused(command));
    }
    assert_eq!(ask(&mut host, b"stmk"), refused(FourLetterCommand::Stmk), "no mask is awaited");
    assert_eq!(ask(&mut host, b"gtmk"), "306");
    assert_eq!(host.driver.clients.metrics().received, 8);
    assert_eq!(host.driver.clients.lines()[0].stats.received, 4);
}

/// FLW-03, FLW-10.
#[test]
fn crst_and_srst_set_counters_to_zero() {
    let mut host = host(Whitelist::All);
    let conn = host.connect(1);
    host.receive(conn, &exists(3));
    host.turns(2);
    assert_eq!(ask(&mut host, b"crst"), "Connection stats reset.\n");
    assert_eq!(host.driver.clients.lines()[0].stats.received, 0);
    assert_eq!(host.driver.clients.metrics().received, 5);
    assert_eq!(ask(&mut host, b"srst"), "Server stats reset.\n");
    let metrics = host.driver.clients.metrics();
    assert_eq!((metrics.received, metrics.sent), (0, 1), "its own answer comes behind the reset");
}

#[test]
fn command_that_needs_a_fact_of_the_process_waits_for_it_alone() {
    let mut host = host(Whitelist::All);
    let dirs = send(&mut host, b"dirs");
    host.turns(1);
    let asked = host.driver.four_letter.next_query();
    assert_eq!(asked, Some((dirs, HostQuery::DiskUse)));
    assert_eq!(host.driver.four_letter.next_query(), None);
    assert!(ask(&mut host, b"srvr").contains("\nConnections: 2\n"));
    assert_eq!((read(&mut host, dirs), host.interest(dirs)), (String::new(), Interest::Wait));
    let gone = send(&mut host, b"mntr");
    host.turns(1);
    let asked = host.driver.four_letter.next_query();
    assert_eq!(asked, Some((gone, HostQuery::Descriptors)));
    host.driver.clients.forget(gone);
    host.turns(1);
    host.driver.four_letter.supply(gone, HostFacts::Descriptors(None));
    host.driver.four_letter.supply(dirs, HostFacts::DiskUse(DiskUse { snapshots: 7, log: 9 }));
    host.turns(1);
    assert_eq!(read(&mut host, dirs), "datadir_size: 7\nlogdir_size: 9\n");
    assert!(!host.driver.has_work());
}

#[test]
fn turn_makes_few_answers_that_read_the_server() {
    let mut host = host(Whitelist::All);
    let srvr: Vec<ConnId> = (0..10).map(|_| send(&mut host, b"srvr")).collect();
    let ruok = send(&mut host, b"ruok");
    host.turns(1);
    assert_eq!(read(&mut host, ruok), "imok");
    let answered = |host: &Host| {
        srvr.iter().filter(|conn| host.interest(**conn) == Interest::Shutdown).count()
    };
    assert_eq!(answered(&host), 4);
    assert!(host.driver.has_work());
    host.turns(2);
    assert_eq!(answered(&host), 10);
}

/// FLW-14, FLW-15.
#[test]
fn long_answer_leaves_in_parts_as_its_client_takes_them() {
    let mut host = watched_host();
    let session = host.server.sessions()[0].id;
    let by_path = |number| format!("/watched-{number}\n\t{session}\n");
    let paths: Vec<String> = (0..WATCHED).map(by_path).collect();
    let by_conn = |number| format!("\t/watched-{number}\n");
    let lines: Vec<String> = (0..WATCHED).map(by_conn).collect();
    for (command, expected) in
        [(b"wchp", paths.concat() + "\n"), (b"wchc", format!("{session}\n{}\n", lines.concat()))]
    {
        let conn = send(&mut host, command);
        let (mut text, mut parts) = (String::new(), 0);
        while host.interest(conn) == Interest::Wait {
            host.turns(5);
            let part = read(&mut host, conn);
            assert!(part.lines().count() <= 2_000, "one part is queued at most");
            parts += usize::from(!part.is_empty());
            text += &part;
        }
        assert_eq!(text, expected);
        assert!(parts > 2, "{parts}");
        assert_eq!(host.ended(conn), ConnCloseReason::ByServer);
    }
}

#[test]
fn long_answer_ends_when_its_client_takes_nothing_for_too_long() {
    let mut host = watched_host();
    let conn = send(&mut host, b"wchc");
    host.turns(1);
    let queued = host.driver.clients.takes_up(conn).expect("is open").output_bytes;
    // Two turns take a millisecond each.
    host.pass(PART_TIMEOUT - Duration::from_millis(2));
    assert_eq!(host.interest(conn), Interest::Wait);
    host.turns(1);
    assert_eq!(host.interest(conn), Interest::Shutdown);
    assert_eq!(read(&mut host, conn).len(), queued, "what is queued may still leave");
    assert!(!host.driver.has_work());
}

#[test]
fn end_of_a_connection_ends_its_long_answer() {
    let mut host = watched_host();
    let conn = send(&mut host, b"wchc");
    host.turns(1);
    host.driver.clients.fail(conn, "reset".to_owned());
    assert_eq!(host.interest(conn), Interest::Close);
    host.driver.clients.forget(conn);
    host.turns(1);
    assert!(!host.driver.has_work());
    assert!(host.driver.next_deadline(&host.server) < Some(host.now.mono.after(PART_TIMEOUT)));
}
