//! Settings and limits of one server, checked on construction.
//!
//! Owns every number that shapes the protocol: unit, default, range, reason. Must not parse files
//! (`net-tokio` does) nor hold anything that changes while the server runs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::AuthOptions;
use crate::ids::{ServerId, WallMs};
use crate::membership::{EnsembleConfig, Members, Voters};

/// The lower bound of [`Config::read_only_grace`], as in ZooKeeper.
const READ_ONLY_GRACE_MIN: Duration = Duration::from_secs(2);

/// Settings of one server, checked by [`Config::new`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    id: ServerId,
    members: Members,
    tick: Duration,
    session_timeout_min: Duration,
    session_timeout_max: Duration,
    init_limit: Duration,
    sync_limit: Duration,
    /// Bounds of queues and batches.
    pub limits: Limits,
    /// Kinds of nodes and quotas.
    pub tree: TreeOptions,
    /// Authentication schemes, superusers and how the server applies them.
    pub auth: AuthOptions,
    /// Local sessions: those that only one server knows.
    pub sessions: SessionOptions,
    /// Whether the server serves read-only clients while an election takes long
    /// (`readonlymode.enabled`). Default: no.
    pub read_only_mode: bool,
    /// Whether this server serves clients while it leads others (`leaderServes`, CONF-39). Default:
    /// yes.
    pub leader_serves: bool,
    /// Whether followers feed observers, and observers prefer a follower to the leader
    /// (`observerMasterPort`, CONF-18). Default: no.
    pub observer_masters: bool,
    /// Contents of `/zookeeper/config` (DATA-27). Default: the node is empty.
    pub membership: Option<Membership>,
    /// Reconfiguration, if it is enabled (`reconfigEnabled`, RECONF-01). Default: no.
    pub reconfig: Option<ReconfigOptions>,
    /// Whether an oracle can permit one of two voters to go on without the other (`oraclePath`,
    /// QV-03). Default: no.
    pub oracle: bool,
    /// Salt for the keys of all hash maps. Default: zero. Nothing that a server sends or stores may
    /// depend on it; the simulator varies it to prove that.
    pub map_salt: u64,
}

/// What the node `/zookeeper/config` shows, as long as membership is static: every server answers
/// from its own configuration and stores nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Membership {
    /// One line per member, then the version of the whole configuration.
    pub text: String,
    /// Wall-clock time of the server's start.
    pub since: WallMs,
}

/// What a server needs to know to reconfigure the ensemble.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReconfigOptions {
    /// The configuration of the files. Once a leader has established one, it is part of the
    /// replicated state, and the one with the higher version applies.
    pub initial: EnsembleConfig,
    /// May a reconfiguration leave a single voter, and change a single server (RECONF-07)? It may
    /// where `standaloneEnabled` is false.
    pub single_voter: bool,
    /// May a server have several addresses (`multiAddress.enabled`)? The same on all servers.
    pub multi_address: bool,
}

/// Which kinds of nodes clients may create, and how the leader deletes containers and TTL nodes.
/// All servers of an ensemble should have the same options; the leader's options apply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TreeOptions {
    /// Whether nodes may have a time to live (`extendedTypesEnabled`). Default: no.
    pub extended_types: bool,
    /// Whether hard quotas refuse writes (`enforceQuota`). Default: no.
    pub enforce_quota: bool,
    /// How often the leader looks for empty containers and expired TTL nodes
    /// (`znode.container.checkIntervalMs`), in ms, at least 1. Default 60,000.
    pub container_check_ms: u64,
    /// How many such nodes the leader deletes per minute (`znode.container.maxPerMinute`), at least
    /// 1. Default 10,000.
    pub container_max_per_minute: u32,
    /// The leader deletes a container that never had a child after this time
    /// (`znode.container.maxNeverUsedIntervalMs`), in ms. Zero, the default, means never.
    pub container_never_used_ms: u64,
}

/// Local sessions: only the server that the client is connected to knows them (SESS-14, SESS-15).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SessionOptions {
    /// Whether new sessions are local (`localSessionsEnabled`). Default: no.
    pub local: bool,
    /// Whether a local session becomes global when it needs to (`localSessionsUpgradingEnabled`).
    /// Default: no.
    pub upgrade: bool,
}

