//! Commands of the admin server (ADMIN rows): the commands, and their answers as data.
//!
//! Owns which answer a command gets, and how a long one is cut into parts, each of which costs the
//! serving thread little. Must not make text or HTTP of them: the host does. Must not read
//! anything but the server, the connections and the facts that come with the question.

mod answer;
mod command;
mod page;
#[cfg(test)]
mod tests;

use std::fmt;

use super::explain::{Explained, Question};
use super::four_letter::{Descriptors, DiskUse, Figures};
use super::metrics::{ConnStats, Sample as MetricSample, Sizes, letters};
use super::recorder::Record;
use super::{ClientLine, Driver};
use crate::error::ErrorCode;
use crate::ids::{Instant, SessionId, Zxid};
use crate::io::Now;
use crate::membership::{EnsembleConfig, Member, ServerAddress};
use crate::server::Server;
use crate::server::operators::{NodeShown, Refused, Requester};
use crate::status::{Mode, Status};

pub use answer::{
    Addresses, AdminAnswer, AdminCursor, AdminRow, BufferSizes, ConnectionRow, ConnectionSession,
    Observer, ServerStats, Stats, Voter, ZabState,
};
pub use command::AdminCommand;
pub use page::{
    Counts, LatencyShown, LeaderShown, MemberShown, Overview, Sample, SessionShown, SnapshotShown,
    Warning,
};

/// Rows of a part: some 100 microseconds of the serving thread.
const ROWS: usize = 250;

/// Records of an answer.
const EVENTS: usize = 500;

/// Bytes of a node's data that are shown.
const DATA_BYTES: usize = 4 << 10;

/// What the admin server asks.
#[derive(Debug)]
pub enum AdminQuestion {
    /// A command.
    Command(AdminCommand, AdminFacts),
    /// The next part of an answer.
    Rows(AdminCursor),
    /// What the page shows of the server.
    Overview,
    /// Counters for the charts of the page.
    Sample,
    /// Records with a later number than this, some hundred at most.
    Events(u64),
    /// Why something has happened.
    Explain(Question),
    /// Something that only an operator may see.
    Private(Requester, PrivateQuestion),
}

/// Something that only an operator may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PrivateQuestion {
    /// Only whether the requester is an operator.
    Authorize,
    /// Sessions after this one.
    Sessions(Option<SessionId>),
    /// A node, with children after this one.
    Node(String, Option<String>),
}

/// What the host knows and an answer needs, and the parameter of the command.
#[derive(Clone, Copy, Default, Debug)]
pub struct AdminFacts {
    /// Bytes in the two directories, for the commands that print them.
    pub disk: DiskUse,
    /// File descriptors, for `monitor`.
    pub descriptors: Option<Descriptors>,
    /// When the newest snapshot was written, seconds since 1970, for `last_snapshot`.
    pub snapshot_at: u64,
    /// `traceMask`, for `set_trace_mask`.
    pub trace_mask: i64,
}

/// What the admin server is told.
#[derive(Debug)]
pub enum AdminReply {
    /// The fields of the answer, and where its rows begin if it has some.
    Answer(AdminAnswer, Option<AdminCursor>),
    /// Rows, and where the next ones begin unless these are the last.
    Rows(Vec<AdminRow>, Option<AdminCursor>),
    /// There is no answer, for this reason.
    Error(AdminError),
    /// What the page shows of the server.
    Overview(Box<Overview>),
    /// Counters.
    Sample(Sample),
    /// Records, oldest first, and the number of the newest one that there is.
    Events(Vec<Record>, u64),
    /// An answer in words.
    Explained(Explained),
    /// Sessions, and whether there are more.
    Sessions(Vec<SessionShown>, bool),
    /// A node, and whether it has more children.
    Node(Box<NodeShown>, bool),
    /// There is no such node, or its list does not permit to read it.
    NodeError(ErrorCode),
    /// The requester is an operator.
    Authorized,
    /// The requester is none to whom this may be shown.
    Refused(Refused),
}

