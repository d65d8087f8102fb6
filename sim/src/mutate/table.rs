//! The tables of a measurement.
//!
//! Owns medians, their confidence intervals, and the wording.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::look::{Found, Range};

/// The description of a patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Patch {
    pub(super) name: String,
    /// The promises that should detect it, from its header; empty for a control.
    pub(super) seen_by: String,
    /// A control: no promise may fail.
    pub(super) harmless: bool,
    /// The recipe of the programs in its runs, from its header.
    pub(super) recipe: Option<String>,
}

/// The result for a patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Measured {
    /// The search results.
    Ranges(Vec<Range>),
    /// The reason why it was not searched.
    Unfit(String),
}

/// A row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) patch: Patch,
    pub(super) measured: Measured,
    /// Faults and calls, before and after shrinking.
    pub(super) shrunk: Option<[String; 4]>,
    /// For each promise that found it: the results without that promise.
    pub(super) ablated: Vec<(String, Vec<Range>)>,
}

/// The text above the rows.
pub(super) fn head(shrunk: bool) -> String {
    let (title, rule) = if shrunk { (" shrunken to |", " --- |") } else { ("", "") };
    format!(
        "| patch | should be seen by | found | first by | runs | CPU s | between | virtual s \
         |{title}\n\
         | --- | --- | ---: | --- | ---: | ---: | ---: | ---: |{rule}\n"
    )
}

impl Row {
    /// A row as text.
    pub(super) fn line(&self, budget: Duration, shrunk: bool) -> String {
        let Patch { name, seen_by, harmless, .. } = &self.patch;
        let by = if *harmless { "nobody" } else { seen_by };
        let ranges = match &self.measured {
            Measured::Unfit(why) => {
                let first = why.lines().next().unwrap_or_default();
                return format!("| {name} | {by} | - | {first} | | | | |\n");
            }
            Measured::Ranges(ranges) => ranges,
        };
        let found = ranges.iter().filter(|range| range.found.is_some()).count();
        let mut line = format!("| {name} | {by} | {found}/{} | {} |", ranges.len(), ids(ranges));
        let of = |number: fn(&Range) -> u64| median_of(ranges, number);
        let medians = (of(|range| range.runs), of(|r| r.cpu_ns), of(|r| r.virtual_ns));
        if let (Some(runs), Some(cpu), Some(virtual_ns)) = medians {
            let virtual_s = virtual_ns / 1_000_000_000;
            let [from, to] = interval(ranges).map(|cost| seconds(cost, budget));
            let between = if ranges.len() == 1 { String::new() } else { format!("{from} to {to}") };
            let cpu = seconds(Some(cpu), budget);
            let _infallible = write!(line, " {runs} | {cpu} | {between} | {virtual_s} |");
        } else {
            let runs = ranges.iter().map(|range| range.runs).min().unwrap_or(0);
            let _infallible = write!(line, " > {runs} | > {} | | |", budget.as_secs());
        }
        if shrunk {
            let text = self.shrunk.as_ref().map(|[a, b, c, d]| format!("{a}+{b} to {c}+{d}"));
            let _infallible = write!(line, " {} |", text.unwrap_or_default());
        }
        line.push('\n');
        line
    }

    /// Whether the result is as expected.
    pub(super) fn is_well(&self) -> bool {
        match &self.measured {
            Measured::Unfit(_) => false,
            Measured::Ranges(ranges) if self.patch.harmless => {
                ranges.iter().all(|range| range.found.is_none())
            }
            Measured::Ranges(ranges) => median(ranges).is_some(),
        }
    }
}

