//! `--trace state`: a line for each change of a server's role, epoch, zxid or incarnation, in fixed
//! columns.
//!
//! Owns columns and legend. Must not influence the run.

use std::fmt::Write as _;

use zabkeeper_core::{Instant, ServerId, Zxid};

use super::{Place, State, position};
use crate::check::observe::Observation;
use crate::faults::heal;
use crate::record::event::RunEvent;
use crate::record::injection::Injection;
use crate::record::output::print;
use crate::record::role::Role;
use crate::record::trace::{Kind, View};

/// Interval of lines that only show new commits, ns.
const SAMPLE: u64 = 500_000_000;

/// The printed state of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    role: Role,
    epochs: [u32; 2],
    committed: Zxid,
}

/// The printer.
#[derive(Debug)]
pub struct Lines {
    view: View,
    cells: Vec<(ServerId, Cell)>,
    /// When commits were last printed.
    sampled: Instant,
    headed: bool,
}

const LEGEND: &str = "\
A line for each change, and twice a second where only positions have changed. A group of columns \
for each server:
  role      L leads, f follows; l and : the same, not serving yet or any more; ? looks for a leader, - is down
  epoch     of its history; with a ! behind it where it has promised another than it has (see the words)
  commit    what it knows to be committed: epoch.counter; * marks the server whose line it is
";

impl Lines {
    /// A printer without output so far.
    pub fn new(view: View, servers: &[ServerId]) -> Lines {
        let cell = Cell { role: Role::Down, epochs: [0; 2], committed: Zxid::ZERO };
        let cells = servers.iter().filter(|server| view.wants(**server));
        let cells = cells.map(|server| (*server, cell)).collect();
        Lines { view, cells, sampled: Instant(0), headed: false }
    }

    /// Records an event of the trace; prints phases.
    pub fn note(&mut self, place: Place, kind: Kind, text: &str) {
        if kind == Kind::Phase {
            self.print(place, None, &format!("phase: {text}"));
        }
    }

    /// Prints the violation of a promise, with the state after the violating step.
    pub fn broken(&mut self, place: Place, id: &str) {
        self.print(place, None, &format!("{id} is broken"));
    }

