//! Table tests of the configuration: the text of a file, and the settings or errors it gives.

mod effects;
mod members;

use zabkeeper_core::TreeOptions;

use super::*;

/// Parses a file with a data directory, a port and `text` (from line 3 on), and compares its error,
/// or its warnings and `show`, with the expected text.
fn check(text: &str, show: impl Fn(&Settings) -> String, expected: &str) {
    check_whole(&format!("dataDir=/d\nclientPort=2181\n{text}"), show, expected);
}

fn check_whole(text: &str, show: impl Fn(&Settings) -> String, expected: &str) {
    let got = match parse("zoo.cfg", text, &[], &no_myid) {
        Err(error) => error.to_string(),
        Ok((settings, warnings)) => {
            let warnings: String = warnings.iter().map(|line| format!("{line}\n")).collect();
            warnings + &show(&settings)
        }
    };
    assert_eq!(got, expected, "for {text:?}");
}

fn no_myid(_: &Path) -> io::Result<String> {
    Err(io::ErrorKind::NotFound.into())
}

/// The same for the server with `myid` 2 in an ensemble of three; `text` begins in line 6.
fn check_ensemble(text: &str, show: impl Fn(&Settings) -> String, expected: &str) {
    let lines = "dataDir=/d\nclientPort=2181\nserver.1=a:2888:3888\nserver.2=b:2889:3889\n\
                 server.3=[fd00::3]:2888:3888:participant;[::]:2183\n";
    let got = match parse("zoo.cfg", &format!("{lines}{text}"), &[], &|_| Ok(" 2\n".to_owned())) {
        Err(error) => error.to_string(),
        Ok((settings, warnings)) => format!("{warnings:?} {}", show(&settings)),
    };
    assert_eq!(got, expected, "for {text:?}");
}

fn timeouts(settings: &Settings) -> String {
    let core = &settings.core;
    let [tick, min, max] = [core.tick(), core.session_timeout_min(), core.session_timeout_max()]
        .map(|d| d.as_millis());
    format!("{tick} {min} {max}")
}

fn address(settings: &Settings) -> String {
    format!("{} {:?} {}", settings.core.id(), settings.host, settings.port)
}

/// CONF-01 to CONF-05.
#[test]
fn client_address_and_data_directories() {
    let folders =
        |s: &Settings| format!("{} {}", s.snapshot_folder().display(), s.log_folder().display());
    check("", address, "1 None 2181");
    check("clientPortAddress=::1", address, "1 Some(\"::1\") 2181");
    check("clientPortAddress=[::1]", address, "1 Some(\"::1\") 2181");
    check_whole("dataDir=/d\nclientPort=0", address, "1 None 0");
    check("", folders, "/d/zabkeeper /d/zabkeeper");
    check("dataLogDir=/l", folders, "/d/zabkeeper /l/zabkeeper");
    check(
        "dataLogDir=",
        folders,
        "zoo.cfg:3: dataLogDir=: empty; use a folder for the log, or remove the line",
    );
    check(
        "clientPortAddress=",
        address,
        "zoo.cfg:3: clientPortAddress=: empty; use an address of this machine, or remove the line",
    );
    check("clientPortListenBacklog=7", |s| format!("{:?}", s.backlog), "Some(7)");
    check("clientPortListenBacklog=-1", |s| format!("{:?}", s.backlog), "None");
    check_whole(
        "clientPort=1",
        address,
        "zoo.cfg: dataDir is missing; add the folder for its data, as dataDir=/var/lib/zk",
    );
    check_whole("dataDir=/d", address, "zoo.cfg: clientPort is missing; add clientPort=2181");
    check(
        "clientPort=66000",
        address,
        "zoo.cfg:3: clientPort=66000: out of range 0 to 65535; use a port, such as 2181, or 0 for \
         any that is free",
    );
}

