//! The client's recipes against the real server, each with two sessions.

mod kept;

use std::ops::ControlFlow;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, join, join_all, poll_immediate, select, try_join_all};
use futures::{FutureExt, StreamExt};
use tempfile::tempdir;
use zabkeeper_client::recipes::{
    Barrier, Counter, Decision, DelayQueue, DoubleBarrier, Election, Group, LeaderSelector, Lock,
    Members, MultiLock, Queue, RwLock, Semaphore, TreeCache, TwoPhaseCommit, WorkQueue,
};
use zabkeeper_client::{Client, CreateMode, ErrorCode, Multi};

use crate::harness::{Server, block_on};

/// Runs the test with two sessions of one server, which looks for empty containers all the time.
fn check<F: Future<Output = ()>>(test: impl FnOnce([Client; 2]) -> F) {
    let dir = tempdir().expect("creates");
    let config = "tickTime=500\nznode.container.checkIntervalMs=100\n";
    let server = Server::start(dir.path(), config);
    block_on(async {
        let connect = async || Client::connect(&server.address()).await.expect("connects");
        test([connect().await, connect().await]).await;
    });
}

/// Some round trips: long enough for what is to happen, and for what must not.
async fn a_while(client: &Client) {
    for _ in 0..5 {
        client.sync("/").await.expect("syncs");
    }
}

/// Polls the future for a while, which must not end it.
async fn waits<F: Future + Unpin>(client: &Client, future: &mut F) {
    let ended = matches!(select(future, Box::pin(a_while(client))).await, Either::Left(_));
    assert!(!ended, "the future waits for what has not happened");
}

/// RECIPE-09.
#[test]
fn readers_share_the_lock_and_writers_do_not() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| RwLock::new(client, "/locks/rw"));
        let reading = [ours.read().await.unwrap(), theirs.read().await.unwrap()];
        let mut writing = Box::pin(theirs.write());
        waits(&b, &mut writing).await;
        let mut late = Box::pin(ours.read());
        assert!(poll_immediate(&mut late).await.is_none());
        let tokens = reading.each_ref().map(|guard| guard.token());
        for guard in reading {
            guard.release().await.unwrap();
        }
        let writer = writing.await.unwrap();
        assert!(writer.token() > tokens[0].max(tokens[1]));
        waits(&a, &mut late).await;
        writer.release().await.unwrap();
        late.await.unwrap().release().await.unwrap();
    });
}

/// RECIPE-10.
#[test]
fn holder_learns_that_somebody_asks_for_the_lock() {
    check(async |[a, b]| {
        let guard = Lock::new(&a, "/locks/revoked").acquire().await.unwrap();
        let mut revoked = Box::pin(guard.revoked());
        waits(&a, &mut revoked).await;
        Lock::revoke(&b, &guard.path()).await.unwrap();
        revoked.await;
    });
}

#[test]
fn semaphore_grants_its_leases_and_no_more() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| Semaphore::new(client, "/s", 2));
        let first = ours.acquire().await.unwrap();
        let second = theirs.acquire().await.unwrap();
        assert!(second.token() > first.token());
        let mut third = Box::pin(ours.acquire());
        waits(&a, &mut third).await;
        second.release().await.unwrap();
        third.await.unwrap();
    });
}

#[test]
fn several_locks_are_held_together() {
    check(async |[a, b]| {
        let both = MultiLock::new(&a, ["/l/2", "/l/1", "/l/2"]).acquire().await.unwrap();
        assert_eq!(both.tokens().len(), 2);
        let second = Lock::new(&b, "/l/2");
        assert!(second.acquire_within(Duration::from_millis(50)).await.unwrap().is_none());
        both.release().await.unwrap();
        second.acquire().await.unwrap();
    });
}

#[test]
fn counter_adds_up() {
    check(async |[a, b]| {
        let add = async |client: &Client| {
            let mut counter = Counter::new(client, "/counters/hits");
            let mut seen = Vec::new();
            for _ in 0..50 {
                seen.push(counter.add(1).await.unwrap());
            }
            seen
        };
        let (ours, theirs) = join(add(&a), add(&b)).await;
        let mut all = [ours, theirs].concat();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(1..=100));
        assert_eq!(Counter::new(&a, "/counters/hits").get().await.unwrap(), 100);
        b.create("/empty", "", CreateMode::Persistent).await.unwrap();
        assert_eq!(Counter::new(&a, "/empty").add(-2).await.unwrap(), -2, "no data are zero");
        b.create("/text", "text", CreateMode::Persistent).await.unwrap();
        let unfit = Counter::new(&a, "/text").get().await.unwrap_err();
        assert!(unfit.to_string().contains("not this recipe's"), "{unfit}");
    });
}

