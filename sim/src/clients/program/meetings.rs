//! Programs that meet: at barriers, and to decide together.
//!
//! Owns what these programs do. Must not judge it: the oracles R4, R5 and R7 do.

use std::time::Duration;

use futures::future::{Either, select};
use zabkeeper_client::Error;
use zabkeeper_client::recipes::{Barrier, Decision, DoubleBarrier, TwoPhaseCommit};

use super::turns::unless_fatal;
use super::{MEMBERS, Told, User};

/// Number of barriers.
const BARRIERS: u64 = 2;
/// Number of transactions: so many that most are voted on by few programs.
const TRANSACTIONS: u64 = 500;
/// The sites of each transaction.
const SITES: [&str; 2] = ["a", "b"];

/// How long a program waits for others.
const WAIT: Duration = Duration::from_secs(1);

/// The node of a double barrier.
pub fn double_barrier_path(number: u64) -> String {
    format!("/barriers/b{number}")
}

pub(super) async fn enter_and_leave(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(BARRIERS);
        let barrier = DoubleBarrier::new(&user.client, double_barrier_path(number), MEMBERS);
        user.tell(Told::Comes(number));
        let entered = {
            let enter = Box::pin(barrier.enter());
            match select(enter, user.client.sleep(WAIT)).await {
                Either::Left((entered, _)) => entered.map(Some),
                Either::Right(_) => Ok(None),
            }
        };
        let Ok(inside) = entered.or_else(unless_fatal) else { return };
        if inside.is_some() {
            user.tell(Told::Begins(number));
            user.pause().await;
        }
        user.tell(Told::Leaves(number));
        let Some(inside) = inside else { continue };
        if user.rng.chance(1, 8) {
            drop(inside);
            continue;
        }
        let Ok(left) = inside.leave().await.map(Some).or_else(unless_fatal) else { return };
        if left.is_some() {
            user.tell(Told::Left(number));
        }
    }
}

/// The node of a barrier that is set and removed.
pub fn barrier_path(number: u64) -> String {
    format!("/barriers/s{number}")
}

pub(super) async fn set_and_pass(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(BARRIERS);
        let path = barrier_path(number);
        let barrier = Barrier::new(&user.client, path.clone());
        let done = match user.rng.below(4) {
            0 => barrier.remove().await,
            // A change of the data lets nobody pass.
            1 => user.client.set(path, user.rng.word().to_string(), None).await.map(|_| ()),
            _ => pass(&user, number, &barrier).await,
        };
        if done.is_err_and(|error| error.is_fatal()) {
            return;
        }
    }
}

/// Sets the barrier, and waits before it. Who waits for long removes it.
async fn pass(user: &User, number: u64, barrier: &Barrier) -> Result<(), Error> {
    user.tell(Told::Closes(number));
    barrier.set().await?;
    let waits = Box::pin(barrier.wait());
    match select(waits, user.client.sleep(WAIT)).await {
        Either::Left((passed, _)) => passed?,
        Either::Right((_, waits)) => {
            barrier.remove().await?;
            waits.await?;
        }
    }
    user.tell(Told::Passes(number));
    Ok(())
}

pub(super) async fn vote_and_decide(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(TRANSACTIONS);
        let transaction = TwoPhaseCommit::new(&user.client, format!("/transactions/t{number}"));
        let Ok(begun) = transaction.begin(&SITES).await.map(Some).or_else(unless_fatal) else {
            return;
        };
        if begun.is_none() {
            continue;
        }
        for (at, site) in (0..).zip(SITES) {
            if user.rng.chance(1, 4) {
                continue;
            }
            let commits = user.rng.chance(3, 4);
            user.tell(Told::Votes(number, at, commits));
            let vote = if commits { Decision::Commit } else { Decision::Abort };
            let counts = transaction.vote(site, vote).await.map(Some).or_else(unless_fatal);
            let Ok(counts) = counts else { return };
            if let Some(counts) = counts {
                user.tell(Told::Counts(number, at, counts == Decision::Commit));
            }
        }
        let decided = {
            let decide = Box::pin(transaction.decide());
            match select(decide, user.client.sleep(WAIT)).await {
                Either::Left((decided, _)) => decided,
                Either::Right(_) => transaction.abort().await,
            }
        };
        let Ok(decided) = decided.map(Some).or_else(unless_fatal) else { return };
        if let Some(decided) = decided {
            user.tell(Told::Decided(number, decided == Decision::Commit));
        }
    }
}

/// Each program is one site of a transaction, or fails as one.
pub(super) async fn take_part(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(TRANSACTIONS);
        let transaction = TwoPhaseCommit::new(&user.client, format!("/transactions/t{number}"));
        let (at, site) = *user.rng.pick(&[(0, SITES[0]), (1, SITES[1])]);
        let (fails, commits) = (user.rng.chance(1, 8), user.rng.chance(7, 8));
        let decided = {
            let place = (number, at, site);
            let decides = Box::pin(be_site(&user, &transaction, place, fails, commits));
            match select(decides, user.client.sleep(WAIT)).await {
                Either::Left((decided, _)) => decided,
                Either::Right(_) => transaction.abort().await.map(Some),
            }
        };
        let Ok(decided) = decided.or_else(unless_fatal) else { return };
        if let Some(decided) = decided {
            user.tell(Told::Decided(number, decided == Decision::Commit));
        }
    }
}

async fn be_site(
    user: &User,
    transaction: &TwoPhaseCommit,
    (number, at, site): (u64, u64, &str),
    fails: bool,
    commits: bool,
) -> Result<Option<Decision>, Error> {
    transaction.begin(&SITES).await?;
    let site = transaction.join(site).await?;
    if fails {
        return Ok(None);
    }
    user.tell(Told::Votes(number, at, commits));
    let vote = if commits { Decision::Commit } else { Decision::Abort };
    let counts = site.vote(vote).await?;
    user.tell(Told::Counts(number, at, counts == Decision::Commit));
    site.decide().await.map(Some)
}
