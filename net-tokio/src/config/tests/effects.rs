//! Tests of Java options, of refused keys, and of keys without effect: which of them warn, and how.

use super::*;

#[test]
fn java_options_add_to_the_file() {
    let show = |text: &str, flags: &str| {
        let text = format!("dataDir=/d\nclientPort=2181\n{text}");
        match parse("zoo.cfg", &text, &[("SERVER_JVMFLAGS", flags)], &no_myid) {
            Err(error) => error.to_string(),
            Ok((settings, warnings)) => format!("{warnings:?} {}", settings.limits.max_frame),
        }
    };
    assert_eq!(show("", "-Xmx1g -Djute.maxbuffer=4194304 -Dlog.dir=/l"), "[] 4194304");
    assert_eq!(
        show("", "-Dzookeeper.jute.maxbuffer=many"),
        "SERVER_JVMFLAGS: -Dzookeeper.jute.maxbuffer=many: not a whole number; use bytes, such as \
         1048575"
    );
    assert_eq!(
        show("zookeeper.jute.maxbuffer=many", ""),
        "zoo.cfg:3: zookeeper.jute.maxbuffer=many: not a whole number; use bytes, such as 1048575"
    );
    assert_eq!(
        show("jute.maxbuffer=2000", "-Djute.maxbuffer=3000 -Dzookeeper.flushDelay=3"),
        "[\"SERVER_JVMFLAGS: -Djute.maxbuffer=3000: line 3 of zoo.cfg says otherwise and counts\", \
         \"SERVER_JVMFLAGS: -Dzookeeper.flushDelay=3: has no effect here: writes are synced \
         together as \
         they come\"] 2000"
    );
}

#[test]
fn jvmflags_override_server_jvmflags() {
    let flags = [
        ("SERVER_JVMFLAGS", "-Djute.maxbuffer=3000 -Dzookeeper.snapCount=7"),
        ("JVMFLAGS", "-Djute.maxbuffer=4000 -Dzookeeper.nope=1"),
    ];
    let parsed = parse("zoo.cfg", "dataDir=/d\nclientPort=1", &flags, &no_myid);
    let (settings, warnings) = parsed.expect("is a configuration");
    assert_eq!((settings.limits.max_frame, settings.core.limits.snapshot_txns), (4000, 7));
    let warning = "JVMFLAGS: -Dzookeeper.nope=1: unknown key, ignored; is it spelt right?";
    assert_eq!(warnings, [warning]);
}

#[test]
fn unsupported_security_keys_are_refused() {
    let show = |_: &Settings| "starts".to_owned();
    check("sslQuorum=false\nelectionAlg=3", show, "starts");
    check(
        "sslQuorum=true",
        show,
        "zoo.cfg:3: sslQuorum=true: TLS comes with a later version: servers would talk in the \
         clear",
    );
    check(
        "zookeeper.sessionRequireClientSASLAuth=true",
        show,
        "zoo.cfg:3: zookeeper.sessionRequireClientSASLAuth=true: SASL comes with a later version: \
         it \
         could keep nobody out",
    );
    check("quorum.auth.serverRequireSasl=false\naudit.enable=false", show, "starts");
    check(
        "quorum.auth.learnerRequireSasl=true",
        show,
        "zoo.cfg:3: quorum.auth.learnerRequireSasl=true: SASL comes with a later version: any \
         leader would be \
         followed",
    );
    check(
        "zookeeper.quorum.auth.serverRequireSasl=true",
        show,
        "zoo.cfg:3: zookeeper.quorum.auth.serverRequireSasl=true: SASL comes with a later version: \
         any server \
         could join",
    );
    check(
        "audit.enable=true",
        show,
        "zoo.cfg:3: audit.enable=true: audit logs come with a later version: nothing would be \
         recorded",
    );
    check(
        "electionAlg=0",
        show,
        "zoo.cfg:3: electionAlg=0: there is one election only; use 3, or remove the line",
    );
}

#[test]
fn keys_without_effect_and_unknown_keys_warn() {
    check(
        "ssl.keyStore.location=/k\nmetricsProvider.ssl.keyStore.location=/k\ntickTimes=5\n\
         maxBatchSize=5",
        |_| "starts".to_owned(),
        "zoo.cfg:3: ssl.keyStore.location=/k: has no effect yet\n\
         zoo.cfg:4: metricsProvider.ssl.keyStore.location=/k: has no effect yet\n\
         zoo.cfg:5: tickTimes=5: unknown key, ignored; is it spelt right?\n\
         zoo.cfg:6: maxBatchSize=5: has no effect here: writes are synced together as they come\n\
         starts",
    );
}

