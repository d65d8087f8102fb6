//! Answers of the admin server over the connections of a driver: long ones in parts, and the
//! effects of commands.

use super::*;
use crate::driver::tests::{Host, frames};
use crate::driver::{ClientLimits, TurnLimits};
use crate::ids::ConnId;
use crate::wire::{Acl, Request};

/// Paths that a client watches: more than two parts.
const WATCHED: usize = 600;

fn host() -> Host {
    Host::new(ClientLimits::default(), TurnLimits::default())
}

fn ask(host: &mut Host, command: AdminCommand) -> (AdminAnswer, Option<AdminCursor>) {
    let question = AdminQuestion::Command(command, AdminFacts::default());
    let reply = host.driver.answer_admin(question, &host.server, host.now);
    let AdminReply::Answer(answer, cursor) = reply else { panic!("{command:?}: {reply:?}") };
    (answer, cursor)
}

/// All rows of an answer, and in how many parts they came.
fn rows(host: &mut Host, command: AdminCommand) -> (Vec<AdminRow>, usize) {
    let (_, mut cursor) = ask(host, command);
    let (mut all, mut parts) = (Vec::new(), 0);
    while let Some(at) = cursor {
        let question = AdminQuestion::Rows(at);
        let reply = host.driver.answer_admin(question, &host.server, host.now);
        let AdminReply::Rows(rows, next) = reply else { panic!("{command:?} has rows") };
        assert!(rows.len() <= ROWS, "{}", rows.len());
        all.extend(rows);
        (cursor, parts) = (next, parts + 1);
    }
    (all, parts)
}

/// A client that watches [`WATCHED`] paths and has an ephemeral node.
fn watcher(host: &mut Host) -> ConnId {
    let conn = host.connect(1);
    let watch = |number| Request::Exists { path: format!("/w{number}"), watch: true };
    let ephemeral = Request::Create {
        path: "/e".into(),
        data: None,
        acl: Acl::open(),
        flags: 1,
        with_stat: false,
    };
    host.receive(conn, &frames((0..WATCHED).map(watch).chain([ephemeral])));
    host.turns(100);
    conn
}

/// ADMIN-30, ADMIN-31: each row once, whatever the parts are.
#[test]
fn watches_come_in_parts() {
    let mut host = host();
    watcher(&mut host);
    let (by_session, parts) = rows(&mut host, AdminCommand::Watches);
    assert!(parts > 2, "{parts}");
    let paths = by_session.iter().map(|row| {
        let AdminRow::Watch(session, path) = row else { panic!("{row:?}") };
        assert_ne!(session.0, 0, "{path}");
        path.clone()
    });
    let paths: std::collections::BTreeSet<String> = paths.collect();
    assert_eq!((paths.len(), by_session.len()), (WATCHED, WATCHED));
    let (by_path, _) = rows(&mut host, AdminCommand::WatchesByPath);
    assert_eq!(by_path.len(), WATCHED);
}

/// ADMIN-07, ADMIN-25: only `connections` has the fields about sessions.
#[test]
fn connections_have_sessions_and_those_of_stats_have_not() {
    let mut host = host();
    watcher(&mut host);
    host.accept(9);
    let with_session = |rows: &[AdminRow]| {
        let of = |row: &AdminRow| {
            let AdminRow::Connection(row) = row else { panic!("{row:?}") };
            row.session.is_some()
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    let (all, _) = rows(&mut host, AdminCommand::Connections);
    assert_eq!(with_session(&all), [true, false]);
    let (brief, _) = rows(&mut host, AdminCommand::Stats);
    assert_eq!(with_session(&brief), [false, false]);
}

/// ADMIN-10: a leader and a standalone server know when sessions expire.
#[test]
fn dump_has_expiries_then_ephemeral_nodes() {
    let mut host = host();
    watcher(&mut host);
    let (rows, _) = rows(&mut host, AdminCommand::Dump);
    let [AdminRow::Expiry(at, expires), AdminRow::Ephemeral(owner, path)] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert!(*at > 0);
    assert_eq!((expires, &**path), (owner, "/e"));
}

/// ADMIN-26, FLW-10: the same counters as those of the four-letter command.
#[test]
fn stat_reset_clears_the_counters() {
    let mut host = host();
    watcher(&mut host);
    let received = |host: &mut Host| {
        let (answer, _) = ask(host, AdminCommand::ServerStats);
        let AdminAnswer::Stats(stats) = answer else { panic!("{answer:?}") };
        stats.server_stats.packets_received
    };
    assert!(received(&mut host) > 600);
    ask(&mut host, AdminCommand::StatReset);
    assert_eq!(received(&mut host), 0);
}

/// ADMIN-02: what needs no service is answered while a server looks for a leader.
#[test]
fn server_that_does_not_serve_says_so() {
    let mut host = Host::starting(ClientLimits::default(), TurnLimits::default());
    for command in AdminCommand::all() {
        let question = AdminQuestion::Command(command, AdminFacts::default());
        let reply = host.driver.answer_admin(question, &host.server, host.now);
        let refused = matches!(reply, AdminReply::Error(AdminError::NotServing));
        assert_eq!(refused, command.needs_service(), "{command:?}: {reply:?}");
    }
}

/// ADMIN-16: a standalone server has no leader.
#[test]
fn standalone_server_names_no_leader() {
    let question = AdminQuestion::Command(AdminCommand::Leader, AdminFacts::default());
    let mut host = host();
    let reply = host.driver.answer_admin(question, &host.server, host.now);
    assert!(matches!(reply, AdminReply::Error(AdminError::NotInitialized)), "{reply:?}");
}