/// RECIPE-05, RECIPE-06.
#[test]
fn items_of_a_queue_are_taken_once_and_in_order() {
    check(async |[a, b]| {
        let mut consumer = Queue::new(&b, "/q");
        assert!(consumer.try_take().await.unwrap().is_none());
        let producer = async {
            let mut queue = Queue::new(&a, "/q");
            for item in ["one", "two", "three"] {
                queue.put(item).await.unwrap();
            }
            queue.put_with_priority(7, "first").await.unwrap();
        };
        producer.await;
        for item in ["first", "one", "two", "three"] {
            assert_eq!(consumer.take().await.unwrap(), item);
        }
        let mut waiting = Box::pin(consumer.take());
        waits(&b, &mut waiting).await;
        Queue::new(&a, "/q").put("late").await.unwrap();
        assert_eq!(waiting.await.unwrap(), "late");
    });
}

#[test]
fn items_of_a_delay_queue_are_taken_when_their_time_has_come() {
    check(async |[a, b]| {
        let [mut ours, mut theirs] = [&a, &b].map(|client| DelayQueue::new(client, "/delayed"));
        assert!(theirs.try_take().await.unwrap().is_none());
        ours.put("in an hour", Duration::from_secs(3600)).await.unwrap();
        assert!(theirs.try_take().await.unwrap().is_none(), "the item is not due");
        let began = ours.now().await.unwrap();
        let [short, long] = [200, 400].map(Duration::from_millis);
        for (item, delay) in [("last", long), ("second", short), ("first", Duration::ZERO)] {
            ours.put(item, delay).await.unwrap();
        }
        for (item, delay) in [("first", Duration::ZERO), ("second", short), ("last", long)] {
            assert_eq!(theirs.take().await.unwrap(), item);
            assert!(ours.now().await.unwrap() >= began + delay, "{item} came early");
        }
        // An earlier item that comes while somebody sleeps is seen.
        let mut waiting = Box::pin(theirs.take());
        waits(&a, &mut waiting).await;
        ours.put_at("long ago", Duration::from_secs(1)).await.unwrap();
        assert_eq!(waiting.await.unwrap(), "long ago");
        b.close().await;
        assert!(theirs.take().await.unwrap_err().is_fatal());
    });
}

#[test]
fn work_that_nobody_acknowledges_is_offered_again() {
    check(async |[a, b]| {
        let [mut ours, theirs] = [&a, &b].map(|client| WorkQueue::new(client, "/work"));
        for item in ["one", "two"] {
            ours.put(item).await.unwrap();
        }
        let first = ours.claim().await.unwrap();
        let second = theirs.claim().await.unwrap();
        assert_eq!((&first.item()[..], &second.item()[..]), (&b"one"[..], &b"two"[..]));
        drop(first);
        let again = theirs.claim().await.unwrap();
        assert_eq!(again.item(), "one");
        let result = Multi::new().create("/result", "done", CreateMode::Persistent);
        again.complete_with(result.clone()).await.unwrap();
        assert_eq!(a.get("/result").await.unwrap().0, "done");
        let failed = second.complete_with(result).await.unwrap_err();
        assert!(failed.is(ErrorCode::NodeExists), "{failed}");
        ours.claim().await.unwrap().complete().await.unwrap();
        assert!(a.children("/work/entries").await.unwrap().0.is_empty());
    });
}

/// kazoo creates the nodes once, and relies on them then.
#[test]
fn nodes_of_a_work_queue_stay_while_it_is_empty() {
    check(async |[a, b]| {
        let mut queue = WorkQueue::new(&a, "/work");
        queue.put("one").await.unwrap();
        queue.claim().await.unwrap().complete().await.unwrap();
        // A pass of the server that deletes an empty container deletes all that were empty before.
        for _ in 0..2 {
            b.create("/empty", "", CreateMode::Container).await.unwrap();
            b.create("/empty/child", "", CreateMode::Persistent).await.unwrap();
            b.delete("/empty/child", None).await.unwrap();
            while let (Some(_), watch) = b.exists_and_watch("/empty").await.unwrap() {
                watch.await.unwrap();
            }
        }
        for node in ["/work/taken", "/work/entries"] {
            assert!(b.exists(node).await.unwrap().is_some(), "{node}");
        }
    });
}

