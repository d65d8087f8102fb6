//! The frames on connections between servers, after the greeting, for the real network and the
//! simulated one.
//!
//! Owns framing, checksums, signatures and the bounds of frame lengths. Must not know what messages
//! mean.
//!
//! ```text
//! frame         length u32 | crc32c of the content u32   | content, postcard
//! signed frame  length u32 | HMAC-SHA-256, 16 bytes of it | content, postcard
//! ```
//!
//! All integers are little-endian. Frames are signed if both ends have proved that they know a
//! secret (`greeting`). Nothing is allocated for an announced length: buffers hold only what has
//! arrived.

use std::fmt;

use bytes::{Buf, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::greeting::{FIRST_RECONFIGURABLE, VERSION};
use super::secret::{FrameKey, SIGNATURE_BYTES};
use super::{NotedConfigs, Notification, PeerMessage};

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// Bytes of a checksum.
const SUM_BYTES: usize = 4;
/// The longest content accepted, bytes: the largest configurable request, with room for what
/// surrounds it.
pub const CONTENT_MAX: usize = 256 << 20;
/// The longest content of all but a few kinds of messages, bytes.
const SMALL_MAX: usize = 8 << 10;

/// Why received bytes are no frame. The connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// The bytes are not the greeting of a Zabkeeper server.
    UnknownGreeting,
    /// The content is longer than accepted at this point: its length and the bound, bytes.
    Length(u32, usize),
    /// The checksum does not match the content.
    Checksum,
    /// The signature is not that of the other end for its next frame.
    Signature,
    /// The content does not decode as a message.
    Content,
}

/// The longest contents accepted on a connection, bytes, by the first byte of the content, which is
/// the kind of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    any: usize,
    long: usize,
    long_kinds: &'static [u8],
}

impl Bounds {
    /// For notifications, which have some 40 bytes, and the text of a configuration, which has some
    /// 60 bytes for each server.
    pub const NOTIFICATION: Bounds = Bounds { any: 32 << 10, long: 0, long_kinds: &[] };

    /// For a link that has been greeted, before its dialler is accepted as a learner.
    pub const GREETED: Bounds = Bounds { any: SMALL_MAX, long: 0, long_kinds: &[] };

    /// For all messages.
    pub const LONGEST: Bounds = Bounds { any: CONTENT_MAX, long: 0, long_kinds: &[] };

    /// For messages of a leader: only snapshot chunks and transactions may be long.
    pub const LEADER: Bounds =
        Bounds { any: SMALL_MAX, long: CONTENT_MAX, long_kinds: &[SNAP, PROPOSAL, INFORM] };

    /// For messages of a learner: only requests and lists of sessions (in pongs) may have up to
    /// `long` bytes.
    pub fn learner(long: usize) -> Bounds {
        Bounds {
            any: SMALL_MAX,
            long: long.min(CONTENT_MAX),
            long_kinds: &[PONG, REQUEST, TOUCHED],
        }
    }

    fn of(&self, kind: Option<u8>) -> usize {
        match kind {
            Some(kind) if !self.long_kinds.contains(&kind) => self.any,
            Some(_) | None => self.any.max(self.long),
        }
    }
}

// The variants' indices in `FromLeader` (`SNAP`, `PROPOSAL`, `INFORM`) and `FromLearner` (`PONG`,
// `REQUEST`, `TOUCHED`).
const SNAP: u8 = 2;
const PROPOSAL: u8 = 3;
const INFORM: u8 = 11;
const PONG: u8 = 5;
const REQUEST: u8 = 6;
const TOUCHED: u8 = 15;

/// Writes the frames of one direction of a connection.
#[derive(Clone, Debug)]
pub struct Writer {
    key: Option<FrameKey>,
    /// The highest version of the protocol that both ends speak.
    version: u8,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { key: None, version: VERSION }
    }
}

impl Writer {
    pub(super) fn signed(key: FrameKey) -> Writer {
        Writer { key: Some(key), ..Writer::default() }
    }

    /// The same for a connection on which both ends speak this version.
    pub(super) fn for_version(self, version: u8) -> Writer {
        Writer { version, ..self }
    }

