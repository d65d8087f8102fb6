//! O2: answers to four-letter commands.
//!
//! A name that begins with an id is the violation that must be reported.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use zabkeeper_core::wire::FourLetterCommand;
use zabkeeper_core::{ConnId, Instant, Now, SessionId, WallMs};

use super::history::{History, SERVER, check_pair, create, create_with};
use super::operators::report;
use crate::check::answers::{Answer, Between, ConnFacts, Counters, Moment, Settings};
use crate::check::observe::{ClientId, Observation};

/// Three requests were answered on one connection, and an operator is connected.
fn moment(h: &mut History) -> Moment {
    let a = h.client(0);
    h.writes(a, create("/p"));
    h.writes(a, create_with("/e", "v0", 1));
    let conn = |conn, port, served, number| ConnFacts {
        conn,
        peer: SocketAddr::from(([10, 0, 0, 1], port)),
        since: WallMs(7_000),
        served,
        received: Between(number, number),
        sent: Between(number, number),
        unanswered: Between(0, 0),
        latency_max_ms: Between(4, 5),
        last: (Some(3), Some(9)),
        processed: 3,
    };
    let session = h.session(a);
    Moment {
        turn: 5,
        now: Now { mono: Instant(0), wall: WallMs(1_795_274_519_700) },
        report: Some(report(h)),
        ephemerals: vec![(session, "/e".to_owned())],
        watches: 5,
        conns: vec![
            conn(ConnId(1), 4_000, Some((session, 9_000)), 4),
            conn(ConnId(2), 4_001, None, 1),
        ],
        counters: Counters {
            received: Between(5, 6),
            sent: Between(4, 4),
            bytes: Between(100, 100),
            handshakes: Between(1, 1),
            latency_max_ms: Between(4, 5),
            proposals: (0, [-1; 3]),
            ..Counters::default()
        },
        settings: Rc::new(Settings {
            values: vec![("tickTime", "2000".to_owned())],
            members: Vec::new(),
            reconfigurable: false,
        }),
        trace_masks: [306; 2],
        uptime_ms: 1_000,
        leader_uptime_ms: 0,
    }
}

fn answer(command: FourLetterCommand, moments: Vec<Moment>) -> Answer {
    Answer {
        command,
        allowed: true,
        length: 0,
        incarnation: 1,
        disk: Some([7, 9]),
        descriptors: Some(3),
        moments: moments.into_iter().map(Rc::new).collect(),
    }
}

/// An operator reads this text.
fn reads(h: &mut History, conn: ConnId, mut answer: Answer, text: &str) {
    answer.length = text.len();
    h.sees(Observation::ConnOpened { client: ClientId(9), conn, server: SERVER });
    h.sees(Observation::Answered { conn, answer: &answer });
    let text = Bytes::copy_from_slice(text.as_bytes());
    h.sees(Observation::AnswerRead { conn, text });
    h.sees(Observation::ConnClosed { conn });
}

/// An operator reads the right text, or the same with a wrong piece.
fn asks(
    h: &mut History,
    violating: bool,
    command: FourLetterCommand,
    [right, wrong]: [&str; 2],
    text: impl FnOnce(&Moment) -> String,
) {
    let moment = moment(h);
    let text = text(&moment);
    assert!(text.contains(right), "{right:?} is no part of {text:?}");
    let text = if violating { text.replacen(right, wrong, 1) } else { text };
    reads(h, ConnId(900), answer(command, vec![moment]), &text);
}

fn srvr(moment: &Moment) -> String {
    let status = &moment.report.as_ref().expect("serves").status;
    format!(
        "Zookeeper version: 3.9.4-zabkeeper-0, built on 1970-01-01 00:00 UTC\n\
         Latency min/avg/max: 1/2.5/4\nReceived: 5\nSent: 4\nConnections: 2\nOutstanding: 0\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {}\n",
        status.applied.0, status.nodes
    )
}

fn cons(moment: &Moment) -> String {
    let (session, _) = moment.conns[0].served.expect("has a session");
    format!(
        " /10.0.0.1:4000[1](queued=0,recved=4,sent=4,sid={session},lop=GETD,est=7000,to=9000,\
         lcxid=0x3,lzxid=0x9,lresp=1,llat=2,minlat=1,avglat=2,maxlat=4)\n \
         /10.0.0.1:4001[0](queued=0,recved=1,sent=1)\n\n"
    )
}

fn dump(moment: &Moment) -> String {
    let (session, _) = moment.conns[0].served.expect("has a session");
    format!(
        "SessionTracker dump:\nSession Sets (1)/(1):\n\
         1 expire at Sat Nov 21 15:21:59 UTC 2026:\n\t{session}\n\
         ephemeral nodes dump:\nSessions with Ephemerals (1):\n{session}:\n\t/e\n\
         Connections dump:\nConnections Sets (1)/(2):\n\
         2 expire at Sat Nov 21 15:22:10 UTC 2026:\n\
         \tip: /10.0.0.1:4000 sessionId: {session}\n\tip: /10.0.0.1:4001 sessionId: 0x0\n"
    )
}

