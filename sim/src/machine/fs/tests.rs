//! Tests that each kind of loss can happen, and that each guarantee holds.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use storage_fs::vfs::{Vfs, VfsFile};
use zabkeeper_core::Instant;

use super::{Crash, Disk, FolderId, FsyncFault, LogEnd, Losses, Luck, OpKind, Pace, SimFs, inject};
use crate::engine::seed::Seeds;
use crate::faults::catalog::Fault;

const PACE: Pace = Pace { sync_mean: 1_000_000, op_mean: 10_000, per_kib: 500, steady: false };
const POWER: Crash = Crash::Power { torn: true, garbage: true, names: true };
const LATER: Instant = Instant(u64::MAX / 2);

struct Rig {
    disk: Rc<RefCell<Disk>>,
    fs: SimFs,
}

fn rig(seed: u64) -> Rig {
    let disk = Disk::new(Seeds::new(seed).stream("disk", 1), PACE);
    let disk = Rc::new(RefCell::new(disk));
    Rig { fs: SimFs::new(&disk, FolderId::Log), disk }
}

impl Rig {
    fn content(&self, name: &str) -> Option<Vec<u8>> {
        let file = self.fs.open(name).ok()?;
        let mut bytes = vec![0; usize::try_from(file.size().expect("size")).expect("small")];
        file.read_at(0, &mut bytes).expect("read");
        Some(bytes)
    }

    fn crash(&self, at: Instant, how: Crash) -> Losses {
        let mut disk = self.disk.borrow_mut();
        let fate = disk.rng.clone();
        disk.rng.word();
        disk.crash(at, how, fate)
    }

    fn now(&self) -> Instant {
        self.disk.borrow().cursor()
    }

    /// Creates a file of `size` bytes of 1 that is durable, with a durable name.
    fn durable(&self, name: &str, size: usize) {
        let mut file = self.fs.create(name).expect("create");
        file.write_at(0, &vec![1; size]).expect("write");
        file.sync().expect("sync");
        self.fs.sync_dir().expect("sync");
    }
}

/// Runs `scenario` on 200 seeds, and counts those where `fires` holds after a power failure.
fn count(scenario: impl Fn(&Rig), fires: impl Fn(&Rig, &Losses) -> bool) -> usize {
    (0..200)
        .filter(|&seed| {
            let rig = rig(seed);
            scenario(&rig);
            let losses = rig.crash(LATER, POWER);
            fires(&rig, &losses)
        })
        .count()
}

fn overwrite(rig: &Rig) {
    rig.durable("a", 4_096);
    let mut file = rig.fs.open("a").expect("open");
    file.write_at(100, &[2; 2_000]).expect("write");
    file.write_at(2_100, &[3; 3_000]).expect("write");
}

#[test]
fn synced_data_survives_every_power_failure() {
    for seed in 0..100 {
        let rig = rig(seed);
        rig.durable("a", 5_000);
        rig.crash(LATER, POWER);
        assert_eq!(rig.content("a"), Some(vec![1; 5_000]));
    }
}

#[test]
fn unsynced_name_may_vanish_with_synced_bytes() {
    let scenario = |rig: &Rig| {
        let mut file = rig.fs.create("a").expect("create");
        file.write_at(0, b"bytes").expect("write");
        file.sync().expect("sync");
    };
    let gone = count(scenario, |rig, losses| {
        assert!(matches!(rig.content("a").as_deref(), None | Some(b"bytes")));
        rig.content("a").is_none() && losses.names_lost == 1
    });
    assert!((50..150).contains(&gone), "{gone}");
}

#[test]
fn unsynced_bytes_may_be_lost_kept_torn_reordered_or_garbled() {
    let fired = |fires: fn(&Losses) -> bool| count(overwrite, |_, losses| fires(losses));
    for (what, times) in [
        ("lost", fired(|l| l.changes_lost > 0)),
        ("kept", fired(|l| l.changes_kept > 0)),
        ("torn", fired(|l| l.torn > 0)),
        ("reordered", fired(|l| l.reordered > 0)),
        ("garbled", fired(|l| l.garbled > 0)),
        ("sizes", fired(|l| l.sizes_lost > 0)),
    ] {
        assert!(times >= 20, "{what}: {times} of 200");
    }
}

