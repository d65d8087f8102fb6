//! What is durable on a disk changes by itself.
//!
//! Owns where: in what is read when a server starts, and must be found to be damaged then. What a file was written last is
//! left alone, as nobody could say whether the end of a log was ever whole; but the state file says how far the log had
//! come when it was written, so of a log that has got nothing since the end may change, too.

use super::Disk;
use super::content::LastWrite;
use super::crash::SECTOR;
use super::disk::FileId;
use crate::seed::Dice;

/// What says how far the log had come.
const STATE: &str = "state";
/// The kind of files that it speaks of.
const LOG: &str = "log";

/// Where something may change.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    file: FileId,
    from: u64,
    to: u64,
}

impl Disk {
    /// A bit changes, or a sector, of the newest file of some kind (its name up to the first dot). Nobody may hold a
    /// handle. Says what has changed; nothing, where nothing can.
    pub fn rot(&mut self, dice: &mut Dice) -> Option<String> {
        let newest = self.newest_of_each_kind();
        let vouched = self.vouched_end(&newest).filter(|_| dice.chance(1, 2));
        let Place { name, file, from, to } = match vouched {
            Some(end) => end,
            None if newest.is_empty() => return None,
            None => dice.pick(&newest).clone(),
        };
        let mut bytes =
            vec![0; usize::try_from(to - from).expect("simulated files fit into memory")];
        self.file(file).live.read(from, &mut bytes);
        // Zeros are mostly what fills a block.
        let meant: Vec<usize> =
            (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        let at = if meant.is_empty() { dice.upto(bytes.len() - 1) } else { *dice.pick(&meant) };
        let byte_at = from + at as u64;
        let (begin, bytes) = if dice.chance(1, 2) {
            (byte_at, vec![bytes[at] ^ (1 << dice.below(8))])
        } else {
            let begin = (byte_at - byte_at % SECTOR).max(from);
            let end = (byte_at - byte_at % SECTOR + SECTOR).min(to);
            let mut sector = vec![0; usize::try_from(end - begin).expect("small")];
            if dice.chance(1, 2) {
                dice.fill(&mut sector);
            }
            (begin, sector)
        };
        self.file_mut(file).rot(begin, &bytes);
        Some(format!("{} B of {name} at {begin} are damaged", bytes.len()))
    }

    /// Of the newest file of each kind all that something was written behind.
    fn newest_of_each_kind(&self) -> Vec<Place> {
        let names = self.folders.iter().flat_map(|folder| folder.live.pairs());
        let mut newest: Vec<Place> = Vec::new();
        for (name, file) in names {
            let last = self.file(file).kept_last().map_or(0, |last| last.from);
            let to = last.min(self.file(file).durable.size());
            if name.split('.').nth(2).is_some() || to == 0 {
                continue;
            }
            // Names are in order, those of a kind, too.
            newest.pop_if(|before| kind(&before.name) == kind(name));
            newest.push(Place { name: name.to_owned(), file, from: 0, to });
        }
        newest
    }

    /// What the log was written last, if the state file was written after it.
    fn vouched_end(&self, newest: &[Place]) -> Option<Place> {
        let of = |wanted: &str| newest.iter().find(|place| kind(&place.name) == Some(wanted));
        let last = |place: &Place| self.file(place.file).kept_last();
        let (state, log) = (of(STATE)?, of(LOG)?);
        let LastWrite { from, to, at } = last(log)?;
        let vouched = at < last(state)?.at && to <= self.file(log.file).durable.size();
        vouched.then(|| Place { from, to, ..log.clone() })
    }
}

/// What kind of a file this is, by its name.
fn kind(name: &str) -> Option<&str> {
    name.split('.').next()
}
