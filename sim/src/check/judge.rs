//! A user's judge: what it is told of a run, and what it may ask.
//!
//! Owns the form of reports without their types. Must not influence the run, nor read the state of
//! servers: the model knows the truth.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use zabkeeper_core::{Instant, SessionId};

use crate::check::model::Model;
use crate::check::observe::ClientId;

/// A report of a program, with its origin.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a, R> {
    /// Virtual time since the begin of the run, ns.
    pub at: Instant,
    /// The client that runs the program. A client has one program at a time.
    pub client: ClientId,
    /// The session of that program; 0 until a server has accepted it. No other program of the run
    /// has the same.
    pub session: SessionId,
    /// The report.
    pub report: &'a R,
}

/// The truth at the moment of a report: the state after the last transaction that the ensemble has
/// committed, as the reference model computes it. A program, its client library and each server may
/// know less.
#[derive(Clone, Copy)]
pub struct Truth<'a>(&'a Model);

impl<'a> Truth<'a> {
    pub(crate) fn of(model: &'a Model) -> Truth<'a> {
        Truth(model)
    }

    /// Whether the session is alive. Its program learns the end of it later, or never.
    pub fn is_alive(&self, session: SessionId) -> bool {
        self.0.is_alive(session)
    }

    /// The data of a node: `None` if it does not exist; empty if it has no data.
    pub fn data(&self, path: &str) -> Option<&'a [u8]> {
        self.0.node(path).map(|node| node.data.as_deref().unwrap_or_default())
    }

    /// The paths of all nodes, in order.
    pub fn paths(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0.nodes_at(self.0.tip()).map(|(path, _)| path)
    }
}

impl fmt::Debug for Truth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Truth({})", self.0.tip())
    }
}

/// Judges one run by the reports of its programs. It lives as long as the run, and its verdict must
/// follow from what it is told: the simulator repeats runs.
///
/// The first error fails the run. Its text is the evidence; if it names clients as `client 3`, the
/// explanation shows their last events. A panic, as of an `assert!`, counts as an error.
pub trait Judge<R>: Send {
    /// Takes the next report. Reports come in the order in which programs make them.
    ///
    /// # Errors
    /// Says what contradicts the promise.
    fn hear(&mut self, reported: &Reported<'_, R>, truth: &Truth<'_>) -> Result<(), String>;

    /// Judges the whole run, after faults have ended and programs stand still. It is not called for
    /// a run that fails, is stopped early, or ends before its faults are healed (`--profile lite`).
    ///
    /// # Errors
    /// Says what contradicts the promise.
    fn finish(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        let _ = truth;
        Ok(())
    }
}

/// A report of any type.
pub(crate) trait AnyReport: Any + fmt::Debug + Send {}

impl<R: Any + fmt::Debug + Send> AnyReport for R {}

/// The report as the type that its workload has.
pub(crate) fn typed<R: Any>(report: &dyn AnyReport) -> &R {
    let report: &dyn Any = report;
    report.downcast_ref().expect("all reports of a workload have its type")
}

/// What a program leaves for the judge.
#[derive(Debug)]
pub(crate) enum Said {
    Report(Box<dyn AnyReport>),
    /// It has panicked, with this message.
    Panic(String),
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Report(report) => write!(f, "reports {report:?}"),
            Said::Panic(message) => write!(f, "panics: {message}"),
        }
    }
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) at: Instant,
    pub(crate) client: ClientId,
    pub(crate) session: SessionId,
}

/// A judge of reports of any type.
pub(crate) trait AnyJudge: Send {
    fn hear(&mut self, of: Origin, report: &dyn AnyReport, truth: &Truth<'_>)
    -> Result<(), String>;
    fn finish(&mut self, truth: &Truth<'_>) -> Result<(), String>;
}

/// A judge that takes reports of type `R` only.
pub(crate) struct Typed<R, J> {
    judge: J,
    reports: PhantomData<fn(&R)>,
}

impl<R, J> Typed<R, J> {
    pub(crate) fn new(judge: J) -> Typed<R, J> {
        Typed { judge, reports: PhantomData }
    }
}

impl<R: Any, J: Judge<R>> AnyJudge for Typed<R, J> {
    fn hear(
        &mut self,
        of: Origin,
        report: &dyn AnyReport,
        truth: &Truth<'_>,
    ) -> Result<(), String> {
        let Origin { at, client, session } = of;
        self.judge.hear(&Reported { at, client, session, report: typed(report) }, truth)
    }

    fn finish(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        self.judge.finish(truth)
    }
}

/// The judge of a run, with the promise that it checks.
pub(crate) struct Judging {
    pub(crate) promise: &'static str,
    pub(crate) judge: Box<dyn AnyJudge>,
}

impl fmt::Debug for Judging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judging").field("promise", &self.promise).finish_non_exhaustive()
    }
}
