//! What every handle may read at any time, without asking the engine.
//!
//! Owns these values, the ids that handles hand out, and the deletions under way. Must not change
//! the session.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use zabkeeper_core::SessionId;

use super::deletions::Deletions;
use crate::session::{Failure, Session, State};

/// See the module. The engine writes, handles read; each value stands for itself.
#[derive(Debug)]
pub(super) struct View {
    state: AtomicU8,
    session: AtomicI64,
    timeout_ms: AtomicU64,
    seed: u128,
    last_id: AtomicU64,
    pub(super) deletions: Deletions,
}

const STATES: [State; 6] = [
    State::Connecting,
    State::Connected,
    State::ConnectedReadOnly,
    State::Expired,
    State::AuthFailed,
    State::Closed,
];

impl View {
    pub(super) fn new(seed: u128) -> View {
        View {
            state: AtomicU8::new(0),
            session: AtomicI64::new(0),
            timeout_ms: AtomicU64::new(0),
            seed,
            last_id: AtomicU64::new(0),
            deletions: Deletions::default(),
        }
    }

    /// The half of the seed that the session gets.
    pub(super) fn session_seed(&self) -> u64 {
        u64::try_from(self.seed >> 64).expect("half of the bits")
    }

    pub(super) fn note(&self, session: &Session) {
        let state = session.state();
        let code = STATES.iter().position(|known| *known == state).unwrap_or_default();
        self.state.store(u8::try_from(code).expect("six states"), Ordering::Release);
        self.session.store(session.id().0, Ordering::Release);
        let timeout = u64::try_from(session.session_timeout().as_millis()).unwrap_or(u64::MAX);
        self.timeout_ms.store(timeout, Ordering::Release);
    }

    pub(super) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    /// Why calls fail whose engine has gone.
    pub(super) fn failure(&self) -> Failure {
        self.state().failure().unwrap_or(Failure::Closed)
    }

    pub(super) fn state(&self) -> State {
        STATES[usize::from(self.state.load(Ordering::Acquire))]
    }

    pub(super) fn session(&self) -> SessionId {
        SessionId(self.session.load(Ordering::Acquire))
    }

    /// An id that no other client and no other call has got, if seeds are different.
    pub(super) fn unique_id(&self) -> u128 {
        let number = u128::from(self.last_id.fetch_add(1, Ordering::Relaxed)) + 1;
        // An odd factor is a bijection: ids of one client differ, and those of two are unrelated.
        self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}
