//! Identities: data of another ensemble, restored older data, and sessions of other clients.

use std::path::Path;
use std::process::Command;

use zabkeeper_core::SessionId;
use zabkeeper_core::wire::ConnectResponse;

use crate::crash::check_all_there;
use crate::four_letter::ask;
use crate::harness::{Server, started};
use crate::members::Ensemble;
use crate::raw::{Raw, create, exists};

const SETTINGS: &str = "tickTime=300\ninitLimit=20\nsyncLimit=10";

fn write(ensemble: &Ensemble, id: usize, path: &str) {
    let (mut client, _) = Raw::open(ensemble.ports[id][0], 10_000);
    assert_eq!(client.call(create(path, path.as_bytes(), 0)).0, 0, "{path}");
}

/// HS-08: a client that can read an ephemeral node knows its session id, from which ZooKeeper's
/// formula computes the password.
#[test]
fn session_password_cannot_be_computed_from_session_id() {
    let dir = tempfile::tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut holder, own) = Raw::open(server.port, 10_000);
    assert_eq!(holder.call(create("/lock", b"", 1)).0, 0);
    let password = zookeeper_password(own.session);
    let (mut thief, answer) = Raw::resume(server.port, &ConnectResponse { password, ..own });
    assert_eq!(answer.session, SessionId(0), "refused");
    assert!(thief.is_closed());
    assert_eq!(holder.call(exists("/lock")).0, 0);
    let (mut again, answer) = Raw::resume(server.port, &own);
    assert_eq!(answer, own);
    assert_eq!(again.call(exists("/lock")).0, 0);
}

/// ZooKeeper's session password: bytes of Java's `Random`, seeded with the id xor a constant.
fn zookeeper_password(session: SessionId) -> [u8; 16] {
    let mut state = ((session.0 ^ 0xb341_5c00).cast_unsigned() ^ 0x5_deec_e66d) & ((1 << 48) - 1);
    let mut password = [0; 16];
    for word in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1);
        word.copy_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    password
}

#[test]
fn data_directory_of_another_ensemble_is_refused() {
    let mut other = Ensemble::start(SETTINGS);
    (0..20).for_each(|n| write(&other, 0, &format!("/theirs{n}")));
    other.terminate(0);
    let mut ensemble = Ensemble::start(SETTINGS);
    write(&ensemble, 0, "/ours");
    (0..3).for_each(|id| ensemble.terminate(id));
    replace(&other.folder(0), &ensemble.folder(0));
    (0..3).for_each(|id| ensemble.boot(id));
    for id in [1, 2] {
        ensemble.await_serving(id);
        check_all_there(ensemble.server(id), &["/ours".to_owned()]);
    }
    ensemble.eventually("a word about the other ensemble", || {
        ensemble.server(0).log().contains("belongs to another ensemble")
    });
    assert_eq!(ensemble.mode(0), None, "{}", ensemble.logs());
}

/// An operator restores an older copy of one data directory. A quorum of that server and another
/// one starts an epoch with the same number as an epoch that the third server knows.
#[test]
fn history_of_a_repeated_epoch_is_set_aside() {
    let mut ensemble = Ensemble::start(SETTINGS);
    write(&ensemble, 0, "/before");
    (0..3).for_each(|id| ensemble.terminate(id));
    let older = ensemble.folder(1).with_extension("older");
    replace(&ensemble.folder(1), &older);
    let lead = |ensemble: &mut Ensemble, ids: [usize; 2], path: &str| {
        ids.iter().for_each(|id| ensemble.boot(*id));
        ids.iter().for_each(|id| ensemble.await_serving(*id));
        write(ensemble, ids[0], path);
        epoch_of(ensemble.server(ids[0]))
    };
    let first = lead(&mut ensemble, [1, 2], "/first");
    [1, 2].iter().for_each(|id| ensemble.terminate(*id));
    replace(&older, &ensemble.folder(1));
    let mut second = lead(&mut ensemble, [0, 1], "/second");
    while second < first {
        // The first quorum needed more elections than the second.
        [0, 1].iter().for_each(|id| ensemble.terminate(*id));
        second = lead(&mut ensemble, [0, 1], &format!("/again{second}"));
    }
    ensemble.boot(2);
    if second > first {
        // The epochs have different numbers, so the leader simply truncates the third server's log.
        return ensemble.await_serving(2);
    }
    ensemble.eventually("the third server to begin anew", || {
        let log = ensemble.server(2).log();
        log.contains("sets its data aside") && log.contains("set aside as ")
    });
    ensemble.await_serving(2);
    check_all_there(ensemble.server(2), &["/before".to_owned(), "/second".to_owned()]);
    let (mut client, _) = Raw::open(ensemble.ports[2][0], 10_000);
    assert_eq!(client.call(exists("/first")).0, -101);
    ensemble.eventually("the first node that differs", || {
        ensemble
            .server(2)
            .log()
            .contains("the first node in which the data that was set aside differs is")
    });
}

fn epoch_of(server: &Server) -> u64 {
    let text = ask(server, "srvr");
    let zxid = text.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("is there");
    u64::from_str_radix(zxid, 16).expect("a number") >> 32
}

/// Replaces a directory by a copy of another one.
fn replace(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).expect("removes");
    }
    let copied = started(Command::new("cp").arg("-r").arg(from).arg(to)).wait().expect("ends");
    assert!(copied.success());
}
