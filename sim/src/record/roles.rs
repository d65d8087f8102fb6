//! The role of each server over time, for reports.
//!
//! Owns the record and its diagram. Must not influence the run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use zabkeeper_core::{Epoch, Instant, ServerId, Status, Zxid};

use crate::faults::catalog::Fault;
use crate::record::event::RunEvent;
use crate::record::injection::{Hit, Injection};
use crate::record::role::Role;

/// Columns of the diagram.
const COLUMNS: u64 = 100;
const HALF: usize = 50;
const LEGEND: &str = "L leads, f follows (l, : not serving yet), ? looks for a leader, - is down, \
    z stands still, # partition";

/// The record of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roles {
    changes: BTreeMap<ServerId, Vec<(Instant, Role)>>,
    leaderships: Vec<Leadership>,
}

/// A period in which one server leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leadership {
    /// The leader.
    pub server: ServerId,
    /// Its epoch.
    pub epoch: Epoch,
    /// When it began to serve.
    pub from: Instant,
    /// When it stopped leading, and its next role.
    pub until: Option<(Instant, Role)>,
    /// The last transaction of its epoch that any server has applied.
    pub last: Zxid,
}

impl Roles {
    /// The current role of each server so far.
    pub fn now(&self) -> impl Iterator<Item = Role> {
        self.changes.values().filter_map(|changes| changes.last()).map(|(_, role)| *role)
    }

