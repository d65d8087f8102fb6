//! Scripted tests with several servers: each file of `tests/ensembles` is a script, and its
//! snapshot is the trace of what the servers did.
//!
//! A script has one command a line. `#` begins a comment; the first line says what the script
//! shows. Nothing happens without a command: messages and disk commands wait for `settle`, `wait`,
//! `deliver` or `disk`.
//!
//! Scripts step the cores without the driver, because they choose the order of every message and
//! completion: they hold single messages of a link, which the driver would queue, encode and send
//! together, and each step checks the core that has taken it.
//!
//! ```text
//! ensemble N                  servers 1 to N, with empty disks and a tick of 1 s
//! ensemble N observers M      the same, and M servers more that observe
//! grow N                      configures servers 1 to N; new ones have empty disks; takes effect
//!                             at the next boot of each server
//! reconfigurable N            servers 1 to N, which may be reconfigured by everybody
//! old N ..                    these servers run 0.2.0 from their next boot: no reconfiguration
//! upgrade N ..                these servers run the present release from their next boot
//! join N lists M              adds server N, whose files list the servers 1 to M and itself
//! config KEY=N ...            before `boot`: recent_bytes, bulk_bytes, factor (millionths),
//!                             snapshot_txns, snapshot_slice_bytes, kept, compare, step_units,
//!                             epoch_txns, hold_ms; check_ms and per_minute (of containers); local,
//!                             upgrade, read_only, leader_serves, masters and oracle (1 or 0)
//! start                       `boot` and `settle` without a trace
//! boot [N ..]                 starts these servers, or all, from their disks
//! pause N | resume N          the process gets no CPU time: its deadlines pass
//! oracle N yes|no             the oracle permits N to go on without the other voter, or not
//! stop N                      the process is to stop; the trace says when it may exit
//! kill N ..                   the process dies: disk commands not done are lost, messages sent
//!                             still arrive
//! vanish N                    the machine dies: nothing that it sent arrives, links do not go down
//! wipe N                      empties the disk
//! keep N NAME                 stores a copy of the disk by name, beyond the next `ensemble`
//! put N NAME                  replaces the disk by the stored copy
//! settle                      delivers and completes everything that is not held, until nothing is
//!                             left; no time passes
//! wait MS                     lets time pass, and settles at each deadline
//! hold A->B | hold disk N     holds messages from A to B; stops the disk; `*` is every server
//! release A->B | release disk N
//! deliver A->B [COUNT]        delivers waiting messages, also held ones
//! disk N [COUNT]              completes disk commands, also of a stopped disk
//! disk N log                  completes the commands of the log lane, ahead of all others
//! forge N                     changes the data of the last node that the log of N creates
//! rot N                       makes the snapshots of N unreadable
//! disk N full | disk N roomy  the disk has no room for snapshots | has room again
//! lose A->B                   discards the messages that a dead server has sent
//! refuse N | admit N          nobody reaches the quorum port of N, but its election port
//! cut A-B | mend A-B          breaks all links at once, discards messages under way, and prevents
//!                             new links until `choose_sync_mode`
//! show pings                  prints PING and PONG, too
//! progress                    prints what the leader knows of the other servers, and what a
//!                             reconfiguration waits for
//! status | digest             prints what the servers report of themselves
//! sN cM ..                    a client of server N; see `scenarios`
//! ```
//!
//! The trace has a line for each output of a server. `s1 -> 2 3` sends a message to two servers on
//! links, `s1 tells 2 3` sends an election notification.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use zabkeeper_core::io::{ClientCommand, Outbox, PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, NotedConfigs, Notification, PeerMessage};
use zabkeeper_core::store::DiskEvent;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{
    Config, ConnId, EnsembleConfig, Epoch, Input, Instant, LinkCloseReason, LinkId, Members, Now,
    ReconfigOptions, Server, ServerId, Voters, WallMs, Zxid,
};

mod commands;
mod hostile;
mod observe;
mod storm;

use crate::play::{Clients, Disk, assert_recordable, commands};

/// The pause before an unreachable server is dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

#[test]
fn ensembles() {
    insta::glob!("../ensembles", "*.txt", |path| {
        let script = std::fs::read_to_string(path).expect("the script is there");
        assert!(script.lines().count() < 80, "{}: a play is short", path.display());
        insta::assert_snapshot!(Play::new().run(&script));
    });
}

