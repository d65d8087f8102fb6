//! Programs that share a counter, a number in a configuration, or a queue.
//!
//! Owns what these programs do. Must not judge it: the oracles R2 and R3 do.

use std::time::Duration;

use futures::future::{Either, select};
use zabkeeper_client::recipes::{Configuration, Counter, DelayQueue, Queue, WorkQueue};

use super::turns::unless_fatal;
use super::{Told, User};

/// The node of the counter.
pub const COUNTER: &str = "/counters/c";
/// The node of the configuration, which is a number, too.
pub const CONFIGURATION: &str = "/configurations/c";
/// The node above all items.
pub const QUEUES: &str = "/queues/";

/// How long a program waits for work.
const WORK_WAIT: Duration = Duration::from_secs(1);

pub(super) async fn count(mut user: User) {
    let mut counter = Counter::new(&user.client, COUNTER);
    loop {
        user.pause().await;
        user.tell(Told::Adds);
        let Ok(value) = counter.add(1).await.map(Some).or_else(unless_fatal) else { return };
        if let Some(value) = value {
            user.tell(Told::Added(value));
        }
    }
}

pub(super) async fn configure(mut user: User) {
    let configuration = loop {
        let loaded = Configuration::<i64>::load(&user.client, CONFIGURATION).await;
        match loaded.map(Some).or_else(unless_fatal) {
            Ok(Some(configuration)) => break configuration,
            Ok(None) => user.pause().await,
            Err(_) => return,
        }
    };
    loop {
        user.pause().await;
        if let Some(found) = configuration.get() {
            user.tell(Told::Configured(found.version, *found.value));
        }
        user.tell(Told::Adds);
        let added = configuration.update(|value| value.copied().unwrap_or_default() + 1).await;
        let Ok(added) = added.map(Some).or_else(unless_fatal) else { return };
        if let Some(added) = added {
            user.tell(Told::Added(*added.value));
        }
    }
}

pub(super) async fn put_and_take(mut user: User) {
    let mut queue = Queue::new(&user.client, format!("{QUEUES}q"));
    loop {
        user.pause().await;
        if user.rng.chance(1, 2) {
            let item = user.rng.word();
            let priority = if user.rng.chance(1, 4) { 7 } else { 100 };
            user.tell(Told::Puts(item));
            let put = queue.put_with_priority(priority, item.to_string()).await;
            let Ok(put) = put.map(Some).or_else(unless_fatal) else { return };
            if put.is_some() {
                user.tell(Told::Put(item));
            }
            continue;
        }
        user.tell(Told::Takes);
        let taken = if user.rng.chance(1, 2) {
            queue.try_take().await
        } else {
            let (item, mut own) = (user.rng.word(), Queue::new(&user.client, format!("{QUEUES}q")));
            user.tell(Told::Puts(item));
            let put = own.put(item.to_string()).await;
            let Ok(put) = put.map(Some).or_else(unless_fatal) else { return };
            if put.is_none() {
                user.tell(Told::Took(None));
                continue;
            }
            user.tell(Told::Put(item));
            // Another program may take it, and put one later.
            queue.take().await.map(Some)
        };
        let Ok(taken) = taken.or_else(unless_fatal) else { return };
        user.tell(Told::Took(taken.map(|item| item_of(&item))));
    }
}

pub(super) async fn put_and_work(mut user: User) {
    let mut queue = WorkQueue::new(&user.client, format!("{QUEUES}w"));
    loop {
        user.pause().await;
        if user.rng.chance(1, 2) {
            let item = user.rng.word();
            user.tell(Told::Puts(item));
            let put = queue.put(item.to_string()).await;
            let Ok(put) = put.map(Some).or_else(unless_fatal) else { return };
            if put.is_some() {
                user.tell(Told::Put(item));
            }
            continue;
        }
        let claimed = {
            let claim = Box::pin(queue.claim());
            match select(claim, user.client.sleep(WORK_WAIT)).await {
                Either::Left((claimed, _)) => claimed.map(Some),
                Either::Right(_) => Ok(None),
            }
        };
        let Ok(job) = claimed.or_else(unless_fatal) else { return };
        let Some(job) = job else { continue };
        user.pause().await;
        if user.rng.chance(1, 4) {
            // It fails at its work, and the item is offered again.
            continue;
        }
        let item = item_of(job.item());
        user.tell(Told::Takes);
        let Ok(done) = job.complete().await.map(Some).or_else(unless_fatal) else { return };
        user.tell(Told::Took(done.map(|()| item)));
    }
}

/// Nobody waits for an item: the clock of the next leader may be behind by any time (seed
/// 0x11290700014c of the swarm at 0d38fcd0).
pub(super) async fn put_for_later(mut user: User) {
    let mut queue = DelayQueue::new(&user.client, format!("{QUEUES}d"));
    loop {
        user.pause().await;
        if user.rng.chance(1, 2) {
            let Ok(now) = queue.now().await.map(Some).or_else(unless_fatal) else { return };
            let Some(now) = now else { continue };
            let (item, due) = (user.rng.word(), now + user.time());
            user.tell(Told::Puts(item));
            user.tell(Told::Due(item, due.as_millis().try_into().unwrap_or(i64::MAX)));
            let put = queue.put_at(item.to_string(), due).await;
            let Ok(put) = put.map(Some).or_else(unless_fatal) else { return };
            if put.is_some() {
                user.tell(Told::Put(item));
            }
            continue;
        }
        user.tell(Told::Takes);
        let Ok(taken) = queue.try_take().await.or_else(unless_fatal) else { return };
        user.tell(Told::Took(taken.map(|item| item_of(&item))));
    }
}

/// The item with these data.
pub fn item_of(data: &[u8]) -> u64 {
    std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
