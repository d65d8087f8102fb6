//! Lines of the operator's log: what the driver has to report, compared with what the simulator
//! sees of the server at the end of each turn.
//!
//! Owns what must have been reported. Must not know texts beyond the words that a reader looks for.

use std::time::Duration;

use zabkeeper_core::driver::{MemberAddresses, Report, ReportLevel};
use zabkeeper_core::{Config, Instant, Mode, ServerId, Status};

use super::operator::{ELECTION_PORT, QUORUM_PORT};
use super::*;

/// A server that serves no clients reports so after this time, and then as often as this.
const FIRST: Duration = Duration::from_secs(5);
const NEXT: Duration = Duration::from_secs(15);

/// What has been reported.
#[derive(Debug, Default)]
pub(super) struct Reported {
    role: Option<(Mode, Option<ServerId>, bool)>,
    not_serving_since: Option<Instant>,
    due: Option<Instant>,
}

/// The addresses of all members; none for a server that is alone.
pub(in crate::machine::node) fn members(config: &Config) -> BTreeMap<ServerId, MemberAddresses> {
    let address = |id: &ServerId| MemberAddresses {
        quorum: format!("10.0.1.{id}:{QUORUM_PORT}"),
        election: format!("10.0.1.{id}:{ELECTION_PORT}"),
    };
    let all = config.members().ids().map(|id| (id, address(&id))).collect();
    if config.members().alone() { BTreeMap::new() } else { all }
}

impl Process {
    /// O3: takes the lines of a turn that ends now.
    pub(super) fn check_reports(&mut self, now: Now, status: &Status, shared: &mut Shared) {
        let lines: Vec<Report> =
            std::iter::from_fn(|| self.driver.reports.next_line(now)).collect();
        let Some(reported) = &mut self.reported else { return };
        let role = reported.check_role(status, &lines);
        let silent = status.serving || status.halted.is_some() || self.stopping.is_some();
        let waiting = reported.check_waiting((status, silent), &lines, now.mono);
        let evidence = |what: String| format!("s{}: {what}", self.id);
        shared.check(Check::REPORTS, role.and(waiting).map_err(evidence));
    }
}

impl Reported {
    /// Each change of the role is reported once, with the leader.
    fn check_role(&mut self, status: &Status, lines: &[Report]) -> Result<(), String> {
        let role = (status.mode, status.leader, status.serving);
        let changes = self.role.replace(role) != Some(role);
        let mut of_role = lines.iter().filter(|line| line.kind == "role");
        let (reported, more) = (of_role.next(), of_role.next());
        let words: String = match (role, status.leader) {
            ((Mode::Follower | Mode::Observer, ..), None) => {
                return Err("a follower without a leader".into());
            }
            _ if !changes && reported.is_none() => return Ok(()),
            ((Mode::Looking, ..), _) => "looks for a leader epoch".into(),
            ((Mode::ReadOnly, ..), _) => "looks for a leader, and serves read-only".into(),
            ((Mode::Follower, _, false), Some(leader)) => format!("joins server {leader} "),
            ((Mode::Follower, _, true), Some(leader)) => format!("follows server {leader} "),
            ((Mode::Observer, _, false), _) => "joins server ".into(),
            ((Mode::Observer, _, true), _) => "observes server ".into(),
            ((Mode::Leader | Mode::Standalone, _, false), _) => "elected".into(),
            ((Mode::Leader | Mode::Standalone, _, true), _) => "leads".into(),
        };
        match (reported, more) {
            (Some(line), None) if changes && line.text.starts_with(&words) => Ok(()),
            _ => {
                let found = [reported, more];
                Err(format!("{role:?} now, changed: {changes}, and the log has {found:?}"))
            }
        }
    }

    /// A server that serves no clients reports so in time, and not more often than it should. One
    /// that is `silent` serves, has halted or stops, and does not report it.
    fn check_waiting(
        &mut self,
        (status, silent): (&Status, bool),
        lines: &[Report],
        now: Instant,
    ) -> Result<(), String> {
        let mut reports = lines.iter().filter(|line| line.kind == "waiting");
        let report = reports.next();
        if silent {
            (self.not_serving_since, self.due) = (None, None);
            return report.map_or(Ok(()), |report| Err(format!("{report:?} while {status:?}")));
        }
        let since = *self.not_serving_since.get_or_insert(now);
        let due = *self.due.get_or_insert(now.after(FIRST));
        if now < due {
            return report.map_or(Ok(()), |report| Err(format!("{report:?}, due at {due:?}")));
        }
        self.due = Some(now.after(NEXT));
        let head = format!("nobody is served for {} s: ", now.since(since).as_secs());
        match report {
            Some(report) if report.level == ReportLevel::Warn && report.text.starts_with(&head) => {
                Ok(())
            }
            _ => Err(format!("{head}is not reported, but {report:?}")),
        }
    }
}