/// RECIPE-02.
#[test]
fn barrier_holds_until_it_is_removed() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| Barrier::new(client, "/barriers/b"));
        theirs.wait().await.unwrap();
        ours.set().await.unwrap();
        ours.set().await.unwrap();
        let mut waiting = Box::pin(theirs.wait());
        waits(&b, &mut waiting).await;
        ours.remove().await.unwrap();
        waiting.await.unwrap();
    });
}

/// RECIPE-03.
#[test]
fn sessions_enter_and_leave_a_double_barrier_together() {
    check(async |[a, b]| {
        let barriers = [&a, &b, &b].map(|client| DoubleBarrier::new(client, "/barriers/d", 3));
        for _ in 0..3 {
            let mut early = Box::pin(barriers[0].enter());
            waits(&a, &mut early).await;
            let others = try_join_all(barriers[1..].iter().map(DoubleBarrier::enter));
            let (first, others) = join(early, others).await;
            let mut leaving = Box::pin(first.unwrap().leave());
            waits(&a, &mut leaving).await;
            let others = join_all(others.unwrap().into_iter().map(|inside| inside.leave()));
            let (first, others) = join(leaving, others).await;
            first.unwrap();
            assert!(others.into_iter().all(|left| left.is_ok()));
        }
    });
}

/// RECIPE-03. kazoo's members delete the node that tells to begin as soon as they leave.
#[test]
fn session_enters_though_the_sign_to_begin_has_gone() {
    check(async |[a, b]| {
        let barrier = DoubleBarrier::new(&a, "/barriers/d", 2);
        b.create("/barriers", "", CreateMode::Persistent).await.unwrap();
        b.create("/barriers/d", "", CreateMode::Persistent).await.unwrap();
        let mut entering = Box::pin(barrier.enter());
        waits(&a, &mut entering).await;
        let sign = "/barriers/d/ready";
        let begin = Multi::new().create(sign, "", CreateMode::Persistent).delete(sign, None);
        b.multi(begin).await.unwrap().unwrap();
        entering.await.unwrap().leave().await.unwrap();
    });
}

/// RECIPE-03. Who leaves without waiting leaves the sign behind, and a session that ends does so.
#[test]
fn sign_to_begin_of_an_earlier_round_counts_no_more() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| DoubleBarrier::new(client, "/barriers/d", 2));
        let (first, second) = join(ours.enter(), theirs.enter()).await;
        drop((first.unwrap(), second.unwrap()));
        while a.children("/barriers/d").await.unwrap().0.len() > 1 {}
        assert!(a.exists("/barriers/d/ready").await.unwrap().is_some());
        let mut alone = Box::pin(ours.enter());
        waits(&a, &mut alone).await;
        // The sign is given anew, to both.
        let (first, second) = join(alone, theirs.enter()).await;
        let (first, second) = join(first.unwrap().leave(), second.unwrap().leave()).await;
        first.unwrap();
        second.unwrap();
        assert!(a.exists("/barriers/d/ready").await.unwrap().is_none());
    });
}

/// RECIPE-03. A barrier is used round after round; who leaves waits for nobody of the next one.
#[test]
fn session_leaves_though_another_one_has_come_again() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| DoubleBarrier::new(client, "/barriers/d", 2));
        for _ in 0..20 {
            let round = async |barrier: &DoubleBarrier| {
                barrier.enter().await.unwrap().leave().await.unwrap();
                barrier.enter().await.unwrap().leave().await.unwrap();
            };
            join(round(&ours), round(&theirs)).await;
        }
    });
}

/// RECIPE-12.
#[test]
fn everybody_sees_who_leads() {
    check(async |[a, b]| {
        let [ours, theirs] =
            [(&a, "a"), (&b, "b")].map(|(client, name)| Election::new(client, "/election", name));
        assert_eq!(ours.leader().await.unwrap(), None);
        let (first, seen) = join(ours.lead(), theirs.leader_after(None)).await;
        let (first, seen) = (first.unwrap(), seen.unwrap().unwrap());
        assert_eq!((&seen.name[..], seen.epoch), (&b"a"[..], first.epoch()));
        let mut second = Box::pin(theirs.lead());
        waits(&b, &mut second).await;
        let mut change = Box::pin(ours.leader_after(Some(&seen)));
        waits(&a, &mut change).await;
        first.resign().await.unwrap();
        let (second, seen) = join(second, change).await;
        let (second, seen) = (second.unwrap(), seen.unwrap().unwrap());
        assert_eq!((&seen.name[..], seen.epoch), (&b"b"[..], second.epoch()));
        b.close().await;
        assert_eq!(ours.leader_after(Some(&seen)).await.unwrap(), None);
    });
}