/// Why a command has no answer; the texts are ZooKeeper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminError {
    /// No clients are served.
    NotServing,
    /// A standalone server has no leader.
    NotInitialized,
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdminError::NotServing => "This ZooKeeper instance is not currently serving requests",
            AdminError::NotInitialized => "server is not initialized",
        })
    }
}

impl Driver {
    /// Answers the admin server. The host calls it between two turns, for a few questions at most.
    pub fn answer_admin(
        &mut self,
        question: AdminQuestion,
        server: &Server,
        now: Now,
    ) -> AdminReply {
        let (command, facts) = match question {
            AdminQuestion::Command(command, facts) => (command, facts),
            AdminQuestion::Rows(cursor) => return self.rows(cursor, server),
            AdminQuestion::Overview => {
                let overview = self.overview(server, &server.status(), now);
                return AdminReply::Overview(Box::new(overview));
            }
            AdminQuestion::Sample => {
                return AdminReply::Sample(self.sample(server, &server.status(), now));
            }
            AdminQuestion::Events(seq) => {
                let recorder = self.reports.recorder();
                let records = recorder.after(seq).take(EVENTS).cloned().collect();
                return AdminReply::Events(records, recorder.last());
            }
            AdminQuestion::Explain(question) => {
                return AdminReply::Explained(self.explain(question, server, now));
            }
            AdminQuestion::Private(requester, question) => {
                return self.private(&requester, question, server, now);
            }
        };
        let status = server.status();
        let serves = status.serving || status.mode == Mode::ReadOnly;
        if command.needs_service() && !serves {
            return AdminReply::Error(AdminError::NotServing);
        }
        let mut cursor = None;
        let answer = match command {
            AdminCommand::ConnectionStatReset => {
                self.clients.reset_conn_stats();
                AdminAnswer::Empty {}
            }
            AdminCommand::StatReset => {
                self.clients.metrics_mut().reset();
                AdminAnswer::Empty {}
            }
            // The host adds what only it knows. Connections of observers have no statistics.
            AdminCommand::Environment
            | AdminCommand::InitialConfiguration
            | AdminCommand::ObserverConnectionStatReset
            | AdminCommand::Ruok
            | AdminCommand::SystemProperties => AdminAnswer::Empty {},
            AdminCommand::GetTraceMask => {
                AdminAnswer::TraceMask { tracemask: self.four_letter.trace_mask() }
            }
            AdminCommand::SetTraceMask => {
                self.four_letter.set_trace_mask(facts.trace_mask);
                AdminAnswer::TraceMask { tracemask: facts.trace_mask }
            }
            AdminCommand::Hash => AdminAnswer::Hash { digests: [] },
            AdminCommand::Dirs => AdminAnswer::Dirs {
                datadir_size: facts.disk.snapshots,
                logdir_size: facts.disk.log,
            },
            AdminCommand::IsReadOnly => {
                AdminAnswer::ReadOnly { read_only: status.mode == Mode::ReadOnly }
            }
            AdminCommand::LastSnapshot => AdminAnswer::LastSnapshot {
                zxid: format!("{:x}", status.snapshot.0),
                timestamp: facts.snapshot_at,
            },
            AdminCommand::Leader => match self.leader(&status) {
                Some(answer) => answer,
                None => return AdminReply::Error(AdminError::NotInitialized),
            },
            AdminCommand::Monitor => self.monitor(server, &status, facts, now),
            AdminCommand::Observers => self.observers(server, &status, now),
            AdminCommand::VotingView => self.voting_view(),
            AdminCommand::ZabState => self.zab_state(&status),
            AdminCommand::WatchSummary => {
                let summary = server.watch_summary();
                AdminAnswer::WatchSummary {
                    num_connections: summary.connections,
                    num_paths: summary.paths,
                    num_total_watches: summary.watches,
                }
            }
            AdminCommand::Configuration => self.configuration(&status, now),
            AdminCommand::ServerStats => self.stats(&status, facts, now),
            AdminCommand::Stats => {
                cursor = Some(AdminCursor::Connections { last: None, whole: false });
                self.stats(&status, facts, now)
            }
            AdminCommand::Connections => {
                cursor = Some(AdminCursor::Connections { last: None, whole: true });
                AdminAnswer::Empty {}
            }
            AdminCommand::Dump => {
                cursor = Some(AdminCursor::Sessions(None));
                AdminAnswer::Empty {}
            }
            AdminCommand::Watches => {
                cursor = Some(AdminCursor::Watches(Default::default()));
                AdminAnswer::Empty {}
            }
            AdminCommand::WatchesByPath => {
                cursor = Some(AdminCursor::WatchesByPath(Default::default()));
                AdminAnswer::Empty {}
            }
        };
        AdminReply::Answer(answer, cursor)
    }

