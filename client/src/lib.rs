//! A client for Zabkeeper and Apache ZooKeeper: a handle whose operations are futures, recipes such
//! as locks and elections, and below them a session without sockets, clocks or threads.
//!
//! ```no_run
//! use zabkeeper_client::{Client, recipes::Lock};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let client = Client::connect("zk1:2181,zk2:2181,zk3:2181/chroot").await?;
//! let guard = Lock::new(&client, "/locks/printer").acquire().await?;
//! println!("this holder's fencing token is {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Sessions
//! A [`Client`] is a handle of one session; clones share it. The session survives lost connections
//! and servers: the driver connects to another server, sets watches again, and repeats credentials.
//! It ends when the program closes it or drops the last handle, or when the servers have not heard
//! of it for the session timeout. Then its ephemeral nodes are deleted, all operations fail with a
//! fatal error, and the program connects a new client. [`Client::states`] tells of each change.
//! Only a server can tell that the session has expired. A client that reaches none presumes it
//! after the session timeout, by its own clock: [`Client::session_lost`], and the `lost` of locks
//! and leaders.
//!
//! # Errors
//! Each [`Error`] names the operation and its path, and has one of three classes ([`ErrorClass`]):
//! the operation's own, such as a node that is absent; recoverable, when an answer was lost and
//! nobody knows whether the write was made; and fatal, when the session has ended. The recipes
//! handle recoverable errors themselves, and return none.
//!
//! # Order
//! An operation is queued when its method is called, before its future is polled first; servers
//! carry the operations of a session out in that order. So requests are pipelined by calling
//! several methods before awaiting the futures. Dropping a future does not withdraw its operation.
//!
//! # Runtimes
//! `Client::connect` (feature `tokio`, on by default) spawns a [`Driver`] on tokio. Any other
//! runtime needs an implementation of [`Runtime`]: connect, sleep, and a clock. Programs without
//! asynchronous code use the module `blocking`.
//!
//! A guide with examples is `docs/client.md` of the repository. Ids such as CLIENT-03 are rows of
//! `docs/compatibility.md` there, which says what ZooKeeper does and how far this follows.
//!
//! # The session as a state machine
//! A [`Session`] takes one [`Input`] at a time and appends effects to an [`Outbox`], like the
//! server's core. The loop of every host:
//!
//! ```text
//! collect inputs                        outcomes of dials, received bytes, calls, the deadline
//! step each input                       session.step(now, input, &mut outbox)
//! carry out the effects in order        dial, send, hang up, report completions, events and states
//! sleep until input or next_deadline()
//! ```
//!
//! A host must pass received bytes before a timeout that is due at the same time: otherwise, after
//! a delay of the host, the session would take a responsive server for a silent one. An [`Engine`]
//! is a session with a handle: its host passes what handles ask for, too.
//!
//! Of the core, the session uses only the wire format, the ids and the error codes, so it works
//! with Apache ZooKeeper servers, too.
//!
//! Invariants: every [`Input::Submit`] is answered by exactly one [`Effect::Completed`];
//! completions and events come in the order in which the server sent them (CLIENT-12); a step
//! cannot fail; no bytes from a server make it panic; equal seeds and inputs give equal effects.

#[cfg(feature = "tokio")]
pub mod blocking;
mod error;
/// The guide's snippets are compiled with the tests of the documentation.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../docs/client.md")]
mod guide {}
mod handle;
pub mod recipes;
mod runtime;
mod session;
#[cfg(feature = "tokio")]
mod tokio;

pub use error::{Error, ErrorClass};
pub use handle::{
    Call, Client, CreateMode, CreateOptions, Engine, Multi, MultiError, MultiOutcome, MultiRead,
    MultiReadOutcome, OneshotWatch, Reconfig, WatchStream,
};
pub use runtime::{Driver, Runtime};
pub use session::{
    CallId, Config, ConnectString, ConnectStringError, Disconnect, Done, Effect, Failure, Input,
    LinkId, Outbox, ServerAddr, Session, State,
};
#[cfg(feature = "tokio")]
pub use tokio::ClientBuilder;
// A comment for the documentation would stand before that of each of these types.
pub use zabkeeper_core::wire::{
    Acl, AddWatchMode, EventType, Id, Perms, Stat, WatchEvent, WatcherType,
};
pub use zabkeeper_core::{ErrorCode, Instant, SessionId, Zxid};
