//! What a server is told about itself and its bounds; valid by construction.
//!
//! Owns every number that shapes the protocol: unit, default, range, reason. Must not parse files (`net-tokio` does)
//! nor hold anything that changes while the server runs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::AuthOptions;
use crate::ids::{ServerId, WallMs};
use crate::quorum::Voters;

/// Settings of one server, checked by [`Config::new`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    id: ServerId,
    voters: Voters,
    tick: Duration,
    session_timeout_min: Duration,
    session_timeout_max: Duration,
    init_limit: Duration,
    sync_limit: Duration,
    /// Bounds of queues and batches.
    pub limits: Limits,
    /// Kinds of nodes and quotas.
    pub tree: TreeOptions,
    /// Who is believed, and what that is worth.
    pub auth: AuthOptions,
    /// Sessions that are not known to the ensemble.
    pub sessions: SessionOptions,
    /// Who the members are, for whoever reads `/zookeeper/config` (DATA-27). Default: the node is empty.
    pub membership: Option<Membership>,
    /// Goes into the keys of all hash maps. Default: zero. Nothing that a server says or stores may depend on it; the
    /// simulator changes it to prove that.
    pub map_salt: u64,
}

/// What the node `/zookeeper/config` shows while membership does not change: every server answers with what it was told
/// itself, and stores nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// A line for each member, and the version of the whole.
    pub text: String,
    /// When the server was told so: at its start.
    pub since: WallMs,
}

/// Which nodes there may be, and what becomes of those that go by themselves. All servers of an ensemble should have
/// the same; the leader's count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeOptions {
    /// May nodes have a time to live (`extendedTypesEnabled`)? Default: no.
    pub extended_types: bool,
    /// Do hard quotas refuse writes (`enforceQuota`)? Default: no.
    pub enforce_quota: bool,
    /// How often the leader looks for containers and nodes whose time is over (`znode.container.checkIntervalMs`), ms,
    /// at least 1. Default 60,000.
    pub container_check_ms: u64,
    /// How many of them it deletes within a minute (`znode.container.maxPerMinute`), at least 1. Default 10,000.
    pub container_max_per_minute: u32,
    /// A container that never had a child goes after this time (`znode.container.maxNeverUsedIntervalMs`), ms; zero:
    /// never, the default.
    pub container_never_used_ms: u64,
}

/// Sessions that only the server knows which the client is connected to (SESS-14, SESS-15).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionOptions {
    /// Are new sessions local (`localSessionsEnabled`)? Default: no.
    pub local: bool,
    /// Is a local session made known to the ensemble when it needs to be (`localSessionsUpgradingEnabled`)? Default: no.
    pub upgrade: bool,
}

/// Bounds that keep queues and batches finite. The simulator draws unlikely ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Unanswered requests of one connection; the driver stops reading that socket at the bound. Default 1,000, as
    /// ZooKeeper's `globalOutstandingLimit`, but for each connection.
    pub requests_per_conn: u32,
    /// Bytes of transactions appended and not yet durable; above it the driver reads no client. Default 64 MiB:
    /// half a second of a slow disk.
    pub undurable_bytes: u64,
    /// Transactions between snapshots (`snapCount`): one is begun at a random count within half of it and all of it,
    /// so that replicas do not all snapshot at once. At least 2, default 100,000.
    pub snapshot_txns: u32,
    /// Bytes of transactions between snapshots (`snapSizeLimitInKb`): one is begun at a random size within half of it and all
    /// of it, however few transactions that are. Default 4 GiB.
    pub snapshot_bytes: u64,
    /// Servers compare fingerprints of their states at every zxid whose counter is a multiple of this. At least 1, default 1,000.
    /// All servers of an ensemble should have the same.
    pub compare_txns: u32,
    /// Bytes of one snapshot slice, about: what one step may spend on the snapshot. The first slice also carries all
    /// sessions and access control lists, and a node is never split. Default 128 KiB, which takes some 100 µs.
    pub snapshot_slice_bytes: u32,
    /// Snapshots kept; older ones and the log before them are removed. At least 1, default 3.
    pub snapshots_kept: u32,
    /// Transactions of one epoch; then the leader resigns and a new epoch goes on (ZAB-20). At least 1, at most what a
    /// zxid has room for, which is the default.
    pub epoch_txns: u32,
    /// How long connections are held while no leader is known, before they are closed as ZooKeeper does. Default:
    /// one tick.
    pub hold: Duration,
    /// How long a server that has a quorum's vote waits for the voters that have not spoken, who may know better.
    /// Default 20 ms: discovery compares histories anyway, so a hasty election costs another one, not safety.
    pub final_wait: Duration,
    /// A server that looks for a leader repeats itself after this time, then after twice as long, and so on up to
    /// `notify_max`. Default 100 ms.
    pub notify_min: Duration,
    /// See `notify_min`. Default 1 s.
    pub notify_max: Duration,
    /// Bytes of the newest transactions that are kept in memory for learners; what is older is read from the disk.
    /// Default 4 MiB.
    pub recent_bytes: u64,
    /// Bytes of one answer or one transaction, about. A small request may ask for far more than it holds: many large nodes
    /// at once, or lists made of many identities. Beyond this it is refused (-5). At most 192 MiB, because a link takes
    /// less than 256; default 64 MiB.
    pub record_bytes: usize,
    /// Bytes sent to a learner that catches up, before its connection has to drain. Default 1 MiB.
    pub bulk_bytes: u32,
    /// A learner that is behind is sent a snapshot, if there is one that is newer than what it has, rather than the log.
    /// Default no.
    pub prefer_snapshots: bool,
    /// Units of work after which a step leaves the rest to the next one; see [`Outbox`](crate::Outbox). At least 1. One
    /// request or transaction is never split. Default 5,000, which take some milliseconds.
    pub step_units: u64,
}

