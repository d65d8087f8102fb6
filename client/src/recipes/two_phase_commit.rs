//! Two-phase commit (RECIPE-11).
//!
//! Owns the votes and the decision. Must not know what the sites commit.

use std::collections::BTreeMap;

use zabkeeper_core::ErrorCode;

use super::{child, create_above, failed, gone, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi};

/// What a site has voted, and what is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The changes are made.
    Commit,
    /// The changes are undone.
    Abort,
}

const COMMIT: &str = "commit";
const ABORT: &str = "abort";

impl Decision {
    fn text(self) -> &'static str {
        match self {
            Decision::Commit => COMMIT,
            Decision::Abort => ABORT,
        }
    }

    pub(super) fn of(data: &[u8]) -> Option<Decision> {
        match data {
            _ if data == COMMIT.as_bytes() => Some(Decision::Commit),
            _ if data == ABORT.as_bytes() => Some(Decision::Abort),
            _ => None,
        }
    }
}

/// A transaction among several sites, each with a name: it is committed if all vote for that, and
/// aborted otherwise.
///
/// # What it promises
/// All sites learn the same decision, whoever fails. Commit is decided only after all sites have
/// voted for it.
///
/// # What it does not promise
/// A decision, while nobody decides: a coordinator that fails before leaves the sites waiting until
/// anybody calls [`TwoPhaseCommit::decide`], a site for instance, or [`TwoPhaseCommit::abort`]. A
/// site that has voted for commit must not undo its changes on its own. Sites that
/// [take part](TwoPhaseCommit::join) need no coordinator, and notice when one of them fails.
///
/// The nodes stay until somebody calls [`TwoPhaseCommit::forget`]. Lost connections are waited
/// out; an expired session is a fatal error: votes outlive it.
#[derive(Clone, Debug)]
pub struct TwoPhaseCommit {
    client: Client,
    path: String,
}

impl TwoPhaseCommit {
    /// The transaction of this path.
    pub fn new(client: &Client, path: impl Into<String>) -> TwoPhaseCommit {
        TwoPhaseCommit { client: client.clone(), path: path.into() }
    }

    /// Begins the transaction among these sites. It may have begun already, with the same ones.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn begin(&self, sites: &[&str]) -> Result<(), Error> {
        let begin = Multi::new().create(&self.path, "", CreateMode::Persistent);
        let begin = sites.iter().fold(begin, |begin, site| {
            begin.create(child(&self.path, site), "", CreateMode::Persistent)
        });
        loop {
            match retried(&self.client, || self.client.multi(begin.clone())).await? {
                Ok(_) => return Ok(()),
                Err(error) if error.code == ErrorCode::NodeExists => return Ok(()),
                Err(error) if error.code == ErrorCode::NoNode && error.operation == 0 => {
                    create_above(&self.client, &self.path).await?;
                }
                Err(error) => return Err(failed("begin", &self.path, error)),
            }
        }
    }

    /// Votes for a site. The first vote counts; it is returned.
    ///
    /// # Errors
    /// `NoNode` if the transaction has no such site; fatal ones; `NoAuth`.
    pub async fn vote(&self, site: &str, vote: Decision) -> Result<Decision, Error> {
        self.write_once(&self.vote_node(site), vote).await
    }

    /// Waits until all sites have voted or one is against, decides accordingly, and returns what is
    /// decided. Any session may call it.
    ///
    /// # Errors
    /// `NoNode` if there is no such transaction; fatal ones; `NoAuth`.
    pub async fn decide(&self) -> Result<Decision, Error> {
        let (sites, _) = retried(&self.client, || self.client.children(&self.path)).await?;
        let mut votes = BTreeMap::new();
        for site in sites {
            let vote = self.read(&child(&self.path, &site)).await?;
            votes.insert(site, vote);
            if vote == Decision::Abort {
                break;
            }
        }
        let all = votes.values().all(|vote| *vote == Decision::Commit);
        let decision = if all { Decision::Commit } else { Decision::Abort };
        self.record(decision).await
    }

    /// Decides to abort unless something else is decided already; returns what is decided.
    ///
    /// # Errors
    /// Those of [`TwoPhaseCommit::decide`].
    pub async fn abort(&self) -> Result<Decision, Error> {
        self.record(Decision::Abort).await
    }

    /// Waits until the transaction is decided.
    ///
    /// # Errors
    /// Those of [`TwoPhaseCommit::decide`].
    pub async fn decided(&self) -> Result<Decision, Error> {
        self.read(&self.path).await
    }

    /// Deletes the nodes of the transaction, after all sites have learned the decision.
    ///
    /// # Errors
    /// Those of [`Client::delete_subtree`].
    pub async fn forget(&self) -> Result<(), Error> {
        let delete = || self.client.delete_subtree(&self.path);
        match retried(&self.client, delete).await {
            Err(error) if !error.is(ErrorCode::NoNode) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The node of a site's vote.
    pub(super) fn vote_node(&self, site: &str) -> String {
        child(&self.path, site)
    }

    /// Records a decision unless there is one, and returns what is decided.
    pub(super) async fn record(&self, decision: Decision) -> Result<Decision, Error> {
        self.write_once(&self.path, decision).await
    }

    /// Writes into a node that nobody has written into yet, and returns what it has then.
    async fn write_once(&self, path: &str, decision: Decision) -> Result<Decision, Error> {
        let write = || self.client.set(path, decision.text(), 0);
        match retried(&self.client, write).await {
            Ok(_) => Ok(decision),
            // Somebody else was faster, or the answer to an earlier attempt was lost.
            Err(error) if error.is(ErrorCode::BadVersion) => self.read(path).await,
            Err(error) if error.is(ErrorCode::NoNode) => Err(gone("2pc", path)),
            Err(error) => Err(error),
        }
    }

    /// Waits until a node says commit or abort.
    async fn read(&self, path: &str) -> Result<Decision, Error> {
        loop {
            let (data, _, watch) =
                retried(&self.client, || self.client.get_and_watch(path)).await?;
            if let Some(decision) = Decision::of(&data) {
                return Ok(decision);
            }
            watch.await?;
        }
    }
}