struct Play {
    members: BTreeMap<ServerId, Member>,
    now: Now,
    /// All messages and disk commands under way, in the order in which they were sent.
    events: Vec<Event>,
    wires: Vec<Wire>,
    held: BTreeSet<(ServerId, ServerId)>,
    held_disks: BTreeSet<ServerId>,
    paused: BTreeSet<ServerId>,
    /// Servers that are to stop, and may not exit yet.
    stopping: BTreeSet<ServerId>,
    cut: BTreeSet<(ServerId, ServerId)>,
    /// The servers whose quorum ports nobody reaches.
    refusing: BTreeSet<ServerId>,
    clients: Clients,
    show_pings: bool,
    trace: String,
    traced_at: Instant,
    /// The digest of the tree at each zxid, from the server that reached it first.
    trees: BTreeMap<Zxid, u64>,
    /// The server that served as leader in each epoch.
    leaders: BTreeMap<Epoch, ServerId>,
    /// The commands that clients have received.
    heard: Vec<(ConnId, ClientCommand)>,
    /// Was a log forged, so that trees may differ?
    forged: bool,
    /// Copies of disks, by name.
    kept: BTreeMap<String, Disk>,
}

struct Member {
    server: Option<Server>,
    config: Config,
    disk: Disk,
    next_link: u64,
    /// While it runs 0.2.0: what its configuration has when it is upgraded.
    upgrade: Option<ReconfigOptions>,
    /// Servers that were unreachable at the last dial.
    unreachable: BTreeSet<ServerId>,
}

impl Member {
    fn new(config: Config) -> Member {
        let (disk, unreachable) = (Disk::default(), BTreeSet::new());
        Member { server: None, config, disk, next_link: 0, upgrade: None, unreachable }
    }
}

/// A link. Each end has its server's id for the link, and is up until that server gets `Down`.
struct Wire {
    ends: [End; 2],
}

#[derive(Clone, Copy)]
struct End {
    server: ServerId,
    link: LinkId,
    up: bool,
}

/// An event under way from one server to another, or to itself.
struct Event {
    at: Instant,
    from: ServerId,
    to: ServerId,
    what: What,
}

enum What {
    Election(Notification, NotedConfigs),
    Dial(LinkId),
    Message(usize, PeerMessage),
    Down(usize),
    Disk,
}

impl Play {
    fn new() -> Play {
        Play {
            members: BTreeMap::new(),
            now: Now { mono: Instant(0), wall: WallMs(1_000_000) },
            events: Vec::new(),
            wires: Vec::new(),
            held: BTreeSet::new(),
            held_disks: BTreeSet::new(),
            paused: BTreeSet::new(),
            stopping: BTreeSet::new(),
            cut: BTreeSet::new(),
            refusing: BTreeSet::new(),
            clients: Clients::default(),
            show_pings: false,
            trace: String::new(),
            traced_at: Instant(0),
            trees: BTreeMap::new(),
            leaders: BTreeMap::new(),
            heard: Vec::new(),
            forged: false,
            kept: BTreeMap::new(),
        }
    }

    fn run(mut self, script: &str) -> String {
        for line in commands(script) {
            writeln!(self.trace, "> {line}").unwrap();
            self.command(&Vec::from_iter(line.split_whitespace()));
        }
        self.trace
    }

    /// Servers may reach known zxids with other trees, and known epochs with other leaders, from
    /// now on.
    fn forget(&mut self) {
        self.trees.clear();
        self.leaders.clear();
    }

    fn assemble(&mut self, count: u64, observers: u64) {
        let voters = Voters::new((1..=count).map(ServerId));
        let observers = (count + 1..=count + observers).map(ServerId);
        let members = Members::new(voters).with_observers(observers);
        for id in members.ids() {
            let config = Config::new(id, members.clone(), Duration::from_millis(1000));
            self.members.insert(id, Member::new(config.expect("a fine config")));
        }
    }

