//! The bytes on connections between servers: a greeting, then frames. Both worlds, real and simulated, use these.
//!
//! Owns framing, checksums and versions. Must not know what messages mean.
//!
//! ```text
//! greeting  magic "zabk-peer" | version u8 | kind u8 | from u64 | to u64 | crc32c u32        (31 bytes, once)
//! frame     length u32 | crc32c of the content u32 | content, postcard                       (then, any number)
//! ```
//!
//! All numbers are little-endian. Whoever dials greets; whoever answers says nothing until it has the greeting, and
//! closes where it is wrong.

use std::fmt;

use bytes::{Buf, BufMut, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ids::ServerId;

const MAGIC: &[u8; 9] = b"zabk-peer";
/// Raised where an older server would misread the greeting, a frame or a message: a variant that it does not know, or one
/// that has changed or moved. Servers of two versions do not talk.
const VERSION: u8 = 3;
/// Bytes of a [`Greeting`].
pub const GREETING_BYTES: usize = 31;
/// Bytes before a frame's content.
const HEAD_BYTES: usize = 8;
/// Longest content accepted: a request of the largest frame that can be configured, with room around it.
pub const CONTENT_MAX: usize = 256 << 20;

/// Which conversation a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Notifications, one way: from whoever dialled.
    Election,
    /// A link between learner and leader, both ways.
    Quorum,
}

/// The first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// What for.
    pub channel: Channel,
    /// Who dials.
    pub from: ServerId,
    /// Who is meant: a wrong address in a configuration is found here.
    pub to: ServerId,
}

/// Bytes that are not from a server like this one: the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// The greeting is not one of ours.
    Stranger,
    /// Another version of the protocol.
    Version(u8),
    /// A greeting for another channel than the port's, or of no known one.
    Channel(u8),
    /// Longer than [`CONTENT_MAX`].
    Length(u32),
    /// The checksum is not that of the content.
    Checksum,
    /// The content is no message.
    Content,
}

impl Greeting {
    /// As bytes.
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_slice(MAGIC);
        rest.put_u8(VERSION);
        rest.put_u8(self.channel.number());
        rest.put_u64_le(self.from.0);
        rest.put_u64_le(self.to.0);
        let sum = crc32c::crc32c(&bytes[..GREETING_BYTES - 4]);
        bytes[GREETING_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// A stranger, another version, or a damaged greeting.
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, BadFrame> {
        let (content, sum) = bytes.split_at(GREETING_BYTES - 4);
        let Some(mut content_after_magic) = content.strip_prefix(MAGIC) else {
            return Err(BadFrame::Stranger);
        };
        // Before the checksum: another version may place it elsewhere.
        let version = content_after_magic.get_u8();
        if version != VERSION {
            return Err(BadFrame::Version(version));
        }
        if crc32c::crc32c(content).to_le_bytes() != sum {
            return Err(BadFrame::Checksum);
        }
        let channel = match content_after_magic.get_u8() {
            0 => Channel::Election,
            1 => Channel::Quorum,
            other => return Err(BadFrame::Channel(other)),
        };
        let from = ServerId(content_after_magic.get_u64_le());
        let to = ServerId(content_after_magic.get_u64_le());
        Ok(Greeting { channel, from, to })
    }
}

impl Channel {
    /// As in the greeting.
    pub fn number(self) -> u8 {
        match self {
            Channel::Election => 0,
            Channel::Quorum => 1,
        }
    }
}

/// Appends a message as a frame.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    let start = out.len();
    // Enough for all but transactions and pieces of a snapshot, of which there are few.
    out.reserve(64);
    out.extend_from_slice(&[0; HEAD_BYTES]);
    *out = postcard::to_extend(message, std::mem::take(out)).expect("plain data encodes");
    let content = &out[start + HEAD_BYTES..];
    let sum = crc32c::crc32c(content);
    let length = u32::try_from(content.len()).expect("messages are bounded far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Takes the next whole frame off `buffer`; `None` where there is none yet.
///
/// # Errors
/// [`BadFrame`]; the connection is of no use any more.
pub fn decode<T: DeserializeOwned>(buffer: &mut BytesMut) -> Result<Option<T>, BadFrame> {
    let Some((head, _)) = buffer.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    let (mut length, mut sum) = (&head[..4], &head[4..]);
    let (length, sum) = (length.get_u32_le(), sum.get_u32_le());
    let whole = usize::try_from(length).ok().filter(|bytes| *bytes <= CONTENT_MAX);
    let Some(whole) = whole else {
        return Err(BadFrame::Length(length));
    };
    if buffer.len() < HEAD_BYTES + whole {
        return Ok(None);
    }
    let frame = buffer.split_to(HEAD_BYTES + whole);
    let content = &frame[HEAD_BYTES..];
    if crc32c::crc32c(content) != sum {
        return Err(BadFrame::Checksum);
    }
    postcard::from_bytes(content).map(Some).map_err(|_| BadFrame::Content)
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::Stranger => write!(f, "not a Zabkeeper server: the greeting is unknown"),
            BadFrame::Version(version) => {
                write!(f, "peer protocol version {version}, this server speaks {VERSION}")
            }
            BadFrame::Channel(number) => write!(f, "channel {number} does not belong here"),
            BadFrame::Length(length) => {
                write!(f, "a frame of {length} bytes, at most {CONTENT_MAX} are accepted")
            }
            BadFrame::Checksum => write!(f, "the checksum is wrong"),
            BadFrame::Content => write!(f, "a frame that is no message"),
        }
    }
}

impl std::error::Error for BadFrame {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Zxid};
    use crate::io::Entry;
    use crate::peer::PeerMessage;

    fn messages() -> Vec<PeerMessage> {
        let entry = Entry { zxid: Zxid(7), bytes: vec![5; 300].into() };
        vec![
            PeerMessage::NewLeader { epoch: Epoch(3), voters: [ServerId(1)].into() },
            PeerMessage::Proposal(entry),
        ]
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
                while let Some(message) = decode::<PeerMessage>(&mut buffer).unwrap() {
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
            assert!(!matches!(decode::<PeerMessage>(&mut damaged), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn a_greeting_names_both_ends_and_strangers_are_known() {
        let greeting =
            Greeting { channel: Channel::Quorum, from: ServerId(1), to: ServerId(u64::MAX) };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Ok(greeting));
        let mut later = bytes;
        later[9] = VERSION + 1;
        assert_eq!(Greeting::decode(&later), Err(BadFrame::Version(VERSION + 1)));
        assert_eq!(Greeting::decode(&[b'G'; GREETING_BYTES]), Err(BadFrame::Stranger));
        for at in 10..GREETING_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Greeting::decode(&damaged), Err(BadFrame::Checksum), "byte {at}");
        }
    }
}
