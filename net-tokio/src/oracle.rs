//! The oracle of two voters: a file that the operator's failure detector writes (QV-03).
//!
//! Owns when the file is read, and what its content means. Must not decide what follows from it:
//! the core does.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::shared::Shared;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_secs(1);

/// A file that takes longer than this to be read says no.
const LONGEST: Duration = Duration::from_secs(5);

/// Reads the file of the settings, if there is one, and tells the driver what it says.
pub(crate) async fn watch(shared: Rc<Shared>) {
    let ensemble = shared.settings.ensemble.as_ref();
    let Some(path) = ensemble.and_then(|ensemble| ensemble.oracle.clone()) else { return };
    let mut before = false;
    let mut says = |permits: bool| {
        if permits != std::mem::replace(&mut before, permits) {
            let (file, may) = (path.display(), if permits { "may" } else { "may not" });
            tracing::info!("{file}: this server {may} go on without the other voter");
            shared.driver().on_oracle(permits);
            shared.wake().notify_one();
        }
    };
    loop {
        // In another thread, because the file system may be a slow one.
        let file = path.clone();
        let mut answer = spawn_blocking(move || permits(&file));
        match timeout(LONGEST, &mut answer).await {
            Ok(permits) => says(permits.unwrap_or(false)),
            Err(_) => {
                tracing::warn!("{}: not read within {LONGEST:?}", path.display());
                says(false);
                // No second read begins while the first one goes on.
                let _too_late = answer.await;
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Does the file begin with `1`? As in ZooKeeper, a missing file does not.
fn permits(path: &Path) -> bool {
    let mut first = [0];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && first == *b"1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_permits_if_it_begins_with_1() {
        let path = std::env::temp_dir().join(format!("zabkeeper-oracle-{}", std::process::id()));
        assert!(!permits(&path), "a missing file");
        for (text, expected) in
            [("1", true), ("1\n", true), ("0", false), ("", false), (" 1", false), ("yes", false)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(permits(&path), expected, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
