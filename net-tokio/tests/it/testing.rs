//! Servers inside the process of a test (`zabkeeper::testing`).

use std::net::TcpListener;
use std::panic::{set_hook, take_hook};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt;
use zabkeeper::testing::{Ensemble, Error};
use zabkeeper_client::{AddWatchMode, Client, CreateMode, EventType};

use crate::harness::{block_on, eventually, get, set, started};

/// A session timeout that no pause of a busy machine exceeds.
const LONG_SESSION: Duration = Duration::from_secs(30);

fn is_shareable<T: Send + Sync + 'static>(_: &T) {}

/// A client that connects again almost at once.
pub(crate) async fn connect(ensemble: &Ensemble) -> Client {
    let builder = Client::builder(ensemble.connect_string().parse().expect("is valid"));
    let builder = builder.config(|config| {
        let pause = Duration::from_millis(10);
        (config.reconnect_delay_max, config.round_pause) = (pause, pause);
    });
    builder.connect().await.expect("connects")
}

#[test]
fn two_ensembles_in_one_process_have_their_own_data() {
    let (one, three) = (Ensemble::single().unwrap(), Ensemble::start(3).unwrap());
    is_shareable(&one);
    assert_eq!((one.leader(), one.ids(), three.ids()), (Some(1), 1..=1, 1..=3));
    block_on(async {
        let (first, second) = (connect(&one).await, connect(&three).await);
        first.create("/a", "one", CreateMode::Persistent).await.unwrap();
        second.create("/a", "three", CreateMode::Persistent).await.unwrap();
        assert_eq!(first.get("/a").await.unwrap().0, "one");
        assert_eq!(second.get("/a").await.unwrap().0, "three");
    });
    drop(one);
    block_on(async {
        let client = connect(&three).await;
        assert_eq!(client.get("/a").await.unwrap().0, "three", "the other one has ended");
    });
    three.close().unwrap();
    Ensemble::single().unwrap().close().unwrap();
}

/// Both ways to end a leader; the session and its watches live on.
#[test]
fn ensemble_survives_the_end_of_its_leader() {
    let mut ensemble = Ensemble::start(3).unwrap();
    block_on(async {
        let client = connect(&ensemble).await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
        let mut events = client.watch("/e", AddWatchMode::Persistent).await.unwrap();
        for (kill, data) in [(false, "after a stop"), (true, "after a kill")] {
            let leader = ensemble.leader().expect("one leads");
            let ended =
                if kill { ensemble.kill_server(leader) } else { ensemble.stop_server(leader) };
            ended.unwrap();
            assert!(!ensemble.is_running(leader).unwrap());
            set(&client, "/e", data).await;
            assert_eq!(client.get("/e").await.unwrap().0, data);
            assert_ne!(ensemble.leader(), Some(leader));
            ensemble.start_server(leader).unwrap();
            assert!(ensemble.is_running(leader).unwrap());
        }
        assert_eq!(events.next().await.unwrap().unwrap().event, EventType::NodeDataChanged);
        assert_eq!(client.session_id(), session);
    });
    ensemble.close().unwrap();
}

#[test]
fn data_and_addresses_survive_a_restart_of_all_servers() {
    let mut ensemble = Ensemble::start(3).unwrap();
    let servers = ensemble.connect_string();
    block_on(async {
        let client = connect(&ensemble).await;
        client.create("/kept", "value", CreateMode::Persistent).await.unwrap();
        for id in ensemble.ids() {
            ensemble.stop_server(id).unwrap();
            ensemble.stop_server(id).unwrap();
        }
        assert_eq!(ensemble.leader(), None);
        // The first one finds no majority, and does not wait for it.
        for id in ensemble.ids() {
            ensemble.start_server(id).unwrap();
            ensemble.start_server(id).unwrap();
        }
        assert_eq!(ensemble.connect_string(), servers);
        assert_eq!(get(&client, "/kept").await, "value");
        for id in ensemble.ids() {
            let one = Client::connect(&ensemble.address(id).unwrap()).await.unwrap();
            assert_eq!(one.get("/kept").await.unwrap().0, "value");
        }
    });
}

#[test]
fn single_server_restarts_with_its_data() {
    let mut ensemble = Ensemble::single().unwrap();
    block_on(async {
        let client = connect(&ensemble).await;
        client.create("/kept", "value", CreateMode::Ephemeral).await.unwrap();
        ensemble.restart_server(1).unwrap();
        assert_eq!(get(&client, "/kept").await, "value");
        ensemble.kill_server(1).unwrap();
        ensemble.start_server(1).unwrap();
        assert_eq!(get(&client, "/kept").await, "value");
    });
}

