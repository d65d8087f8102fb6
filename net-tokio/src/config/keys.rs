//! The keys of ZooKeeper, and how this server treats each.
//!
//! Owns the table of names: which keys may also be Java system properties, which have no effect and
//! why. Must not read values: `mod`, `members`, `access` and `limits` do.
//!
//! ZooKeeper's parser handles some keys itself and turns every other line into a system property
//! with the prefix `zookeeper.`. Operators write such keys in the file and as `-D` options, with
//! and without the prefix, so this server reads both.

/// How the server treats a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Supported; in the file only.
    Line,
    /// Supported; in the file or as a `-Dzookeeper.` option.
    Property,
    /// As `Property`, but as an option also without `zookeeper.`, as in ZooKeeper.
    BareProperty,
    /// No effect, because clients would see no difference; the text says why.
    Same(&'static str),
    /// Not supported yet.
    Later,
}

use Kind::{BareProperty, Later, Line, Property, Same};

const ONE_THREAD: &str = "one thread serves all connections";
const OWN_FILES: &str = "its own files need no such setting";
const JAVA: &str = "it is for Java only";
const BATCHES: &str = "writes are synced together as they come";
const NO_DELAY: &str = "servers never delay small packets";
const NO_THREAD: &str = "no thread waits for a socket";
const PAUSES: &str = "servers come back after pauses of 10 ms to 1 s";
const ONE_WINDOW: &str = "a learner that catches up occupies one window of its link";
const PROBES: &str = "the kernel always probes connections between servers";
const NO_WAIT: &str = "requests wait in their sockets, not in a queue";

const NO_QUEUE: &str = "metrics are counted where they arise";

