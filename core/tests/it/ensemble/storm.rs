//! Several servers under random schedules: a small simulator without files and codecs.
//!
//! Owns the random choices, and what clients may expect. Each schedule ends without faults: then
//! all servers must have the same state, serve, and have kept all acknowledged writes.

use super::*;
use zabkeeper_core::ErrorCode;

/// Steps with faults.
const STEPS: u32 = 1_500;

/// Lines of the trace that a failure prints.
const LINES: usize = 200;

/// `STORMS=1000..2000` runs these seeds instead of the default ones.
#[test]
fn acknowledged_writes_survive_random_schedules() {
    #[expect(clippy::disallowed_methods, reason = "a test that one may want to run for longer")]
    let asked = std::env::var("STORMS").unwrap_or("0..100".into());
    let (from, to) = asked.split_once("..").unwrap();
    let kept: usize =
        (from.parse().unwrap()..to.parse().unwrap()).map(|seed| Storm::new(seed).run()).sum();
    assert!(kept > 0, "nobody was answered: this proves nothing");
}

struct Storm {
    seed: u64,
    dice: u64,
    play: Play,
    /// Kills per thousand steps. Other faults occur in proportion.
    blows: usize,
    /// Election notifications that are lost, of eight.
    lost: usize,
    /// Open connections, and the server of each.
    conns: BTreeMap<ConnId, ServerId>,
    next_conn: u64,
    next_path: u64,
    /// Creates without a reply, as xid and path, in order, by connection.
    asked: BTreeMap<ConnId, Vec<(i32, String)>>,
    xids: BTreeMap<ConnId, i32>,
    acknowledged: Vec<String>,
    /// Numbers of the connections that were given a session.
    known: BTreeSet<usize>,
}