    /// Appends a link's message as the next frame, in the form that the other end's version knows.
    /// A hint that it does not know is left out.
    pub fn encode_message(&mut self, message: &PeerMessage, out: &mut Vec<u8>) {
        match message.known_to(self.version).as_deref() {
            None => {}
            Some(PeerMessage::Learner(message)) => self.encode(message, out),
            Some(PeerMessage::Leader(message)) => self.encode(message, out),
        }
    }

    /// Appends a notification as the next frame, with the configurations that its sender knows, if
    /// there are any. Version 5 has no configurations, and a bound of 1 KiB.
    pub fn encode_notification(
        &mut self,
        notification: &Notification,
        configs: &NotedConfigs,
        out: &mut Vec<u8>,
    ) {
        let none = *configs == NotedConfigs::default();
        if none || self.version < FIRST_RECONFIGURABLE {
            self.encode(notification, out);
        } else {
            self.encode(&(notification, configs), out);
        }
    }

    /// Appends a message as the next frame.
    pub fn encode<T: Serialize>(&mut self, message: &T, out: &mut Vec<u8>) {
        let start = out.len();
        let head = head_bytes(self.key.as_ref());
        // Enough for all messages but transactions and snapshot chunks, of which there are few.
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
    /// The highest version of the protocol that both ends speak.
    version: u8,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { key: None, bounds: Bounds::GREETED, version: VERSION }
    }
}

impl Reader {
    pub(super) fn signed(key: FrameKey) -> Reader {
        Reader { key: Some(key), ..Reader::default() }
    }

    /// The same for a connection on which both ends speak this version.
    pub(super) fn for_version(self, version: u8) -> Reader {
        Reader { version, ..self }
    }

    /// Sets the bounds for the frames that follow.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Takes the next message of a link off `buffer`; `None` if it is incomplete. If this end has
    /// `dialled`, it is the learner and reads a leader's messages. Messages of a later version than
    /// that of the connection are refused, as a server of that version refuses them.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection must be closed.
    pub fn decode_message(
        &mut self,
        dialled: bool,
        buffer: &mut BytesMut,
    ) -> Result<Option<PeerMessage>, BadFrame> {
        let message = if dialled {
            self.decode(buffer)?.map(PeerMessage::Leader)
        } else {
            self.decode(buffer)?.map(PeerMessage::Learner)
        };
        let known = message.as_ref().is_none_or(|message| message.since() <= self.version);
        if known { Ok(message) } else { Err(BadFrame::Content) }
    }