/// The text below the rows.
pub(super) fn summary(rows: &[Row], budget: Duration) -> String {
    let (controls, mutants): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.patch.harmless);
    let well = |rows: &[&Row]| rows.iter().filter(|row| row.is_well()).count();
    let mut cpu: Vec<u64> = Vec::new();
    let mut spent = 0;
    for row in rows {
        if let Measured::Ranges(ranges) = &row.measured {
            spent += ranges.iter().map(|range| range.cpu_ns).sum::<u64>();
            if !row.patch.harmless {
                cpu.push(median(ranges).unwrap_or(u64::MAX));
            }
        }
    }
    let within = |limit: u64| cpu.iter().filter(|&&ns| ns <= limit * 1_000_000_000).count();
    let ranges = rows.iter().filter_map(|row| match &row.measured {
        Measured::Ranges(ranges) => Some(ranges.len()),
        Measured::Unfit(_) => None,
    });
    let mut text = match ranges.max() {
        None | Some(1) => String::new(),
        Some(ranges) => format!(
            "\nBetween: where the median over all seeds lies, with a confidence of {:.1} %.\n",
            confidence(ranges, bound(ranges)) * 100.0
        ),
    };
    // `.ci/nightly` parses every line after `Silent:` as a patch and its problem, so nothing else
    // may follow.
    let _infallible = write!(
        text,
        "\nFound: {} of {} mutants within {} CPU s in the median, {} within 60 s, {} within 10 s, \
         {} \
         within 1 s.\nSilent: {} of {} controls. All of it took {} CPU s of runs.\n",
        well(&mutants),
        mutants.len(),
        budget.as_secs(),
        within(60),
        within(10),
        within(1),
        well(&controls),
        controls.len(),
        spent / 1_000_000_000
    );
    for row in rows {
        if let Measured::Unfit(why) = &row.measured {
            let _infallible = write!(text, "\n{}: {why}\n", row.patch.name);
        } else if !row.is_well() {
            let what =
                if row.patch.harmless { "is harmless, and was flagged" } else { "was missed" };
            let _infallible = writeln!(text, "{} {what}.", row.patch.name);
        }
    }
    text
}

/// Which promises find each mutant when the ones that found it first are muted.
pub(super) fn ablation(rows: &[Row], budget: Duration) -> String {
    let mut by_id: BTreeMap<&str, Vec<(&Row, &[Range])>> = BTreeMap::new();
    for row in rows {
        for (id, ranges) in &row.ablated {
            by_id.entry(id).or_default().push((row, ranges));
        }
    }
    let mut text = "\n| without | mutant | found | then by | CPU s before | then |\n| --- | --- | \
                    ---: | --- | ---: | ---: |\n"
        .to_owned();
    for (id, mutants) in by_id {
        for (row, ranges) in mutants {
            let found = ranges.iter().filter(|range| range.found.is_some()).count();
            let before = match &row.measured {
                Measured::Ranges(ranges) => median(ranges),
                Measured::Unfit(_) => None,
            };
            let _infallible = writeln!(
                text,
                "| {id} | {} | {found}/{} | {} | {} | {} |",
                row.patch.name,
                ranges.len(),
                ids(ranges),
                seconds(before, budget),
                seconds(median(ranges), budget)
            );
        }
    }
    text
}

/// The promises that found it, the most frequent first.
pub(super) fn ids(ranges: &[Range]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for Found { id, .. } in ranges.iter().filter_map(|range| range.found.as_ref()) {
        match counts.iter_mut().find(|(known, _)| known == id) {
            Some((_, count)) => *count += 1,
            None => counts.push((id, 1)),
        }
    }
    counts.sort_by_key(|(id, count)| (usize::MAX - count, *id));
    match counts.as_slice() {
        [] => "NOT FOUND".to_owned(),
        [(id, _)] => (*id).to_owned(),
        many => many.iter().map(|(id, n)| format!("{id} {n}x")).collect::<Vec<_>>().join(", "),
    }
}

/// Median CPU time to detection, ns, if at least half of the ranges found it.
pub(super) fn median(ranges: &[Range]) -> Option<u64> {
    median_of(ranges, |range| range.cpu_ns)
}

fn median_of(ranges: &[Range], number: fn(&Range) -> u64) -> Option<u64> {
    costs(ranges, number).get((ranges.len().max(1) - 1) / 2).copied().flatten()
}

/// The confidence interval of the median, without assumptions about the distribution of costs.
fn interval(ranges: &[Range]) -> [Option<u64>; 2] {
    let costs = costs(ranges, |range| range.cpu_ns);
    let below = bound(ranges.len());
    [costs[below], costs[costs.len() - 1 - below]]
}