#[test]
fn bytes_outside_of_written_ranges_never_change() {
    count(overwrite, |rig, _| {
        let bytes = rig.content("a").expect("its name was durable");
        assert!(bytes.len() >= 4_096 && bytes[..100] == [1; 100]);
        true
    });
}

#[test]
fn file_size_may_survive_without_its_bytes() {
    let scenario = |rig: &Rig| {
        rig.durable("a", 512);
        rig.fs.open("a").expect("open").write_at(512, &[2; 1_024]).expect("write");
    };
    let holes = count(scenario, |rig, _| {
        let bytes = rig.content("a").expect("durable");
        bytes.len() == 1_536 && bytes[512..1_024] == [0; 512]
    });
    assert!(holes >= 5, "{holes}");
}

#[test]
fn power_failure_may_undo_unsynced_remove_and_rename() {
    let removal = |rig: &Rig| {
        rig.durable("a", 10);
        rig.fs.remove("a").expect("remove");
    };
    let back = count(removal, |rig, losses| {
        losses.resurrected == 1 && rig.content("a") == Some(vec![1; 10])
    });
    assert!((50..150).contains(&back), "{back}");
    let renaming = |rig: &Rig| {
        rig.durable("a", 10);
        rig.durable("b", 20);
        rig.fs.rename("b", "a").expect("rename");
    };
    let old = count(renaming, |rig, _| match (rig.content("a"), rig.content("b")) {
        (Some(a), Some(b)) => a.len() == 10 && b.len() == 20,
        (Some(a), None) => {
            assert_eq!(a.len(), 20, "a rename is whole or not at all");
            false
        }
        (None, _) => panic!("a rename never leaves the target without a file"),
    });
    assert!((50..150).contains(&old), "{old}");
}

#[test]
fn unsynced_names_may_survive_out_of_order() {
    let scenario = |rig: &Rig| {
        for name in ["a", "b", "c"] {
            drop(rig.fs.create(name).expect("create"));
        }
    };
    let reordered = count(scenario, |rig, _| {
        let names = rig.fs.list().expect("list");
        names.iter().any(|n| n == "c") && !names.iter().any(|n| n == "a")
    });
    assert!(reordered >= 10, "{reordered}");
}

#[test]
fn page_cache_survives_kill_and_may_be_lost_later() {
    let mut lost = 0;
    for seed in 0..50 {
        let rig = rig(seed);
        rig.durable("a", 10);
        rig.fs.open("a").expect("open").write_at(0, &[2; 10]).expect("write");
        let now = rig.now();
        rig.crash(now, Crash::Kill);
        assert_eq!(rig.content("a"), Some(vec![2; 10]));
        rig.crash(LATER, POWER);
        lost += usize::from(rig.content("a") == Some(vec![1; 10]));
    }
    assert!(lost >= 10, "{lost}");
}

#[test]
fn operation_that_begins_after_the_crash_never_happens() {
    let rig = rig(1);
    rig.durable("a", 10);
    let before = rig.now();
    let mut file = rig.fs.open("a").expect("open");
    file.write_at(0, &[2; 10]).expect("write");
    file.sync().expect("sync");
    rig.fs.remove("a").expect("remove");
    rig.fs.sync_dir().expect("sync");
    drop(file);
    let losses = rig.crash(before, Crash::Kill);
    assert_eq!((rig.content("a"), losses.cancelled), (Some(vec![1; 10]), 2));
}