impl Drop for Storm {
    #[expect(clippy::print_stderr, reason = "the core may panic, and cannot tell the seed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = Vec::from_iter(self.play.trace.lines());
            let end = &lines[lines.len().saturating_sub(LINES)..];
            eprintln!("seed {}, its last lines:\n{}", self.seed, end.join("\n"));
        }
    }
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut storm = Storm {
            seed,
            dice: seed,
            play: Play::new(),
            blows: 0,
            lost: 0,
            conns: BTreeMap::new(),
            next_conn: 0,
            next_path: 0,
            asked: BTreeMap::new(),
            xids: BTreeMap::new(),
            acknowledged: Vec::new(),
            known: BTreeSet::new(),
        };
        storm.blows = [1, 2, 5][storm.below(3)];
        storm.lost = [0, 1, 5][storm.below(3)];
        let servers = [1, 2, 3, 3, 5, 5][storm.below(6)];
        storm.command(&format!("ensemble {servers}"));
        let txns = [4, 10, 1_000][storm.below(3)];
        let recent = [60, 400, 100_000][storm.below(3)];
        let epoch = [7, 1_000][storm.below(2)];
        storm.command(&format!(
            "config snapshot_txns={txns} kept=1 snapshot_slice_bytes=200 recent_bytes={recent} \
             bulk_bytes=150 epoch_txns={epoch} hold_ms=3000"
        ));
        storm.command("boot");
        storm
    }

    /// Returns the number of acknowledged writes.
    fn run(mut self) -> usize {
        for _ in 0..STEPS {
            self.act();
            self.listen();
        }
        self.calm();
        self.acknowledged.len()
    }

    /// SplitMix64.
    fn below(&mut self, bound: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn command(&mut self, line: &str) {
        writeln!(self.play.trace, "> {line}").unwrap();
        self.play.command(&Vec::from_iter(line.split_whitespace()));
    }

    fn any_server(&mut self) -> ServerId {
        let count = self.play.members.len();
        ServerId(1 + self.below(count) as u64)
    }

    fn act(&mut self) {
        let blows = self.blows;
        match self.below(1000) {
            0..560 => self.deliver(),
            560..740 => self.work(),
            740..860 => self.ask(),
            860..920 => self.pass(),
            n if n < 920 + blows => self.inject("kill"),
            n if n < 920 + 2 * blows => self.inject("vanish"),
            n if n < 920 + 4 * blows => self.wipe(),
            n if n < 920 + 6 * blows => self.cut(),
            n if n < 920 + 11 * blows => self.raise(),
            n if n < 920 + 16 * blows => self.choose_sync_mode(),
            _ => self.deliver(),
        }
    }

    /// Delivers the first message between a random pair of servers; without any message, lets time
    /// pass.
    fn deliver(&mut self) {
        let now = self.play.now.mono;
        let waiting = self.play.events.iter().filter(|event| event.at <= now);
        let ways: BTreeSet<_> = waiting
            .filter(|event| !matches!(event.what, What::Disk))
            .map(|event| (event.from, event.to))
            .collect();
        if ways.is_empty() {
            return self.pass();
        }
        let way = *ways.iter().nth(self.below(ways.len())).unwrap();
        let next = self.play.events.iter().position(|event| {
            (event.from, event.to) == way && event.at <= now && !matches!(event.what, What::Disk)
        });
        let next = next.unwrap();
        if let What::Election(said, config) = &self.play.events[next].what {
            // Notifications may be lost, and repeated.
            let (said, config) = (*said, config.clone());
            match self.below(8) {
                n if n < self.lost => drop(self.play.events.remove(next)),
                7 => {
                    let (from, to) = way;
                    self.play.events.push(Event {
                        at: now,
                        from,
                        to,
                        what: What::Election(said, config),
                    });
                    self.play.happen(next);
                }
                _ => self.play.happen(next),
            }
        } else {
            self.play.happen(next);
        }
    }

    /// Completes some commands of the disk of a random server.
    fn work(&mut self) {
        let id = self.any_server();
        let waiting = self.play.members[&id].disk.queue.len();
        if waiting > 0 && self.play.runs(id) {
            let count = 1 + self.below(waiting);
            self.play.finish(id, count);
        }
    }

    fn pass(&mut self) {
        let ms = [1, 5, 20, 100, 600][self.below(5)];
        let end = self.play.now.mono.after(Duration::from_millis(ms));
        let ids = Vec::from_iter(self.play.members.keys().copied());
        self.play.pass_to(end);
        for id in ids {
            let due = self.play.server(id).and_then(Server::next_deadline);
            if due.is_some_and(|(due, _)| due <= end) {
                self.play.step(id, Input::Timeout);
            }
        }
    }

    fn ask(&mut self) {
        if self.conns.len() < 4 {
            let id = self.any_server();
            if self.play.runs(id) {
                self.open(id, true);
            }
            return;
        }
        let number = self.below(4);
        let (conn, server) = self.conns.iter().nth(number).map(|(c, s)| (*c, *s)).unwrap();
        let xid = self.xids.entry(conn).or_default();
        *xid += 1;
        let xid = *xid;
        match self.below(10) {
            0..6 => {
                self.next_path += 1;
                let path = format!("/{}", self.next_path);
                self.asked.entry(conn).or_default().push((xid, path.clone()));
                self.command(&format!("s{server} {conn} create {path}"));
            }
            6..8 => self.command(&format!("s{server} {conn} sync /")),
            _ => self.command(&format!("s{server} {conn} ls /")),
        }
    }

    fn open(&mut self, id: ServerId, resumes: bool) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.conns.insert(conn, id);
        // Some clients resume a session, which may have moved to another server, or be closed.
        let old = 1 + self.below(usize::try_from(self.next_conn).unwrap() * 2);
        let timeout = [2_000, 20_000][self.below(2)];
        let known = self.known.contains(&old);
        let resume = if known && resumes { format!(" resume=c{old}") } else { String::new() };
        self.command(&format!("s{id} {conn} open timeout={timeout}{resume}"));
        conn
    }

    fn inject(&mut self, how: &str) {
        let id = self.any_server();
        if self.play.runs(id) {
            self.command(&format!("{how} {id}"));
            self.conns.retain(|_, server| *server != id);
        }
    }

    fn raise(&mut self) {
        let id = self.any_server();
        self.command(&format!("boot {id}"));
    }

    /// Empties the disk of a dead server, if there are at least three servers and all other disks
    /// have data: with two empty disks of three, acknowledged writes may be lost.
    fn wipe(&mut self) {
        let id = self.any_server();
        let filled = |member: &Member| {
            let state = &member.disk.state;
            state.current_epoch > Epoch(0) && !state.damaged
        };
        let mut others = self.play.members.iter().filter(|(other, _)| **other != id);
        let enough = self.play.members.len() > 2;
        if enough && !self.play.runs(id) && others.all(|(_, member)| filled(member)) {
            self.command(&format!("wipe {id}"));
        }
    }

    fn cut(&mut self) {
        let (a, b) = (self.any_server(), self.any_server());
        if a != b {
            self.command(&format!("cut {a}-{b}"));
        }
    }

    fn choose_sync_mode(&mut self) {
        if let Some((a, b)) = self.play.cut.first().copied() {
            self.command(&format!("mend {a}-{b}"));
        }
    }

    /// Checks the commands that clients have received.
    fn listen(&mut self) {
        for (conn, command) in std::mem::take(&mut self.play.heard) {
            match command {
                ClientCommand::Reply(reply) => {
                    let asked = self.asked.entry(conn).or_default();
                    if let Some(place) = asked.iter().position(|(xid, _)| *xid == reply.xid) {
                        let (_, path) = asked.remove(place);
                        let trouble = format!("seed {}: {path}\n{}", self.seed, self.play.trace);
                        assert_eq!(place, 0, "answered out of order: {trouble}");
                        // Only this request creates the path, so the node exists already only if
                        // the request was applied twice.
                        assert_ne!(reply.result, Err(ErrorCode::NodeExists), "{trouble}");
                        assert!(reply.result.is_ok(), "{trouble}");
                        self.acknowledged.push(path);
                    }
                }
                ClientCommand::Close => {
                    let server = self.conns.remove(&conn);
                    if let Some(server) = server.filter(|id| self.play.runs(*id)) {
                        self.command(&format!("s{server} {conn} gone"));
                    }
                }
                ClientCommand::Connected(_) => {
                    self.known.insert(usize::try_from(conn.0).unwrap());
                }
                ClientCommand::Event(_) | ClientCommand::Complaint(_) => {}
            }
        }
    }

    /// Ends all faults, and checks that every server serves and has everything.
    fn calm(&mut self) {
        self.play.cut.clear();
        self.command("boot");
        self.command("wait 20000");
        self.listen();
        let ids = Vec::from_iter(self.play.members.keys().copied());
        let conns = Vec::from_iter(ids.into_iter().map(|id| self.open(id, false)));
        self.command("wait 5000");
        let last = self.play.trees.last_key_value().map(|(zxid, _)| *zxid).unwrap();
        for (id, member) in &self.play.members {
            let status = member.server.as_ref().unwrap().status();
            let (seed, trace) = (self.seed, &self.play.trace);
            assert!(status.serving, "seed {seed}: s{id} does not serve\n{trace}");
            assert_eq!(status.applied, last, "seed {seed}: s{id} lags\n{trace}");
        }
        self.listen();
        for (conn, id) in conns.into_iter().zip(1_u64..) {
            for path in self.acknowledged.clone() {
                self.command(&format!("s{id} {conn} exists {path}"));
            }
            for (_, command) in std::mem::take(&mut self.play.heard) {
                let ClientCommand::Reply(reply) = command else { continue };
                let (seed, trace) = (self.seed, &self.play.trace);
                assert!(reply.result.is_ok(), "seed {seed}: s{id} lost {}\n{trace}", reply.xid);
            }
        }
    }
}
