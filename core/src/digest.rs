//! Digests of replicated state: equal digests at equal zxids mean equal replicas.
//!
//! Owns which fields count as state and how they are hashed. Must not serve as protection against
//! forgery: the hash is not cryptographic.
//!
//! A replica's digest is the wrapping sum of one hash (share) per node and per session. A change
//! subtracts the old share and adds the new one, so updating the digest costs only what changed.

use crate::ids::{ServerId, SessionId, Zxid};
use crate::wire::Acl;

/// The replicated fields of one node.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of `wire::Stat`")]
pub struct NodeView<'a> {
    pub path: &'a str,
    pub data: Option<&'a [u8]>,
    /// Empty for the nodes that the server creates itself: no list means no restriction.
    pub acl: &'a [Acl],
    pub czxid: Zxid,
    pub mzxid: Zxid,
    pub pzxid: Zxid,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    /// Children ever created: the stored cversion. Clients see `2 * creates - children`.
    pub creates: i32,
    pub aversion: i32,
    pub owner: SessionId,
    pub children: u32,
}

/// Share of one node in the digest.
pub fn node(node: &NodeView<'_>) -> u64 {
    named(node.path.rsplit('/').filter(|name| !name.is_empty()), node)
}

/// Like [`node`], with the path given as its names, last one first. `node.path` is ignored, so that
/// a caller that follows parent links does not have to build the path.
pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>, node: &NodeView<'_>) -> u64 {
    let mut hash = Fnv::new();
    names.for_each(|name| hash.text(name));
    match node.data {
        None => hash.byte(0),
        Some(data) => {
            hash.byte(1);
            hash.number(data.len() as u64);
            hash.long(data);
        }
    }
    hash.acl(node.acl);
    for number in [
        node.czxid.0,
        node.mzxid.0,
        node.pzxid.0,
        node.ctime.cast_unsigned(),
        node.mtime.cast_unsigned(),
        u64::from(node.version.cast_unsigned()),
        u64::from(node.creates.cast_unsigned()),
        u64::from(node.aversion.cast_unsigned()),
        node.owner.0.cast_unsigned(),
        u64::from(node.children),
    ] {
        hash.number(number);
    }
    // The tree uses 0 and `u64::MAX` as markers in place of a share.
    hash.0.clamp(1, u64::MAX - 1)
}

/// Hash of an access control list.
pub(crate) fn acl(list: &[Acl]) -> u64 {
    let mut hash = Fnv::new();
    hash.acl(list);
    hash.0
}

/// Share of one session in the digest: its id, the timeout in its createSession transaction (ms),
/// the server that its client connected to last, and whether its password comes from the ensemble's
/// secret.
pub fn session(id: SessionId, timeout_ms: u32, server: Option<ServerId>, keyed: bool) -> u64 {
    let mut hash = Fnv::new();
    hash.text("session");
    hash.number(id.0.cast_unsigned());
    hash.number(u64::from(timeout_ms));
    hash.byte(u8::from(keyed));
    match server {
        None => hash.byte(0),
        Some(server) => {
            hash.byte(1);
            hash.number(server.0);
        }
    }
    hash.0
}

/// Share of the highest session id ever assigned for servers with this byte, which is never reused.
pub fn last_session(server: u8, id: SessionId) -> u64 {
    let mut hash = Fnv::new();
    hash.text("last session");
    hash.byte(server);
    hash.number(id.0.cast_unsigned());
    hash.0
}

/// A variant of FNV-1a with 64 bits of state that hashes a word at a time.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn byte(&mut self, byte: u8) {
        self.number(u64::from(byte));
    }

    fn number(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.number(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.byte(*byte);
        }
    }

    /// Like `bytes`, but for long inputs: four independent lanes run in parallel on the CPU.
    fn long(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<32>();
        if !blocks.is_empty() {
            let mut lanes = [(); 4].map(|()| Fnv::new());
            for block in blocks {
                let (words, _) = block.as_chunks::<8>();
                for (lane, word) in lanes.iter_mut().zip(words) {
                    lane.number(u64::from_le_bytes(*word));
                }
            }
            lanes.iter().for_each(|lane| self.number(lane.0));
        }
        self.bytes(rest);
    }

    fn acl(&mut self, list: &[Acl]) {
        self.number(list.len() as u64);
        for acl in list {
            self.number(u64::from(acl.perms.0.cast_unsigned()));
            self.text(&acl.scheme);
            self.text(&acl.id);
        }
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}