    /// Takes the next notification off `buffer`, with the configurations that its sender knows;
    /// `None` if it is incomplete.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection must be closed.
    pub fn decode_notification(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<(Notification, NotedConfigs)>, BadFrame> {
        let Some(content) = self.take_content(buffer)? else { return Ok(None) };
        let decoded = postcard::take_from_bytes(&content).and_then(|(notification, rest)| {
            let configs = (!rest.is_empty()).then(|| postcard::from_bytes(rest)).transpose()?;
            Ok((notification, configs))
        });
        let knows_configs = self.version >= FIRST_RECONFIGURABLE;
        match decoded {
            Ok((notification, None)) => Ok(Some((notification, NotedConfigs::default()))),
            Ok((notification, Some(configs))) if knows_configs => Ok(Some((notification, configs))),
            Ok((_, Some(_))) | Err(_) => Err(BadFrame::Content),
        }
    }

    /// Takes the next frame off `buffer`; `None` if it is incomplete.
    ///
    /// # Errors
    /// [`BadFrame`]: the connection must be closed.
    pub fn decode<T: DeserializeOwned>(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<T>, BadFrame> {
        let Some(content) = self.take_content(buffer)? else { return Ok(None) };
        postcard::from_bytes(&content).map(Some).map_err(|_| BadFrame::Content)
    }

    /// Takes the content of the next frame off `buffer`; `None` if it is incomplete.
    fn take_content(&mut self, buffer: &mut BytesMut) -> Result<Option<BytesMut>, BadFrame> {
        let head = head_bytes(self.key.as_ref());
        let Some(mut length) = buffer.get(..LENGTH_BYTES) else {
            return Ok(None);
        };
        let length = length.get_u32_le();
        // The kind is the first byte of the content, so the bound is known before a long frame has
        // arrived.
        let bound = self.bounds.of(buffer.get(head).copied());
        let whole = usize::try_from(length).ok().filter(|bytes| *bytes <= bound);
        let Some(whole) = whole else {
            return Err(BadFrame::Length(length, bound));
        };
        if buffer.len() < head + whole {
            return Ok(None);
        }
        let mut frame = buffer.split_to(head + whole);
        let content = frame.split_off(head);
        let mut sum = &frame[LENGTH_BYTES..];
        if let Some(key) = &mut self.key {
            if !key.verify(&content, sum) {
                return Err(BadFrame::Signature);
            }
        } else if crc32c::crc32c(&content) != sum.get_u32_le() {
            return Err(BadFrame::Checksum);
        }
        Ok(Some(content))
    }
}

fn head_bytes(key: Option<&FrameKey>) -> usize {
    LENGTH_BYTES + key.map_or(SUM_BYTES, |_| SIGNATURE_BYTES)
}

/// Appends a message as an unsigned frame.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    Writer::default().encode(message, out);
}

/// Takes the next frame off `buffer`, unsigned and with at most [`CONTENT_MAX`] bytes of content;
/// `None` if it is incomplete.
///
/// # Errors
/// [`BadFrame`]: the connection must be closed.
pub fn decode<T: DeserializeOwned>(buffer: &mut BytesMut) -> Result<Option<T>, BadFrame> {
    Reader { bounds: Bounds::LONGEST, ..Reader::default() }.decode(buffer)
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadFrame::UnknownGreeting => {
                write!(f, "not a Zabkeeper server: the greeting is unknown")
            }
            BadFrame::Length(length, bound) => write!(
                f,
                "a frame of {length} bytes, at most {bound} are accepted here; jute.maxbuffer has \
                 to be the same on all \
                 servers"
            ),
            BadFrame::Checksum => write!(f, "the checksum is wrong"),
            BadFrame::Signature => write!(
                f,
                "a frame without the right signature: somebody changes, repeats or inserts what \
                 the other server sends"
            ),
            BadFrame::Content => write!(f, "a frame that is no message"),
        }
    }
}

