//! Names of the store's files.
//!
//! Owns which names belong to the store. Must not match any other name: the store never touches
//! those files.

use std::fmt;

use zabkeeper_core::Zxid;

const LOG: &str = "log.";
const SNAPSHOT: &str = "snapshot.";
const STATE: &str = "state";
const UNFINISHED: &str = ".tmp";
const DAMAGED: &str = ".damaged";
/// An empty file that exists briefly at start, to find out whether two directories are the same.
pub(crate) const PROBE: &str = "probe.tmp";

/// A file of the store under its final name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileName {
    /// The state file.
    State,
    /// The log segment that begins with this transaction.
    Log(Zxid),
    /// The snapshot at this zxid.
    Snapshot(Zxid),
}

impl FileName {
    /// The file of this name; `None` if the name does not belong to the store.
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        if name == STATE {
            Some(FileName::State)
        } else if let Some(digits) = name.strip_prefix(LOG) {
            zxid(digits).map(FileName::Log)
        } else if let Some(digits) = name.strip_prefix(SNAPSHOT) {
            zxid(digits).map(FileName::Snapshot)
        } else {
            None
        }
    }

    /// The temporary name of the file until it is complete and durable.
    pub(crate) fn unfinished(self) -> String {
        format!("{self}{UNFINISHED}")
    }

    /// The name under which a damaged file is kept for the operator.
    pub(crate) fn damaged(self) -> String {
        format!("{self}{DAMAGED}")
    }
}

/// A name not in `names` for setting the file `name` aside, so that no file set aside earlier is
/// replaced.
pub(crate) fn free_name(name: &str, names: &[String]) -> String {
    let first = FileName::parse(name).map_or_else(|| format!("{name}.damaged"), FileName::damaged);
    let more = (2..).map(|number: u32| format!("{first}.{number}"));
    let mut all = std::iter::once(first.clone()).chain(more);
    all.find(|aside| !names.contains(aside)).expect("there are more names than files")
}

/// The file whose temporary name this is; `None` if it is none.
pub(crate) fn unfinished(name: &str) -> Option<FileName> {
    name.strip_suffix(UNFINISHED).and_then(FileName::parse)
}

/// First zxids of the log segments among these files, oldest first.
pub(crate) fn segments(names: &[String]) -> Vec<Zxid> {
    zxids(names, |name| match name {
        FileName::Log(first) => Some(first),
        FileName::State | FileName::Snapshot(_) => None,
    })
}

/// Zxids of the snapshots among these files, oldest first.
pub(crate) fn snapshots(names: &[String]) -> Vec<Zxid> {
    zxids(names, |name| match name {
        FileName::Snapshot(zxid) => Some(zxid),
        FileName::State | FileName::Log(_) => None,
    })
}

fn zxids(names: &[String], pick: impl Fn(FileName) -> Option<Zxid>) -> Vec<Zxid> {
    let mut zxids: Vec<Zxid> =
        names.iter().filter_map(|name| FileName::parse(name).and_then(&pick)).collect();
    zxids.sort_unstable();
    zxids
}

/// Parses exactly 16 lower-case hexadecimal digits: ZooKeeper's own `log.1` does not match.
fn zxid(digits: &str) -> Option<Zxid> {
    let ours = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if digits.len() != 16 || !digits.bytes().all(ours) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok().map(Zxid)
}

/// Writes what [`zxid`] parses. Each opening of a segment formats its name, and the formatter of
/// numbers pads with one zero at a time.
fn write_name(f: &mut fmt::Formatter<'_>, prefix: &str, zxid: Zxid) -> fmt::Result {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut name = [0; 16];
    for (pair, byte) in name.chunks_exact_mut(2).zip(zxid.0.to_be_bytes()) {
        pair.copy_from_slice(&[byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
    f.write_str(prefix)?;
    f.write_str(str::from_utf8(&name).expect("digits are ASCII"))
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::State => f.write_str(STATE),
            FileName::Log(first) => write_name(f, LOG, *first),
            FileName::Snapshot(zxid) => write_name(f, SNAPSHOT, *zxid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_parse_to_what_they_format() {
        for name in
            [FileName::State, FileName::Log(Zxid(0x5_0000_0001)), FileName::Snapshot(Zxid(0))]
        {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
            assert_eq!(unfinished(&name.unfinished()), Some(name));
            assert_eq!(FileName::parse(&name.damaged()), None);
        }
    }

    #[test]
    fn foreign_file_names_do_not_parse() {
        for name in ["log.1", "snapshot.0", "log.+000000000000001", "log.00000000000000AB", "myid"]
        {
            assert_eq!(FileName::parse(name), None, "{name}");
            assert_eq!(unfinished(&format!("{name}.tmp")), None, "{name}");
        }
    }
}
