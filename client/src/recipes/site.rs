//! A site of a two-phase commit that needs no coordinator (RECIPE-11).
//!
//! Owns the nodes that tell which sites take part. Must not record votes and decisions in a way of
//! its own: `two_phase_commit` does, so that sites and coordinators agree.
//!
//! While a site takes part, the node of its vote has an ephemeral child. The data and statistics of
//! that node, read at once, tell a failure: it had a child, has none, and nobody has voted.

use bytes::Bytes;
use futures::future::select;
use futures::stream::{FuturesUnordered, StreamExt};

use super::own_node::OwnNode;
use super::two_phase_commit::{Decision, TwoPhaseCommit};
use super::{child, retried};
use crate::error::Error;
use crate::handle::Client;

/// Name of the ephemeral node.
const ALIVE: &str = "alive";

/// A site that takes part in a two-phase commit, and finds the decision together with the other
/// sites. All that a coordinator does is to [begin](TwoPhaseCommit::begin) the transaction.
///
/// # What it promises
/// As with [`TwoPhaseCommit`], all sites learn the same decision, whoever fails, and commit is
/// decided only after all sites have voted for it. Abort is decided as soon as one site is against,
/// or has failed: it has taken part, and its session ended, or its value was dropped, before it
/// voted.
///
/// # What it does not promise
/// That a site which has never taken part is missed: the others wait for it until somebody calls
/// [`TwoPhaseCommit::abort`]. A site that has voted for commit must not undo its changes on its
/// own; after a failure it asks [`TwoPhaseCommit::decided`], or takes part again. Each site reads
/// and watches all votes, so the requests grow with the square of the number of sites. Where that
/// is too much, some sites call [`Site::decide`], and the others [`TwoPhaseCommit::decided`].
///
/// Lost connections are waited out: a site takes part as long as its session lives. An expired
/// session is a fatal error; the vote outlives it. Dropping the future of [`Site::decide`] changes
/// nothing.
///
/// ```no_run
/// # fn prepare() -> bool { true }
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::{Decision, TwoPhaseCommit}};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let transaction = TwoPhaseCommit::new(&client, "/transfers/17");
/// let site = transaction.join("berlin").await?;
/// site.vote(if prepare() { Decision::Commit } else { Decision::Abort }).await?;
/// println!("all sites: {:?}", site.decide().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Site {
    client: Client,
    transaction: TwoPhaseCommit,
    name: String,
    /// The ephemeral node, which ends with this value.
    _alive: OwnNode,
}

impl TwoPhaseCommit {
    /// Takes part as this site, once an earlier [`Site`] of this session for it has ended.
    ///
    /// # Errors
    /// `NoNode` if the transaction has no such site; `NodeExists` if another session takes part as
    /// this site, also an earlier one of the same program whose timeout has not passed; fatal ones;
    /// `NoAuth`.
    pub async fn join(&self, site: &str) -> Result<Site, Error> {
        let (client, alive) = (self.client().clone(), child(&self.vote_node(site), ALIVE));
        let alive = OwnNode::create(&client, alive, &Bytes::new()).await?;
        Ok(Site { client, transaction: self.clone(), name: site.to_owned(), _alive: alive })
    }
}

impl Site {
    /// Votes. The first vote counts; it is returned.
    ///
    /// # Errors
    /// Those of [`TwoPhaseCommit::vote`].
    pub async fn vote(&self, vote: Decision) -> Result<Decision, Error> {
        self.transaction.vote(&self.name, vote).await
    }

    /// Waits until all sites have voted, or one is against or has failed, and returns what is
    /// decided by that, or was decided before.
    ///
    /// # Errors
    /// `NoNode` if there is no such transaction; fatal ones; `NoAuth`.
    pub async fn decide(&self) -> Result<Decision, Error> {
        let path = self.transaction.path();
        let (sites, _) = retried(&self.client, || self.client.children(path)).await?;
        let votes = sites.iter().map(|site| self.vote_of(self.transaction.vote_node(site)));
        let mut votes = FuturesUnordered::from_iter(votes);
        let mut decision = Decision::Commit;
        while decision == Decision::Commit
            && let Some(vote) = votes.next().await
        {
            decision = vote?;
        }
        self.transaction.record(decision).await
    }

    /// Waits for the vote in this node. A site that has failed counts as one that is against.
    async fn vote_of(&self, path: String) -> Result<Decision, Error> {
        let client = &self.client;
        loop {
            let (_, _, joined) = retried(client, || client.children_and_watch(&path)).await?;
            let (data, stat, voted) = retried(client, || client.get_and_watch(&path)).await?;
            if let Some(vote) = Decision::of(&data) {
                return Ok(vote);
            }
            if stat.cversion > 0 && stat.num_children == 0 {
                return Ok(Decision::Abort);
            }
            select(joined, voted).await.factor_first().0?;
        }
    }
}
