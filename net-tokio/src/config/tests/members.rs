//! Servers of an ensemble, their addresses, groups and dynamic files.

use super::*;

/// CONF-13.
#[test]
fn single_server_line_means_standalone() {
    check("server.7=a:2888:3888", address, "7 None 2181");
    check_whole("dataDir=/d\nserver.7=a:1:2:participant;2182", address, "7 None 2182");
    check_whole("dataDir=/d\nserver.7=a:1:2;[::1]:2182", address, "7 Some(\"::1\") 2182");
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
        "weight.1=3\nserver.1=a:1:2",
        address,
        "zoo.cfg:3: weight.1=3: has no effect on a server on its own\n1 None 2181",
    );
}

/// RECONF-07, RECONF-14: CONF-14, CONF-17.
#[test]
fn dynamic_file_has_the_members() {
    let read_both = |lines: &str, dynamic: &str| {
        let text = format!("dataDir=/d\nclientPort=2181\n{lines}");
        let read = |path: &Path| match path.to_str() {
            Some("/d/myid") => Ok("2\n".to_owned()),
            Some("/c/zoo.cfg.dynamic.10000000b") => Ok(dynamic.to_owned()),
            _ => Err(io::Error::other("no such file")),
        };
        parse("zoo.cfg", &text, &[], &read).map_err(|error| error.to_string())
    };
    let with = "dynamicConfigFile=/c/zoo.cfg.dynamic.10000000b\nreconfigEnabled=true";
    let (settings, _) = read_both(with, "server.1=a:1:2\nserver.2=b:1:2;2181").expect("valid");
    let options = settings.core.reconfig.expect("it is enabled");
    assert_eq!(
        (options.initial.to_string(), options.single_voter),
        (
            "server.1=a:1:2:participant\nserver.2=b:1:2:participant;0.0.0.0:2181\n\
          version=10000000b"
                .to_owned(),
            false
        )
    );
    let (settings, _) = read_both("server.1=a:1:2\nserver.2=b:1:2", "").expect("valid");
    assert_eq!(settings.core.reconfig, None, "it is disabled");
    let alone = "reconfigEnabled=true\nstandaloneEnabled=false\nserver.2=a:1:2";
    let (settings, _) = read_both(alone, "").expect("valid");
    assert!(settings.ensemble.is_some() && settings.core.reconfig.expect("on").single_voter);
    for (lines, dynamic, error) in [
        (with, "server.1=a:1", "/c/zoo.cfg.dynamic.10000000b:1: server.1=a:1: write server.N="),
        (with, "version=3", "/c/zoo.cfg.dynamic.10000000b:1: version=3: a dynamic file holds"),
        (&format!("{with}\nserver.1=a:1:2"), "server.1=a:1:2", "zoo.cfg:5: server.1=a:1:2: the d"),
        (&format!("{with}\nweight.1=2"), "server.1=a:1:2", "zoo.cfg:5: weight.1=2: the dynamic"),
        ("dynamicConfigFile=/no", "", "zoo.cfg:3: dynamicConfigFile=/no: cannot be read: no such"),
    ] {
        let found = read_both(lines, dynamic).expect_err(error);
        assert!(found.starts_with(error), "{found}");
    }
}