#[test]
fn dropped_ensemble_frees_its_ports_and_removes_its_folder() {
    let ensemble = Ensemble::start(3).unwrap();
    let (addresses, folder) = (ensemble.connect_string(), ensemble.folder().to_owned());
    assert!(folder.join("1/zoo.cfg").is_file() && folder.join("3/data/zabkeeper").is_dir());
    let began = Instant::now();
    drop(ensemble);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!folder.exists());
    for address in addresses.split(',') {
        // A process that another test starts may inherit the sockets for a moment.
        eventually("a free port", || TcpListener::bind(address).is_ok());
    }
}

#[test]
fn settings_reach_the_servers() {
    let second = Duration::from_secs(1);
    let ensemble = Ensemble::builder()
        .tick(second / 5)
        .session_timeouts(second..=second)
        .zoo_cfg("snapCount=777")
        .zoo_cfg("enforceQuota=true\n")
        .start()
        .unwrap();
    let text = std::fs::read_to_string(ensemble.folder().join("1/zoo.cfg")).unwrap();
    for line in ["tickTime=200", "minSessionTimeout=1000", "snapCount=777", "enforceQuota=true"] {
        assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
    }
    block_on(async {
        let observer = connect(&ensemble).await;
        let servers = ensemble.connect_string().parse().unwrap();
        let client = Client::builder(servers).session_timeout(LONG_SESSION);
        let client = client.connect().await.unwrap();
        client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
        assert_eq!(observer.ephemerals("/").await.unwrap().len(), 0);
        client.close().await;
        assert!(observer.exists("/e").await.unwrap().is_none());
    });
}

#[test]
fn failures_say_what_was_wrong() {
    let error = Ensemble::builder().zoo_cfg("snapCount=many").start().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Invalid(_)), "{text}");
    assert!(text.contains("1/zoo.cfg:") && text.contains("snapCount=many: not a whole number"));

    let error = Ensemble::start(0).unwrap_err();
    let expected = "an ensemble of 0 servers is not possible: use 1 to 255, such as 3";
    assert_eq!(error.to_string(), expected);

    let mut ensemble = Ensemble::single().unwrap();
    let error = ensemble.stop_server(2).unwrap_err();
    assert_eq!(error, Error::Invalid("there is no server 2: the servers are 1 to 1".to_owned()));
    assert_eq!(ensemble.address(0).unwrap_err().to_string().find("there is no server 0"), Some(0));

    // A file in the place of the folder with the data.
    ensemble.stop_server(1).unwrap();
    let data = ensemble.folder().join("1/data/zabkeeper");
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::write(&data, "").unwrap();
    let error = ensemble.start_server(1).unwrap_err();
    assert!(matches!(error, Error::Server { id: 1, .. }), "{error}");
    assert!(error.to_string().contains(data.to_str().unwrap()), "{error}");
    assert!(!ensemble.is_running(1).unwrap());

    // The name never resolves, and a member of an ensemble waits until it does.
    let waited = Duration::from_millis(10);
    let builder = Ensemble::builder().servers(3).timeout(waited);
    let error = builder.zoo_cfg("clientPortAddress=unknown.invalid").start().unwrap_err();
    assert_eq!(error, Error::TimedOut { id: 1, waited });
}

/// The environment variable with which this test runs itself in a process of its own: the other
/// tests would be in its way.
const ALONE: &str = "ZABKEEPER_TEST_ALONE";

#[test]
fn what_belongs_to_the_process_is_left_alone() {
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "testing::what_belongs_to_the_process_is_left_alone"]);
        // An embedded server does not read the options of the environment.
        command.env(ALONE, "1").env("JVMFLAGS", "-Dzookeeper.snapCount=many");
        let status = started(&mut command).wait().unwrap();
        return assert!(status.success(), "{status}");
    }
    let panics = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&panics);
    set_hook(Box::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let limits = || std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // The signals that have handlers, and those that are ignored.
    let signals = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let is_of_signals = |line: &&str| ["SigCgt", "SigIgn"].iter().any(|s| line.starts_with(s));
        status.lines().filter(is_of_signals).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = (limits(), signals());
    let ran = Ensemble::start(3).and_then(|mut ensemble| {
        ensemble.restart_server(1)?;
        ensemble.close()
    });
    let panicked = thread::spawn(|| panic!("of the test")).join();
    drop(take_hook());
    assert_eq!(ran, Ok(()));
    assert_eq!((limits(), signals()), before);
    assert!(panicked.is_err());
    assert_eq!(panics.load(Ordering::Relaxed), 1, "the hook is that of the test");
    assert!(!tracing::dispatcher::has_been_set(), "no subscriber is installed");
    tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new()).unwrap();
}
