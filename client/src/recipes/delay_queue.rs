//! A queue whose items can be taken only once their time has come.
//!
//! Owns the times, and the clock that they are compared with. Must not decide whether an item was
//! put or taken whose answer is lost: `queue` does.

use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, select};
use zabkeeper_core::ErrorCode;

use super::queue::Queue;
use super::{create_if_absent, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// After which time [`DelayQueue::take`] asks for the leader's time again, at the latest: somebody
/// may have set that clock.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// A queue of items, each with a time before which nobody can take it; the earliest time first, and
/// in the order of their arrival among equals.
///
/// # What it promises
/// An item that was put is taken once, as those of a [`Queue`](super::Queue), and only after the
/// leader's clock has shown its time. No wall clock of a client is involved: each asks the leader
/// by a write to the node `path.clock`, whose time of modification is the leader's. A client's own
/// clock only measures how long it sleeps before it asks again.
///
/// # What it does not promise
/// That servers have the same time: after another server has become the leader, items come earlier
/// or later by as much as its clock differs. That an item comes on the dot: it comes some round
/// trips late, or up to a minute late if the leader's clock was set forward. Otherwise as
/// [`Queue`](super::Queue): the names of all items have to fit into one reply of the server, some
/// 30,000 by default, and after a fatal error it is unknown whether an item was put or taken.
///
/// Lost connections are waited out; an expired session is a fatal error. A future of
/// [`DelayQueue::take`] that is dropped may have taken an item: let it finish.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use std::time::Duration;
/// use zabkeeper_client::{Client, recipes::DelayQueue};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let mut reminders = DelayQueue::new(&client, "/reminders");
/// reminders.put("call back", Duration::from_secs(3600)).await?;
/// println!("{:?}", reminders.take().await?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DelayQueue {
    client: Client,
    items: Queue,
    /// The node whose time of modification is the leader's time.
    clock: String,
}

impl DelayQueue {
    /// The queue of this path. Its node and `path.clock` are created when needed, and stay; those
    /// above are created as containers.
    pub fn new(client: &Client, path: impl Into<String>) -> DelayQueue {
        let path = path.into();
        let clock = format!("{}.clock", path.trim_end_matches('/'));
        DelayQueue { client: client.clone(), items: Queue::new(client, path), clock }
    }

    /// Puts an item that can be taken after this delay, counted from a moment of this call.
    ///
    /// # Errors
    /// Those of [`Queue::put`](super::Queue::put).
    pub async fn put(&mut self, item: impl Into<Bytes>, delay: Duration) -> Result<(), Error> {
        let time = self.now().await?.saturating_add(delay);
        self.put_at(item, time).await
    }

    /// Puts an item that can be taken from this time on, counted from the Unix epoch and rounded up
    /// to milliseconds.
    ///
    /// # Errors
    /// Those of [`Queue::put`](super::Queue::put).
    pub async fn put_at(&mut self, item: impl Into<Bytes>, time: Duration) -> Result<(), Error> {
        let ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        self.items.put_before(&format!("{ms:016x}"), item).await
    }

    /// Takes the first item whose time has come, and waits while there is none.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn take(&mut self) -> Result<Bytes, Error> {
        loop {
            let (mut names, watch) = self.items.entries().await?;
            names.retain(|name| time_of(name).is_some());
            if names.is_empty() {
                watch.await?;
                continue;
            }
            let now = self.now().await?;
            let due = names.partition_point(|name| time_of(name) <= Some(now));
            if let Some(item) = self.items.take_one(&names[..due]).await? {
                return Ok(item);
            }
            // Others have taken what was due; what has come meanwhile has fired the watch.
            let Some(next) = names.get(due).and_then(|name| time_of(name)) else {
                watch.await?;
                continue;
            };
            let sleep = self.client.sleep(next.saturating_sub(now).min(SLEEP_MAX));
            match select(watch, sleep).await {
                Either::Left((event, _)) => event.map(|_| ())?,
                Either::Right(((), _)) => {}
            }
        }
    }

    /// Takes the first item whose time has come, if there is one.
    ///
    /// # Errors
    /// Those of [`DelayQueue::take`].
    pub async fn try_take(&mut self) -> Result<Option<Bytes>, Error> {
        let (mut names, _) = self.items.entries().await?;
        let now = self.now().await?;
        names.retain(|name| time_of(name).is_some_and(|time| time <= now));
        self.items.take_one(&names).await
    }

    /// The leader's time, since the Unix epoch.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn now(&self) -> Result<Duration, Error> {
        loop {
            match retried(&self.client, || self.client.set(&self.clock, "", None)).await {
                Ok(stat) => {
                    return Ok(Duration::from_millis(stat.mtime.try_into().unwrap_or_default()));
                }
                Err(error) if error.is(ErrorCode::NoNode) => {
                    create_if_absent(&self.client, &self.clock, CreateMode::Persistent).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The time of an item, `entry-000001987b3c4d5e-0000000007`; `None` if the name is another
/// recipe's.
fn time_of(name: &str) -> Option<Duration> {
    let time = name.split('-').nth(1).filter(|time| time.len() == 16)?;
    let ms = u64::from_str_radix(time, 16).ok()?;
    Some(Duration::from_millis(ms))
}
