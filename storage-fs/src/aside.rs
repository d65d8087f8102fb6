//! Setting a damaged store aside: an empty one takes its place, whose server has no say until a leader has filled it.
//!
//! Owns the order of that, so that no half of it passes for a sound store. Must not judge damage: whoever calls it has been
//! told of it by an open, and knows that others hold what is lost here.
//!
//! First the state file is replaced, durably, by one that says `damaged` and `differs`. From then on whatever a start may find
//! readable has no say, and is set aside again. Then all that the old store had gets other names, and stays for the
//! operator. At last the state file says `damaged` alone.

use zabkeeper_core::store::DurableState;
use zabkeeper_core::{Epoch, Zxid};

use crate::Options;
use crate::dir::Dir;
use crate::error::StoreError;
use crate::names::{FileName, free_name};
use crate::recover;
use crate::state::{self, Slot, StateFile};
use crate::vfs::Vfs;

/// Sets aside what these directories hold, and says under which names it is kept. The next open finds a store without
/// transactions whose server is `damaged`, and bound by the promises that it has made as far as they can be read.
///
/// For a member of an ensemble whose other members can go on without it, after an open has failed with
/// [`StoreError::Damaged`]. What a server alone has lost nobody gives back.
///
/// # Errors
/// [`StoreError`]: the directories are in use, or the operating system refuses. It can be called again then.
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
    let mut slot = blank(old, newest, options.cluster_id);
    // Until all files have other names: they may be sound, and not the ensemble's.
    slot.state.differs = Some(Zxid::ZERO);
    StateFile::create(&log_dir, slot.clone())?;

    for (dir, names) in [(&log_dir, &log_names), (&snapshot_dir, &snapshot_names)] {
        for name in names {
            match FileName::parse(name) {
                // Where both directories are one, its files are listed twice.
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

/// What the server still knows: its promises, and that it has forgotten the rest.
fn blank(old: Option<Slot>, newest: Epoch, cluster: u64) -> Slot {
    let mut slot = old.unwrap_or_else(|| Slot::fresh(cluster));
    let accepted_epoch = slot.state.accepted_epoch.max(newest);
    // To which ensemble it belongs is true whatever has become of its history.
    let identity = slot.state.identity;
    slot.state =
        DurableState { accepted_epoch, damaged: true, identity, ..DurableState::default() };
    slot.log_end = Zxid::ZERO;
    slot.generation += 1;
    slot
}

/// The last epoch that any file is named after: no transaction of one is logged before it is promised.
fn newest_epoch<'a>(names: impl Iterator<Item = &'a String>) -> Epoch {
    let epochs = names.filter_map(|name| match FileName::parse(name)? {
        FileName::Log(zxid) | FileName::Snapshot(zxid) => Some(zxid.epoch()),
        FileName::State => None,
    });
    epochs.max().unwrap_or_default()
}

/// The state file keeps its name, because the next one has to replace it in one step.
fn copy_state<V: Vfs>(dir: &Dir<V>, names: &[String]) -> Result<String, StoreError> {
    let name = FileName::State.to_string();
    let file = dir.open(&name)?;
    let mut bytes = vec![0; usize::try_from(file.size()?.min(state::BYTES)).expect("small")];
    let read = file.read_at(0, &mut bytes)?;
    let aside = free_name(&name, names);
    let mut copy = dir.create(&FileName::State.unfinished())?;
    copy.write_at(0, &bytes[..read])?;
    copy.sync()?;
    copy.publish(aside.clone())?;
    Ok(aside)
}

fn kept_before(kept: &[String], name: &str) -> bool {
    kept.iter().any(|aside| aside.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}
