//! Self-tests without any server: seeds are reproducible, messages are decoded, differences are
//! found.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::answer::{Names, password_of};
use crate::generate::{GROUPS, Generator, Group};
use crate::known;
use crate::play::{Players, Step};
use crate::request::{OPS, PREFIX, Request};

pub(crate) fn run() {
    a_seed_means_one_play();
    every_operation_is_played();
    passwords_are_javas();
    requests_are_encoded_as_zookeeper_wants_them();
    what_may_differ_is_left_out_of_answers();
    a_list_on_its_way_explains_what_is_refused_behind_it_alone();
    null_among_the_paths_to_watch_explains_what_is_said_of_those_before_it();
    a_moment_is_the_same_for_both_where_one_has_spent_more_zxids();
    equal_servers_do_not_differ();
    one_changed_answer_is_found_and_shown_in_one_step();
}

fn all_groups() -> Vec<Group> {
    GROUPS.iter().map(|known| known.0).collect()
}

fn a_seed_means_one_play() {
    let play = |seed| Generator::new(seed, &all_groups()).episode(300);
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}

fn every_operation_is_played() {
    let steps = Generator::new(1, &all_groups()).episode(20_000);
    for &(op, name) in OPS {
        let played = steps.iter().flat_map(Step::requests).any(|request| request.op == op);
        assert!(played, "{name} is never played");
    }
}

/// The expected values are from Java: `new Random(id ^ 0xB3415C00L).nextBytes(..)`.
fn passwords_are_javas() {
    let hex = |id| password_of(id).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(1), "054cc74a37327db215e702e20c73f005");
    assert_eq!(hex(0x1000_1234_5678_abcd), "0ee78c40428d13b7b2939c34f5e56169");
}

fn requests_are_encoded_as_zookeeper_wants_them() {
    let request = Request::new(101).xid(-8).zxid_behind(3).strings(&[format!("{PREFIX}/a")]);
    let frame = request.frame(&Names::new("/e0001", 10));
    let body = b"\0\0\0\0\0\0\0\x07\0\0\0\x01\0\0\0\x08/e0001/a";
    assert_eq!(frame, [&b"\0\0\0\x20\xff\xff\xff\xf8\0\0\0\x65"[..], body].concat());
}

fn what_may_differ_is_left_out_of_answers() {
    let reply = |zxid: i64, err: i32, body: &[u8]| {
        [&1_i32.to_be_bytes()[..], &zxid.to_be_bytes(), &err.to_be_bytes(), body].concat()
    };
    let mut left = Names::new("/e0001", 100);
    let mut right = Names::new("/e0002", 7_000);
    let a = left.frame(&reply(103, 0, b"\0\0\0\x08/e0001/a"), |_| Some(1)).text;
    let b = right.frame(&reply(7_003, 0, b"\0\0\0\x08/e0002/a"), |_| Some(1)).text;
    assert_eq!(a, b);
    assert_ne!(a, right.frame(&reply(7_004, 0, b"\0\0\0\x08/e0002/a"), |_| Some(1)).text);
    assert_ne!(a, right.frame(&reply(7_003, 0, b"\0\0\0\x08/e0002/b"), |_| Some(1)).text);
    assert_ne!(a, right.frame(&reply(7_003, 0, b"\0\0\0\x08/e0002/a!"), |_| Some(1)).text);
    assert_ne!(a, right.frame(&reply(7_003, -8, b""), |_| Some(1)).text);
    // All times of one transaction must be equal.
    let stat = |ctime: i64, mtime: i64| {
        let longs = [101, 101, ctime, mtime].map(i64::to_be_bytes).concat();
        left_reply(&[&longs[..], &[0; 36]].concat())
    };
    let now = 1 << 42;
    assert!(!Names::new("/e0001", 100).frame(&stat(now, now), |_| Some(3)).text.contains("TIME"));
    assert!(
        Names::new("/e0001", 100).frame(&stat(now, now + 1), |_| Some(3)).text.contains("TIME")
    );
}

fn a_list_on_its_way_explains_what_is_refused_behind_it_alone() {
    let explained = |requests: usize, real: i32, ours: i32| {
        let requests = vec![Request::new(7); requests];
        let line = |err: i32| vec![format!("c0 setACL xid 2 zxid +1 err {err} ")];
        known::find(&Step::Send { seat: 0, requests }, &[line(real), line(ours)]).is_some()
    };
    assert!(explained(2, 0, -102) && explained(2, -102, 0));
    assert!(!explained(1, 0, -102), "nothing is behind it");
    assert!(!explained(2, 0, -101) && !explained(2, -102, -102));
}

