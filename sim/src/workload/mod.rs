//! A workload of the user: programs on the client's handle, and the judge of what they report.
//!
//! Owns the interface for users, whose guide is `docs/simulator/workload.md`; `custom` hides the
//! types of a workload from the other rooms. Must not run programs, which their clients do, nor
//! call the judge, which the checker does.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! use sim::workload::{Judge, Reported, Truth, User, Workload};
//! use zabkeeper_client::recipes::Counter;
//!
//! struct Rising;
//!
//! impl Workload for Rising {
//!     type Report = i64;
//!
//!     fn command(&self) -> &'static str {
//!         "cargo run -p my-package --bin rising"
//!     }
//!
//!     fn promise(&self) -> &'static str {
//!         "no two additions make the same value"
//!     }
//!
//!     fn program(&self, mut user: User<i64>) -> impl Future<Output = ()> + Send + 'static {
//!         async move {
//!             let mut counter = Counter::new(&user.client, "/rising");
//!             loop {
//!                 user.pause(Duration::from_millis(400)).await;
//!                 match counter.add(1).await {
//!                     Ok(value) => user.report(value),
//!                     Err(error) if error.is_fatal() => return,
//!                     Err(_) => {}
//!                 }
//!             }
//!         }
//!     }
//!
//!     fn judge(&self) -> impl Judge<i64> + 'static {
//!         Values::default()
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Values(std::collections::BTreeSet<i64>);
//!
//! impl Judge<i64> for Values {
//!     fn hear(&mut self, told: &Reported<'_, i64>, _: &Truth<'_>) -> Result<(), String> {
//!         let twice = || format!("client {} makes {} again", told.client.0, told.report);
//!         self.0.insert(*told.report).then_some(()).ok_or_else(twice)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     sim::run::main_with(Rising)
//! }
//! ```

mod custom;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use zabkeeper_client::Client;

pub use crate::check::judge::{Judge, Reported, Truth};
pub use crate::check::observe::ClientId;
pub use crate::engine::seed::Rng;
pub use custom::Custom;

pub(crate) use custom::Mailbox;

use crate::check::judge::Said;

/// Programs, and the promise that they keep to their users.
///
/// A run has its own judge, and runs do not share anything: a workload is the same for all runs of
/// a batch, on all threads. [`run::main_with`](crate::run::main_with) is the command line of a
/// workload, [`Custom`] the form in which a [`Job`](crate::run::job::Job) takes it.
pub trait Workload: Send + Sync + 'static {
    /// What its programs report. A run's trace has it as `Debug` prints it, so that text must not
    /// differ between two runs of a seed.
    type Report: fmt::Debug + Send + 'static;

    /// The command that starts this workload, without `--` and flags, as
    /// `cargo run -p sim --example naive_lock`. `REPRO` lines begin with it; in a build with the
    /// release profile they add `--release` to `cargo run`.
    fn command(&self) -> &'static str;

    /// The promise that the judge checks, as a sentence. Reports print it beside the id `WORKLOAD`.
    fn promise(&self) -> &'static str;

    /// A program of one client. It begins with a new session; when the session ends, the simulator
    /// drops the future at any of its awaits, and the client begins again with a new session and a
    /// new program. The same happens after the future returns.
    ///
    /// A program waits only for its client: [`User::pause`], [`Client::sleep`], calls, watches,
    /// recipes. It draws from [`User::rng`] only, and uses no clock, thread or file: otherwise a
    /// seed has more than one run. A panic fails the run.
    fn program(&self, user: User<Self::Report>) -> impl Future<Output = ()> + Send + 'static;

    /// The judge of one run.
    fn judge(&self) -> impl Judge<Self::Report> + 'static;

    /// The number of clients that run the program; the other clients of the run make random calls
    /// on nodes of their own. A run with fewer clients has as many programs.
    fn programs(&self) -> u32 {
        4
    }

    /// Whether the report shows that its program gets on. After the faults each client must report
    /// something like that within the time that recovery may take; otherwise the run fails with L2.
    fn is_progress(&self, report: &Self::Report) -> bool {
        let _ = report;
        true
    }
}

/// What a program has.
#[derive(Debug)]
pub struct User<R> {
    /// The handle of its session. It runs without tokio, in virtual time.
    pub client: Client,
    /// Its random numbers, determined by the seed of the run, the client and the session.
    pub rng: Rng,
    /// Its way to the judge.
    pub reporter: Reporter<R>,
}

impl<R: fmt::Debug + Send + 'static> User<R> {
    /// Tells the judge.
    pub fn report(&self, report: R) {
        self.reporter.report(report);
    }

    /// Waits for a random time from 0 to `most`, in milliseconds of virtual time.
    pub async fn pause(&mut self, most: Duration) {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let time = Duration::from_millis(self.rng.range(0, most));
        self.client.sleep(time).await;
    }
}

/// The way of one program to the judge, for the parts of a program that lack its [`User`].
pub struct Reporter<R> {
    mailbox: Mailbox,
    reports: PhantomData<fn(R)>,
}

impl<R: fmt::Debug + Send + 'static> Reporter<R> {
    /// Tells the judge. Virtual time stands still until the program waits, so the judge sees the
    /// state at this moment, and reports come in this order.
    pub fn report(&self, report: R) {
        self.mailbox.put(Said::Report(Box::new(report)));
    }
}

impl<R> Clone for Reporter<R> {
    fn clone(&self) -> Reporter<R> {
        Reporter { mailbox: self.mailbox.clone(), reports: PhantomData }
    }
}

impl<R> fmt::Debug for Reporter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}
