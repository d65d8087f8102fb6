//! Several operations in one request.

use super::{Generator, Group};
use crate::request::Request;

impl Generator {
    pub(super) fn multi(&mut self) -> Request {
        let mut request = Request::new(14);
        for _ in 0..self.rng.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 6]) {
            let odd = self.has(Group::Malformed) && self.rng.percent(2);
            let part = match self.rng.below(12) {
                _ if odd => {
                    let op = self.rng.pick(&[0, 3, 4, 6, 8, 9, 12, 14, 16, 22, 55, 100, -1, -11]);
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
                8 if self.has(Group::Kinds) => self.kinds(),
                9 if self.has(Group::Flags) => {
                    let flags = self.rng.pick(&[-1, 4, 5, 6, 7, 8]);
                    let op = self.rng.pick(&[1, 15]);
                    let path = self.path();
                    let part = Request::new(op).string(&path);
                    self.create_rest(part, flags)
                }
                10 if self.has(Group::Odd) => {
                    let path = self.odd_path();
                    let op = self.rng.pick(&[1, 15]);
                    let part = Request::new(op).string(&path);
                    self.create_rest(part, 0)
                }
                _ => Request::new(13).string(&self.path()).int(self.version()),
            };
            request = request.int(part.op).flag(false).int(-1).record(part);
        }
        self.multi_end(request)
    }

    pub(super) fn multi_end(&mut self, request: Request) -> Request {
        if self.has(Group::Malformed) && self.rng.percent(2) {
            return request.note("without end");
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
