//! Audit of a disk: what a server would find on its disk if the power failed now.
//!
//! Owns the recovery of copies. Must not touch the server, its disk or any stream of randomness.

use storage_fs::vfs::{Vfs, VfsFile};
use storage_fs::{Options, ReaderLane};
use zabkeeper_core::io::Outbox;
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry, Recovered};
use zabkeeper_core::{
    Config, Epoch, EpochIndex, Input, Instant, LinkId, Now, Seed, Server, WriteId, Zxid,
};

use crate::check::guard;
use crate::engine::seed::Rng;
use crate::machine::fs::{Disk, Luck, SimFs};

/// Name of the state file.
pub(super) const STATE: &str = "state";

/// What recovery has found on a copy.
#[derive(Debug)]
pub struct DiskAudit<T> {
    /// The state file.
    pub state: DurableState,
    /// The last transaction.
    pub last: Zxid,
    /// Result of `look` on the server, whose tree and sessions are at `last`.
    pub seen: T,
    /// Did opening the store repair anything?
    pub mended: bool,
}

/// What a power failure with this luck would leave: opened, read back, and not yet replayed.
pub struct Found {
    luck: Luck,
    /// What the store has recovered.
    pub recovered: Recovered,
    mended: bool,
}

/// Opens a copy of `disk` as a power failure at `now` would leave it.
///
/// # Errors
/// Why the store cannot be opened or read.
pub fn recover(disk: &Disk, now: Instant, luck: Luck, store: Options) -> Result<Found, String> {
    caught(luck, || {
        let (log, snapshots) = SimFs::after_power_failure(disk, now, luck);
        let mut opened =
            storage_fs::open(log, snapshots, store).map_err(|error| error.to_string())?;
        reads_back(&opened.recovered, &mut opened.reader)?;
        let mended = !opened.notes.is_empty();
        Ok(Found { luck, recovered: opened.recovered, mended })
    })
}

/// Replays what was found. `config` is that of an ensemble of one, so that the whole log is
/// committed; `look` queries the server after the replay. The result depends on nothing else.
///
/// # Errors
/// Why the replay fails.
pub fn replayed<T>(
    found: Found,
    config: &Config,
    look: fn(Server) -> T,
) -> Result<DiskAudit<T>, String> {
    let Found { luck, recovered, mended } = found;
    caught(luck, || replay(config, (recovered, mended), look))
}

/// Recovers a copy of `disk` as a power failure at `now` would leave it, and replays it.
///
/// # Errors
/// Why recovery fails.
pub fn examine<T>(
    disk: &Disk,
    now: Instant,
    luck: Luck,
    config: &Config,
    store: Options,
    look: fn(Server) -> T,
) -> Result<DiskAudit<T>, String> {
    recover(disk, now, luck, store).and_then(|found| replayed(found, config, look))
}

/// Names the luck in an error, and turns a panic into one.
fn caught<T>(luck: Luck, run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match guard::catch(run) {
        Ok(result) => result.map_err(|why| format!("{luck:?} power failure: {why}")),
        Err(panic) => Err(format!("{luck:?} power failure: panic: {panic}")),
    }
}

/// Would the store open without the damage to these files: without the damaged snapshots, and with
/// the second slot of the state file copied over the first?
pub(super) fn opens_without(disk: &Disk, now: Instant, damaged: &[String], store: Options) -> bool {
    let (log, snapshots) = SimFs::after_power_failure(disk, now, Luck::Best);
    let opens = move || {
        for name in damaged {
            if name == STATE {
                copy_second_slot(&log, name).ok()?;
            } else {
                snapshots.remove(name).ok()?;
            }
        }
        storage_fs::open(log, snapshots, store).ok()
    };
    guard::catch(opens).is_ok_and(|opened| opened.is_some())
}

/// Bytes of each of the two slots at the beginning of the state file, which have the same content.
const SLOT: u64 = 4096;

fn copy_second_slot(folder: &SimFs, name: &str) -> std::io::Result<()> {
    let mut file = folder.open(name)?;
    let mut bytes = vec![0; usize::try_from(SLOT).expect("small")];
    file.read_at(SLOT, &mut bytes)?;
    file.write_at(0, &bytes)
}

