//! Our own client against the real server: the handle, its watches, and the recipes.

use std::future::Future;
use std::time::Duration;

use futures::future::{join_all, poll_immediate};
use futures::{FutureExt, StreamExt};
use tempfile::tempdir;
use zabkeeper::testing::Ensemble;
use zabkeeper_client::recipes::{Election, Lock};
use zabkeeper_client::{
    AddWatchMode, Client, CreateMode, ErrorClass, ErrorCode, EventType, Failure, Multi,
    MultiOutcome, MultiRead, MultiReadOutcome, Reconfig, State, WatcherType, blocking,
};

use crate::harness::{Server, block_on, free_port};

fn check<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=500\n");
    block_on(test(server));
}

async fn connect(server: &Server) -> Client {
    Client::connect(&server.address()).await.expect("connects")
}

#[test]
fn operations_have_typed_results_and_errors() {
    check(async |server| {
        let client = connect(&server).await;
        assert_eq!(client.create("/a", "one", CreateMode::Persistent).await.unwrap(), "/a");
        let (data, stat) = client.get("/a").await.unwrap();
        assert_eq!((&data[..], stat.version), (&b"one"[..], 0));
        assert_eq!(client.set("/a", "two", 0).await.unwrap().version, 1);
        let stale = client.set("/a", "three", 0).await.unwrap_err();
        assert!(stale.is(ErrorCode::BadVersion), "{stale}");
        assert_eq!((stale.class(), stale.path()), (ErrorClass::Operation, "/a"));
        assert_eq!(stale.to_string(), "set /a: BadVersion(-103)");
        let child = client.create("/a/s-", "", CreateMode::EphemeralSequential).await.unwrap();
        assert_eq!(child, "/a/s-0000000000");
        assert_eq!(client.children("/a").await.unwrap().0, ["s-0000000000"]);
        assert_eq!(client.ephemerals("/").await.unwrap(), [&*child]);
        assert_eq!(client.all_children_number("/a").await.unwrap(), 1);
        assert!(client.delete("/a", None).await.unwrap_err().is(ErrorCode::NotEmpty));
        client.delete(child, None).await.unwrap();
        assert!(client.exists("/b").await.unwrap().is_none());
        assert_eq!(client.acl("/a").await.unwrap().0[0].scheme, "world");
        client.sync("/").await.unwrap();
        client.add_auth("digest", "user:secret").await.unwrap();
        assert!(client.who_am_i().await.unwrap().iter().any(|id| id.scheme == "digest"));
        client.close().await;
        assert_eq!(client.state(), State::Closed);
        let after = client.exists("/a").await.unwrap_err();
        assert_eq!((after.class(), after.failure()), (ErrorClass::Fatal, Failure::Closed));
    });
}

#[test]
fn transaction_is_made_as_a_whole_or_names_what_failed() {
    check(async |server| {
        let client = connect(&server).await;
        let both = Multi::new().create("/m", "", CreateMode::Persistent).create(
            "/m/n",
            "x",
            CreateMode::PersistentSequential,
        );
        let outcomes = client.multi(both).await.unwrap().unwrap();
        let created = |outcome: &MultiOutcome| {
            let MultiOutcome::Created(path, _) = outcome else { return None };
            Some(path.clone())
        };
        let paths: Vec<_> = outcomes.iter().filter_map(created).collect();
        assert_eq!(paths, ["/m", "/m/n0000000000"]);
        let failing = Multi::new().set("/m", "new", None).check("/m", 7).delete("/m", None);
        let error = client.multi(failing).await.unwrap().unwrap_err();
        assert_eq!((error.operation, error.code), (1, ErrorCode::BadVersion));
        assert_eq!(client.get("/m").await.unwrap().1.version, 0);
    });
}

#[test]
fn operations_are_made_in_the_order_of_their_calls_whenever_they_are_polled() {
    check(async |server| {
        let client = connect(&server).await;
        let create = client.create("/o", "", CreateMode::Persistent);
        let sets: Vec<_> = (0..100).map(|n: u32| client.set("/o", n.to_string(), None)).collect();
        let get = client.get("/o");
        let (data, stat) = get.await.unwrap();
        assert_eq!((&data[..], stat.version), (&b"99"[..], 100));
        let versions = join_all(sets.into_iter().rev()).await;
        assert!(versions.into_iter().map(|stat| stat.unwrap().version).eq((1..=100).rev()));
        create.await.unwrap();
    });
}

