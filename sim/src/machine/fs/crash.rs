//! The state of a disk after a crash.
//!
//! Owns the choice among all outcomes that POSIX allows. Must not know when a crash happens, nor
//! what bytes mean.
//!
//! An operation that ended before the crash has happened; one in progress has happened in an
//! arbitrary legal part; one that had not begun never happens. A kill keeps the page cache, so all
//! that has happened stays visible and pending: a later power failure can still lose it. A power
//! failure keeps what is durable, and of the rest an arbitrary subset of names (an operation on a
//! name needs the earlier ones on that name) and of 512-byte sectors (each in any of the versions
//! that it had in the cache; where a write was lost, its range may hold old bytes, zeros or
//! garbage; bytes outside of written ranges never change).

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use zabkeeper_core::Instant;

use super::content::{Change, Content, File, Pending, Span};
use super::disk::Disk;
use super::folder::{Folder, NameChange};
use crate::engine::seed::{Rng, Seeds};

/// A device writes this many bytes atomically, and loses them together.
pub(super) const SECTOR: u64 = 512;

/// How a server ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// `kill -9`: the page cache survives.
    Kill,
    /// A power failure.
    Power {
        /// Whether single sectors of a write may survive; otherwise each file keeps nothing,
        /// everything or a prefix.
        torn: bool,
        /// Whether a range that was being written may hold zeros or garbage.
        garbage: bool,
        /// Whether unsynced name changes survive one by one; otherwise all or none.
        names: bool,
    },
}

/// The legal power failure to sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Luck {
    /// Only durable data survives.
    Worst,
    /// Everything that has begun survives.
    Best,
    /// Any part may survive, names one by one, drawn from this seed.
    Drawn(u64),
}

/// What a crash lost, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Operations that never began.
    pub cancelled: u64,
    /// Operations interrupted in the middle.
    pub interrupted: u64,
    /// Unsynced changes of content that were lost.
    pub changes_lost: u64,
    /// Unsynced changes of content that survived.
    pub changes_kept: u64,
    /// Files in which a later write survived and an earlier one did not, wholly or in part.
    pub reordered: u64,
    /// Writes of which some sectors survived and some did not.
    pub torn: u64,
    /// Sectors that hold zeros or garbage in place of a lost write.
    pub garbled: u64,
    /// Sizes that did not grow, or shrink, to the last value.
    pub sizes_lost: u64,
    /// Created or renamed names that were lost.
    pub names_lost: u64,
    /// Removed names that reappeared.
    pub resurrected: u64,
}

impl Losses {
    /// Adds the losses of another crash.
    pub fn add(&mut self, other: &Losses) {
        for ((_, sum), (_, more)) in self.fields_mut().into_iter().zip(other.fields()) {
            *sum += more;
        }
    }

    /// All counters with their names.
    pub fn fields(&self) -> [(&'static str, u64); 10] {
        [
            ("cancelled", self.cancelled),
            ("interrupted", self.interrupted),
            ("changes lost", self.changes_lost),
            ("changes kept", self.changes_kept),
            ("reordered", self.reordered),
            ("torn", self.torn),
            ("garbled", self.garbled),
            ("sizes lost", self.sizes_lost),
            ("names lost", self.names_lost),
            ("resurrected", self.resurrected),
        ]
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut u64); 10] {
        [
            ("cancelled", &mut self.cancelled),
            ("interrupted", &mut self.interrupted),
            ("changes lost", &mut self.changes_lost),
            ("changes kept", &mut self.changes_kept),
            ("reordered", &mut self.reordered),
            ("torn", &mut self.torn),
            ("garbled", &mut self.garbled),
            ("sizes lost", &mut self.sizes_lost),
            ("names lost", &mut self.names_lost),
            ("resurrected", &mut self.resurrected),
        ]
    }
}

/// How much of the pending changes in one file or folder survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keep {
    Nothing,
    Everything,
    Prefix,
    Pieces,
}

impl Disk {
    /// The server ends at `at`; `rng` decide what survives. The process' handles must be closed.
    pub fn crash(&mut self, at: Instant, how: Crash, mut rng: Rng) -> Losses {
        self.settle(at);
        let mut losses = Losses::default();
        for file in self.files.values_mut() {
            file.handles = 0;
            if !file.pending.is_empty() {
                // A part of it may be lost.
                file.last_write = None;
            }
            stop(file, at, &mut rng, &mut losses);
        }
        self.syncing.clear();
        for folder in &mut self.folders {
            folder.locked = false;
            stop_names(folder, at, &mut rng, &mut losses);
        }
        if let Crash::Power { torn, garbage, names } = how {
            self.reboot();
            let mode = draw_keep(torn, &mut rng);
            for file in self.files.values_mut().filter(|file| !file.pending.is_empty()) {
                // Files mostly share one outcome; sometimes each has its own.
                let keep = if rng.chance(1, 2) { mode } else { draw_keep(torn, &mut rng) };
                power_off(file, keep, garbage, &mut rng, &mut losses);
            }
            for folder in &mut self.folders {
                power_off_names(folder, names, &mut rng, &mut losses);
            }
        }
        for file in self.files.values_mut() {
            file.rebuild();
        }
        for folder in &mut self.folders {
            folder.rebuild();
        }
        self.collect_all();
        losses
    }

