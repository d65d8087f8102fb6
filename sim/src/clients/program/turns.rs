//! Programs that take turns: locks and leases.
//!
//! Owns what these programs do. Must not judge it: the oracle R1 does.

use futures::future::select;
use zabkeeper_client::Error;
use zabkeeper_client::recipes::{Lock, LockGuard, RwLock, Semaphore};

use super::{LEASES, Share, Told, User};

/// Number of locks that the programs contend for.
const LOCKS: u64 = 2;

pub(super) async fn take_locks(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(LOCKS);
        let lock = Lock::new(&user.client, format!("/locks/l{number}"));
        let guard = if number == 0 {
            lock.acquire().await.map(Some)
        } else {
            let time = user.time();
            lock.acquire_within(time).await
        };
        let Ok(guard) = guard.or_else(unless_fatal) else { return };
        if let Some(guard) = guard
            && !hold(&mut user, number, Share::Alone, guard).await
        {
            return;
        }
    }
}

pub(super) async fn read_and_write(mut user: User) {
    let lock = RwLock::new(&user.client, "/locks/rw");
    loop {
        user.pause().await;
        let writes = user.rng.chance(1, 3);
        let guard = if writes { lock.write().await } else { lock.read().await };
        let Ok(guard) = guard.map(Some).or_else(unless_fatal) else { return };
        let share = if writes { Share::Alone } else { Share::Readers };
        if let Some(guard) = guard
            && !hold(&mut user, 0, share, guard).await
        {
            return;
        }
    }
}

/// Holds the lock for a while. Returns whether the session goes on.
async fn hold(user: &mut User, number: u64, share: Share, guard: LockGuard) -> bool {
    user.tell(Told::Holds(number, share, guard.token()));
    let time = user.time();
    {
        let lost = Box::pin(guard.lost());
        select(lost, user.client.sleep(time)).await;
    }
    user.tell(Told::Ends(number));
    if user.rng.chance(1, 2) {
        drop(guard);
        return true;
    }
    guard.release().await.is_ok()
}

pub(super) async fn take_leases(mut user: User) {
    let semaphore = Semaphore::new(&user.client, "/locks/s", LEASES);
    loop {
        user.pause().await;
        let Ok(lease) = semaphore.acquire().await.map(Some).or_else(unless_fatal) else { return };
        let Some(lease) = lease else { continue };
        user.tell(Told::Holds(0, Share::Leases, lease.token()));
        let time = user.time();
        {
            let lost = Box::pin(lease.lost());
            select(lost, user.client.sleep(time)).await;
        }
        user.tell(Told::Ends(0));
        if user.rng.chance(1, 2) {
            drop(lease);
        } else if lease.release().await.is_err() {
            return;
        }
    }
}

/// A server throttles, or the library has enough calls under way; a fatal error ends the program.
pub(super) fn unless_fatal<T>(error: Error) -> Result<Option<T>, Error> {
    if error.is_fatal() { Err(error) } else { Ok(None) }
}
