//! The evidence log of long batches: one line per batch in `sim/evidence.jsonl`.
//!
//! Owns the format of that file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::json;

use crate::run::batch::Batch;
use crate::run::cli::Flags;
use crate::run::report;

/// Path of the evidence log, relative to this package.
const EVIDENCE_LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/evidence.jsonl");

/// Appends a line about `batch`, with the flags in which its runs deviate from their profile, and
/// whether it ended early. Lines from before 2026-11-24 lack both, and call the flags `faults`.
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
    let mut file = OpenOptions::new().create(true).append(true).open(EVIDENCE_LOG)?;
    writeln!(file, "{line}")
}

/// The commit of the source tree, with a plus if tracked files differ from it or sources are newer
/// than this program. Determined once, at the first call.
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
    // The evidence log changes with every recorded batch, so it does not count.
    let others = ["status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)sim/evidence.jsonl"];
    let changed = git(&others).is_some_and(|text| !text.is_empty());
    if changed || is_older_than_its_sources() { format!("{commit}+") } else { commit }
}

/// Whether sources are newer than the program: the tree may be at another commit since the build.
fn is_older_than_its_sources() -> bool {
    let built = std::env::current_exe().and_then(|path| path.metadata()?.modified());
    let newest = |package: &str| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src");
        newest_in(&sources)
    };
    let sources = ["core", "client", "storage-fs", "sim"].map(newest).into_iter().flatten().max();
    matches!((built, sources), (Ok(built), Some(newest)) if newest > built)
}

/// The newest modification time in the folder and below; `None` if no file can be read.
fn newest_in(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let written = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() { newest_in(&path) } else { entry.metadata().ok()?.modified().ok() }
    });
    written.max()
}