impl std::error::Error for BadFrame {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, Zxid};
    use crate::membership::{HistoryInfo, HistoryStatus};
    use crate::peer::{
        Behind, FromLeader, FromLearner, PeerMessage, ServerState, SessionKind, Vote,
    };
    use crate::store::Entry;
    use crate::txn::Origin;
    use crate::wire::{ReconfigRequest, Request};

    fn messages() -> Vec<FromLeader> {
        let entry = Entry { zxid: Zxid(7), bytes: vec![5; 300].into() };
        vec![FromLeader::Commit { zxid: Zxid(3) }, FromLeader::Proposal(entry)]
    }

    #[test]
    fn frames_survive_any_split_of_the_stream() {
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
    fn frame_with_a_changed_byte_is_never_decoded() {
        let mut bytes = Vec::new();
        encode(&messages()[1], &mut bytes);
        for at in 0..bytes.len() {
            let mut damaged = BytesMut::from(&bytes[..]);
            damaged[at] ^= 0x10;
            assert!(!matches!(decode::<FromLeader>(&mut damaged), Ok(Some(_))), "byte {at}");
        }
    }

    /// The first byte of the content decides how long a frame may be.
    #[test]
    fn long_messages_are_accepted_only_from_the_role_that_sends_them() {
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
            (PeerMessage::from(FromLeader::Proposal(entry.clone())), PROPOSAL, false),
            (FromLeader::Inform(entry).into(), INFORM, false),
            (snap.into(), SNAP, false),
            (pong.into(), PONG, true),
            (request.into(), REQUEST, true),
        ] {
            let mut bytes = Vec::new();
            Writer::default().encode_message(&message, &mut bytes);
            assert_eq!(bytes[8], kind);
            let accepts = |bounds| {
                let mut reader = Reader { bounds, ..Reader::default() };
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
        let mut reader = Reader { bounds: learner, ..Reader::default() };
        let refused = reader.decode_message(false, &mut BytesMut::from(&too_long[..]));
        assert_eq!(refused, Err(BadFrame::Length(2 << 20, 1 << 20)));
    }

    /// 0.2.0 accepts notifications of up to 1 KiB, and has no variant for a reconfiguration.
    #[test]
    fn version_5_gets_only_what_it_decodes() {
        let config = "server.1=a:1:2:participant\n".repeat(60);
        let logged = Some("server.2=a:3:4:participant".to_owned());
        let configs = NotedConfigs { in_force: Some(config.clone()), logged };
        let history_status = HistoryStatus::Complete;
        let history = HistoryInfo { history_status, epoch: Epoch(1), newcomers: 0 };
        let vote = Vote { epoch: Epoch(1), zxid: Zxid(7), candidate: ServerId(1) };
        let server_state = ServerState::Leading;
        let notification = Notification { server_state, round: 1, vote, history, ensemble: 3 };
        let request = |request| FromLearner::Request {
            session: SessionId(1),
            origin: Origin { server: ServerId(1), conn: ConnId(1), request: 1 },
            ids: [].into(),
            request,
            session_kind: SessionKind::Global,
        };
        let version = -1;
        let (joining, leaving, new_members) = (None, None, Some(config.clone()));
        let asked = ReconfigRequest { joining, leaving, new_members, version };
        let reconfigure = request(Request::Reconfigure(asked));
        let disabled = request(Request::Reconfig);
        for (highest, with, arrives) in
            [(5, NotedConfigs::default(), disabled), (6, configs.clone(), reconfigure.clone())]
        {
            let mut writer = Writer::default().for_version(highest);
            let mut bytes = Vec::new();
            writer.encode_notification(&notification, &configs, &mut bytes);
            assert_eq!(bytes.len() <= 1 << 10, highest == 5);
            let mut reader = Reader::default().for_version(highest);
            reader.set_bounds(Bounds::NOTIFICATION);
            let read = reader.decode_notification(&mut BytesMut::from(&bytes[..]));
            assert_eq!(read, Ok(Some((notification, with))));

            let mut bytes = Vec::new();
            writer.encode_message(&reconfigure.clone().into(), &mut bytes);
            let mut reader = Reader::default().for_version(highest);
            reader.set_bounds(Bounds::LONGEST);
            let read = reader.decode_message(false, &mut BytesMut::from(&bytes[..]));
            assert_eq!(read, Ok(Some(arrives.into())));

            let mut bytes = Vec::new();
            writer.encode_message(&FromLeader::TakeOver { vote }.into(), &mut bytes);
            assert_eq!(bytes.is_empty(), highest == 5);
        }
    }

    /// As 0.2.0 has no variant for it.
    #[test]
    fn version_5_refuses_messages_of_version_6() {
        let entry = Entry { zxid: Zxid(7), bytes: vec![5; 30].into() };
        let (server, conn) = (ServerId(1), ConnId(1));
        let behind = Behind { server, link: LinkId(1) };
        let newer: [PeerMessage; 3] = [
            FromLeader::Inform(entry).into(),
            FromLearner::Attach { behind }.into(),
            FromLearner::SyncBehind { behind, conn, request: 1 }.into(),
        ];
        for message in &newer {
            let mut bytes = Vec::new();
            Writer::default().encode_message(message, &mut bytes);
            let dialled = matches!(message, PeerMessage::Leader(_));
            let read = |version| {
                let mut reader = Reader::default().for_version(version);
                reader.set_bounds(Bounds::LONGEST);
                reader.decode_message(dialled, &mut BytesMut::from(&bytes[..]))
            };
            assert_eq!(read(6), Ok(Some(message.clone())));
            assert_eq!(read(5), Err(BadFrame::Content));
        }
        let vote = Vote { epoch: Epoch(1), zxid: Zxid(7), candidate: server };
        let history_status = HistoryStatus::Complete;
        let history = HistoryInfo { history_status, epoch: Epoch(1), newcomers: 0 };
        let server_state = ServerState::Leading;
        let notification = Notification { server_state, round: 1, vote, history, ensemble: 3 };
        let configs = NotedConfigs { in_force: Some("server.1=a:1:2".to_owned()), logged: None };
        let mut bytes = Vec::new();
        Writer::default().encode_notification(&notification, &configs, &mut bytes);
        let mut reader = Reader::default().for_version(5);
        let read = reader.decode_notification(&mut BytesMut::from(&bytes[..]));
        assert_eq!(read, Err(BadFrame::Content));
    }
}