#[test]
fn sync_in_progress_may_not_make_data_durable() {
    let mut lost = 0;
    for seed in 0..50 {
        let rig = rig(seed);
        rig.durable("a", 10);
        let mut file = rig.fs.open("a").expect("open");
        file.write_at(0, &[2; 10]).expect("write");
        let written = rig.now();
        file.sync().expect("sync");
        drop(file);
        rig.crash(Instant(written.0 + 1), POWER);
        lost += usize::from(rig.content("a") != Some(vec![2; 10]));
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn write_in_progress_may_be_partial() {
    let cut = (0..50)
        .filter(|&seed| {
            let rig = rig(seed);
            rig.durable("a", 10);
            let before = rig.now();
            let mut file = rig.fs.open("a").expect("open");
            file.write_at(0, &[2; 10]).expect("write");
            let middle = Instant(u64::midpoint(before.0, rig.now().0).max(before.0 + 1));
            drop(file);
            rig.crash(middle, Crash::Kill);
            rig.content("a").is_some_and(|bytes| bytes.contains(&1) && bytes.contains(&2))
        })
        .count();
    assert!(cut >= 5, "{cut}");
}

#[test]
fn failed_sync_reports_once_and_its_pages_stay_lost() {
    let mut lost = 0;
    for seed in 0..50 {
        let rig = rig(seed);
        rig.durable("a", 10);
        rig.disk.borrow_mut().faults.sync_error = Some(FsyncFault::PagesLost);
        let mut file = rig.fs.open("a").expect("open");
        file.write_at(0, &[2; 10]).expect("write");
        file.sync().expect_err("injected");
        assert_eq!(rig.disk.borrow().failed(), Some(OpKind::Sync));
        file.sync().expect("the error is returned once");
        drop(file);
        rig.crash(LATER, POWER);
        lost += usize::from(rig.content("a") != Some(vec![2; 10]));
    }
    assert!(lost >= 10, "{lost}");
}

#[test]
fn failed_write_is_partial_and_full_disk_reports_storage_full() {
    let rig = rig(3);
    rig.durable("a", 10);
    rig.disk.borrow_mut().faults.write_error = true;
    let mut file = rig.fs.open("a").expect("open");
    file.write_at(10, &[2; 10]).expect_err("injected");
    file.write_at(10, &[2; 10]).expect("once");
    let used = rig.disk.borrow().used();
    rig.disk.borrow_mut().faults.capacity = Some(used + 4);
    assert_eq!(rig.fs.free_space().expect("free"), 4);
    let full = file.write_at(20, &[3; 10]).expect_err("full");
    assert_eq!((full.kind(), file.size().expect("size")), (io::ErrorKind::StorageFull, 24));
    let full = file.preallocate(1 << 20).expect_err("full");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    drop(file);
    rig.crash(rig.now(), POWER);
    rig.disk.borrow_mut().mend();
    rig.fs.open("a").expect("open").write_at(24, &[3; 10]).expect("space is back");
}

#[test]
fn stalls_and_slowness_take_time() {
    let rig = rig(4);
    rig.durable("a", 10);
    let until = Instant(5_000_000_000);
    rig.disk.borrow_mut().faults.stalled_until = until;
    rig.fs.open("a").expect("open").sync().expect("sync");
    assert!(rig.now() >= until);
    rig.disk.borrow_mut().faults.slow_until = LATER;
    rig.disk.borrow_mut().faults.slowness = 1_000;
    for _ in 0..20 {
        rig.fs.open("a").expect("open").sync().expect("sync");
    }
    assert!(rig.now().0 > until.0 + 2_000_000_000, "20 syncs at a mean of a second");
}

#[test]
fn bit_rot_spares_the_last_write_of_the_newest_file() {
    let mut reached = [0; 2];
    for seed in 0..200 {
        let rig = rig(seed);
        rig.durable("log.1", 3_000);
        rig.durable("log.2", 3_000);
        rig.durable("once", 3_000);
        rig.durable("log.3.damaged", 3_000);
        for name in ["log.1", "log.2", "log.3.damaged"] {
            let mut file = rig.fs.open(name).expect("open");
            file.write_at(3_000, &[1; 500]).expect("write");
            file.sync().expect("sync");
        }
        rig.crash(LATER, Crash::Kill);
        let mut rng = Seeds::new(seed).stream("rot", 1);
        let damage =
            rig.disk.borrow_mut().bit_rot(LogEnd::Unknown, &mut rng).expect("there is something");
        assert!(!damage.under_this_boot);
        let damage = damage.what;
        assert!(damage.contains(" of log.2 at "), "{damage}");
        rig.crash(LATER, POWER);
        let content = rig.content("log.2").expect("it is there");
        let changed: Vec<usize> = (0..3_500).filter(|at| content[*at] != 1).collect();
        assert!(!changed.is_empty() && changed.iter().all(|at| *at < 3_000), "{changed:?}");
        reached[usize::from(changed.len() > 1)] += 1;
        for name in ["log.1", "once", "log.3.damaged"] {
            assert!(rig.content(name).expect("it is there").iter().all(|byte| *byte == 1));
        }
    }
    assert!(reached.iter().all(|count| *count > 50), "{reached:?}");

    let rig = rig(1);
    rig.durable("log.1", 3_000);
    let mut file = rig.fs.open("log.1").expect("open");
    file.write_at(3_000, &[1; 500]).expect("write");
    drop(file);
    rig.crash(rig.now(), Crash::Kill);
    let mut rng = Seeds::new(1).stream("rot", 1);
    assert_eq!(
        rig.disk.borrow_mut().bit_rot(LogEnd::Recorded, &mut rng),
        None,
        "the last write is in the page cache"
    );
}

#[test]
fn log_end_may_have_bit_rot_if_state_file_was_written_later() {
    let write = |rig: &Rig, name: &str| {
        let mut file = rig.fs.open(name).expect("open");
        file.write_at(3_000, &[1; 500]).expect("write");
        file.sync().expect("sync");
    };
    // Offset of the first damaged byte of the log, if it was damaged.
    let rotten_at = |rig: &Rig, seed: u64| {
        rig.crash(LATER, Crash::Kill);
        let mut rng = Seeds::new(seed).stream("rot", 1);
        rig.disk.borrow_mut().bit_rot(LogEnd::Unknown, &mut rng).expect("there is something");
        rig.crash(LATER, POWER);
        rig.content("log.1").expect("it is there").iter().position(|byte| *byte != 1)
    };
    let mut ends = 0;
    for seed in 0..200 {
        let rig = rig(seed);
        rig.durable("log.1", 3_000);
        rig.durable("state", 3_000);
        write(&rig, "log.1");
        write(&rig, "state");
        let at = rotten_at(&rig, seed);
        ends += u32::from(at.is_some_and(|at| at >= 3_000));

        write(&rig, "log.1");
        assert!(
            rotten_at(&rig, seed).is_none_or(|at| at < 3_000),
            "nobody has reported that this was whole"
        );
    }
    assert!((50..150).contains(&ends), "{ends} of 200");
}

/// The last write may be damaged as far as recovery must detect that: a bit after a kill, anything
/// if the end is recorded.
#[test]
fn log_end_has_bit_rot_only_where_recovery_detects_it() {
    let (mut bits, mut cuts, mut others) = (0, 0, 0);
    for seed in 0..400 {
        let rig = rig(seed);
        rig.durable("log.1", 3_000);
        let mut file = rig.fs.open("log.1").expect("open");
        file.write_at(3_000, &[1; 500]).expect("write");
        file.sync().expect("sync");
        drop(file);
        rig.crash(LATER, Crash::Kill);
        let end = if seed % 2 == 0 { LogEnd::Written } else { LogEnd::Recorded };
        let mut rng = Seeds::new(seed).stream("rot", 1);
        let damage = rig.disk.borrow_mut().bit_rot(end, &mut rng).expect("there is something");
        let content = rig.content("log.1").expect("it is there");
        let changed: Vec<u8> = content.iter().copied().filter(|byte| *byte != 1).collect();
        let is_last = content.len() < 3_500 || content[3_000..].iter().any(|byte| *byte != 1);
        assert_eq!(damage.under_this_boot, is_last && end == LogEnd::Written, "{damage:?}");
        if content.len() < 3_500 {
            assert!(end == LogEnd::Recorded && (3_000..3_500).contains(&content.len()));
            cuts += 1;
        } else if is_last && end == LogEnd::Written {
            assert!(changed.len() == 1 && (changed[0] ^ 1).is_power_of_two(), "{changed:?}");
            bits += 1;
        } else {
            others += 1;
        }
    }
    assert!(bits > 50 && cuts > 10 && others > 100, "{bits} {cuts} {others}");
}

#[test]
fn boot_id_changes_with_power_failure_and_not_with_kill() {
    let rig = rig(1);
    let first = rig.fs.boot_id();
    rig.crash(LATER, Crash::Kill);
    assert_eq!(rig.fs.boot_id(), first);
    rig.crash(LATER, POWER);
    assert_ne!(rig.fs.boot_id(), first);
    let (copy, _) = SimFs::after_power_failure(&rig.disk.borrow(), LATER, Luck::Best);
    assert_ne!(copy.boot_id(), rig.fs.boot_id());
}

#[test]
fn full_snapshot_folder_leaves_room_for_logs() {
    let (mut no_room, mut no_descriptor) = (0, 0);
    for seed in 0..60 {
        let rig = rig(seed);
        let snapshots = SimFs::new(&rig.disk, FolderId::Snapshots);
        let mut rng = Seeds::new(seed).stream("trouble", 1);
        let now = rig.now();
        let mut disk = rig.disk.borrow_mut();
        assert!(inject(&mut disk, Fault::DiskSnapshotsFull, &mut rng, now));
        let until = disk.faults.until(Fault::DiskSnapshotsFull).expect("it ends by itself");
        drop(disk);
        let write = |fs: &SimFs, name: &str| {
            fs.create(name).and_then(|mut file| file.write_at(0, &[1; 6_000]))
        };
        write(&rig.fs, "log.1").expect("there is room for logs");
        match write(&snapshots, "snapshot.1") {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => no_room += 1,
            Err(error) => no_descriptor += u32::from(error.raw_os_error() == Some(24)),
            Ok(()) => panic!("there was room"),
        }
        assert_eq!(rig.disk.borrow().failed(), None, "the disk is well");
        rig.disk.borrow_mut().take_ops();
        rig.disk.borrow_mut().begin(until);
        write(&snapshots, "snapshot.2").expect("there is room again");
    }
    assert!(no_room > 20 && no_descriptor > 5, "{no_room} {no_descriptor}");
}

#[test]
fn sampled_power_failure_is_the_worst_or_the_best() {
    let rig = rig(5);
    rig.durable("a", 10);
    let mut file = rig.fs.open("a").expect("open");
    file.write_at(0, &[2; 10]).expect("write");
    drop(rig.fs.create("b").expect("create"));
    let now = rig.now();
    for (luck, names, byte) in [(Luck::Worst, 1, 1), (Luck::Best, 2, 2)] {
        let (log, _) = SimFs::after_power_failure(&rig.disk.borrow(), now, luck);
        assert_eq!(log.list().expect("list").len(), names);
        let mut buffer = [0];
        log.open("a").expect("open").read_at(0, &mut buffer).expect("read");
        assert_eq!(buffer, [byte]);
    }
    drop(file);
    assert_eq!(rig.content("a"), Some(vec![2; 10]), "the disk itself is untouched");
}

#[test]
fn drawn_power_failure_may_restore_any_subset_of_removed_names() {
    let rig = rig(9);
    for name in ["a", "b", "c"] {
        rig.durable(name, 10);
    }
    for name in ["a", "b", "c"] {
        rig.fs.remove(name).expect("there");
    }
    let disk = rig.disk.borrow();
    assert_eq!(disk.unsynced_removals(), 3);
    let left = |seed| {
        let (log, _) = SimFs::after_power_failure(&disk, LATER, Luck::Drawn(seed));
        let mut names = log.list().expect("list");
        names.sort();
        names.concat()
    };
    let found: std::collections::BTreeSet<String> = (0..60).map(left).collect();
    for names in ["", "ac", "abc", "b"] {
        assert!(found.contains(names), "{names:?} is not among {found:?}");
    }
    assert_eq!(left(3), left(3));
}

#[test]
fn folder_lock_is_exclusive_and_released_by_a_crash() {
    let rig = rig(6);
    let lock = rig.fs.lock().expect("free");
    assert_eq!(rig.fs.lock().expect_err("taken").kind(), io::ErrorKind::WouldBlock);
    rig.crash(LATER, Crash::Kill);
    drop(rig.fs.lock().expect("free"));
    drop(lock);
}

#[test]
fn file_without_name_and_handle_is_removed() {
    let rig = rig(7);
    rig.durable("a", 10);
    rig.fs.remove("a").expect("remove");
    rig.fs.sync_dir().expect("sync");
    rig.crash(LATER, POWER);
    assert_eq!((rig.disk.borrow().file_count(), rig.disk.borrow().handle_count()), (0, 0));
}

#[test]
fn removed_file_is_kept_while_a_name_may_reappear() {
    let rig = rig(8);
    let files = || {
        rig.disk.borrow_mut().take_ops();
        let now = rig.now();
        rig.disk.borrow_mut().begin(now);
        rig.disk.borrow().file_count()
    };
    rig.durable("a", 10);
    rig.durable("b", 10);
    let held = rig.fs.open("b").expect("open");
    rig.fs.rename("a", "b").expect("rename");
    assert_eq!(files(), 2, "after a power failure both names may be back");
    rig.fs.sync_dir().expect("sync");
    assert_eq!(files(), 2, "one has no name, but a handle");
    drop(held);
    rig.fs.remove("b").expect("remove");
    assert_eq!(files(), 2, "a power failure may bring the other back");
    rig.fs.sync_dir().expect("sync");
    assert_eq!(files(), 0);
}
