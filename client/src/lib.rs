//! A client's session with a ZooKeeper ensemble, without sockets, clocks or threads.
//!
//! A [`Session`] takes one [`Input`] at a time and appends what it wants done to an [`Outbox`]: the shape of the
//! servers' core. The driver's loop is the same everywhere:
//!
//! ```text
//! collect inputs                        outcomes of dials, received bytes, calls, the deadline
//! step each input                       session.step(now, input, &mut outbox)
//! carry out the effects in order        dial, send, hang up, complete calls, tell events and states
//! sleep until input or next_deadline()
//! ```
//!
//! What has been received is to be handed over before a timeout that is due at the same time, or a driver that was
//! held up takes a talkative server for a silent one.
//!
//! Of the core, the session uses the wire format, the identifiers and the error codes; of servers it knows only what
//! the wire says, so it talks to Apache ZooKeeper as well.
//!
//! Invariants: every [`Input::Submit`] is answered by exactly one [`Effect::Completed`]; completions and events come
//! in the order in which the server sent them (CLIENT-12); a step cannot fail; bytes from a server never panic; equal
//! seeds and inputs give equal effects.

mod chroot;
mod config;
mod connect;
mod io;
mod kept;
mod rng;
mod servers;
mod serving;
mod session;
mod watches;

pub use config::Config;
pub use connect::{ConnectString, ConnectStringError, ServerAddr};
pub use io::{CallId, Disconnect, Done, Effect, Failure, Input, LinkId, Outbox, State};
pub use session::Session;
