//! Tests with an independent client library (the crate `zookeeper-client`).

use std::future::Future;
use std::time::Duration;

use tempfile::tempdir;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, EventType, LockOptions, LockPrefix,
    SessionState,
};

use crate::harness::{Server, block_on, free_port};
use crate::raw::{Raw, create, exists};

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

fn check<F: Future<Output = ()>>(test: impl FnOnce(Server) -> F) {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    block_on(test(server));
}

async fn connect(server: &Server) -> Client {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    connector.connect(&server.address()).await.expect("connects")
}

#[test]
fn nodes_are_created_read_set_listed_and_deleted() {
    check(async |server| {
        let client = connect(&server).await;
        let (created, _) = client.create("/a", b"one", &PERSISTENT).await.unwrap();
        assert_eq!(client.get_data("/a").await.unwrap(), (b"one".to_vec(), created));
        let set = client.set_data("/a", b"two", Some(0)).await.unwrap();
        assert_eq!((set.version, set.czxid), (1, created.czxid));
        assert_eq!(client.set_data("/a", b"three", Some(0)).await, Err(Error::BadVersion));
        client.create("/a/b", b"", &PERSISTENT).await.unwrap();
        client.create("/a/c", b"", &PERSISTENT).await.unwrap();
        let (mut children, stat) = client.get_children("/a").await.unwrap();
        children.sort();
        assert_eq!((children, stat.num_children), (vec!["b".to_owned(), "c".to_owned()], 2));
        assert_eq!(client.delete("/a", None).await, Err(Error::NotEmpty));
        client.delete("/a/b", None).await.unwrap();
        assert_eq!(client.list_children("/a").await.unwrap(), ["c"]);
        assert_eq!(client.check_stat("/a/b").await.unwrap(), None);
        assert_eq!(client.create("/a", b"", &PERSISTENT).await, Err(Error::NodeExists));
        assert_eq!(client.create("/x/y", b"", &PERSISTENT).await, Err(Error::NoNode));
        client.sync("/").await.unwrap();
    });
}

#[test]
fn watches_fire_for_data_existence_and_children() {
    check(async |server| {
        let (watching, acting) = (connect(&server).await, connect(&server).await);
        let (_, exists) = watching.check_and_watch_stat("/w").await.unwrap();
        acting.create("/w", b"", &PERSISTENT).await.unwrap();
        let event = exists.changed().await;
        assert_eq!((event.event_type, &event.path[..]), (EventType::NodeCreated, "/w"));

        let (_, _, data) = watching.get_and_watch_data("/w").await.unwrap();
        acting.set_data("/w", b"1", None).await.unwrap();
        assert_eq!(data.changed().await.event_type, EventType::NodeDataChanged);

        let (_, _, children) = watching.get_and_watch_children("/w").await.unwrap();
        acting.create("/w/c", b"", &PERSISTENT).await.unwrap();
        assert_eq!(children.changed().await.event_type, EventType::NodeChildrenChanged);

        let (_, _, data) = watching.get_and_watch_data("/w/c").await.unwrap();
        acting.delete("/w/c", None).await.unwrap();
        assert_eq!(data.changed().await.event_type, EventType::NodeDeleted);
    });
}

#[test]
fn sequential_and_ephemeral_nodes_end_with_their_session() {
    check(async |server| {
        let (staying, leaving) = (connect(&server).await, connect(&server).await);
        staying.create("/q", b"", &PERSISTENT).await.unwrap();
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, first) = leaving.create("/q/n-", b"", &mode).await.unwrap();
        let (_, second) = leaving.create("/q/n-", b"", &mode).await.unwrap();
        assert_eq!((first.into_i64(), second.into_i64()), (0, 1));
        assert_eq!(stat.ephemeral_owner, leaving.session_id().0);

        let (_, gone) = staying.check_and_watch_stat("/q/n-0000000000").await.unwrap();
        drop(leaving);
        assert_eq!(gone.changed().await.event_type, EventType::NodeDeleted);
        assert_eq!(staying.list_children("/q").await.unwrap(), [""; 0]);
    });
}

#[test]
fn multi_is_atomic() {
    check(async |server| {
        let client = connect(&server).await;
        let mut writer = client.new_multi_writer();
        writer.add_create("/t", b"1", &PERSISTENT).unwrap();
        writer.add_set_data("/t", b"2", Some(0)).unwrap();
        writer.add_check_version("/t", 1).unwrap();
        assert_eq!(writer.commit().await.unwrap().len(), 3);
        assert_eq!(client.get_data("/t").await.unwrap().0, b"2");

        writer.add_create("/t/child", b"", &PERSISTENT).unwrap();
        writer.add_delete("/missing", None).unwrap();
        assert!(writer.commit().await.is_err());
        assert_eq!(client.list_children("/t").await.unwrap(), [""; 0]);
    });
}

#[test]
fn lock_passes_to_the_next_waiter() {
    check(async |server| {
        let (first, second) = (connect(&server).await, connect(&server).await);
        let options =
            || LockOptions::new(Acls::anyone_all()).with_ancestor_options(PERSISTENT).unwrap();
        let prefix = || LockPrefix::new_curator("/locks/one", "latch-").unwrap();
        let held = first.lock(prefix(), b"", options()).await.unwrap();
        held.create("/guarded", b"", &PERSISTENT).await.unwrap();
        let mut waiting = std::pin::pin!(second.lock(prefix(), b"", options()));
        let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "the lock is held");
        drop(held);
        assert!(waiting.await.unwrap().lock_path().starts_with("/locks/one/"));
    });
}

#[test]
fn session_survives_restart_with_ephemerals_and_watches() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let server = Server::start_on(port, dir.path(), "");
    block_on(async {
        let client = connect(&server).await;
        let session = client.session_id();
        client.create("/here", b"", &EPHEMERAL).await.unwrap();
        let (_, _, watch) = client.get_and_watch_data("/here").await.unwrap();
        let mut state = client.state_watcher();
        server.kill();
        while state.changed().await != SessionState::Disconnected {}

        let server = Server::start_on(port, dir.path(), "");
        while state.changed().await != SessionState::SyncConnected {}
        assert_eq!(client.session_id(), session);
        let other = connect(&server).await;
        let stat = other.check_stat("/here").await.unwrap().expect("its session lives");
        assert_eq!(stat.ephemeral_owner, session.0);
        other.set_data("/here", b"changed", None).await.unwrap();
        assert_eq!(watch.changed().await.event_type, EventType::NodeDataChanged);
    });
}

#[test]
fn silent_session_expires_with_its_ephemerals() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "minSessionTimeout=300");
    let (mut silent, response) = Raw::open(server.port, 300);
    assert_eq!(response.timeout_ms, 300);
    assert_eq!(silent.call(create("/gone", b"", 1)).0, 0);
    drop(silent);
    let (mut other, _) = Raw::open(server.port, 30_000);
    assert_eq!(other.call(exists("/gone")).0, 0, "the session outlives its connection");
    crate::harness::eventually("the expiry", || other.call(exists("/gone")).0 == -101);
}
