//! Runs steps on the servers in lockstep up to the first difference, and shrinks the steps that
//! show it.

use std::fmt;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::answer::{Line, Names};
use crate::known;
use crate::request::{PREFIX, Request};
use crate::side::{Admin, Handshake, Password, SEATS, Side, Which};

/// An action of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Sends requests in one write and reads the replies.
    Send { seat: usize, requests: Vec<Request> },
    /// Connects, after dropping an older connection of the seat.
    Open { seat: usize, how: Handshake },
    /// Drops the connection without closing the session.
    HangUp { seat: usize },
    /// Sends bytes that are no frame, so that the server closes the connection.
    Bytes { seat: usize, bytes: Vec<u8> },
    /// Reads the counters of the server (`mntr`, `wchs`).
    Words,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Send { seat, requests } => {
                let texts: Vec<&str> = requests.iter().map(|request| &*request.text).collect();
                write!(f, "c{seat} {}", texts.join("\n     & "))
            }
            Step::Open { seat, how } => write!(f, "c{seat} open {how:?}"),
            Step::HangUp { seat } => write!(f, "c{seat} hang up"),
            Step::Bytes { seat, bytes } => write!(f, "c{seat} bytes {}", bytes.escape_ascii()),
            Step::Words => write!(f, "c0 mntr, wchs"),
        }
    }
}

impl Step {
    pub(crate) fn requests(&self) -> &[Request] {
        match self {
            Step::Send { requests, .. } => requests,
            Step::Open { .. } | Step::HangUp { .. } | Step::Bytes { .. } | Step::Words => &[],
        }
    }

    fn seat(&self) -> usize {
        match self {
            Step::Send { seat, .. }
            | Step::Open { seat, .. }
            | Step::HangUp { seat }
            | Step::Bytes { seat, .. } => *seat,
            Step::Words => 0,
        }
    }

    fn closes_session(&self) -> bool {
        self.requests().iter().any(|request| request.op == -11)
    }
}

/// The differing answers of the servers to the same step.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) at: usize,
    pub(crate) step: Step,
    pub(crate) lines: Vec<Vec<String>>,
}

impl Difference {
    /// The first differing line of each server.
    fn first(&self) -> [&str; 2] {
        let [a, b] = [&self.lines[0], &self.lines[1]];
        let at = (0..a.len().max(b.len())).find(|&at| a.get(at) != b.get(at)).unwrap_or(0);
        [a, b].map(|lines| lines.get(at).map_or("nothing", |line| line))
    }

    /// Differences with equal signatures count as the same difference.
    pub(crate) fn signature(&self) -> String {
        // Seats, paths and zxids vary, so they are not part of the signature.
        let short = |line: &str| {
            let mut words = line.split(' ').skip(1).filter(|word| !word.is_empty());
            let mut kept = Vec::new();
            while let Some(word) = words.next() {
                match word {
                    "xid" => _ = words.next(),
                    _ if word.starts_with(['"', '+']) => {}
                    _ => kept.push(word),
                }
            }
            kept.truncate(8);
            kept.join(" ")
        };
        let [a, b] = self.first();
        format!("{} | {}", short(a), short(b))
    }

    pub(crate) fn report(&self, names: [&str; 2]) -> String {
        let mut text = format!("{}\n", self.step);
        for (name, lines) in names.iter().zip(&self.lines) {
            let other = self.lines.iter().find(|other| *other != lines).unwrap_or(lines);
            for (at, line) in lines.iter().enumerate() {
                let mark = if other.get(at) == Some(line) { ' ' } else { '>' };
                let _ = writeln!(text, "  {mark} {name:5} {line}");
            }
            if lines.is_empty() {
                let _ = writeln!(text, "  > {name:5} nothing");
            }
        }
        text
    }
}

/// The servers: both, or one alone.
pub(crate) struct Players {
    pub(crate) sides: Vec<Side>,
    admins: Vec<Admin>,
    episodes: u32,
    /// If set, collects all steps and the answers of the first server.
    pub(crate) script: Option<String>,
    /// Number of occurrences of each known difference.
    pub(crate) known: Vec<u64>,
    /// Compare the total data size? Not with quotas: ZooKeeper never counts the data that quotas
    /// write.
    pub(crate) sizes: bool,
}