    fn private(
        &self,
        requester: &Requester,
        question: PrivateQuestion,
        server: &Server,
        now: Now,
    ) -> AdminReply {
        let ids = match server.authorize(requester) {
            Ok(ids) => ids,
            Err(refused) => return AdminReply::Refused(refused),
        };
        match question {
            PrivateQuestion::Authorize => AdminReply::Authorized,
            PrivateQuestion::Sessions(last) => {
                let sessions = server.sessions_behind(last).take(ROWS);
                let shown = sessions.map(|of| self.session_shown(&of, server, now.mono));
                let shown: Vec<SessionShown> = shown.collect();
                let more = shown.len() == ROWS;
                AdminReply::Sessions(shown, more)
            }
            PrivateQuestion::Node(path, last) => {
                match server.show_node(&path, &ids, DATA_BYTES, last.as_deref(), ROWS) {
                    Ok(node) => {
                        let more = node.children.len() == ROWS;
                        AdminReply::Node(Box::new(node), more)
                    }
                    Err(code) => AdminReply::NodeError(code),
                }
            }
        }
    }

    fn configuration(&self, status: &Status, now: Now) -> AdminAnswer {
        let Figures { options, config, connections_per_ip, .. } =
            self.four_letter.figures(&self.clients, status, now.mono);
        AdminAnswer::Configuration {
            client_port: options.client_port,
            data_dir: options.data_dir.clone(),
            data_log_dir: options.log_dir.clone(),
            tick_time: config.tick().as_millis(),
            max_client_cnxns: connections_per_ip.unwrap_or(0),
            min_session_timeout: config.session_timeout_min().as_millis(),
            max_session_timeout: config.session_timeout_max().as_millis(),
            server_id: options.ensemble.as_ref().map_or(0, |_| config.id().0),
            client_port_listen_backlog: options.backlog,
        }
    }

    fn stats(&self, status: &Status, facts: AdminFacts, now: Now) -> AdminAnswer {
        let figures = self.four_letter.figures(&self.clients, status, now.mono);
        let Figures { options, metrics, .. } = &figures;
        let client_response = buffer_sizes(&metrics.responses);
        let read_only = status.mode == Mode::ReadOnly;
        let leads = status.mode == Mode::Leader;
        AdminAnswer::Stats(Box::new(Stats {
            version: options.version_text(),
            read_only,
            server_stats: ServerStats {
                packets_sent: metrics.sent,
                packets_received: metrics.received,
                client_response_stats: client_response,
                data_dir_size: facts.disk.snapshots,
                log_dir_size: facts.disk.log,
                provider_null: false,
                last_processed_zxid: figures.last_zxid().0,
                outstanding_requests: metrics.load.requests,
                server_state: figures.mode(),
                avg_latency: metrics.latency.mean_ms(),
                max_latency: metrics.latency.max_ms(),
                min_latency: metrics.latency.min_ms(),
                num_alive_client_connections: figures.connections,
                uptime: figures.uptime.as_millis(),
            },
            client_response,
            proposal_stats: leads.then(|| buffer_sizes(&metrics.proposals)),
            node_count: status.nodes,
        }))
    }

    fn monitor(
        &self,
        server: &Server,
        status: &Status,
        facts: AdminFacts,
        now: Now,
    ) -> AdminAnswer {
        let descriptors = facts.descriptors;
        let samples =
            self.four_letter.samples(&self.clients, server, status, descriptors, now.mono);
        AdminAnswer::Monitor(samples.iter().flat_map(MetricSample::lines).collect())
    }

