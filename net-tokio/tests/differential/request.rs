//! Requests as bytes with a description, and placeholders for values that differ between the
//! servers.

use crate::answer::Names;
use crate::jute::show;

/// Placeholder in paths for the subtree of the play, which differs for each episode and each
/// replay.
pub(crate) const PREFIX: &str = "/e~~~~";

/// Opcodes and their names in reports.
pub(crate) const OPS: &[(i32, &str)] = &[
    (1, "create"),
    (2, "delete"),
    (3, "exists"),
    (4, "getData"),
    (5, "setData"),
    (6, "getACL"),
    (7, "setACL"),
    (8, "getChildren"),
    (9, "sync"),
    (11, "ping"),
    (12, "getChildren2"),
    (13, "check"),
    (14, "multi"),
    (15, "create2"),
    (17, "checkWatches"),
    (18, "removeWatches"),
    (19, "createContainer"),
    (21, "createTTL"),
    (16, "reconfig"),
    (22, "multiRead"),
    (100, "auth"),
    (101, "setWatches"),
    (103, "getEphemerals"),
    (104, "getAllChildrenNumber"),
    (105, "setWatches2"),
    (106, "addWatch"),
    (107, "whoAmI"),
    (-11, "closeSession"),
];

pub(crate) fn op_name(op: i32) -> String {
    match OPS.iter().find(|known| known.0 == op) {
        Some(known) => known.1.to_owned(),
        None => format!("op {op}"),
    }
}

/// One request. Each method that appends to the record appends to the description, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) text: String,
    pub(crate) body: Vec<u8>,
    /// Offsets of zxids in the body, and how far each is behind the newest zxid.
    behind: Vec<(usize, i64)>,
    /// Length at which the frame is truncated within its header; the server sends no reply then.
    pub(crate) cut_header: Option<usize>,
}

impl Request {
    pub(crate) fn new(op: i32) -> Request {
        let text = op_name(op);
        Request { xid: 1, op, text, body: Vec::new(), behind: Vec::new(), cut_header: None }
    }

    pub(crate) fn xid(mut self, xid: i32) -> Request {
        self.xid = xid;
        if xid != 1 {
            self.text += &format!(" xid {xid}");
        }
        self
    }

    pub(crate) fn note(mut self, note: &str) -> Request {
        self.text += &format!(" {note}");
        self
    }

    pub(crate) fn int(mut self, value: i32) -> Request {
        self.body.extend(value.to_be_bytes());
        self.note(&value.to_string())
    }

    pub(crate) fn long(mut self, value: i64) -> Request {
        self.body.extend(value.to_be_bytes());
        self.note(&value.to_string())
    }

    /// A boolean as any byte.
    pub(crate) fn byte(mut self, value: u8) -> Request {
        self.body.push(value);
        self.note(&value.to_string())
    }

    pub(crate) fn flag(mut self, value: bool) -> Request {
        self.body.push(u8::from(value));
        self.note(&value.to_string())
    }

    pub(crate) fn buffer(mut self, value: Option<&[u8]>) -> Request {
        match value {
            None => self.body.extend((-1_i32).to_be_bytes()),
            Some(value) => {
                let length = i32::try_from(value.len()).expect("fits a frame");
                self.body.extend(length.to_be_bytes());
                self.body.extend(value);
            }
        }
        self.note(&show(value))
    }

    pub(crate) fn string(self, value: &str) -> Request {
        self.buffer(Some(value.as_bytes()))
    }

    pub(crate) fn strings(self, values: &[String]) -> Request {
        let count = i32::try_from(values.len()).expect("fits a frame");
        let request = self.note("[").int(count).note(":");
        values.iter().fold(request, |request, value| request.string(value)).note("]")
    }

    pub(crate) fn zxid_behind(mut self, distance: i64) -> Request {
        self.behind.push((self.body.len(), distance));
        self.body.extend(0_i64.to_be_bytes());
        self.note(&format!("newest-{distance}"))
    }

    /// Truncates the record to `length` bytes.
    pub(crate) fn cut(mut self, length: usize) -> Request {
        self.body.truncate(length);
        self.behind.retain(|hole| hole.0 + 8 <= length);
        self.note(&format!("CUT after {length} bytes"))
    }

    pub(crate) fn append(mut self, bytes: &[u8]) -> Request {
        self.body.extend(bytes);
        self.note(&format!("AND {}", show(Some(bytes))))
    }

    /// Appends the record and the description of another request.
    pub(crate) fn record(mut self, other: Request) -> Request {
        assert!(other.behind.is_empty(), "operations of a multi have no zxids");
        self.body.extend(other.body);
        self.note(&format!("({})", other.text))
    }

    /// The frame, with this server's values for the placeholders.
    pub(crate) fn frame(&self, names: &Names) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.body.len() + 8);
        message.extend(self.xid.to_be_bytes());
        message.extend(self.op.to_be_bytes());
        message.extend(&self.body);
        for &(at, distance) in &self.behind {
            let zxid = names.behind(distance).max(0);
            message[8 + at..16 + at].copy_from_slice(&zxid.to_be_bytes());
        }
        message.truncate(self.cut_header.unwrap_or(usize::MAX));
        replace(&mut message, PREFIX.as_bytes(), names.prefix.as_bytes());
        let length = i32::try_from(message.len()).expect("fits a frame");
        [&length.to_be_bytes()[..], &message].concat()
    }

    /// createContainer with an ephemeral mode, which ZooKeeper treats as an ephemeral node until
    /// the creation is committed.
    pub(crate) fn is_ephemeral_container(&self) -> bool {
        self.op == 19 && self.body.ends_with(&1_i32.to_be_bytes())
    }

    /// Can the request change what other connections receive?
    pub(crate) fn disturbs(&self) -> bool {
        !matches!(self.op, 3 | 4 | 6 | 8 | 9 | 11 | 12 | 17 | 18 | 101 | 103..=107)
    }
}

/// Replaces all occurrences of a text by another one of the same length.
pub(crate) fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut at = 0;
    while at + from.len() <= bytes.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
        at += 1;
    }
}
