//! What operators read in the log of a server, beside its start and its end.
//!
//! Owns which events become a line, their texts, and when a server that serves no clients reports
//! what it waits for. Must not write: the host does, and bounds the lines of each kind.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use super::clients::Clients;
use super::close::ConnCloseReason;
use super::explain;
use super::limits::ClientLimits;
use super::note::ClientNote;
use super::peers::{PeerCloseReason, PeerNote, Peers};
use super::recorder::FlightRecorder;
use crate::config::Config;
use crate::ids::{Instant, ServerId, SessionId, Zxid};
use crate::io::{Now, Outbox};
use crate::mark::Mark;
use crate::membership::Member;
use crate::notice::Notice;
use crate::peer::greeting::{Channel, Refusal};
use crate::progress::PendingReconfig;
use crate::server::Server;
use crate::status::{Mode, Status};

/// How long a server waits for others before it reports so.
const FIRST_REPORT: Duration = Duration::from_secs(5);

/// How often it reports so afterwards.
const NEXT_REPORT: Duration = Duration::from_secs(15);

/// How long a reconfiguration waits before its leader reports it. The time doubles with each
/// report.
const FIRST_RECONFIG_REPORT: Duration = Duration::from_secs(5);

/// The longest time between two reports of that.
const LAST_RECONFIG_REPORT: Duration = Duration::from_secs(300);

/// A line for the operator's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its level.
    pub level: ReportLevel,
    /// What kind of line it is, from a small set: the host may bound the lines of each kind.
    pub kind: &'static str,
    /// The server that it is about, if another one; each has a bound of its own.
    pub server: Option<ServerId>,
    /// The line.
    pub text: String,
}

/// The level of a [`Report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportLevel {
    /// Something that continues, or that is no fault.
    Debug,
    /// A change.
    Info,
    /// Something that an operator should see to.
    Warn,
}

/// The addresses of a member, as its `server.N` line has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberAddresses {
    /// Host and port for learners.
    pub quorum: String,
    /// Host and port for election notifications.
    pub election: String,
}

impl MemberAddresses {
    /// The addresses in this line, with the server's id.
    pub fn of(member: &Member) -> (ServerId, MemberAddresses) {
        let (quorum, election) = (member.quorum_address(), member.election_address());
        (member.id, MemberAddresses { quorum, election })
    }
}

/// The lines that the host has not taken yet, and what was reported last.
#[derive(Debug)]
pub struct Reports {
    own: ServerId,
    record_bytes: usize,
    /// All members of the ensemble; empty for a standalone server, which waits for no other.
    members: BTreeMap<ServerId, MemberAddresses>,
    lines: VecDeque<Report>,
    recorder: FlightRecorder,
    role_since: Instant,
    reported_role: Option<(Mode, Option<ServerId>, bool)>,
    /// While no client is served: since when, and when that is reported next.
    waiting: Option<(Instant, Instant)>,
    /// While a reconfiguration waits: its version, when that is reported next, and the pause after
    /// that.
    pending_reconfig: Option<(Zxid, Instant, Duration)>,
}

impl Reports {
    pub(super) fn new(config: &Config) -> Reports {
        Reports {
            own: config.id(),
            record_bytes: config.limits.record_bytes,
            members: BTreeMap::new(),
            lines: VecDeque::new(),
            recorder: FlightRecorder::default(),
            role_since: Instant::default(),
            reported_role: None,
            waiting: None,
            pending_reconfig: None,
        }
    }

    pub(super) fn set_members(&mut self, members: BTreeMap<ServerId, MemberAddresses>) {
        self.members = members;
    }

    /// The next line, which the flight recorder keeps, too.
    pub fn next_line(&mut self, now: Now) -> Option<Report> {
        let report = self.lines.pop_front()?;
        self.recorder.add(&report, now);
        Some(report)
    }

    /// What has been reported lately.
    pub fn recorder(&self) -> &FlightRecorder {
        &self.recorder
    }

    /// Why this server left the leader before the present one.
    pub(super) fn why_leader(&self) -> Option<String> {
        explain::why_leader(&self.recorder)
    }