/// Bounds that keep queues and batches finite. The simulator picks extreme values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// Unanswered requests of one connection; at the bound the driver stops reading that socket.
    /// Default 1,000, as ZooKeeper's `globalOutstandingLimit`, but per connection.
    pub requests_per_conn: u32,
    /// Bytes of transactions that are appended but not durable; above the bound the driver reads
    /// from no client. Default 64 MiB: half a second of a slow disk.
    pub undurable_bytes: u64,
    /// Transactions between snapshots (`snapCount`). A snapshot begins after a random count between
    /// half of this and all of it, so that replicas do not all take one at once. At least 2,
    /// default 100,000.
    pub snapshot_txns: u32,
    /// Bytes of transactions between snapshots (`snapSizeLimitInKb`). A snapshot begins after a
    /// random size between half of this and all of it, regardless of the number of transactions.
    /// Default 4 GiB.
    pub snapshot_bytes: u64,
    /// Servers compare digests of their states at every zxid whose counter is a multiple of this.
    /// At least 1, default 1,000. All servers of an ensemble should have the same value.
    pub compare_txns: u32,
    /// Approximate bytes of one snapshot slice: the work that one step may spend on a snapshot. The
    /// first slice also carries all sessions and access control lists, and a node is never split.
    /// Default 128 KiB, which takes about 100 µs.
    pub snapshot_slice_bytes: u32,
    /// Snapshots kept; the server removes older ones and the log before them. At least 1, default
    /// 3.
    pub snapshots_kept: u32,
    /// Transactions per epoch; after these the leader resigns and a new epoch begins (ZAB-20). At
    /// least 1. The default is the maximum that a zxid has room for.
    pub epoch_txns: u32,
    /// How long the server holds new connections while it knows no leader, before it closes them as
    /// ZooKeeper does. Default: one tick.
    pub hold: Duration,
    /// How long a server that has a quorum's votes waits for better votes from the remaining
    /// voters. Default 20 ms: discovery compares histories anyway, so ending an election too early
    /// costs another election, but not safety.
    pub final_wait: Duration,
    /// A looking server resends its notifications after this time, then after twice as long, and so
    /// on up to `notify_max`. Default 100 ms.
    pub notify_min: Duration,
    /// See `notify_min`. Default 1 s.
    pub notify_max: Duration,
    /// Bytes of the newest transactions kept in memory for learners; older ones are read from the
    /// disk. Default 4 MiB.
    pub recent_bytes: u64,
    /// Approximate bytes of one answer or one transaction. A small request may cause a far larger
    /// answer, such as many large nodes at once or access control lists expanded to many ids. Above
    /// the limit the server refuses the request (-5). At most 192 MiB, because a link carries
    /// frames below 256 MiB; default 64 MiB.
    pub record_bytes: usize,
    /// Bytes in flight to a learner that catches up; above it the connection must drain first.
    /// Default 1 MiB.
    pub bulk_bytes: u32,
    /// Whether a learner that is behind gets a snapshot newer than its history, if there is one,
    /// instead of the log. Default: no.
    pub prefer_snapshots: bool,
    /// The largest DIFF from the log on the disk, in millionths of the size of the newest snapshot
    /// (`snapshotSizeFactor`): a learner that would need more gets the snapshot. With 0 a learner
    /// gets a DIFF only if memory holds it, or the newest snapshot is not newer than its history.
    /// Default 330,000, which is 0.33.
    pub snapshot_size_factor: u64,
    /// Units of work after which a step leaves the rest to the next step; see
    /// [`Outbox`](crate::Outbox). At least 1. One request or transaction is never split. Default
    /// 5,000, which take a few milliseconds.
    pub step_units: u64,
}

/// An invalid setting: the server does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The setting's name in `zoo.cfg` or `myid`.
    pub key: &'static str,
    /// What is wrong with which value, and how to correct it.
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
            snapshot_size_factor: 330_000,
            step_units: 5_000,
        }
    }
}

