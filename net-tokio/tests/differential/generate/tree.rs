//! Generates requests that read or change single nodes.

use super::{Generator, Group, open_acl};
use crate::request::{PREFIX, Request};

impl Generator {
    /// Appends data, ACL and flags of a create.
    pub(super) fn create_rest(&mut self, request: Request, flags: i32) -> Request {
        let request = request.buffer(self.data().as_deref());
        let odd = self.has(Group::Acl) && self.rng.percent(15);
        let request = if odd { self.acl(request) } else { open_acl(request) };
        request.int(flags)
    }

    pub(super) fn create(&mut self, path: &str) -> Request {
        let op = self.rng.pick(&[1, 1, 15]);
        let flags = self.rng.pick(&[0, 0, 0, 0, 0, 1, 1, 2, 3]);
        let path = if flags >= 2 { format!("{path}/s") } else { path.to_owned() };
        let request = Request::new(op).string(&path);
        self.create_rest(request, flags)
    }

    pub(super) fn tree(&mut self) -> Request {
        let path = self.path();
        match self.rng.below(20) {
            0..=5 => self.create(&path),
            6..=8 => Request::new(2).string(&path).int(self.version()),
            9..=11 => {
                Request::new(5).string(&path).buffer(self.data().as_deref()).int(self.version())
            }
            12 | 13 => Request::new(3).string(&path).flag(self.watch_flag()),
            14 | 15 => Request::new(4).string(&path).flag(self.watch_flag()),
            16 => Request::new(8).string(&path).flag(self.watch_flag()),
            17 => Request::new(12).string(&path).flag(self.watch_flag()),
            18 => Request::new(9).string(&path),
            _ => Request::new(11).xid(self.rng.pick(&[-2, 7])),
        }
    }

    pub(super) fn flags(&mut self) -> Request {
        let path = self.path();
        let version = self.rng.pick(&[-2, i32::MAX, i32::MIN, 3]);
        match self.rng.below(8) {
            6 if self.has(Group::Acl) => open_acl(Request::new(7).string(&path)).int(version),
            7 if self.has(Group::Multi) => {
                let part = Request::new(13).string(&path).int(version);
                Request::new(14).int(13).flag(false).int(-1).record(part).int(-1).flag(true).int(-1)
            }
            0 => Request::new(2).string(&path).int(version),
            1 => Request::new(5).string(&path).buffer(Some(b"v")).int(version),
            _ => {
                let flags = self.rng.pick(&[-1, 4, 5, 6, 7, 8, 9, i32::MAX, i32::MIN]);
                let op = self.rng.pick(&[1, 15]);
                let request = Request::new(op).string(&path);
                self.create_rest(request, flags)
            }
        }
    }

    pub(super) fn odd_path(&mut self) -> String {
        let path = self.path();
        let odd = [
            "",
            "a",
            "//",
            "/./a",
            "/../a",
            "/",
            "/a//b",
            "/a/",
            "/a/.",
            "/.a",
            "/a..b",
            "/...",
            "/ ",
            "/\u{0}",
            "/a\u{0}b",
            "/\u{1}",
            "/\u{1f}",
            "/\u{20}x",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{a0}",
            "/\u{d7ff}",
            "/\u{e000}",
            "/\u{f8ff}",
            "/\u{f900}",
            "/\u{ffef}",
            "/\u{fff0}",
            "/\u{fffd}",
            "/\u{ffff}",
            "/\u{1f600}",
            "/é",
            "/\t",
        ];
        let tail = self.rng.pick(&odd);
        match self.rng.below(10) {
            // Outside the subtree, only paths that cannot be created: a new node there would
            // outlast the episode.
            0 => self.rng.pick(&["", "a", "//", "/./a", "/../a", "/", "/\u{0}"]).to_owned(),
            1 => path[1..].to_owned(),
            _ => path + tail,
        }
    }

    pub(super) fn on_odd_path(&mut self) -> Request {
        let path = self.odd_path();
        let mut request = match self.rng.below(12) {
            0..=3 => {
                let op = self.rng.pick(&[1, 15]);
                let flags = self.rng.pick(&[0, 0, 1, 2, 3]);
                let request = Request::new(op).string(&path);
                self.create_rest(request, flags)
            }
            4 | 5 => Request::new(2).string(&path).int(-1),
            6 => Request::new(5).string(&path).buffer(Some(b"o")).int(-1),
            7 => Request::new(3).string(&path).flag(self.watch_flag()),
            8 => Request::new(4).string(&path).flag(self.watch_flag()),
            9 => Request::new(8).string(&path).flag(self.watch_flag()),
            10 => Request::new(12).string(&path).flag(false),
            _ => Request::new(9).string(&path),
        };
        if self.rng.percent(20) {
            let kind = self.rng.pick(&[1, 2, 3, 4, 5]);
            request = match self.rng.below(8) {
                0 => Request::new(17).string(&path).int(kind),
                1 => Request::new(18).string(&path).int(kind),
                2 if self.has(Group::Acl) => Request::new(6).string(&path),
                3 if self.has(Group::Acl) => open_acl(Request::new(7).string(&path)).int(-1),
                4 if self.has(Group::AddWatch) => Request::new(106).string(&path).int(1),
                5 if self.has(Group::Count) => Request::new(104).string(&path),
                6 if self.has(Group::Count) => Request::new(103).string(&path),
                _ => request,
            };
        }
        request
    }