/// CONF-01, CONF-02: as in ZooKeeper, the line and the keys have to agree.
#[test]
fn client_address_is_that_of_the_server_line() {
    let read = |keys: &str, client: &str| {
        let text = format!("dataDir=/d\n{keys}\nserver.1=a:1:2{client}\nserver.2=b:1:2");
        let read = parse("zoo.cfg", &text, &[], &|_| Ok("1".to_owned()));
        read.map(|(settings, warnings)| (settings.client_address("*"), warnings.join("\n")))
            .map_err(|error| error.to_string())
    };
    for (keys, client, expected) in [
        ("", ";2182", "*:2182"),
        ("", ";0.0.0.0:2182", "*:2182"),
        ("", ";[::1]:2182", "[::1]:2182"),
        ("clientPort=2182", ";[::1]:2182", "[::1]:2182"),
        ("clientPort=0", ";2182", "*:2182"),
        ("clientPort=2182\nclientPortAddress=0.0.0.0", ";h:2182", "h:2182"),
        ("clientPort=2182\nclientPortAddress=h", ";h:2182", "h:2182"),
        ("clientPort=2182\nclientPortAddress=h", "", "h:2182"),
    ] {
        assert_eq!(read(keys, client), Ok((expected.to_owned(), String::new())), "{keys} {client}");
    }
    let applies = "the line of this server has ;0.0.0.0:2182, which applies; remove this line";
    assert_eq!(
        read("clientPort=2181", ";2182"),
        Err(format!("zoo.cfg:2: clientPort=2181: {applies}"))
    );
    assert_eq!(
        read("clientPort=2182\nclientPortAddress=h", ";2182"),
        Err(format!("zoo.cfg:3: clientPortAddress=h: {applies}"))
    );
    let (address, warning) =
        read("clientPort=2182\nclientPortAddress=h", ";i:2182").expect("valid");
    assert_eq!(address, "i:2182");
    assert!(warning.starts_with("zoo.cfg:3: clientPortAddress=h: the line of"), "{warning}");
}

/// CONF-07, CONF-13, CONF-19, CONF-38.
#[test]
fn ensemble_settings() {
    let members = |s: &Settings| {
        let ensemble = s.ensemble.as_ref().expect("has several servers");
        let lines: Vec<String> = ensemble.members.iter().map(ToString::to_string).collect();
        format!(
            "{} of {:?} {}",
            s.core.id(),
            s.core.voters().ids().collect::<Vec<_>>(),
            lines.join(" ")
        )
    };
    check_ensemble(
        "",
        members,
        "[] 2 of [ServerId(1), ServerId(2), ServerId(3)] server.1=a:2888:3888:participant \
         server.2=b:2889:3889:participant server.3=[fd00::3]:2888:3888:participant;[::]:2183",
    );
    let limits = |s: &Settings| {
        let ensemble = s.ensemble.as_ref().expect("has several servers");
        format!(
            "{:?} {:?} {:?} {} {:?}",
            s.core.init_limit(),
            s.core.sync_limit(),
            ensemble.connect_timeout,
            ensemble.listen_everywhere,
            ensemble.bind_retries
        )
    };
    check_ensemble("", limits, "[] 30s 15s 2s false Some(3)");
    check_ensemble(
        "initLimit=4\nsyncLimit=2\ntickTime=1000\ncnxTimeout=700\nquorumListenOnAllIPs=true\n\
         electionPortBindRetry=0",
        limits,
        "[] 4s 2s 700ms true None",
    );
    for (text, expected) in [
        (
            "server.4=d:2888",
            "zoo.cfg:6: server.4=d:2888: write server.N=host:2888:3888, with ;2181 behind it for \
             the \
             client port",
        ),
        (
            "server.4=[::1:2888:3888",
            "zoo.cfg:6: server.4=[::1:2888:3888: write server.N=host:2888:3888, with ;2181 behind \
             it \
             for the client port",
        ),
        (
            "server.4=d:1:2:learner",
            "zoo.cfg:6: server.4=d:1:2:learner: the role is participant or observer",
        ),
        (
            "server.4=d:1:2|e:1:2",
            "zoo.cfg:6: server.4=d:1:2|e:1:2: several addresses need multiAddress.enabled=true",
        ),
        (
            "multiAddress.enabled=true\nserver.4=d:1:2:observer|e:1:2:participant",
            "zoo.cfg:7: server.4=d:1:2:observer|e:1:2:participant: the addresses of one server \
             have one role",
        ),
        (
            "oraclePath=",
            "zoo.cfg:6: oraclePath=: empty; use a file that holds 1 or 0, or remove the line",
        ),
        (
            "oraclePath=/o\ngroup.1=1:2:3",
            "zoo.cfg:6: oraclePath=/o: an oracle has no effect on groups; remove one of the two",
        ),
        ("server.02=d:1:2", "zoo.cfg:6: server.02=d:1:2: a second line for server 2"),
        ("peerType=voter", "zoo.cfg:6: peerType=voter: the type is participant or observer"),
        ("syncLimit=0", "zoo.cfg:6: syncLimit=0: out of range 1 to 28800; use ticks, such as 10"),
    ] {
        check_ensemble(text, members, expected);
    }
}

