//! The frames on connections between servers, once these have greeted each other. Both worlds, real and simulated, use them.
//!
//! Owns framing, checksums and signatures, and how long a frame may be. Must not know what messages mean.
//!
//! ```text
//! frame         length u32 | crc32c of the content u32   | content, postcard
//! signed frame  length u32 | HMAC-SHA-256, 16 bytes of it | content, postcard
//! ```
//!
//! All numbers are little-endian. Frames are signed where both ends have proved that they know a secret (`greeting`).
//! Nothing is allocated for what a length announces: a buffer holds what has arrived.

use std::fmt;

use bytes::{Buf, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::PeerMessage;
use super::secret::{FrameKey, SIGNATURE_BYTES};

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// Bytes of a checksum.
const SUM_BYTES: usize = 4;
/// Longest content accepted: a request of the largest frame that can be configured, with room around it.
pub const CONTENT_MAX: usize = 256 << 20;
/// Longest content of all messages but a few kinds.
const SMALL_MAX: usize = 8 << 10;

/// Bytes that are not from a server like this one: the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// The greeting is not one of ours.
    Stranger,
    /// Longer than what is accepted at this point: its length, and that bound.
    Length(u32, usize),
    /// The checksum is not that of the content.
    Checksum,
    /// It is not signed by the other end as the next frame.
    Signature,
    /// The content is no message.
    Content,
}

/// How long the frames may be that come on a connection, by the first byte of their content, which is their kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    any: usize,
    long: usize,
    long_kinds: &'static [u8],
}

impl Bounds {
    /// Of notifications, which have some 40 bytes.
    pub const NOTIFICATION: Bounds = Bounds { any: 1 << 10, long: 0, long_kinds: &[] };

    /// Of whoever has greeted, and has not been taken for a learner yet.
    pub const GREETED: Bounds = Bounds { any: SMALL_MAX, long: 0, long_kinds: &[] };

    /// Any that a message can have.
    pub const LONGEST: Bounds = Bounds { any: CONTENT_MAX, long: 0, long_kinds: &[] };

    /// Of a leader: pieces of a snapshot and transactions may be long.
    pub const LEADER: Bounds =
        Bounds { any: SMALL_MAX, long: CONTENT_MAX, long_kinds: &[SNAP, PROPOSAL] };

    /// Of a learner: requests of clients and lists of sessions may be long, up to this.
    pub fn learner(long: usize) -> Bounds {
        Bounds { any: SMALL_MAX, long: long.min(CONTENT_MAX), long_kinds: &[PONG, REQUEST] }
    }

    fn of(&self, kind: Option<u8>) -> usize {
        match kind {
            Some(kind) if !self.long_kinds.contains(&kind) => self.any,
            Some(_) | None => self.any.max(self.long),
        }
    }
}

// Places in `FromLeader` and in `FromLearner`.
const SNAP: u8 = 2;
const PROPOSAL: u8 = 3;
const PONG: u8 = 5;
const REQUEST: u8 = 6;

/// Writes the frames of one direction of a connection.
#[derive(Clone, Default, Debug)]
pub struct Writer {
    key: Option<FrameKey>,
}

impl Writer {
    pub(super) fn signed(key: FrameKey) -> Writer {
        Writer { key: Some(key) }
    }

    /// Appends a message of a link as the next frame.
    pub fn encode_message(&mut self, message: &PeerMessage, out: &mut Vec<u8>) {
        match message {
            PeerMessage::Learner(message) => self.encode(message, out),
            PeerMessage::Leader(message) => self.encode(message, out),
        }
    }