/// RECIPE-12. kazoo's election is a lock, and its nodes have the names of locks.
#[test]
fn session_leads_only_after_all_candidates_before_it() {
    check(async |[a, b]| {
        let first = Election::new(&a, "/election", "a").lead().await.unwrap();
        let mode = CreateMode::EphemeralSequential;
        let kazoo = b.create("/election/0123456789abcdef__lock__", "b", mode).await.unwrap();
        let election = Election::new(&a, "/election", "a");
        let mut second = Box::pin(election.lead());
        assert!(poll_immediate(&mut second).await.is_none());
        let epoch = first.epoch();
        first.resign().await.unwrap();
        waits(&a, &mut second).await;
        b.delete(&kazoo, None).await.unwrap();
        assert!(second.await.unwrap().epoch() > epoch);
    });
}

#[test]
fn work_of_a_leader_runs_while_it_leads() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| LeaderSelector::new(client, "/lead", "name"));
        let other = Lock::new(&b, "/lead");
        let alone = ours.lead(async |epoch| {
            let acquired = other.acquire_within(Duration::from_millis(50)).await.unwrap();
            assert!(acquired.is_none(), "one leads");
            epoch
        });
        let first = alone.await.unwrap();
        // A leader that takes part again is behind the one that waits.
        let (mut epochs, (leads, begun)) = (Vec::new(), oneshot::channel());
        let mut leads = Some(leads);
        let twice = ours.lead_until(|epoch| {
            epochs.push(epoch);
            let (first, client) = (leads.take(), a.clone());
            async move {
                let Some(leads) = first else { return ControlFlow::Break("done") };
                leads.send(()).expect("somebody waits");
                while client.children("/lead").await.unwrap().0.len() < 2 {}
                ControlFlow::Continue(())
            }
        });
        let once = async {
            begun.await.unwrap();
            theirs.lead(async |epoch| epoch).await
        };
        let (done, between) = join(twice, once).await;
        assert_eq!(done.unwrap(), "done");
        epochs.insert(1, between.unwrap());
        assert!(first < epochs[0] && epochs.is_sorted(), "{first} {epochs:?}");
    });
}

#[test]
fn work_of_a_leader_is_dropped_with_the_leadership() {
    check(async |[a, b]| {
        let ours = LeaderSelector::new(&a, "/lead", "name");
        let (started, begins) = oneshot::channel();
        let forever = ours.lead(async |_| {
            started.send(()).expect("somebody waits");
            std::future::pending::<()>().await;
        });
        let delete = async {
            begins.await.unwrap();
            let (names, _) = b.children("/lead").await.unwrap();
            b.delete(format!("/lead/{}", names[0]), None).await.unwrap();
        };
        let (ended, ()) = join(forever, delete).await;
        let ended = ended.unwrap_err();
        assert!(ended.is(ErrorCode::NoNode), "{ended}");
        let ended = ours.lead_until(async |_| {
            a.close().await;
            std::future::pending::<ControlFlow<()>>().await
        });
        assert!(ended.await.unwrap_err().is_fatal());
    });
}

/// RECIPE-01.
#[test]
fn members_of_a_group_are_listed_while_their_sessions_live() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| Group::new(client, "/group"));
        let none = theirs.members().await.unwrap();
        let (joined, seen) = join(ours.join("a", "host:1"), theirs.changed(&none)).await;
        let joined = joined.unwrap();
        assert_eq!(seen.unwrap(), Members::from([("a".to_owned(), "host:1".into())]));
        let taken = theirs.join("a", "").await.unwrap_err();
        assert!(taken.is(ErrorCode::NodeExists), "{taken}");
        joined.set_data("host:2").await.unwrap();
        let members = theirs.members().await.unwrap();
        assert_eq!(members["a"], "host:2");
        let gone = theirs.changed(&members);
        joined.leave().await.unwrap();
        assert!(gone.await.unwrap().is_empty());
    });
}

/// RECIPE-11.
#[test]
fn transaction_of_several_sites_is_committed_only_by_all() {
    check(async |[a, b]| {
        for votes in [[Decision::Commit, Decision::Commit], [Decision::Commit, Decision::Abort]] {
            let [ours, theirs] = [&a, &b].map(|client| TwoPhaseCommit::new(client, "/tx"));
            ours.begin(&["x", "y"]).await.unwrap();
            let deciding = ours.decide().shared();
            let learning = theirs.decided();
            ours.vote("x", votes[0]).await.unwrap();
            assert_eq!(theirs.vote("y", votes[1]).await.unwrap(), votes[1]);
            assert_eq!(theirs.vote("y", Decision::Commit).await.unwrap(), votes[1], "the first");
            let decided = deciding.await.unwrap();
            assert_eq!((decided, learning.await.unwrap()), (votes[1], votes[1]));
            assert_eq!(theirs.abort().await.unwrap(), votes[1], "too late");
            ours.forget().await.unwrap();
        }
    });
}