/// CONF-06, CONF-11.
#[test]
fn tick_and_session_timeouts() {
    check("initLimit=10\nsyncLimit=5", timeouts, "3000 6000 60000");
    check("tickTime=2000", timeouts, "2000 4000 40000");
    check("minSessionTimeout=10\nmaxSessionTimeout=20", timeouts, "3000 10 20");
    check("minSessionTimeout=-1\nmaxSessionTimeout=7000", timeouts, "3000 6000 7000");
    check(
        "tickTime=0",
        timeouts,
        "zoo.cfg:3: tickTime=0: out of range 1 to 107374182; use milliseconds, such as 2000",
    );
    check(
        "tickTime=2s",
        timeouts,
        "zoo.cfg:3: tickTime=2s: not a whole number; use milliseconds, such as 2000",
    );
    check(
        "maxSessionTimeout=100",
        timeouts,
        "zoo.cfg:3: maxSessionTimeout=100: 6000 ms is above maxSessionTimeout, 100 ms",
    );
}

/// CONF-09, CONF-10.
#[test]
fn connection_limits() {
    let show =
        |s: &Settings| format!("{:?} {:?}", s.limits.connections_per_ip, s.limits.connections);
    check("", show, "Some(60) None");
    check("maxClientCnxns=0\nmaxCnxns=9", show, "None Some(9)");
    check(
        "maxCnxns=-1",
        show,
        "zoo.cfg:3: maxCnxns=-1: out of range 0 to 2147483647; use a number of connections, or 0 \
         for no bound",
    );
}

/// CONF-22, CONF-29, CONF-48.
#[test]
fn log_and_snapshot_settings() {
    let show = |s: &Settings| {
        let limits = &s.core.limits;
        let (txns, kept) = (limits.snapshot_txns, limits.snapshots_kept);
        format!("{txns} {kept} {} {}", s.segment_bytes, s.limits.max_frame)
    };
    check("", show, "100000 3 67108864 1048575");
    check("snapCount=50\nautopurge.snapRetainCount=5", show, "50 5 67108864 1048575");
    check("preAllocSize=64\njute.maxbuffer=0x3fffff", show, "100000 3 65536 4194303");
    check("txnLogSizeLimitInKb=64", show, "100000 3 65536 1048575");
    check("txnLogSizeLimitInKb=-1\npreAllocSize=32", show, "100000 3 32768 1048575");
    let bytes = |s: &Settings| s.core.limits.snapshot_bytes.to_string();
    check("", bytes, &(4_u64 << 30).to_string());
    check("snapSizeLimitInKb=64", bytes, "65536");
    check("snapSizeLimitInKb=-1", bytes, &u64::MAX.to_string());
    let factor = |s: &Settings| s.core.limits.snapshot_size_factor.to_string();
    check("", factor, "330000");
    check("snapshotSizeFactor=1.5", factor, "1500000");
    check("snapshotSizeFactor=-1", factor, "0");
    let forced = |s: &Settings| s.core.limits.prefer_snapshots.to_string();
    check("", forced, "false");
    check("forceSnapshotSync=true", forced, "true");
    check(
        "snapshotSizeFactor=a third",
        factor,
        "zoo.cfg:3: snapshotSizeFactor=a third: not a decimal number; use a decimal number, such \
         as 0.33; -1: no log",
    );
    check("jute.maxbuffer=100", show, "100000 3 67108864 100");
    check(
        "jute.maxbuffer=99",
        show,
        "zoo.cfg:3: jute.maxbuffer=99: out of range 100 to 134217728; use bytes, such as 1048575",
    );
    check(
        "autopurge.snapRetainCount=1",
        show,
        "zoo.cfg:3: autopurge.snapRetainCount=1: fewer than 3 is not safe; 3 are kept\n\
         100000 3 67108864 1048575",
    );
}

/// CONF-27.
#[test]
fn whitelist_of_four_letter_commands() {
    let show = |s: &Settings| format!("{:?}", s.whitelist);
    check("", show, "These([\"srvr\"])");
    check("4lw.commands.whitelist=ruok, mntr", show, "These([\"ruok\", \"mntr\", \"srvr\"])");
    check("4lw.commands.whitelist=srvr,*", show, "All");
}

