//! Sets a damaged store aside: an empty store takes its place, and the votes and acknowledgements
//! of its server do not count until a leader has synchronized it.
//!
//! Owns the order of the steps, so that an interrupted run never leaves a store that opens as
//! sound. Must not look for damage: the caller's `open` has reported it, and the caller knows that
//! other members hold the lost data.
//!
//! 1. A state file with `damaged` and `differs` replaces the old one, durably. If the process ends
//!    now, the next start sets the store aside again, even if its files are readable.
//! 2. The segments and snapshots of the old store are renamed and stay for the operator.
//! 3. A state file with `damaged` alone replaces that of step 1.

use zabkeeper_core::store::DurableState;
use zabkeeper_core::{Epoch, Zxid};

use crate::Options;
use crate::dir::Dir;
use crate::error::StoreError;
use crate::names::{FileName, free_name};
use crate::recover;
use crate::state::{self, Slot, StateFile};
use crate::vfs::Vfs;

/// Sets the store in these directories aside and returns the new names of its files. The next
/// `open` finds a store without transactions whose state is `damaged`; the accepted epoch stays
/// as far as it can be read.
///
/// For a member of an ensemble that has a quorum without it, after `open` has failed with
/// [`StoreError::Damaged`]. On a standalone server the data would be lost.
///
/// # Errors
/// [`StoreError`]: another process uses the directories, or the operating system reports an error.
/// The function may be called again.
pub fn set_aside<V: Vfs>(
    log_dir: V,
    snapshot_dir: V,
    options: Options,
) -> Result<Vec<String>, StoreError> {
    let log_dir = Dir::new(log_dir, "log directory");
    let snapshot_dir = Dir::new(snapshot_dir, "snapshot directory");
    let _locks = recover::lock(&log_dir, &snapshot_dir)?;
    let (log_names, snapshot_names) = (log_dir.list()?, snapshot_dir.list()?);
    let mut kept = Vec::new();

    let has_state = log_names.contains(&FileName::State.to_string());
    let old = match has_state.then(|| state::read(&log_dir)) {
        Some(Ok((slot, _))) => Some(slot),
        Some(Err(StoreError::Damaged { .. })) | None => None,
        Some(Err(error)) => return Err(error),
    };
    if has_state {
        kept.push(copy_state(&log_dir, &log_names)?);
    }
    let newest = newest_epoch(log_names.iter().chain(&snapshot_names));
    let mut slot = blank(old, newest, options.store_id);
    // `differs` stays until all files are renamed: they may be readable but hold another history
    // than the ensemble's.
    slot.state.differs = Some(Zxid::ZERO);
    StateFile::create(&log_dir, slot.clone())?;

    for (dir, names) in [(&log_dir, &log_names), (&snapshot_dir, &snapshot_names)] {
        for name in names {
            match FileName::parse(name) {
                // If both directories are the same, each file is listed twice.
                Some(FileName::Log(_) | FileName::Snapshot(_)) if !kept_before(&kept, name) => {
                    let aside = free_name(name, names);
                    dir.rename(name, &aside)?;
                    kept.push(aside);
                }
                Some(_) | None => {}
            }
        }
        dir.sync()?;
    }
    slot.state.differs = None;
    slot.generation += 1;
    StateFile::create(&log_dir, slot)?;
    Ok(kept)
}

/// The state of the new, empty store: the accepted epoch and the identity of the old one, and
/// `damaged`. The accepted epoch is at least `newest`.
fn blank(old: Option<Slot>, newest: Epoch, store_id: u64) -> Slot {
    let mut slot = old.unwrap_or_else(|| Slot::fresh(store_id));
    let accepted_epoch = slot.state.accepted_epoch.max(newest);
    // The server still belongs to the same ensemble, whatever is wrong with its history.
    let identity = slot.state.identity;
    slot.state =
        DurableState { accepted_epoch, damaged: true, identity, ..DurableState::default() };
    slot.log_end = Zxid::ZERO;
    slot.generation += 1;
    slot
}

/// The highest epoch in any file name. The server had accepted it: no transaction of an epoch is
/// logged before the epoch is accepted.
fn newest_epoch<'a>(names: impl Iterator<Item = &'a String>) -> Epoch {
    let epochs = names.filter_map(|name| match FileName::parse(name)? {
        FileName::Log(zxid) | FileName::Snapshot(zxid) => Some(zxid.epoch()),
        FileName::State => None,
    });
    epochs.max().unwrap_or_default()
}

/// Copies the state file instead of renaming it, because the new state file must replace it
/// atomically. Returns the name of the copy.
fn copy_state<V: Vfs>(dir: &Dir<V>, names: &[String]) -> Result<String, StoreError> {
    let file = dir.open(FileName::State.to_string())?;
    let mut bytes = vec![0; usize::try_from(file.size()?.min(state::BYTES)).expect("small")];
    let read = file.read_at(0, &mut bytes)?;
    let aside = free_name(file.name(), names);
    let mut copy = dir.create(&FileName::State.unfinished())?;
    copy.write_at(0, &bytes[..read])?;
    copy.sync()?;
    copy.publish(aside.clone())?;
    Ok(aside)
}

fn kept_before(kept: &[String], name: &str) -> bool {
    kept.iter().any(|aside| aside.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}