#[test]
fn watches_are_futures_and_streams() {
    check(async |server| {
        let (watching, acting) = (connect(&server).await, connect(&server).await);
        let (stat, created) = watching.exists_and_watch("/w").await.unwrap();
        assert!(stat.is_none());
        let mut all = watching.watch("/w", AddWatchMode::PersistentRecursive).await.unwrap();
        acting.create("/w", "", CreateMode::Persistent).await.unwrap();
        assert_eq!(created.await.unwrap().event, EventType::NodeCreated);
        let (_, _, children) = watching.children_and_watch("/w").await.unwrap();
        let (_, _, data) = watching.get_and_watch("/w").await.unwrap();
        acting.create("/w/c", "", CreateMode::Persistent).await.unwrap();
        acting.set("/w", "1", None).await.unwrap();
        assert_eq!(children.await.unwrap().event, EventType::NodeChildrenChanged);
        assert_eq!(data.await.unwrap().event, EventType::NodeDataChanged);
        acting.delete("/w/c", None).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let event = all.next().await.unwrap().unwrap();
            seen.push(format!("{:?} {}", event.event, event.path));
        }
        let expected =
            ["NodeCreated /w", "NodeCreated /w/c", "NodeDataChanged /w", "NodeDeleted /w/c"];
        assert_eq!(seen, expected);
        drop(all);
        watching.sync("/").await.unwrap();
        acting.set("/w", "2", None).await.unwrap();
        let mut again = watching.watch("/w", AddWatchMode::Persistent).await.unwrap();
        watching.close().await;
        assert!(again.next().await.unwrap().unwrap_err().is_fatal());
        assert!(again.next().await.is_none());
    });
}

#[test]
fn session_and_watches_survive_a_restart_of_the_server() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let server = Server::start_on(port, dir.path(), "");
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let id = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
        let mut states = client.states();
        let mut events = client.watch("/e", AddWatchMode::Persistent).await.unwrap();
        server.kill();
        assert_eq!(states.next().await, Some(State::Connecting));
        let lost = client.set("/e", "", None).await.unwrap_err();
        assert!(lost.is_recoverable(), "{lost}");
        let server = Server::start_on(port, dir.path(), "");
        client.connected().await.unwrap();
        assert_eq!((states.next().await, client.session_id()), (Some(State::Connected), id));
        client.set("/e", "later", None).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().event, EventType::NodeDataChanged);
        drop(server);
    });
}

#[test]
fn call_without_an_answer_times_out() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    block_on(async {
        let servers = server.address().parse().unwrap();
        let builder = Client::builder(servers).request_timeout(Duration::from_millis(200));
        let client = builder.connect().await.unwrap();
        client.create("/t", "", CreateMode::Persistent).await.unwrap();
        server.signal("STOP");
        let late = client.set("/t", "", None).await.unwrap_err();
        assert_eq!((late.failure(), late.class()), (Failure::TimedOut, ErrorClass::Recoverable));
        server.signal("CONT");
        client.sync("/").await.unwrap();
        assert_eq!(client.get("/t").await.unwrap().1.version, 1);
    });
}

/// RECIPE-07: fair, by the predecessor, with tokens that rise.
#[test]
fn lock_passes_from_holder_to_holder_in_order() {
    check(async |server| {
        let clients = join_all((0..4).map(|_| connect(&server))).await;
        let locks: Vec<_> = clients.iter().map(|client| Lock::new(client, "/locks/l")).collect();
        let mut held = locks[0].acquire().await.unwrap();
        let mut waiting: Vec<_> = Vec::new();
        for lock in &locks[1..] {
            let mut acquire = Box::pin(lock.acquire());
            assert!(poll_immediate(&mut acquire).await.is_none());
            // Its node is created before the next one asks.
            let count = waiting.len() + 2;
            while clients[0].children("/locks/l").await.unwrap().0.len() < count {
                assert!(poll_immediate(&mut acquire).await.is_none());
            }
            waiting.push(acquire);
        }
        assert!(locks[3].acquire_within(Duration::from_millis(20)).await.unwrap().is_none());
        for acquire in waiting {
            let token = held.token();
            let lost = held.lost().now_or_never();
            assert!(lost.is_none());
            held.release().await.unwrap();
            held = acquire.await.unwrap();
            assert!(held.token() > token);
        }
        drop(held);
        let again = locks[0].acquire_within(Duration::from_secs(5)).await.unwrap();
        assert!(again.is_some(), "a dropped guard releases the lock");
    });
}

#[test]
fn dropped_acquisition_leaves_no_node_and_an_ended_session_loses_the_lock() {
    check(async |server| {
        let (one, two) = (connect(&server).await, connect(&server).await);
        let held = Lock::new(&one, "/l").acquire().await.unwrap();
        let other = Lock::new(&two, "/l").with_data("two");
        {
            let mut acquire = Box::pin(other.acquire());
            assert!(poll_immediate(&mut acquire).await.is_none());
        }
        while one.children("/l").await.unwrap().0.len() != 1 {}
        let acquire = other.acquire();
        let closes = async {
            one.close().await;
            held.lost().await;
        };
        let (guard, ()) = futures::join!(acquire, closes);
        let guard = guard.unwrap();
        assert_eq!(&two.get(guard.path()).await.unwrap().0[..], b"two");
        // An operator takes the lock away.
        two.delete(guard.path(), None).await.unwrap();
        guard.lost().await;
        guard.release().await.unwrap();
    });
}