fn null_among_the_paths_to_watch_explains_what_is_said_of_those_before_it() {
    let explained = |exist: Option<&[u8]>, real: &[&str], ours: &[&str]| {
        let request = Request::new(101).zxid_behind(0).strings(&["/a".to_owned()]);
        let requests = vec![request.int(1).buffer(exist).strings(&[])];
        let lines = [real, ours].map(|lines| lines.iter().map(|&line| line.into()).collect());
        known::find(&Step::Send { seat: 0, requests }, &lines).is_some()
    };
    let event = "c0 event NodeDeleted \"/a\" state 3 zxid -1 err 0 ";
    let [done, refused] =
        ["c0 setWatches xid -8 zxid +1 err 0 ", "c0 setWatches xid -8 zxid +1 err -5 "];
    assert!(explained(None, &[event, refused], &[refused]));
    assert!(!explained(Some(b"/b"), &[event, done], &[done]), "there is no null");
    assert!(!explained(None, &[event, refused], &[]), "an answer is missing");
}

fn a_moment_is_the_same_for_both_where_one_has_spent_more_zxids() {
    let mut left = Names::new("/e0001", 100);
    let mut right = Names::new("/e0002", 7_000);
    // Both have used 5 zxids; then `left` uses two more, and the servers are realigned.
    left.rebase(107, 7);
    right.rebase(7_005, 7);
    assert_eq!([left.behind(0), right.behind(0)], [107, 7_005]);
    assert_eq!([left.behind(3), right.behind(3)], [104, 7_004]);
    assert_eq!([left.behind(7), right.behind(7)], [100, 7_000]);
    assert_eq!([left.behind(10), right.behind(10)], [97, 6_997]);
    assert_eq!([left.behind(-5), right.behind(-5)], [112, 7_010]);
}

fn left_reply(body: &[u8]) -> Vec<u8> {
    [&1_i32.to_be_bytes()[..], &101_i64.to_be_bytes(), &0_i32.to_be_bytes(), body].concat()
}

fn equal_servers_do_not_differ() {
    let mut players = Players::new(&[("real", fake(-101)), ("ours", fake(-101))], b"x:y");
    players.begin().expect("the subtree is made");
    let steps = Generator::new(3, &[Group::Tree, Group::Session, Group::Watch]).episode(50);
    assert!(players.play(&steps).is_ok_and(|requests| requests >= 50));
}

fn one_changed_answer_is_found_and_shown_in_one_step() {
    let mut players = Players::new(&[("real", fake(-101)), ("ours", fake(-102))], b"x:y");
    players.begin().expect("the subtree is made");
    let steps = Generator::new(3, &[Group::Tree, Group::Burst]).episode(50);
    let found = players.play(&steps).expect_err("getData is among them");
    let (shorter, found) = players.shrink(steps, &found);
    let [Step::Send { requests, .. }] = &*shorter else { panic!("{shorter:?}") };
    assert_eq!(requests.iter().map(|request| request.op).collect::<Vec<_>>(), [4]);
    assert!(found.report(["real", "ours"]).contains("err -102"));
}

/// A fake server that answers handshakes, create and ping, and everything else with NoNode; getData
/// gets the error code given to it.
fn fake(get_data_err: i32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("is bound");
    std::thread::spawn(move || {
        for (socket, id) in listener.incoming().flatten().zip(1..) {
            std::thread::spawn(move || serve(socket, id, get_data_err));
        }
    });
    address
}

fn serve(mut socket: TcpStream, id: i64, get_data_err: i32) -> std::io::Result<()> {
    read_frame(&mut socket)?;
    let head = [&0_i32.to_be_bytes()[..], &60_000_i32.to_be_bytes(), &id.to_be_bytes()].concat();
    write_frame(&mut socket, &[&head[..], &[0, 0, 0, 16], &password_of(id), &[0]].concat())?;
    loop {
        let request = read_frame(&mut socket)?;
        let op = i32::from_be_bytes(request[4..8].try_into().expect("four bytes"));
        let (err, body): (i32, &[u8]) = match op {
            1 => (0, b"\0\0\0\x01/"),
            11 | -11 => (0, b""),
            4 => (get_data_err, b""),
            _ => (-101, b""),
        };
        let xid = if op == 11 { &[0xFF, 0xFF, 0xFF, 0xFE] } else { &request[..4] };
        let head = [xid, &9_i64.to_be_bytes(), &err.to_be_bytes()].concat();
        write_frame(&mut socket, &[&head, body].concat())?;
        if op == -11 {
            return Ok(());
        }
    }
}

fn read_frame(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("fits")];
    socket.read_exact(&mut frame)?;
    Ok(frame)
}

fn write_frame(socket: &mut TcpStream, frame: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(frame.len()).expect("is short");
    socket.write_all(&[&length.to_be_bytes()[..], frame].concat())
}
