//! What the simulator knows about a server when the server answers a four-letter command.
//!
//! Owns these types. Must not check anything. The numbers come from sockets, from inputs and
//! commands of the core, and from reports that other oracles check; none comes from the driver,
//! whose answers they are compared with.

use std::net::SocketAddr;
use std::rc::Rc;

use zabkeeper_core::wire::FourLetterCommand;
use zabkeeper_core::{ConnId, Now, SessionId, WallMs};

use super::observe::SelfReport;

/// An answer that a server has sent to the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The command.
    pub command: FourLetterCommand,
    /// Is the command on the whitelist?
    pub allowed: bool,
    /// Bytes of the answer.
    pub length: usize,
    /// The incarnation of the server.
    pub incarnation: u64,
    /// Sizes of the directories of snapshots and of the log, if the driver asked for them.
    pub disk: Option<[u64; 2]>,
    /// Number of file descriptors, if the driver asked for it.
    pub descriptors: Option<u64>,
    /// The server at the end of each turn from the reading of the command to the end of the answer.
    /// The answer was made in the last one, but for long answers.
    pub moments: Vec<Rc<Moment>>,
}

/// A server at the end of one of its turns.
#[derive(Clone, PartialEq, Debug)]
pub struct Moment {
    /// Number of the turn, within the incarnation.
    pub turn: u64,
    /// The clocks of the server.
    pub now: Now,
    /// What the server reports of itself; `None` if it does not serve.
    pub report: Option<SelfReport>,
    /// Ephemeral nodes in the server's tree, also while it does not serve.
    pub ephemerals: Vec<(SessionId, String)>,
    /// Watches of both tables, counted one by one.
    pub watches: usize,
    /// Open connections, in the order in which they were accepted.
    pub conns: Vec<ConnFacts>,
    /// Counters of the server.
    pub counters: Counters,
    /// Settings that `conf` prints.
    pub settings: Rc<Settings>,
    /// The trace mask before and after the commands of the turn, which may be in any order.
    pub trace_masks: [i64; 2],
    /// Since the start of the process, ms.
    pub uptime_ms: u64,
    /// Since the server serves as the leader of others, ms.
    pub leader_uptime_ms: u64,
}

/// Settings of a server that `conf` prints: name and value, and the lines of the members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// Names and values.
    pub values: Vec<(&'static str, String)>,
    /// Lines of the members; none for a standalone server.
    pub members: Vec<String>,
    /// May clients reconfigure the ensemble?
    pub reconfigurable: bool,
}

/// A number between these two, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Between(pub u64, pub u64);

impl Between {
    /// Is the number possible?
    pub fn holds(self, number: u64) -> bool {
        (self.0..=self.1).contains(&number)
    }

    /// With these amounts added to the bounds.
    #[must_use]
    pub fn and(self, least: u64, most: u64) -> Between {
        Between(self.0 + least, self.1 + most)
    }
}

/// Counters of a server since its start or the last `srst`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// How many times they were reset.
    pub resets: u64,
    /// They were reset in this turn, beside other answers: any answer of the turn may have been
    /// made before that.
    pub mixed: bool,
    /// Handshakes, requests and commands that were read.
    pub received: Between,
    /// Replies, events and answers.
    pub sent: Between,
    /// Bytes that were read.
    pub bytes: Between,
    /// Handshakes that were admitted.
    pub handshakes: Between,
    /// Requests that are not answered.
    pub outstanding: Between,
    /// The longest time from reading a request to its reply, whole ms.
    pub latency_max_ms: Between,
    /// A leader's proposals: their number, and the sizes of the last, smallest and largest one, or
    /// -1.
    pub proposals: (u64, [i64; 3]),
}

/// An open connection of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnFacts {
    /// The connection.
    pub conn: ConnId,
    /// Address of the client.
    pub peer: SocketAddr,
    /// When it was accepted, by the server's clock.
    pub since: WallMs,
    /// Its session with the granted timeout, ms.
    pub served: Option<(SessionId, i32)>,
    /// Requests and handshakes that were read.
    pub received: Between,
    /// Replies and events.
    pub sent: Between,
    /// Requests that are not answered.
    pub unanswered: Between,
    /// The longest time from reading a request to its reply, whole ms.
    pub latency_max_ms: Between,
    /// xid and zxid of the last reply, where `cons` shows them.
    pub last: (Option<i32>, Option<i64>),
    /// Requests that the core has processed since the connection was accepted.
    pub processed: u64,
}