    /// Whether a power failure at `now` has several possible outcomes.
    pub fn is_in_doubt(&self, now: Instant) -> bool {
        let begun = |span: &Span| span.begin < now;
        let of_files = self.files.values().flat_map(|file| file.unsettled(now));
        let of_names = self.folders.iter().flat_map(|folder| folder.unsettled(now));
        of_files.chain(of_names).any(begun)
    }

    /// Number of removed names that a power failure may bring back.
    pub fn unsynced_removals(&self) -> usize {
        let pending = self.folders.iter().flat_map(|folder| &folder.pending);
        pending.filter(|(_, change)| matches!(change, NameChange::Remove { .. })).count()
    }

    /// A copy as a power failure at `now` would leave it.
    pub(super) fn survivor(&self, now: Instant, luck: Luck) -> Disk {
        let keeps = |span: &Span| match luck {
            Luck::Worst => false,
            Luck::Best => span.begin < now,
            Luck::Drawn(_) => unreachable!("`crash` decides"),
        };
        if let Luck::Drawn(seed) = luck {
            let mut copy = self.clone();
            let how = Crash::Power { torn: true, garbage: true, names: true };
            copy.crash(now, how, Seeds::new(seed).stream("survivor", 0));
            return copy;
        }
        let files = self.files.iter().map(|(id, file)| (*id, file.survivor(now, keeps)));
        let folders = self.folders.each_ref().map(|folder| folder.survivor(now, keeps));
        let mut copy = self.with(folders, files.collect());
        copy.reboot();
        copy.collect_all();
        copy
    }
}

fn draw_keep(torn: bool, rng: &mut Rng) -> Keep {
    let modes: &[Keep] = if torn {
        &[Keep::Nothing, Keep::Everything, Keep::Prefix, Keep::Pieces, Keep::Pieces]
    } else {
        &[Keep::Nothing, Keep::Everything, Keep::Prefix]
    };
    *rng.pick(modes)
}

/// Drops operations that had not begun, and decides how far operations in progress got.
fn stop(file: &mut File, at: Instant, rng: &mut Rng, losses: &mut Losses) {
    for sync in std::mem::take(&mut file.syncs) {
        // A sync in progress may have reached the device; its changes are then durable.
        if sync.begin < at && rng.chance(1, 2) {
            file.synced(sync.begin);
        }
    }
    let mut stopped = Vec::with_capacity(file.pending.len());
    for mut pending in std::mem::take(&mut file.pending) {
        if pending.span.begin >= at {
            losses.cancelled += 1;
            continue;
        }
        if pending.span.end > at {
            losses.interrupted += 1;
            pending.span.end = at;
            match &mut pending.change {
                Change::Write { bytes, .. } => {
                    bytes.truncate(rng.upto(bytes.len()));
                    if bytes.is_empty() {
                        continue;
                    }
                }
                Change::Grow { .. } | Change::Cut { .. } => {
                    if rng.chance(1, 2) {
                        continue;
                    }
                }
            }
        }
        stopped.push(pending);
    }
    file.pending = stopped;
}

fn stop_names(folder: &mut Folder, at: Instant, rng: &mut Rng, losses: &mut Losses) {
    for sync in std::mem::take(&mut folder.syncs) {
        if sync.begin < at && rng.chance(1, 2) {
            folder.synced(sync.begin);
        }
    }
    folder.pending.retain_mut(|(span, _)| {
        if span.begin >= at {
            losses.cancelled += 1;
            return false;
        }
        if span.end > at {
            losses.interrupted += 1;
            span.end = at;
            return rng.chance(1, 2);
        }
        true
    });
}

fn power_off(file: &mut File, keep: Keep, garbage: bool, rng: &mut Rng, losses: &mut Losses) {
    let mut pending = std::mem::take(&mut file.pending);
    let total = pending.len() as u64;
    match keep {
        Keep::Nothing => pending.clear(),
        Keep::Everything => {}
        Keep::Prefix => pending.truncate(rng.upto(pending.len())),
        Keep::Pieces => {
            pieces(&mut file.durable, &pending, garbage, rng, losses);
            return;
        }
    }
    losses.changes_kept += pending.len() as u64;
    losses.changes_lost += total - pending.len() as u64;
    for each in &pending {
        file.durable.apply(&each.change);
    }
}

/// The part of a write in one sector.
struct Part {
    write: usize,
    offset: u64,
    bytes: Bytes,
}