/// RECIPE-12.
#[test]
fn next_one_leads_when_the_leader_resigns() {
    check(async |server| {
        let (one, two) = (connect(&server).await, connect(&server).await);
        let first = Election::new(&one, "/e", "one").lead().await.unwrap();
        let election = Election::new(&two, "/e", "two");
        let epoch = first.epoch();
        let (second, resigned) = futures::join!(election.lead(), first.resign());
        resigned.unwrap();
        assert!(second.unwrap().epoch() > epoch);
    });
}

/// CLIENT-15: the client refuses what the server would, and says why.
#[test]
fn invalid_paths_fail_before_they_are_sent() {
    check(async |server| {
        let client = connect(&server).await;
        let error = client.get("a/b").await.unwrap_err();
        assert_eq!(error.to_string(), "get a/b: the path does not begin with a slash");
        let doubled = client.create("/a//b", "", CreateMode::Persistent).await.unwrap_err();
        assert!(doubled.to_string().contains("empty name"), "{doubled}");
        let multi = Multi::new().check("/", None).delete("/a/./b", None);
        let relative = client.multi(multi).await.unwrap_err();
        assert_eq!(relative.class(), ErrorClass::Operation);
        assert!(relative.to_string().contains("must not be relative"), "{relative}");
        // The server appends the name, so these are valid.
        client.create("/s", "", CreateMode::Persistent).await.unwrap();
        let path = client.create("/s/", "", CreateMode::PersistentSequential).await.unwrap();
        assert_eq!(path, "/s/0000000000");
    });
}

#[test]
fn several_nodes_are_read_at_one_moment() {
    check(async |server| {
        let client = connect(&server).await;
        client.create("/r", "data", CreateMode::Persistent).await.unwrap();
        let reads = MultiRead::new().get("/r").children("/").get("/absent");
        let mut results = client.multi_read(reads).await.unwrap();
        assert_eq!(results.pop().unwrap(), Err(ErrorCode::NoNode));
        let Ok(MultiReadOutcome::Children(mut names)) = results.pop().unwrap() else { panic!() };
        names.sort_unstable();
        assert_eq!(names, ["r", "zookeeper"]);
        let Ok(MultiReadOutcome::Data(data, _)) = results.pop().unwrap() else { panic!() };
        assert_eq!(&data[..], b"data");
    });
}

/// A stream that takes the place of a dropped one has the events: the removal of the old watch must
/// not end the new one (found by R6).
#[test]
fn dropped_stream_does_not_end_its_successor() {
    check(async |server| {
        let client = connect(&server).await;
        for _ in 0..10 {
            drop(client.watch("/w", AddWatchMode::Persistent).await.unwrap());
            let mut stream = client.watch("/w", AddWatchMode::Persistent).await.unwrap();
            client.create("/w", "", CreateMode::Persistent).await.unwrap();
            assert_eq!(stream.next().await.unwrap().unwrap().event, EventType::NodeCreated);
            client.delete("/w", None).await.unwrap();
        }
    });
}

#[test]
fn removed_watches_end() {
    check(async |server| {
        let (client, acting) = (connect(&server).await, connect(&server).await);
        let (_, watch) = client.exists_and_watch("/w").await.unwrap();
        let mut stream = client.watch("/w", AddWatchMode::Persistent).await.unwrap();
        client.remove_watches("/w", WatcherType::Data).await.unwrap();
        assert_eq!(watch.await.unwrap_err().failure(), Failure::WatchRemoved);
        acting.create("/w", "", CreateMode::Persistent).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().event, EventType::NodeCreated);
        client.remove_watches("/w", WatcherType::Any).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap_err().failure(), Failure::WatchRemoved);
        assert!(stream.next().await.is_none());
        let none = client.remove_watches("/w", WatcherType::Any).await.unwrap_err();
        assert!(none.is(ErrorCode::NoWatcher), "{none}");
    });
}

/// CLIENT-02: no chroot is added to the path of the configuration.
#[test]
fn configuration_of_the_ensemble_is_read_through_a_chroot() {
    check(async |server| {
        let address = server.address();
        let client = Client::connect(&format!("{address}/app")).await.unwrap();
        let plain = connect(&server).await;
        let (data, _) = client.ensemble_config().await.unwrap();
        assert_eq!(plain.get("/zookeeper/config").await.unwrap().0, data);
        let (_, _, watch) = client.ensemble_config_and_watch().await.unwrap();
        let error = client.reconfig(Reconfig::new().leave(1)).await.unwrap_err();
        assert!(error.is(ErrorCode::ReconfigDisabled), "{error}");
        assert!(poll_immediate(watch).await.is_none(), "nothing has changed");
    });
}

