//! Checks the recognition of four-letter commands in any bytes, and the answers with any numbers.
//! The fuzz target and the test that replays its corpus share these checks.
//!
//! An input is a byte that chooses the configuration, the count of received bytes and these bytes,
//! and the numbers.

mod source;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use source::Source;
use zabkeeper::config::{Settings, parse};
use zabkeeper::facts;
use zabkeeper_core::driver::ClientLine;
use zabkeeper_core::driver::four_letter::{
    self, Descriptors, DiskUse, Dump, Environment, Figures, Pairs, refused, watch_summary,
};
use zabkeeper_core::driver::metrics::{ConnStats, Metrics, Served};
use zabkeeper_core::store::Recovered;
use zabkeeper_core::wire::{ClientFrames, FirstFrame, FourLetterCommand, MAX_FRAME_DEFAULT, Reply};
use zabkeeper_core::{
    Epoch, ErrorCode, Instant, Mode, Now, Server, SessionId, SessionInfo, Status, WallMs,
    WatchSummary, Zxid,
};

/// Configurations on which answers depend.
const CONFIGURATIONS: [&str; 4] = [
    "dataDir=/d\nclientPort=2181",
    "dataDir=/d\nclientPort=2181\n4lw.commands.whitelist=*",
    "dataDir=/d\nclientPort=2181\n4lw.commands.whitelist=ruok, stat,nope,\nmaxClientCnxns=0",
    "dataDir=/d\ntickTime=1\n4lw.commands.whitelist=*\nclientPortListenBacklog=7\n\
     server.1=a:2888:3888;2181\nserver.2=[::1]:2888:3888;[::1]:2181\nserver.3=c:1:2;2183",
];

/// The result of an input.
pub(crate) struct Answered {
    /// The command at the start of the connection, if there is one.
    pub(crate) command: Option<FourLetterCommand>,
    /// Is the command on the whitelist?
    pub(crate) allowed: bool,
    /// The answers to all commands.
    pub(crate) texts: Vec<String>,
}

/// Checks one input.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Answered {
    let mut source = Source(input);
    let which = usize::from(source.below(4));
    let (settings, _) = parse("zoo.cfg", CONFIGURATIONS[which], &[], &|_| Ok("2\n".to_owned()))
        .expect("these are configurations");
    let arrived = source.bytes();
    let command = command(arrived);
    assert_eq!(
        command,
        arrived.first_chunk().and_then(FourLetterCommand::recognise),
        "whatever follows"
    );
    let allowed = command.is_some_and(|command| settings.whitelist.allows(command));
    let mut texts = Vec::new();
    if let Some(command) = command.filter(|_| !allowed) {
        assert!(command != FourLetterCommand::Srvr, "ZooKeeper's own scripts need it");
        texts.push(refused(command));
    }
    texts.extend(answers(&settings, &mut source));
    Answered { command, allowed, texts }
}

/// Decodes the command at the start of a connection, as `core::driver` does.
fn command(arrived: &[u8]) -> Option<FourLetterCommand> {
    let mut frames = ClientFrames::new(MAX_FRAME_DEFAULT);
    let mut buffer = BytesMut::new();
    for byte in arrived {
        buffer.extend_from_slice(&[*byte]);
        match frames.first(&mut buffer) {
            Ok(None) => {}
            Ok(Some(FirstFrame::Command(command))) => return Some(command),
            Ok(Some(FirstFrame::Connect(_))) | Err(_) => return None,
        }
    }
    None
}

/// The answers to all commands with these numbers, which no real server may have.
fn answers(settings: &Settings, source: &mut Source<'_>) -> Vec<String> {
    let options = facts::options(settings);
    let status = status(settings, source);
    let now = Now { mono: instant(source), wall: WallMs(source.long()) };
    let metrics = metrics(source);
    let disk = DiskUse { snapshots: unsigned(source), log: unsigned(source) };
    let descriptors =
        (source.below(2) == 1).then(|| Descriptors { open: size(source), limit: unsigned(source) });
    let uptime = Duration::from_nanos(unsigned(source));
    let drop_probability = u32::from(source.byte()) * 4_000;
    let environment = Environment { user: text(source), ..Environment::default() };
    let (mut clients, mut sessions) = (Vec::new(), Vec::new());
    let (mut listing, mut pairs_of) = (String::new(), Pairs::<String>::default());
    for _ in 0..source.below(8) {
        let client = client(source);
        let id = SessionId(source.long());
        let expires = (source.below(2) == 1).then(|| instant(source));
        let timeout_ms = source.int().cast_unsigned();
        sessions.push(SessionInfo { id, timeout_ms, expires, server: None });
        let path = text(source).unwrap_or_default();
        pairs_of.add(&mut listing, path.as_str(), &path, id);
        clients.push(client);
    }
    let mut texts = vec![
        four_letter::dirs(&disk),
        four_letter::envi(&options, &environment),
        listing + "\n",
        watch_summary(WatchSummary { connections: size(source), ..WatchSummary::default() }),
    ];
    let figures = Figures {
        options: &options,
        config: settings.core(),
        connections_per_ip: settings.connections_per_ip(),
        status: &status,
        metrics: &metrics,
        connections: clients.len(),
        clients,
        event_bytes: 0,
        now: now.mono,
        uptime,
        leader_uptime: uptime,
        progress: Vec::new(),
        pending_reconfig: None,
        disk,
        descriptors,
        drop_probability,
    };
    texts.extend([
        four_letter::srvr(&figures),
        four_letter::stat(&figures),
        four_letter::cons(&figures),
    ]);
    pairs(&four_letter::conf(&figures), '=');
    let mntr = four_letter::mntr(&four_letter::samples(&figures));
    let names = pairs(&mntr, '\t');
    assert!(names.iter().all(|name| name.starts_with("zk_")), "{mntr}");
    texts.extend([four_letter::conf(&figures), mntr]);
    let sessionless_timeout = sessionless_timeout(source);
    let Figures { clients, .. } = figures;
    let local_sessions =
        sessions.first().is_some_and(|s| s.timeout_ms & 1 == 1).then(|| sessions.clone());
    let mode = status.mode;
    let owners = size(source);
    let dump = Dump { mode, sessions, local_sessions, owners, clients, now, sessionless_timeout };
    texts.extend([four_letter::dump_sessions(&dump), four_letter::dump_connections(&dump)]);
    for text in &texts {
        // As in ZooKeeper, `conf` of an ensemble ends without a line feed.
        assert!(text.ends_with('\n') || text.ends_with("version=0"), "{text:?}");
    }
    texts
}