    /// Appends a message as the next frame.
    pub fn encode<T: Serialize>(&mut self, message: &T, out: &mut Vec<u8>) {
        let start = out.len();
        let head = head_bytes(self.key.as_ref());
        // Enough for all but transactions and pieces of a snapshot, of which there are few.
        out.reserve(64);
        out.extend_from_slice(&[0; LENGTH_BYTES + SIGNATURE_BYTES][..head]);
        *out = postcard::to_extend(message, std::mem::take(out)).expect("plain data encodes");
        let (before, content) = out.split_at_mut(start + head);
        let length = u32::try_from(content.len()).expect("messages are bounded far below 4 GiB");
        let (length_at, sum_at) = before[start..].split_at_mut(LENGTH_BYTES);
        length_at.copy_from_slice(&length.to_le_bytes());
        match &mut self.key {
            Some(key) => sum_at.copy_from_slice(&key.sign(content)),
            None => sum_at.copy_from_slice(&crc32c::crc32c(content).to_le_bytes()),
        }
    }
}

/// Reads the frames of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Reader {
    key: Option<FrameKey>,
    bounds: Bounds,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { key: None, bounds: Bounds::GREETED }
    }
}

impl Reader {
    pub(super) fn signed(key: FrameKey) -> Reader {
        Reader { key: Some(key), ..Reader::default() }
    }

    /// From now on frames may be so long.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Takes the next message of a link off `buffer`; `None` where there is none yet. Whoever has `dialled` is the learner,
    /// and reads what leaders say.
    ///
    /// # Errors
    /// [`BadFrame`]; the connection is of no use any more.
    pub fn decode_message(
        &mut self,
        dialled: bool,
        buffer: &mut BytesMut,
    ) -> Result<Option<PeerMessage>, BadFrame> {
        if dialled {
            Ok(self.decode(buffer)?.map(PeerMessage::Leader))
        } else {
            Ok(self.decode(buffer)?.map(PeerMessage::Learner))
        }
    }

    /// Takes the next whole frame off `buffer`; `None` where there is none yet.
    ///
    /// # Errors
    /// [`BadFrame`]; the connection is of no use any more.
    pub fn decode<T: DeserializeOwned>(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<T>, BadFrame> {
        let head = head_bytes(self.key.as_ref());
        let Some(mut length) = buffer.get(..LENGTH_BYTES) else {
            return Ok(None);
        };
        let length = length.get_u32_le();
        // The kind comes first, so that a short beginning shows whether a long frame may follow.
        let bound = self.bounds.of(buffer.get(head).copied());
        let whole = usize::try_from(length).ok().filter(|bytes| *bytes <= bound);
        let Some(whole) = whole else {
            return Err(BadFrame::Length(length, bound));
        };
        if buffer.len() < head + whole {
            return Ok(None);
        }
        let frame = buffer.split_to(head + whole);
        let (mut sum, content) = (&frame[LENGTH_BYTES..head], &frame[head..]);
        if let Some(key) = &mut self.key {
            if !key.verify(content, sum) {
                return Err(BadFrame::Signature);
            }
        } else if crc32c::crc32c(content) != sum.get_u32_le() {
            return Err(BadFrame::Checksum);
        }
        postcard::from_bytes(content).map(Some).map_err(|_| BadFrame::Content)
    }
}

fn head_bytes(key: Option<&FrameKey>) -> usize {
    LENGTH_BYTES + key.map_or(SUM_BYTES, |_| SIGNATURE_BYTES)
}

/// Appends a message as a frame that is not signed.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    Writer::default().encode(message, out);
}

/// Takes the next whole frame off `buffer`, which is not signed and may be as long as any; `None` where there is none yet.
///
/// # Errors
/// [`BadFrame`]; the connection is of no use any more.
pub fn decode<T: DeserializeOwned>(buffer: &mut BytesMut) -> Result<Option<T>, BadFrame> {
    Reader { key: None, bounds: Bounds::LONGEST }.decode(buffer)
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::Stranger => write!(f, "not a Zabkeeper server: the greeting is unknown"),
            BadFrame::Length(length, bound) => write!(
                f,
                "a frame of {length} bytes, at most {bound} are accepted here; jute.maxbuffer has to be the same on all \
                 servers"
            ),
            BadFrame::Checksum => write!(f, "the checksum is wrong"),
            BadFrame::Signature => write!(
                f,
                "a frame without the right signature: somebody changes, repeats or inserts what the other server sends"
            ),
            BadFrame::Content => write!(f, "a frame that is no message"),
        }
    }
}