impl Players {
    pub(crate) fn new(servers: &[(&'static str, SocketAddr)], super_auth: &[u8]) -> Players {
        let sides = servers.iter().map(|server| Side::new(server.0, server.1)).collect();
        let mut admins: Vec<Admin> = servers.iter().map(|server| Admin::new(server.1)).collect();
        for (admin, server) in admins.iter_mut().zip(servers) {
            let auth = Request::new(100).xid(-4).int(0).string("digest").buffer(Some(super_auth));
            if admin.call(&auth).is_none_or(|reply| reply.0 != 0) {
                *admin = Admin::new(server.1);
            }
        }
        Players {
            sides,
            admins,
            episodes: 0,
            script: None,
            known: vec![0; known::DIFFERENCES.len()],
            sizes: true,
        }
    }

    /// Creates a new subtree. Fails if the counters of reserved nodes differ, or if a server
    /// refuses the subtree.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        self.episodes += 1;
        let prefix = format!("/e{:04}", self.episodes % 10_000);
        assert_eq!(prefix.len(), PREFIX.len());
        let mut reserved = Vec::new();
        for (side, admin) in self.sides.iter_mut().zip(&mut self.admins) {
            admin.delete(prefix.as_bytes());
            let create = Request::new(1).string(&prefix).buffer(Some(b"")).int(1).int(31);
            let create = create.string("world").string("anyone").int(0);
            let reply = admin.call(&create);
            if reply.as_ref().is_none_or(|reply| reply.0 != 0) {
                return Err(format!("{} does not create {prefix}: {reply:?}", side.name));
            }
            admin.call(&Request::new(11).xid(-2));
            side.names = Names::new(&prefix, admin.zxid);
            let stats = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].map(|path| {
                let reply = admin.call(&Request::new(3).string(path).flag(false));
                // version, cversion and aversion
                reply.map(|(err, stat)| (path, err, stat.get(32..44).map(<[u8]>::to_vec)))
            });
            reserved.push(stats);
        }
        if reserved.iter().any(|stats| *stats != reserved[0]) {
            return Err(format!("the counters of reserved nodes differ: {reserved:?}"));
        }
        Ok(())
    }

    /// Ends all sessions of the episode and removes its nodes.
    pub(crate) fn end(&mut self) {
        for (side, admin) in self.sides.iter_mut().zip(&mut self.admins) {
            side.end_sessions();
            let prefix = side.names.prefix.clone();
            admin.delete(prefix.as_bytes());
            admin.delete(format!("/zookeeper/quota{prefix}").as_bytes());
        }
    }

    /// Plays an episode; returns the number of compared requests.
    pub(crate) fn play(&mut self, steps: &[Step]) -> Result<u64, Difference> {
        let mut requests = 0;
        let mut outcome = Ok(true);
        for (at, step) in steps.iter().enumerate() {
            outcome = self.compare(at, step);
            requests += 1.max(step.requests().len() as u64);
            if !matches!(outcome, Ok(true)) {
                break;
            }
        }
        if steps.iter().flat_map(Step::requests).any(|request| request.op == 7) {
            self.open_root();
        }
        self.end();
        outcome.map(|_| requests)
    }

    /// Resets the ACL of `/`, which outlasts the episode.
    fn open_root(&mut self) {
        let open =
            Request::new(7).string("/").int(1).int(31).string("world").string("anyone").int(-1);
        for admin in &mut self.admins {
            admin.call(&open);
        }
    }

    /// Runs a step on all servers. `Ok(false)` after a known difference with which the episode
    /// ends.
    fn compare(&mut self, at: usize, step: &Step) -> Result<bool, Difference> {
        for first in self.needed_before(step) {
            self.compare(at, &first)?;
        }
        let lines = self.take(step);
        if let Some(script) = &mut self.script {
            let _ = writeln!(script, "{step}");
            lines[0].iter().for_each(|line| _ = writeln!(script, "    {}", line.trim_end()));
        }
        if lines.iter().any(|other| *other != lines[0]) {
            let Some(known) = known::find(step, &lines) else {
                return Err(Difference { at, step: step.clone(), lines });
            };
            self.known[known] += 1;
            self.level();
            return Ok(!known::DIFFERENCES[known].parts);
        }
        Ok(true)
    }