/// ZAB-20.
#[test]
fn initial_zxid_of_tests_shortens_epochs() {
    let show = |s: &Settings| s.core.limits.epoch_txns.to_string();
    check("", show, "4294967294");
    let shown = "zoo.cfg:3: zookeeper.testingonly.initialZxid=4294967280: for tests: an epoch has \
                 14 transactions\n14";
    check("zookeeper.testingonly.initialZxid=4294967280", show, shown);
    let wrong = "zoo.cfg:3: testingonly.initialZxid=4294967290: out of range 0 to 4294967289; use \
                 a counter, such as 4294967280 for 14 transactions per epoch";
    check("testingonly.initialZxid=4294967290", show, wrong);
}

/// CONF-39.
#[test]
fn leader_serves_unless_the_file_says_no() {
    let show = |s: &Settings| s.core.leader_serves.to_string();
    check("", show, "true");
    check("leaderServes=yes", show, "true");
    check("zookeeper.leaderServes=no", show, "false");
    check("leaderServes=false", show, "zoo.cfg:3: leaderServes=false: use yes or no");
}

/// CONF-53, FLW-17: clients of a read-only server need `isro`.
#[test]
fn read_only_mode_settings() {
    let show = |s: &Settings| format!("{} {:?}", s.core.read_only_mode, s.whitelist);
    let allowed = "These([\"srvr\", \"isro\"])";
    for (lines, expected) in [
        ("readonlymode.enabled=false", "[] false These([\"srvr\"])".to_owned()),
        (
            "localSessionsEnabled=true\nzookeeper.readonlymode.enabled=true",
            format!("[] true {allowed}"),
        ),
        (
            "readonlymode.enabled=true",
            format!(
                "[\"zoo.cfg:6: readonlymode.enabled=true: serves nobody: sessions of a read-only \
                 server are local; add localSessionsEnabled=true\"] true {allowed}"
            ),
        ),
    ] {
        check_ensemble(lines, show, &expected);
    }
    check(
        "readonlymode.enabled=true",
        show,
        &format!(
            "zoo.cfg:3: readonlymode.enabled=true: has no effect on a server on its own\n\
             true {allowed}"
        ),
    );
}

/// CONF-27.
#[test]
fn srvr_is_always_allowed_and_empty_names_are_skipped() {
    let show = |s: &Settings| format!("{:?}", s.whitelist);
    check("4lw.commands.whitelist=", show, "These([\"srvr\"])");
    check("zookeeper.4lw.commands.whitelist=ruok,,", show, "These([\"ruok\", \"srvr\"])");
}

/// CONF-28, CONF-44 to CONF-46, CONF-50.
#[test]
fn client_limit_settings() {
    let show = |s: &Settings| {
        let ClientLimits { sessionless_timeout, outstanding, throttle_max_requests, large, .. } =
            &s.limits;
        let keep_alive = s.keep_alive;
        format!(
            "{sessionless_timeout:?} {keep_alive} {outstanding} {throttle_max_requests:?} {large:?}"
        )
    };
    check("", show, "10s false 1000 None None");
    check(
        "nio.sessionlessCnxnTimeout=500\nclientTcpKeepAlive=true\nglobalOutstandingLimit=7\n\
         request_throttle_max_requests=9\nlargeRequestThreshold=100\nlargeRequestMaxBytes=1000",
        show,
        "500ms true 7 Some(9) Some(LargeRequests { above: 100, bytes: 1000 })",
    );
    check(
        "largeRequestThreshold=-1\nrequest_throttle_max_requests=0",
        show,
        "10s false 1000 None None",
    );
    check_ensemble("globalOutstandingLimit=7", show, "[] 10s false 3 None None");
    let show = |s: &Settings| s.limits.drop_stale.to_string();
    check("", show, "false");
    check("request_stale_latency_check=true", show, "true");
    check("request_stale_latency_check=true\nrequest_throttle_drop_stale=false", show, "false");
    for (text, expected) in [
        ("largeRequestThreshold=0", "out of range 1 to 2147483647; use bytes, or -1 for no bound"),
        ("clientTcpKeepAlive=yes", "use true or false"),
        (
            "globalOutstandingLimit=-1",
            "out of range 0 to 2147483647; use a number of requests, such as 1000",
        ),
        (
            "nio.sessionlessCnxnTimeout=0",
            "out of range 1 to 2147483647; use milliseconds, such as 10000",
        ),
        (
            "connection_throttle_drop_increase=2",
            "out of range 0 to 1; use a decimal number from 0 to 1",
        ),
        (
            "connection_throttle_drop_increase=x",
            "not a decimal number; use a decimal number from 0 to 1",
        ),
    ] {
        check(text, show, &format!("zoo.cfg:3: {text}: {expected}"));
    }
}

