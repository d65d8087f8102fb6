//! Leader election (RECIPE-12).
//!
//! Owns what a leader and a candidate may do. Must not decide whose turn it is: `protected` does.

use bytes::Bytes;
use zabkeeper_core::Zxid;

use super::lock::last_of;
use super::protected::{ProtectedNode, number};
use super::{child, children_if_there, children_of_container, get_if_there};
use crate::error::Error;
use crate::handle::Client;

/// Prefix of the nodes, as in Curator's `LeaderLatch`.
const PREFIX: &str = "latch-";

/// What the names of all candidates contain, those of kazoo's `Election` included. It waits for
/// these nodes if its lock is told `extra_lock_patterns=["-latch-"]`.
const CANDIDATES: [&str; 2] = [PREFIX, "__lock__"];

/// An election among the sessions that take part in it: the first one leads until it resigns or its
/// session ends, then the next one in the order in which they came.
///
/// # What it promises
/// While the servers know the leader's session, nobody else leads. A leader that goes wakes its
/// successor alone.
///
/// # What it does not promise
/// As with a [`Lock`](super::Lock), a leader whose process stands still may take itself for the
/// leader after its session has expired. Resources that must obey one leader only check the
/// [epoch](Leadership::epoch), which rises from leader to leader.
///
/// A session may take part as often as it likes, also again after it has resigned or lost the
/// leadership, and in several elections. Lost connections are waited out: the leadership lasts as
/// long as the session.
///
/// Each session that takes part has a child of the election's node, as with Curator's
/// `LeaderLatch`: `_c_GUID-latch-0000000007`, whose data are the name. The one with the lowest
/// number leads, and the zxid of its creation is the epoch.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::Election};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let leadership = Election::new(&client, "/scheduler/leader", "host-7:9000").lead().await?;
/// // Work as the leader until this completes.
/// leadership.lost().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    client: Client,
    path: String,
    name: Vec<u8>,
}

/// A session that takes part in an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The name under which it takes part.
    pub name: Bytes,
    /// The epoch of its leadership.
    pub epoch: Zxid,
}

/// A session leads. Dropping it resigns; without a connection, as soon as there is one again.
#[derive(Debug)]
pub struct Leadership {
    node: ProtectedNode,
}

impl Election {
    /// The election of this path, in which this session takes part under this name.
    pub fn new(client: &Client, path: impl Into<String>, name: impl Into<Vec<u8>>) -> Election {
        Election { client: client.clone(), path: path.into(), name: name.into() }
    }

    /// Takes part, and waits until this session leads. Dropping the future leaves the election.
    ///
    /// # Errors
    /// Fatal ones when the session ends; `NoAuth`; `NoNode` if somebody else has deleted the
    /// session's node, which shows when its turn comes, or if the chroot does not exist.
    pub async fn lead(&self) -> Result<Leadership, Error> {
        let mut node = ProtectedNode::new(&self.client, &self.path, PREFIX);
        node.create(&self.name).await?;
        node.turn("elect", |before| last_of(before, &CANDIDATES)).await?;
        Ok(Leadership { node })
    }

    /// Who leads now, as far as the server of this session knows; `None` if nobody takes part.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn leader(&self) -> Result<Option<Candidate>, Error> {
        loop {
            let names = children_if_there(&self.client, &self.path).await?;
            if let Some(leader) = self.leader_among(names).await? {
                return Ok(leader);
            }
        }
    }

    /// Waits until somebody else leads than the known one, or nobody, and returns who does.
    ///
    /// # Errors
    /// Those of [`Election::leader`].
    pub async fn leader_after(
        &self,
        known: Option<&Candidate>,
    ) -> Result<Option<Candidate>, Error> {
        loop {
            let (names, changed) = children_of_container(&self.client, &self.path).await?;
            match self.leader_among(names).await? {
                Some(leader) if leader.as_ref() != known => return Ok(leader),
                Some(_) => drop(changed.await?),
                None => {}
            }
        }
    }

    /// Who leads of these nodes, if anybody; `None` if that one has gone since they were listed.
    async fn leader_among(&self, names: Vec<String>) -> Result<Option<Option<Candidate>>, Error> {
        let is_candidate = |name: &String| CANDIDATES.iter().any(|text| name.contains(text));
        let first = names.into_iter().filter(is_candidate).min_by_key(|name| number(name));
        let Some(first) = first else { return Ok(Some(None)) };
        let found = get_if_there(&self.client, &child(&self.path, &first)).await?;
        Ok(found.map(|(name, stat)| Some(Candidate { name, epoch: stat.czxid })))
    }
}

impl Leadership {
    /// The number of this leadership, which rises from leader to leader: the zxid at which this
    /// session came.
    pub fn epoch(&self) -> Zxid {
        self.node.zxid()
    }

    /// Completes when the leadership is lost or may be: somebody has deleted the node, the session
    /// has ended, or no server has answered for the session timeout ([`Client::session_lost`]).
    pub async fn lost(&self) {
        self.node.lost().await;
    }

    /// Resigns and waits until the servers know, without a limit while there is no connection.
    /// Dropping the future leaves the rest to the driver.
    ///
    /// # Errors
    /// Fatal ones: the session has ended, and the leadership with it.
    pub async fn resign(self) -> Result<(), Error> {
        self.node.delete().await
    }
}