    /// Steps that must run before this step.
    fn needed_before(&self, step: &Step) -> Vec<Step> {
        let side = &self.sides[0];
        let reopen = |seat: usize| {
            let which = if side.has_session(seat) { Which::Own } else { Which::New };
            Step::Open { seat, how: Handshake::plain(which) }
        };
        match step {
            Step::Send { seat, .. } | Step::Bytes { seat, .. } if !side.is_connected(*seat) => {
                vec![reopen(*seat)]
            }
            // An abandoned session would expire at different times on the two servers, so it is
            // closed.
            Step::Open { seat, how } if how.session == Which::New && side.has_session(*seat) => {
                vec![Step::Send { seat: *seat, requests: vec![Request::new(-11)] }]
            }
            Step::Open { seat, how: Handshake { session: Which::Of(other), .. } }
                if seat == other || !side.has_session(*other) =>
            {
                vec![reopen(*other)]
            }
            Step::Send { .. }
            | Step::Open { .. }
            | Step::HangUp { .. }
            | Step::Bytes { .. }
            | Step::Words => vec![],
        }
    }

    /// Runs the step on every server; returns the lines of each, connection by connection.
    pub(crate) fn take(&mut self, step: &Step) -> Vec<Vec<String>> {
        if *step == Step::Words {
            return self.words();
        }
        let mut lines: Vec<Vec<Vec<Line>>> =
            self.sides.iter().map(|_| (0..SEATS).map(|_| Vec::new()).collect()).collect();
        let mut others = false;
        let mut own = None;
        match step {
            Step::Send { seat, requests } => {
                for side in &mut self.sides {
                    side.send(*seat, requests);
                }
                for (side, lines) in self.sides.iter_mut().zip(&mut lines) {
                    side.answers(*seat, &mut lines[*seat]);
                }
                others = requests.iter().any(Request::disturbs);
                own = Some(*seat);
            }
            Step::Open { seat, how } => {
                for (side, lines) in self.sides.iter_mut().zip(&mut lines) {
                    lines[*seat].extend(side.open(*seat, how).into_iter().map(Line::other));
                }
                others = true;
            }
            Step::HangUp { seat } => self.sides.iter_mut().for_each(|side| side.hang_up(*seat)),
            Step::Bytes { seat, bytes } => {
                self.sides.iter_mut().for_each(|side| side.send_bytes(*seat, bytes));
                own = Some(*seat);
            }
            Step::Words => unreachable!("has been taken above"),
        }
        for seat in (0..SEATS).filter(|&seat| others || own == Some(seat)) {
            self.sides.iter_mut().for_each(|side| side.ping(seat));
        }
        for (side, lines) in self.sides.iter_mut().zip(&mut lines) {
            for seat in (0..SEATS).filter(|&seat| others || own == Some(seat)) {
                side.drain(seat, &mut lines[seat]);
            }
        }
        if let (Step::Send { seat, .. }, true) = (step, step.closes_session()) {
            self.sides.iter_mut().for_each(|side| side.forget_session(*seat));
        }
        let first = step.seat();
        lines.into_iter().map(|seats| texts(seats, first, step.closes_session())).collect()
    }

    /// Reads the counters. Retries for a while, because the servers notice a dropped connection at
    /// different times.
    fn words(&mut self) -> Vec<Vec<String>> {
        const TRIES: u32 = 40;
        const PAUSE: Duration = Duration::from_millis(50);
        for left in (0..TRIES).rev() {
            let lines: Vec<_> = self.sides.iter().map(|side| side.words(self.sizes)).collect();
            let known = || known::find(&Step::Words, &lines).is_some();
            if left == 0 || lines.iter().all(|other| *other == lines[0]) || known() {
                return lines;
            }
            std::thread::sleep(PAUSE);
        }
        unreachable!("the last try returns")
    }