/// CONF-44.
#[test]
fn connection_throttle_settings() {
    let show = |s: &Settings| format!("{:?}", s.limits.throttle);
    check(
        "connection_throttle_tokens=5\nconnection_throttle_fill_time=20\n\
         connection_throttle_fill_count=2\nconnection_throttle_freeze_time=100\n\
         connection_throttle_drop_increase=0.5\nconnection_throttle_decrease_ratio=.25\n\
         connection_throttle_weight_enabled=true\nconnection_throttle_local_session_weight=4",
        show,
        "ThrottleOptions { tokens: 5, fill_time: 20ms, fill_count: 2, freeze_time: Some(100ms), \
         drop_increase: 500000, drop_decrease: 2000, decrease_ratio: 250000, \
         weights: Some(Weights { global: 4, local: 4, renew: 4 }) }",
    );
}

/// CONF-12, CONF-35, CONF-36, CONF-47.
#[test]
fn local_session_and_node_settings() {
    let show = |s: &Settings| {
        let TreeOptions {
            extended_types,
            enforce_quota,
            container_check_ms,
            container_max_per_minute,
            container_never_used_ms,
        } = s.core.tree;
        format!(
            "{extended_types} {enforce_quota} {container_check_ms} {container_max_per_minute} \
             {container_never_used_ms} {:?}",
            s.core.sessions
        )
    };
    check("", show, "false false 60000 10000 0 SessionOptions { local: false, upgrade: false }");
    check(
        "extendedTypesEnabled=TRUE\nenforceQuota=true\nznode.container.checkIntervalMs=5\n\
         zookeeper.znode.container.maxPerMinute=6\nznode.container.maxNeverUsedIntervalMs=7\n\
         localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true",
        show,
        "zoo.cfg:8: localSessionsEnabled=true: has no effect: all sessions of a server on its own \
         are global\n\
         true true 5 6 7 SessionOptions { local: false, upgrade: false }",
    );
    for (lines, expected) in [
        ("localSessionsEnabled=true", "local: true, upgrade: false"),
        (
            "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true",
            "local: true, upgrade: true",
        ),
        ("localSessionsUpgradingEnabled=true", "local: false, upgrade: true"),
    ] {
        let show = |s: &Settings| format!("{:?}", s.core.sessions);
        check_ensemble(lines, show, &format!("[] SessionOptions {{ {expected} }}"));
    }
    check(
        "znode.container.maxPerMinute=0",
        show,
        "zoo.cfg:3: znode.container.maxPerMinute=0: out of range 1 to 2147483647; use a number of \
         nodes, such as 10000",
    );
    check(
        "server.255=a:2888:3888\nextendedTypesEnabled=true",
        show,
        "zoo.cfg:4: extendedTypesEnabled=true: sessions of server 255 would look like nodes with a \
         time to live; \
         give it a number up to 254 (myid), or leave extendedTypesEnabled out",
    );
}

