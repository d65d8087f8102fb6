//! Generates requests that no client library sends.

use super::{Generator, Group, open_acl};
use crate::play::Step;
use crate::request::{PREFIX, Request};

impl Generator {
    pub(super) fn null(&mut self) -> Request {
        let op = self.rng.pick(&[
            1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 14, 15, 16, 17, 18, 19, 21, 22, 101, 103, 104,
        ]);
        if matches!(op, 14 | 22) {
            return self.null_inside(op);
        }
        self.null_in(Request::new(op))
    }

    /// An operation of a multi with a null in it.
    fn null_inside(&mut self, op: i32) -> Request {
        let mut request = Request::new(op);
        let at = self.rng.below(3);
        for part in 0..3 {
            let part = if part == at {
                let ops: &[i32] = if op == 14 { &[1, 1, 2, 5, 13, 15, 19, 21] } else { &[4, 8] };
                let part = Request::new(self.rng.pick(ops));
                self.null_in(part)
            } else if op == 14 {
                self.multi_part()
            } else {
                Request::new(4).string(&self.path()).flag(false)
            };
            request = request.int(part.op).flag(false).int(-1).record(part);
        }
        self.multi_end(request)
    }

    fn null_in(&mut self, request: Request) -> Request {
        let op = request.op;
        match op {
            16 => request.buffer(None).buffer(None).buffer(None).long(-1),
            1 | 15 | 19 if self.rng.percent(20) => {
                let flags = self.rng.pick(&[0, 1, 4, 5, 9]);
                open_acl(request.buffer(None).buffer(None)).int(flags)
            }
            19 => request.string(&self.path()).buffer(None).note("no ACL").int(-1).int(4),
            21 if self.rng.percent(50) => {
                let (flags, ttl) = self.rng.pick(&[(5, 100), (6, 100), (5, 0), (0, 1), (9, 1)]);
                open_acl(request.buffer(None).buffer(None)).int(flags).long(ttl)
            }
            21 => request.string(&self.path()).buffer(None).note("no ACL").int(-1).int(5).long(100),
            6 | 103 | 104 => request.buffer(None),
            7 if self.rng.percent(50) => request.string(&self.path()).int(-1).int(-1),
            7 => open_acl(request.buffer(None)).int(-1),
            13 => request.buffer(None).int(-1),
            101 if self.rng.percent(50) => {
                request.zxid_behind(0).int(1).buffer(None).strings(&[]).strings(&[])
            }
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
        if self.rng.percent(20) {
            return self.odd_bytes();
        }
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
        match self.rng.below(10) {
            // Overwrites four bytes anywhere in the record; not of createTTL, see `kinds`.
            8 | 9 if length >= 4 && request.op != 21 => {
                let mut request = request;
                let at = self.rng.below(length - 3);
                let bad: i32 = self.rng.pick(&[-1, -2, i32::MIN, i32::MAX, 0, 1, 2, 5, 100]);
                request.body[at..at + 4].copy_from_slice(&bad.to_be_bytes());
                request.note(&format!("{bad} AT {at}"))
            }
            0 => request.append(b"more"),
            1 => request.append(&[0; 3]),
            2 => {
                let mut request = request;
                request.cut_header = Some(self.rng.below(8));
                request.note("CUT HEADER")
            }
            // Overwrites the length of the path, with which most records begin.
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

    /// Strings that are not UTF-8, booleans other than 0 and 1.
    fn odd_bytes(&mut self) -> Request {
        let path = self.path();
        let tails: [&[u8]; 10] = [
            b"/\xff",
            b"/\xc3",
            b"/\xc0\x80",
            b"/\xed\xa0\xbd\xed\xb8\x80",
            b"/\xed\xa0\xbd",
            b"/\xe2\x82",
            b"/\xe2\x82x",
            b"/\xf0\x9f\x98",
            b"/\xf4\x90\x80\x80",
            b"/\xf8\x88\x80\x80\x80",
        ];
        let text = [path.as_bytes(), self.rng.pick(&tails)].concat();
        let byte = self.rng.pick(&[2, 0x80, 0xFF]);
        match self.rng.below(8) {
            0 => Request::new(9).buffer(Some(&text)),
            1 => open_acl(Request::new(1).buffer(Some(&text)).buffer(None)).int(0),
            2 => Request::new(2).buffer(Some(&text)).int(-1),
            3 => Request::new(103).buffer(Some(&text)),
            4 => Request::new(3).buffer(Some(&text)).flag(true),
            5 => Request::new(5).buffer(Some(&text)).buffer(None).int(-1),
            6 => Request::new(3).string(&path).byte(byte),
            _ => Request::new(4).string(&path).byte(byte),
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
        match self.rng.below(7) {
            // deleteContainer on a missing node, so that ZooKeeper deletes nothing.
            0 => Request::new(20).string(&format!("{PREFIX}/none/none")),
            1 => Request::new(-1).int(-5),
            2 => Request::new(16).string("").string("").string("").long(-1),
            3 => Request::new(16).buffer(None).string("1").buffer(None).long(i64::MIN),
            4 => Request::new(16).string("nonsense"),
            5 => Request::new(16)
                .string("server.1=localhost:1:2:participant;3")
                .string("")
                .string("")
                .long(0),
            _ => Request::new(102).buffer(Some(b"token")),
        }
    }
}