    /// What the server waits for, and what keeps it from the others; `None` if it serves clients
    /// or has halted.
    pub(super) fn waiting_text(&self, server: &Server, peers: &Peers) -> Option<String> {
        let waiting = server.waiting()?;
        Some(format!("{waiting}{}", self.unreachable(peers)))
    }

    /// Since when the role is what it is; `None` before the first turn and for a standalone server.
    pub(super) fn role_since(&self) -> Option<Instant> {
        self.reported_role.map(|_| self.role_since)
    }

    /// When the server has to report that it, or a reconfiguration, still waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.map(|(_, at)| at);
        waiting.into_iter().chain(self.pending_reconfig.map(|(_, at, _)| at)).min()
    }

    fn push(&mut self, level: ReportLevel, kind: &'static str, text: String) {
        self.lines.push_back(Report { level, kind, server: None, text });
    }

    fn push_about(
        &mut self,
        server: ServerId,
        level: ReportLevel,
        kind: &'static str,
        text: String,
    ) {
        self.lines.push_back(Report { level, kind, server: Some(server), text });
    }

    /// The core's notices, before the connections that they name are closed.
    pub(super) fn on_outbox(&mut self, out: &Outbox, clients: &Clients) {
        for notice in &out.notices {
            let (level, kind) = match notice {
                Notice::Loading { .. } => (ReportLevel::Info, "loading"),
                Notice::LeavesLeader { .. } => (ReportLevel::Info, "leaves"),
                Notice::ExpiryProposed { .. } => (ReportLevel::Info, "expires"),
                Notice::ExpiredConnClosed { conn, .. } => {
                    let peer = clients.peer(*conn);
                    let from = peer.map_or_else(String::new, |peer| format!(" from {peer}"));
                    self.push(ReportLevel::Info, "expired", format!("{notice}{from}"));
                    continue;
                }
                Notice::VotersDiffer { .. } => (ReportLevel::Warn, "voters"),
                Notice::Reconfigured { .. } => (ReportLevel::Info, "reconfigured"),
                Notice::StatesDiffer { .. } => (ReportLevel::Warn, "differ"),
                Notice::ConfigHeld { .. } => (ReportLevel::Warn, "older releases"),
                Notice::ReconfigRefused { .. } => (ReportLevel::Warn, "reconfiguration refused"),
                Notice::GoesOnAlone => (ReportLevel::Warn, "alone"),
            };
            self.push(level, kind, notice.to_string());
        }
        if out.marks.contains(Mark::RecordTooLarge) {
            let text = format!(
                "refused a request (-5): the answer or the transaction would be larger than \
                 {} bytes (at least 64 MiB, and half as much again as jute.maxbuffer); request less \
                 at once, or raise jute.maxbuffer",
                self.record_bytes
            );
            self.push(ReportLevel::Warn, "too large", text);
        }
    }

    /// A connection with a client has ended.
    pub(super) fn on_client_closed(
        &mut self,
        peer: SocketAddr,
        session: Option<SessionId>,
        why: &ConnCloseReason,
    ) {
        let of = session.map_or_else(String::new, |session| format!(" of session {session}"));
        if let Some(kind) = why.fault() {
            let text = format!("closed the connection from {peer}{of}: {why}");
            self.push(ReportLevel::Warn, kind, text);
        } else {
            let text = format!("the connection from {peer}{of} has ended: {why}");
            self.push(ReportLevel::Debug, "ended", text);
        }
    }

    /// What has happened with clients, beside the ends of connections.
    pub(super) fn on_client_note(&mut self, note: &ClientNote, limits: &ClientLimits) {
        match note {
            ClientNote::Handshake(..) => {}
            ClientNote::Overloaded { under_way } => {
                let text = match limits.throttle_max_requests.filter(|bound| under_way >= bound) {
                    Some(bound) => format!(
                        "clients have to wait: {under_way} requests are under way, all that \
                         request_throttle_max_requests={bound} allows; raise it, or 0 for no bound"
                    ),
                    None => format!(
                        "clients with unanswered requests have to wait: {under_way} requests are \
                         under way, above this server's {} of globalOutstandingLimit; raise it",
                        limits.outstanding
                    ),
                };
                self.push(ReportLevel::Info, "overloaded", text);
            }
            ClientNote::OpWaitedTooLong { waited, op_wait_max } => {
                let text = format!(
                    "refused a request (-127) that had waited {} ms for its turn, more than \
                     throttled_op_wait_time={}; raise it or request_throttle_max_requests, or set \
                     it to 0",
                    waited.as_millis(),
                    op_wait_max.as_millis()
                );
                self.push(ReportLevel::Warn, "waited", text);
            }
            ClientNote::Complaint(peer, what) => {
                let text = format!("closed the connection from {peer}: {what}");
                self.push(ReportLevel::Warn, "complaint", text);
            }
        }
    }

    /// What has happened with connections between servers.
    pub(super) fn on_peer_note(&mut self, note: &PeerNote) {
        match note {
            PeerNote::Up { link, server, dialled } => {
                let how = if *dialled { "dialled" } else { "accepted" };
                let text = format!("link with server {server} is up, {how} link={link}");
                self.push_about(*server, ReportLevel::Info, "up", text);
            }
            PeerNote::Down { link, server, why } => {
                let text = format!("link with server {server} is down: {why} link={link}");
                self.push_about(*server, ReportLevel::Info, "down", text);
            }
            // The configuration may be wrong on either side, so this is not only the peer's affair.
            PeerNote::Rejected { from, why } => {
                let text = format!("closed the connection from {from}: {why}");
                self.push(ReportLevel::Warn, why.kind(), text);
            }
            PeerNote::DialFailed { server, channel, first, why } => {
                self.on_dial_failed(*server, *channel, *first, why);
            }
        }
    }

    fn on_dial_failed(
        &mut self,
        server: ServerId,
        channel: Channel,
        first: bool,
        why: &PeerCloseReason,
    ) {
        let at = self.address(server, channel);
        let (level, kind, text) = if let PeerCloseReason::Refused(refusal) = why {
            if let Refusal::Busy(_) = refusal {
                (ReportLevel::Debug, "busy", format!("server {server} at {at} is busy: {why}"))
            } else {
                // An operator has to end a refusal.
                let text = format!("no connection to server {server} at {at}: {why}");
                (ReportLevel::Warn, refusal.kind(), text)
            }
        } else {
            // Only the first failure is a change.
            let level = if first { ReportLevel::Info } else { ReportLevel::Debug };
            let still = if first { "" } else { "still " };
            (level, "unreachable", format!("{still}cannot reach server {server} at {at}: {why}"))
        };
        self.push_about(server, level, kind, text);
    }

    fn address(&self, server: ServerId, channel: Channel) -> &str {
        self.members.get(&server).map_or("", |member| match channel {
            Channel::Quorum => &member.quorum,
            Channel::Election => &member.election,
        })
    }

    /// The end of a turn: reports a change of the role, and a wait that has become long.
    pub(super) fn on_turn_end(
        &mut self,
        status: &Status,
        server: &Server,
        peers: &Peers,
        stops: bool,
        now: Instant,
    ) {
        if self.members.is_empty() {
            return;
        }
        let role = (status.mode, status.leader, status.serving);
        if self.reported_role != Some(role) {
            self.reported_role = Some(role);
            self.role_since = now;
            self.push(ReportLevel::Info, "role", role_text(status));
        }
        self.report_reconfig(server.pending_reconfig(now).as_ref(), now);
        if status.serving || stops || status.halted.is_some() {
            self.waiting = None;
            return;
        }
        let (since, at) = *self.waiting.get_or_insert((now, now.after(FIRST_REPORT)));
        if now < at {
            return;
        }
        self.waiting = Some((since, now.after(NEXT_REPORT)));
        if let Some(waiting) = self.waiting_text(server, peers) {
            let seconds = now.since(since).as_secs();
            let text = format!("nobody is served for {seconds} s: {waiting}");
            self.push(ReportLevel::Warn, "waiting", text);
        }
    }

    /// Reports a reconfiguration that has waited for long, with the servers that it waits for.
    fn report_reconfig(&mut self, pending: Option<&PendingReconfig>, now: Instant) {
        let Some(pending) = pending else {
            self.pending_reconfig = None;
            return;
        };
        let first = FIRST_RECONFIG_REPORT;
        let known = self.pending_reconfig.filter(|(version, _, _)| *version == pending.version);
        let begun = || (pending.version, now.after(first.saturating_sub(pending.waited)), first);
        let (version, at, pause) = known.unwrap_or_else(begun);
        self.pending_reconfig = Some((version, at, pause));
        if now >= at {
            let next = (version, now.after(pause), (pause * 2).min(LAST_RECONFIG_REPORT));
            self.pending_reconfig = Some(next);
            self.push(ReportLevel::Warn, "reconfiguration waits", pending.to_string());
        }
    }

    /// What keeps this server from each other one.
    fn unreachable(&self, peers: &Peers) -> String {
        let own = self.members.get(&self.own).map(|member| &*member.election);
        let mut text = String::new();
        for id in self.members.keys().filter(|id| **id != self.own) {
            let written = match (peers.failure(*id), own) {
                (Some((channel, why)), _) => {
                    let at = self.address(*id, *channel);
                    write!(text, "; cannot reach server {id} at {at}: {why}")
                }
                (None, Some(own)) if !peers.receives_notifications_from_us(*id) => write!(
                    text,
                    "; server {id} has not connected to this server, which its zoo.cfg should \
                     have at {own}"
                ),
                (None, _) => Ok(()),
            };
            written.expect("a String takes any text");
        }
        text
    }
}

