//! The trace of a run: its fingerprint, and optional text.
//!
//! Owns a rolling 128-bit hash over every event (time, kind, endpoints, payload) and the optional
//! lines of text. Must not influence the run: text is formatted only on request and never enters
//! the hash.

use std::fmt;

use zabkeeper_core::{Instant, ServerId};

use crate::record::output::print;

mod entries;
pub(crate) mod plain;

pub(crate) use entries::entries;

/// The kind of an event; its number enters the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A connection is attempted, opened, refused or closed.
    Conn = 1,
    /// Bytes are sent on a connection.
    Send = 2,
    /// Bytes are received from a connection.
    Receive = 3,
    /// An input of a server.
    Step = 4,
    /// An operation on a simulated disk.
    Disk = 5,
    /// The disk reports a completion to a server.
    Completion = 6,
    /// A fault is injected or ends.
    Fault = 7,
    /// A server starts, recovers, stops.
    Process = 8,
    /// A client calls, or gets its result.
    Call = 9,
    /// A phase begins.
    Phase = 10,
}

/// Selects events by time and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Only events from this time on.
    pub from: Instant,
    /// Only these servers, as bits; zero selects all.
    pub nodes: u8,
}

impl View {
    /// Whether this server is selected.
    pub fn wants(self, server: ServerId) -> bool {
        self.nodes == 0 || (server.0 < 8 && self.nodes & 1 << server.0 != 0)
    }

    /// Whether this event is selected. If servers are selected, only their own events, and faults
    /// and phases.
    fn holds(self, stamp: &Stamp) -> bool {
        let wanted = match stamp.kind {
            Kind::Fault | Kind::Phase => true,
            Kind::Step | Kind::Disk | Kind::Completion | Kind::Process => {
                self.wants(ServerId(stamp.ends.0))
            }
            Kind::Conn | Kind::Send | Kind::Receive | Kind::Call => self.nodes == 0,
        };
        wanted && stamp.at >= self.from
    }
}

/// How much of the trace becomes text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// The selected events.
    pub view: View,
    /// Connections, calls, inputs of servers.
    pub messages: bool,
    /// Disk operations.
    pub disk: bool,
    /// Sent and received bytes.
    pub bytes: bool,
}

/// Where the text goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TraceSink {
    /// No text.
    #[default]
    Off,
    /// To standard output during the run.
    Print(Detail),
    /// A line for each change of a server's state, to standard output during the run.
    States(View),
    /// Collected, for the HTML report or the explanation of a failure.
    Collect,
    /// Formatted and discarded, so that the determinism check proves that text does not change the
    /// run.
    Discard,
    /// Keeps events with numbers from the first to the second, in full detail.
    Keep(u64, u64),
}

/// One record of the hash.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Virtual time.
    pub at: Instant,
    /// Kind of event.
    pub kind: Kind,
    /// Two endpoints or numbers, depending on the kind.
    pub ends: (u64, u64),
}

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    hash: Fingerprint,
    events: u64,
    sink: TraceSink,
    kept: Vec<String>,
    /// Half of the hash after every event, if two runs are to be compared.
    marks: Option<Vec<u64>>,
    /// Events are only counted.
    deaf: bool,
}

impl Trace {
    /// An empty trace. With `compare`, keeps the hash after each event.
    pub fn new(sink: TraceSink, compare: bool) -> Trace {
        let marks = compare.then(Vec::new);
        Trace {
            hash: Fingerprint::default(),
            events: 0,
            sink,
            kept: Vec::new(),
            marks,
            deaf: false,
        }
    }

    /// Only counts events from now on, to measure the cost of the trace.
    pub(crate) fn stop(&mut self) {
        self.deaf = true;
    }

    /// Records an event; `text` is called only if it is needed.
    pub fn event(&mut self, stamp: Stamp, payload: &[u8], text: impl FnOnce() -> String) {
        self.events += 1;
        if self.deaf {
            return;
        }
        let head = (stamp.kind as u64) | (payload.len() as u64) << 8;
        self.hash.words(stamp.at.0, head);
        self.hash.words(stamp.ends.0, stamp.ends.1);
        self.hash.bytes(payload);
        if let Some(marks) = &mut self.marks {
            marks.push(self.hash.high);
        }
        if self.sink != TraceSink::Off {
            self.write(stamp, text);
        }
    }

    #[cold]
    fn write(&mut self, stamp: Stamp, text: impl FnOnce() -> String) {
        let wanted = match self.sink {
            TraceSink::Off | TraceSink::States(_) | TraceSink::Collect => false,
            TraceSink::Discard => true,
            TraceSink::Print(detail) if !detail.view.holds(&stamp) => false,
            TraceSink::Print(detail) => match stamp.kind {
                Kind::Send | Kind::Receive => detail.bytes,
                Kind::Disk | Kind::Completion => detail.disk,
                Kind::Conn | Kind::Step | Kind::Call => detail.messages,
                Kind::Fault | Kind::Process | Kind::Phase => true,
            },
            TraceSink::Keep(from, to) => (from..=to).contains(&self.events),
        };
        if !wanted {
            return;
        }
        let line = format!(
            "{:>14} {:>8} {:<7} {}",
            stamp.at.to_string(),
            self.events,
            stamp.kind.to_string(),
            printable(text())
        );
        match self.sink {
            TraceSink::Print(_) => print(&format!("{line}\n")),
            TraceSink::Keep(..) => self.kept.push(line),
            TraceSink::Off | TraceSink::Discard | TraceSink::States(_) | TraceSink::Collect => {}
        }
    }