/// The watches of two moments: the second lacks one watch, whose client has asked for something in
/// between, and has another one.
fn two_moments(h: &mut History) -> [Moment; 2] {
    let first = moment(h);
    let mut second = first.clone();
    second.conns[1].processed += 1;
    let report = second.report.as_mut().expect("serves");
    report.by_conn.retain(|(_, path)| path != "/c");
    report.by_conn.push((ConnId(2), "/d".to_owned()));
    [first, second]
}

#[test]
fn o2_closed_connection_is_counted() {
    check_pair("O2", |h, violating| {
        let wrong = ["Connections: 2", "Connections: 3"];
        asks(h, violating, FourLetterCommand::Srvr, wrong, srvr);
    });
}

#[test]
fn o2_frame_is_not_counted() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Srvr, ["Received: 5", "Received: 4"], srvr);
    });
}

#[test]
fn o2_longest_latency_is_too_short() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Srvr, ["2.5/4", "2.5/3"], srvr)
    });
}

#[test]
fn o2_connection_shows_another_session() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Cons, ["sid=0x", "sid=0x9"], cons)
    });
}

#[test]
fn o2_connection_shows_another_zxid() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Cons, ["lzxid=0x9", "lzxid=0x8"], cons)
    });
}

#[test]
fn o2_session_expires_at_another_second() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Dump, ["15:21:59", "15:21:58"], dump)
    });
}

#[test]
fn o2_ephemeral_node_is_left_out() {
    check_pair("O2", |h, violating| {
        asks(h, violating, FourLetterCommand::Dump, ["\t/e\n", ""], dump)
    });
}

#[test]
fn o2_directory_has_another_size() {
    check_pair("O2", |h, violating| {
        let text = |_: &Moment| "datadir_size: 7\nlogdir_size: 9\n".to_owned();
        asks(h, violating, FourLetterCommand::Dirs, ["size: 9", "size: 7"], text);
    });
}

#[test]
fn o2_setting_is_not_the_configured_one() {
    check_pair("O2", |h, violating| {
        let text = |_: &Moment| "dataDirSize=7\ndataLogSize=9\ntickTime=2000\n".to_owned();
        asks(h, violating, FourLetterCommand::Conf, ["tickTime=2000", "tickTime=3000"], text);
    });
}

/// CONF-27.
#[test]
fn o2_refused_command_is_executed() {
    check_pair("O2", |h, violating| {
        let refused = Answer { allowed: false, ..answer(FourLetterCommand::Srst, vec![moment(h)]) };
        let refusal = "srst is not executed because it is not in the whitelist.\n";
        reads(h, ConnId(900), refused, if violating { "Server stats reset.\n" } else { refusal });
    });
}

#[test]
fn o2_counters_decrease_without_a_reset() {
    check_pair("O2", |h, violating| {
        let mut early = moment(h);
        early.counters.received = Between(5, 9);
        let mut late = early.clone();
        late.turn += 1;
        let text = srvr(&early);
        let more = text.replace("Received: 5", "Received: 7");
        let [first, second] = if violating { [&more, &text] } else { [&text, &more] };
        reads(h, ConnId(900), answer(FourLetterCommand::Srvr, vec![early]), first);
        reads(h, ConnId(901), answer(FourLetterCommand::Srvr, vec![late]), second);
    });
}

/// The first client has asked for nothing meanwhile: its watches cannot come back once they are
/// gone, so all of them are listed.
#[test]
fn o2_lasting_watch_is_left_out() {
    check_pair("O2", |h, violating| {
        let moments = two_moments(h);
        let (session, _) = moments[0].conns[0].served.expect("has a session");
        let lasting = if violating { "" } else { "\t/b\n" };
        let text = format!("{session}\n\t/a\n{lasting}{}\n\t/d\n\n", SessionId(0));
        reads(h, ConnId(900), answer(FourLetterCommand::Wchc, Vec::from(moments)), &text);
    });
}

#[test]
fn o2_watch_is_listed_that_never_was() {
    check_pair("O2", |h, violating| {
        let moments = two_moments(h);
        let (session, _) = moments[0].conns[0].served.expect("has a session");
        let path = if violating { "/x" } else { "/c" };
        let text = format!("/a\n\t{session}\n/b\n\t{session}\n{path}\n\t{}\n\n", SessionId(0));
        reads(h, ConnId(900), answer(FourLetterCommand::Wchp, Vec::from(moments)), &text);
    });
}

/// Seed 0x1129020010bc of the swarm at 1dddf9d: the server loaded a leader's snapshot between two
/// parts of the answer, and served only before.
#[test]
fn o2_ephemeral_node_is_listed_that_no_tree_of_the_server_had() {
    check_pair("O2", |h, violating| {
        let first = moment(h);
        let (session, _) = first.conns[0].served.expect("has a session");
        let mut second = Moment { report: None, ..first.clone() };
        if !violating {
            second.ephemerals.push((session, "/f".to_owned()));
        }
        let text = dump(&first).replace("\t/e\n", "\t/e\n\t/f\n");
        reads(h, ConnId(900), answer(FourLetterCommand::Dump, vec![first, second]), &text);
    });
}
