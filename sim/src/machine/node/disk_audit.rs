//! Audit of a disk: what a server would find on its disk if the power failed now.
//!
//! Owns the recovery of copies. Must not touch the server, its disk or any stream of randomness.

use storage_fs::vfs::{Vfs, VfsFile};
use storage_fs::{Options, ReaderLane};
use zabkeeper_core::io::Outbox;
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry, Recovered};
use zabkeeper_core::{
    Config, Epoch, History, Input, Instant, LinkId, Now, Seed, Server, WriteId, Zxid,
};

use crate::check::guard;
use crate::engine::seed::Rng;
use crate::machine::fs::{Disk, Luck, SimFs};

/// What a server has promised.
pub(super) const STATE: &str = "state";

/// What recovery found on a copy.
#[derive(Debug)]
pub struct DiskAudit<T> {
    /// The state file.
    pub state: DurableState,
    /// The last transaction.
    pub last: Zxid,
    /// What was asked about tree and sessions at `last`.
    pub seen: T,
    /// Was there anything to mend?
    pub mended: bool,
}

/// Recovers a copy of `disk` as a power failure at `now` would leave it. `config` is that of a
/// server which is the only voter, so that all it has logged is committed; `look` asks it what is
/// wanted then.
///
/// # Errors
/// Why it cannot be recovered, in words.
pub fn examine<T>(
    disk: &Disk,
    now: Instant,
    luck: Luck,
    config: &Config,
    store: Options,
    look: fn(Server) -> T,
) -> Result<DiskAudit<T>, String> {
    let recover = || -> Result<DiskAudit<T>, String> {
        let (log, snapshots) = SimFs::after_power_failure(disk, now, luck);
        let mut opened =
            storage_fs::open(log, snapshots, store).map_err(|error| error.to_string())?;
        reads_back(&opened.recovered, &mut opened.reader)?;
        let mended = !opened.notes.is_empty();
        replay(config, (opened.recovered, mended), look)
    };
    match guard::catch(recover) {
        Ok(result) => result.map_err(|why| format!("{luck:?} power failure: {why}")),
        Err(panic) => Err(format!("{luck:?} power failure: panic: {panic}")),
    }
}

/// Would the store open if these files were not damaged as they are: without the snapshots, and
/// with the whole slot of the state file in the place of the other?
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

/// Bytes of each of the two slots that the state file begins with, which are alike.
const SLOT: u64 = 4096;

fn copy_second_slot(folder: &SimFs, name: &str) -> std::io::Result<()> {
    let mut file = folder.open(name)?;
    let mut bytes = vec![0; usize::try_from(SLOT).expect("small")];
    file.read_at(SLOT, &mut bytes)?;
    file.write_at(0, &bytes)
}

/// Whoever opens the disk after the worst power failure, and has found `whole`, may lose power
/// before all is mended, and must find the same then. `rng` decide at which operation the power
/// fails, and what it takes.
///
/// # Errors
/// What is found then instead of what `whole` has found, in words.
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
    let said = |audit: &DiskAudit<Box<Server>>| {
        let DurableState { accepted_epoch, current_epoch, damaged, .. } = audit.state;
        (audit.last, audit.seen.digest(), accepted_epoch, current_epoch, damaged)
    };
    let so_far = || format!("mended as far as {:?} {}, then a power failure: ", op.kind, op.name);
    match found {
        Err(why) => Err(so_far() + &why),
        Ok(found) if said(&found) != said(whole) => {
            Err(format!("{}{:?} instead of {:?}", so_far(), said(&found), said(whole)))
        }
        Ok(_) => Ok(()),
    }
}

/// The log of a copy of `disk`, where nothing is lost, from where it begins.
///
/// # Errors
/// Why it cannot be opened or read, in words.
pub fn log(disk: &Disk, now: Instant, store: Options) -> Result<Vec<Entry>, String> {
    let (log, snapshots) = SimFs::after_power_failure(disk, now, Luck::Best);
    let mut opened = storage_fs::open(log, snapshots, store).map_err(|error| error.to_string())?;
    let history = &opened.recovered.history;
    if history.start() == history.end() {
        return Ok(Vec::new());
    }
    read(&mut opened.reader, LinkId(0), history.start())
}