    /// Prints the outputs of a server's step, in full detail only. These are no events; their
    /// effects are.
    pub fn outputs(&mut self, at: Instant, server: ServerId, text: impl FnOnce() -> String) {
        let stamp = Stamp { at, kind: Kind::Step, ends: (server.0, 0) };
        let wanted = match self.sink {
            TraceSink::Discard => true,
            TraceSink::Print(detail) => detail.bytes && detail.view.holds(&stamp),
            TraceSink::Off | TraceSink::States(_) | TraceSink::Collect | TraceSink::Keep(..) => {
                false
            }
        };
        if self.deaf || !wanted {
            return;
        }
        let text = text();
        if self.sink != TraceSink::Discard {
            for line in printable(text).lines() {
                print(&format!("{:>31} s{server} {line}\n", ""));
            }
        }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The fingerprint so far.
    pub fn hash(&self) -> u128 {
        self.hash.value()
    }

    /// Frees the memory of kept lines and hashes.
    pub fn forget(&mut self) {
        self.marks = None;
        self.kept = Vec::new();
    }

    /// The lines kept.
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// Half of the hash after each event, if requested.
    pub fn marks(&self) -> &[u64] {
        self.marks.as_deref().unwrap_or(&[])
    }
}

/// Escapes control characters, since clients and bad peers may send any bytes, and the text may go
/// to a terminal.
fn printable(text: String) -> String {
    let is_odd = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_odd) {
        return text;
    }
    let escape = |c: char| if is_odd(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Kind::Conn => "conn",
            Kind::Send => "send",
            Kind::Receive => "recv",
            Kind::Step => "step",
            Kind::Disk => "disk",
            Kind::Completion => "done",
            Kind::Fault => "fault",
            Kind::Process => "process",
            Kind::Call => "call",
            Kind::Phase => "phase",
        };
        f.pad(name)
    }
}

/// Two 64-bit lanes, each folding its words by a 128-bit multiplication. Not cryptographic.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint {
    low: u64,
    high: u64,
}

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint { low: 0x243f_6a88_85a3_08d3, high: 0x1319_8a2e_0370_7344 }
    }
}

impl Fingerprint {
    /// Adds two words.
    pub fn words(&mut self, a: u64, b: u64) {
        self.low = fold(self.low ^ a, 0xa076_1d64_78bd_642f) ^ b;
        self.high =
            fold(self.high ^ b, 0xe703_7ed1_a0b4_28db).wrapping_add(a) ^ self.low.rotate_left(29);
    }

    /// Adds bytes, zero-padded to 16; the caller adds their number where it matters.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let (a, b) = pair.split_at(8);
            let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
            self.words(word(a), word(b));
        }
        if !rest.is_empty() {
            let mut last = [0; 16];
            last[..rest.len()].copy_from_slice(rest);
            self.bytes(&last);
        }
    }

    /// The fingerprint.
    pub fn value(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// A 64-bit form.
    pub fn short(self) -> u64 {
        self.high ^ self.low
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = (u128::from(a) * u128::from(b)).to_le_bytes();
    let (low, high) = product.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
    word(low) ^ word(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(sink: TraceSink, time: u64, payload: &[u8]) -> Trace {
        let mut trace = Trace::new(sink, true);
        for at in [time, time + 1] {
            let stamp = Stamp { at: Instant(at), kind: Kind::Send, ends: (1, 2) };
            trace.event(stamp, payload, || "text".into());
        }
        trace
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("/n\u{1b}[2J\0é\nb".to_owned()), "/n\\u{1b}[2J\\u{0}é\nb");
    }

    #[test]
    fn trace_hash_covers_time_and_payload_but_not_text() {
        let base = traced(TraceSink::Off, 5, b"abc");
        assert_eq!(base.hash(), traced(TraceSink::Discard, 5, b"abc").hash());
        assert_ne!(base.hash(), traced(TraceSink::Off, 6, b"abc").hash());
        assert_ne!(base.hash(), traced(TraceSink::Off, 5, b"abd").hash());
        assert_ne!(base.hash(), traced(TraceSink::Off, 5, b"abc\0").hash());
        assert_eq!(base.marks().len(), 2);
    }

    #[test]
    fn trace_line_has_fixed_columns() {
        let trace = traced(TraceSink::Keep(2, 2), 5, b"abc");
        assert_eq!(trace.kept(), ["     0.000000s        2 send    text"]);
    }
}
