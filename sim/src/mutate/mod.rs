//! Mutation runs: how soon the simulator finds each mutant, a planted bug.
//!
//! Owns the procedure: `scratch` applies each patch to a copy of the source tree and builds it,
//! `look` searches several disjoint ranges of seeds, `table` prints the result. Must not run worlds
//! itself.

mod look;
mod scratch;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

use crate::check::checker::Checker;
use crate::record::output::{may_write, print, print_error};
use crate::replay::shrink::Budget;
use crate::run::cli::MutateFlags;
use look::{Range, Search};
use scratch::Scratch;
use table::{Measured, Patch, Row};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Default folders of mutants, relative to the root; the second has controls, which must not fail.
const FOLDERS: [&str; 2] = ["sim/mutants", "sim/mutants/harmless"];
/// Distance between ranges of seeds.
const APART: u64 = 1 << 32;

const FAILED: u8 = 1;
const BAD_USAGE: u8 = 2;

/// Measures all patches. Returns the exit code: 0 if every mutant was found in the median and no
/// control failed.
pub fn main(flags: &MutateFlags) -> u8 {
    match measure_all(flags) {
        Ok(rows) if rows.iter().all(Row::is_well) => 0,
        Ok(_) => FAILED,
        Err(why) => {
            print_error(&format!("mutate: {why}\n"));
            BAD_USAGE
        }
    }
}