/// Keeps single sectors, each in one of its versions.
fn pieces(
    durable: &mut Content,
    pending: &[Pending],
    garbage: bool,
    rng: &mut Rng,
    losses: &mut Losses,
) {
    let (cut, size) = draw_size(durable, pending, rng, losses);
    if let Some((_, cut)) = cut {
        durable.cut(cut);
    }
    let mut arrived: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for (_, parts) in sectors(pending, cut) {
        let versions = parts.len();
        let kept = if rng.chance(1, 2) { rng.upto(versions) } else { versions };
        for (number, part) in parts.iter().enumerate() {
            let (whole, lost) = arrived.entry(part.write).or_default();
            if number < kept {
                *whole += 1;
                durable.write(part.offset, &part.bytes);
            } else {
                *lost += 1;
            }
        }
        if garbage && kept < versions && rng.chance(1, 4) {
            losses.garbled += 1;
            let part = &parts[kept];
            let mut filler = vec![0; part.bytes.len()];
            if rng.chance(1, 2) {
                rng.fill(&mut filler);
            }
            durable.write(part.offset, &filler);
        }
    }
    durable.cut(size);
    durable.grow(size);
    count_pieces(&arrived, losses);
}

/// Chooses the last truncation that happened, if any is pending, and the size among those that the
/// file had.
fn draw_size(
    durable: &Content,
    pending: &[Pending],
    rng: &mut Rng,
    losses: &mut Losses,
) -> (Option<(usize, u64)>, u64) {
    let mut cuts: Vec<(usize, u64)> = Vec::new();
    for (number, each) in pending.iter().enumerate() {
        if let Change::Cut { size } = each.change {
            cuts.push((number, size));
        }
    }
    let happened = rng.upto(cuts.len());
    let cut = happened.checked_sub(1).map(|last| cuts[last]);
    let mut size = cut.map_or(durable.size(), |(_, size)| size.min(durable.size()));
    let mut sizes = vec![size];
    for each in &pending[cut.map_or(0, |(number, _)| number + 1)..] {
        match &each.change {
            Change::Write { offset, bytes } => size = size.max(offset + bytes.len() as u64),
            Change::Grow { size: grown } => size = size.max(*grown),
            // This truncation has not happened.
            Change::Cut { .. } => {}
        }
        if sizes.last() != Some(&size) {
            sizes.push(size);
        }
    }
    let chosen = if rng.chance(1, 2) { sizes[sizes.len() - 1] } else { *rng.pick(&sizes) };
    losses.sizes_lost += u64::from(Some(&chosen) != sizes.last() || happened < cuts.len());
    (cut, chosen)
}

/// The parts of all writes by sector, in order. Of writes before the truncation `cut` only the part
/// below its size.
fn sectors(pending: &[Pending], cut: Option<(usize, u64)>) -> BTreeMap<u64, Vec<Part>> {
    let mut sectors: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
    for (write, each) in pending.iter().enumerate() {
        let Change::Write { offset, bytes } = &each.change else {
            continue;
        };
        let limit = match cut {
            Some((number, size)) if write < number => size,
            Some(_) | None => u64::MAX,
        };
        let end = (offset + bytes.len() as u64).min(limit);
        let mut at = *offset;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            let index = |place: u64| usize::try_from(place - offset).expect("within the write");
            let part = Part { write, offset: at, bytes: bytes.slice(index(at)..index(next)) };
            sectors.entry(at / SECTOR).or_default().push(part);
            at = next;
        }
    }
    sectors
}

fn count_pieces(arrived: &BTreeMap<usize, (u32, u32)>, losses: &mut Losses) {
    let mut missing_before = false;
    let mut reordered = false;
    for (kept, lost) in arrived.values() {
        reordered |= missing_before && *kept > 0;
        missing_before |= *lost > 0;
        losses.torn += u64::from(*kept > 0 && *lost > 0);
        losses.changes_lost += u64::from(*kept == 0);
        losses.changes_kept += u64::from(*lost == 0);
    }
    losses.reordered += u64::from(reordered);
}

fn power_off_names(folder: &mut Folder, names: bool, rng: &mut Rng, losses: &mut Losses) {
    let all_or_none = rng.chance(1, 2);
    let fate = rng.chance(1, 2);
    let mut lost: Vec<String> = Vec::new();
    for (_, change) in std::mem::take(&mut folder.pending) {
        let touched = touched(&change);
        let blocked = touched.iter().any(|name| lost.iter().any(|other| other == name));
        let wanted = if names { rng.chance(1, 2) } else { fate };
        let wanted = if all_or_none { fate } else { wanted };
        if wanted && !blocked {
            Rc::make_mut(&mut folder.durable).apply(&change);
            continue;
        }
        match change {
            NameChange::Create { .. } | NameChange::Rename { .. } => losses.names_lost += 1,
            NameChange::Remove { .. } => losses.resurrected += 1,
        }
        lost.extend(touched);
    }
}

fn touched(change: &NameChange) -> Vec<String> {
    match change {
        NameChange::Create { name, .. } | NameChange::Remove { name } => vec![name.clone()],
        NameChange::Rename { from, to } => vec![from.clone(), to.clone()],
    }
}
