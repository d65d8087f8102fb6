//! The way from the admin server's thread to the thread that serves clients, and back.
//!
//! Owns the channel, its bounds, and the facts that the process adds. Must not interpret them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::{Notify, mpsc, oneshot};
use zabkeeper_core::driver::Driver;
use zabkeeper_core::driver::admin::{AdminCommand, AdminFacts, AdminQuestion, AdminReply};
use zabkeeper_core::driver::four_letter::{DiskUse, FourLetterOptions};
use zabkeeper_core::{Now, Server};

use crate::config::Settings;
use crate::facts;

/// Questions that wait for the serving thread.
const QUESTIONS: usize = 16;

/// Questions that are answered between two turns of the serving thread.
const AT_ONCE: usize = 4;

/// How long the admin server waits for an answer: longer than any turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question, and where its answer goes.
pub(crate) struct Ask {
    question: AdminQuestion,
    reply: oneshot::Sender<AdminReply>,
}

/// The end of the serving thread.
pub(crate) type Asks = mpsc::Receiver<Ask>;

/// The end of the admin server's thread.
#[derive(Clone)]
pub(crate) struct Asker {
    sender: mpsc::Sender<Ask>,
    wake: Arc<Notify>,
}

/// Both ends; `wake` wakes the serving thread.
pub(crate) fn channel(wake: Arc<Notify>) -> (Asker, Asks) {
    let (sender, asks) = mpsc::channel(QUESTIONS);
    (Asker { sender, wake }, asks)
}

/// Answers some of the questions.
pub(crate) fn answer(asks: &mut Asks, driver: &mut Driver, server: &Server, now: Now) {
    for _ in 0..AT_ONCE {
        let Ok(Ask { question, reply }) = asks.try_recv() else { return };
        // The requester may have gone.
        if !reply.is_closed() {
            let _gone = reply.send(driver.answer_admin(question, server, now));
        }
    }
}

impl Asker {
    /// Asks, and waits for the answer; `None` if the serving thread has not answered in time.
    pub(super) async fn ask(&self, question: AdminQuestion) -> Option<AdminReply> {
        let (reply, answer) = oneshot::channel();
        let ask = async {
            self.sender.send(Ask { question, reply }).await.ok()?;
            self.wake.notify_one();
            answer.await.ok()
        };
        tokio::time::timeout(PATIENCE, ask).await.ok().flatten()
    }
}

/// What the process knows and answers contain.
#[derive(Clone)]
pub(super) struct Facts {
    pub(super) options: FourLetterOptions,
    snapshots: PathBuf,
    log: PathBuf,
}

impl Facts {
    pub(super) fn of(settings: &Settings) -> Facts {
        Facts {
            options: facts::options(settings),
            snapshots: settings.snapshot_folder(),
            log: settings.log_folder(),
        }
    }

    /// Bytes that are free on the disk of the log, if the system says so.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.log).ok()?;
        disk.f_bavail.checked_mul(disk.f_frsize)
    }

    /// The facts that the answer to this command contains.
    pub(super) async fn collect(&self, command: AdminCommand, trace_mask: i64) -> AdminFacts {
        let mut collected = AdminFacts { trace_mask, ..AdminFacts::default() };
        let prints_sizes = [AdminCommand::Dirs, AdminCommand::ServerStats, AdminCommand::Stats];
        if prints_sizes.contains(&command) {
            let dirs = [self.snapshots.clone(), self.log.clone()];
            let sizes = move || dirs.map(|dir| facts::bytes_in(&dir));
            if let Ok([snapshots, log]) = tokio::task::spawn_blocking(sizes).await {
                collected.disk = DiskUse { snapshots, log };
            }
        } else if command == AdminCommand::LastSnapshot {
            let dir = self.snapshots.clone();
            let newest = tokio::task::spawn_blocking(move || newest_snapshot(&dir)).await;
            collected.snapshot_at = newest.unwrap_or_default();
        } else if command == AdminCommand::Monitor {
            collected.descriptors = facts::descriptors();
        }
        collected
    }
}

/// When the newest snapshot in this directory was written, seconds since 1970; 0 without one.
fn newest_snapshot(dir: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let is_snapshot = |name: &str| name.starts_with("snapshot.") && !name.contains(".tmp");
    let snapshots =
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_snapshot));
    let written = snapshots.filter_map(|entry| entry.metadata().ok()?.modified().ok());
    written
        .filter_map(|at| at.duration_since(UNIX_EPOCH).ok())
        .map(|since| since.as_secs())
        .max()
        .unwrap_or_default()
}