    pub(super) fn reserved(&mut self) -> Request {
        let path = self.rng.pick(&[
            "/",
            "/zookeeper",
            "/zookeeper/quota",
            "/zookeeper/config",
            "/zookeeper/none",
        ]);
        match self.rng.below(14) {
            0 | 1 => Request::new(2).string(path).int(-1),
            2 => Request::new(5).string(path).buffer(Some(b"")).int(self.version()),
            3 => Request::new(3).string(path).flag(self.watch_flag()),
            4 => Request::new(4).string(path).flag(self.watch_flag()),
            5 => Request::new(8).string(path).flag(self.watch_flag()),
            6 => Request::new(12).string(path).flag(self.watch_flag()),
            7 => open_acl(Request::new(1).string(path).buffer(None)).int(0),
            8 => open_acl(Request::new(1).string(&format!("{PREFIX}/../zookeeper/x")).buffer(None))
                .int(0),
            9 => Request::new(9).string(path),
            10 if self.has(Group::Acl) => Request::new(6).string(path),
            11 if self.has(Group::Acl) => {
                let version = self.rng.pick(&[0, 1, 5]);
                open_acl(Request::new(7).string(path)).int(version)
            }
            12 if self.has(Group::Count) => Request::new(104).string("/zookeeper/config"),
            _ => Request::new(4).string(path).flag(false),
        }
    }

    pub(super) fn big(&mut self) -> Request {
        let size = self.rng.pick(&[4_096, 70_000, 300_000, 1_000_000]);
        let path = self.path();
        match self.rng.below(5) {
            4 if self.has(Group::Multi) => self.long_multi(),
            0 => Request::new(3).string(&format!("{path}/{}", "l".repeat(size))).flag(true),
            1 => open_acl(Request::new(1).string(&path).buffer(Some(&vec![b'd'; size]))).int(0),
            2 => {
                // The largest frame allowed, or one byte more.
                let most = 0xF_FFFF - 8 - 4 - path.len() - 4 - 4 + self.rng.below(2);
                Request::new(5).string(&path).buffer(Some(&vec![b'm'; most])).int(-1)
            }
            _ => Request::new(5).string(&path).buffer(Some(&vec![b'd'; size])).int(-1),
        }
    }

    pub(super) fn kinds(&mut self) -> Request {
        let path = self.path();
        if self.rng.percent(50) {
            let flags = self.rng.pick(&[4, 4, 4, 0, 2, 1, 5, 9]);
            let request = Request::new(19).string(&path);
            return self.create_rest(request, flags);
        }
        let flags = self.rng.pick(&[5, 5, 5, 6, 6, 0, 1, 4]);
        let path = if flags == 6 { format!("{path}/s") } else { path };
        let request = Request::new(21).string(&path);
        let ttls = [1, 1, 5_000, (1 << 40) - 1, 1 << 40, 0, -2, i64::MAX, i64::MIN];
        let ttl = self.rng.pick(&ttls);
        // A negative TTL for a mode without TTL makes ZooKeeper exit (edge 23).
        let ttl = if matches!(flags, 5 | 6) { ttl } else { ttl.max(0) };
        self.create_rest(request, flags).long(ttl)
    }

    pub(super) fn count(&mut self) -> Request {
        let path = self.path();
        match self.rng.below(6) {
            0 | 1 => Request::new(104).string(&path),
            2 => Request::new(103).string("/"),
            3 => Request::new(103).buffer(self.rng.pick(&[None, Some(&b""[..]), Some(b" ")])),
            4 => Request::new(103).string(&path[..path.len() - 1]),
            _ => Request::new(103).string(&path),
        }
    }

    pub(super) fn quota(&mut self) -> Request {
        let below = self.rng.pick(&["", "", "/a", "/a", "/a/b", "/b"]);
        let node = format!("/zookeeper/quota{PREFIX}{below}");
        let leaf = self.rng.pick(&[
            "zookeeper_limits",
            "zookeeper_limits",
            "zookeeper_stats",
            "zookeeper_stats",
        ]);
        let path = format!("{node}/{leaf}");
        let limits = [
            "count=3,bytes=20",
            "count=8,bytes=-1",
            "count=-1,bytes=-1=;byteHardLimit=30;countHardLimit=6",
            "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4",
            "count=2,bytes=5=;byteHardLimit=100;countHardLimit=10",
            "count=-1,bytes=-1",
        ];
        let data =
            if leaf == "zookeeper_stats" { "count=0,bytes=0" } else { self.rng.pick(&limits) };
        match self.rng.below(12) {
            0..=3 => open_acl(Request::new(1).string(&node).buffer(Some(b""))).int(0),
            4..=7 => open_acl(Request::new(1).string(&path).buffer(Some(data.as_bytes()))).int(0),
            8 => Request::new(5).string(&path).buffer(Some(data.as_bytes())).int(-1),
            9 => Request::new(2).string(&path).int(-1),
            _ => Request::new(4).string(&path).flag(self.watch_flag()),
        }
    }
}
