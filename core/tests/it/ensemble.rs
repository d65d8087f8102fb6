//! Scripted tests with several servers: each file of `tests/ensembles` is a script, and its
//! snapshot is the trace of what the servers did.
//!
//! A script has one command a line. `#` begins a comment; the first line says what the script
//! shows. Nothing happens by itself: messages and disk commands wait for `settle`, `wait`,
//! `deliver` or `disk`.
//!
//! ```text
//! ensemble N                  servers 1 to N, with empty disks and a tick of 1 s
//! grow N                      configures servers 1 to N; new ones have empty disks; takes effect
//!                             at the next boot of each server
//! config KEY=N ...            before `boot`: recent_bytes, bulk_bytes, snapshot_txns,
//!                             snapshot_slice_bytes, kept, compare, step_units, epoch_txns,
//!                             hold_ms; check_ms and per_minute (of containers); local and
//!                             upgrade (1 or 0)
//! start                       `boot` and `settle` without a trace
//! boot [N ..]                 starts these servers, or all, from their disks
//! pause N | resume N          the process gets no CPU time: its deadlines pass
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
//! cut A-B | mend A-B          breaks all links at once, discards messages under way, and prevents
//!                             new links until `choose_sync_mode`
//! show pings                  prints PING and PONG, too
//! status | digest             prints what the servers report of themselves
//! sN cM ..                    a client of server N; see `scenarios`
//! ```
//!
//! The trace has a line for each output of a server. `s1 -> 2 3` sends a message to two servers on
//! links, `s1 tells 2 3` sends an election notification.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use zabkeeper_core::io::{ClientCommand, ClientEvent, Outbox, PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage};
use zabkeeper_core::store::DiskEvent;
use zabkeeper_core::{
    Config, ConnId, Epoch, Input, Instant, LinkId, Mode, Now, Server, ServerId, Voters, WallMs,
    Zxid,
};

mod hostile;
mod storm;