/// CONF-54, CONF-55.
#[test]
fn authentication_settings() {
    let show = |s: &Settings| format!("{:?}", s.core.auth);
    check(
        "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n\
         DigestAuthenticationProvider.enabled=false\n\
         authProvider.1=org.apache.zookeeper.server.auth.EnsembleAuthenticationProvider\nDigestAuthenticationProvider.digestAlg=sha-256\n\
         X509AuthenticationProvider.superUser=CN=boss\nensembleAuthName=a, b\nskipACL=yes\n\
         enforce.auth.enabled=true\nenforce.auth.schemes=ensemble, ip",
        show,
        "AuthOptions { super_digest: Some(\"super:D/InIHSb7yEEbrWz8b9l71RjZJU=\"), \
         digest_disabled: true, \
         digest_alg: Sha256, x509_super_user: Some(\"CN=boss\"), x509: false, ensemble: true, \
         ensemble_names: [\"a\", \"b\"], skip_acl: true, required_schemes: [\"ensemble\", \"ip\"], \
         key: false }",
    );
    let schemes =
        |s: &Settings| format!("{:?} {}", s.core.auth.required_schemes, s.core.auth.skip_acl);
    check("enforce.auth.schemes=digest\nskipACL=no", schemes, "[] false");
    for (text, expected) in [
        (
            "enforce.auth.enabled=true",
            "zoo.cfg:3: enforce.auth.enabled=true: say which: add enforce.auth.schemes=digest",
        ),
        (
            "enforce.auth.enabled=true\nenforce.auth.schemes=digest,sasl",
            "zoo.cfg:4: enforce.auth.schemes=digest,sasl: there is no scheme sasl here; use \
             digest, ip",
        ),
        (
            "DigestAuthenticationProvider.enabled=false\nenforce.auth.enabled=true\n\
             enforce.auth.schemes=digest",
            "zoo.cfg:5: enforce.auth.schemes=digest: there is no scheme digest here; use ip",
        ),
        ("skipACL=true", "zoo.cfg:3: skipACL=true: use yes or no"),
        (
            "DigestAuthenticationProvider.digestAlg=SHA3-256",
            "zoo.cfg:3: DigestAuthenticationProvider.digestAlg=SHA3-256: use SHA1, SHA-256, \
             SHA-512 or MD5",
        ),
        (
            "DigestAuthenticationProvider.superDigest=secret",
            "zoo.cfg:3: DigestAuthenticationProvider.superDigest=(not shown): use user:digest, as \
             DigestAuthenticationProvider of ZooKeeper prints it",
        ),
    ] {
        check(text, schemes, expected);
    }
}

/// CONF-54.
#[test]
fn auth_provider_classes_enable_their_schemes() {
    let show = |s: &Settings| format!("{} {}", s.core.auth.x509, s.core.auth.ensemble);
    let key = |s: &Settings| s.core.auth.key.to_string();
    check("authProvider.1=org.apache.zookeeper.server.auth.KeyAuthenticationProvider", key, "true");
    check("", key, "false");
    check(
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        show,
        "true false",
    );
    check(
        "secureClientPort=1",
        show,
        "zoo.cfg:3: secureClientPort=1: has no effect yet\ntrue false",
    );
    check(
        "authProvider.1=com.example.Ours\nauthProvider.2=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        show,
        "zoo.cfg:3: authProvider.1=com.example.Ours: has no effect: a class of Java cannot be \
         loaded\n\
         zoo.cfg:4: authProvider.2=org.apache.zookeeper.server.auth.SASLAuthenticationProvider: \
         has no \
         effect yet: SASL comes with a later version\nfalse false",
    );
}

#[test]
fn unusual_values_never_panic_the_parser() {
    let odd = [
        "",
        "-",
        "0",
        "-1",
        "0x",
        "0xffffffffffffffffff",
        "9223372036854775807",
        "\u{7f}",
        "=",
        ":",
        "a:b",
        "1:2:3",
        "[",
        "]:",
        "[::1]:1:2;",
        ";",
        "|",
        ",",
        "*",
        "\u{1f600}",
        "1.",
        ".000001",
        "4294.967296",
    ];
    let mut refused = 0;
    let names = keys::acted_on().chain([
        "server.",
        "server.1",
        "weight.",
        "group.1",
        "zookeeper.",
        "",
        "-D",
    ]);
    for name in names {
        for value in odd {
            for separator in ["=", ":", " ", ""] {
                let text = format!("dataDir=/d\nclientPort=1\n{name}{separator}{value}");
                let flags = format!("-Dzookeeper.{name}{separator}{value} -D{value}");
                refused += usize::from(parse("zoo.cfg", &text, &[], &no_myid).is_err());
                refused += usize::from(
                    parse("zoo.cfg", "dataDir=/d", &[("JVMFLAGS", &flags)], &no_myid).is_err(),
                );
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}