/// Complete names of keys, in alphabetical order.
const KEYS: &[(&str, Kind)] = &[
    ("4lw.commands.whitelist", Property),
    ("DigestAuthenticationProvider.digestAlg", Property),
    ("DigestAuthenticationProvider.enabled", Property),
    ("DigestAuthenticationProvider.superDigest", Property),
    ("X509AuthenticationProvider.superUser", Property),
    ("admin.commandURL", Property),
    ("admin.enableServer", Property),
    ("admin.idleTimeout", Property),
    ("admin.serverAddress", Property),
    ("admin.serverPort", Property),
    ("allowSaslFailedClients", Later),
    ("audit.enable", Property),
    ("autopurge.purgeInterval", Same("old snapshots and logs are removed as soon as they can be")),
    ("autopurge.snapRetainCount", Line),
    ("bitHashCacheSize", Same("there is one kind of watch table")),
    ("client.certReload", Later),
    ("client.portUnification", Later),
    ("clientPort", Line),
    ("clientPortAddress", Line),
    ("clientPortListenBacklog", Line),
    ("clientTcpKeepAlive", Property),
    (
        "closeSessionTxn.enabled",
        Same("each server deletes the ephemeral nodes of a session that ends"),
    ),
    ("cnxTimeout", Property),
    ("commitLogCount", Same("bytes limit the transactions in memory")),
    (
        "connectToLearnerMasterLimit",
        Same("a learner that finds no leader in two ticks looks again"),
    ),
    ("connection_throttle_decrease_ratio", Property),
    ("connection_throttle_drop_decrease", Property),
    ("connection_throttle_drop_increase", Property),
    ("connection_throttle_fill_count", Property),
    ("connection_throttle_fill_time", Property),
    ("connection_throttle_freeze_time", Property),
    ("connection_throttle_global_session_weight", Property),
    ("connection_throttle_local_session_weight", Property),
    ("connection_throttle_renew_session_weight", Property),
    ("connection_throttle_tokens", Property),
    ("connection_throttle_weight_enabled", Property),
    ("console.threshold", Same(JAVA)),
    ("dataDir", Line),
    ("dataLogDir", Line),
    ("datadir.autocreate", Property),
    ("digest.enabled", Later),
    ("dynamicConfigFile", Line),
    ("electionAlg", Line),
    ("electionPortBindRetry", Property),
    ("emulate353TTLNodes", Same("no data written by ZooKeeper 3.5.3 is read")),
    ("enableEagerACLCheck", Same("who may not write hears so at the same place either way")),
    ("enforce.auth.enabled", Property),
    ("enforce.auth.schemes", Property),
    ("enforceQuota", Property),
    ("ensembleAuthName", Property),
    ("extendedTypesEnabled", Property),
    ("fips-mode", Later),
    ("flushDelay", Same(BATCHES)),
    ("follower.nodelay", Same(NO_DELAY)),
    ("forceSnapshotSync", Property),
    ("forceSync", Same("writes are always synced before they are acknowledged")),
    ("forward_learner_requests_to_commit_processor_disabled", Same("no request is kept twice")),
    ("fsync.warningthresholdms", BareProperty),
    ("globalOutstandingLimit", Property),
    ("initLimit", Line),
    ("intBufferStartingSizeBytes", Same(JAVA)),
    ("jaasLoginRenew", Later),
    ("jute.maxbuffer", BareProperty),
    ("jute.maxbuffer.extrasize", Same("nothing within a frame is longer than the frame may be")),
    ("largeRequestMaxBytes", Property),
    ("largeRequestThreshold", Property),
    ("leader.ackLoggingFrequency", Same("mntr says how far each learner is")),
    ("leader.closeSocketAsync", Same(NO_THREAD)),
    ("leader.maxConcurrentDiffSyncs", Same(ONE_WINDOW)),
    ("leader.maxConcurrentSnapSyncs", Same(ONE_WINDOW)),
    ("leader.maxTimeToWaitForEpoch", Same("a leader waits one tick for promises")),
    ("leader.nodelay", Same(NO_DELAY)),
    ("leaderConnectDelayDuringRetryMs", Same(PAUSES)),
    ("leaderServes", Property),
    ("localSessionsEnabled", Line),
    ("localSessionsUpgradingEnabled", Line),
    ("maxBatchSize", Same(BATCHES)),
    ("maxClientCnxns", Line),
    ("maxCnxns", Property),
    ("maxGetChildrenResponseCacheSize", Same("answers are not cached")),
    ("maxInProcessingDeadWatchers", Same("watches go with their connection at once")),
    ("maxResponseCacheSize", Same("answers are not cached")),
    ("maxSessionTimeout", Line),
    ("maxWriteQueuePollTime", Same(BATCHES)),
    ("metricsProvider.className", Line),
    ("metricsProvider.exportJvmInfo", Same("there is no JVM")),
    ("metricsProvider.httpHost", Line),
    ("metricsProvider.httpPort", Line),
    ("metricsProvider.maxQueueSize", Same(NO_QUEUE)),
    ("metricsProvider.numWorkerThreads", Same(NO_QUEUE)),
    ("metricsProvider.workerShutdownTimeoutMs", Same(NO_QUEUE)),
    ("minSessionTimeout", Line),
    ("multiAddress.enabled", Property),
    ("multiAddress.reachabilityCheckEnabled", Same("all addresses are tried, side by side")),
    ("multiAddress.reachabilityCheckTimeoutMs", Same("all addresses are tried, side by side")),
    ("nio.sessionlessCnxnTimeout", Property),
    ("observerMasterPort", Line),
    ("oraclePath", Line),
    ("peerType", Line),
    ("portUnification", Later),
    ("preAllocSize", Property),
    ("quorum.auth.learnerRequireSasl", Property),
    ("quorum.auth.serverRequireSasl", Property),
    ("quorum.secretFile", Line),
    ("quorum.secretRequired", Line),
    ("quorumCnxnTimeoutMs", Same(PROBES)),
    ("quorumListenOnAllIPs", Line),
    ("readonlymode.enabled", BareProperty),
    ("reconfigEnabled", Property),
    ("request_stale_connection_check", Same("nothing is done for a connection that is closed")),
    ("request_stale_latency_check", Property),
    ("request_throttle_drop_stale", Property),
    ("request_throttle_max_requests", Property),
    ("request_throttle_stall_time", Same(NO_WAIT)),
    ("request_throttler.shutdownTimeout", Same(NO_WAIT)),
    ("requireClientAuthScheme", Later),
    ("root.logger", Same(JAVA)),
    ("secureClientPort", Later),
    ("secureClientPortAddress", Later),
    ("serializeLastProcessedZxid.enabled", Same(OWN_FILES)),
    ("serverCnxnFactory", Same("there is one way to serve sockets")),
    ("sessionRequireClientSASLAuth", Property),
    ("skipACL", Property),
    ("snapCount", Property),
    ("snapSizeLimitInKb", Property),
    ("snapshotSizeFactor", Property),
    ("sslQuorum", Line),
    ("sslQuorumReloadCertFiles", Later),
    ("standaloneEnabled", Line),
    ("syncEnabled", Same("observers keep logs and snapshots, and come back with them")),
    ("syncLimit", Line),
    ("tcpKeepAlive", Same(PROBES)),
    ("testingonly.initialZxid", Property),
    ("throttled_op_wait_time", Property),
    ("tickTime", Line),
    ("txnLogSizeLimitInKb", Property),
    ("watchManagerName", Same("there is one kind of watch table")),
    ("zabkeeper.log.file", Line),
    ("zabkeeper.log.format", Line),
    ("zabkeeper.log.level", Line),
    ("zabkeeper.log.maxBackupIndex", Line),
    ("zabkeeper.log.maxFileSizeInMb", Line),
    ("znode.container.checkIntervalMs", BareProperty),
    ("znode.container.maxNeverUsedIntervalMs", BareProperty),
    ("znode.container.maxPerMinute", BareProperty),
];

