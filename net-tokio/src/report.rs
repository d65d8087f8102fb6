//! Collects the figures that four-letter words print.
//!
//! Owns the questions to the hub and to the operating system. Must not know the text: `words` does.

use std::path::Path;
use std::rc::Rc;

use zabkeeper_core::Instant;
use zabkeeper_core::wire::Word;

use crate::shared::Shared;
use crate::words::{self, Descriptors, DiskUse, Figures};

/// The answer to a word.
pub(crate) async fn answer(shared: &Rc<Shared>, word: Word) -> String {
    let Some(status) = shared.status().await else {
        return String::new();
    };
    // Only where it is printed, and away from this thread: the disk may be slow.
    let disk = match word {
        Word::Conf => {
            let folders = [shared.settings.snapshot_folder(), shared.settings.log_folder()];
            let sizes = move || folders.map(|folder| bytes_in(&folder));
            let [snapshots, log] =
                tokio::task::spawn_blocking(sizes).await.expect("a panic aborts the process");
            DiskUse { snapshots, log }
        }
        Word::Envi
        | Word::Isro
        | Word::Mntr
        | Word::Ruok
        | Word::Srvr
        | Word::Stat
        | Word::Other(_) => DiskUse::default(),
    };
    let figures = Figures {
        settings: &shared.settings,
        status: &status,
        traffic: &shared.traffic.borrow(),
        clients: shared.client_lines(),
        uptime: shared.clock.mono().since(Instant::default()),
        disk,
        descriptors: matches!(word, Word::Mntr).then(descriptors).flatten(),
    };
    words::answer(&word, &figures)
}

/// Bytes of all files in a folder; what cannot be read counts nothing.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

/// From Linux's `/proc`; none elsewhere.
fn descriptors() -> Option<Descriptors> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let limit = line.split_whitespace().next()?.parse().ok()?;
    Some(Descriptors { open, limit })
}
