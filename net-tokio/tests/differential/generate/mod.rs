//! Generates random steps from a seed, independently of any answer.

mod access;
mod broken;
mod several;
mod tree;
mod watches;

use crate::play::Step;
use crate::request::{PREFIX, Request};
use crate::side::{Handshake, Oddity, Password, SEATS, Which};

/// A pseudo-random generator (SplitMix64), written here so that a seed always gives the same
/// numbers.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("is below a usize")
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Groups of operations, for `--only` and `--without`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// create, create2, delete, exists, getData, setData, getChildren(2), sync, ping.
    Tree,
    /// Invalid create flags, and unusual versions.
    Flags,
    /// Invalid paths.
    Odd,
    /// `/` and the nodes below `/zookeeper`.
    Reserved,
    /// multi.
    Multi,
    /// One-shot watches, checkWatches, removeWatches.
    Watch,
    /// setWatches.
    SetWatches,
    /// Closing and resuming sessions, timeouts, passwords.
    Session,
    /// Pipelined requests.
    Burst,
    /// Truncated and too long records, unknown operations, invalid lengths.
    Malformed,
    /// Null in place of strings.
    Null,
    /// Large data, long paths.
    Big,
    /// getACL, setACL and ACLs of all kinds.
    Acl,
    /// auth with all schemes; whoAmI.
    Auth,
    /// createContainer, createTTL.
    Kinds,
    /// getEphemerals, getAllChildrenNumber.
    Count,
    /// multiRead.
    MultiRead,
    /// addWatch.
    AddWatch,
    /// setWatches2.
    SetWatches2,
    /// Limits below /zookeeper/quota.
    Quota,
    /// check outside of a multi.
    Check,
    /// Four-letter commands that count nodes and watches.
    Words,
    /// Operations that are internal to servers, and reconfig.
    Internal,
}

/// Each group with its name and its weight.
pub(crate) const GROUPS: &[(Group, &str, u64)] = &[
    (Group::Tree, "tree", 100),
    (Group::Flags, "flags", 4),
    (Group::Odd, "odd", 6),
    (Group::Reserved, "reserved", 5),
    (Group::Multi, "multi", 25),
    (Group::Watch, "watch", 30),
    (Group::SetWatches, "setwatches", 6),
    (Group::Session, "session", 6),
    (Group::Burst, "burst", 10),
    (Group::Malformed, "malformed", 5),
    (Group::Null, "null", 3),
    (Group::Big, "big", 1),
    (Group::Acl, "acl", 14),
    (Group::Auth, "auth", 6),
    (Group::Kinds, "kinds", 8),
    (Group::Count, "count", 6),
    (Group::MultiRead, "multiread", 6),
    (Group::AddWatch, "addwatch", 6),
    (Group::SetWatches2, "setwatches2", 4),
    (Group::Quota, "quota", 8),
    (Group::Check, "check", 1),
    (Group::Words, "words", 1),
    (Group::Internal, "internal", 1),
];

pub(crate) const SUPER: &str = "root:super secret";
pub(crate) struct Generator {
    rng: Rng,
    groups: Vec<(Group, u64)>,
}

impl Generator {
    pub(crate) fn new(seed: u64, groups: &[Group]) -> Generator {
        let groups = GROUPS.iter().filter(|known| groups.contains(&known.0));
        Generator { rng: Rng::new(seed), groups: groups.map(|known| (known.0, known.2)).collect() }
    }

    fn has(&self, group: Group) -> bool {
        self.groups.iter().any(|known| known.0 == group)
    }

    /// Generates an episode. Quotas are checked against the applied state, which depends on timing
    /// while changes are outstanding. So an episode has either quotas or several changes in one
    /// pipeline.
    pub(crate) fn episode(&mut self, length: usize) -> Vec<Step> {
        if self.groups.len() > 1 && self.rng.percent(50) {
            self.groups.retain(|known| known.0 != Group::Quota);
        }
        (0..length).map(|_| self.step()).collect()
    }

    fn group(&mut self) -> Group {
        let total: u64 = self.groups.iter().map(|known| known.1).sum();
        let mut at = self.rng.next() % total;
        for &(group, weight) in &self.groups {
            if at < weight {
                return group;
            }
            at -= weight;
        }
        unreachable!("is below the total")
    }

    fn step(&mut self) -> Step {
        let seat = self.rng.below(SEATS);
        let group = self.group();
        if group == Group::Session {
            return self.session_step(seat);
        }
        if group == Group::Words {
            return Step::Words;
        }
        if group == Group::Burst {
            return self.burst(seat);
        }
        if group == Group::Malformed && self.rng.percent(15) {
            return self.bad_bytes(seat);
        }
        match self.request(group) {
            Some(mut request) => {
                if request.xid == 1 && self.has(Group::Flags) && self.rng.percent(2) {
                    let xid = self.rng.pick(&[0, -2, -4, -8, -3, -1, i32::MIN, i32::MAX]);
                    // -1 is the xid of events, so it is used only if the reply cannot be taken for
                    // an event.
                    let xid = if xid == -1 && request.op != 2 { -5 } else { xid };
                    request = request.xid(xid);
                }
                Step::Send { seat, requests: vec![request] }
            }
            None => self.step(),
        }
    }