    /// Adds a server that lists the servers 1 to `count` and itself, with reconfiguration enabled.
    fn list(&mut self, id: ServerId, count: u64) {
        let listed = (1..=count).map(ServerId).filter(|listed| *listed != id);
        let line = |id: ServerId| format!("server.{id}=host{id}:2888:3888;2181\n");
        let lines: String = listed.chain([id]).map(line).collect();
        let initial = EnsembleConfig::parse(&lines).expect("a valid list");
        let tick = Duration::from_millis(1000);
        let mut config = Config::new(id, initial.members().clone(), tick).expect("a fine config");
        config.reconfig =
            Some(ReconfigOptions { initial, single_voter: false, multi_address: true });
        config.auth.skip_acl = true;
        self.members.insert(id, Member::new(config));
    }

    fn boot(&mut self, id: ServerId) {
        let member = self.members.get_mut(&id).unwrap();
        if member.server.is_some() {
            return;
        }
        if member.disk.state.differs.is_some() {
            member.disk.set_aside();
        }
        let recovered = member.disk.recovered();
        let server = Server::recover(member.config.clone(), id.0, recovered);
        member.server = Some(server.expect("a sound disk"));
        self.step(id, Input::Timeout);
    }

    fn kill(&mut self, id: ServerId) {
        let member = self.members.get_mut(&id).unwrap();
        assert!(member.server.take().is_some(), "s{id} is dead already");
        member.disk.lose_power();
        self.stopping.remove(&id);
        member.unreachable.clear();
        self.events.retain(|event| {
            let dial = matches!(event.what, What::Dial(_)) && event.from == id;
            event.to != id && !dial
        });
        for (index, wire) in self.wires.iter_mut().enumerate() {
            let Some(side) = wire.ends.iter().position(|end| end.server == id && end.up) else {
                continue;
            };
            wire.ends[side].up = false;
            let to = wire.ends[1 - side].server;
            self.events.push(Event { at: self.now.mono, from: id, to, what: What::Down(index) });
        }
    }

    fn break_links(&mut self, pair: &str) {
        let (a, b) = pair.split_once('-').unwrap();
        let (a, b) = (id(a), id(b));
        self.cut.insert((a, b));
        self.cut.insert((b, a));
        let between =
            |event: &Event| (event.from, event.to) == (a, b) || (event.from, event.to) == (b, a);
        self.events.retain(|event| !between(event) || matches!(event.what, What::Dial(_)));
        for index in 0..self.wires.len() {
            let ends = self.wires[index].ends.map(|end| end.server);
            if ends == [a, b] || ends == [b, a] {
                ends.iter().for_each(|end| self.down(index, *end));
            }
        }
    }

    fn settle(&mut self) {
        let mut steps = 0;
        while let Some(next) = self.events.iter().position(|event| self.may_pass(event)) {
            steps += 1;
            assert!(steps < 10_000, "this does not settle:\n{}", self.trace);
            self.happen(next);
        }
    }

    fn may_pass(&self, event: &Event) -> bool {
        event.at <= self.now.mono
            && match event.what {
                What::Disk => !self.held_disks.contains(&event.to),
                What::Election(..) | What::Dial(_) | What::Message(..) | What::Down(_) => {
                    !self.held.contains(&(event.from, event.to))
                }
            }
    }

    fn deliver(&mut self, way: &str, count: &[&str]) {
        let ways = self.ways(way);
        let of_way = |event: &Event| {
            ways.contains(&(event.from, event.to)) && !matches!(event.what, What::Disk)
        };
        let waiting = self.events.iter().filter(|event| of_way(event)).count();
        let count = count.first().map_or(waiting, |count| count.parse().unwrap());
        assert!(count > 0 && count <= waiting, "{waiting} wait for {way}");
        for _ in 0..count {
            let next = self.events.iter().position(of_way).unwrap();
            self.happen(next);
        }
    }

    /// Lets time pass, and fires each deadline when it is due.
    fn wait(&mut self, ms: u64) {
        let end = self.now.mono.after(Duration::from_millis(ms));
        let mut steps = 0;
        loop {
            self.settle();
            let deadline = |id: &ServerId| Some((self.server(*id)?.next_deadline()?.0, *id));
            let awake = self.members.keys().filter(|id| !self.paused.contains(id));
            let due = awake.filter_map(deadline).min();
            let dial = self.events.iter().map(|event| event.at).filter(|at| *at > self.now.mono);
            let next = due.map(|(at, _)| at).into_iter().chain(dial).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            steps += 1;
            assert!(steps < 100_000, "deadlines without an end:\n{}", self.trace);
            self.pass_to(next.max(self.now.mono));
            if let Some((_, id)) = due.filter(|(at, _)| *at <= next) {
                self.step(id, Input::Timeout);
            }
        }
        self.pass_to(end);
    }

