//! Benchmarks of the simulator: one figure per quantity that users wait for, with a floor and a
//! goal.
//!
//! Owns the workload of each figure, and the table. Unless a figure says otherwise, one world runs
//! at a time, on one core, with all oracles. `job` reads the clocks.

use std::thread;
use std::time::Duration;

use zabkeeper_core::Instant;

use crate::check::observe::ClientId;
use crate::clients::workload::Op;
use crate::engine::decisions::{Act, Step};
use crate::engine::seed::Seeds;
use crate::faults::catalog::Fault;
use crate::record::output::{may_write, print, print_error, write_file};
use crate::record::trace::TraceSink;
use crate::replay::schedule::{self, Schedule};
use crate::run::cli::SpeedFlags;
use crate::run::determinism;
use crate::run::job::{self, Job, Report};
use crate::run::report::Totals;
use crate::run::track::{self, Measured};
use crate::world::World;
use crate::world::options::{Options, Pinned, Profile};

const SERVERS: u32 = 5;
/// Calls per virtual second of the swarm benchmarks.
const SWARM_CALLS: u64 = 50;
/// Time between kills of a leader, ns: enough for an election and a first write.
const LEADERSHIP: u64 = 200_000_000;
const LEADERSHIPS: u64 = 20;
/// Worlds per thread in the scaling benchmark.
const BATCH: u64 = 12;
/// Small, as often in the swarm, because recovery scans the preallocated part of a segment.
const SEGMENT_BYTES: u64 = 64 << 10;
const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

const FLOOR_MISSED: u8 = 1;
const BAD_USAGE: u8 = 2;

/// A measured value with its floor and goal.
struct Figure {
    what: &'static str,
    value: f64,
    unit: &'static str,
    floor: f64,
    goal: f64,
    /// Whether smaller values are better.
    less: bool,
}

impl Figure {
    fn holds(&self, bound: f64) -> bool {
        if self.less { self.value <= bound } else { self.value >= bound }
    }

    fn row(&self) -> String {
        let Figure { what, value, unit, floor, goal, .. } = self;
        let verdict = match (self.holds(*goal), self.holds(*floor)) {
            (true, _) => "goal",
            (false, true) => "floor",
            (false, false) => "MISSED",
        };
        let number = |n: f64| if n < 10.0 { format!("{n:.2}") } else { format!("{n:.0}") };
        let [value, floor, goal] = [*value, *floor, *goal].map(number);
        format!("| {what} | {value}{unit} | {floor}{unit} | {goal}{unit} | {verdict} |\n")
    }
}

