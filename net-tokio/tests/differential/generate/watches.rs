//! Generates requests that set, check and remove watches.

use super::{Generator, Group};
use crate::request::Request;

impl Generator {
    pub(super) fn watch(&mut self) -> Request {
        let path = self.path();
        match self.rng.below(8) {
            0 | 1 => Request::new(3).string(&path).flag(true),
            2 => Request::new(4).string(&path).flag(true),
            3 => Request::new(8).string(&path).flag(true),
            4 => Request::new(12).string(&path).flag(true),
            n => {
                let op = if n == 5 { 17 } else { 18 };
                let kind = self.rng.pick(&[1, 1, 2, 2, 3, 3, 4, 5, 0, 6, -1, i32::MAX]);
                Request::new(op).string(&path).int(kind)
            }
        }
    }

    pub(super) fn paths(&mut self) -> Vec<String> {
        let count = self.rng.pick(&[0, 0, 1, 1, 2, 4]);
        let odd = self.has(Group::Odd) && self.rng.percent(10);
        (0..count).map(|_| if odd { self.odd_path() } else { self.path() }).collect()
    }

    pub(super) fn set_watches(&mut self, op: i32) -> Request {
        let behind = self.rng.pick(&[0, 0, 1, 3, 10, 50, 1 << 40, -5]);
        let mut request = Request::new(op).xid(self.rng.pick(&[-8, -8, -8, 9]));
        request = match self.rng.below(12) {
            0 => request.long(self.rng.pick(&[-1, i64::MIN, i64::MAX])),
            _ => request.zxid_behind(behind),
        };
        for _ in 0..if op == 101 { 3 } else { 5 } {
            request = request.strings(&self.paths());
        }
        request
    }
}
