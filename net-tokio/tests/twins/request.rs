//! Requests as bytes with a description, and what may stand in them that differs between the two servers.

use crate::answer::Names;
use crate::jute::show;

/// Stands in paths for the subtree of the play: an episode has one of its own, and so has each replay of it.
pub(crate) const PREFIX: &str = "/e~~~~";

/// Opcodes with the names that reports use.
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

/// One request. Each method that appends to the record appends to the description too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) text: String,
    pub(crate) body: Vec<u8>,
    /// Where in the body a zxid stands that is so far behind the newest one.
    behind: Vec<(usize, i64)>,
    /// Is no reply due, as for half a header?
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

    /// A flag as only a strange client writes it.
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

    /// Ends after so many bytes of the record.
    pub(crate) fn cut(mut self, length: usize) -> Request {
        self.body.truncate(length);
        self.behind.retain(|hole| hole.0 + 8 <= length);
        self.note(&format!("CUT after {length} bytes"))
    }

    pub(crate) fn append(mut self, bytes: &[u8]) -> Request {
        self.body.extend(bytes);
        self.note(&format!("AND {}", show(Some(bytes))))
    }

    /// The record of another request, with its description, as a part of this one.
    pub(crate) fn record(mut self, other: Request) -> Request {
        assert!(other.behind.is_empty(), "operations of a multi have no zxids");
        self.body.extend(other.body);
        self.note(&format!("({})", other.text))
    }

    /// The frame, for the server that has these names.
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

    /// ZooKeeper takes such a container for an ephemeral node for as long as its creation is under way.
    pub(crate) fn is_ephemeral_container(&self) -> bool {
        self.op == 19 && self.body.ends_with(&1_i32.to_be_bytes())
    }

    /// Can it change what another connection sees?
    pub(crate) fn disturbs(&self) -> bool {
        !matches!(self.op, 3 | 4 | 6 | 8 | 9 | 11 | 12 | 17 | 18 | 101 | 103..=107)
    }
}

/// Puts one text in the place of another one of the same length.
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