    fn pass_to(&mut self, at: Instant) {
        let ms = |at: Instant| i64::try_from(at.0 / 1_000_000).unwrap();
        self.now.wall.0 += ms(at) - ms(self.now.mono);
        self.now.mono = at;
    }

    fn happen(&mut self, index: usize) {
        let Event { from, to, what, .. } = self.events.remove(index);
        match what {
            What::Election(said, configs) => {
                if self.runs(to) && configs != NotedConfigs::default() {
                    self.step(to, Input::EnsembleConfig(from, configs));
                }
                if self.runs(to) {
                    self.step(to, Input::Election(from, said));
                }
            }
            What::Dial(link) => self.dial(from, link, to),
            What::Message(wire, message) => self.message(wire, from, to, message),
            What::Down(wire) => self.down(wire, to),
            What::Disk => {
                let all = self.members[&to].disk.queue.len();
                self.finish(to, all);
            }
        }
    }

    fn dial(&mut self, from: ServerId, link: LinkId, to: ServerId) {
        let open = !self.cut.contains(&(from, to)) && !self.refusing.contains(&to);
        let reachable = self.runs(to) && open;
        let unreachable = &mut self.members.get_mut(&from).unwrap().unreachable;
        if !reachable {
            unreachable.insert(to);
            self.say(format!("s{from}: s{to} is unreachable"));
            self.step(from, Input::Peer(link, PeerEvent::Unreachable { peer: to }));
            return;
        }
        unreachable.remove(&to);
        let other = self.allocate_link(to);
        self.say(format!("s{from} and s{to} are linked"));
        let end = |server, link| End { server, link, up: true };
        self.wires.push(Wire { ends: [end(from, link), end(to, other)] });
        let is_old = |id| self.members[&id].upgrade.is_some();
        let versions = [is_old(from), is_old(to)];
        self.step(to, Input::Peer(other, PeerEvent::Up { peer: from, dialled: false }));
        if versions == [true, false] {
            self.step(to, Input::Peer(other, PeerEvent::Version(5)));
        }
        self.step(from, Input::Peer(link, PeerEvent::Up { peer: to, dialled: true }));
        if versions == [false, true] {
            self.step(from, Input::Peer(link, PeerEvent::Version(5)));
        }
    }

    fn message(&mut self, wire: usize, from: ServerId, to: ServerId, message: PeerMessage) {
        let end_of =
            |play: &Play, id| *play.wires[wire].ends.iter().find(|e| e.server == id).unwrap();
        let end = end_of(self, to);
        if let PeerMessage::Leader(FromLeader::Proposal(entry)) = &message
            && self.members[&to].upgrade.is_some()
        {
            let op = Txn::decode(entry).expect("a leader sends transactions").op;
            let reconfigures = matches!(op, TxnOp::Reconfig { .. });
            assert!(!reconfigures, "s{to} cannot decode {op:?}\n{}", self.trace);
        }
        if end.up {
            self.step(to, Input::Peer(end.link, PeerEvent::Message(message)));
        }
        let more = self.events.iter().any(|event| {
            event.from == from && matches!(event.what, What::Message(w, _) if w == wire)
        });
        let end = end_of(self, from);
        if !more && end.up {
            self.step(from, Input::Peer(end.link, PeerEvent::Drained));
        }
    }

    fn down(&mut self, wire: usize, to: ServerId) {
        let ends = &mut self.wires[wire].ends;
        let side = ends.iter().position(|end| end.server == to).unwrap();
        if std::mem::take(&mut ends[side].up) {
            let (link, peer) = (ends[side].link, ends[1 - side].server);
            self.say(format!("s{to}: the link with s{peer} is down"));
            self.step(to, Input::Peer(link, PeerEvent::Down));
        }
    }

