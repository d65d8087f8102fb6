//! What the page of the admin server shows, as data.
//!
//! Owns these types and what is collected in them. Must not decide who may see them: the question
//! brings a requester where that matters.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::Driver;
use super::super::metrics::letters;
use crate::ids::{Instant, ServerId, Zxid};
use crate::io::Now;
use crate::membership::Member;
use crate::progress::{ServerProgress, SyncState};
use crate::server::Server;
use crate::status::{SessionInfo, Status};

/// Records about faults that are shown among the warnings: of the last ten minutes, the newest.
const RECENT_MS: u64 = 600_000;
const WARNINGS: usize = 5;

/// A server as the page shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Version and date of the build.
    pub version: String,
    /// Wall clock, ms since 1970.
    pub now_ms: i64,
    /// Since the process began.
    pub uptime_ms: u128,
    /// The id of this server.
    pub id: u64,
    /// The role, as `srvr` prints it.
    pub mode: &'static str,
    /// Are clients served?
    pub serving: bool,
    /// The epoch of the history.
    pub epoch: u32,
    /// The last applied transaction.
    pub zxid: String,
    /// The last one that is known to be on a quorum.
    pub committed: String,
    /// The last one that is durable on this server.
    pub durable: String,
    /// Who leads; `None` if nobody does.
    pub leader: Option<LeaderShown>,
    /// What the server waits for while it serves nobody.
    pub waiting: Option<String>,
    /// The members of the ensemble; empty for a standalone server.
    pub members: Vec<MemberShown>,
    /// Numbers of things.
    pub counts: Counts,
    /// From reading a request to queueing its reply, since the start or `srst`.
    pub latency_ms: LatencyShown,
    /// The newest snapshot.
    pub snapshot: SnapshotShown,
    /// What an operator should see to.
    pub warnings: Vec<Warning>,
}

/// The leader.
#[derive(Clone, Debug, Serialize)]
pub struct LeaderShown {
    /// Its id.
    pub id: u64,
    /// Host and port for learners.
    pub address: String,
    /// Since when this server leads or follows it.
    pub since_ms_ago: Option<u128>,
    /// How that came about.
    pub why: Option<String>,
}

/// A member of the ensemble.
#[derive(Clone, Debug, Serialize)]
pub struct MemberShown {
    /// Its id.
    pub id: u64,
    /// `participant` or `observer`.
    pub role: &'static str,
    /// Host and port for learners.
    pub address: String,
    /// Host and port for clients; empty if its line has none.
    pub client_address: String,
    /// Is it this server?
    pub is_self: bool,
    /// Does it lead?
    pub is_leader: bool,
    /// How far it is; `unknown` on servers that do not lead.
    pub state: &'static str,
    /// Transactions of the leader that it does not have.
    pub behind: Option<u64>,
    /// How long it has lacked some of them.
    pub lag_ms: Option<u128>,
    /// The same in words.
    pub note: Option<String>,
}

/// Numbers of things on this server.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// Open connections of clients.
    pub connections: usize,
    /// Live global sessions.
    pub sessions: usize,
    /// Live local sessions.
    pub local_sessions: usize,
    /// Nodes.
    pub znodes: usize,
    /// Ephemeral nodes.
    pub ephemerals: usize,
    /// Watches.
    pub watches: usize,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Requests read and not answered.
    pub outstanding: u64,
}

/// Latency in ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyShown {
    /// The least.
    pub min: u128,
    /// The mean.
    pub avg: f64,
    /// The greatest.
    pub max: u128,
}

/// The newest snapshot.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotShown {
    /// Its zxid.
    pub zxid: String,
    /// Snapshots on the disk.
    pub count: usize,
    /// Is one being written?
    pub running: bool,
}

/// Something that an operator should see to.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// `warn` or `info`.
    pub level: &'static str,
    /// What is the matter.
    pub text: String,
    /// What to do.
    pub what_to_do: Option<String>,
}

