//! Queued output of a client that has not left.
//!
//! Owns the bytes, and which of them are events. Must not send.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

/// A chunk of at least this many bytes takes no more, and is freed when all of it has left. So
/// queued bytes are not copied when more are added, and the empty chunk that is kept for the next
/// answer is small.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Output {
    /// Each chunk holds whole answers and events, the first without its bytes that have left; all
    /// chunks but the last are full.
    chunks: VecDeque<Chunk>,
    /// Bytes in all chunks.
    length: usize,
    /// Bytes that have left before these.
    left: u64,
    /// Ranges of the events that have not left, counted from the first byte ever queued.
    events: VecDeque<(u64, u64)>,
    event_bytes: u64,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: BytesMut,
    is_full: bool,
}

impl Output {
    /// Adds the bytes that `encode` writes; returns their number.
    pub(super) fn add(&mut self, encode: impl FnOnce(&mut BytesMut)) -> usize {
        if self.chunks.back().is_none_or(|chunk| chunk.is_full) {
            self.chunks.push_back(Chunk::default());
        }
        let chunk = self.chunks.back_mut().expect("there is one now");
        let before = chunk.bytes.len();
        encode(&mut chunk.bytes);
        chunk.is_full = chunk.bytes.len() >= CHUNK_BYTES;
        let length = chunk.bytes.len() - before;
        self.length += length;
        length
    }

    /// Does the same for an event, which counts in [`Output::event_bytes`].
    pub(super) fn add_event(&mut self, encode: impl FnOnce(&mut BytesMut)) -> usize {
        let from = self.left + self.length as u64;
        let length = self.add(encode);
        let to = from + length as u64;
        self.event_bytes += to - from;
        match self.events.back_mut() {
            Some((_, end)) if *end == from => *end = to,
            Some(_) | None => self.events.push_back((from, to)),
        }
        length
    }

    /// The first chunk; more output may be queued behind it.
    pub(super) fn next(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk.bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of events that have not left.
    pub(super) fn event_bytes(&self) -> u64 {
        self.event_bytes
    }

    /// Removes the next `bytes` bytes, which have left.
    pub(super) fn leave(&mut self, bytes: usize) {
        let chunk = self.chunks.front_mut().expect("only what is queued leaves");
        chunk.bytes.advance(bytes);
        self.chunks.pop_front_if(|chunk| chunk.bytes.is_empty() && chunk.is_full);
        self.length -= bytes;
        self.left += bytes as u64;
        while let Some((from, to)) = self.events.front_mut()
            && *from < self.left
        {
            let gone = self.left.min(*to);
            self.event_bytes -= gone - *from;
            *from = gone;
            if from == to {
                self.events.pop_front();
            } else {
                break;
            }
        }
    }

    /// Drops all queued output.
    pub(super) fn clear(&mut self) {
        *self = Output { left: self.left + self.length as u64, ..Output::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_bytes_count_only_unsent_events() {
        let mut output = Output::default();
        let text =
            |text: &'static str| move |out: &mut BytesMut| out.extend_from_slice(text.as_bytes());
        assert_eq!(output.add(text("answer")), 6);
        assert_eq!(output.add_event(text("event")), 5);
        output.add_event(text("event"));
        output.add(text("answer"));
        output.add_event(text("more"));
        assert_eq!(output.event_bytes(), 14);
        for (leaves, events, rest) in
            [(4, 14, 22), (4, 12, 18), (9, 4, 9), (6, 3, 3), (1, 2, 2), (2, 0, 0)]
        {
            output.leave(leaves);
            assert_eq!((output.event_bytes(), output.len()), (events, rest));
        }
        assert!(output.is_empty() && output.events.is_empty());
        output.add_event(text("event"));
        output.clear();
        assert_eq!((output.event_bytes(), output.len()), (0, 0));
        output.add_event(text("event"));
        output.leave(5);
        assert_eq!((output.event_bytes(), output.next()), (0, &b""[..]));
    }

    #[test]
    fn output_leaves_in_order_and_in_chunks() {
        let mut output = Output::default();
        let mut expected = Vec::new();
        for size in [10, CHUNK_BYTES, 3, 5 * CHUNK_BYTES, 0, 7] {
            let byte = u8::try_from(size % 251).expect("small");
            assert_eq!(output.add(|out| out.extend(vec![byte; size])), size);
            expected.resize(expected.len() + size, byte);
        }
        assert_eq!((output.len(), output.chunks.len()), (expected.len(), 3));
        let mut seen = Vec::new();
        while !output.is_empty() {
            let some = output.next().len().div_ceil(2).min(50_000);
            seen.extend_from_slice(&output.next()[..some]);
            output.leave(some);
        }
        assert_eq!(seen, expected);
        assert!(output.chunks.iter().all(|chunk| chunk.bytes.capacity() <= CHUNK_BYTES));
    }
}
