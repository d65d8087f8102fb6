//! Work that is done by the leader only.
//!
//! Owns when the work begins and when it is dropped. Must not decide whose turn it is: `lock` does.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;

use futures::future::{Either, select};
use zabkeeper_core::{ErrorCode, Zxid};

use super::gone;
use super::lock::Lock;
use crate::error::Error;
use crate::handle::Client;

/// An election that runs a piece of work while this session leads.
///
/// # What it promises
/// The work begins after this session has become the leader, and its future is dropped as soon as
/// the leadership is lost or may be: somebody has deleted the node, the session has ended, or no
/// server has answered for the session timeout. The leadership ends when the work is done.
///
/// # What it does not promise
/// As with a [`Lock`](super::Lock), work whose process stands still may go on for a moment after
/// its session has expired, beside that of the next leader. Resources that must obey one leader
/// only check the epoch, which the work gets, and which rises from leader to leader. What the work
/// has begun when it is dropped stays as it is.
///
/// A lost connection alone does not end the work: the leadership lasts as long as the session.
/// Dropping the future of [`LeaderSelector::lead`] drops the work, and resigns.
///
/// ```no_run
/// # async fn work() {}
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::LeaderSelector};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let selector = LeaderSelector::new(&client, "/reports/leader", "host-7");
/// selector
///     .lead(async |epoch| {
///         println!("leads in epoch {epoch}");
///         work().await;
///     })
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LeaderSelector {
    client: Client,
    path: String,
    lock: Lock,
}

impl LeaderSelector {
    /// The election of this path, in which this session takes part under this name. Its nodes are
    /// those of a [`Lock`](super::Lock), as with Curator's `LeaderSelector`.
    pub fn new(
        client: &Client,
        path: impl Into<String>,
        name: impl Into<Vec<u8>>,
    ) -> LeaderSelector {
        let path = path.into();
        let lock = Lock::new(client, path.clone()).with_data(name);
        LeaderSelector { client: client.clone(), path, lock }
    }

    /// Waits until this session leads, does the work with the epoch of the leadership, and resigns.
    /// Returns what the work has returned.
    ///
    /// # Errors
    /// `NoNode` if somebody has deleted the leader's node, or no server has answered for the
    /// session timeout, and the session lives; fatal ones when the session has ended: then the work
    /// was dropped, or has not begun. Otherwise those of [`Lock::acquire`](super::Lock::acquire).
    /// Without a connection they come when there is one again.
    pub async fn lead<T, F>(&self, work: impl FnOnce(Zxid) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let guard = self.lock.acquire().await?;
        let done = match select(pin!(work(guard.token())), pin!(guard.lost())).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(((), _)) => None,
        };
        let Some(value) = done else {
            self.client.connected().await?;
            return Err(gone("lead", &self.path));
        };
        // A fatal error means that the session has ended since, and the leadership with it.
        let _ = guard.release().await;
        Ok(value)
    }

    /// [`LeaderSelector::lead`] until the work returns [`ControlFlow::Break`]. After each
    /// [`ControlFlow::Continue`], and after a leadership that was lost while the session lives, it
    /// takes part again, behind those that wait.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn lead_until<T, F>(&self, mut work: impl FnMut(Zxid) -> F) -> Result<T, Error>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        loop {
            match self.lead(&mut work).await {
                Ok(ControlFlow::Break(value)) => return Ok(value),
                Ok(ControlFlow::Continue(())) => {}
                Err(error) if error.is(ErrorCode::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