/// Counters at one time, for charts: the page's server takes one each second.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Now,
    /// Requests read since the start or `srst`.
    pub received: u64,
    /// Answers and events queued since then.
    pub sent: u64,
    /// The last applied transaction.
    pub zxid: Zxid,
    /// Number of measured latencies, their sum in us, and the greatest since the last sample, us.
    pub latency: (u64, u128, u128),
    /// Requests read and not answered.
    pub outstanding: u64,
    /// Open connections.
    pub connections: usize,
    /// Of a leader: how long each other server has lacked transactions, ms.
    pub lag_ms: BTreeMap<u64, u128>,
}

/// A session with the connection that it has on this server.
#[derive(Clone, Debug, Serialize)]
pub struct SessionShown {
    /// The session.
    pub id: String,
    /// Its timeout.
    pub timeout_ms: u32,
    /// The server that its client has connected to last.
    pub server: Option<u64>,
    /// When it expires unless the client sends something; only the leader knows.
    pub expires_in_ms: Option<u128>,
    /// The address of its client; further fields exist only if it is connected to this server.
    pub address: Option<String>,
    /// Requests read.
    pub received: u64,
    /// Answers and events queued.
    pub sent: u64,
    /// Latency of its requests.
    pub latency_ms: LatencyShown,
    /// Requests not answered yet.
    pub outstanding: u32,
    /// ZooKeeper's name of the last operation.
    pub last_operation: &'static str,
    /// When the connection was accepted, ms since 1970.
    pub established_ms: Option<i64>,
}

impl Driver {
    pub(super) fn overview(&self, server: &Server, status: &Status, now: Now) -> Overview {
        let figures = self.four_letter.figures(&self.clients, status, now.mono);
        let progress = server.progress(now.mono);
        let latency = &figures.metrics.latency;
        Overview {
            version: figures.options.version_text(),
            now_ms: now.wall.0,
            uptime_ms: figures.uptime.as_millis(),
            id: status.id.0,
            mode: figures.mode(),
            serving: status.serving,
            epoch: status.current_epoch.0,
            zxid: figures.last_zxid().to_string(),
            committed: status.committed.to_string(),
            durable: status.durable.to_string(),
            leader: self.leader_shown(status, now.mono),
            waiting: self.reports.waiting_text(server, &self.peers),
            members: self.members_shown(status, &progress),
            counts: Counts {
                connections: figures.connections,
                sessions: status.sessions,
                local_sessions: status.local_sessions,
                znodes: status.nodes,
                ephemerals: status.ephemerals,
                watches: status.watches,
                data_bytes: status.data_bytes,
                outstanding: figures.metrics.load.requests,
            },
            latency_ms: LatencyShown {
                min: latency.min_ms(),
                avg: latency.mean_ms(),
                max: latency.max_ms(),
            },
            snapshot: SnapshotShown {
                zxid: status.snapshot.to_string(),
                count: status.snapshots,
                running: status.snapshot_running,
            },
            warnings: self.warnings(server, status, &progress, now),
        }
    }

    fn leader_shown(&self, status: &Status, now: Instant) -> Option<LeaderShown> {
        let id = status.leader?;
        let member =
            self.ensemble().and_then(|ensemble| ensemble.server(id).map(Member::quorum_address));
        let since = self.reports.role_since().map(|since| now.since(since).as_millis());
        Some(LeaderShown {
            id: id.0,
            address: member.unwrap_or_default(),
            since_ms_ago: since,
            why: self.reports.why_leader(),
        })
    }

    fn members_shown(&self, status: &Status, progress: &[ServerProgress]) -> Vec<MemberShown> {
        let Some(ensemble) = self.ensemble() else { return Vec::new() };
        let show = |member: &Member| {
            let of = progress.iter().find(|of| of.server == member.id);
            MemberShown {
                id: member.id.0,
                role: if member.observes { "observer" } else { "participant" },
                address: member.quorum_address(),
                client_address: self.client_address(member),
                is_self: member.id == status.id,
                is_leader: status.leader == Some(member.id),
                state: of.map_or("unknown", |of| state(of.state)),
                behind: of.and_then(|of| of.behind),
                lag_ms: of.map(|of| of.lag.as_millis()),
                note: of.map(ToString::to_string),
            }
        };
        ensemble.servers().map(show).collect()
    }

