//! Growing a standalone server into an ensemble of three, and the log while there is no quorum.

use crate::crash::check_all_there;
use crate::harness::{Server, free_port};
use crate::members::Ensemble;
use crate::raw::{Raw, create};

const SETTINGS: &str = "tickTime=300\ninitLimit=20\nsyncLimit=10";

/// A server with data and two new empty servers, started in several orders.
#[test]
fn standalone_server_grows_into_ensemble_with_two_empty_servers() {
    for order in [[1, 0, 2], [2, 0, 1]] {
        let mut ensemble = Ensemble::prepare("127.0.0.1", SETTINGS);
        let dir = ensemble
            .folder(1)
            .parent()
            .and_then(|data| data.parent())
            .expect("a folder")
            .to_owned();
        std::fs::create_dir_all(&dir).expect("creates");
        let alone = Server::start_on(free_port(), &dir, "tickTime=300");
        let (mut client, _) = Raw::open(alone.port, 10_000);
        let path = "/kept".to_owned();
        assert_eq!(client.call(create(&path, path.as_bytes(), 0)).0, 0);
        alone.terminate();
        for id in order {
            ensemble.boot(id);
        }
        (0..3).for_each(|id| ensemble.await_serving(id));
        for id in 0..3 {
            check_all_there(ensemble.server(id), std::slice::from_ref(&path));
        }
    }
}

/// Two of three servers have lost their data: no server may serve, and the log names what is
/// missing.
#[test]
fn server_without_quorum_logs_what_is_missing() {
    let mut ensemble = Ensemble::start(SETTINGS);
    let (mut client, _) = Raw::open(ensemble.ports[0][0], 10_000);
    assert_eq!(client.call(create("/kept", b"", 0)).0, 0);
    for id in 0..3 {
        ensemble.terminate(id);
    }
    for id in [1, 2] {
        std::fs::remove_dir_all(ensemble.folder(id)).expect("removes");
    }
    ensemble.boot(0);
    ensemble.boot(1);
    for line in [
        "nobody is served for",
        "2 of 3 servers are needed; server 0 (this one) has its data; server 1 is empty; server 2 \
         has sent nothing",
        "start one that has its data with only itself in zoo.cfg",
        "; cannot reach server 2 at 127.0.0.1:",
    ] {
        ensemble.eventually(line, || ensemble.server(0).log().contains(line));
    }
    assert_eq!((ensemble.mode(0), ensemble.mode(1)), (None, None));
    ensemble.boot(2);
    let line = "server 2 is empty";
    ensemble.eventually(line, || ensemble.server(0).log().contains(line));
}