    /// The members of the ensemble as `conf` shows them; `None` for a standalone server.
    fn ensemble(&self) -> Option<EnsembleConfig> {
        let ensemble = self.four_letter.options().ensemble.as_ref()?;
        EnsembleConfig::parse(&ensemble.membership).ok()
    }

    fn leader(&self, status: &Status) -> Option<AdminAnswer> {
        let (leader, ensemble) = (status.leader?, self.ensemble()?);
        let host = ensemble.server(leader).and_then(|member| member.addresses.first());
        Some(AdminAnswer::Leader {
            is_leader: leader == status.id,
            leader_id: leader.0,
            leader_ip: host.map_or_else(String::new, |address| address.host.clone()),
        })
    }

    fn observers(&self, server: &Server, status: &Status, now: Now) -> AdminAnswer {
        let progress = server.progress(now.mono);
        let observers = progress.iter().filter(|of| !of.votes && of.server != status.id);
        AdminAnswer::Observers {
            synced_observers: status.synced_observers,
            observers: observers
                .map(|of| Observer {
                    sid: of.server.0,
                    behind: of.behind,
                    lag_ms: of.lag.as_millis(),
                })
                .collect(),
        }
    }

    fn voting_view(&self) -> AdminAnswer {
        let ensemble = self.ensemble();
        let voters = ensemble.iter().flat_map(EnsembleConfig::servers);
        let voter = |member: &Member| {
            let text = |port: fn(&ServerAddress) -> u16| {
                let one = |of: &ServerAddress| Member::address(&of.host, &port(of));
                member.addresses.iter().map(one).collect()
            };
            let voter = Voter {
                server_addresses: text(|of| of.quorum_port),
                election_addresses: text(|of| of.election_port),
                client_address: self.client_address(member),
                learner_type: "participant",
            };
            (member.id.0, voter)
        };
        AdminAnswer::VotingView {
            current_config: voters.filter(|member| !member.observes).map(voter).collect(),
        }
    }

    /// Where a member serves clients. The line of this server need not say so.
    fn client_address(&self, member: &Member) -> String {
        let options = self.four_letter.options();
        match &member.client {
            Some((host, port)) => Member::address(host.as_deref().unwrap_or("0.0.0.0"), port),
            None if member.id == self.four_letter.own() => {
                Member::address(&options.client_host, &options.client_port)
            }
            None => String::new(),
        }
    }

    fn zab_state(&self, status: &Status) -> AdminAnswer {
        let Some(ensemble) = self.ensemble() else {
            return AdminAnswer::Alone { voting: false, zabstate: "" };
        };
        let own = ensemble.server(status.id);
        let zxid = status.applied.max(Zxid::start_of(status.current_epoch));
        AdminAnswer::ZabState(Box::new(ZabState {
            myid: status.id.0,
            is_leader: status.leader == Some(status.id),
            quorum_address: addresses(own, |of| of.quorum_port),
            election_address: addresses(own, |of| of.election_port),
            client_address: own.map_or_else(String::new, |own| self.client_address(own)),
            voting: own.is_some_and(|member| !member.observes),
            last_zxid: zxid.to_string(),
            zab_epoch: zxid.epoch().0.into(),
            zab_counter: zxid.counter().into(),
            zabstate: match (status.mode, status.serving) {
                (Mode::Looking | Mode::ReadOnly, _) => "election",
                (Mode::Follower | Mode::Observer, false) => "synchronization",
                (Mode::Leader | Mode::Standalone, false) => "discovery",
                (Mode::Standalone | Mode::Leader | Mode::Follower | Mode::Observer, true) => {
                    "broadcast"
                }
            },
        }))
    }