    fn burst(&mut self, seat: usize) -> Step {
        let count = 2 + self.rng.below(8);
        let mut requests = Vec::new();
        while requests.len() < count {
            let group = self.group();
            if let Some(request) = self.request(group).filter(may_be_pipelined) {
                let changes =
                    |request: &Request| matches!(request.op, 1 | 2 | 5 | 14 | 15 | 19 | 21);
                if self.has(Group::Quota) && changes(&request) && requests.iter().any(changes) {
                    continue;
                }
                requests.push(request);
            }
        }
        for (request, xid) in requests.iter_mut().zip(1..) {
            request.xid = if request.xid > 0 { xid } else { request.xid };
        }
        if self.has(Group::Session) && self.rng.percent(5) {
            requests.push(Request::new(-11).xid(99));
        }
        Step::Send { seat, requests }
    }

    /// A request of the group; `None` if the group has no requests.
    fn request(&mut self, group: Group) -> Option<Request> {
        Some(match group {
            Group::Session | Group::Burst | Group::Words => return None,
            Group::Tree => self.tree(),
            Group::Flags => self.flags(),
            Group::Odd => self.on_odd_path(),
            Group::Reserved => self.reserved(),
            Group::Multi => self.multi(),
            Group::Watch => self.watch(),
            Group::SetWatches => self.set_watches(101),
            Group::SetWatches2 => self.set_watches(105),
            Group::Malformed => self.malformed(),
            Group::Null => self.null(),
            Group::Big => self.big(),
            Group::Acl => self.acl_request(),
            Group::Auth => self.auth(),
            Group::Kinds => self.kinds(),
            Group::Count => self.count(),
            Group::MultiRead => self.multi_read(),
            Group::AddWatch => {
                let mode = self.rng.pick(&[0, 0, 0, 1, 1, 1, 2, -1, i32::MAX]);
                Request::new(106).string(&self.path()).int(mode)
            }
            Group::Quota => self.quota(),
            Group::Check => Request::new(13).string(&self.path()).int(-1),
            Group::Internal => self.internal(),
        })
    }

    fn path(&mut self) -> String {
        let mut path = PREFIX.to_owned();
        for _ in 0..self.rng.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4]) {
            path += self.rng.pick(&["/a", "/b"]);
        }
        if self.rng.percent(6) {
            path += &format!("/s{:010}", self.rng.below(5));
        }
        path
    }

    fn data(&mut self) -> Option<Vec<u8>> {
        match self.rng.below(8) {
            0 => None,
            1 => Some(Vec::new()),
            2 => Some(vec![0, 0xFF, 0x80]),
            3 => Some(vec![b'x'; self.rng.below(300)]),
            _ => Some(self.rng.below(1000).to_string().into_bytes()),
        }
    }

    fn version(&mut self) -> i32 {
        self.rng.pick(&[-1, -1, -1, -1, 0, 0, 1, 2])
    }

    fn watch_flag(&mut self) -> bool {
        self.has(Group::Watch) && self.rng.percent(40)
    }

    fn session_step(&mut self, seat: usize) -> Step {
        let other = self.rng.below(SEATS);
        match self.rng.below(10) {
            0 | 1 => return Step::Send { seat, requests: vec![Request::new(-11)] },
            2 => return Step::HangUp { seat },
            _ => {}
        }
        let mut how = Handshake::plain(self.rng.pick(&[
            Which::New,
            Which::New,
            Which::Own,
            Which::Own,
            Which::Own,
            Which::Of(other),
            Which::Of(other),
            Which::Unknown,
        ]));
        let others = matches!(how.session, Which::Of(_)) && self.rng.percent(50);
        if others || self.rng.percent(10) {
            how.password = self.rng.pick(&[
                Password::Wrong,
                Password::Short,
                Password::Long,
                Password::Null,
                Password::Empty,
            ]);
        }
        how.timeout_ms = self.rng.pick(&[60_000, 60_000, 100_000, 0, 1, -1, i32::MAX, i32::MIN]);
        // 0, equal to the newest zxid, behind it, ahead of it.
        how.seen_behind =
            self.rng.pick(&[None, None, None, Some(0), Some(0), Some(3), Some(-1_000)]);
        how.read_only = self.rng.pick(&[Some(false), Some(true), None]);
        if self.has(Group::Malformed) && self.rng.percent(10) {
            how.odd = self.rng.pick(&[
                Oddity::Eager,
                Oddity::Eager,
                Oddity::Version(1),
                Oddity::Version(-1),
                Oddity::Tail(b"x"),
                Oddity::Tail(b"12345678"),
                Oddity::Cut(0),
                Oddity::Cut(20),
                Oddity::Cut(30),
                Oddity::Cut(43),
            ]);
        }
        Step::Open { seat, how }
    }
}

fn open_acl(request: Request) -> Request {
    request.note("[").int(1).int(31).string("world").string("anyone").note("]")
}

/// False for requests that close the connection or whose reply may overtake others: their result
/// depends on timing in a pipeline.
fn may_be_pipelined(request: &Request) -> bool {
    // Quotas are checked against the applied state, which depends on timing in a pipeline.
    let sets_quota = matches!(request.op, 1 | 2 | 5) && request.text.contains("/zookeeper/quota/");
    let known = crate::request::OPS.iter().any(|known| known.0 == request.op);
    known
        && !matches!(request.op, -11 | 13 | 100)
        && !request.is_ephemeral_container()
        && !sets_quota
        && request.cut_header.is_none()
        && request.body.len() < 10_000
}
