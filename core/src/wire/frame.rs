//! Decoding of bytes from a client port: a four-letter command or the handshake first, then
//! requests.
//!
//! Owns the length limit and the order of the first frames. Must not touch sockets: the
//! caller appends received bytes to a buffer and calls again.

use bytes::{Buf, Bytes, BytesMut};

use super::{ConnectRequest, FourLetterCommand, RequestFrame};
use crate::error::Malformed;

/// Default of the largest frame length accepted: `jute.maxbuffer`, 0xfffff bytes (WIRE-03).
pub const MAX_FRAME_DEFAULT: u32 = 0xf_ffff;

/// Cuts a byte stream into frames.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    limit: u32,
}

/// The first message of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstFrame {
    /// A four-letter command; the answer is text, and then the connection closes.
    Command(FourLetterCommand),
    /// The handshake of a client.
    Connect(ConnectRequest),
}

/// Reads one client's side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ClientFrames {
    frames: FrameReader,
    opened: bool,
}

impl FrameReader {
    /// Accepts frames of up to `limit` bytes.
    pub fn new(limit: u32) -> FrameReader {
        FrameReader { limit }
    }

    /// Takes the next whole frame, without its length, off the front of `buffer`; `None` until it
    /// has arrived.
    ///
    /// # Errors
    /// A length that is negative or above the limit; the rest of the stream cannot be decoded.
    pub fn next(&self, buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        let Some(head) = buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*head);
        let size = match u32::try_from(length) {
            Ok(size) if size <= self.limit => size as usize,
            _ => {
                return Err(Malformed::FrameLength { length, limit: self.limit });
            }
        };
        if buffer.len() < 4 + size {
            // One allocation for the whole frame instead of several while its parts arrive.
            buffer.reserve(4 + size - buffer.len());
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(size).freeze()))
    }
}

impl ClientFrames {
    /// A connection on which nothing has been read yet.
    pub fn new(limit: u32) -> ClientFrames {
        ClientFrames { frames: FrameReader::new(limit), opened: false }
    }

    /// Has the handshake been read?
    pub fn is_open(&self) -> bool {
        self.opened
    }

    /// The first message, once it has arrived; to be called until it returns one.
    ///
    /// # Errors
    /// Bytes that are neither a known four-letter command nor a handshake.
    pub fn first(&mut self, buffer: &mut BytesMut) -> Result<Option<FirstFrame>, Malformed> {
        assert!(!self.opened, "a connection opens once");
        if let Some(command) = buffer.first_chunk::<4>().and_then(FourLetterCommand::recognise) {
            buffer.advance(4);
            return Ok(Some(FirstFrame::Command(command)));
        }
        let Some(frame) = self.frames.next(buffer)? else {
            return Ok(None);
        };
        let request = ConnectRequest::decode(frame)?;
        self.opened = true;
        Ok(Some(FirstFrame::Connect(request)))
    }

    /// The next request after the handshake.
    ///
    /// # Errors
    /// A frame length outside the limit, or a frame too short for a request header.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestFrame>, Malformed> {
        assert!(self.opened, "the handshake comes first");
        self.frames.next(buffer)?.map(RequestFrame::decode).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: &[u8]) -> BytesMut {
        BytesMut::from(bytes)
    }

    /// WIRE-03.
    #[test]
    fn edge_155_frame_length_of_limit_is_accepted_and_longer_is_refused() {
        let reader = FrameReader::new(MAX_FRAME_DEFAULT);
        assert_eq!(reader.next(&mut buffer(&1_048_575_i32.to_be_bytes())), Ok(None));
        let refused = Malformed::FrameLength { length: 1_048_576, limit: MAX_FRAME_DEFAULT };
        assert_eq!(reader.next(&mut buffer(&1_048_576_i32.to_be_bytes())), Err(refused));
    }

    #[test]
    fn edge_156_negative_length_is_refused() {
        let reader = FrameReader::new(MAX_FRAME_DEFAULT);
        let refused = Malformed::FrameLength { length: -1, limit: MAX_FRAME_DEFAULT };
        assert_eq!(reader.next(&mut buffer(&(-1_i32).to_be_bytes())), Err(refused));
    }

    #[test]
    fn frame_reader_waits_for_whole_frame_and_splits_adjacent_frames() {
        let reader = FrameReader::new(100);
        let mut bytes = buffer(&[0, 0, 0, 2, 7]);
        assert_eq!(reader.next(&mut bytes), Ok(None));
        bytes.extend_from_slice(&[8, 0, 0, 0, 1, 9, 0]);
        assert_eq!(reader.next(&mut bytes).expect("frame").as_deref(), Some(&[7, 8][..]));
        assert_eq!(reader.next(&mut bytes).expect("frame").as_deref(), Some(&[9][..]));
        assert_eq!(reader.next(&mut bytes), Ok(None));
        assert_eq!(&bytes[..], &[0]);
    }

    /// WIRE-13.
    #[test]
    fn four_letter_command_is_recognized_only_on_new_connection() {
        let mut frames = ClientFrames::new(MAX_FRAME_DEFAULT);
        let mut bytes = buffer(b"ruok\n");
        assert_eq!(
            frames.first(&mut bytes),
            Ok(Some(FirstFrame::Command(FourLetterCommand::Ruok)))
        );
        frames.opened = true;
        assert!(frames.next(&mut buffer(b"ruok")).is_err(), "edge 157: a length");
    }
}