impl TreeOptions {
    /// The highest server id that permits TTL nodes (DATA-21).
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
    /// Configuration of server `id`, which is one of `members`, with default limits. Session
    /// timeouts are 2 to 20 ticks (HS-06), `initLimit` is 10 ticks and `syncLimit` 5.
    ///
    /// # Errors
    /// A tick of zero, too many voters, or a server that is not among the members.
    pub fn new(
        id: ServerId,
        members: impl Into<Members>,
        tick: Duration,
    ) -> Result<Config, ConfigError> {
        let members = members.into();
        if tick.is_zero() {
            return Err(ConfigError { key: "tickTime", what: "0 ms is no tick; use 2000".into() });
        }
        let count = members.voters().set().len();
        if count > Voters::MAX {
            let what = format!("{count} servers vote; at most {} can", Voters::MAX);
            return Err(ConfigError { key: "server", what });
        }
        if !members.contains(id) {
            let what = format!("server {id} is not among the servers listed");
            return Err(ConfigError { key: "myid", what });
        }
        Ok(Config {
            id,
            members,
            tick,
            session_timeout_min: tick * 2,
            session_timeout_max: tick * 20,
            init_limit: tick * 10,
            sync_limit: tick * 5,
            limits: Limits::defaults(tick),
            tree: TreeOptions::default(),
            auth: AuthOptions::default(),
            sessions: SessionOptions::default(),
            read_only_mode: false,
            leader_serves: true,
            observer_masters: false,
            membership: None,
            reconfig: None,
            oracle: false,
            map_salt: 0,
        })
    }

    /// Sets the bounds of session timeouts (`minSessionTimeout`, `maxSessionTimeout`).
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

    /// Sets the time limits of the protocol's phases, in ticks (`initLimit`, `syncLimit`).
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

    /// Sets the options for nodes.
    ///
    /// # Errors
    /// TTL nodes on a server whose id is above 254, or a container check interval or rate of zero.
    pub fn with_tree(mut self, tree: TreeOptions) -> Result<Config, ConfigError> {
        if tree.extended_types && self.id.0 > TreeOptions::ID_MAX {
            let what = format!(
                "sessions of server {} would look like nodes with a time to live; give it a number \
                 up to {} \
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

    /// Maximum time from election to service (`initLimit`).
    pub fn init_limit(&self) -> Duration {
        self.init_limit
    }

    /// How long an elected server waits for a quorum to connect: one tick. Servers that voted for
    /// it connect at once; if they are missing after a tick, they follow another server. Learners
    /// wait for two ticks.
    pub(crate) fn discovery_limit(&self) -> Duration {
        self.tick
    }

    /// How long leader and follower wait for a message from each other (`syncLimit`).
    pub fn sync_limit(&self) -> Duration {
        self.sync_limit
    }

    /// Maximum age of the newest heartbeat that leader and follower have from each other:
    /// `syncLimit` plus the ping interval, because a heartbeat's age counts from the ping or the
    /// answer that caused it.
    pub fn silence_limit(&self) -> Duration {
        self.sync_limit + self.tick / 2
    }

    /// How long a server looks for a leader before it serves read-only clients (RO-01); `None` if
    /// it never does. A server without others elects itself at once.
    pub(crate) fn read_only_grace(&self) -> Option<Duration> {
        let serves = self.read_only_mode && !self.members.alone();
        serves.then_some(self.tick.max(READ_ONLY_GRACE_MIN))
    }

    /// The id of this server.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// The voting members with which a server starts. A running server has its own copy.
    pub fn voters(&self) -> &Voters {
        self.members.voters()
    }

    /// All members with which a server starts.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The unit of all timeouts (`tickTime`).
    pub fn tick(&self) -> Duration {
        self.tick
    }

    /// Minimum session timeout granted.
    pub fn session_timeout_min(&self) -> Duration {
        self.session_timeout_min
    }

    /// Maximum session timeout granted.
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

    /// DATA-21.
    #[test]
    fn ttl_nodes_need_a_server_id_up_to_254() {
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
