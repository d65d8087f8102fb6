//! What no client library sends.

use super::{Generator, Group, open_acl};
use crate::play::Step;
use crate::request::{PREFIX, Request};

impl Generator {
    pub(super) fn null(&mut self) -> Request {
        let op = self.rng.pick(&[1, 2, 3, 4, 5, 8, 9, 12, 15, 17, 18, 101]);
        let request = Request::new(op);
        match op {
            1 | 15 if self.rng.percent(50) => {
                request.string(&self.path()).buffer(None).note("no ACL").int(-1).int(0)
            }
            1 | 15 => open_acl(request.buffer(None).buffer(None)).int(0),
            2 | 17 | 18 => request.buffer(None).int(1),
            5 => request.buffer(None).buffer(None).int(-1),
            9 => request.buffer(None),
            101 => request.zxid_behind(0).int(-1).int(-1).int(-1),
            _ => request.buffer(None).flag(self.watch_flag()),
        }
    }

    pub(super) fn malformed(&mut self) -> Request {
        let groups: Vec<Group> = self.groups.iter().map(|known| known.0).collect();
        if self.rng.percent(10) {
            let op = self.rng.pick(&[0, 10, 23, 55, 99, 102, 108, 1000, -2, -12, i32::MAX]);
            return Request::new(op).string(&self.path());
        }
        let request = loop {
            let group = self.rng.pick(&groups);
            if matches!(group, Group::Malformed | Group::Internal | Group::Check | Group::Big) {
                continue;
            }
            if let Some(request) = self.request(group) {
                break request;
            }
            if groups.iter().all(|group| {
                matches!(group, Group::Session | Group::Burst | Group::Words | Group::Malformed)
            }) {
                break self.tree();
            }
        };
        let length = request.body.len();
        match self.rng.below(8) {
            0 => request.append(b"more"),
            1 => request.append(&[0; 3]),
            2 => {
                let mut request = request;
                request.cut_header = Some(self.rng.below(8));
                request.note("CUT HEADER")
            }
            // The length of the path, which most records begin with.
            3 if length >= 4 => {
                let mut request = request;
                let bad: i32 =
                    self.rng.pick(&[-1, -2, i32::MIN, i32::MAX, 0x0020_0000, 0x7FFF_FFF0]);
                request.body[..4].copy_from_slice(&bad.to_be_bytes());
                request.note(&format!("FIRST LENGTH {bad}"))
            }
            4 => {
                let bad = self.rng.pick(&[-2, -100, i32::MIN, i32::MAX, 1_000_000, 3]);
                let path = self.path();
                Request::new(self.rng.pick(&[1, 15]))
                    .string(&path)
                    .buffer(Some(b"x"))
                    .note("ACLS")
                    .int(bad)
            }
            _ => {
                let at = self.rng.below(length.max(1));
                request.cut(at)
            }
        }
    }

    pub(super) fn bad_bytes(&mut self, seat: usize) -> Step {
        let bytes = match self.rng.below(6) {
            0 => (-1_i32).to_be_bytes().to_vec(),
            1 => 0x10_0000_i32.to_be_bytes().to_vec(),
            2 => i32::MIN.to_be_bytes().to_vec(),
            3 => i32::MAX.to_be_bytes().to_vec(),
            4 => 0_i32.to_be_bytes().to_vec(),
            _ => b"ruok".to_vec(),
        };
        Step::Bytes { seat, bytes }
    }

    pub(super) fn internal(&mut self) -> Request {
        match self.rng.below(5) {
            // Where nothing is, ZooKeeper has nothing to delete either.
            0 => Request::new(20).string(&format!("{PREFIX}/none/none")),
            1 => Request::new(-1).int(-5),
            2 => Request::new(16).string("").string("").string("").long(-1),
            3 => Request::new(16)
                .string("server.1=localhost:1:2:participant;3")
                .string("")
                .string("")
                .long(0),
            _ => Request::new(102).buffer(Some(b"token")),
        }
    }
}