/// CONF-25.
#[test]
fn prometheus_reads_metrics_where_its_keys_say() {
    let show = |s: &Settings| match &s.metrics {
        Some(address) => format!("{}:{}", address.host, address.port),
        None => "nowhere".to_owned(),
    };
    let class = "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.\
                 PrometheusMetricsProvider";
    check("", show, "nowhere");
    check(class, show, "0.0.0.0:7000");
    let keys = "metricsProvider.httpHost=127.0.0.1\nmetricsProvider.httpPort=7001";
    check(&format!("{class}\n{keys}"), show, "127.0.0.1:7001");
    check(
        &format!("{class}\nmetricsProvider.exportJvmInfo=true"),
        show,
        "zoo.cfg:4: metricsProvider.exportJvmInfo=true: has no effect here: there is no JVM\n\
         0.0.0.0:7000",
    );
    check(&format!("{class}\nmetricsProvider.exportJvmInfo=false"), show, "0.0.0.0:7000");
    check(
        "metricsProvider.className=org.apache.zookeeper.metrics.impl.DefaultMetricsProvider\n\
         metricsProvider.httpPort=7001",
        show,
        &format!(
            "zoo.cfg:4: metricsProvider.httpPort=7001: has no effect without {class}\nnowhere"
        ),
    );
    check(
        "metricsProvider.className=org.example.Own",
        show,
        "zoo.cfg:3: metricsProvider.className=org.example.Own: there is no such class here; use \
         org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider, or remove the line",
    );
}

/// Configurations in common use: Bitnami's container image and the file that comes with Kafka.
#[test]
fn redundant_values_of_keys_without_effect_do_not_warn() {
    let port = |s: &Settings| s.port.to_string();
    check_whole(
        "dataDir=/tmp/zookeeper\nclientPort=2181\nmaxClientCnxns=0\nadmin.enableServer=false\n\
         # admin.serverPort=8080",
        port,
        "2181",
    );
    check_whole(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=/bitnami/zookeeper/data\nclientPort=2181\n\
         maxClientCnxns=60\nautopurge.snapRetainCount=3\nautopurge.purgeInterval=0\nmaxCnxns=0\n\
         reconfigEnabled=false\nquorumListenOnAllIPs=false\npreAllocSize=65536\nsnapCount=100000\n\
         maxSessionTimeout=40000\n4lw.commands.whitelist=srvr, mntr\nadmin.serverPort=8080\n\
         admin.enableServer=true\nstandaloneEnabled=TRUE",
        port,
        "zoo.cfg:8: autopurge.purgeInterval=0: has no effect here: old snapshots and logs are \
         removed as soon \
         as they can be\n\
         2181",
    );
    check(
        "autopurge.purgeInterval=24\nzookeeper.forceSync=yes\nforceSync=no",
        port,
        "zoo.cfg:5: forceSync=no: given before in line 4; this one counts\nzoo.cfg:5: \
         forceSync=no: has no effect here: writes are always synced before they are \
         acknowledged\n2181",
    );
    check(
        "zookeeper.admin.enableServer=false\nadmin.serverPort=8080\naudit.impl.class=A",
        port,
        "zoo.cfg:5: audit.impl.class=A: has no effect yet\n2181",
    );
    check(
        "quorum.auth.enableSasl=false\nquorum.cnxn.threads.size=20\nquorum.auth.kerberos.servicePrincipal=zk/_HOST",
        port,
        "zoo.cfg:4: quorum.cnxn.threads.size=20: has no effect yet\n2181",
    );
}

/// CONF-33.
#[test]
fn autocreate_is_on_by_default() {
    let show = |s: &Settings| s.create_folders.to_string();
    check("", show, "true");
    check("datadir.autocreate=true", show, "true");
    check("zookeeper.datadir.autocreate=false", show, "false");
}

#[test]
fn warnings_hide_passwords() {
    check(
        "ssl.keyStore.password=apassword\nssl.quorum.trustStore.passwordPath=/p",
        |_| "starts".to_owned(),
        "zoo.cfg:3: ssl.keyStore.password=(not shown): has no effect yet\n\
         zoo.cfg:4: ssl.quorum.trustStore.passwordPath=(not shown): has no effect yet\n\
         starts",
    );
}

#[test]
fn every_supported_key_is_read() {
    let members = "server.1=a:1:2;3\nserver.2=b:1:2;3";
    let read = |path: &Path| match path.to_str() {
        Some("/d/myid") => Ok("1".to_owned()),
        _ => Err(io::Error::other("no such file")),
    };
    for key in keys::acted_on() {
        let text = format!("dataDir=/d\n{members}\n{key}=\n");
        match parse("zoo.cfg", &text, &[], &read) {
            // A value that must not be empty is an error, which names the key.
            Err(error) => assert!(error.to_string().contains(key), "{key}: {error}"),
            Ok((_, warnings)) => {
                assert!(
                    !warnings.iter().any(|line| line.contains("effect")),
                    "{key}: {warnings:?}"
                );
            }
        }
    }
}
