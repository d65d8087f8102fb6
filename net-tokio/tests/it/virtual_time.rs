//! Ensembles in virtual time (`zabkeeper::testing::VirtualEnsemble`).

use std::time::Duration;

use futures::StreamExt;
use futures::future::{join, poll_immediate};
use tokio::time::{Instant, sleep, timeout};
use zabkeeper::testing::{Error, VirtualEnsemble};
use zabkeeper_client::recipes::{Election, Lock};
use zabkeeper_client::{AddWatchMode, CreateMode, EventType, State, WatchEvent, WatchStream};

use crate::harness::{get, set};

const HOUR: Duration = Duration::from_secs(3600);

/// Real time that no test needs, even on a machine under load.
const LONG: Duration = Duration::from_secs(20);

/// A tick of the servers by default.
const TICK: Duration = Duration::from_secs(2);

fn is_shareable<T: Send + Sync + 'static>(_: &T) {}

/// A future that a task of a runtime with several threads may await.
fn sendable<T: Send>(future: T) -> T {
    future
}

#[tokio::test(start_paused = true)]
async fn session_of_an_isolated_client_expires_after_its_timeout() {
    let real = std::time::Instant::now();
    let ensemble = sendable(VirtualEnsemble::start(3)).await.unwrap();
    is_shareable(&ensemble);
    let (silent, observer) = (ensemble.connect().await.unwrap(), ensemble.connect().await.unwrap());
    silent.create("/here", "", CreateMode::Ephemeral).await.unwrap();
    observer.sync("/").await.unwrap();
    let (stat, watch) = observer.exists_and_watch("/here").await.unwrap();
    assert!(stat.is_some());

    sleep(5 * HOUR).await;
    assert_eq!(silent.state(), State::Connected, "an idle session lives");
    let granted = silent.session_timeout();
    assert_eq!(granted, Duration::from_secs(30));
    ensemble.isolate(&silent).unwrap();
    let isolated = Instant::now();
    assert_eq!(watch.await.unwrap().event, EventType::NodeDeleted);
    let took = isolated.elapsed();
    // The client pings after a third of the timeout, and the leader expires once per tick.
    assert!(took >= granted * 2 / 3 - TICK && took <= granted + 2 * TICK, "{took:?}");

    sleep(5 * HOUR).await;
    assert_eq!(silent.state(), State::Connecting, "it cannot know");
    silent.session_lost().await;
    ensemble.rejoin(&silent).unwrap();
    assert!(silent.connected().await.is_err());
    assert_eq!(silent.state(), State::Expired);
    assert!(real.elapsed() < LONG, "{:?}", real.elapsed());
}

#[tokio::test(start_paused = true)]
async fn client_that_rejoins_in_time_keeps_its_session() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let client = ensemble.connect().await.unwrap();
    let session = client.session_id();
    client.create("/here", "", CreateMode::Ephemeral).await.unwrap();
    for seconds in [5, 15, 18] {
        ensemble.isolate(&client).unwrap();
        sleep(Duration::from_secs(seconds)).await;
        ensemble.rejoin(&client).unwrap();
        set(&client, "/here", "again").await;
    }
    assert_eq!(client.session_id(), session);
}

/// RECIPE-12. A leader that reaches no server stops before another one leads.
#[tokio::test(start_paused = true)]
async fn isolated_leader_learns_that_its_leadership_is_lost_before_another_one_leads() {
    for seed in 0..20 {
        let ensemble = VirtualEnsemble::builder().servers(3).seed(seed).start().await.unwrap();
        let (a, b) = (ensemble.connect().await.unwrap(), ensemble.connect().await.unwrap());
        let elections =
            [(&a, "a"), (&b, "b")].map(|(client, name)| Election::new(client, "/leader", name));
        let first = elections[0].lead().await.unwrap();
        sleep(Duration::from_millis(777 * seed)).await;
        ensemble.isolate(&a).unwrap();
        let isolated = Instant::now();
        let lost = async {
            first.lost().await;
            isolated.elapsed()
        };
        let next = async {
            let next = elections[1].lead().await.unwrap();
            (next, isolated.elapsed())
        };
        let (lost, (next, leads)) = join(lost, next).await;
        assert!(lost <= leads, "lost after {lost:?}, the next one leads after {leads:?}");
        assert!(next.epoch() > first.epoch());
    }
}

