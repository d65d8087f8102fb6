//! Bit rot: durable bytes change by themselves.
//!
//! Owns where: only in data that recovery reads and must find to be damaged. The last write of a
//! file is left alone, since recovery cannot know whether the end of a log was ever complete. The
//! exceptions: the state file records the end of the log at the time it was written, a stopped
//! process or one with an idle log has recorded the end, and a killed process has lost nothing that
//! it had written.

use super::Disk;
use super::content::LastWrite;
use super::crash::SECTOR;
use super::folder::FileId;
use crate::engine::seed::Rng;

/// The file that records the end of the log.
const STATE: &str = "state";
/// The kind of the log's files.
const LOG: &str = "log";

/// Bytes of a batch before its first transaction.
const LEAST_BATCH: u64 = 60;

/// A range that may change.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    file: FileId,
    from: u64,
    to: u64,
}

/// What is known about the end of the log when a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogEnd {
    /// Only what the state file has.
    Unknown,
    /// The process was killed: a changed bit of its last write is detected until the machine
    /// reboots.
    Written,
    /// The process has recorded the end: any change is detected.
    Recorded,
}

/// The damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitRot {
    /// In words.
    pub what: String,
    /// The file's name.
    pub file: String,
    /// Whether it is detected only until the machine reboots.
    pub under_this_boot: bool,
}

impl Disk {
    /// Damages a bit or a sector of the newest file of some kind (its name up to the first dot), or
    /// the last write of the log, as far as recovery must detect that. There must be no open
    /// handle. Returns the damage; `None` if no file qualifies.
    pub fn bit_rot(&mut self, end: LogEnd, rng: &mut Rng) -> Option<BitRot> {
        let newest = self.newest_of_each_kind();
        let last = self.last_of_log(&newest, end).filter(|_| rng.chance(1, 2));
        let is_last = last.is_some();
        let place = match last {
            Some(last) => last,
            None if newest.is_empty() => return None,
            None => rng.pick(&newest).clone(),
        };
        let only_a_bit = is_last && end == LogEnd::Written && self.vouched_end(&newest).is_none();
        // The record of the end may be a note that the next power failure discards.
        let under_this_boot = is_last && end == LogEnd::Written;
        if is_last && !only_a_bit && rng.chance(1, 4) {
            return Some(BitRot { under_this_boot, ..self.cut_short(&place, rng) });
        }
        let what = self.change(&place, only_a_bit, rng);
        Some(BitRot { what, file: place.name, under_this_boot })
    }

    /// Truncates the file inside this range.
    fn cut_short(&mut self, place: &Place, rng: &mut Rng) -> BitRot {
        // Behind its last entry there may be zeros, and the end marker.
        let size = rng.range(place.from, place.from.max(place.to - LEAST_BATCH));
        let file = self.file_mut(place.file);
        file.cut_durable(size);
        let what = format!("{} ends at byte {size}", place.name);
        BitRot { what, file: place.name.clone(), under_this_boot: false }
    }

    /// Changes a bit or a sector in this range.
    fn change(&mut self, place: &Place, only_a_bit: bool, rng: &mut Rng) -> String {
        let Place { name, file, from, to } = place.clone();
        let mut bytes =
            vec![0; usize::try_from(to - from).expect("simulated files fit into memory")];
        self.file(file).live.read(from, &mut bytes);
        // Prefers nonzero bytes, since most zeros are padding.
        let meant: Vec<usize> =
            (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        let at = if meant.is_empty() { rng.upto(bytes.len() - 1) } else { *rng.pick(&meant) };
        let byte_at = from + at as u64;
        let (begin, bytes) = if only_a_bit || rng.chance(1, 2) {
            (byte_at, vec![bytes[at] ^ (1 << rng.below(8))])
        } else {
            let begin = (byte_at - byte_at % SECTOR).max(from);
            let end = (byte_at - byte_at % SECTOR + SECTOR).min(to);
            let mut sector = vec![0; usize::try_from(end - begin).expect("small")];
            if rng.chance(1, 2) {
                rng.fill(&mut sector);
            }
            (begin, sector)
        };
        self.file_mut(file).bit_rot(begin, &bytes);
        format!("{} B of {name} at {begin} are damaged", bytes.len())
    }

    /// The newest file of each kind, up to its last write.
    fn newest_of_each_kind(&self) -> Vec<Place> {
        let names = self.folders.iter().flat_map(|folder| folder.live.pairs());
        let mut newest: Vec<Place> = Vec::new();
        for (name, file) in names {
            let last = self.file(file).kept_last().map_or(0, |last| last.from);
            let to = last.min(self.file(file).durable.size());
            if name.split('.').nth(2).is_some() || to == 0 {
                continue;
            }
            // Names are sorted, so those of one kind are adjacent.
            newest.pop_if(|before| kind(&before.name) == kind(name));
            newest.push(Place { name: name.to_owned(), file, from: 0, to });
        }
        newest
    }

    /// The last write of the log, if recovery must detect a change of it.
    fn last_of_log(&self, newest: &[Place], end: LogEnd) -> Option<Place> {
        match end {
            LogEnd::Unknown => self.vouched_end(newest),
            LogEnd::Written | LogEnd::Recorded => {
                let log = newest.iter().find(|place| kind(&place.name) == Some(LOG))?;
                let LastWrite { from, to, .. } = self.file(log.file).kept_last()?;
                let is_whole = to <= self.file(log.file).durable.size();
                is_whole.then(|| Place { from, to, ..log.clone() })
            }
        }
    }

    /// The last write of the log, if the state file was written after it.
    fn vouched_end(&self, newest: &[Place]) -> Option<Place> {
        let of = |wanted: &str| newest.iter().find(|place| kind(&place.name) == Some(wanted));
        let last = |place: &Place| self.file(place.file).kept_last();
        let (state, log) = (of(STATE)?, of(LOG)?);
        let LastWrite { from, to, at } = last(log)?;
        let vouched = at < last(state)?.at && to <= self.file(log.file).durable.size();
        vouched.then(|| Place { from, to, ..log.clone() })
    }
}

/// The kind of a file, by its name.
fn kind(name: &str) -> Option<&str> {
    name.split('.').next()
}