/// Prefixes of keys, for keys that are not in [`KEYS`].
const PREFIXES: &[(&str, Kind)] = &[
    ("DigestAuthenticationProvider.", Later),
    ("IPAuthenticationProvider.", Later),
    ("X509AuthenticationProvider.", Later),
    ("admin.", Later),
    ("audit.", Later),
    ("authProvider.", Property),
    ("commitProcessor.", Same(ONE_THREAD)),
    ("db.", Later),
    ("fastleader.", Same("votes are repeated after pauses of 100 ms to 1 s")),
    ("follower.", Same(NO_DELAY)),
    ("group.", Line),
    ("jmx.", Same(JAVA)),
    ("jvm.pause.monitor", Same(JAVA)),
    ("kerberos.", Later),
    ("learner.", Same(NO_THREAD)),
    ("log.", Same(JAVA)),
    ("messageTracker.", Later),
    ("metricsProvider.", Later),
    ("netty.", Same(ONE_THREAD)),
    ("nio.", Same(ONE_THREAD)),
    ("observer.", Same(PAUSES)),
    ("observerMaster.", Same("followers send observers what is in their logs")),
    ("pathStats.", Later),
    ("quorum.", Later),
    ("request_", Later),
    ("server.", Line),
    ("snapshot.", Later),
    ("ssl.", Later),
    ("superUser", Later),
    ("watcherClean", Same("watches go with their connection at once")),
    ("weight.", Line),
    ("znode.container.", Later),
];

/// Values that describe what this server does anyway, for keys without effect: no warning is needed
/// for them. Most switch a feature off. In alphabetical order.
const HOLDS: &[(&str, &[&str])] = &[
    ("admin.forceHttps", &["false"]),
    ("admin.needClientAuth", &["false"]),
    ("admin.portUnification", &["false"]),
    ("allowSaslFailedClients", &["false"]),
    ("client.certReload", &["false"]),
    ("client.portUnification", &["false"]),
    ("closeSessionTxn.enabled", &["true"]),
    ("connectToLearnerMasterLimit", &["0"]),
    ("db.autocreate", &["true"]),
    ("emulate353TTLNodes", &["false"]),
    ("fips-mode", &["false"]),
    ("follower.nodelay", &["true"]),
    ("forceSync", &["yes"]),
    ("jvm.pause.monitor", &["false"]),
    ("leader.closeSocketAsync", &["false"]),
    ("leader.nodelay", &["true"]),
    ("learner.asyncSending", &["false"]),
    ("learner.closeSocketAsync", &["false"]),
    ("maxGetChildrenResponseCacheSize", &["0"]),
    ("maxResponseCacheSize", &["0"]),
    ("metricsProvider.exportJvmInfo", &["false"]),
    ("observerMasterPort", &["0"]),
    ("peerType", &["participant"]),
    ("portUnification", &["false"]),
    ("quorum.auth.enableSasl", &["false"]),
    ("quorumCnxnTimeoutMs", &["-1"]),
    ("quorumListenOnAllIPs", &["false"]),
    ("serverCnxnFactory", &["org.apache.zookeeper.server.NIOServerCnxnFactory"]),
    ("snapshot.trust.empty", &["false"]),
    ("sslQuorumReloadCertFiles", &["false"]),
    ("syncEnabled", &["true"]),
    ("tcpKeepAlive", &["false"]),
    ("watchManagerName", &["org.apache.zookeeper.server.watch.WatchManager"]),
];

/// Prefixes of keys that ZooKeeper ignores if the second key is `false`.
const GROUPS: &[(&str, &str)] = &[
    ("admin.", "admin.enableServer"),
    ("jvm.pause.monitor.", "jvm.pause.monitor"),
    ("quorum.auth.", "quorum.auth.enableSasl"),
];

/// Does this value of a key without effect describe what the server does anyway?
pub(crate) fn says_what_holds(key: &str, value: &str) -> bool {
    let values = HOLDS.binary_search_by_key(&key, |(name, _)| name).map(|at| HOLDS[at].1);
    match (key, value.parse::<u64>()) {
        // Old files are always purged.
        ("autopurge.purgeInterval", Ok(hours)) => hours > 0,
        _ => values.unwrap_or_default().iter().any(|holds| value.eq_ignore_ascii_case(holds)),
    }
}