    /// Reads an event of the run; prints the faults that are injected. The rest comes as
    /// observations.
    pub fn record(&mut self, place: Place, event: &RunEvent<'_>) {
        match event {
            RunEvent::FaultHit(injection) => self.injected(place, injection),
            RunEvent::Started { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::RoleChanged { .. }
            | RunEvent::Ended { .. }
            | RunEvent::Wiped { .. }
            | RunEvent::Input { .. }
            | RunEvent::MarksHit { .. }
            | RunEvent::LateFault { .. }
            | RunEvent::Healed { .. }
            | RunEvent::Client(..) => {}
        }
    }

    fn injected(&mut self, place: Place, injection: &Injection) {
        let until = injection.until.map(|until| format!(" {}", heal::until(until, until)));
        let until = until.unwrap_or_default();
        self.print(place, None, &format!("{} {}{until}", injection.fault, injection.whom()));
    }

    /// Records an observation.
    pub fn observe(&mut self, place: Place, what: &Observation<'_>) {
        match what {
            Observation::Output { server, status, .. } => {
                self.is_now(place, *server, &State::of(place.at, status));
            }
            Observation::Recovered { server, state, last } => {
                let epochs = [state.accepted_epoch.0, state.current_epoch.0];
                let cell = Cell { role: Role::Looking, epochs, committed: Zxid::ZERO };
                self.change(
                    place,
                    *server,
                    cell,
                    &format!("recovered, log ends at {}", position(*last)),
                );
            }
            Observation::Stopped { server } => {
                let epochs = self.cell(*server).map_or([0; 2], |cell| cell.epochs);
                let cell = Cell { role: Role::Down, epochs, committed: Zxid::ZERO };
                self.change(place, *server, cell, "ends");
            }
            Observation::InForce { server, version } => {
                let what = format!("has the configuration of {} in force", position(*version));
                self.print(place, Some(*server), &what);
            }
            Observation::Started { server, .. } => self.print(place, Some(*server), "starts"),
            Observation::Wiped { server } => self.print(place, Some(*server), "has an empty disk"),
            Observation::StandsStill { server, until } if *until > place.at => {
                self.print(
                    place,
                    Some(*server),
                    &format!("stands still {}", heal::until(*until, until)),
                );
            }
            Observation::StandsStill { .. }
            | Observation::Waits { .. }
            | Observation::Grown { .. }
            | Observation::FaultInjected { .. }
            | Observation::Forgotten { .. }
            | Observation::Told { .. }
            | Observation::ConnOpened { .. }
            | Observation::ToServer { .. }
            | Observation::ToClient { .. }
            | Observation::ConnClosed { .. }
            | Observation::Input { .. }
            | Observation::Unread { .. }
            | Observation::Applied { .. }
            | Observation::DurableAudit { .. }
            | Observation::CachedAudit { .. }
            | Observation::Serves { .. }
            | Observation::Locals { .. }
            | Observation::Answered { .. }
            | Observation::AnswerRead { .. }
            | Observation::Reported { .. }
            | Observation::Final { .. } => {}
        }
    }

    fn cell(&mut self, server: ServerId) -> Option<&mut Cell> {
        self.cells.iter_mut().find(|(id, _)| *id == server).map(|(_, cell)| cell)
    }

    fn is_now(&mut self, place: Place, server: ServerId, state: &State) {
        let now = Cell { role: state.role, epochs: state.epochs, committed: state.marks[2] };
        let Some(cell) = self.cell(server) else {
            return;
        };
        let mut words = Vec::new();
        if cell.role != now.role {
            words.push(state.doing(server));
        }
        if cell.epochs[0] != now.epochs[0] {
            words.push(format!("promises epoch {}", now.epochs[0]));
        }
        if cell.epochs[1] != now.epochs[1] {
            words.push(format!("takes epoch {} over", now.epochs[1]));
        }
        if words.is_empty() {
            cell.committed = now.committed;
            if place.at.0 >= self.sampled.0 + SAMPLE {
                self.print(place, None, "");
            }
        } else {
            self.change(place, server, now, &words.join(", "));
        }
    }

    fn change(&mut self, place: Place, server: ServerId, now: Cell, words: &str) {
        if let Some(cell) = self.cell(server) {
            *cell = now;
            self.print(place, Some(server), words);
        }
    }

    fn print(&mut self, place: Place, whose: Option<ServerId>, words: &str) {
        if place.at < self.view.from || whose.is_some_and(|server| !self.view.wants(server)) {
            return;
        }
        self.sampled = place.at;
        let mut line = format!("{:>11} {:>8} ", place.at.to_string(), place.event);
        for (server, cell) in &self.cells {
            let mark = if whose == Some(*server) { '*' } else { ' ' };
            let promised = if cell.epochs[0] == cell.epochs[1] { ' ' } else { '!' };
            let _infallible = write!(
                line,
                "|{mark}{} {:>2}{promised} {:<8}",
                cell.role.letter(),
                cell.epochs[1],
                position(cell.committed)
            );
        }
        let who = whose.map(|server| format!("s{server} ")).unwrap_or_default();
        let _infallible = write!(line, "| {who}{words}");
        if !std::mem::replace(&mut self.headed, true) {
            print(&format!("{LEGEND}\n{}\n", self.head()));
        }
        print(&format!("{}\n", line.trim_end()));
    }

    fn head(&self) -> String {
        let mut line = format!("{:>11} {:>8} ", "time", "event");
        for (server, _) in &self.cells {
            let _infallible = write!(line, "|{:<15}", format!(" s{server}"));
        }
        line + "| what"
    }
}
