//! Workloads of a user: the examples, and what a program or a judge may do wrong.

use sim::record::trace::TraceSink;
use sim::run::determinism;
use sim::run::job::{self, Job};
use sim::workload::{Custom, Judge, Reported, Truth, User, Workload};
use sim::world::options::Profile;
use zabkeeper_client::CreateMode;

use crate::{assert_passed, run};

#[path = "../../examples/right_lock.rs"]
#[expect(dead_code, reason = "its `main`")]
mod right_lock;

use right_lock::RightLock;
use right_lock::naive_lock::NaiveLock;

/// A job of ten virtual seconds with this workload.
fn job_of(seed: u64, profile: Profile, workload: impl Workload) -> Job {
    let mut job = crate::job(seed, profile, "", 10);
    job.pinned.custom = Some(Custom::new(workload));
    job
}

/// A seed of the default profile with which two programs hold the naive lock.
const NAIVE: u64 = 1;

#[test]
fn naive_lock_fails_with_the_same_run_each_time() {
    let job = job_of(NAIVE, Profile::Default, NaiveLock);
    let (first, again) = (run(&job), determinism::check(&job));
    let failure = first.outcome.failure.as_ref().expect("two programs hold the lock");
    assert_eq!(failure.id, "WORKLOAD");
    assert!(failure.sentence.starts_with("at most one program"), "{failure}");
    assert!(failure.evidence[0].contains("takes the lock, and client "), "{failure}");
    assert_eq!(again.outcome.failure, first.outcome.failure);
    assert_eq!(again.outcome.hash, first.outcome.hash);

    let (_, schedule) = job.record(TraceSink::Off);
    let replayed = job::replay(&schedule, TraceSink::Off, false);
    assert_eq!(replayed.outcome.hash, first.outcome.hash);
    assert_eq!(replayed.job.pinned.custom, job.pinned.custom);
}

#[test]
fn right_lock_passes_the_same_judge() {
    for seed in NAIVE..NAIVE + 8 {
        let report = determinism::check(&job_of(seed, Profile::Default, RightLock));
        assert_passed(&report);
        let judged = report.outcome.checks.iter().find(|(id, _)| *id == "WORKLOAD");
        assert!(judged.is_some_and(|(_, count)| *count > 10), "seed {seed}: {judged:?}");
    }
}

/// Which part of a workload is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    ProgramPanics,
    JudgePanics,
    End,
    Silence,
}

struct Faulty(Fault);

impl Workload for Faulty {
    type Report = &'static str;

    fn command(&self) -> &'static str {
        "cargo run -p sim"
    }

    fn promise(&self) -> &'static str {
        "nothing is at fault"
    }

    fn program(&self, mut user: User<&'static str>) -> impl Future<Output = ()> + Send + 'static {
        let fault = self.0;
        async move {
            user.pause(std::time::Duration::from_millis(400)).await;
            // It returns, and its client begins again with a new session.
            let node = user.client.create("/node", "", CreateMode::Persistent).await;
            if node.is_err_and(|error| error.is_fatal()) {
                return;
            }
            assert!(fault != Fault::ProgramPanics, "it gives up");
            user.report("a step");
        }
    }

    fn judge(&self) -> impl Judge<&'static str> + 'static {
        FaultyJudge(self.0)
    }

    fn programs(&self) -> u32 {
        2
    }

    fn is_progress(&self, _: &&'static str) -> bool {
        self.0 != Fault::Silence
    }
}

struct FaultyJudge(Fault);

impl Judge<&'static str> for FaultyJudge {
    fn hear(&mut self, told: &Reported<'_, &'static str>, _: &Truth<'_>) -> Result<(), String> {
        assert_eq!(*told.report, "a step");
        assert!(self.0 != Fault::JudgePanics, "it has enough");
        Ok(())
    }

    fn finish(&mut self, truth: &Truth<'_>) -> Result<(), String> {
        assert_eq!(truth.data("/node"), Some(&b""[..]));
        assert!(truth.paths().any(|path| path == "/node") && truth.data("/other").is_none());
        if self.0 == Fault::End { Err("the end is bad".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn faults_of_programs_and_judges_fail_the_run() {
    let failed = |fault| {
        let failure = run(&job_of(3, Profile::Calm, Faulty(fault))).outcome.failure?;
        Some((failure.id, failure.class.exit_code(), failure.evidence[0].clone()))
    };
    assert_eq!(failed(Fault::Nothing), None);
    let said = |fault, part: &str| {
        let (id, code, evidence) = failed(fault).expect("it is at fault");
        assert_eq!((id, code), ("WORKLOAD", 1));
        assert!(evidence.contains(part), "{evidence}");
    };
    said(Fault::ProgramPanics, "panics: it gives up at ");
    said(Fault::JudgePanics, "the judge panics: it has enough at ");
    said(Fault::End, "the end is bad");
    let (id, code, evidence) = failed(Fault::Silence).expect("no program gets on");
    assert_eq!((id, code), ("L2", 3), "{evidence}");
}

#[test]
fn muted_promise_of_a_workload_does_not_fail_the_run() {
    let mut job = job_of(3, Profile::Calm, Faulty(Fault::End));
    job.pinned.without = vec!["WORKLOAD".to_owned()];
    assert_passed(&run(&job));
}
