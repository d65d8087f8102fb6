//! What oracles may demand of servers with these settings: rules of requests, and bounds on time.
//!
//! Owns these derived figures. Must not look at a run: they are the same from its begin to its end.

use std::time::Duration;

use super::{Options, PeerOptions, ServerOptions};
use crate::check::ensemble;
use crate::check::model::{Rules, TimeoutBounds};
use crate::machine::fs::Pace;

impl Options {
    /// The servers' options that decide about requests.
    pub fn rules(&self) -> Rules {
        let tick = self.server.tick();
        Rules {
            auth: self.server.auth.clone(),
            tree: self.server.tree.clone(),
            local: self.local.clone(),
            membership: self.membership(),
            first_config: self.reconfigured().map(|first| {
                let lines = first.iter().map(|id| ensemble::line(*id, ensemble::PARTICIPANT));
                lines.collect()
            }),
            record_bytes: self.server.limits.record_bytes,
            epoch_txns: self.server.limits.epoch_txns,
            tick,
            sync_limit: self.server.sync_limit(),
            init_limit: tick * self.server.phase_ticks.0,
            begin_limit: tick * (1 + self.server.phase_ticks.0),
            commit_within: self.commit_within(),
            answer_within: self.answer_within(),
            timeouts: self.timeouts(),
        }
    }

    /// The session timeouts that servers grant.
    fn timeouts(&self) -> TimeoutBounds {
        let ServerOptions { tick_ms, session_ticks, other_sessions, other_session_ticks, .. } =
            &self.server;
        let ms = |(least, most): (u32, u32)| (tick_ms * least, tick_ms * most.max(least));
        let (usual_ms, others_ms) = (ms(*session_ticks), ms(*other_session_ticks));
        TimeoutBounds { usual_ms, others: other_sessions.clone(), others_ms }
    }

    /// About the minimum time in which servers of this world elect and establish a leader: a few
    /// messages each way, and a few syncs. Servers with shorter timeouts give each other up without
    /// any fault.
    pub fn shortest_timeout(&self) -> Duration {
        const MESSAGES: u64 = 4;
        const SYNCS: u64 = 6;
        let PeerOptions { link, .. } = self.peers;
        Duration::from_nanos(MESSAGES * (link.min + link.mean) + SYNCS * self.disk.sync_mean)
    }

    /// Bound on the duration of a write without faults: the slowest message four times, the slowest
    /// sync with its pause twice, the transfer of all requests that clients may have in flight, and
    /// a margin for other queues. Zero if the links' window cannot carry the load.
    fn commit_within(&self) -> Duration {
        // On a healthy disk one sync in a thousand takes a hundred times as long (seed 0x3b0080042
        // of the swarm with one server: ten seconds).
        self.commit_with(100)
    }

    /// The same where the slowest sync takes `slower` times as long as others.
    fn commit_with(&self, slower: u64) -> Duration {
        /// Worst factor of an exponential draw.
        const WORST: u64 = 7;
        const QUEUES: Duration = Duration::from_secs(2);
        /// Bytes of a request besides its data.
        const FRAME: u64 = 300;
        let PeerOptions { link, window, words_late_ms, .. } = self.peers;
        let pause = Duration::from_micros(self.server.log_pause_us);
        let tail = if link.tail_one_in > 0 { 100 } else { 1 };
        let slowest = Duration::from_nanos(link.min + link.mean * WORST * tail);
        let usual_ns = link.min + link.mean * tail.min(2);
        let carried = (window as u64 * 1_000_000_000 / usual_ns.max(1)).max(1);
        let one = self.workload.data_bytes as u64 + FRAME;
        if one * self.workload.calls_per_second * 4 > carried {
            return Duration::ZERO;
        }
        let burst = one * u64::from(self.clients) * self.workload.depth as u64 * 2;
        let burst = Duration::from_millis(burst * 1_000 / carried);
        let mean = self.disk.sync_mean;
        let sync = if self.disk.steady { mean } else { mean * WORST * slower };
        let sync = Duration::from_nanos(sync).min(Duration::from_secs(10));
        let late = Duration::from_millis(words_late_ms);
        QUEUES + slowest * 4 + (sync + pause) * 2 + burst + late
    }

    /// Bound on a client's wait if its server and a quorum with it are healthy: a commit, a tick
    /// for a ping before that, and its turn behind all other calls where each write has its own
    /// sync. A server whose sync takes much longer counts as unhealthy meanwhile.
    fn answer_within(&self) -> Duration {
        /// Maximum number of syncs per write without group commit.
        const SYNCS: u64 = 5;
        let commit = self.commit_with(SYNCS);
        if commit.is_zero() {
            return commit;
        }
        let Pace { sync_mean, .. } = self.disk;
        let calls = u64::from(self.clients) * self.workload.depth as u64;
        let pause = self.server.log_pause_us * 1_000;
        // A bound on the requests of all clients leaves few writes that could share a sync (seed
        // 0x112905000175 of the swarm at 29e97c2c: it was 2, and the log worker paused 0.3 s).
        let alone = self.server.batch_commands < usize::MAX
            || self.server.limits.undurable_bytes < ServerOptions::usual().limits.undurable_bytes
            || self.server.clients.throttle_max_requests > 0;
        let turns = if alone { calls } else { 0 };
        let turns = Duration::from_nanos(turns * (SYNCS * sync_mean + pause));
        commit + self.server.tick() + turns
    }
}
