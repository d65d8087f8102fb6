//! The configuration as a table: text in, what comes of it out.

use super::*;

/// What a file with a data directory, a port and `text` (from line 3 on) comes to: its error, or warnings and `show`.
fn check(text: &str, show: impl Fn(&Settings) -> String, expected: &str) {
    check_whole(&format!("dataDir=/d\nclientPort=2181\n{text}"), show, expected);
}

fn check_whole(text: &str, show: impl Fn(&Settings) -> String, expected: &str) {
    let got = match parse("zoo.cfg", text) {
        Err(error) => error.to_string(),
        Ok((settings, warnings)) => {
            let warnings: String = warnings.iter().map(|line| format!("{line}\n")).collect();
            warnings + &show(&settings)
        }
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

#[test]
fn conf_01_to_05_where_it_listens_and_where_its_data_is() {
    let folders =
        |s: &Settings| format!("{} {}", s.snapshot_folder().display(), s.log_folder().display());
    check("", address, "1 None 2181");
    check("clientPortAddress=::1", address, "1 Some(\"::1\") 2181");
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
        "zoo.cfg:3: clientPort=66000: out of range; use a port, such as 2181",
    );
}

#[test]
fn conf_06_and_11_tick_and_session_timeouts() {
    check("initLimit=10\nsyncLimit=5", timeouts, "3000 6000 60000");
    check("tickTime=2000", timeouts, "2000 4000 40000");
    check("minSessionTimeout=10\nmaxSessionTimeout=20", timeouts, "3000 10 20");
    check("minSessionTimeout=-1\nmaxSessionTimeout=7000", timeouts, "3000 6000 7000");
    check(
        "tickTime=0",
        timeouts,
        "zoo.cfg:3: tickTime=0: out of range; use milliseconds, such as 2000",
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

#[test]
fn conf_09_and_10_bounds_of_connections() {
    let show = |s: &Settings| format!("{:?} {:?}", s.connections_per_ip, s.connections);
    check("", show, "Some(60) None");
    check("maxClientCnxns=0\nmaxCnxns=9", show, "None Some(9)");
    check(
        "maxCnxns=-1",
        show,
        "zoo.cfg:3: maxCnxns=-1: out of range; use a number of connections, or 0 for no bound",
    );
}

#[test]
fn conf_13_one_server_line_is_a_server_on_its_own() {
    check("server.7=a:2888:3888", address, "7 None 2181");
    check_whole("dataDir=/d\nserver.7=a:1:2:participant;2182", address, "7 None 2182");
    check_whole("dataDir=/d\nserver.7=a:1:2;[::1]:2182", address, "7 Some(\"::1\") 2182");
    check(
        "server.1=a:1:2\nserver.2=b:1:2",
        address,
        "zoo.cfg:4: server.2=b:1:2: a second server: ensembles come with a later version; \
         remove the server.N lines to run a single server",
    );
    check(
        "server.x=a:1:2",
        address,
        "zoo.cfg:3: server.x=a:1:2: the number of a server is 0 to 255, as in server.1",
    );
    check(
        "server.1=a:1:2;here",
        address,
        "zoo.cfg:3: server.1=a:1:2;here: behind ; stands the client port, as in ;2181",
    );
    check(
        "dynamicConfigFile=zoo.cfg.dynamic",
        address,
        "zoo.cfg:3: dynamicConfigFile=zoo.cfg.dynamic: ensembles come with a later version; \
         remove the line to run a single server",
    );
}

#[test]
fn conf_22_29_and_48_log_and_snapshots() {
    let show = |s: &Settings| {
        let limits = &s.core.limits;
        let (txns, kept) = (limits.snapshot_txns, limits.snapshots_kept);
        format!("{txns} {kept} {} {}", s.preallocate_bytes, s.max_frame)
    };
    check("", show, "100000 3 67108864 1048575");
    check("snapCount=50\nautopurge.snapRetainCount=5", show, "50 5 67108864 1048575");
    check("preAllocSize=64\njute.maxbuffer=0x3fffff", show, "100000 3 65536 4194303");
    check(
        "autopurge.snapRetainCount=1",
        show,
        "zoo.cfg:3: autopurge.snapRetainCount=1: fewer than 3 is not safe; 3 are kept\n\
         100000 3 67108864 1048575",
    );
}

#[test]
fn conf_27_words() {
    let show = |s: &Settings| format!("{:?}", s.words);
    check("", show, "These([\"srvr\"])");
    check("4lw.commands.whitelist=ruok, mntr", show, "These([\"ruok\", \"mntr\"])");
    check("4lw.commands.whitelist=srvr,*", show, "All");
}

#[test]
fn keys_without_effect_warn_once_and_misspelt_ones_say_so() {
    check(
        "ssl.keyStore.location=/k\nmetricsProvider.httpPort=7000\ntickTimes=5",
        |_| "starts".to_owned(),
        "zoo.cfg:3: ssl.keyStore.location=/k: has no effect yet\n\
         zoo.cfg:4: metricsProvider.httpPort=7000: has no effect yet\n\
         zoo.cfg:5: tickTimes=5: unknown key, ignored; is it spelt right?\n\
         starts",
    );
}
