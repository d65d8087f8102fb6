//! Programs that use the client's handle and its recipes, on an executor without threads.
//!
//! Owns the executor, and what programs tell of themselves. Must not know the network: the client
//! that hosts a program does.

pub mod caches;
pub mod meetings;
mod members;
pub mod queues;
mod turns;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use zabkeeper_client::{Client, Engine, Outbox};
use zabkeeper_core::{Instant, Zxid};

use crate::engine::seed::Rng;

/// Longest pause of a program, and longest time for which it holds something, ms.
const PAUSE_MS: u64 = 400;

/// Polls of a program after one input; no more than some hundreds follow from it.
const POLLS_MAX: u32 = 100_000;

/// The leases of the semaphore that programs use.
pub const LEASES: usize = 2;

/// The sessions for which the double barriers of programs wait.
pub const MEMBERS: usize = 2;

/// What all programs of a run use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the recipes")]
pub enum Recipe {
    Lock,
    RwLock,
    Semaphore,
    Counter,
    Queue,
    WorkQueue,
    DoubleBarrier,
    TwoPhaseCommit,
    TreeCache,
    MultiLock,
    Election,
    Barrier,
    Site,
    Group,
    PersistentNode,
    DelayQueue,
    Configuration,
}

impl Recipe {
    /// All of them; a schedule has the position of one.
    pub const ALL: [Recipe; 17] = [
        Recipe::Lock,
        Recipe::RwLock,
        Recipe::Semaphore,
        Recipe::Counter,
        Recipe::Queue,
        Recipe::WorkQueue,
        Recipe::DoubleBarrier,
        Recipe::TwoPhaseCommit,
        Recipe::TreeCache,
        Recipe::MultiLock,
        Recipe::Election,
        Recipe::Barrier,
        Recipe::Site,
        Recipe::Group,
        Recipe::PersistentNode,
        Recipe::DelayQueue,
        Recipe::Configuration,
    ];

    /// The recipe with this name, such as `DoubleBarrier`; case does not count.
    ///
    /// # Errors
    /// There is none: the names of all.
    pub fn parse(name: &str) -> Result<Recipe, String> {
        let is_called = |recipe: &Recipe| format!("{recipe:?}").eq_ignore_ascii_case(name);
        Recipe::ALL.into_iter().find(is_called).ok_or_else(|| {
            let names = Recipe::ALL.map(|recipe| format!("{recipe:?}"));
            format!("recipes are {}", names.join(", "))
        })
    }

    /// The recipe at this position; the first one if there is none.
    pub fn at(position: u64) -> Recipe {
        let position = usize::try_from(position).unwrap_or_default();
        Recipe::ALL.get(position).copied().unwrap_or(Recipe::Lock)
    }
}

/// With whom a holder shares what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// With nobody.
    Alone,
    /// With readers.
    Readers,
    /// With so many that there are [`LEASES`] holders.
    Leases,
}

/// What a program tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It holds this lock with this fencing token.
    Holds(u64, Share, Zxid),
    /// It is about to release this lock, or knows that it has lost it.
    Ends(u64),
    /// It is about to put this item.
    Puts(u64),
    /// The item is to be taken from this time on, by the leader's clock, ms.
    Due(u64, i64),
    /// The item is put.
    Put(u64),
    /// It is about to take an item, or to acknowledge one.
    Takes,
    /// It has taken this item, or none.
    Took(Option<u64>),
    /// It is about to add 1 to the counter.
    Adds,
    /// The counter has this value by that.
    Added(i64),
    /// It is about to enter this barrier.
    Comes(u64),
    /// It has entered.
    Begins(u64),
    /// It is about to leave, or has given the entrance up.
    Leaves(u64),
    /// It has left, after all others.
    Left(u64),
    /// It is about to vote in this transaction for this site: whether to commit.
    Votes(u64, u64, bool),
    /// This vote counts for the site.
    Counts(u64, u64, bool),
    /// It has learned what is decided: whether to commit.
    Decided(u64, bool),
    /// It is about to set this barrier, and to wait before it.
    Closes(u64),
    /// It has passed.
    Passes(u64),
    /// It is about to join the group under this name, or to change its data, to these.
    Joins(u64, u64),
    /// It is a member under this name, with these data.
    Joined(u64, u64),
    /// It is about to leave the group.
    Quits(u64),
    /// It is about to list the members.
    Lists,
    /// There is a member with this name and these data.
    Member(u64, u64),
    /// These were all.
    Listed,
    /// It is about to keep its own node with these data.
    Keeps(u64),
    /// It keeps the node with these data.
    Keeping(u64),
    /// The node is there, with these data.
    Kept(u64),
    /// Its cached value of the configuration has this version, and is this.
    Configured(i32, i64),
    /// Its copy of the subtree is complete up to this zxid, with this digest.
    Cached(Zxid, u64),
}

