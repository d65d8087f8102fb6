//! Performs the steps of one recipe that a script asks for, so that scripts can share locks and
//! queues with other programs, and compare the recipes with those of other libraries.
//!
//! ```text
//! recipe SERVERS RECIPE PATH [COUNT]
//!
//! recipe     steps, one per line of the standard input
//! lock       acquire, release
//! read       acquire, release         a reader of a read/write lock
//! write      acquire, release         a writer of it
//! semaphore  acquire, release         COUNT leases (default 1)
//! election   acquire, release
//! queue      put ITEM, take
//! work       put ITEM, claim, complete, release
//! barrier    set, wait, remove
//! double     enter, leave             COUNT members (default 1)
//! counter    add NUMBER, get
//! group      join NAME, leave, members
//! ```
//!
//! Each step that is done prints one line, such as `holds 0x100000002`; the program ends at the end
//! of the input, and its session with it. A step that fails ends the program with status 1.
//!
//! Owns what this program holds. Must not know what the recipes do.

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use zabkeeper_client::recipes::{
    Barrier, Counter, DoubleBarrier, Election, Group, Inside, Job, Leadership, Lease, Lock,
    LockGuard, Membership, Queue, RwLock, Semaphore, WorkQueue,
};
use zabkeeper_client::{Client, blocking};

const USAGE: &str = "recipe SERVERS RECIPE PATH [COUNT]: see client/examples/recipe.rs";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A recipe, and what this program holds of it.
enum Recipe {
    Lock(Lock, Option<LockGuard>),
    Read(RwLock, Option<LockGuard>),
    Write(RwLock, Option<LockGuard>),
    Semaphore(Semaphore, Option<Lease>),
    Election(Election, Option<Leadership>),
    Queue(Queue),
    Work(WorkQueue, Option<Job>),
    Barrier(Barrier),
    Double(DoubleBarrier, Option<Inside>),
    Counter(Counter),
    Group(Group, Option<Membership>),
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (servers, recipe, path, count) = match &arguments[..] {
        [servers, recipe, path] => (servers, recipe, path, 1),
        [servers, recipe, path, count] => (servers, recipe, path, count.parse()?),
        _ => return Err(USAGE.into()),
    };
    let client = blocking::connect(servers)?;
    let mut recipe = Recipe::new(&client, recipe, path, count)?;
    for line in stdin().lock().lines() {
        let line = line?;
        let (step, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let done = blocking::wait(recipe.step(step, argument))?;
        writeln!(stdout(), "{done}")?;
    }
    drop(recipe);
    blocking::wait(client.close());
    Ok(())
}

impl Recipe {
    fn new(client: &Client, recipe: &str, path: &str, count: usize) -> Result<Recipe> {
        Ok(match recipe {
            "lock" => Recipe::Lock(Lock::new(client, path), None),
            "read" => Recipe::Read(RwLock::new(client, path), None),
            "write" => Recipe::Write(RwLock::new(client, path), None),
            "semaphore" => Recipe::Semaphore(Semaphore::new(client, path, count), None),
            "election" => Recipe::Election(Election::new(client, path, "zabkeeper"), None),
            "queue" => Recipe::Queue(Queue::new(client, path)),
            "work" => Recipe::Work(WorkQueue::new(client, path), None),
            "barrier" => Recipe::Barrier(Barrier::new(client, path)),
            "double" => Recipe::Double(DoubleBarrier::new(client, path, count), None),
            "counter" => Recipe::Counter(Counter::new(client, path)),
            "group" => Recipe::Group(Group::new(client, path), None),
            _ => return Err(USAGE.into()),
        })
    }

    /// Performs a step, and returns what is true now.
    async fn step(&mut self, step: &str, argument: &str) -> Result<String> {
        const RELEASED: &str = "released";
        let idle = || format!("{step}: nothing is held");
        Ok(match (self, step) {
            (Recipe::Lock(lock, held), "acquire") => {
                format!("holds {}", held.insert(lock.acquire().await?).token())
            }
            (Recipe::Read(lock, held), "acquire") => {
                format!("holds {}", held.insert(lock.read().await?).token())
            }
            (Recipe::Write(lock, held), "acquire") => {
                format!("holds {}", held.insert(lock.write().await?).token())
            }
            (Recipe::Lock(_, held) | Recipe::Read(_, held) | Recipe::Write(_, held), "release") => {
                held.take().ok_or_else(idle)?.release().await?;
                RELEASED.to_owned()
            }
            (Recipe::Semaphore(semaphore, held), "acquire") => {
                format!("holds {}", held.insert(semaphore.acquire().await?).token())
            }
            (Recipe::Semaphore(_, held), "release") => {
                held.take().ok_or_else(idle)?.release().await?;
                RELEASED.to_owned()
            }
            (Recipe::Election(election, held), "acquire") => {
                format!("holds {}", held.insert(election.lead().await?).epoch())
            }
            (Recipe::Election(_, held), "release") => {
                held.take().ok_or_else(idle)?.resign().await?;
                RELEASED.to_owned()
            }
            (Recipe::Queue(queue), "put") => {
                queue.put(argument.to_owned()).await?;
                format!("put {argument}")
            }
            (Recipe::Queue(queue), "take") => {
                format!("took {}", String::from_utf8_lossy(&queue.take().await?))
            }
            (Recipe::Work(queue, _), "put") => {
                queue.put(argument.to_owned()).await?;
                format!("put {argument}")
            }
            (Recipe::Work(queue, held), "claim") => {
                let job = held.insert(queue.claim().await?);
                format!("claimed {}", String::from_utf8_lossy(job.item()))
            }
            (Recipe::Work(_, held), "complete") => {
                held.take().ok_or_else(idle)?.complete().await?;
                "completed".to_owned()
            }
            (Recipe::Work(_, held), "release") => {
                drop(held.take().ok_or_else(idle)?);
                RELEASED.to_owned()
            }
            (Recipe::Barrier(barrier), "set") => {
                barrier.set().await?;
                "set".to_owned()
            }
            (Recipe::Barrier(barrier), "wait") => {
                barrier.wait().await?;
                "passed".to_owned()
            }
            (Recipe::Barrier(barrier), "remove") => {
                barrier.remove().await?;
                "removed".to_owned()
            }
            (Recipe::Double(barrier, inside), "enter") => {
                *inside = Some(barrier.enter().await?);
                "entered".to_owned()
            }
            (Recipe::Double(_, inside), "leave") => {
                inside.take().ok_or_else(idle)?.leave().await?;
                "left".to_owned()
            }
            (Recipe::Counter(counter), "add") => {
                format!("is {}", counter.add(argument.parse()?).await?)
            }
            (Recipe::Counter(counter), "get") => format!("is {}", counter.get().await?),
            (Recipe::Group(group, member), "join") => {
                *member = Some(group.join(argument, "").await?);
                format!("joined {argument}")
            }
            (Recipe::Group(_, member), "leave") => {
                member.take().ok_or_else(idle)?.leave().await?;
                "left".to_owned()
            }
            (Recipe::Group(group, _), "members") => {
                let names = group.members().await?.into_keys().collect::<Vec<_>>();
                format!("members {}", names.join(" "))
            }
            (_, step) => return Err(format!("this recipe has no step \"{step}\"").into()),
        })
    }
}