/// Checks that every line is a name and a value, and no name is repeated. Returns the names.
fn pairs(text: &str, mark: char) -> Vec<&str> {
    let mut names = Vec::new();
    for line in text.lines().filter(|line| *line != "membership: ") {
        let (name, value) = line.split_once(mark).unwrap_or_else(|| panic!("{line:?}"));
        assert!(!name.is_empty() && !value.is_empty(), "{line:?}");
        assert!(!names.contains(&name), "{name} twice");
        names.push(name);
    }
    names
}

/// The status of a newly started server, with numbers from the input.
fn status(settings: &Settings, source: &mut Source<'_>) -> Status {
    let server = Server::recover(settings.core().clone(), 1, Recovered::default());
    let mut status = server.expect("an empty disk").status();
    let modes = [Mode::Looking, Mode::Standalone, Mode::Leader, Mode::Follower];
    status.mode = modes[usize::from(source.below(4))];
    status.serving = source.below(2) == 1;
    status.current_epoch = Epoch(source.int().cast_unsigned());
    status.applied = Zxid(unsigned(source));
    status.nodes = size(source);
    status.ephemerals = size(source);
    status.sessions = size(source);
    status.watches = size(source);
    status.learners = size(source);
    status.data_bytes = unsigned(source);
    status
}

fn metrics(source: &mut Source<'_>) -> Metrics {
    let mut metrics =
        Metrics { received: unsigned(source), sent: unsigned(source), ..Metrics::default() };
    for _ in 0..source.below(4) {
        metrics.latency.add(instant(source).since(instant(source)));
        metrics.proposals.add(size(source));
    }
    if source.below(4) == 3 {
        metrics.reset();
    }
    metrics.load.requests = unsigned(source);
    metrics
}

fn client(source: &mut Source<'_>) -> ClientLine {
    let mut stats = ConnStats { received: unsigned(source), ..ConnStats::default() };
    for _ in 0..source.below(4) {
        stats.asked(source.int());
        let (xid, zxid) = (source.int(), source.long());
        let arrival = (source.below(2) == 1).then(|| instant(source));
        stats.replied(
            &Reply { xid, zxid, result: Err(ErrorCode::NoNode) },
            arrival,
            instant(source),
        );
    }
    if source.below(2) == 1 {
        stats.connected(source.below(2) == 1, instant(source), instant(source));
    }
    let served = (source.below(2) == 1)
        .then(|| Served { session: SessionId(source.long()), timeout_ms: source.int() });
    let address = source.long().to_be_bytes();
    let [a, b, c, d, e, f, g, h] = address;
    let port = u16::from_be_bytes([g, h]);
    let peer = match a % 2 {
        0 => SocketAddr::from(([c, d, e, f], port)),
        _ => SocketAddr::from(([0xfd00, 0, 0, 0, 0, u16::from(b), u16::from(c), 1], port)),
    };
    ClientLine {
        peer,
        since: WallMs(source.long()),
        reading: source.below(2) == 1,
        writing: source.below(2) == 1,
        unanswered: source.int().cast_unsigned(),
        served,
        heard: instant(source),
        stats,
    }
}

/// A value of `nio.sessionlessCnxnTimeout`, which is never zero.
fn sessionless_timeout(source: &mut Source<'_>) -> Duration {
    Duration::from_millis(1 + u64::from(source.int().cast_unsigned() >> 1))
}

fn text(source: &mut Source<'_>) -> Option<String> {
    let bytes = source.bytes();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn instant(source: &mut Source<'_>) -> Instant {
    Instant(unsigned(source))
}

fn unsigned(source: &mut Source<'_>) -> u64 {
    source.long().cast_unsigned()
}

fn size(source: &mut Source<'_>) -> usize {
    usize::try_from(unsigned(source)).unwrap_or(usize::MAX)
}
