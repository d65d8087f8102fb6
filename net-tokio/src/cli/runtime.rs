//! The runtime of the client: one thread that drives the session while the user thinks.
//!
//! Owns that thread. Must not know what runs on it.

use std::io;
use std::thread::JoinHandle;

use futures::channel::oneshot;
use tokio::runtime::{Builder, Handle};

/// See the module. Dropping it ends the thread.
pub(crate) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start() -> io::Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("session".to_owned()).spawn(move || {
            // Both a message and a dropped sender end the thread.
            let _stopped = runtime.block_on(stopped);
        })?;
        Ok(Runtime { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs a future on the calling thread, while the other one drives sockets and timers.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _panicked = thread.join();
        }
    }
}