/// RECIPE-11.
#[test]
fn sites_decide_without_a_coordinator() {
    check(async |[a, b]| {
        for vote in [Decision::Commit, Decision::Abort] {
            let [ours, theirs] = [&a, &b].map(|client| TwoPhaseCommit::new(client, "/tx"));
            ours.begin(&["x", "y"]).await.unwrap();
            let [x, y] = [ours.join("x").await.unwrap(), theirs.join("y").await.unwrap()];
            let taken = theirs.join("x").await.unwrap_err();
            assert!(taken.is(ErrorCode::NodeExists), "{taken}");
            let unknown = theirs.join("z").await.unwrap_err();
            assert!(unknown.is(ErrorCode::NoNode), "{unknown}");
            let mut deciding = Box::pin(y.decide());
            waits(&b, &mut deciding).await;
            x.vote(vote).await.unwrap();
            if vote == Decision::Commit {
                y.vote(vote).await.unwrap();
            }
            assert_eq!((deciding.await.unwrap(), x.decide().await.unwrap()), (vote, vote));
            assert_eq!(ours.decided().await.unwrap(), vote);
            drop((x, y));
            a_while(&a).await;
            a_while(&b).await;
            ours.forget().await.unwrap();
        }
    });
}

/// RECIPE-11.
#[test]
fn site_that_fails_before_its_vote_aborts_the_transaction() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| TwoPhaseCommit::new(client, "/tx"));
        ours.begin(&["x", "y"]).await.unwrap();
        let [x, y] = [ours.join("x").await.unwrap(), theirs.join("y").await.unwrap()];
        x.vote(Decision::Commit).await.unwrap();
        let mut deciding = Box::pin(x.decide());
        waits(&a, &mut deciding).await;
        b.close().await;
        assert_eq!(deciding.await.unwrap(), Decision::Abort);
        assert!(y.vote(Decision::Commit).await.unwrap_err().is_fatal());
    });
}

/// RECIPE-11.
#[test]
fn vote_outlives_its_session() {
    check(async |[a, b]| {
        let [ours, theirs] = [&a, &b].map(|client| TwoPhaseCommit::new(client, "/tx"));
        ours.begin(&["x", "y"]).await.unwrap();
        theirs.join("y").await.unwrap().vote(Decision::Commit).await.unwrap();
        b.close().await;
        let x = ours.join("x").await.unwrap();
        x.vote(Decision::Commit).await.unwrap();
        assert_eq!(x.decide().await.unwrap(), Decision::Commit);
    });
}

#[test]
fn copy_of_a_subtree_follows_its_changes() {
    check(async |[a, b]| {
        for path in ["/c", "/c/x", "/c/x/y", "/cc"] {
            a.create(path, path, CreateMode::Persistent).await.unwrap();
        }
        let cache = TreeCache::load(&b, "/c").await.unwrap();
        assert_eq!(cache.get("/c/x/y").unwrap().data, "/c/x/y");
        assert_eq!((cache.children("/c"), cache.get("/cc")), (vec!["x".to_owned()], None));
        let stat = a.exists("/c/x/y").await.unwrap().unwrap();
        assert_eq!(cache.zxid(), Some(stat.czxid));
        let mut changes = cache.changes();
        a.set("/c/x", "new", None).await.unwrap();
        assert_eq!(changes.next().await.unwrap(), "/c/x");
        assert_eq!(cache.get("/c/x").unwrap().data, "new");
        a.create("/c/z", "", CreateMode::Persistent).await.unwrap();
        assert_eq!(changes.next().await.unwrap(), "/c/z");
        assert_eq!(cache.children("/c"), ["x", "z"]);
        a.delete_subtree("/c/x").await.unwrap();
        for gone in ["/c/x/y", "/c/x"] {
            assert_eq!(changes.next().await.unwrap(), gone);
        }
        b.close().await;
        assert!(changes.next().await.is_none());
        assert!(cache.ended().unwrap().is_fatal());
        assert_eq!(cache.snapshot().1.len(), 2, "the copy stays");
    });
}