/// CONF-20.
#[test]
fn server_may_have_several_addresses() {
    let text = |s: &Settings| {
        let ensemble = s.ensemble.as_ref().expect("has several servers");
        ensemble.text().lines().last().map(str::to_owned).expect("has a version")
            + &ensemble.member(ServerId(4)).expect("it is listed").to_string()
    };
    let expected = "[] version=0server.4=d:1:2|e:3:4:observer;0.0.0.0:5";
    for lines in [
        "multiAddress.enabled=true\nserver.4=e:3:4:observer|d:1:2;5",
        "zookeeper.multiAddress.enabled=true\nserver.4=d:1:2:observer|e:3:4:observer;5",
    ] {
        check_ensemble(lines, text, expected);
    }
}

/// CONF-21.
#[test]
fn oracle_is_a_file() {
    let show = |s: &Settings| {
        let path = s.ensemble.as_ref().and_then(|ensemble| ensemble.oracle.clone());
        format!("{path:?} {}", s.core.oracle)
    };
    check_ensemble("", show, "[] None false");
    check_ensemble("oraclePath=/run/o", show, "[] Some(\"/run/o\") true");
}

/// CONF-13, CONF-16.
#[test]
fn observers_have_no_vote() {
    let roles = |s: &Settings| {
        let voters: Vec<ServerId> = s.core.voters().ids().collect();
        let all: Vec<ServerId> = s.core.members().ids().collect();
        let text = s.ensemble.as_ref().expect("has several servers").text();
        let line = text.lines().find(|line| line.contains("observer")).map(str::to_owned);
        format!("{voters:?} of {all:?}: {line:?}")
    };
    let voters = "[ServerId(1), ServerId(2), ServerId(3)]";
    let all = "[ServerId(1), ServerId(2), ServerId(3), ServerId(4)]";
    let observer = "Some(\"server.4=d:1:2:observer;0.0.0.0:2181\")";
    let expected = format!("[] {voters} of {all}: {observer}");
    check_ensemble("server.4=d:1:2:OBSERVER;2181", roles, &expected);
    let warned = "[\"zoo.cfg:6: peerType=observer: differs from the server line, which applies\"]";
    check_ensemble("peerType=observer", roles, &format!("{warned} {voters} of {voters}: None"));
    for (lines, counts) in [
        ("server.1=a:1:2:observer", "0 of the 1"),
        ("server.1=a:1:2\nserver.2=b:1:2:observer", "1 of the 2"),
    ] {
        check_whole(
            &format!("dataDir=/d\nclientPort=2181\n{lines}"),
            roles,
            &format!(
                "server.N: observers need an ensemble of at least two participants, and {counts} \
                 server lines is one: add server lines, or remove :observer"
            ),
        );
    }
}