    fn warnings(
        &self,
        server: &Server,
        status: &Status,
        progress: &[ServerProgress],
        now: Now,
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |text: String, what_to_do: Option<&str>| {
            let what_to_do = what_to_do.map(str::to_owned);
            warnings.push(Warning { level: "warn", text, what_to_do });
        };
        if let Some(waiting) = self.reports.waiting_text(server, &self.peers) {
            let what = "start the servers that are missing, or see why they cannot be reached";
            warn(format!("this server serves nobody: {waiting}"), Some(what));
        }
        for of in progress.iter().filter(|of| of.server != status.id) {
            let what = match of.state {
                SyncState::Absent => {
                    "start it; if it runs, its log says why it does not reach the leader"
                }
                SyncState::Recovering => "restart no other server before it has caught up",
                SyncState::Joining | SyncState::Syncing => {
                    "wait until it has the history; until then it does not count in a quorum"
                }
                SyncState::Synced if of.lag.as_secs() >= 1 => {
                    "see whether its disk or the network to it is slow"
                }
                SyncState::Synced => continue,
            };
            warn(of.to_string(), Some(what));
        }
        if let Some(pending) = server.pending_reconfig(now.mono) {
            warn(pending.to_string(), None);
        }
        let recent = (now.mono.0 / 1_000_000).saturating_sub(RECENT_MS);
        let records = self.reports.recorder().all().filter(|record| record.level == "warn");
        let mut records: Vec<_> = records.filter(|record| record.mono_ms >= recent).collect();
        // Each kind once, the newest of it.
        records.reverse();
        let mut kinds = Vec::new();
        for record in records {
            if kinds.len() < WARNINGS && record.kind != "waiting" && !kinds.contains(&record.kind) {
                kinds.push(record.kind);
                warn(record.text.clone(), None);
            }
        }
        warnings
    }

    pub(super) fn sample(&mut self, server: &Server, status: &Status, now: Now) -> Sample {
        let lags = server.progress(now.mono);
        let lags = lags.iter().filter(|of| of.server != status.id && of.state == SyncState::Synced);
        let lag_ms = lags.map(|of| (of.server.0, of.lag.as_millis())).collect();
        let connections = self.clients.count();
        let metrics = self.clients.metrics_mut();
        Sample {
            at: now,
            received: metrics.received,
            sent: metrics.sent,
            zxid: status.applied,
            latency: metrics.latency.take_sample(),
            outstanding: metrics.load.requests,
            connections,
            lag_ms,
        }
    }

    pub(super) fn session_shown(
        &self,
        session: &SessionInfo,
        server: &Server,
        now: Instant,
    ) -> SessionShown {
        let line = server.conn_of(session.id).and_then(|conn| self.clients.line(conn));
        let latency = line.as_ref().map(|line| line.stats.latency).unwrap_or_default();
        let stats = line.as_ref().map(|line| line.stats).unwrap_or_default();
        SessionShown {
            id: session.id.to_string(),
            timeout_ms: session.timeout_ms,
            server: session.server.map(|ServerId(id)| id),
            expires_in_ms: session.expires.map(|at| at.since(now).as_millis()),
            address: line.as_ref().map(|line| line.peer.to_string()),
            received: stats.received,
            sent: stats.sent,
            latency_ms: LatencyShown {
                min: latency.min_ms(),
                avg: latency.mean_ms(),
                max: latency.max_ms(),
            },
            outstanding: line.as_ref().map_or(0, |line| line.unanswered),
            last_operation: stats.last_op.map_or("NA", letters),
            established_ms: line.map(|line| line.since.0),
        }
    }
}

fn state(state: SyncState) -> &'static str {
    match state {
        SyncState::Absent => "absent",
        SyncState::Joining => "joining",
        SyncState::Syncing => "syncing",
        SyncState::Synced => "synced",
        SyncState::Recovering => "recovering",
    }
}
