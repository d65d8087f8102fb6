//! The deletions that dropped values have left to the driver.
//!
//! Owns the list of those that have not ended. Must not carry them out.

use std::sync::{Mutex, MutexGuard};

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared, join_all};

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Deletions(Mutex<Vec<Deletion>>);

#[derive(Debug)]
struct Deletion {
    path: String,
    ended: Shared<oneshot::Receiver<()>>,
}

impl Deletions {
    /// Notes the deletion of a node. It ends when the sender is used, or dropped.
    pub(super) fn begin(&self, path: String) -> oneshot::Sender<()> {
        let (sender, ended) = oneshot::channel();
        let mut deletions = self.lock();
        deletions.retain(|other| !other.has_ended());
        deletions.push(Deletion { path, ended: ended.shared() });
        sender
    }

    /// Waits until all deletions of this node's children that have begun have ended.
    pub(super) fn ended_under(&self, parent: &str) -> impl Future<Output = ()> + use<> {
        let is_child = |path: &str| path.rsplit_once('/').is_some_and(|(of, _)| of == parent);
        let deletions = self.lock();
        let awaited = deletions.iter().filter(|deletion| is_child(&deletion.path));
        join_all(awaited.map(|deletion| deletion.ended.clone()).collect::<Vec<_>>()).map(|_| ())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Deletion>> {
        self.0.lock().expect("no code that holds it panics")
    }
}

impl Deletion {
    fn has_ended(&self) -> bool {
        self.ended.clone().now_or_never().is_some()
    }
}
