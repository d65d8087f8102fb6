//! The half of every driver that has no sockets: what comes from clients and leaves to them, and whose turn it is.
//!
//! Owns the bytes of client connections in both directions, the bounds on what clients may take up, and the order in which
//! inputs reach the [`Server`]. It may delay, drop and refuse; it takes no protocol decision. Must not see a socket, a file
//! or a clock: the host has those, and calls this.

mod admission;
mod clients;
mod close;
mod conn;
mod intake;
mod limits;
pub mod metrics;
mod note;
mod output;
mod queue;
#[cfg(test)]
mod tests;
mod unfinished;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::Config;
use crate::ids::{ConnId, Instant};
use crate::io::{ClientCommand, ClientEvent, Input, Now, Pressure};
use crate::server::Server;
use crate::store::DiskEvent;

pub use admission::TooManyConnections;
pub use clients::{ClientLine, ClientUse, Clients, Interest};
pub use close::ConnCloseReason;
pub use limits::{ClientLimits, LargeRequests};
pub use note::ClientNote;
pub use unfinished::Unfinished;

/// How much is done in a turn before its orders are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnLimits {
    /// Inputs of other servers, and as many of clients: bounds the delay of the first by the work of the others. Default
    /// 4,096.
    pub inputs: usize,
    /// Units of work, as the core counts them, after which a turn takes no more from servers, or from clients. One input is
    /// not interrupted. Default 10,000, some ten milliseconds.
    pub units: u64,
    /// Inputs of other servers that wait, above which their links are not read: clients have their windows, servers have
    /// this. Default 8,192.
    pub servers: usize,
}

/// What stands between a host's sockets, disk and timers and its [`Server`].
#[derive(Debug)]
pub struct Driver {
    /// Connections of clients.
    pub clients: Clients,
    limits: TurnLimits,
    disk: VecDeque<DiskEvent>,
    servers: VecDeque<Input>,
    turn: Turn,
    stops: bool,
}

/// How far a turn has come.
#[derive(Debug, Default)]
struct Turn {
    stage: Stage,
    /// Inputs taken in this stage, and what they have cost.
    inputs: usize,
    spent: u64,
    /// Of these something has come that waits for a later turn, and a deadline is due.
    unheard: Vec<ConnId>,
    deadline: bool,
}

/// From whom inputs are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Disk,
    Servers,
    Clients,
    Deadline,
}

impl Default for TurnLimits {
    fn default() -> TurnLimits {
        TurnLimits { inputs: 4096, units: 10_000, servers: 8192 }
    }
}

impl Driver {
    /// Nobody is connected. `seed` feeds the random drops of `connection_throttle_*`.
    pub fn new(
        config: Arc<Config>,
        limits: ClientLimits,
        turn: TurnLimits,
        seed: u64,
        now: Instant,
    ) -> Driver {
        Driver {
            clients: Clients::new(config, limits, seed, now),
            limits: turn,
            disk: VecDeque::new(),
            servers: VecDeque::new(),
            turn: Turn::default(),
            stops: false,
        }
    }

    /// Something has come from the disk or from another server. Inputs of clients and deadlines are the driver's own affair.
    pub fn push(&mut self, input: Input) {
        match input {
            Input::Disk(event) => self.disk.push_back(event),
            Input::Election(..) | Input::Peer(..) => self.servers.push_back(input),
            Input::Timeout | Input::Client(..) => unreachable!("{input} comes from the driver"),
        }
    }

    /// The next input of another server, out of turn.
    pub fn next_from_servers(&mut self) -> Option<Input> {
        self.servers.pop_front()
    }

    /// May links with other servers be read? Not while more waits than a turn or two can take.
    pub fn reads_servers(&self) -> bool {
        self.servers.len() < self.limits.servers
    }

    /// No client is read from now on: the process is about to stop.
    pub fn stop(&mut self) {
        self.stops = true;
    }

    /// Begins a turn. Then: [`Driver::next_input`] as long as there is one, each given to [`Server::step`]; then
    /// [`Driver::deliver`].
    pub fn begin_turn(&mut self, now: Now) {
        self.turn = Turn::default();
        self.clients.begin_turn(now.mono);
    }

    /// The next input of this turn; `cost` is what the one before has cost, in units. First what the disk has done, then some
    /// of what has come from servers and from clients, then the deadline of the server: however much clients ask for, the
    /// others have their turn.
    pub fn next_input(&mut self, now: Now, server: &Server, cost: u64) -> Option<Input> {
        let Turn { stage, .. } = self.turn;
        self.turn.spent += cost;
        if stage == Stage::Disk {
            if let Some(event) = self.disk.pop_front() {
                return Some(Input::Disk(event));
            }
            self.turn.enter(Stage::Servers);
        }
        if self.turn.stage == Stage::Servers {
            if self.turn.goes_on(&self.limits) {
                let heard = self.clients.next_heard();
                let heard = heard.map(|conn| Input::Client(conn, ClientEvent::Heard));
                if let Some(input) = heard.or_else(|| self.next_from_servers()) {
                    return Some(input);
                }
            }
            self.turn.enter(Stage::Clients);
        }
        if self.turn.stage == Stage::Clients {
            let cost = if stage == Stage::Clients { cost } else { 0 };
            if self.turn.goes_on(&self.limits)
                && let Some(input) = self.clients.common.queue.next(cost)
            {
                return Some(input);
            }
            self.clients.common.queue.end_turn(cost);
            self.turn.enter(Stage::Deadline);
            if server.next_deadline().is_some_and(|(at, _)| at <= now.mono) {
                // What has arrived counts, although it waits for a later turn (SESS-05).
                self.turn.unheard = self.clients.common.queue.unheard();
                self.turn.deadline = true;
            }
        }
        if let Some(conn) = self.turn.unheard.pop() {
            return Some(Input::Client(conn, ClientEvent::Heard));
        }
        std::mem::take(&mut self.turn.deadline).then_some(Input::Timeout)
    }

    /// Takes what the core has to say to clients (`Outbox::clients`): the host offers it to their sockets, see
    /// [`Clients::next_to_flush`].
    pub fn deliver(
        &mut self,
        now: Now,
        server: &Server,
        commands: &mut Vec<(ConnId, ClientCommand)>,
    ) {
        let reads = server.pressure() == Pressure::Accept && !self.stops;
        self.clients.deliver(commands, reads, now.mono);
    }

    /// Is there work for another turn, whatever comes?
    pub fn has_work(&self) -> bool {
        !self.disk.is_empty() || !self.servers.is_empty() || self.clients.has_work()
    }

    /// When there is, if nothing comes.
    pub fn next_deadline(&self, server: &Server) -> Option<Instant> {
        let due = server.next_deadline().map(|(at, _)| at);
        due.into_iter().chain(self.clients.next_deadline()).min()
    }
}

impl Turn {
    fn enter(&mut self, stage: Stage) {
        (self.stage, self.inputs, self.spent) = (stage, 0, 0);
    }

    /// May one more input be taken in this stage?
    fn goes_on(&mut self, limits: &TurnLimits) -> bool {
        self.inputs += 1;
        self.inputs <= limits.inputs && self.spent < limits.units
    }
}