/// A name, and the function that measures the figure.
type Measure = (&'static str, fn(Duration) -> Figure);

/// Memory comes first, because the peak memory of a process never decreases.
const FIGURES: [Measure; 10] = [
    ("memory", memory),
    ("events", events),
    ("swarm", compression),
    ("idle", idle),
    ("writes", writes),
    ("elections", elections),
    ("oracles", overhead),
    ("start", start_up),
    ("jobs", scaling),
    ("twice", twice),
];

/// Measures all selected figures. Returns the exit code, 0 if all floors hold.
pub fn main(flags: &SpeedFlags) -> u8 {
    if let Some(name) = flags.only.iter().find(|name| FIGURES.iter().all(|(n, _)| n != name)) {
        let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
        print_error(&format!(
            "speed: no figure is called {name:?}; there are {}\n",
            names.join(", ")
        ));
        return BAD_USAGE;
    }
    let report = may_write("report", flags.report.as_ref());
    if let Err(why) = report.and_then(|()| may_write("track", flags.track.as_ref())) {
        print_error(&format!("speed: {why}\n"));
        return BAD_USAGE;
    }
    let mut text =
        String::from("| figure | measured | floor | goal | |\n| --- | --- | --- | --- | --- |\n");
    print(&text);
    let (mut holds, mut unwritten, mut figures) = (true, false, Vec::new());
    for (name, measure) in FIGURES {
        if flags.only.is_empty() || flags.only.iter().any(|wanted| wanted == name) {
            let figure = measure(flags.time);
            holds &= figure.holds(figure.floor);
            let row = figure.row();
            print(&row);
            text += &row;
            let Figure { value, less, .. } = figure;
            figures.push(track::Figure { name: name.to_owned(), value, less });
        }
    }
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let end = format!("\nOn {cores} cores, {:?} for each figure.\n", flags.time);
    print(&end);
    if let Some(path) = &flags.report
        && let Err(error) = write_file(path, &(text + &end))
    {
        print_error(&format!("speed: {}: {error}\n", path.display()));
        unwritten = true;
    }
    if let Some(path) = &flags.track {
        match Measured::now(cores, figures).track(path) {
            Ok(worse) => {
                holds &= worse.is_empty();
                worse.iter().for_each(|what| print_error(&format!("speed: {what}\n")));
            }
            Err(why) => {
                print_error(&format!("speed: {}: {why}\n", path.display()));
                unwritten = true;
            }
        }
    }
    match (unwritten, holds) {
        (true, _) => BAD_USAGE,
        (false, true) => 0,
        (false, false) => FLOOR_MISSED,
    }
}

fn at_least(what: &'static str, value: f64, unit: &'static str, floor: f64, goal: f64) -> Figure {
    Figure { what, value, unit, floor, goal, less: false }
}

fn at_most(what: &'static str, value: f64, unit: &'static str, floor: f64, goal: f64) -> Figure {
    Figure { what, value, unit, floor, goal, less: true }
}

/// Runs one world after another until they have used this much CPU time.
fn repeat(time: Duration, one: impl Fn(u64) -> Report) -> impl Iterator<Item = Report> {
    let mut spent = 0;
    (1..).map_while(move |n| {
        if u128::from(spent) >= time.as_nanos() {
            return None;
        }
        let report = one(n);
        spent += report.cpu_ns;
        Some(report)
    })
}

/// A job with its options.
type Cast = (Job, Options);

fn cast(seed: u64, profile: Profile, clients: Option<u32>, seconds: u64) -> Cast {
    let duration = Some(Duration::from_secs(seconds));
    let pinned = Pinned { duration, clients, servers: Some(SERVERS), ..Pinned::default() };
    let options = Options::draw(Seeds::new(seed), profile, &pinned);
    (Job { seed, profile, pinned }, options)
}

fn swarm_job(seed: u64) -> Cast {
    let mut cast = cast(seed, Profile::Swarm, None, 60);
    cast.1.workload.calls_per_second = SWARM_CALLS;
    cast
}

/// `watched` of false disables oracles and trace.
fn run((job, options): Cast, watched: bool) -> Report {
    let seeds = Seeds::new(job.seed);
    job::measured(job, options, |options| {
        let world = World::new(seeds, options, TraceSink::Off, false);
        if watched { world } else { world.unwatched() }
    })
}

fn totals(reports: impl Iterator<Item = Report>) -> Totals {
    let mut totals = Totals::default();
    reports.for_each(|report| totals.add(&report));
    totals
}

/// Count per CPU second.
fn rate(count: u64, cpu_ns: u64) -> f64 {
    ratio(count, cpu_ns) * 1e9
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn swarm(time: Duration) -> impl Iterator<Item = Report> {
    repeat(time, |n| run(swarm_job(n), true))
}

fn events(time: Duration) -> Figure {
    let of = totals(swarm(time));
    at_least("events per CPU second, `swarm`", rate(of.events, of.cpu_ns), "", 0.7e6, 2e6)
}

fn compression(time: Duration) -> Figure {
    let mut ratios: Vec<f64> =
        swarm(time).map(|report| ratio(report.outcome.ended.0, report.cpu_ns)).collect();
    ratios.sort_by(f64::total_cmp);
    let what = "virtual s per CPU s, `swarm`, median run, 50 calls a second";
    at_least(what, ratios[ratios.len() / 2], "", 300.0, 1_500.0)
}

fn idle(time: Duration) -> Figure {
    let of = totals(repeat(time, |n| run(cast(n, Profile::Calm, Some(0), 3_600), true)));
    let what = "virtual s per CPU s, idle healthy ensemble";
    at_least(what, ratio(of.virtual_ns, of.cpu_ns), "", 20_000.0, 100_000.0)
}

fn writes(time: Duration) -> Figure {
    let of = totals(repeat(time, |n| run(cast(n, Profile::Perf, None, 5), true)));
    let what = "committed writes per CPU second, `perf`";
    at_least(what, rate(of.counters.counts.commits, of.cpu_ns), "", 50_000.0, 150_000.0)
}

/// Kills each leader soon after its first write.
fn elections(time: Duration) -> Figure {
    let of = totals(repeat(time, |n| {
        let mut options = schedule::plain();
        (options.servers, options.clients) = (SERVERS, 1);
        options.server.segment_bytes = SEGMENT_BYTES;
        options.duration = Duration::from_nanos(SECOND + LEADERSHIPS * LEADERSHIP);
        let step = |at, act| Step {
            at: Instant(at),
            act,
            choices: Vec::new(),
            hit: true,
            effect: String::new(),
        };
        let leadership = |k| {
            let from = SECOND + k * LEADERSHIP;
            let write = Act::Call(ClientId(0), Op::Create);
            [step(from, Act::Inject(Fault::NodeKillLeader)), step(from + LEADERSHIP / 2, write)]
        };
        let steps: Vec<Step> = (0..LEADERSHIPS).flat_map(leadership).collect();
        job::replay(&Schedule::of_run(n, &options, steps), TraceSink::Off, false)
    }));
    let what = "elections per CPU second, each with a first write";
    at_least(what, rate(of.counters.counts.leaderships, of.cpu_ns), "", 2_000.0, 8_000.0)
}

/// Runs the same worlds with and without oracles and trace.
fn overhead(time: Duration) -> Figure {
    let (mut watched, mut bare) = (0, 0);
    let mut seed = 0;
    while u128::from(watched) < time.as_nanos() {
        seed += 1;
        watched += run(swarm_job(seed), true).cpu_ns;
        bare += run(swarm_job(seed), false).cpu_ns;
    }
    let share = 100.0 * (1.0 - ratio(bare, watched));
    at_most("oracles' and trace's share of CPU, `swarm`", share, " %", 45.0, 30.0)
}

/// Drawing the options and building a world, up to its first event.
fn start_up(_: Duration) -> Figure {
    let begun = job::wall_clock();
    for n in 0..20 {
        let (job, options) = swarm_job(n);
        let mut world = World::new(Seeds::new(job.seed), options, TraceSink::Off, false);
        world.first_event();
    }
    let ms = begun.elapsed().as_secs_f64() * 1e3 / 20.0;
    at_most("start to first event", ms, " ms", 5.0, 1.0)
}

/// Swarm worlds, one after another.
fn memory(time: Duration) -> Figure {
    swarm(time).for_each(drop);
    let mib = ratio(job::peak_memory().unwrap_or(0), MIB);
    at_most("peak memory, swarm worlds", mib, " MiB", 64.0, 24.0)
}

/// Compares two threads with one, by wall time.
fn scaling(_: Duration) -> Figure {
    let batch = || (1..=BATCH).for_each(|n| drop(run(swarm_job(n), true)));
    let begun = job::wall_clock();
    batch();
    let alone = begun.elapsed();
    let begun = job::wall_clock();
    thread::scope(|scope| {
        let threads = [scope.spawn(batch), scope.spawn(batch)];
        threads.into_iter().for_each(|thread| thread.join().expect("panics are caught inside"));
    });
    let both = begun.elapsed();
    let each = alone.as_secs_f64() / both.as_secs_f64();
    at_least("speed of each of two threads, by the wall", each, "", 0.85, 0.95)
}

fn twice(time: Duration) -> Figure {
    let jobs = || (1..).map(|n| cast(n, Profile::Default, None, 20).0);
    let (mut once, mut both) = (Duration::ZERO, Duration::ZERO);
    for job in jobs() {
        let begun = job::wall_clock();
        drop(job.run(TraceSink::Off, false));
        once += begun.elapsed();
        let begun = job::wall_clock();
        drop(determinism::check(&job));
        both += begun.elapsed();
        if once >= time / 2 {
            break;
        }
    }
    let factor = both.as_secs_f64() / once.as_secs_f64();
    at_most("cost of a determinism check, in runs, by the wall", factor, "", 2.0, 2.0)
}