/// A session that lives on after it was presumed to have expired is served again, and its guards
/// are told of the next time.
#[tokio::test(start_paused = true)]
async fn presumption_ends_with_an_answer() {
    let ensemble = VirtualEnsemble::start(1).await.unwrap();
    let client = ensemble.connect().await.unwrap();
    for _ in 0..2 {
        let mut lost = Box::pin(client.session_lost());
        sleep(HOUR).await;
        assert!(poll_immediate(&mut lost).await.is_none(), "the session is served");
        // A new leader gives all sessions their timeout anew.
        ensemble.kill_server(1).unwrap();
        lost.await;
        client.session_lost().await;
        ensemble.start_server(1).await.unwrap();
        client.connected().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn hour_passes_at_once() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let client = ensemble.connect().await.unwrap();
    let (real, began) = (std::time::Instant::now(), Instant::now());
    sleep(HOUR).await;
    let real = real.elapsed();
    assert!(began.elapsed() >= HOUR && began.elapsed() < HOUR + TICK);
    assert_eq!(client.state(), State::Connected);
    assert!(real < LONG, "{real:?}");
}

#[tokio::test(start_paused = true)]
async fn killed_leader_loses_no_acknowledged_write() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let client = ensemble.connect().await.unwrap();
    let session = client.session_id();
    client.create("/counted", "", CreateMode::Persistent).await.unwrap();
    for round in 0..5 {
        let written = format!("round {round}");
        let mut stat = client.set("/counted", written.clone(), None).await;
        while stat.is_err() {
            client.connected().await.unwrap();
            stat = client.set("/counted", written.clone(), None).await;
        }
        let leader = ensemble.leader().expect("one leads");
        ensemble.kill_server(leader).unwrap();
        assert!(!ensemble.is_running(leader).unwrap());
        let killed = Instant::now();
        while ensemble.leader().is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(killed.elapsed() < TICK, "closed connections tell of it: {:?}", killed.elapsed());
        assert_ne!(ensemble.leader(), Some(leader));
        assert_eq!(get(&client, "/counted").await, written);
        ensemble.start_server(leader).await.unwrap();
        let there = ensemble.client_with(|config| {
            config.servers = ensemble.address(leader).unwrap().parse().unwrap();
        });
        assert_eq!(get(&there, "/counted").await, written);
    }
    assert_eq!(client.session_id(), session);
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_hands_over() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let client = ensemble.connect().await.unwrap();
    client.create("/kept", "value", CreateMode::Ephemeral).await.unwrap();
    let leader = ensemble.leader().expect("one leads");
    sendable(ensemble.stop_server(leader)).await.unwrap();
    ensemble.stop_server(leader).await.unwrap();
    let stopped = Instant::now();
    while ensemble.leader().is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(stopped.elapsed() < Duration::from_millis(100), "{:?}", stopped.elapsed());
    assert_ne!(ensemble.leader(), Some(leader));
    assert_eq!(get(&client, "/kept").await, "value");
}

