//! Programs that take turns: locks, leases and leaders.
//!
//! Owns what these programs do. Must not judge it: the oracle R1 does.

use std::future::Future;
use std::pin::pin;

use futures::future::select;
use zabkeeper_client::Error;
use zabkeeper_client::recipes::{Election, LeaderSelector, Lock, MultiLock, RwLock, Semaphore};
use zabkeeper_core::Zxid;

use super::{LEASES, Share, Told, User};

/// Number of locks that the programs contend for.
const LOCKS: u64 = 2;

pub(super) async fn take_locks(mut user: User) {
    while take_lock(&mut user).await {}
}

/// Some programs take all locks at once, others one of them.
pub(super) async fn take_several(mut user: User) {
    let locks = MultiLock::new(&user.client, (0..LOCKS).rev().map(path_of));
    loop {
        if user.rng.chance(1, 2) {
            if !take_lock(&mut user).await {
                return;
            }
            continue;
        }
        user.pause().await;
        let Ok(guard) = locks.acquire().await.map(Some).or_else(unless_fatal) else { return };
        let Some(guard) = guard else { continue };
        let held = Vec::from_iter((0..LOCKS).zip(guard.tokens()));
        hold(&mut user, &held, Share::Alone, guard.lost()).await;
        if !end(&mut user, guard.release()).await {
            return;
        }
    }
}

fn path_of(lock: u64) -> String {
    format!("/locks/l{lock}")
}

/// Takes one of the locks, and holds it for a while. Returns whether the session goes on.
async fn take_lock(user: &mut User) -> bool {
    user.pause().await;
    let number = user.rng.below(LOCKS);
    let lock = Lock::new(&user.client, path_of(number));
    let guard = if number == 0 {
        lock.acquire().await.map(Some)
    } else {
        let time = user.time();
        lock.acquire_within(time).await
    };
    let Ok(guard) = guard.or_else(unless_fatal) else { return false };
    let Some(guard) = guard else { return true };
    hold(user, &[(number, guard.token())], Share::Alone, guard.lost()).await;
    end(user, guard.release()).await
}

pub(super) async fn read_and_write(mut user: User) {
    let lock = RwLock::new(&user.client, "/locks/rw");
    loop {
        user.pause().await;
        let writes = user.rng.chance(1, 3);
        let guard = if writes { lock.write().await } else { lock.read().await };
        let Ok(guard) = guard.map(Some).or_else(unless_fatal) else { return };
        let Some(guard) = guard else { continue };
        let share = if writes { Share::Alone } else { Share::Readers };
        hold(&mut user, &[(0, guard.token())], share, guard.lost()).await;
        if !end(&mut user, guard.release()).await {
            return;
        }
    }
}

pub(super) async fn take_leases(mut user: User) {
    let semaphore = Semaphore::new(&user.client, "/locks/s", LEASES);
    loop {
        user.pause().await;
        let Ok(lease) = semaphore.acquire().await.map(Some).or_else(unless_fatal) else { return };
        let Some(lease) = lease else { continue };
        hold(&mut user, &[(0, lease.token())], Share::Leases, lease.lost()).await;
        if !end(&mut user, lease.release()).await {
            return;
        }
    }
}

/// Two elections: that of leaders which resign, and that of work which ends.
pub(super) async fn lead(mut user: User) {
    let election = Election::new(&user.client, "/elections/e", "a program");
    let selector = LeaderSelector::new(&user.client, "/elections/s", "a program");
    loop {
        user.pause().await;
        if user.rng.chance(1, 2) {
            let leads = election.lead().await.map(Some).or_else(unless_fatal);
            let Ok(leads) = leads else { return };
            let Some(leads) = leads else { continue };
            hold(&mut user, &[(0, leads.epoch())], Share::Alone, leads.lost()).await;
            if !end(&mut user, leads.resign()).await {
                return;
            }
            continue;
        }
        let time = user.time();
        let work = async |epoch| {
            user.tell(Told::Holds(1, Share::Alone, epoch));
            let _ends = Ending(&user, 1);
            user.client.sleep(time).await;
        };
        if selector.lead(work).await.is_err_and(|error| error.is_fatal()) {
            return;
        }
    }
}

/// Tells that a leadership ends when the work is dropped.
struct Ending<'a>(&'a User, u64);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.tell(Told::Ends(self.1));
    }
}

/// Holds these locks, each with its token, for a while, or until one of them is lost.
async fn hold(user: &mut User, held: &[(u64, Zxid)], share: Share, lost: impl Future<Output = ()>) {
    for (number, token) in held {
        user.tell(Told::Holds(*number, share, *token));
    }
    let time = user.time();
    select(pin!(lost), user.client.sleep(time)).await;
    for (number, _) in held {
        user.tell(Told::Ends(*number));
    }
}

/// Waits for the release, or leaves it to the library. Returns whether the session goes on.
async fn end(user: &mut User, release: impl Future<Output = Result<(), Error>>) -> bool {
    user.rng.chance(1, 2) || release.await.is_ok()
}

/// A server throttles, or the library has enough calls under way; a fatal error ends the program.
pub(super) fn unless_fatal<T>(error: Error) -> Result<Option<T>, Error> {
    if error.is_fatal() { Err(error) } else { Ok(None) }
}