/// A setting that cannot be: the server does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The setting, as users know it.
    pub key: &'static str,
    /// What is wrong with which value, and what to do.
    pub what: String,
}

impl Limits {
    fn defaults(tick: Duration) -> Limits {
        Limits {
            requests_per_conn: 1_000,
            undurable_bytes: 64 << 20,
            snapshot_txns: 100_000,
            snapshot_bytes: 4 << 30,
            compare_txns: 1_000,
            snapshot_slice_bytes: 128 << 10,
            snapshots_kept: 3,
            epoch_txns: u32::MAX - 1,
            hold: tick,
            final_wait: Duration::from_millis(20),
            notify_min: Duration::from_millis(100),
            notify_max: Duration::from_secs(1),
            recent_bytes: 4 << 20,
            record_bytes: 64 << 20,
            bulk_bytes: 1 << 20,
            prefer_snapshots: false,
            step_units: 5_000,
        }
    }
}

impl TreeOptions {
    /// The highest server id where nodes may have a time to live (DATA-21).
    const ID_MAX: u64 = 254;
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions {
            extended_types: false,
            enforce_quota: false,
            container_check_ms: 60_000,
            container_max_per_minute: 10_000,
            container_never_used_ms: 0,
        }
    }
}

impl Config {
    /// A server `id` among `voters` with default limits; session timeouts are 2 to 20 ticks (HS-06), a leader has 10
    /// ticks to be established, and 5 to hear from a quorum.
    ///
    /// # Errors
    /// A tick of zero, or a server that is not among the voters.
    pub fn new(id: ServerId, voters: Voters, tick: Duration) -> Result<Config, ConfigError> {
        if tick.is_zero() {
            return Err(ConfigError { key: "tickTime", what: "0 ms is no tick; use 2000".into() });
        }
        let count = voters.set().len();
        if count > Voters::MAX {
            let what = format!("{count} servers vote; at most {} can", Voters::MAX);
            return Err(ConfigError { key: "server", what });
        }
        if !voters.contains(id) {
            let what = format!("server {id} is not among the servers listed");
            return Err(ConfigError { key: "myid", what });
        }
        Ok(Config {
            id,
            voters,
            tick,
            session_timeout_min: tick * 2,
            session_timeout_max: tick * 20,
            init_limit: tick * 10,
            sync_limit: tick * 5,
            limits: Limits::defaults(tick),
            tree: TreeOptions::default(),
            auth: AuthOptions::default(),
            sessions: SessionOptions::default(),
            membership: None,
            map_salt: 0,
        })
    }

    /// Other bounds for session timeouts (`minSessionTimeout`, `maxSessionTimeout`).
    ///
    /// # Errors
    /// A minimum above the maximum.
    pub fn with_session_timeouts(
        mut self,
        min: Duration,
        max: Duration,
    ) -> Result<Config, ConfigError> {
        if min > max {
            let what = format!(
                "{} ms is above maxSessionTimeout, {} ms",
                min.as_millis(),
                max.as_millis()
            );
            return Err(ConfigError { key: "minSessionTimeout", what });
        }
        self.session_timeout_min = min;
        self.session_timeout_max = max;
        Ok(self)
    }