#[tokio::test(start_paused = true)]
async fn restarted_servers_have_their_data() {
    for servers in [1, 3, 5] {
        let ensemble = VirtualEnsemble::builder().servers(servers).zoo_cfg("snapCount=50");
        let ensemble = ensemble.start().await.unwrap();
        assert_eq!(ensemble.ids(), 1..=servers as u64);
        let client = ensemble.connect().await.unwrap();
        client.create("/kept", "", CreateMode::Persistent).await.unwrap();
        for _ in 0..200 {
            // Some of them are in a snapshot only.
            client.create("/kept/n-", "", CreateMode::PersistentSequential).await.unwrap();
        }
        for id in ensemble.ids() {
            let kill = id % 2 == 0;
            if kill {
                ensemble.kill_server(id).unwrap();
            } else {
                ensemble.stop_server(id).await.unwrap();
            }
        }
        assert_eq!(ensemble.leader(), None);
        sleep(Duration::from_secs(1)).await;
        for id in ensemble.ids() {
            ensemble.start_server(id).await.unwrap();
            ensemble.start_server(id).await.unwrap();
        }
        client.connected().await.unwrap();
        assert_eq!(client.children("/kept").await.unwrap().0.len(), 200);
        ensemble.restart_server(1).await.unwrap();
        client.connected().await.unwrap();
        assert_eq!(client.children("/kept").await.unwrap().0.len(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn lock_passes_on_when_its_holder_falls_silent() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let (a, b) = (ensemble.connect().await.unwrap(), ensemble.connect().await.unwrap());
    let first = Lock::new(&a, "/locks/printer").acquire().await.unwrap();
    let waits = tokio::spawn(async move { Lock::new(&b, "/locks/printer").acquire().await });
    sleep(HOUR).await;
    assert!(!waits.is_finished(), "the holder lives");

    ensemble.isolate(&a).unwrap();
    let isolated = Instant::now();
    let second = waits.await.unwrap().unwrap();
    let took = isolated.elapsed();
    assert!(took > Duration::from_secs(15) && took < Duration::from_secs(35), "{took:?}");
    assert!(second.token() > first.token());
    ensemble.rejoin(&a).unwrap();
    timeout(Duration::from_secs(10), first.lost()).await.expect("it gets to know");
    second.release().await.unwrap();
}

/// A leader without a majority steps down, and its followers serve nobody.
#[tokio::test(start_paused = true)]
async fn minority_of_a_partition_serves_nothing() {
    let ensemble = VirtualEnsemble::start(5).await.unwrap();
    let old = ensemble.leader().expect("one leads");
    let client = ensemble.connect().await.unwrap();
    client.create("/data", "before", CreateMode::Persistent).await.unwrap();
    let with_leader = ensemble.ids().find(|id| *id != old).expect("there are five");
    ensemble.partition([old, with_leader]).unwrap();
    sleep(10 * TICK).await;
    let new = ensemble.leader().expect("the majority elects one");
    assert!(new != old && new != with_leader);
    set(&client, "/data", "after").await;
    let there = ensemble.client_with(|config| {
        config.servers = ensemble.address(old).unwrap().parse().unwrap();
    });
    assert!(timeout(HOUR, there.connected()).await.is_err(), "it serves nobody");
    ensemble.heal();
    there.connected().await.unwrap();
    there.sync("/").await.unwrap();
    assert_eq!(get(&there, "/data").await, "after");
    assert_eq!(ensemble.leader(), Some(new));
}

/// The next event of a watch.
async fn next(events: &mut WatchStream) -> Result<WatchEvent, zabkeeper_client::Error> {
    events.next().await.expect("the stream goes on")
}

/// Everything that a program can see of a run of some steps.
async fn trace(seed: u64) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let began = Instant::now();
    let ensemble = VirtualEnsemble::builder().servers(3).seed(seed).start().await?;
    let (a, b) = (ensemble.connect().await?, ensemble.connect().await?);
    let mut trace = vec![format!("{:?} {a:?} {b:?}", began.elapsed())];
    let mut events = b.watch("/", AddWatchMode::PersistentRecursive).await?;
    for round in 0..3 {
        let path = format!("/{round}-{}", a.unique_id());
        let made = a.create_with_stat(&path, "", CreateMode::EphemeralSequential).await?;
        let event = next(&mut events).await?;
        trace.push(format!("{:?} {made:?} {event:?}", began.elapsed()));
        let leader = ensemble.leader().expect("one leads");
        ensemble.kill_server(leader)?;
        b.connected().await?;
        set(&b, "/", "x").await;
        trace.push(format!("{:?} {leader} {:?}", began.elapsed(), b.exists("/").await));
        ensemble.start_server(leader).await?;
        while next(&mut events).await?.path != "/" {}
        a.connected().await?;
        trace.push(format!("{:?}", began.elapsed()));
    }
    ensemble.isolate(&a)?;
    let event = next(&mut events).await?;
    trace.push(format!("{:?} {event:?}", began.elapsed()));
    sleep(HOUR).await;
    trace.push(format!("{:?} {:?}", b.exists("/").await, b.children("/").await));
    Ok(trace)
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(trace(seed)).unwrap()
    };
    let first = run(7);
    assert_eq!(run(7), first);
    assert_eq!(run(7), first);
    assert_ne!(run(8), first);
}

#[tokio::test]
async fn running_clock_is_refused_and_a_paused_one_accepted() {
    let error = VirtualEnsemble::start(1).await.unwrap_err();
    assert!(error.to_string().contains("start_paused = true"), "{error}");
    tokio::time::pause();
    let ensemble = VirtualEnsemble::start(1).await.unwrap();
    ensemble.connect().await.unwrap().create("/a", "", CreateMode::Persistent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn settings_reach_the_servers() {
    let second = Duration::from_secs(1);
    let builder = VirtualEnsemble::builder().servers(3).tick(second / 10);
    let builder = builder.session_timeouts(second..=second).zoo_cfg("jute.maxbuffer=2000");
    let ensemble = builder.start().await.unwrap();
    let (client, other) = (ensemble.connect().await.unwrap(), ensemble.connect().await.unwrap());
    assert_eq!(client.session_timeout(), second);
    client.create("/e", "", CreateMode::Ephemeral).await.unwrap();
    ensemble.isolate(&client).unwrap();
    sleep(2 * second).await;
    assert!(other.exists("/e").await.unwrap().is_none());
    assert!(other.create("/large", vec![0; 3000], CreateMode::Persistent).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn failures_say_what_was_wrong() {
    let error = VirtualEnsemble::start(0).await.unwrap_err();
    let expected = "an ensemble of 0 servers is not possible: use 1 to 255, such as 3";
    assert_eq!(error.to_string(), expected);
    let error = VirtualEnsemble::builder().zoo_cfg("snapCount=many").start().await.unwrap_err();
    assert!(error.to_string().contains("snapCount=many: not a whole number"), "{error}");

    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let none = Error::Invalid("there is no server 4: the servers are 1 to 3".to_owned());
    assert_eq!(ensemble.kill_server(4), Err(none.clone()));
    assert_eq!(ensemble.start_server(4).await, Err(none.clone()));
    assert_eq!(ensemble.partition([1, 4]), Err(none));
    let error = ensemble.isolate(&ensemble.client()).unwrap_err();
    assert!(error.to_string().contains("Client::connected"), "{error}");

    ensemble.kill_server(3).unwrap();
    ensemble.partition([1]).unwrap();
    sleep(10 * TICK).await;
    let waited = Duration::from_secs(30);
    assert_eq!(ensemble.start_server(3).await, Ok(()), "two of three are a majority");
    ensemble.kill_server(3).unwrap();
    ensemble.partition([3]).unwrap();
    let error = ensemble.start_server(3).await.unwrap_err();
    assert_eq!(error, Error::TimedOut { id: 3, waited });
    assert!(ensemble.is_running(3).unwrap());
}

#[tokio::test(start_paused = true)]
async fn dropped_ensemble_ends_all_connections() {
    let ensemble = VirtualEnsemble::start(3).await.unwrap();
    let other = VirtualEnsemble::start(1).await.unwrap();
    let (client, stays) = (ensemble.connect().await.unwrap(), other.connect().await.unwrap());
    let mut states = client.states();
    drop(ensemble);
    assert_eq!(states.next().await, Some(State::Connecting));
    assert!(client.get("/").await.unwrap_err().is_recoverable());
    sleep(HOUR).await;
    assert_eq!((client.state(), stays.state()), (State::Connecting, State::Connected));
}
