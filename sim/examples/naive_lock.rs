//! A naive lock, and a judge that finds its fault within seconds:
//!
//! ```text
//! cargo run -p sim --example naive_lock -- --for 20s
//! ```
//!
//! The example `right_lock` shows that the lock of the client library passes the same judge. The
//! guide to workloads is `docs/simulator/workload.md`.

use std::process::ExitCode;
use std::time::Duration;

use sim::workload::{ClientId, Judge, Reported, Truth, User, Workload};
use zabkeeper_client::{Client, CreateMode, Error, ErrorCode, SessionId};

/// Longest pause between two turns, and longest turn.
pub(crate) const PAUSE: Duration = Duration::from_millis(400);
/// How often the naive lock tries to take a lock that others hold.
const RETRY: Duration = Duration::from_millis(50);

/// What a program reports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    /// It holds the lock.
    Holds,
    /// It is about to release the lock.
    Releases,
}

/// Programs that take turns with a naive lock: an ephemeral node, which its holder has created.
pub(crate) struct NaiveLock;

impl Workload for NaiveLock {
    type Report = Turn;

    fn command(&self) -> &'static str {
        "cargo run -p sim --example naive_lock"
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
    const PATH: &str = "/naive-lock";
    loop {
        user.pause(PAUSE).await;
        if acquire(&user.client, PATH).await.is_err() {
            return;
        }
        user.report(Turn::Holds);
        user.pause(PAUSE).await;
        user.report(Turn::Releases);
        if release(&user.client, PATH).await.is_err() {
            return;
        }
    }
}

/// Waits until the node is created. Fails only when the session has ended.
async fn acquire(client: &Client, path: &str) -> Result<(), Error> {
    let mut is_retry = false;
    loop {
        match client.create(path, "", CreateMode::Ephemeral).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_fatal() => return Err(error),
            // The fault: the last attempt lost its connection, so the node "must be" our own.
            Err(error) if error.is(ErrorCode::NodeExists) && is_retry => return Ok(()),
            Err(error) => is_retry = error.is_recoverable(),
        }
        client.sleep(RETRY).await;
    }
}

/// Deletes the node of this session. Fails only when the session has ended.
async fn release(client: &Client, path: &str) -> Result<(), Error> {
    loop {
        let deleted = match client.exists(path).await {
            Ok(Some(node)) if node.ephemeral_owner == client.session_id() => {
                client.delete(path, None).await
            }
            Ok(Some(_) | None) => return Ok(()),
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => return Ok(()),
            Err(error) if error.is_fatal() => return Err(error),
            Err(_) => client.sleep(RETRY).await,
        }
    }
}

/// What both examples promise.
pub(crate) const ONE_HOLDER: &str = "at most one program whose session is alive holds the lock";

/// Judges mutual exclusion.
#[derive(Default)]
pub(crate) struct OneHolder {
    /// Those that have said `Holds` and not `Releases`.
    holders: Vec<(ClientId, SessionId)>,
}

impl Judge<Turn> for OneHolder {
    fn hear(&mut self, told: &Reported<'_, Turn>, truth: &Truth<'_>) -> Result<(), String> {
        let taker = (told.client, told.session);
        // No lock can prevent that a program learns late of the end of its session, and that
        // others hold the lock by then: it takes a fencing token to tell them apart.
        self.holders.retain(|(_, session)| truth.is_alive(*session));
        match told.report {
            Turn::Releases => self.holders.retain(|holder| *holder != taker),
            Turn::Holds if truth.is_alive(told.session) => {
                if let Some((holder, session)) = self.holders.first() {
                    return Err(format!(
                        "client {} takes the lock, and client {} of session {session} holds it",
                        told.client.0, holder.0
                    ));
                }
                self.holders.push(taker);
            }
            Turn::Holds => {}
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    sim::run::main_with(NaiveLock)
}
