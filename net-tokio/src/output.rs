//! What is queued for a client and has not left.
//!
//! Owns the bytes, and knows which of them are events. Must not send.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

/// Capacity that an empty buffer may keep, so that thousands of idle connections cost little.
const IDLE_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Output {
    bytes: BytesMut,
    /// How many bytes have left before these.
    left: u64,
    /// Where the events are that have not left, counted from the first byte of all.
    events: VecDeque<(u64, u64)>,
    event_bytes: u64,
}

impl Output {
    /// Adds what `encode` writes; how many bytes that are.
    pub(crate) fn add(&mut self, encode: impl FnOnce(&mut BytesMut)) -> usize {
        let before = self.bytes.len();
        encode(&mut self.bytes);
        self.bytes.len() - before
    }

    /// The same with an event, for which nobody has asked.
    pub(crate) fn add_event(&mut self, encode: impl FnOnce(&mut BytesMut)) -> usize {
        let from = self.left + self.bytes.len() as u64;
        let length = self.add(encode);
        let to = from + length as u64;
        self.event_bytes += to - from;
        match self.events.back_mut() {
            Some((_, end)) if *end == from => *end = to,
            Some(_) | None => self.events.push_back((from, to)),
        }
        length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes of events have not left.
    pub(crate) fn event_bytes(&self) -> u64 {
        self.event_bytes
    }

    /// So many bytes have left.
    pub(crate) fn leave(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
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
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES {
            self.bytes = BytesMut::new();
        }
    }

    /// Nothing of it is to leave any more.
    pub(crate) fn clear(&mut self) {
        *self = Output { left: self.left + self.bytes.len() as u64, ..Output::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_that_have_not_left_count() {
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
        assert_eq!((output.event_bytes(), output.bytes()), (0, &b""[..]));
    }
}