/// A server that opens the disk after the worst power failure, with the result `whole`, may lose
/// power before its repairs are complete; the next open must have the same result. `rng` decides at
/// which operation the power fails, and what that takes.
///
/// # Errors
/// How the next result differs from `whole`.
pub fn examine_cut_off(
    disk: &Disk,
    now: Instant,
    (config, store): (&Config, Options),
    whole: &DiskAudit<Box<Server>>,
    mut rng: Rng,
) -> Result<(), String> {
    let (copy, log, snapshots) = SimFs::rehearsal(disk, now, Luck::Worst);
    let opened = storage_fs::open(log, snapshots, store);
    let cut_off = copy.borrow().clone();
    drop(opened);
    let ops = copy.borrow_mut().take_ops();
    let changes = Vec::from_iter(ops.iter().filter(|op| op.kind.changes()));
    let op = rng.pick(&changes);
    let at = Instant(rng.range(op.span.begin.0 + 1, op.span.end.0));
    let any = Luck::Drawn(rng.word());
    let luck = *rng.pick(&[Luck::Worst, Luck::Best, any]);
    let found = examine(&cut_off, at, luck, config, store, Box::new);
    let content = |audit: &DiskAudit<Box<Server>>| {
        let DurableState { accepted_epoch, current_epoch, damaged, .. } = audit.state;
        (audit.last, audit.seen.digest(), accepted_epoch, current_epoch, damaged)
    };
    let so_far = || format!("mended as far as {:?} {}, then a power failure: ", op.kind, op.name);
    match found {
        Err(why) => Err(so_far() + &why),
        Ok(found) if content(&found) != content(whole) => {
            Err(format!("{}{:?} instead of {:?}", so_far(), content(&found), content(whole)))
        }
        Ok(_) => Ok(()),
    }
}

/// Reads the whole log of a copy of `disk`, without losses.
///
/// # Errors
/// Why the log cannot be opened or read.
pub fn log(disk: &Disk, now: Instant, store: Options) -> Result<Vec<Entry>, String> {
    let (log, snapshots) = SimFs::after_power_failure(disk, now, Luck::Best);
    let mut opened = storage_fs::open(log, snapshots, store).map_err(|error| error.to_string())?;
    let history = &opened.recovered.history;
    if history.start() == history.end() {
        return Ok(Vec::new());
    }
    read(&mut opened.reader, LinkId(0), history.start(), u32::MAX)
}

fn read<V: Vfs>(
    reader: &mut ReaderLane<V>,
    link: LinkId,
    after: Zxid,
    bytes: u32,
) -> Result<Vec<Entry>, String> {
    match reader.run(&DiskCommand::ReadLog { link, after, bytes }) {
        DiskEvent::LogRead { found, .. } => found,
        other @ (DiskEvent::Done(_)
        | DiskEvent::ChunkDone { .. }
        | DiskEvent::Failed(_)
        | DiskEvent::SnapshotFailed { .. }
        | DiskEvent::SnapshotRead { .. }) => Err(format!("{other:?}")),
    }
}

/// Checks that the reader lane can read the whole log from its beginning, and can begin at the
/// snapshot. A leader promises that to learners whose log ends there; if the log were unreadable,
/// it would refuse them for ever.
fn reads_back<V: Vfs>(recovered: &Recovered, reader: &mut ReaderLane<V>) -> Result<(), String> {
    let history = &recovered.history;
    let (start, end) = (history.start(), history.end());
    if start == end {
        return Ok(());
    }
    let unreadable = |after, why| format!("after {after}, to {end}: {why}");
    let entries = read(reader, LinkId(0), start, u32::MAX).map_err(|why| unreadable(start, why))?;
    let mut found = EpochIndex::after(start);
    for entry in &entries {
        if !found.may_follow(entry.zxid) {
            return Err(format!("{} is read behind {}", entry.zxid, found.end()));
        }
        found.push(entry.zxid);
    }
    if found != *history {
        return Err(format!("the log reports {history:?}, and what is read is {found:?}"));
    }
    let snapshot = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
    if snapshot <= start || snapshot >= end {
        return Ok(());
    }
    let part = read(reader, LinkId(1), snapshot, 1).map_err(|why| unreadable(snapshot, why))?;
    let rest = &entries[entries.partition_point(|entry| entry.zxid <= snapshot)..];
    if part.is_empty() || !rest.starts_with(&part) {
        let [found, right] = [&part[..], rest].map(|list| list.first().map(|entry| entry.zxid));
        return Err(format!("after {snapshot}, {found:?} is read instead of {right:?}"));
    }
    Ok(())
}

