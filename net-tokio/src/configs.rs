//! The configuration in force, for the tasks that act on its changes.
//!
//! Owns its way from the event loop to these tasks. Must not act on it.

use std::sync::Arc;

use tokio::sync::watch;
use zabkeeper_core::{EnsembleConfig, Server, Zxid};

/// The event loop's end.
pub(crate) struct ConfigSender {
    sender: watch::Sender<Option<Arc<EnsembleConfig>>>,
    version: Zxid,
}

/// The end of one task. A task that is slow sees the newest configuration only.
#[derive(Clone)]
pub(crate) struct Configs(watch::Receiver<Option<Arc<EnsembleConfig>>>);

/// Both ends.
pub(crate) fn channel() -> (ConfigSender, Configs) {
    let (sender, receiver) = watch::channel(None);
    (ConfigSender { sender, version: Zxid::ZERO }, Configs(receiver))
}

impl ConfigSender {
    /// Sends the configuration in force if a leader has established it and it is a new one.
    pub(crate) fn send_of(&mut self, server: &Server) {
        let Some(config) = server.ensemble_config() else { return };
        if config.version > self.version {
            self.version = config.version;
            self.sender.send_replace(Some(Arc::new(config.clone())));
        }
    }
}

impl Configs {
    /// Waits for a configuration that this task has not seen; for ever once the event loop has
    /// ended.
    pub(crate) async fn next(&mut self) -> Arc<EnsembleConfig> {
        while self.0.changed().await.is_ok() {
            if let Some(config) = &*self.0.borrow_and_update() {
                return Arc::clone(config);
            }
        }
        std::future::pending().await
    }
}