/// CLIENT-06.
#[test]
fn session_moves_to_the_servers_of_a_new_list() {
    check(async |server| {
        let client = connect(&server).await;
        let id = client.session_id();
        let mut states = client.states();
        // Both lead to the same server; a name that the first list has not makes the session move.
        let other = server.address().replace("127.0.0.1", "localhost");
        client.update_servers(other.parse().unwrap());
        assert_eq!(states.next().await, Some(State::Connecting));
        assert_eq!(states.next().await, Some(State::Connected));
        assert_eq!(client.session_id(), id);
        // With the probability of 1/2 the session moves to a server that is none, and comes back.
        client.update_servers(format!("{other},127.0.0.1:1").parse().unwrap());
        while let Err(error) = client.exists("/").await {
            assert!(error.is_recoverable(), "{error}");
            client.connected().await.unwrap();
        }
    });
}

/// RO-04.
#[test]
fn session_leaves_a_read_only_server_for_one_that_takes_writes() {
    let lines = "readonlymode.enabled=true\nlocalSessionsEnabled=true";
    let start = |servers| Ensemble::builder().servers(servers).zoo_cfg(lines).start();
    let (mut left_alone, mut whole) = (start(3).expect("starts"), start(1).expect("starts"));
    // Each start begins an epoch. A server with a lower zxid than the client has seen refuses it.
    for _ in 0..3 {
        whole.restart_server(1).expect("restarts");
    }
    let read_only = left_alone.address(3).expect("is known");
    let read_write = whole.address(1).expect("is known");
    // A server without data does not become read-only.
    block_on(async {
        for server in [&read_only, &read_write] {
            let client = Client::connect(server).await.unwrap();
            client.create("/data", "", CreateMode::Persistent).await.unwrap();
        }
    });
    for server in [1, 2] {
        left_alone.stop_server(server).expect("stops");
    }
    block_on(async {
        // Nobody listens there, so the session stays until the list is replaced.
        let servers = format!("{read_only},127.0.0.1:1").parse().expect("is valid");
        let builder = Client::builder(servers).config(|config| {
            config.read_only = true;
            config.round_pause = Duration::from_millis(100);
        });
        let client = builder.connect().await.unwrap();
        assert_eq!(client.state(), State::ConnectedReadOnly);
        assert!(client.exists("/").await.unwrap().is_some());
        let refused = client.create("/a", "", CreateMode::Persistent).await.unwrap_err();
        assert!(refused.is(ErrorCode::NotReadOnly), "{refused}");
        let session = client.session_id();
        let mut states = client.states();
        client.update_servers(format!("{read_only},{read_write}").parse().expect("is valid"));
        assert_eq!(states.next().await, Some(State::Connecting));
        assert_eq!(states.next().await, Some(State::Connected));
        assert_ne!(client.session_id(), session, "only the read-only server knows that session");
        client.create("/a", "", CreateMode::Persistent).await.unwrap();
    });
}

/// CLIENT-16.
#[test]
fn subtrees_are_listed_and_deleted() {
    check(async |server| {
        let client = connect(&server).await;
        for path in ["/t", "/t/b", "/t/a", "/t/a/x", "/t/b/y", "/u"] {
            client.create(path, "", CreateMode::Persistent).await.unwrap();
        }
        let paths = client.subtree("/t").await.unwrap();
        assert_eq!(paths, ["/t", "/t/a", "/t/b", "/t/a/x", "/t/b/y"]);
        assert_eq!(client.delete_subtree("/t/a").await.unwrap(), 2);
        let absent = client.delete_subtree("/t/a").await.unwrap_err();
        assert!(absent.is(ErrorCode::NoNode), "{absent}");
        assert_eq!(client.delete_subtree("/").await.unwrap(), 4);
        assert_eq!(client.children("/").await.unwrap().0, ["zookeeper"]);
    });
}

#[test]
fn programs_without_asynchronous_code_wait() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=500\n");
    let client = blocking::connect(&server.address()).unwrap();
    client.create("/b", "", CreateMode::Persistent).wait().unwrap();
    let events = client.watch("/b", AddWatchMode::PersistentRecursive).wait().unwrap();
    let guard = blocking::wait(Lock::new(&client, "/b/lock").acquire()).unwrap();
    blocking::wait(guard.release()).unwrap();
    let first = blocking::iter(events).next().unwrap().unwrap();
    assert_eq!((first.event, &*first.path), (EventType::NodeCreated, "/b/lock"));
    blocking::wait(client.close());
    let after = client.exists("/b").wait().unwrap_err();
    assert_eq!(after.failure(), Failure::Closed);
}