/// What a server of an ensemble does now.
fn role_text(status: &Status) -> String {
    let (epoch, zxid) = (status.current_epoch, status.appended);
    let leader = status.leader.map_or_else(String::new, |id| format!("server {id}"));
    let does = match (status.mode, status.serving) {
        (Mode::Looking, _) => "looks for a leader".to_owned(),
        (Mode::ReadOnly, _) => "looks for a leader, and serves read-only clients".to_owned(),
        (Mode::Follower, false) => format!("joins {leader}"),
        (Mode::Follower, true) => format!("follows {leader}"),
        (Mode::Observer, false) => format!("joins {leader} as observer"),
        (Mode::Observer, true) => format!("observes {leader}"),
        (Mode::Leader | Mode::Standalone, false) => "elected, gathers a quorum".to_owned(),
        (Mode::Leader | Mode::Standalone, true) => "leads".to_owned(),
    };
    format!("{does} epoch={epoch} zxid={zxid}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::ReconfigOptions;
    use crate::driver::{Driver, PeerOptions, TurnLimits};
    use crate::io::Now;
    use crate::membership::{EnsembleConfig, Voters};
    use crate::store::Recovered;

    /// One of three servers, which reaches no other server, and its driver.
    fn alone_of_three(named: bool) -> (Server, Driver) {
        alone_with(named, None)
    }

    fn alone_with(named: bool, reconfig: Option<ReconfigOptions>) -> (Server, Driver) {
        let ids = [1, 2, 3].map(ServerId);
        let voters = Voters::new(ids);
        let mut config = Config::new(ids[0], voters, Duration::from_secs(2)).expect("it is valid");
        config.reconfig = reconfig;
        let server = Server::recover(config.clone(), 7, Recovered::default()).expect("it is empty");
        let (limits, turn) = (ClientLimits::default(), TurnLimits::default());
        let peers = PeerOptions::new(limits.max_frame);
        let driver = Driver::new(Arc::new(config), limits, peers, turn, 7, Instant(0));
        let member = |id: ServerId| {
            let (quorum, election) = (format!("host{id}:2888"), format!("host{id}:3888"));
            (id, MemberAddresses { quorum, election })
        };
        let members = if named { ids.map(member).into() } else { BTreeMap::new() };
        (server, driver.with_members(members))
    }

    fn lines_at(server: &Server, driver: &mut Driver, ms: u64) -> Vec<String> {
        let now = Now { mono: Instant(ms * 1_000_000), ..Now::default() };
        driver.deliver(now, server, &mut Outbox::default());
        std::iter::from_fn(|| driver.reports.next_line(now)).map(|line| line.text).collect()
    }

    #[test]
    fn server_that_waits_reports_after_five_seconds_and_every_fifteen() {
        let (server, mut driver) = alone_of_three(true);
        assert_eq!(lines_at(&server, &mut driver, 0), ["looks for a leader epoch=0 zxid=0x0"]);
        assert_eq!(driver.reports.next_deadline(), Some(Instant(5_000_000_000)));
        assert_eq!(lines_at(&server, &mut driver, 4_999), Vec::<String>::new());
        let reports = [5_000, 19_999, 20_000].map(|ms| lines_at(&server, &mut driver, ms));
        assert_eq!(reports[1], Vec::<String>::new());
        for (report, seconds) in [(&reports[0], 5), (&reports[2], 20)] {
            let [report] = &report[..] else { panic!("{report:?}") };
            let head = format!("nobody is served for {seconds} s: no leader yet: ");
            assert!(report.starts_with(&head), "{report}");
            let missing = "; server 2 has not connected to this server, which its zoo.cfg should \
                           have at host1:3888; server 3 has not";
            assert!(report.contains(missing), "{report}");
        }
    }

    /// RECONF-12.
    #[test]
    fn addresses_are_those_of_the_configuration_in_force() {
        let lines = "server.1=new:1:2\nserver.2=b:1:2\nserver.3=c:1:2:observer;4\nversion=7";
        let initial = EnsembleConfig::parse(lines).expect("valid");
        let options = ReconfigOptions { initial, single_voter: false, multi_address: false };
        let (server, mut driver) = alone_with(true, Some(options));
        lines_at(&server, &mut driver, 0);
        let report = lines_at(&server, &mut driver, 5_000).concat();
        assert!(report.contains("which its zoo.cfg should have at new:2; "), "{report}");
        let ensemble = driver.four_letter.options().ensemble.as_ref().expect("it is known");
        let ports = (&*ensemble.quorum_ports, &*ensemble.election_ports);
        assert_eq!((ports, ensemble.voters), (("1", "2"), 2));
        assert!(ensemble.membership.ends_with(":observer;0.0.0.0:4\nversion=7"));
    }

    #[test]
    fn reconfiguration_that_waits_is_reported_at_growing_intervals() {
        let (_, mut driver) = alone_of_three(true);
        let mut report = |version: u64, seconds: u64, waited: u64| {
            let (missing_old, missing_new) = (Vec::new(), Vec::new());
            let (version, waited) = (Zxid(version), Duration::from_secs(waited));
            let pending = PendingReconfig { version, waited, missing_old, missing_new };
            let now = Instant(seconds * 1_000_000_000);
            driver.reports.report_reconfig(Some(&pending), now);
            let lines = std::iter::from_fn(|| {
                driver.reports.next_line(Now { mono: now, ..Now::default() })
            });
            lines.map(|line| (line.kind, line.level)).collect::<Vec<_>>()
        };
        let reports = (100..=200).filter(|seconds| {
            let lines = report(7, *seconds, seconds - 100);
            let warning = [("reconfiguration waits", ReportLevel::Warn)];
            assert!(lines.is_empty() || lines == warning, "{lines:?}");
            !lines.is_empty()
        });
        assert_eq!(reports.collect::<Vec<_>>(), [105, 110, 120, 140, 180]);
        // Each reconfiguration has its own time.
        assert_eq!(report(8, 201, 1), []);
        assert_eq!(report(8, 205, 5).len(), 1);
        driver.reports.report_reconfig(None, Instant(206_000_000_000));
        assert_eq!(driver.reports.next_deadline(), None);
    }

    #[test]
    fn server_that_stops_does_not_report_that_it_waits() {
        let (server, mut driver) = alone_of_three(true);
        assert_eq!(lines_at(&server, &mut driver, 0).len(), 1);
        driver.stop();
        assert_eq!(lines_at(&server, &mut driver, 9_000), Vec::<String>::new());
        assert_eq!(driver.reports.next_deadline(), None);
    }

    #[test]
    fn standalone_server_reports_no_role() {
        let (server, mut driver) = alone_of_three(false);
        assert_eq!(lines_at(&server, &mut driver, 9_000), Vec::<String>::new());
    }
}