    /// Realigns the servers after a known difference, so that the episode can continue.
    fn level(&mut self) {
        // A transaction on both servers, so that the newest zxid of each belongs to the same
        // request.
        let nothing = Request::new(2).string("/none").int(-1);
        self.admins.iter_mut().for_each(|admin| _ = admin.call(&nothing));
        let zxids: Vec<i64> = self.admins.iter().map(|admin| admin.zxid).collect();
        let distance = |(side, zxid): (&Side, &i64)| side.names.distance(*zxid);
        let furthest = self.sides.iter().zip(&zxids).filter_map(distance).max();
        for (side, zxid) in self.sides.iter_mut().zip(zxids) {
            side.names.rebase(zxid, furthest.unwrap_or(0));
        }
        for seat in 0..SEATS {
            if self.sides.iter().any(|side| !side.is_connected(seat)) {
                self.sides.iter_mut().for_each(|side| side.hang_up(seat));
            }
        }
    }

    /// Removes steps as long as the same difference is still found.
    pub(crate) fn shrink(
        &mut self,
        steps: Vec<Step>,
        found: &Difference,
    ) -> (Vec<Step>, Difference) {
        const TRIES: u32 = 250;
        let deadline = Instant::now() + Duration::from_secs(60);
        let wanted = found.signature();
        let mut steps = steps;
        steps.truncate(found.at + 1);
        let mut best: Option<Difference> = None;
        let mut size = steps.len().div_ceil(2);
        let mut tries = 0;
        while size > 0 && tries < TRIES && Instant::now() < deadline {
            let mut from = 0;
            while from < steps.len() && tries < TRIES && Instant::now() < deadline {
                tries += 1;
                let mut fewer = steps.clone();
                fewer.drain(from..(from + size).min(steps.len()));
                let again = self.begin().ok().and_then(|()| self.play(&fewer).err());
                match again {
                    Some(again) if again.signature() == wanted => {
                        fewer.truncate(again.at + 1);
                        steps = fewer;
                        best = Some(again);
                    }
                    Some(_) | None => from += size,
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        // Then removes single requests from pipelined ones.
        let mut at = 0;
        while at < steps.len() && tries < 2 * TRIES && Instant::now() < deadline {
            let mut fewer = steps.clone();
            let Some(alone) = leave_one_out(&mut fewer[at], tries) else {
                at += 1;
                continue;
            };
            tries += 1;
            let again = self.begin().ok().and_then(|()| self.play(&fewer).err());
            match again {
                Some(again) if again.signature() == wanted => {
                    steps = fewer;
                    best = Some(again);
                }
                Some(_) | None => at += usize::from(alone),
            }
        }
        let best = best.unwrap_or(Difference {
            at: found.at,
            step: found.step.clone(),
            lines: found.lines.clone(),
        });
        (steps, best)
    }
}

/// Removes one request of several; true if it was the first in the list. `None` if there is only
/// one.
fn leave_one_out(step: &mut Step, tries: u32) -> Option<bool> {
    let Step::Send { requests, .. } = step else { return None };
    if requests.len() < 2 {
        return None;
    }
    let at = usize::try_from(tries).expect("fits") % requests.len();
    requests.remove(at);
    Some(at == 0)
}

/// The lines of all seats, beginning with the seat of the step. With `any_order`, events of the
/// same zxid are sorted: the order in which a closing session's ephemerals are deleted is
/// unspecified.
fn texts(seats: Vec<Vec<Line>>, first: usize, any_order: bool) -> Vec<String> {
    let mut texts = Vec::new();
    let mut seats: Vec<_> = seats.into_iter().enumerate().collect();
    seats.sort_by_key(|(seat, _)| *seat != first);
    for (seat, mut lines) in seats {
        if any_order {
            for run in lines.chunk_by_mut(|a, b| a.event_of.is_some() && a.event_of == b.event_of) {
                run.sort_by(|a, b| a.text.cmp(&b.text));
            }
        }
        texts.extend(lines.into_iter().map(|line| format!("c{seat} {}", line.text)));
    }
    texts
}

/// Does the step open an existing session with a wrong password?
pub(crate) fn is_intrusion(step: &Step) -> bool {
    let Step::Open { how, .. } = step else { return false };
    how.password != Password::Right && matches!(how.session, Which::Own | Which::Of(_))
}
