//! The fingerprint of a run, and its story for people.
//!
//! Owns a rolling 128-bit hash over every event (time, kind, endpoints, payload) and the optional lines of text. Must
//! not influence the run: text is formatted only where it is wanted and never enters the hash.

use std::fmt;

use zabkeeper_core::{Instant, ServerId};

use crate::output::tell;

pub(crate) mod plain;

/// What kind of thing has happened; the number enters the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A connection is asked for, stands, is refused, ends.
    Conn = 1,
    /// Bytes are put on a connection.
    Send = 2,
    /// Bytes are taken off a connection.
    Receive = 3,
    /// An input of a server.
    Step = 4,
    /// An operation on a simulated disk.
    Disk = 5,
    /// The disk tells a server that something is done.
    Completion = 6,
    /// A fault strikes or ends.
    Fault = 7,
    /// A server starts, recovers, stops.
    Life = 8,
    /// A client calls, or gets its result.
    Call = 9,
    /// A phase begins.
    Phase = 10,
}

/// Which part of the story is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Nothing before.
    pub from: Instant,
    /// Only these servers, a bit for each; zero is all.
    pub nodes: u8,
}

impl View {
    /// Is this server wanted?
    pub fn wants(self, server: ServerId) -> bool {
        self.nodes == 0 || (server.0 < 8 && self.nodes & 1 << server.0 != 0)
    }

    /// Is this event in it? Where some servers are wanted, only what they do, and faults and phases.
    fn holds(self, stamp: &Stamp) -> bool {
        let wanted = match stamp.kind {
            Kind::Fault | Kind::Phase => true,
            Kind::Step | Kind::Disk | Kind::Completion | Kind::Life => {
                self.wants(ServerId(stamp.ends.0))
            }
            Kind::Conn | Kind::Send | Kind::Receive | Kind::Call => self.nodes == 0,
        };
        wanted && stamp.at >= self.from
    }
}

/// How much of the story is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Which part.
    pub view: View,
    /// Connections, calls, life and faults, inputs of servers.
    pub messages: bool,
    /// Operations of disks.
    pub disk: bool,
    /// Bytes as they are sent and received.
    pub bytes: bool,
}

/// Where the story goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Story {
    /// Nowhere.
    #[default]
    Off,
    /// To standard output as it happens.
    Print(Detail),
    /// A line for each change of a server's state, to standard output as it happens.
    States(View),
    /// Collected for a page, or for explaining a failure.
    Collect,
    /// Formatted and thrown away: the determinism check proves with it that text changes nothing.
    Discard,
    /// The events numbered from the first to the second are kept, in every detail.
    Keep(u64, u64),
}

/// One record of the hash.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Virtual time.
    pub at: Instant,
    /// Kind of event.
    pub kind: Kind,
    /// Two endpoints or numbers, by kind.
    pub ends: (u64, u64),
}

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    hash: Fingerprint,
    events: u64,
    story: Story,
    kept: Vec<String>,
    /// One half of the hash after every event, where two runs are to be compared.
    marks: Option<Vec<u64>>,
    /// Events are only counted.
    deaf: bool,
}

impl Trace {
    /// An empty trace. With `compare`, the hash after each event is kept.
    pub fn new(story: Story, compare: bool) -> Trace {
        let marks = compare.then(Vec::new);
        Trace {
            hash: Fingerprint::default(),
            events: 0,
            story,
            kept: Vec::new(),
            marks,
            deaf: false,
        }
    }

    /// From now on only counts events: for measuring what a trace costs.
    pub(crate) fn stop(&mut self) {
        self.deaf = true;
    }

    /// Records an event; `text` is called only where it is told.
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
        if self.story != Story::Off {
            self.tell(stamp, text);
        }
    }

    #[cold]
    fn tell(&mut self, stamp: Stamp, text: impl FnOnce() -> String) {
        let wanted = match self.story {
            Story::Off | Story::States(_) | Story::Collect => false,
            Story::Discard => true,
            Story::Print(detail) if !detail.view.holds(&stamp) => false,
            Story::Print(detail) => match stamp.kind {
                Kind::Send | Kind::Receive => detail.bytes,
                Kind::Disk | Kind::Completion => detail.disk,
                Kind::Conn | Kind::Step | Kind::Call => detail.messages,
                Kind::Fault | Kind::Life | Kind::Phase => true,
            },
            Story::Keep(from, to) => (from..=to).contains(&self.events),
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
        match self.story {
            Story::Print(_) => tell(&format!("{line}\n")),
            Story::Keep(..) => self.kept.push(line),
            Story::Off | Story::Discard | Story::States(_) | Story::Collect => {}
        }
    }

    /// Tells what a server has done about its inputs, where every detail is wanted. That is no event: what comes of it
    /// is.
    pub fn outputs(&mut self, at: Instant, server: ServerId, text: impl FnOnce() -> String) {
        let stamp = Stamp { at, kind: Kind::Step, ends: (server.0, 0) };
        let wanted = match self.story {
            Story::Discard => true,
            Story::Print(detail) => detail.bytes && detail.view.holds(&stamp),
            Story::Off | Story::States(_) | Story::Collect | Story::Keep(..) => false,
        };
        if self.deaf || !wanted {
            return;
        }
        let text = text();
        if self.story != Story::Discard {
            for line in printable(text).lines() {
                tell(&format!("{:>31} s{server} {line}\n", ""));
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

    /// Gives back the memory of what was kept for comparing.
    pub fn forget(&mut self) {
        self.marks = None;
        self.kept = Vec::new();
    }

    /// The lines kept.
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// The hash after each event, where it was asked for.
    pub fn marks(&self) -> &[u64] {
        self.marks.as_deref().unwrap_or(&[])
    }
}

/// What clients and strangers have sent may hold anything; a terminal, or `grep`, must not take it for more than text.
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
            Kind::Life => "life",
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

    /// Adds bytes; their number is for the caller to add where it matters.
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

    /// A short form.
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

    fn traced(story: Story, time: u64, payload: &[u8]) -> Trace {
        let mut trace = Trace::new(story, true);
        for at in [time, time + 1] {
            let stamp = Stamp { at: Instant(at), kind: Kind::Send, ends: (1, 2) };
            trace.event(stamp, payload, || "text".into());
        }
        trace
    }

    #[test]
    fn what_was_sent_is_no_command_to_a_terminal() {
        assert_eq!(printable("/n\u{1b}[2J\0é\nb".to_owned()), "/n\\u{1b}[2J\\u{0}é\nb");
    }

    #[test]
    fn hash_covers_time_and_payload_but_not_text() {
        let base = traced(Story::Off, 5, b"abc");
        assert_eq!(base.hash(), traced(Story::Discard, 5, b"abc").hash());
        assert_ne!(base.hash(), traced(Story::Off, 6, b"abc").hash());
        assert_ne!(base.hash(), traced(Story::Off, 5, b"abd").hash());
        assert_ne!(base.hash(), traced(Story::Off, 5, b"abc\0").hash());
        assert_eq!(base.marks().len(), 2);
    }

    #[test]
    fn a_line_has_fixed_columns() {
        let trace = traced(Story::Keep(2, 2), 5, b"abc");
        assert_eq!(trace.kept(), ["     0.000000s        2 send    text"]);
    }
}
