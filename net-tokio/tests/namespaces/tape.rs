//! The recording of all clients, in one order.
//!
//! The lock gives the order: a frame is recorded before it is written, and after it is read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sim::check::history::{Record, Recorded};
use zabkeeper_core::ConnId;

pub(crate) struct Tape {
    began: Instant,
    conns: AtomicU64,
    recorded: Mutex<Vec<Recorded>>,
}

impl Tape {
    pub(crate) fn new() -> Tape {
        Tape { began: Instant::now(), conns: AtomicU64::new(1), recorded: Mutex::default() }
    }

    /// The number of a new connection.
    pub(crate) fn next_conn(&self) -> ConnId {
        ConnId(self.conns.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn record(&self, conn: ConnId, what: Record) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let ns = self.began.elapsed().as_nanos().try_into().expect("a short test");
        recorded.push(Recorded { at: zabkeeper_core::Instant(ns), conn, what });
    }

    /// The recording, when all clients have ended.
    pub(crate) fn take(tape: Arc<Tape>) -> Vec<Recorded> {
        let tape = Arc::into_inner(tape).expect("all clients have ended");
        tape.recorded.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
