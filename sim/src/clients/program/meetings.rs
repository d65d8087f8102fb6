//! Programs that meet: at barriers, and to decide together.
//!
//! Owns what these programs do. Must not judge it: the oracles R4 and R5 do.

use std::time::Duration;

use futures::future::{Either, select};
use zabkeeper_client::recipes::{Decision, DoubleBarrier, TwoPhaseCommit};

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

pub(super) async fn enter_and_leave(mut user: User) {
    loop {
        user.pause().await;
        let number = user.rng.below(BARRIERS);
        let path = format!("/barriers/b{number}");
        let barrier = DoubleBarrier::new(&user.client, path, MEMBERS);
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
