//! The result of shrinking as a list of steps.
//!
//! Owns its wording. `failure` explains the remaining run like any other.

use std::fmt::Write;

use super::plural;
use crate::engine::clock::clock;
use crate::replay::shrink::Shrunk;

/// Longer schedules are shown without their calls.
const STEPS_SHOWN: usize = 60;

/// The steps of the shrunk schedule, and when they violate which promise.
pub fn shrunk(shrunk: &Shrunk) -> String {
    let Shrunk { schedule, report, before, other, tried, ended } = shrunk;
    let end = if *ended {
        "; its budget ended it (--shrink-budget)"
    } else {
        "; nothing less was found to fail like this"
    };
    let (faults, calls) = schedule.counts();
    let servers = plural(schedule.options.servers.into(), "server");
    let clients = plural(schedule.clients() as u64, "client");
    let always: String =
        report.options.faults.on().map(|fault| format!(", always {fault}")).collect();
    let mut text = format!(
        "\nshrunk    {} faults and {} calls to {faults} and {calls}, in {tried} runs{end}\n\
         with      {servers}, {clients}{always}\n",
        before.0, before.1
    );
    if let Some(seed) = other {
        let _infallible =
            writeln!(text, "of        seed {seed:#x}, which fails in the same way and became less");
    }
    for rule in &schedule.options.rules {
        let _infallible = writeln!(text, "{:>14}  {}", rule.place(), rule.effect);
    }
    // In a long list only the faults are of interest.
    let shows_calls = schedule.steps.len() <= STEPS_SHOWN;
    for step in &schedule.steps {
        if step.act.client().is_some() && !shows_calls {
            continue;
        }
        let who = step.act.client().map_or(String::new(), |client| format!("c{} ", client.0));
        let _infallible = writeln!(text, "{:>14}  {who}{}", clock(step.at), step.effect);
    }
    if !shows_calls {
        let _infallible = writeln!(text, "{:>14}  and {calls} calls, which the schedule lists", "");
    }
    if let Some(failure) = &report.outcome.failure {
        let _infallible = writeln!(text, "{:>14}  {} is broken", clock(failure.at), failure.id);
    }
    text
}