    /// Reads an event of the run.
    pub(super) fn record(&mut self, at: Instant, event: &RunEvent<'_>) {
        match *event {
            RunEvent::RoleChanged { server, status, .. } => self.change_to(at, server, status),
            RunEvent::Ended { server, .. } => self.change(at, server, Role::Down),
            RunEvent::Started { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::Wiped { .. }
            | RunEvent::Input { .. }
            | RunEvent::MarksHit { .. }
            | RunEvent::FaultHit(_)
            | RunEvent::LateFault { .. }
            | RunEvent::Healed { .. }
            | RunEvent::Client(..) => {}
        }
    }

    /// Records a role.
    pub(crate) fn change(&mut self, at: Instant, server: ServerId, role: Role) {
        let changes = self.changes.entry(server).or_default();
        if changes.last().is_none_or(|(_, last)| *last != role) {
            changes.push((at, role));
            let leadership =
                self.leaderships.iter_mut().rev().find(|leadership| leadership.server == server);
            if let Some(leadership) = leadership
                && leadership.until.is_none()
            {
                leadership.until = Some((at, role));
            }
        }
    }

    /// Records the new role of a running server, and its leadership.
    fn change_to(&mut self, at: Instant, server: ServerId, status: &Status) {
        let role = Role::of(status);
        self.change(at, server, role);
        if role == Role::Leads {
            let epoch = status.current_epoch;
            let last = Zxid::ZERO;
            self.leaderships.push(Leadership { server, epoch, from: at, until: None, last });
        }
    }

    /// Some server has applied this transaction.
    pub fn applied(&mut self, zxid: Zxid) {
        let of =
            self.leaderships.iter_mut().rev().find(|leadership| leadership.epoch <= zxid.epoch());
        if let Some(leadership) = of
            && leadership.epoch == zxid.epoch()
        {
            leadership.last = leadership.last.max(zxid);
        }
    }

    /// The epochs in which a leader has served.
    pub fn epochs(&self) -> BTreeSet<Epoch> {
        self.leaderships.iter().map(|leadership| leadership.epoch).collect()
    }

    /// All leaderships, in order.
    pub fn leaderships(&self) -> &[Leadership] {
        &self.leaderships
    }

    /// All changes of roles, by server.
    pub fn changes(&self) -> &BTreeMap<ServerId, Vec<(Instant, Role)>> {
        &self.changes
    }

    /// Number of servers that are down right after this time.
    pub fn down(&self, at: Instant) -> usize {
        let last = |changes: &[(Instant, Role)]| {
            changes.iter().rev().find(|(since, _)| *since <= at).map(|(_, role)| *role)
        };
        self.changes.values().filter(|changes| last(changes) == Some(Role::Down)).count()
    }

    /// The diagram: a row per server, and one for partitions if there were any.
    pub fn draw(&self, end: Instant, injections: &[Injection]) -> String {
        let width = (end.0 / COLUMNS).max(1);
        let columns = || (0..COLUMNS).map(|n| (n * width, (n + 1) * width));
        let mut text = String::new();
        for (server, changes) in &self.changes {
            let paused = |injection: &&Injection| {
                injection.fault == Fault::NodePause && injection.hit == Hit::Server(*server)
            };
            let pauses: Vec<&Injection> = injections.iter().filter(paused).collect();
            let letter = |(from, to)| {
                let role = worst(changes, from, to);
                let stands = role != Role::Down && during(&pauses, from, to);
                if stands { 'z' } else { role.letter() }
            };
            let row: String = columns().map(letter).collect();
            let _infallible = writeln!(text, "s{:<8} {row}", server.0);
        }
        let apart = |injection: &&Injection| matches!(injection.hit, Hit::Pairs(_));
        let cuts: Vec<&Injection> = injections.iter().filter(apart).collect();
        if !cuts.is_empty() {
            let letter = |(from, to)| if during(&cuts, from, to) { '#' } else { ' ' };
            let row: String = columns().map(letter).collect();
            let _infallible = writeln!(text, "cut       {row}");
        }
        // In seconds, the three labels of a run of few seconds, as after shrinking, would be equal.
        let in_ms = end.0 < 10_000_000_000;
        let (unit, ns) = if in_ms { ("ms", 1_000_000) } else { ("s", 1_000_000_000) };
        let [first, middle, last] = [0, end.0 / 2, end.0].map(|at| format!("{}{unit}", at / ns));
        let _infallible = writeln!(text, "{:10}{first:<HALF$}{middle:<HALF$}{last}", "");
        let _infallible = writeln!(text, "{:10}{LEGEND}", "");
        text
    }
}

/// Whether one of these faults lasts into the interval.
fn during(injections: &[&Injection], from: u64, to: u64) -> bool {
    injections.iter().any(|s| s.at.0 < to && s.until.is_some_and(|until| from < until.0))
}

fn worst(changes: &[(Instant, Role)], from: u64, to: u64) -> Role {
    let before = changes.partition_point(|(at, _)| at.0 <= from);
    let within = changes[before.saturating_sub(1)..].iter().take_while(|(at, _)| at.0 < to);
    within.map(|(_, role)| *role).min().unwrap_or(Role::Down)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagram_row_shows_worst_role_of_each_column() {
        let mut roles = Roles::default();
        let s1 = ServerId(1);
        roles.change(Instant(0), s1, Role::Looking);
        roles.change(Instant(10), s1, Role::Leads);
        roles.change(Instant(20), s1, Role::Leads);
        assert_eq!(roles.changes()[&s1].len(), 2, "a role that stays is no change");
        roles.change(Instant(505), s1, Role::Down);
        roles.change(Instant(507), s1, Role::Follows);
        let injection = |fault, hit, at, until| Injection {
            at: Instant(at),
            until: Some(Instant(until)),
            fault,
            hit,
        };
        let apart = Hit::Pairs(vec![(s1, ServerId(2))]);
        let injections = [
            injection(Fault::NetSplit, apart, 900, 950),
            injection(Fault::NodePause, Hit::Server(s1), 490, 530),
        ];
        let drawn = roles.draw(Instant(1_000), &injections);
        let rows: Vec<&str> = drawn.lines().collect();
        assert_eq!(rows[0], format!("s1        ?{}z-zz{}", "L".repeat(48), "f".repeat(47)));
        assert_eq!(rows[1], format!("cut       {}#####{}", " ".repeat(90), " ".repeat(5)));
        assert_eq!(rows[2].trim_start(), format!("0ms{:47}0ms{:47}0ms", "", ""));
        assert_eq!(rows[3..], [format!("{:10}{LEGEND}", "")]);
    }
}