/// Lets a new server apply everything that was recovered: as the only voter it is elected, and its
/// history is then committed.
fn replay<T>(
    config: &Config,
    (mut recovered, mended): (Recovered, bool),
    look: fn(Server) -> T,
) -> Result<DiskAudit<T>, String> {
    let state = recovered.state.clone();
    // A damaged server has no vote in its ensemble, but its log is complete.
    recovered.state.damaged = false;
    // A learner may have logged a part of the history before it learns the identity of the
    // ensemble; without one, it applies nothing.
    let of_all = || Seed::from(0).identity(Epoch(0));
    recovered.state.identity.get_or_insert_with(of_all);
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
    Ok(DiskAudit { state, last, seen: look(server), mended })
}

/// The last recovered transaction.
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
        | DiskCommand::DropSnapshot { .. }
        | DiskCommand::Purge { .. }
        | DiskCommand::ReadLog { .. }
        | DiskCommand::ReadSnapshot { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use storage_fs::Opened;
    use zabkeeper_core::{ServerId, Voters};

    use super::*;
    use crate::engine::seed::Seeds;
    use crate::machine::fs::{FolderId, Pace};

    const OPTIONS: Options = Options { store_id: 7, segment_bytes: 4_096 };
    const LATER: Instant = Instant(1_000_000_000);

    fn disk_and_store() -> (Rc<RefCell<Disk>>, Opened<SimFs>) {
        let disk = Disk::new(Seeds::new(1).stream("disk", 1), Pace::STEADY);
        let disk = Rc::new(RefCell::new(disk));
        let (log, snapshots) = SimFs::both(&disk);
        let opened = storage_fs::open(log, snapshots, OPTIONS).expect("a new store");
        (disk, opened)
    }

    /// T2.
    /// One slot of the state file is lost; each open repairs it, wherever the previous open was
    /// interrupted.
    #[test]
    fn state_after_an_interrupted_open_is_compared() {
        let (disk, opened) = disk_and_store();
        drop(opened);
        let config = Config::new(ServerId(1), Voters::new([ServerId(1)]), Duration::from_secs(1));
        let config = config.expect("is valid");
        let look = |disk: &Disk| {
            examine(disk, LATER, Luck::Worst, &config, OPTIONS, Box::new).expect("is whole")
        };
        let whole = look(&disk.borrow());
        let cut_off = |whole: &DiskAudit<Box<Server>>, number| {
            let rng = Seeds::new(number).stream("truth/cut-off", 1);
            examine_cut_off(&disk.borrow(), LATER, (&config, OPTIONS), whole, rng)
        };
        assert!(!whole.mended);
        let mut state = SimFs::new(&disk, FolderId::Log).open("state").expect("is there");
        state.write_at(0, &[0; 8]).expect("writes");
        state.sync().expect("syncs");
        drop(state);
        assert!(look(&disk.borrow()).mended);
        for number in 1..=20 {
            assert_eq!(cut_off(&whole, number), Ok(()));
        }
        let wrong = DiskAudit { last: Zxid(7), ..whole };
        let noticed = cut_off(&wrong, 1).expect_err("that is not there");
        assert!(noticed.contains("instead of (0x7, "), "{noticed}");
    }

    /// T11.
    #[test]
    fn store_opens_with_one_damaged_slot_of_the_state_file_but_not_with_two() {
        let (disk, opened) = disk_and_store();
        drop(opened);
        let mut state = SimFs::new(&disk, FolderId::Log).open(STATE).expect("is there");
        let opens = || opens_without(&disk.borrow(), LATER, &[STATE.to_owned()], OPTIONS);
        state.write_at(0, &[0; 8]).expect("writes");
        assert!(opens());
        state.write_at(SLOT, &[0; 8]).expect("writes");
        assert!(!opens());
    }

    /// T2.
    #[test]
    fn log_that_lacks_a_listed_transaction_is_reported() {
        let (_disk, mut opened) = disk_and_store();
        assert_eq!(reads_back(&opened.recovered, &mut opened.reader), Ok(()));
        opened.recovered.history.push(Zxid(1 << 32 | 1));
        let noticed = reads_back(&opened.recovered, &mut opened.reader).expect_err("it lacks that");
        assert!(noticed.starts_with("after 0x0, to 0x100000001"), "{noticed}");
    }
}