/// QV-02, QV-04, CONF-13.
#[test]
fn groups_and_weights() {
    let text = |s: &Settings| {
        let ensemble = s.ensemble.as_ref().expect("has several servers");
        assert_eq!(&ensemble.voters, s.core.voters());
        let text = ensemble.text();
        let lines = text.lines().filter(|line| !line.starts_with("server."));
        lines.collect::<Vec<_>>().join(" ")
    };
    check_ensemble("", text, "[] version=0");
    check_ensemble(
        "weight.3=0\ngroup.7=3\ngroup.2=2:1\nweight.1=5",
        text,
        "[] group.2=1:2 group.7=3 weight.1=5 weight.2=1 weight.3=0 version=0",
    );
    check_ensemble(
        "group.0 = 1 : 2:3\nweight.9=2",
        text,
        "[\"zoo.cfg:7: weight.9=2: has no effect: there is no server.9 line\"] group.0=1:2:3 \
         weight.1=1 weight.2=1 weight.3=1 version=0",
    );
    for (text_of_file, expected) in [
        (
            "group.1=1:2\ngroup.2=2:3",
            "zoo.cfg:7: group.2=2:3: server 2 is in group.1 already; leave it in one group only",
        ),
        ("group.1=1:2:3:1", "zoo.cfg:6: group.1=1:2:3:1: names server 1 twice; name it once"),
        (
            "group.1=1:2:3:4",
            "zoo.cfg:6: group.1=1:2:3:4: server 4 does not vote; add server.4 as a participant, or \
             remove 4 from the group",
        ),
        (
            "weight.1=2\ngroup.4=1\ngroup.3=2",
            "zoo.cfg:7: group.4=1: server 3 is in no group; name it in one group.N line, because \
             with groups or weights every participant must be in a group",
        ),
        (
            "weight.2=2\nweight.1=2",
            "zoo.cfg:6: weight.2=2: server 1 is in no group; name it in one group.N line, because \
             with groups or weights every participant must be in a group",
        ),
        (
            "group.1=1:2:3\nweight.3=0\nweight.1=0\nweight.2=0",
            "zoo.cfg:7: weight.3=0: no server has a weight above 0, so none could lead; give some 1",
        ),
        (
            "group.1=1:2:3\nweight.3=-1",
            "zoo.cfg:7: weight.3=-1: a weight is a whole number from 0 to 4294967295, as in 2",
        ),
        ("weight.one=1", "zoo.cfg:6: weight.one=1: a weight belongs to a server, as in weight.1"),
        ("weight.1=1\nweight.01=2", "zoo.cfg:7: weight.01=2: a second weight for server 1"),
        ("group.a=1", "zoo.cfg:6: group.a=1: a group has a number, as in group.1"),
        ("group.1=1\ngroup.01=2", "zoo.cfg:7: group.01=2: a second line for group 1"),
        (
            "group.1=1,2,3",
            "zoo.cfg:6: group.1=1,2,3: write the numbers of servers, as in group.1=1:2:3",
        ),
        ("group.1=", "zoo.cfg:6: group.1=: write the numbers of servers, as in group.1=1:2:3"),
    ] {
        check_ensemble(text_of_file, text, expected);
    }
}

/// `server.N` lines may come behind the groups that name them.
#[test]
fn groups_may_precede_their_servers() {
    let lines = "weight.2=3\ngroup.1=1:2\ndataDir=/d\nclientPort=1\nserver.2=b:1:2\nserver.1=a:1:2";
    let (settings, warnings) = parse("zoo.cfg", lines, &[], &|_| Ok("1".to_owned())).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let voters = settings.core.voters();
    assert!(voters.is_quorum(|id| id.0 == 2) && !voters.is_quorum(|id| id.0 == 1));
}

/// CONF-60.
#[test]
fn myid_selects_the_server() {
    let lines = "dataDir=/d\nclientPort=2181\nserver.1=a:1:2\nserver.2=b:1:2";
    let check = |myid: io::Result<&'static str>, expected: &str| {
        let read = |path: &Path| {
            assert_eq!(path, Path::new("/d/myid"));
            match &myid {
                Ok(text) => Ok((*text).to_owned()),
                Err(error) => Err(error.kind().into()),
            }
        };
        match parse("zoo.cfg", lines, &[], &read) {
            Ok((settings, _)) => assert_eq!(address(&settings), expected),
            Err(error) => assert_eq!(error.to_string(), expected),
        }
    };
    check(Ok("2"), "2 None 2181");
    check(Ok("\t1\r\n"), "1 None 2181");
    check(Ok("2\n# the second of three\n1\n"), "2 None 2181");
    check(Ok("\n2\n"), "/d/myid: \"\" has no server.N line; use one of 1, 2");
    check(Ok("3"), "/d/myid: \"3\" has no server.N line; use one of 1, 2");
    check(Ok("one"), "/d/myid: \"one\" has no server.N line; use one of 1, 2");
    check(
        Err(io::ErrorKind::NotFound.into()),
        "/d/myid: cannot be read: entity not found; write the number of this server into it, one \
         of 1, 2",
    );
}
