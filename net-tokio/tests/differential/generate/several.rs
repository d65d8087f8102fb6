//! Generates multi requests.

use super::{Generator, Group, open_acl};
use crate::request::Request;

impl Generator {
    pub(super) fn multi(&mut self) -> Request {
        let mut request = Request::new(14);
        for _ in 0..self.rng.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 6]) {
            let part = self.multi_part();
            let odd = self.has(Group::Malformed) && self.rng.percent(1);
            request = request.int(part.op);
            request = if odd { request.byte(0).int(7) } else { request.flag(false).int(-1) };
            request = request.record(part);
        }
        self.multi_end(request)
    }

    pub(super) fn multi_part(&mut self) -> Request {
        let odd = self.has(Group::Malformed) && self.rng.percent(2);
        match self.rng.below(12) {
            _ if odd => {
                let op =
                    self.rng.pick(&[0, 3, 4, 6, 7, 8, 9, 12, 14, 16, 20, 22, 55, 100, -1, -11]);
                Request::new(op).string(&self.path()).flag(false)
            }
            0..=3 => {
                let path = self.path();
                self.create(&path)
            }
            4 | 5 => Request::new(2).string(&self.path()).int(self.version()),
            6 | 7 => {
                let path = self.path();
                Request::new(5).string(&path).buffer(self.data().as_deref()).int(self.version())
            }
            8 if self.has(Group::Kinds) => loop {
                let part = self.kinds();
                if !part.is_ephemeral_container() {
                    break part;
                }
            },
            9 if self.has(Group::Flags) => {
                let flags = self.rng.pick(&[-1, 4, 5, 6, 7, 8]);
                let op = self.rng.pick(&[1, 15]);
                let path = self.path();
                let part = Request::new(op).string(&path);
                self.create_rest(part, flags)
            }
            10 if self.has(Group::Odd) => {
                let path = self.odd_path();
                match self.rng.below(5) {
                    0 => Request::new(2).string(&path).int(-1),
                    1 => Request::new(5).string(&path).buffer(None).int(-1),
                    2 => Request::new(13).string(&path).int(-1),
                    _ => {
                        let part = Request::new(self.rng.pick(&[1, 15])).string(&path);
                        self.create_rest(part, 0)
                    }
                }
            }
            _ => Request::new(13).string(&self.path()).int(self.version()),
        }
    }

    /// A multi with hundreds or thousands of operations.
    pub(super) fn long_multi(&mut self) -> Request {
        let parts = self.rng.pick(&[200, 2_000]);
        let mut request = Request::new(14);
        for part in 0..parts {
            let path = self.path();
            let part = match part % 3 {
                0 if self.rng.percent(90) => Request::new(13).string("/").int(-1),
                1 => Request::new(5).string("/").buffer(None).int(-1),
                _ => open_acl(Request::new(1).string(&format!("{path}/s")).buffer(None)).int(3),
            };
            request = request.int(part.op).flag(false).int(-1).record(part);
        }
        request.int(-1).flag(true).int(-1)
    }

    pub(super) fn multi_end(&mut self, request: Request) -> Request {
        if self.has(Group::Malformed) && self.rng.percent(2) {
            return request.note("without end");
        }
        if self.has(Group::Malformed) && self.rng.percent(2) {
            return request
                .int(self.rng.pick(&[1, 5, 55]))
                .byte(self.rng.pick(&[1, 2, 0xFF]))
                .int(0);
        }
        request.int(-1).flag(true).int(-1)
    }

    pub(super) fn multi_read(&mut self) -> Request {
        let mut request = Request::new(22);
        for _ in 0..self.rng.below(4) {
            let path = self.path();
            let op = if self.rng.percent(3) { 2 } else { self.rng.pick(&[4, 8]) };
            request = request.int(op).flag(false).int(-1);
            request = match op {
                2 => request.record(Request::new(2).string(&path).int(-1)),
                _ => request.record(Request::new(op).string(&path).flag(self.watch_flag())),
            };
        }
        self.multi_end(request)
    }
}
