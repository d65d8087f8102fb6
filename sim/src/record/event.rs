//! The events of a run that several record keepers read.
//!
//! Owns their list, and what the oracles observe of each. Must not know who else reads an event:
//! each record keeper has an exhaustive match of its own. What only the trace keeps is a note
//! (`Shared::note`), and what only oracles need is an observation (`Shared::observe`).

use std::fmt::Display;

use storage_fs::Note;
use zabkeeper_client::{CallId, Done, Failure};
use zabkeeper_core::io::Marks;
use zabkeeper_core::store::DurableState;
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ConnId, Input, ServerId, SessionId, SessionOptions, Status, Zxid};

use crate::check::observe::{ClientId, Observation};
use crate::clients::workload::{CallOutcome, Op};
use crate::faults::catalog::Fault;
use crate::machine::fs::{Crash, Losses};
use crate::network::stream::{Delivery, Party};
use crate::record::injection::{Hit, Injection};

/// An event of the run; see the module.
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum RunEvent<'a> {
    /// A server's process starts. `drifts`: its clock has another speed. `changed`: the settings
    /// that differ from those of the process before, in words.
    Started {
        server: ServerId,
        incarnation: u64,
        sessions: SessionOptions,
        drifts: bool,
        changed: &'a str,
    },
    /// A server has recovered from its disk. `promise_lost`: the process before had promised a
    /// later epoch.
    Recovered {
        server: ServerId,
        incarnation: u64,
        state: &'a DurableState,
        last: Zxid,
        notes: &'a [Note],
        promise_lost: bool,
    },
    /// A running server has another role than before.
    RoleChanged { server: ServerId, incarnation: u64, status: &'a Status },
    /// A server's process has ended. `planned` becomes a power failure (`how`) if the disk has
    /// failed. `uncommitted`: it has led, with transactions that it has not applied.
    Ended {
        server: ServerId,
        incarnation: u64,
        planned: Crash,
        how: Crash,
        uncommitted: bool,
        losses: &'a Losses,
    },
    /// The disk of a server that is down has been replaced by an empty one.
    Wiped { server: ServerId, incarnation: u64 },
    /// A server is about to process an input. `completes`: the disk commands that it completes.
    Input { server: ServerId, input: &'a Input, completes: &'a dyn Display },
    /// A server's step has hit these marks.
    MarksHit { server: ServerId, marks: Marks },
    /// A fault hits a target.
    FaultHit(Injection),
    /// A fault that was drawn earlier happens to a server.
    LateFault { fault: Fault, server: ServerId },
    /// All faults end. `outside`: the servers that keep theirs, in words.
    Healed { outside: &'a str },
    /// Something happens to a client.
    Client(ClientId, ClientRunEvent<'a>),
}

/// An event of the run at a client.
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum ClientRunEvent<'a> {
    /// Its end of a connection is open.
    Connected { conn: ConnId, server: ServerId },
    /// The same for a bad client, which may ask for this session.
    BadClientConnected { conn: ConnId, server: ServerId, session: Option<SessionId> },
    /// It is about to close its end of a connection.
    HangsUp { conn: ConnId },
    /// The other end has closed a connection, or it is broken. Its own end is still open.
    ConnLost { conn: ConnId, why: &'a Delivery },
    /// It makes a call.
    Called { call: CallId, op: Op, request: &'a Request },
    /// A call has ended.
    CallEnded { call: CallId, op: Op, outcome: CallOutcome, result: &'a Result<Done, Failure> },
}

impl RunEvent<'_> {
    /// Passes on what the oracles observe of it.
    pub fn observations(&self, observe: &mut impl FnMut(Observation<'_>)) {
        match *self {
            RunEvent::Started { server, sessions, .. } => {
                observe(Observation::Started { server, sessions });
            }
            RunEvent::Recovered { server, state, last, .. } => {
                observe(Observation::Recovered { server, state: state.clone(), last });
            }
            RunEvent::Ended { server, .. } => observe(Observation::Stopped { server }),
            RunEvent::Wiped { server, .. } => observe(Observation::Wiped { server }),
            RunEvent::Input { server, input, .. } => {
                if !matches!(input, Input::Timeout | Input::Client(..)) {
                    observe(Observation::Input { server, input });
                }
            }
            RunEvent::FaultHit(ref injection) => fault_observed(injection, observe),
            RunEvent::Client(client, ref event) => match *event {
                ClientRunEvent::Connected { conn, server }
                | ClientRunEvent::BadClientConnected { conn, server, .. } => {
                    observe(Observation::ConnOpened { client, conn, server });
                }
                ClientRunEvent::HangsUp { conn } | ClientRunEvent::ConnLost { conn, .. } => {
                    observe(Observation::ConnClosed { conn });
                }
                ClientRunEvent::Called { .. } | ClientRunEvent::CallEnded { .. } => {}
            },
            RunEvent::RoleChanged { .. }
            | RunEvent::MarksHit { .. }
            | RunEvent::LateFault { .. }
            | RunEvent::Healed { .. } => {}
        }
    }
}

/// Faults of clients and their connections are no excuse for a server. A pause is observed as a
/// standstill, too.
fn fault_observed(injection: &Injection, observe: &mut impl FnMut(Observation<'_>)) {
    if !matches!(&injection.hit, Hit::Conn(ends) if !ends.iter().all(Party::is_server)) {
        let until = injection.until.unwrap_or(injection.at);
        observe(Observation::FaultInjected { servers: &injection.servers(), until });
    }
    if let (Fault::NodePause, &Hit::Server(server), Some(until)) =
        (injection.fault, &injection.hit, injection.until)
    {
        observe(Observation::StandsStill { server, until });
    }
}
