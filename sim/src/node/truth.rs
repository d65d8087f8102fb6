//! Ground truth: what a server would find on its disk if the power failed now.
//!
//! Owns the recovery of copies. Must not touch the server, its disk or any stream of randomness.

use storage_fs::Options;
use zabkeeper_core::io::{DiskCommand, DiskEvent, DurableState, Outbox, Recovered};
use zabkeeper_core::{Config, Input, Instant, Now, Server, WriteId, Zxid};

use crate::fs::{Disk, Luck, SimFs};
use crate::guard;

/// What recovery found on a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truth<T> {
    /// The state file.
    pub state: DurableState,
    /// The last transaction.
    pub last: Zxid,
    /// What was asked about tree and sessions at `last`.
    pub seen: T,
}

/// Recovers a copy of `disk` as a power failure at `now` would leave it. `config` is that of a server which is the
/// only voter, so that all it has logged is committed; `look` asks it what is wanted then.
///
/// # Errors
/// Why it cannot be recovered, in words.
pub fn examine<T>(
    disk: &Disk,
    now: Instant,
    luck: Luck,
    config: &Config,
    store: Options,
    look: fn(&Server) -> T,
) -> Result<Truth<T>, String> {
    let recover = || {
        let (log, snapshots) = SimFs::after_power_failure(disk, now, luck);
        let opened = storage_fs::open(log, snapshots, store).map_err(|error| error.to_string())?;
        replay(config, opened.recovered, look)
    };
    match guard::catch(recover) {
        Ok(result) => result.map_err(|why| format!("{luck:?} power failure: {why}")),
        Err(panic) => Err(format!("{luck:?} power failure: panic: {panic}")),
    }
}

/// Lets a fresh server apply all that was recovered: it is elected, being alone, and its history is then committed.
fn replay<T>(
    config: &Config,
    mut recovered: Recovered,
    look: fn(&Server) -> T,
) -> Result<Truth<T>, String> {
    let state = recovered.state.clone();
    // It has no say in its ensemble, but what it holds is whole.
    recovered.state.damaged = false;
    let last = last_of(&recovered);
    let mut server =
        Server::recover(config.clone(), 0, recovered).map_err(|error| error.to_string())?;
    let mut out = Outbox::default();
    server.step(Now::default(), Input::Timeout, &mut out);
    while let Some(id) = last_write(&out) {
        out.disk.clear();
        server.step(Now::default(), Input::Disk(DiskEvent::Done(id)), &mut out);
    }
    let applied = server.status().applied;
    if applied != last {
        return Err(format!("the log ends at {last}, and recovery applied up to {applied}"));
    }
    Ok(Truth { state, last, seen: look(&server) })
}

/// The last transaction that was found.
pub fn last_of(recovered: &Recovered) -> Zxid {
    let snapshot = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
    recovered.entries.last().map_or(snapshot, |entry| entry.zxid)
}

fn last_write(out: &Outbox) -> Option<WriteId> {
    out.disk.iter().rev().find_map(|command| match command {
        DiskCommand::Append { id, .. }
        | DiskCommand::SaveState { id, .. }
        | DiskCommand::Truncate { id, .. }
        | DiskCommand::Rebase { id, .. } => Some(*id),
        DiskCommand::SnapshotChunk { .. }
        | DiskCommand::Purge { .. }
        | DiskCommand::ReadLog { .. }
        | DiskCommand::ReadSnapshot { .. } => None,
    })
}