impl Told {
    /// Does this show that the program gets on?
    pub fn is_progress(self) -> bool {
        match self {
            Told::Holds(..)
            | Told::Put(_)
            | Told::Added(_)
            | Told::Leaves(_)
            | Told::Decided(..)
            | Told::Passes(_)
            | Told::Listed
            | Told::Kept(_)
            | Told::Cached(..) => true,
            Told::Ends(_)
            | Told::Puts(_)
            | Told::Due(..)
            | Told::Takes
            | Told::Took(_)
            | Told::Adds
            | Told::Comes(_)
            | Told::Begins(_)
            | Told::Left(_)
            | Told::Votes(..)
            | Told::Counts(..)
            | Told::Closes(_)
            | Told::Joins(..)
            | Told::Joined(..)
            | Told::Quits(_)
            | Told::Lists
            | Told::Member(..)
            | Told::Keeps(_)
            | Told::Keeping(_)
            | Told::Configured(..) => false,
        }
    }
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
    /// A program that uses the recipe for ever.
    pub fn of(recipe: Recipe, client: Client, rng: Rng) -> Program {
        let told = Arc::new(Mutex::new(Vec::new()));
        let user = User { client, rng, told: told.clone() };
        let future: BoxFuture<'static, ()> = match recipe {
            Recipe::Lock => Box::pin(turns::take_locks(user)),
            Recipe::RwLock => Box::pin(turns::read_and_write(user)),
            Recipe::Semaphore => Box::pin(turns::take_leases(user)),
            Recipe::Counter => Box::pin(queues::count(user)),
            Recipe::Queue => Box::pin(queues::put_and_take(user)),
            Recipe::WorkQueue => Box::pin(queues::put_and_work(user)),
            Recipe::DoubleBarrier => Box::pin(meetings::enter_and_leave(user)),
            Recipe::TwoPhaseCommit => Box::pin(meetings::vote_and_decide(user)),
            Recipe::TreeCache => Box::pin(caches::copy_and_change(user)),
            Recipe::MultiLock => Box::pin(turns::take_several(user)),
            Recipe::Election => Box::pin(turns::lead(user)),
            Recipe::Barrier => Box::pin(meetings::set_and_pass(user)),
            Recipe::Site => Box::pin(meetings::take_part(user)),
            Recipe::Group => Box::pin(members::join_and_list(user)),
            Recipe::PersistentNode => Box::pin(members::keep_a_node(user)),
            Recipe::DelayQueue => Box::pin(queues::put_for_later(user)),
            Recipe::Configuration => Box::pin(queues::configure(user)),
        };
        Program { future: Some(future), woken: Arc::new(Woken(AtomicBool::new(true))), told }
    }

    /// A program that does what this future does, and tells nothing.
    pub fn new(future: BoxFuture<'static, ()>) -> Program {
        Program {
            future: Some(future),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            told: Arc::default(),
        }
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

/// What the code of a program has.
struct User {
    client: Client,
    rng: Rng,
    told: Arc<Mutex<Vec<Told>>>,
}

impl User {
    fn tell(&self, what: Told) {
        self.told.lock().expect("one thread").push(what);
    }

    /// Waits for a drawn time.
    async fn pause(&mut self) {
        let time = self.time();
        self.client.sleep(time).await;
    }

    fn time(&mut self) -> Duration {
        Duration::from_millis(self.rng.below(PAUSE_MS + 1))
    }
}