fn measure_all(flags: &MutateFlags) -> Result<Vec<Row>, String> {
    if let Some(name) = flags.without.iter().find(|name| !Checker::may_go_without(name)) {
        return Err(format!("--without: {name:?} is no promise that a run can go on without"));
    }
    may_write("report", flags.report.as_ref())?;
    let patches = patches(flags)?;
    let usual = || Path::new(ROOT).join("target/mutate");
    let folder = flags.scratch.clone().unwrap_or_else(usual);
    let scratch = Scratch::new(Path::new(ROOT), &folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    print(&table::head(flags.shrink.is_some()));
    let mut rows = Vec::new();
    for path in patches {
        let row = measure(&path, &scratch, flags)?;
        print(&row.line(flags.budget, flags.shrink.is_some()));
        rows.push(row);
        // Written after each patch, so that an interrupted measurement keeps its rows.
        if let Some(path) = &flags.report {
            let file = fs::File::options().write(true).create(true).truncate(true).open(path);
            file.and_then(|mut file| file.write_all(report(&rows, flags).as_bytes()))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    print(&rest(&rows, flags));
    Ok(rows)
}

fn report(rows: &[Row], flags: &MutateFlags) -> String {
    let shrunk = flags.shrink.is_some();
    let lines: String = rows.iter().map(|row| row.line(flags.budget, shrunk)).collect();
    table::head(shrunk) + &lines + &rest(rows, flags)
}

/// The text below the rows.
fn rest(rows: &[Row], flags: &MutateFlags) -> String {
    let ablation = flags.ablate.map(|budget| table::ablation(rows, budget));
    table::summary(rows, flags.budget) + &ablation.unwrap_or_default()
}

/// The selected patches.
fn patches(flags: &MutateFlags) -> Result<Vec<PathBuf>, String> {
    let mut found = flags.patch.clone();
    if found.is_empty() {
        for folder in FOLDERS {
            let folder = Path::new(ROOT).join(folder);
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.retain(|path| path.extension().is_some_and(|end| end == "patch"));
            paths.sort();
            found.append(&mut paths);
        }
    }
    let has = |path: &PathBuf, word: &String| path.to_string_lossy().contains(word.as_str());
    if let Some(word) = flags.only.iter().find(|word| !found.iter().any(|path| has(path, word))) {
        return Err(format!("there is no patch with {word:?} in its path"));
    }
    let wanted = |path: &PathBuf| flags.only.iter().any(|word| has(path, word));
    found.retain(|path| flags.only.is_empty() || wanted(path));
    if found.is_empty() { Err("there is no such patch".to_owned()) } else { Ok(found) }
}

/// The header of a patch, which may be missing.
#[expect(clippy::disallowed_methods, reason = "a patch that somebody names; no world is run here")]
fn head(path: &Path) -> Patch {
    // An unreadable patch fails later, when it is applied.
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let entry = |prefix| text.lines().take(4).find_map(|line| line.strip_prefix(prefix));
    let (seen_by, recipe) = (entry("# Seen by: "), entry("# Recipe: ").map(str::to_owned));
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let harmless = path.parent().and_then(Path::file_name).is_some_and(|name| name == "harmless");
    Patch { name, seen_by: seen_by.unwrap_or("?").to_owned(), harmless, recipe }
}

fn measure(path: &Path, scratch: &Scratch, flags: &MutateFlags) -> Result<Row, String> {
    let patch = head(path);
    scratch.restore().map_err(|error| format!("the copy of the tree: {error}"))?;
    let applied = scratch.apply(path).map_err(|why| format!("does not apply\n{why}"));
    let built = applied
        .and_then(|()| scratch.build(flags.quick).map_err(|why| format!("does not build\n{why}")));
    let mut row =
        Row { patch, measured: Measured::Unfit(String::new()), shrunk: None, ablated: Vec::new() };
    let program = match built {
        Ok(program) => program,
        Err(why) => {
            print_error(&format!("{}: {why}\n", row.patch.name));
            row.measured = Measured::Unfit(why);
            return Ok(row);
        }
    };
    let recipe = row.patch.recipe.as_deref();
    let ranges = look(&program, scratch, recipe, flags)?;
    let first = ranges.iter().find_map(|range| range.found.clone());
    if let (Some(run), Some(budget)) = (&first, flags.shrink) {
        let results = scratch.file("shrink.json");
        let schedule = scratch.file(&format!("{}.schedule", row.patch.name));
        let search = search(&program, flags, recipe, &results);
        row.shrunk = search.shrink(run, &text_of(budget), &schedule);
    }
    if let Some(budget) = flags.ablate.filter(|_| !row.patch.harmless) {
        let mut ids: Vec<&String> =
            ranges.iter().filter_map(|range| range.found.as_ref()).map(|run| &run.id).collect();
        ids.sort();
        ids.dedup();
        for id in ids.into_iter().filter(|id| Checker::may_go_without(id)) {
            let mut flags = MutateFlags { budget, ..flags.clone() };
            flags.without.push(id.clone());
            row.ablated.push((id.clone(), look(&program, scratch, recipe, &flags)?));
        }
    }
    row.measured = Measured::Ranges(ranges);
    Ok(row)
}

/// Searches all ranges, several concurrently if requested.
fn look(
    program: &Path,
    scratch: &Scratch,
    recipe: Option<&str>,
    flags: &MutateFlags,
) -> Result<Vec<Range>, String> {
    let next = AtomicUsize::new(0);
    let ranges = flags.ranges as usize;
    let found: Mutex<Vec<(usize, Result<Range, String>)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= ranges {
                return;
            }
            let results = scratch.file(&format!("range-{number}.json"));
            let base = flags.offset.wrapping_add(number as u64).wrapping_mul(APART) + 1;
            let range = Search { base, ..search(program, flags, recipe, &results) }.run();
            found.lock().unwrap_or_else(|broken| broken.into_inner()).push((number, range));
        }
    };
    thread::scope(|scope| {
        for _ in 0..flags.jobs.min(ranges) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|broken| broken.into_inner());
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, range)| range).collect()
}

fn search<'a>(
    program: &'a Path,
    flags: &'a MutateFlags,
    recipe: Option<&'a str>,
    results: &'a Path,
) -> Search<'a> {
    let MutateFlags { profile, budget, without, .. } = flags;
    Search { program, base: 0, profile: *profile, budget: *budget, without, recipe, results }
}

fn text_of(budget: Budget) -> String {
    match budget {
        Budget::Runs(runs) => format!("{runs}runs"),
        Budget::Wall(time) => format!("{}ms", Duration::as_millis(&time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::checker;

    #[test]
    fn every_mutant_names_its_promises_and_is_in_the_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
        let table = fs::read_to_string(folder.join("README.md")).expect("our own page");
        let mut known = checker::promises();
        known.push("E1");
        for entry in fs::read_dir(folder).expect("our own folder") {
            let path = entry.expect("our own folder").path();
            if path.extension().is_none_or(|extension| extension != "patch") {
                continue;
            }
            let Patch { name, seen_by, .. } = head(&path);
            assert!(seen_by.split(", ").all(|id| known.contains(&id)), "{name}: {seen_by}");
            assert!(table.contains(&format!("\n| {name} | {seen_by} | ")), "no row for {name}");
        }
    }
}