    /// Other bounds for the ensemble's phases, in ticks (`initLimit`, `syncLimit`).
    ///
    /// # Errors
    /// A limit of zero.
    pub fn with_phase_limits(mut self, init: u32, sync: u32) -> Result<Config, ConfigError> {
        for (key, ticks) in [("initLimit", init), ("syncLimit", sync)] {
            if ticks == 0 {
                return Err(ConfigError { key, what: "0 ticks leave no time; use 5".into() });
            }
        }
        self.init_limit = self.tick * init;
        self.sync_limit = self.tick * sync;
        Ok(self)
    }

    /// Other kinds of nodes, and what becomes of them.
    ///
    /// # Errors
    /// Nodes with a time to live on a server whose number they need, or a pace of zero.
    pub fn with_tree(mut self, tree: TreeOptions) -> Result<Config, ConfigError> {
        if tree.extended_types && self.id.0 > TreeOptions::ID_MAX {
            let what = format!(
                "sessions of server {} would look like nodes with a time to live; give it a number up to {} \
                 (myid), or leave extendedTypesEnabled out",
                self.id,
                TreeOptions::ID_MAX
            );
            return Err(ConfigError { key: "extendedTypesEnabled", what });
        }
        if tree.container_check_ms == 0 {
            let what = "0 ms leave no time for anything else; use 60000".into();
            return Err(ConfigError { key: "znode.container.checkIntervalMs", what });
        }
        if tree.container_max_per_minute == 0 {
            let what = "with 0 no container would ever go; use 10000".into();
            return Err(ConfigError { key: "znode.container.maxPerMinute", what });
        }
        self.tree = tree;
        Ok(self)
    }

    /// How long election to service may take (`initLimit`).
    pub fn init_limit(&self) -> Duration {
        self.init_limit
    }

    /// How long a server that was elected waits for a quorum to connect: one tick. Whoever voted for it does so at once,
    /// so if they do not come they follow somebody else. Learners wait for twice as long.
    pub(crate) fn discovery_limit(&self) -> Duration {
        self.tick
    }

    /// How long leader and follower wait for a word of each other (`syncLimit`).
    pub fn sync_limit(&self) -> Duration {
        self.sync_limit
    }

    /// How old the newest proof of life may be that leader and follower have of each other: `syncLimit`, and the time from
    /// one ping to the next, because a proof is as old as the ping or the answer that it goes back to.
    pub fn silence_limit(&self) -> Duration {
        self.sync_limit + self.tick / 2
    }

    /// Who this server is.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// Who decides.
    pub fn voters(&self) -> &Voters {
        &self.voters
    }

    /// The unit of all timeouts (`tickTime`).
    pub fn tick(&self) -> Duration {
        self.tick
    }

    /// Smallest session timeout granted.
    pub fn session_timeout_min(&self) -> Duration {
        self.session_timeout_min
    }

    /// Largest session timeout granted.
    pub fn session_timeout_max(&self) -> Duration {
        self.session_timeout_max
    }

    /// The timeout granted to a client that asks for `asked_ms` (HS-06), in ms.
    pub fn negotiate(&self, asked_ms: i32) -> u32 {
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(i32::MAX as u32);
        let asked = u32::try_from(asked_ms).unwrap_or(0);
        asked.clamp(ms(self.session_timeout_min), ms(self.session_timeout_max))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_21_the_number_of_a_server_must_leave_room_for_times_to_live() {
        let on = || TreeOptions { extended_types: true, ..TreeOptions::default() };
        for (id, options, refused) in [
            (254, on(), None),
            (255, TreeOptions::default(), None),
            (255, on(), Some("extendedTypesEnabled")),
            (
                1,
                TreeOptions { container_check_ms: 0, ..on() },
                Some("znode.container.checkIntervalMs"),
            ),
            (
                1,
                TreeOptions { container_max_per_minute: 0, ..on() },
                Some("znode.container.maxPerMinute"),
            ),
        ] {
            let id = ServerId(id);
            let config = Config::new(id, Voters::new([id]), Duration::from_secs(1));
            let result = config.and_then(|config| config.with_tree(options));
            assert_eq!(result.err().map(|error| error.key), refused, "{id}");
        }
    }
}