/// The key that enables the group of keys to which `key` belongs.
pub(crate) fn switch_of(key: &str) -> Option<&'static str> {
    GROUPS.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(_, switch)| *switch)
}

/// The supported keys.
#[cfg(test)]
pub(crate) fn acted_on() -> impl Iterator<Item = &'static str> {
    let acted_on = |kind| matches!(kind, Line | Property | BareProperty);
    KEYS.iter().filter(move |(_, kind)| acted_on(*kind)).map(|(key, _)| *key)
}

/// The prefix of ZooKeeper's system properties.
const PREFIX: &str = "zookeeper.";

/// How the server treats this key, given without the prefix `zookeeper.`; `None` if ZooKeeper does
/// not know the key.
pub(crate) fn kind(key: &str) -> Option<Kind> {
    let whole = KEYS.binary_search_by_key(&key, |(name, _)| name).ok().map(|at| KEYS[at].1);
    whole.or_else(|| {
        PREFIXES.iter().find(|(prefix, _)| key.starts_with(prefix)).map(|(_, kind)| *kind)
    })
}

/// The name of a key in the file without the prefix `zookeeper.`, which is allowed for all known
/// keys but those of kind `Line`.
pub(crate) fn of_line(key: &str) -> &str {
    match key.strip_prefix(PREFIX) {
        Some(rest) if kind(rest).is_some_and(|kind| kind != Line) => rest,
        Some(_) | None => key,
    }
}

/// How the server treats a `-D` option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flag<'a> {
    /// The option sets this key.
    Key(&'a str),
    /// A key that ZooKeeper does not read from a `-D` option; the text says what to write instead.
    Misplaced(&'static str),
    /// An unknown name with the prefix `zookeeper.`, probably misspelt.
    Unknown,
    /// An option for Java or other software, or one without effect here; ignored silently.
    Foreign,
}

/// How the server treats the `-D` option of this name.
pub(crate) fn of_flag(name: &str) -> Flag<'_> {
    let (key, has_prefix) = match name.strip_prefix(PREFIX) {
        Some(key) => (key, true),
        None => (name, false),
    };
    match (kind(key), has_prefix) {
        (Some(Line), _) => Flag::Misplaced("only zoo.cfg can say this"),
        (Some(_), true) | (Some(BareProperty), false) => Flag::Key(key),
        (Some(Property), false) => Flag::Misplaced("write -Dzookeeper. in front of it"),
        (Some(Same(_) | Later), false) | (None, false) => Flag::Foreign,
        (None, true) => Flag::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tables_are_sorted() {
        assert!(KEYS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(PREFIXES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(HOLDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(HOLDS.iter().all(|(key, _)| kind(key).is_some_and(|kind| kind != Property)));
        assert_eq!(kind("tickTime"), Some(Line));
        assert_eq!(kind("ssl.keyStore.location"), Some(Later));
        assert_eq!(kind("tickTimes"), None);
    }

    #[test]
    fn zookeeper_prefix_is_allowed_for_properties_in_file() {
        assert_eq!(of_line("zookeeper.snapCount"), "snapCount");
        assert_eq!(of_line("snapCount"), "snapCount");
        assert_eq!(of_line("zookeeper.jute.maxbuffer"), "jute.maxbuffer");
        assert_eq!(of_line("zookeeper.tickTime"), "zookeeper.tickTime", "no property");
        assert_eq!(of_line("zookeeper.tickTimes"), "zookeeper.tickTimes");
    }

    #[test]
    fn options_need_the_prefix_that_zookeeper_reads() {
        assert_eq!(of_flag("zookeeper.snapCount"), Flag::Key("snapCount"));
        assert_eq!(of_flag("jute.maxbuffer"), Flag::Key("jute.maxbuffer"));
        assert_eq!(of_flag("zookeeper.jute.maxbuffer"), Flag::Key("jute.maxbuffer"));
        assert!(matches!(of_flag("snapCount"), Flag::Misplaced(_)));
        assert!(matches!(of_flag("zookeeper.tickTime"), Flag::Misplaced(_)));
        assert_eq!(of_flag("zookeeper.snapCounts"), Flag::Unknown);
        assert_eq!(of_flag("java.net.preferIPv4Stack"), Flag::Foreign);
        assert_eq!(of_flag("log.dir"), Flag::Foreign);
    }
}