/// How many costs can be dropped at either end, so that the median lies between the others with a
/// confidence of 95 %. With fewer than nine costs none can; with fewer than six the confidence is
/// lower.
fn bound(ranges: usize) -> usize {
    (1..ranges / 2).take_while(|&below| confidence(ranges, below) >= 0.95).last().unwrap_or(0)
}

/// The confidence that the median lies within the costs that remain if this many are dropped at
/// either end: each cost is below the median as often as above.
fn confidence(ranges: usize, below: usize) -> f64 {
    let (mut ways, mut outside) = (1.0, 0.0);
    for less in 0..=below {
        outside += ways;
        ways *= (ranges - less) as f64 / (less + 1) as f64;
    }
    let all = 2.0_f64.powi(i32::try_from(ranges).unwrap_or(i32::MAX));
    (1.0 - 2.0 * outside / all).max(0.0)
}

/// Costs in ascending order; a range without a detection costs more than all others.
fn costs(ranges: &[Range], number: fn(&Range) -> u64) -> Vec<Option<u64>> {
    let cost = |range: &Range| range.found.as_ref().map(|_| number(range));
    let mut costs: Vec<Option<u64>> = ranges.iter().map(cost).collect();
    costs.sort_unstable_by_key(|cost| cost.unwrap_or(u64::MAX));
    costs
}

/// In seconds; without a detection, more than the budget.
fn seconds(ns: Option<u64>, budget: Duration) -> String {
    match ns {
        Some(ns) => format!("{}.{:02}", ns / 1_000_000_000, ns / 10_000_000 % 100),
        None => format!("> {}", budget.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(found: Option<&str>, seconds: u64) -> Range {
        let (runs, cpu_ns) = (seconds, seconds * 1_000_000_000);
        let found = found.map(|id| Found { id: id.to_owned(), seed: 1, forks: String::new() });
        Range { found, runs, cpu_ns, virtual_ns: cpu_ns * 100 }
    }

    fn row(harmless: bool, ranges: Vec<Range>) -> Row {
        let patch = Patch { name: "x".into(), seen_by: "Z1".into(), harmless, recipe: None };
        Row { patch, measured: Measured::Ranges(ranges), shrunk: None, ablated: Vec::new() }
    }

    #[test]
    fn range_of_seeds_without_a_find_costs_more_than_any_other() {
        let ranges = vec![range(None, 60), range(Some("Z1"), 3), range(Some("Z2"), 50)];
        assert_eq!(median(&ranges), Some(50_000_000_000));
        assert_eq!(median(&[range(None, 60), range(Some("Z1"), 3), range(None, 60)]), None);
        let row = row(false, ranges);
        let line = row.line(Duration::from_secs(60), false);
        assert_eq!(line, "| x | Z1 | 2/3 | Z1 1x, Z2 1x | 50 | 50.00 | 3.00 to > 60 | 5000 |\n");
        assert!(row.is_well());
    }

    #[test]
    fn confidence_interval_drops_extreme_costs() {
        assert_eq!([1, 5, 6, 8, 9, 20].map(bound), [0, 0, 0, 0, 1, 5]);
        let share = |ranges| (confidence(ranges, bound(ranges)) * 1000.0).round();
        assert_eq!((share(1), share(5), share(6), share(20)), (0.0, 938.0, 969.0, 959.0));
        let ranges: Vec<Range> = (1..=20).map(|seconds| range(Some("Z1"), seconds)).collect();
        assert_eq!(interval(&ranges), [Some(6_000_000_000), Some(15_000_000_000)]);
    }

    #[test]
    fn control_must_not_fail_in_any_range() {
        assert!(row(true, vec![range(None, 60), range(None, 60)]).is_well());
        let flagged = row(true, vec![range(None, 60), range(Some("L2"), 1)]);
        assert!(!flagged.is_well());
        let text = summary(&[flagged], Duration::from_secs(60));
        assert!(text.contains("with a confidence of 50.0 %"), "{text}");
        let (_, rest) = text.split_once("Silent: ").expect("is there");
        let wrong: Vec<&str> = rest.lines().skip(1).collect();
        assert_eq!(wrong, ["x is harmless, and was flagged."], "scripts read no more than that");
    }
}
