//! A user's workload without its types, as the other rooms know it.
//!
//! Owns the reports that a program has made and the checker has not read. Must not interpret them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::future::{BoxFuture, poll_fn};
use zabkeeper_client::Client;

use super::{Reporter, User, Workload};
use crate::check::guard;
use crate::check::judge::{AnyReport, Judging, Said, Typed, typed};
use crate::engine::seed::Rng;

/// A user's workload for [`Pinned`](crate::world::options::Pinned). Equal is only a clone.
#[derive(Clone)]
pub struct Custom(Arc<dyn AnyWorkload>);

impl Custom {
    /// This workload.
    pub fn new(workload: impl Workload) -> Custom {
        Custom(Arc::new(workload))
    }

    /// The command that starts it, without flags.
    pub(crate) fn command(&self) -> &'static str {
        self.0.command_text()
    }

    /// The number of clients that run its program.
    pub(crate) fn programs(&self) -> u32 {
        self.0.count()
    }

    /// A judge for one run.
    pub(crate) fn judging(&self) -> Judging {
        self.0.judging()
    }

    /// The program of a client. Its reports come into the mailbox.
    pub(crate) fn start(
        &self,
        client: Client,
        rng: Rng,
        mailbox: &Mailbox,
    ) -> BoxFuture<'static, ()> {
        self.0.start(client, rng, mailbox)
    }

    /// Whether this shows that the program gets on.
    pub(crate) fn is_progress(&self, said: &Said) -> bool {
        match said {
            Said::Report(report) => self.0.shows_progress(&**report),
            Said::Panic(_) => false,
        }
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Custom {}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Custom({})", self.command())
    }
}

/// A workload with reports of any type.
trait AnyWorkload: Send + Sync {
    fn command_text(&self) -> &'static str;
    fn count(&self) -> u32;
    fn judging(&self) -> Judging;
    fn start(&self, client: Client, rng: Rng, mailbox: &Mailbox) -> BoxFuture<'static, ()>;
    fn shows_progress(&self, report: &dyn AnyReport) -> bool;
}

impl<W: Workload> AnyWorkload for W {
    fn command_text(&self) -> &'static str {
        self.command()
    }

    fn count(&self) -> u32 {
        self.programs()
    }

    fn judging(&self) -> Judging {
        let judge = Typed::<W::Report, _>::new(self.judge());
        Judging { promise: self.promise(), judge: Box::new(judge) }
    }

    fn start(&self, client: Client, rng: Rng, mailbox: &Mailbox) -> BoxFuture<'static, ()> {
        let reporter = Reporter { mailbox: mailbox.clone(), reports: PhantomData };
        let mut program = Box::pin(self.program(User { client, rng, reporter }));
        let mailbox = mailbox.clone();
        Box::pin(poll_fn(move |cx| {
            if mailbox.is_paused() {
                return Poll::Pending;
            }
            guard::catch(|| program.as_mut().poll(cx)).unwrap_or_else(|panic| {
                mailbox.put(Said::Panic(panic));
                Poll::Ready(())
            })
        }))
    }

    fn shows_progress(&self, report: &dyn AnyReport) -> bool {
        self.is_progress(typed(report))
    }
}

/// What a program has said since its client last looked, and whether it is to stand still.
#[derive(Clone, Default)]
pub(crate) struct Mailbox(Arc<Letters>);

#[derive(Default)]
struct Letters {
    said: Mutex<Vec<Said>>,
    paused: AtomicBool,
}

impl Mailbox {
    pub(super) fn put(&self, said: Said) {
        self.0.said.lock().expect("one thread").push(said);
    }

    /// What the program has said since the last call.
    pub(crate) fn take(&self) -> Vec<Said> {
        std::mem::take(&mut *self.0.said.lock().expect("one thread"))
    }

    /// The program stands still from now on; its session lives on.
    pub(crate) fn pause(&self) {
        self.0.paused.store(true, Ordering::Relaxed);
    }

    fn is_paused(&self) -> bool {
        self.0.paused.load(Ordering::Relaxed)
    }
}
