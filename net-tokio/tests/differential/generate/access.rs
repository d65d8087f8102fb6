//! Generates ACLs and auth requests.

use super::{Generator, SUPER, open_acl};
use crate::request::Request;

const DIGESTS: [&str; 3] = [
    "ann:grDcJ7OS1jCu/cG2TyJHw/I9L8o=",
    "bob:yqVrLFrvoaI9z9fohteaNPJvRu8=",
    "root:FXpt3aV8OLxa9LXKC6DHYxwJCwk=",
];

impl Generator {
    pub(super) fn acl(&mut self, request: Request) -> Request {
        let count = self.rng.pick(&[-1, 0, 1, 1, 1, 1, 1, 1, 2, 2, 3]);
        let mut request = request.note("[").int(count);
        let mut last = None;
        for _ in 0..count.max(0) {
            let again = last.clone().filter(|_| self.rng.percent(20));
            let entry = again.unwrap_or_else(|| self.acl_entry());
            request = request.int(entry.0).buffer(entry.1.as_deref()).buffer(entry.2.as_deref());
            last = Some(entry);
        }
        request.note("]")
    }

    pub(super) fn acl_entry(&mut self) -> (i32, Option<Vec<u8>>, Option<Vec<u8>>) {
        let perms = self.rng.pick(&[31, 31, 31, 1, 3, 7, 16, 17, 4, 8, 30, 0, 255, -1]);
        let (scheme, ids): (&str, &[&str]) = self.rng.pick(&[
            ("world", &["anyone"][..]),
            ("world", &["anyone"]),
            ("world", &["anyone"]),
            ("world", &["bob", "", "Anyone"]),
            ("auth", &["", "x", "ann:one"]),
            ("auth", &[""]),
            ("digest", &DIGESTS),
            ("digest", &DIGESTS),
            ("digest", &["a:b:c", "a:", ":b", "", "ann", ":", "::", "a:b:"]),
            (
                "ip",
                &[
                    "127.0.0.1",
                    "127.0.0.0/8",
                    "10.0.0.1",
                    "0.0.0.0/0",
                    "127.0.0.1/32",
                    "127.0.0.2/31",
                ],
            ),
            (
                "ip",
                &[
                    "127.0.0.1/33",
                    "127.0.0.1/-1",
                    "x",
                    "",
                    "127.0.0",
                    "127.0.0.1/",
                    "::1",
                    "256.0.0.1",
                    "127.0.0.1/8/8",
                ],
            ),
            ("x509", &["CN=ann", "x"]),
            ("sasl", &["ann"]),
            ("super", &["", "ann"]),
            ("ensemble", &["x"]),
            ("foo", &["bar"]),
            ("", &["x"]),
        ]);
        let id = self.rng.pick(ids).as_bytes().to_vec();
        let (scheme, id) = (Some(scheme.as_bytes().to_vec()), Some(id));
        match self.rng.below(60) {
            0 => (perms, None, id),
            1 => (perms, scheme, None),
            _ => (perms, scheme, id),
        }
    }

    pub(super) fn acl_request(&mut self) -> Request {
        let path = self.path();
        match self.rng.below(10) {
            0..=3 => Request::new(6).string(&path),
            4 => open_acl(Request::new(7).string(&path)).int(self.version()),
            5 | 6 => {
                let request =
                    Request::new(self.rng.pick(&[1, 15])).string(&path).buffer(Some(b"acl"));
                self.acl(request).int(0)
            }
            _ => {
                let request = Request::new(7).string(&path);
                self.acl(request).int(self.version())
            }
        }
    }

    pub(super) fn auth(&mut self) -> Request {
        if self.rng.percent(30) {
            return Request::new(107);
        }
        let (scheme, data): (&str, &[&str]) = self.rng.pick(&[
            ("digest", &["ann:one", "bob:two"][..]),
            ("digest", &["ann:one", "bob:two"]),
            ("digest", &["ann:one", "bob:two"]),
            ("digest", &[SUPER]),
            ("digest", &["root:wrong", "ann:wrong", "nocolon", "", ":", "a:b:c"]),
            ("ip", &["", "127.0.0.1"]),
            ("world", &["anyone"]),
            ("auth", &[""]),
            ("sasl", &["x"]),
            ("x509", &["x"]),
            ("super", &["x"]),
            ("ensemble", &["", "x"]),
            ("foo", &["x"]),
            ("", &["x"]),
        ]);
        let data = self.rng.pick(data);
        let kind = self.rng.pick(&[0, 0, 0, 100, -1]);
        let xid = self.rng.pick(&[-4, -4, -4, 5]);
        Request::new(100).xid(xid).int(kind).string(scheme).string(data)
    }
}
