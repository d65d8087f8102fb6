//! A client's session with a ZooKeeper ensemble, without sockets, clocks or threads.
//!
//! A [`Session`] is a state machine like the server's core: it takes one [`Input`] at a time and
//! appends effects to an [`Outbox`]. The loop of every host:
//!
//! ```text
//! collect inputs                        outcomes of dials, received bytes, calls, the deadline
//! step each input                       session.step(now, input, &mut outbox)
//! carry out the effects in order        dial, send, hang up, report completions, events and states
//! sleep until input or next_deadline()
//! ```
//!
//! A host must pass received bytes before a timeout that is due at the same time: otherwise, after
//! a delay of the host, the session would take a responsive server for a silent one.
//!
//! Of the core, the session uses only the wire format, the ids and the error codes, so it works
//! with Apache ZooKeeper servers, too.
//!
//! Invariants: every [`Input::Submit`] is answered by exactly one [`Effect::Completed`];
//! completions and events come in the order in which the server sent them (CLIENT-12); a step
//! cannot fail; no bytes from a server make it panic; equal seeds and inputs give equal effects.

mod session;

pub use session::{
    CallId, Config, ConnectString, ConnectStringError, Disconnect, Done, Effect, Failure, Input,
    LinkId, Outbox, ServerAddr, Session, State,
};