impl std::error::Error for BadFrame {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnId, Instant, ServerId, SessionId, Zxid};
    use crate::peer::{FromLeader, FromLearner, PeerMessage, SessionKind};
    use crate::store::Entry;
    use crate::txn::Origin;
    use crate::wire::Request;

    fn messages() -> Vec<FromLeader> {
        let entry = Entry { zxid: Zxid(7), bytes: vec![5; 300].into() };
        vec![FromLeader::Commit { zxid: Zxid(3) }, FromLeader::Proposal(entry)]
    }

    #[test]
    fn frames_survive_any_cut_of_the_stream() {
        let mut bytes = Vec::new();
        messages().iter().for_each(|message| encode(message, &mut bytes));
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::new();
            let mut read = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(message) = decode::<FromLeader>(&mut buffer).unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, messages());
        }
    }

    #[test]
    fn a_changed_byte_is_never_a_message() {
        let mut bytes = Vec::new();
        encode(&messages()[1], &mut bytes);
        for at in 0..bytes.len() {
            let mut damaged = BytesMut::from(&bytes[..]);
            damaged[at] ^= 0x10;
            assert!(!matches!(decode::<FromLeader>(&mut damaged), Ok(Some(_))), "byte {at}");
        }
    }

    /// The first byte of a frame's content says how long it may be.
    #[test]
    fn only_some_kinds_may_be_long_and_only_where_they_are_expected() {
        let entry = Entry { zxid: Zxid(7), bytes: vec![5; 20_000].into() };
        let pong = FromLearner::Pong {
            round: 1,
            sent: Instant(0),
            echo: Instant(0),
            touched: vec![(SessionId(-1), 30_000); 5_000],
            digests: Vec::new(),
        };
        let request = FromLearner::Request {
            session: SessionId(1),
            origin: Origin { server: ServerId(1), conn: ConnId(1), request: 1 },
            ids: [].into(),
            request: Request::Delete { path: "x".repeat(20_000), version: -1 },
            session_kind: SessionKind::Global,
        };
        let bytes = vec![1; 20_000].into();
        let snap = FromLeader::Snap { zxid: Zxid(1), index: 0, bytes, last: false };
        let learner = Bounds::learner(1 << 20);
        for (message, kind, of_learner) in [
            (PeerMessage::from(FromLeader::Proposal(entry)), PROPOSAL, false),
            (snap.into(), SNAP, false),
            (pong.into(), PONG, true),
            (request.into(), REQUEST, true),
        ] {
            let mut bytes = Vec::new();
            Writer::default().encode_message(&message, &mut bytes);
            assert_eq!(bytes[8], kind);
            let accepts = |bounds| {
                let mut reader = Reader { key: None, bounds };
                let mut start = BytesMut::from(&bytes[..9]);
                let begun = reader.decode_message(!of_learner, &mut start).is_ok();
                let whole = reader.decode_message(!of_learner, &mut BytesMut::from(&bytes[..]));
                assert_eq!(begun, whole.is_ok());
                begun
            };
            let accepted = [Bounds::GREETED, learner, Bounds::LEADER].map(accepts);
            assert_eq!(accepted, [false, of_learner, !of_learner]);
        }
        let too_long = [&(2_u32 << 20).to_le_bytes()[..], &[0; 4]].concat();
        let mut reader = Reader { key: None, bounds: learner };
        let refused = reader.decode_message(false, &mut BytesMut::from(&too_long[..]));
        assert_eq!(refused, Err(BadFrame::Length(2 << 20, 1 << 20)));
    }
}