    fn allocate_link(&mut self, id: ServerId) -> LinkId {
        let member = self.members.get_mut(&id).unwrap();
        member.next_link += 1;
        LinkId(member.next_link)
    }

    fn finish(&mut self, id: ServerId, count: usize) {
        let disk = &mut self.members.get_mut(&id).unwrap().disk;
        let events = disk.finish(count);
        if disk.queue.is_empty() {
            self.events.retain(|event| event.to != id || !matches!(event.what, What::Disk));
        }
        for event in events {
            let found = match &event {
                DiskEvent::LogRead { .. } | DiskEvent::SnapshotRead { .. } => true,
                DiskEvent::Done(_)
                | DiskEvent::ChunkDone { .. }
                | DiskEvent::SnapshotFailed { .. }
                | DiskEvent::Failed(_) => false,
            };
            let input = Input::Disk(event);
            if found {
                self.say(self.named_link(id, format!("s{id} {input}")));
            }
            self.step(id, input);
        }
    }

    fn server(&self, id: ServerId) -> Option<&Server> {
        self.members[&id].server.as_ref()
    }

    fn runs(&self, id: ServerId) -> bool {
        self.server(id).is_some()
    }

    fn step(&mut self, id: ServerId, input: Input) {
        assert_recordable(&input);
        let mut out = Outbox::default();
        let server = self.members.get_mut(&id).unwrap().server.as_mut().expect("the server runs");
        let before = server.status().applied;
        server.step(self.now, input, &mut out);
        assert_recordable(&out);
        self.print(id, &out);
        self.clients.receive(&out);
        self.heard.append(&mut out.clients.clone());
        self.take(id, out);
        self.check(id, before);
    }

    /// Puts the outputs of a step under way.
    fn take(&mut self, from: ServerId, out: Outbox) {
        let now = self.now.mono;
        if !out.disk.is_empty() {
            self.members.get_mut(&from).unwrap().disk.queue.extend(out.disk);
            let pending = |e: &Event| e.to == from && matches!(e.what, What::Disk);
            if !self.events.iter().any(pending) {
                self.events.push(Event { at: now, from, to: from, what: What::Disk });
            }
        }
        let noted = |id: &ServerId| {
            self.members[id].server.as_ref().map(Server::noted_configs).unwrap_or_default()
        };
        let ours = noted(&from);
        for (to, said) in out.election {
            // The driver sends them to those who know them, too.
            let configs = if noted(&to) == ours { NotedConfigs::default() } else { ours.clone() };
            if !self.cut.contains(&(from, to)) {
                let what = What::Election(said, configs);
                self.events.push(Event { at: now, from, to, what });
            }
        }
        for command in out.peers {
            match command {
                PeerCommand::Dial(to) | PeerCommand::DialMaster(to) => {
                    let link = self.allocate_link(from);
                    let again = self.members[&from].unreachable.contains(&to);
                    let at = if again { now.after(DIAL_PAUSE) } else { now };
                    self.events.push(Event { at, from, to, what: What::Dial(link) });
                }
                PeerCommand::Send(link, message) => {
                    if let Some((wire, to)) = self.wire(from, link) {
                        let what = What::Message(wire, message);
                        self.events.push(Event { at: now, from, to, what });
                    }
                }
                PeerCommand::Close(link, why) => {
                    if let Some((wire, to)) = self.wire(from, link) {
                        if matches!(why, LinkCloseReason::Incompatible(_)) {
                            // The driver pauses before it dials again.
                            self.members.get_mut(&to).unwrap().unreachable.insert(from);
                        }
                        for to in [to, from] {
                            self.events.push(Event { at: now, from, to, what: What::Down(wire) });
                        }
                    }
                }
            }
        }
    }

    /// The wire that `from` knows as `link`, and the server at its other end; `None` once `from`
    /// got `Down` for it.
    fn wire(&self, from: ServerId, link: LinkId) -> Option<(usize, ServerId)> {
        self.wires.iter().enumerate().rev().find_map(|(index, wire)| {
            let side = wire.ends.iter().position(|e| e.server == from && e.link == link && e.up)?;
            Some((index, wire.ends[1 - side].server))
        })
    }
}

fn id(name: &str) -> ServerId {
    ServerId(name.parse().unwrap_or_else(|_| panic!("{name} is no server")))
}
