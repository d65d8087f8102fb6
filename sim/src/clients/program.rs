//! Programs that use the client's handle and its recipes, on an executor without threads.
//!
//! Owns the programs, what they tell of themselves, and the order in which futures are polled. Must
//! not know the network: the client that hosts a program does.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, select};
use zabkeeper_client::recipes::Lock;
use zabkeeper_client::{Client, Engine, Outbox};
use zabkeeper_core::{Instant, Zxid};

use crate::engine::seed::Rng;

/// Number of locks that the programs contend for.
const LOCKS: u64 = 2;
/// Longest pause between two attempts, and longest time for which a lock is held, ms.
const PAUSE_MS: u64 = 400;

/// Polls of a program after one input; no more than some hundreds follow from it.
const POLLS_MAX: u32 = 100_000;

/// What a program tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It holds this lock with this fencing token.
    Holds(u64, Zxid),
    /// It is about to release this lock, or knows that it has lost it.
    Ends(u64),
}

/// A program, and what it has told.
pub struct Program {
    future: Option<BoxFuture<'static, ()>>,
    woken: Arc<Woken>,
    told: Arc<Mutex<Vec<Told>>>,
}

/// Whether a future of the program or of the engine has been woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Program {
    /// A program that takes and releases locks for ever.
    pub fn of_locks(client: Client, rng: Rng) -> Program {
        let told = Arc::new(Mutex::new(Vec::new()));
        let future = take_locks(client, rng, told.clone()).boxed();
        Program { future: Some(future), woken: Arc::new(Woken(AtomicBool::new(true))), told }
    }

    /// Polls the program and the engine's commands until both wait for an input.
    pub fn run(&mut self, engine: &mut Engine, now: Instant, out: &mut Outbox) {
        let waker = Waker::from(self.woken.clone());
        let cx = &mut Context::from_waker(&waker);
        for _ in 0..POLLS_MAX {
            if let Some(future) = &mut self.future
                && Pin::new(future).poll(cx).is_ready()
            {
                self.future = None;
            }
            let commands = engine.poll_commands(now, cx, out).is_ready();
            let woken = self.woken.0.swap(false, Ordering::Relaxed);
            if !commands && !woken || engine.is_over() {
                return;
            }
        }
        panic!("a program or the engine goes on without any input");
    }

    /// What it has told since the last call.
    pub fn take_told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.told.lock().expect("one thread"))
    }
}

async fn take_locks(client: Client, mut rng: Rng, told: Arc<Mutex<Vec<Told>>>) {
    let tell = |what| told.lock().expect("one thread").push(what);
    let mut drawn_ms = move || Duration::from_millis(rng.below(PAUSE_MS + 1));
    loop {
        client.sleep(drawn_ms()).await;
        let number = u64::try_from(drawn_ms().as_millis()).expect("short") % LOCKS;
        let lock = Lock::new(&client, format!("/locks/l{number}"));
        let guard = if number == 0 {
            lock.acquire().await.map(Some)
        } else {
            lock.acquire_within(drawn_ms()).await
        };
        match guard {
            Ok(Some(guard)) => {
                tell(Told::Holds(number, guard.token()));
                {
                    let lost = Box::pin(guard.lost());
                    select(lost, client.sleep(drawn_ms())).await;
                }
                tell(Told::Ends(number));
                if number == 0 {
                    drop(guard);
                } else if guard.release().await.is_err() {
                    return;
                }
            }
            Ok(None) => {}
            Err(error) if error.is_fatal() => return,
            // A server throttles, or the library has enough calls under way.
            Err(_) => {}
        }
    }
}
