//! The handle for programs without asynchronous code: its driver has a thread of its own, and any
//! future can be waited for.
//!
//! ```no_run
//! use zabkeeper_client::{CreateMode, blocking, recipes::Lock};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let client = blocking::connect("127.0.0.1:2181")?;
//! client.create("/a", "data", CreateMode::Persistent).wait()?;
//! let guard = blocking::wait(Lock::new(&client, "/locks/printer").acquire())?;
//! println!("holds the lock with token {}", guard.token());
//! blocking::wait(guard.release())?;
//! # Ok(()) }
//! ```
//!
//! Owns the thread. Must not repeat the operations: they are those of [`Client`].

use futures::executor::{BlockingStream, block_on, block_on_stream};
use futures::stream::Stream;

use crate::handle::{Call, Client};

/// [`Client::connect`], with a thread for the driver; it ends with the session.
///
/// # Errors
/// Those of [`Client::connect`]; the system gives no thread.
pub fn connect(servers: &str) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let client = Client::resolve_on_thread(servers)?.spawn_thread()?;
    wait(client.connected())?;
    Ok(client)
}

/// Waits on this thread until the future completes.
///
/// # Panics
/// Inside of another call of it. A task of an asynchronous runtime awaits the future instead.
pub fn wait<F: Future>(future: F) -> F::Output {
    block_on(future)
}

/// The items of a stream, such as the events of a watch; each waits on this thread.
pub fn iter<S: Stream + Unpin>(stream: S) -> BlockingStream<S> {
    block_on_stream(stream)
}

impl<T> Call<T> {
    /// [`wait`] for the result of this operation.
    ///
    /// # Errors
    /// Those of the operation.
    ///
    /// # Panics
    /// As [`wait`].
    pub fn wait(self) -> Result<T, crate::Error> {
        wait(self)
    }
}