    fn rows(&self, cursor: AdminCursor, server: &Server) -> AdminReply {
        let mut rows = Vec::new();
        let session = |conn| self.clients.session(conn).unwrap_or_default();
        let next = match cursor {
            AdminCursor::Connections { mut last, whole } => {
                let behind = self.clients.lines_behind(last).take(ROWS);
                rows.extend(behind.map(|(id, line)| {
                    last = Some(id);
                    AdminRow::Connection(connection(&line, whole))
                }));
                (rows.len() == ROWS).then_some(AdminCursor::Connections { last, whole })
            }
            AdminCursor::Sessions(mut last) => {
                let mut listed = 0;
                for session in server.sessions_behind(last).take(ROWS) {
                    (last, listed) = (Some(session.id), listed + 1);
                    // A session without a deadline is closing, or another server decides.
                    let row = |at: Instant| AdminRow::Expiry(at.0 / 1_000_000, session.id);
                    rows.extend(session.expires.map(row));
                }
                Some(if listed == ROWS {
                    AdminCursor::Sessions(last)
                } else {
                    AdminCursor::Ephemerals(None)
                })
            }
            AdminCursor::Ephemerals(mut last) => {
                let behind = last.as_ref().map(|(session, path)| (*session, path.as_str()));
                let nodes = server.ephemerals_behind(behind).take(ROWS);
                rows.extend(nodes.map(|(session, path)| AdminRow::Ephemeral(session, path.into())));
                if let Some(AdminRow::Ephemeral(session, path)) = rows.last() {
                    last = Some((*session, path.clone()));
                }
                (rows.len() == ROWS).then_some(AdminCursor::Ephemerals(last))
            }
            AdminCursor::Watches(mut at) => {
                let more = server.list_watches_by_conn(&mut at, ROWS, |conn, path| {
                    rows.push(AdminRow::Watch(session(conn), path.to_owned()));
                });
                more.then_some(AdminCursor::Watches(at))
            }
            AdminCursor::WatchesByPath(mut at) => {
                let more = server.list_watches_by_path(&mut at, ROWS, |path, conn| {
                    rows.push(AdminRow::Watcher(path.to_owned(), session(conn)));
                });
                more.then_some(AdminCursor::WatchesByPath(at))
            }
        };
        AdminReply::Rows(rows, next)
    }
}

fn buffer_sizes(sizes: &Sizes) -> BufferSizes {
    let [last_buffer_size, min_buffer_size, max_buffer_size] = sizes.last_min_max();
    BufferSizes { last_buffer_size, min_buffer_size, max_buffer_size }
}

fn addresses(member: Option<&Member>, port: fn(&ServerAddress) -> u16) -> Addresses {
    let known = member.map_or(&[][..], |member| &member.addresses);
    let all: Vec<String> = known.iter().map(|of| Member::address(&of.host, &port(of))).collect();
    Addresses {
        empty: all.is_empty(),
        wildcard_addresses: known.iter().map(|of| format!("0.0.0.0:{}", port(of))).collect(),
        all_ports: known.iter().map(port).collect(),
        all_host_strings: known.iter().map(|of| of.host.clone()).collect(),
        one: all.first().cloned().unwrap_or_default(),
        all_addresses: all,
    }
}

fn connection(line: &ClientLine, whole: bool) -> ConnectionRow {
    let ConnStats { latency, last_op, last_xid, last_zxid, last_response, .. } = line.stats;
    let session = line.served.filter(|_| whole).map(|served| ConnectionSession {
        session_id: served.session.0,
        last_operation: last_op.map_or("NA", letters),
        established: line.since.0,
        session_timeout: served.timeout_ms,
        last_cxid: last_xid.unwrap_or(-1),
        last_zxid: last_zxid.unwrap_or(-1),
        last_response_time: last_response.map_or(0, |at| at.0 / 1_000_000),
        last_latency: latency.last_ms(),
        min_latency: latency.min_ms(),
        avg_latency: latency.mean_whole_ms(),
        max_latency: latency.max_ms(),
    });
    ConnectionRow {
        remote_socket_address: line.peer.to_string(),
        interest_ops: u8::from(line.reading) + 4 * u8::from(line.writing),
        outstanding_requests: line.unanswered,
        packets_received: line.stats.received,
        packets_sent: line.stats.sent,
        session,
    }
}
