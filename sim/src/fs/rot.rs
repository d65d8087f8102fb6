//! What is durable on a disk changes by itself.
//!
//! Owns where: in what is read when a server starts, and must be found to be damaged then. What a file was written last is
//! left alone: nobody could say whether the end of a log was ever whole.

use super::Disk;
use super::disk::FileId;
use crate::seed::Dice;

/// Bytes that a disk loses together.
const SECTOR: u64 = 512;

impl Disk {
    /// A bit changes, or a sector, of the newest file of some kind (its name up to the first dot). Nobody may hold a
    /// handle. Says what has changed; nothing, where nothing can.
    pub fn rot(&mut self, dice: &mut Dice) -> Option<String> {
        let names = self.folders.iter().flat_map(|folder| folder.live.pairs());
        let mut newest: Vec<(&str, FileId, u64)> = Vec::new();
        for (name, file) in names {
            let mut parts = name.split('.');
            let (kind, end) = (parts.next(), self.file(file).rots_before());
            if parts.nth(1).is_some() || end == 0 {
                continue;
            }
            // Names are in order, those of a kind, too.
            newest.pop_if(|(before, ..)| before.split('.').next() == kind);
            newest.push((name, file, end));
        }
        if newest.is_empty() {
            return None;
        }
        let (name, file, end) = *dice.pick(&newest);
        let name = name.to_owned();
        let mut bytes = vec![0; usize::try_from(end).expect("simulated files fit into memory")];
        self.file(file).live.read(0, &mut bytes);
        // Zeros are mostly what fills a block.
        let meant: Vec<u64> =
            (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        let at = if meant.is_empty() { dice.below(end) } else { *dice.pick(&meant) };
        let (begin, bytes) = if dice.chance(1, 2) {
            let byte = bytes[usize::try_from(at).expect("within the file")];
            (at, vec![byte ^ (1 << dice.below(8))])
        } else {
            let begin = at - at % SECTOR;
            let mut sector = vec![0; usize::try_from(SECTOR.min(end - begin)).expect("small")];
            if dice.chance(1, 2) {
                dice.fill(&mut sector);
            }
            (begin, sector)
        };
        self.file_mut(file).rot(begin, &bytes);
        Some(format!("{} B of {name} at {begin} are damaged", bytes.len()))
    }
}