use crate::play::{Clients, Disk, assert_recordable, commands, identities};

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
    cut: BTreeSet<(ServerId, ServerId)>,
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
    /// Servers that were unreachable at the last dial.
    unreachable: BTreeSet<ServerId>,
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
    Election(Notification),
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
            cut: BTreeSet::new(),
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

    fn command(&mut self, words: &[&str]) {
        match words {
            ["ensemble", count] => {
                self.members.clear();
                self.forget();
                self.assemble(count.parse().unwrap());
            }
            ["keep", server, name] => {
                let disk = self.members[&id(server)].disk.clone();
                self.kept.insert((*name).to_owned(), disk);
            }
            ["put", server, name] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk = self.kept[*name].clone();
                self.forget();
            }
            ["grow", count] => {
                let before = std::mem::take(&mut self.members);
                self.assemble(count.parse().unwrap());
                for (id, Member { server, disk, next_link, .. }) in before {
                    let member = self.members.get_mut(&id).expect("nobody leaves");
                    (member.server, member.disk, member.next_link) = (server, disk, next_link);
                }
            }
            ["config", settings @ ..] => settings.iter().for_each(|s| self.set(s)),
            ["start"] => {
                let before = self.trace.len();
                self.command(&["boot"]);
                self.settle();
                self.trace.truncate(before);
            }
            ["boot", ids @ ..] => {
                for id in self.named(ids) {
                    self.boot(id);
                }
            }
            ["kill", ids @ ..] => self.named(ids).into_iter().for_each(|id| self.kill(id)),
            ["vanish", server] => {
                self.kill(id(server));
                self.events.retain(|event| event.from != id(server));
            }
            ["wipe", server] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk = Disk::default();
            }
            ["settle"] => self.settle(),
            ["wait", ms] => self.wait(ms.parse().unwrap()),
            ["pause", server] => {
                self.paused.insert(id(server));
            }
            ["resume", server] => {
                self.paused.remove(&id(server));
            }
            ["hold", "disk", server] => {
                self.held_disks.insert(id(server));
            }
            ["release", "disk", server] => {
                self.held_disks.remove(&id(server));
            }
            ["hold", way] => self.held.extend(self.ways(way)),
            ["release", way] => self.ways(way).iter().for_each(|way| {
                self.held.remove(way);
            }),
            ["deliver", way, count @ ..] => self.deliver(way, count),
            ["disk", server] => {
                let all = self.members[&id(server)].disk.queue.len();
                self.finish(id(server), all);
            }
            ["disk", server, "log"] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                let count = member.disk.let_log_overtake();
                self.finish(id(server), count);
            }
            ["disk", server, room @ ("full" | "roomy")] => {
                self.members.get_mut(&id(server)).unwrap().disk.full = *room == "full";
            }
            ["forge", server] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk.forge();
                self.forged = true;
            }
            ["rot", server] => self.members.get_mut(&id(server)).unwrap().disk.rot(),
            ["disk", server, count] => self.finish(id(server), count.parse().unwrap()),
            ["lose", way] => {
                let ways = self.ways(way);
                assert!(ways.iter().all(|(from, _)| !self.runs(*from)), "{way}: not dead");
                self.events.retain(|event| {
                    let sent = matches!(event.what, What::Message(..) | What::Election(_));
                    !sent || !ways.contains(&(event.from, event.to))
                });
            }
            ["cut", pair] => self.break_links(pair),
            ["mend", pair] => {
                let (a, b) = pair.split_once('-').unwrap();
                self.cut.retain(|cut| *cut != (id(a), id(b)) && *cut != (id(b), id(a)));
            }
            ["show", "pings"] => self.show_pings = true,
            ["status"] => self.status(),
            ["digest"] => self.digest(),
            [server, conn, rest @ ..] => {
                let conn = ConnId(conn.strip_prefix('c').unwrap().parse().unwrap());
                self.client(id(server.strip_prefix('s').unwrap()), conn, rest);
            }
            words => panic!("what is {words:?}?"),
        }
    }

    /// Servers may reach known zxids with other trees, and known epochs with other leaders, from
    /// now on.
    fn forget(&mut self) {
        self.trees.clear();
        self.leaders.clear();
    }

    fn assemble(&mut self, count: u64) {
        let voters = Voters::new((1..=count).map(ServerId));
        for id in voters.ids() {
            let config = Config::new(id, voters.clone(), Duration::from_millis(1000));
            let member = Member {
                server: None,
                config: config.expect("a fine config"),
                disk: Disk::default(),
                next_link: 0,
                unreachable: BTreeSet::new(),
            };
            self.members.insert(id, member);
        }
    }

    fn set(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap();
        let n: u32 = value.parse().unwrap();
        for member in self.members.values_mut() {
            let (limits, tree) = (&mut member.config.limits, &mut member.config.tree);
            match key {
                "recent_bytes" => limits.recent_bytes = n.into(),
                "bulk_bytes" => limits.bulk_bytes = n,
                "snapshot_txns" => limits.snapshot_txns = n,
                "snapshot_slice_bytes" => limits.snapshot_slice_bytes = n,
                "kept" => limits.snapshots_kept = n,
                "compare" => limits.compare_txns = n,
                "step_units" => limits.step_units = n.into(),
                "epoch_txns" => limits.epoch_txns = n,
                "check_ms" => tree.container_check_ms = n.into(),
                "per_minute" => tree.container_max_per_minute = n,
                "local" => member.config.sessions.local = n == 1,
                "upgrade" => member.config.sessions.upgrade = n == 1,
                "hold_ms" => limits.hold = Duration::from_millis(n.into()),
                other => panic!("no setting {other}"),
            }
        }
    }

    /// The servers with these numbers; all where there are none.
    fn named(&self, ids: &[&str]) -> Vec<ServerId> {
        if ids.is_empty() {
            self.members.keys().copied().collect()
        } else {
            ids.iter().map(|n| id(n)).collect()
        }
    }

    fn ways(&self, way: &str) -> Vec<(ServerId, ServerId)> {
        let (from, to) = way.split_once("->").unwrap();
        let all = |name: &str| if name == "*" { self.named(&[]) } else { vec![id(name)] };
        let pairs = all(from).into_iter().flat_map(|a| all(to).into_iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
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
                What::Election(_) | What::Dial(_) | What::Message(..) | What::Down(_) => {
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
            What::Election(said) => {
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
        let reachable = self.runs(to) && !self.cut.contains(&(from, to));
        let unreachable = &mut self.members.get_mut(&from).unwrap().unreachable;
        if !reachable {
            unreachable.insert(to);
            self.say(format!("s{from}: s{to} is unreachable"));
            self.step(from, Input::Peer(link, PeerEvent::Unreachable { peer: to }));
            return;
        }
        unreachable.remove(&to);
        let other = self.deal_link(to);
        self.say(format!("s{from} and s{to} are linked"));
        let end = |server, link| End { server, link, up: true };
        self.wires.push(Wire { ends: [end(from, link), end(to, other)] });
        self.step(to, Input::Peer(other, PeerEvent::Up { peer: from, dialled: false }));
        self.step(from, Input::Peer(link, PeerEvent::Up { peer: to, dialled: true }));
    }

    fn message(&mut self, wire: usize, from: ServerId, to: ServerId, message: PeerMessage) {
        let end_of =
            |play: &Play, id| *play.wires[wire].ends.iter().find(|e| e.server == id).unwrap();
        let end = end_of(self, to);
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

    fn deal_link(&mut self, id: ServerId) -> LinkId {
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
        self.clients.hear(&out);
        self.heard.append(&mut out.clients.clone());
        self.take(id, out);
        self.check(id, before);
    }

    /// Servers that have applied the same zxid must have the same tree, and each epoch one serving
    /// leader.
    fn check(&mut self, id: ServerId, before: Zxid) {
        let server = self.server(id).expect("it has just acted");
        let status = server.status();
        if status.applied != before && !self.forged {
            let digest = server.digest();
            let known = *self.trees.entry(status.applied).or_insert(digest);
            assert_eq!(
                known, digest,
                "s{id} has another tree at {}\n{}",
                status.applied, self.trace
            );
        }
        if status.mode == Mode::Leader && status.serving {
            let epoch = status.current_epoch;
            let leader = *self.leaders.entry(epoch).or_insert(id);
            assert_eq!(leader, id, "two leaders of epoch {epoch}\n{}", self.trace);
        }
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
        for (to, said) in out.election {
            if !self.cut.contains(&(from, to)) {
                self.events.push(Event { at: now, from, to, what: What::Election(said) });
            }
        }
        for command in out.peers {
            match command {
                PeerCommand::Dial(to) => {
                    let link = self.deal_link(from);
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
                PeerCommand::Close(link, _) => {
                    if let Some((wire, to)) = self.wire(from, link) {
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

    fn client(&mut self, id: ServerId, conn: ConnId, words: &[&str]) {
        let event = match words {
            ["open", options @ ..] => {
                let ids = identities(options);
                ClientEvent::Opened(self.clients.connect_request(options), ids)
            }
            ["gone"] => ClientEvent::Closed,
            ["heard"] => ClientEvent::Heard,
            words => ClientEvent::Request(self.clients.request(conn, words)),
        };
        self.step(id, Input::Client(conn, event));
    }

    fn say(&mut self, line: String) {
        if self.traced_at != self.now.mono {
            self.traced_at = self.now.mono;
            writeln!(self.trace, "[{} ms]", self.now.mono.0 / 1_000_000).unwrap();
        }
        writeln!(self.trace, "{line}").unwrap();
    }

    fn print(&mut self, id: ServerId, out: &Outbox) {
        let disk: Vec<String> =
            out.disk.iter().map(|c| self.named_link(id, c.to_string())).collect();
        if !disk.is_empty() {
            self.say(format!("s{id} disk: {}", disk.join("; ")));
        }
        for (conn, command) in &out.clients {
            self.say(format!("s{id} {conn}: {command}"));
        }
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        let mut add = |verb: String, to: ServerId| match lines.iter_mut().find(|(v, _)| *v == verb)
        {
            Some((_, all)) => all.push(to.to_string()),
            None => lines.push((verb, vec![to.to_string()])),
        };
        for (to, said) in &out.election {
            add(format!("tells|{said}"), *to);
        }
        for command in &out.peers {
            match command {
                PeerCommand::Dial(to) => add("dials|".into(), *to),
                PeerCommand::Close(link, _) => {
                    if let Some((_, to)) = self.wire(id, *link) {
                        add("closes its link with|".into(), to);
                    }
                }
                PeerCommand::Send(
                    _,
                    PeerMessage::Leader(FromLeader::Ping { .. })
                    | PeerMessage::Learner(FromLearner::Pong { .. }),
                ) if !self.show_pings => {}
                PeerCommand::Send(link, message) => {
                    if let Some((_, to)) = self.wire(id, *link) {
                        add(format!("->|{message}"), to);
                    }
                }
            }
        }
        for (what, to) in lines {
            let (verb, message) = what.split_once('|').unwrap();
            let colon = if message.is_empty() { "" } else { ": " };
            self.say(format!("s{id} {verb} {}{colon}{message}", to.join(" ")));
        }
    }

    /// Replaces the link's id by the server at its other end.
    fn named_link(&self, id: ServerId, line: String) -> String {
        let Some((rest, link)) = line.rsplit_once(" for l") else {
            return line;
        };
        let (link, why) = link.split_once(':').unwrap_or((link, ""));
        let why = if why.is_empty() { String::new() } else { format!(":{why}") };
        match self.wire(id, LinkId(link.parse().unwrap())) {
            Some((_, to)) => format!("{rest} for s{to}{why}"),
            None => format!("{rest} for nobody{why}"),
        }
    }

    fn status(&mut self) {
        for id in self.named(&[]) {
            let Some(s) = self.server(id).map(Server::status) else {
                self.say(format!("s{id} is dead"));
                continue;
            };
            self.say(format!(
                "s{id} {:?}{} epochs={}/{} applied={} committed={} durable={} appended={} nodes={} \
                 sessions={}{}{}",
                s.mode,
                if s.serving { " serving" } else { "" },
                s.accepted_epoch,
                s.current_epoch,
                s.applied,
                s.committed,
                s.durable,
                s.appended,
                s.nodes,
                s.sessions,
                if s.local_sessions == 0 {
                    String::new()
                } else {
                    format!(" local={}", s.local_sessions)
                },
                s.halted.map(|why| format!(" halted: {why}")).unwrap_or_default()
            ));
        }
    }

    fn digests(&self) -> BTreeMap<Zxid, Vec<(ServerId, u64)>> {
        let mut digests: BTreeMap<Zxid, Vec<_>> = BTreeMap::new();
        for (id, member) in &self.members {
            if let Some(server) = &member.server {
                digests.entry(server.status().applied).or_default().push((*id, server.digest()));
            }
        }
        digests
    }

    fn digest(&mut self) {
        for (zxid, digests) in self.digests() {
            let names: Vec<String> = digests.iter().map(|(id, _)| format!("s{id}")).collect();
            self.say(format!("equal at {zxid}: {}", names.join(" ")));
        }
    }
}

fn id(name: &str) -> ServerId {
    ServerId(name.parse().unwrap_or_else(|_| panic!("{name} is no server")))
}
