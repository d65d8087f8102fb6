//! The lock of the client library, with the judge that finds the fault of `naive_lock`:
//!
//! ```text
//! cargo run -p sim --example right_lock -- --for 20s
//! ```

use std::process::ExitCode;

use sim::workload::{Judge, User, Workload};
use zabkeeper_client::recipes::Lock;

#[path = "naive_lock.rs"]
#[expect(dead_code, reason = "its `main`")]
pub(crate) mod naive_lock;

use naive_lock::{ONE_HOLDER, OneHolder, PAUSE, Turn};

/// Programs that take turns with the lock of the client library.
pub(crate) struct RightLock;

impl Workload for RightLock {
    type Report = Turn;

    fn command(&self) -> &'static str {
        "cargo run -p sim --example right_lock"
    }

    fn promise(&self) -> &'static str {
        ONE_HOLDER
    }

    fn program(&self, user: User<Turn>) -> impl Future<Output = ()> + Send + 'static {
        take_turns(user)
    }

    fn judge(&self) -> impl Judge<Turn> + 'static {
        OneHolder::default()
    }
}

async fn take_turns(mut user: User<Turn>) {
    let lock = Lock::new(&user.client, "/right-lock");
    loop {
        user.pause(PAUSE).await;
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) if error.is_fatal() => return,
            Err(_) => continue,
        };
        user.report(Turn::Holds);
        user.pause(PAUSE).await;
        user.report(Turn::Releases);
        if guard.release().await.is_err_and(|error| error.is_fatal()) {
            return;
        }
    }
}

fn main() -> ExitCode {
    sim::run::main_with(RightLock)
}
