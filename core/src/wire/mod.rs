//! ZooKeeper's wire format (jute) as pure functions between bytes and records.
//!
//! Owns primitives, records, framing, the handshake and the four-letter commands. Must not use
//! anything else of the crate but `ids` and `error` (a test checks this), so that moving the folder
//! would make it a crate. Besides `wire`, the client library uses only these two modules of the
//! core.
//!
//! Integers are big-endian; text and buffers are an int length and that many bytes, length -1
//! meaning null; vectors are an int count and that many items, count -1 meaning null (WIRE-01).

mod connect;
pub(crate) mod flat;
mod four_letter;
mod frame;
mod multi;
mod records;
mod reply;
mod request;
mod request_codec;
mod server;

pub use connect::{ConnectRequest, ConnectResponse, Password};
pub use four_letter::FourLetterCommand;
pub use frame::{ClientFrames, FirstFrame, FrameReader, MAX_FRAME_DEFAULT};
pub use multi::MultiResult;
pub use records::{Acl, AddWatchMode, CreateMode, EventType, Id, Perms, Secret, Stat, WatcherType};
pub use reply::{Reply, ReplyBody, ReplyKind, WatchEvent};
pub use request::{
    OpCode, ReconfigRequest, Request, RequestFrame, SetWatches, XID_AUTH, XID_EVENT, XID_PING,
    XID_SET_WATCHES,
};
pub use server::{FromServer, ServerFrames};

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::Malformed;

/// Reads primitives from the front of a frame; buffers are slices that share the frame's memory.
pub(crate) struct Reader {
    rest: Bytes,
    /// Was a path, or an id in an access control list, null? ZooKeeper detects these nulls only
    /// after decoding the record.
    late_null: bool,
    /// Was a path null?
    null_path: bool,
    /// Was an access control list null?
    no_list: bool,
}

impl Reader {
    pub(crate) fn new(frame: Bytes) -> Reader {
        Reader { rest: frame, late_null: false, null_path: false, no_list: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let head = self.rest.first_chunk::<N>().copied().ok_or(Malformed::Truncated { field })?;
        bytes::Buf::advance(&mut self.rest, N);
        Ok(head)
    }

    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<bool, Malformed> {
        Ok(self.take::<1>(field)?[0] != 0)
    }

    pub(crate) fn int(&mut self, field: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.take(field)?))
    }

    pub(crate) fn long(&mut self, field: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.take(field)?))
    }

    /// A buffer that may be null.
    pub(crate) fn buffer(&mut self, field: &'static str) -> Result<Option<Bytes>, Malformed> {
        let length = self.int(field)?;
        if length == -1 {
            return Ok(None);
        }
        let size = usize::try_from(length).map_err(|_| Malformed::Length { field, length })?;
        if size > self.rest.len() {
            return Err(Malformed::Truncated { field });
        }
        Ok(Some(self.rest.split_to(size)))
    }

    /// A buffer that must not be null.
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<Bytes, Malformed> {
        self.buffer(field)?.ok_or(Malformed::Length { field, length: -1 })
    }

    /// A vector that must not be null.
    pub(crate) fn list<T>(
        &mut self,
        field: &'static str,
        item: impl FnMut(&mut Reader) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        if self.rest.starts_with(&(-1_i32).to_be_bytes()) {
            return Err(Malformed::Length { field, length: -1 });
        }
        self.vector(field, item)
    }

    /// Text. As in Java, invalid UTF-8 reads as U+FFFD, which no path may contain. Null is refused:
    /// ZooKeeper answers it with -5 in nearly every operation.
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, Malformed> {
        Ok(text_of(&self.bytes(field)?))
    }

    /// A path. Null reads as empty and is recorded, because its effect depends on the operation.
    pub(crate) fn path(&mut self) -> Result<String, Malformed> {
        self.null_path |= self.rest.starts_with(&(-1_i32).to_be_bytes());
        self.late_text("path")
    }

    /// Text whose null ZooKeeper detects only after decoding, like that of a path.
    pub(crate) fn late_text(&mut self, field: &'static str) -> Result<String, Malformed> {
        let bytes = self.buffer(field)?;
        self.late_null |= bytes.is_none();
        Ok(text_of(&bytes.unwrap_or_default()))
    }

    /// Text that may be null, which reads as empty: no authentication scheme has the empty name.
    pub(crate) fn text_or_empty(&mut self, field: &'static str) -> Result<String, Malformed> {
        let bytes = self.buffer(field)?.unwrap_or_default();
        Ok(text_of(&bytes))
    }

    /// A vector; null and any other negative count read as empty. The allocation is bounded by the
    /// bytes that remain, for any count.
    pub(crate) fn vector<T>(
        &mut self,
        field: &'static str,
        mut item: impl FnMut(&mut Reader) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.int(field)?).unwrap_or(0);
        let mut items = Vec::with_capacity(count.min(self.rest.len() / 4));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

/// Decodes bytes as Java does: invalid UTF-8 becomes U+FFFD. An encoded surrogate becomes a single
/// U+FFFD, while Rust reports three errors for it.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let fault = match std::str::from_utf8(rest) {
            Ok(sound) => {
                text.push_str(sound);
                return text;
            }
            Err(fault) => fault,
        };
        let (sound, broken) = rest.split_at(fault.valid_up_to());
        text.push_str(std::str::from_utf8(sound).unwrap_or_default());
        text.push(char::REPLACEMENT_CHARACTER);
        let length = match broken {
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
            _ => fault.error_len().unwrap_or(broken.len()),
        };
        rest = &broken[length..];
    }
}

/// Appends `text` with its length.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    put_buffer(out, Some(text.as_bytes()));
}

/// Appends a buffer with its length; null as length -1.
pub(crate) fn put_buffer(out: &mut BytesMut, buffer: Option<&[u8]>) {
    match buffer {
        None => out.put_i32(-1),
        Some(bytes) => {
            out.put_i32(length_on_wire(bytes.len()));
            out.put_slice(bytes);
        }
    }
}

/// Appends a vector with its count.
pub(crate) fn put_vector<T>(
    out: &mut BytesMut,
    items: &[T],
    mut item: impl FnMut(&mut BytesMut, &T),
) {
    out.put_i32(length_on_wire(items.len()));
    for each in items {
        item(out, each);
    }
}

/// Appends a frame: its length and what `body` appends (WIRE-02).
pub(crate) fn put_frame(out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    body(out);
    let length = length_on_wire(out.len() - at - 4);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Lengths on the wire are signed 32-bit; no record that a server holds comes near 2 GiB.
fn length_on_wire(length: usize) -> i32 {
    i32::try_from(length).expect("no record of ours reaches 2 GiB")
}