fn read<V: Vfs>(
    reader: &mut ReaderLane<V>,
    link: LinkId,
    after: Zxid,
) -> Result<Vec<Entry>, String> {
    match reader.run(&DiskCommand::ReadLog { link, after, bytes: u32::MAX }) {
        DiskEvent::LogRead { found, .. } => found,
        other @ (DiskEvent::Done(_)
        | DiskEvent::ChunkDone { .. }
        | DiskEvent::Failed(_)
        | DiskEvent::SnapshotFailed { .. }
        | DiskEvent::SnapshotRead { .. }) => Err(format!("{other:?}")),
    }
}

/// All that the log is said to hold can be read for learners, from where it begins and from the
/// snapshot on. A leader promises it to whoever ends there; where it could not be read, they would
/// be turned away for ever.
fn reads_back<V: Vfs>(recovered: &Recovered, reader: &mut ReaderLane<V>) -> Result<(), String> {
    let history = &recovered.history;
    let snapshot = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
    let mut from = vec![history.start(), snapshot];
    from.dedup();
    for (number, after) in from.into_iter().filter(|after| *after < history.end()).enumerate() {
        let found = read(reader, LinkId(number as u64), after);
        let entries = found.map_err(|why| format!("after {after}, to {}: {why}", history.end()))?;
        let mut read = History::after(after);
        for entry in &entries {
            if !read.may_follow(entry.zxid) {
                return Err(format!("{} is read behind {}", entry.zxid, read.end()));
            }
            read.push(entry.zxid);
        }
        let whole = if after == history.start() { read == *history } else { true };
        if !whole || read.end() != history.end() {
            return Err(format!("the log is said to be {history:?}, and what is read is {read:?}"));
        }
    }
    Ok(())
}

/// Lets a fresh server apply all that was recovered: it is elected, being alone, and its history is
/// then committed.
fn replay<T>(
    config: &Config,
    (mut recovered, mended): (Recovered, bool),
    look: fn(Server) -> T,
) -> Result<DiskAudit<T>, String> {
    let state = recovered.state.clone();
    // It has no say in its ensemble, but what it holds is whole.
    recovered.state.damaged = false;
    // A learner may have logged a part of the history before it hears which ensemble that is of,
    // and applies nothing before.
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

    const OPTIONS: Options = Options { cluster_id: 7, segment_bytes: 4_096 };
    const LATER: Instant = Instant(1_000_000_000);

    fn disk_and_store() -> (Rc<RefCell<Disk>>, Opened<SimFs>) {
        let disk = Disk::new(Seeds::new(1).stream("disk", 1), Pace::STEADY);
        let disk = Rc::new(RefCell::new(disk));
        let (log, snapshots) = SimFs::both(&disk);
        let opened = storage_fs::open(log, snapshots, OPTIONS).expect("a new store");
        (disk, opened)
    }

    /// One slot of the state file is lost, which each open mends, wherever it is cut off.
    #[test]
    fn t2_what_is_found_behind_an_open_that_was_cut_off_is_compared() {
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

    #[test]
    fn t11_one_slot_of_the_state_file_can_be_done_without_and_both_cannot() {
        let (disk, opened) = disk_and_store();
        drop(opened);
        let mut state = SimFs::new(&disk, FolderId::Log).open(STATE).expect("is there");
        let opens = || opens_without(&disk.borrow(), LATER, &[STATE.to_owned()], OPTIONS);
        state.write_at(0, &[0; 8]).expect("writes");
        assert!(opens());
        state.write_at(SLOT, &[0; 8]).expect("writes");
        assert!(!opens());
    }

    #[test]
    fn t2_a_log_that_is_said_to_hold_what_it_lacks_is_noticed() {
        let (_disk, mut opened) = disk_and_store();
        assert_eq!(reads_back(&opened.recovered, &mut opened.reader), Ok(()));
        opened.recovered.history.push(Zxid(1 << 32 | 1));
        let noticed = reads_back(&opened.recovered, &mut opened.reader).expect_err("it lacks that");
        assert!(noticed.starts_with("after 0x0, to 0x100000001"), "{noticed}");
    }
}
