//! The evidence that adds up over time: one line per long batch in `sim/evidence.jsonl`.
//!
//! Owns the format of that file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::json;

use crate::batch::Batch;
use crate::cli::Flags;
use crate::report;

/// Where it is, as seen from this package.
const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/evidence.jsonl");

/// Appends a line about `batch`, with all that makes its runs others than those of its profile, and why it ended before
/// its time, if it did. Lines of before 2026-11-24 lack both, and have `faults` for what was said of these.
///
/// # Errors
/// Those of the file system.
pub fn append(batch: &Batch, flags: &Flags) -> io::Result<()> {
    let totals = &batch.totals;
    let verdicts: Vec<String> =
        totals.verdicts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let build = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut line = json!({
        "revision": revision(),
        "build": build,
        "profile": flags.profile.name(),
        "flags": flags.pinned_text().trim_start(),
        "seeds": format!("{:#x}..{:#x}", batch.seeds.0, batch.seeds.1),
        "runs": totals.runs,
        "virtual_hours": (report::hours(totals.virtual_ns) * 100.0).round() / 100.0,
        "cpu_seconds": totals.cpu_ns / 1_000_000_000,
        "verdict": verdicts.join(", "),
    });
    if let Some(forks) = flags.forks {
        line["forks"] = forks.into();
    }
    if batch.interrupted || batch.timed_out {
        line["given_up"] = true.into();
    }
    let mut file = OpenOptions::new().create(true).append(true).open(LEDGER)?;
    writeln!(file, "{line}")
}

/// The commit that the tree of this program is at, with a plus where it has been changed since, or has files that are newer than the
/// program; as it was when it was first asked for.
pub fn revision() -> &'static str {
    static REVISION: OnceLock<String> = OnceLock::new();
    REVISION.get_or_init(ask)
}

fn ask() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(args)
            .output()
            .ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // The ledger itself grows by what is recorded in it.
    let others = ["status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)sim/evidence.jsonl"];
    let changed = git(&others).is_some_and(|text| !text.is_empty());
    if changed || is_older_than_its_sources() { format!("{commit}+") } else { commit }
}

/// Somebody may have committed, or gone back, since this program was built.
fn is_older_than_its_sources() -> bool {
    let built = std::env::current_exe().and_then(|path| path.metadata()?.modified());
    let newest = |package: &str| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src");
        newest_in(&sources)
    };
    let sources = ["core", "client", "storage-fs", "sim"].map(newest).into_iter().flatten().max();
    matches!((built, sources), (Ok(built), Some(newest)) if newest > built)
}

/// When what lies there was last written; `None` where there is nothing to be seen.
fn newest_in(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let written = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() { newest_in(&path) } else { entry.metadata().ok()?.modified().ok() }
    });
    written.max()
}
