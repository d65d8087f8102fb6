//! The command line that reproduces a run.
//!
//! Owns the form of REPRO lines. Must not contain flags that have no effect on the run.

use std::path::Path;

use super::Flags;
use crate::engine::fork;
use crate::run::format;
use crate::run::job::Job;
use crate::workload::Custom;
use crate::world::options::Profile;

impl Flags {
    fn without_text(&self) -> String {
        if self.without.is_empty() {
            return String::new();
        }
        format!(" --without {}", self.without.join(","))
    }

    /// The complete command that reproduces the run.
    pub fn repro(&self, job: &Job) -> String {
        let seed = job.seed;
        let command = command(job.pinned.custom.as_ref());
        let only = self.stop().promise().map_or(String::new(), |id| format!(" --break-on {id}"));
        if let Some(path) = &self.schedule {
            return repro_of(path, job.pinned.custom.as_ref()) + &self.without_text() + &only;
        }
        let format = format::current();
        let mut line = format!("REPRO: {command} -- --seed {seed:#x} --format {format}");
        if self.profile != Profile::Default {
            line.push_str(&format!(" --profile {}", self.profile));
        }
        line.push_str(&self.pinned_text());
        if !job.pinned.forks.is_empty() {
            line.push_str(&format!(" --fork '{}'", fork::path(&job.pinned.forks)));
        }
        if self.check_determinism {
            line.push_str(" --check-determinism");
        }
        line + &only
    }

    /// The flags, each after a space, that make runs differ from those of their seeds and profile.
    pub fn pinned_text(&self) -> String {
        let mut line = String::new();
        if let Some(duration) = self.duration {
            line.push_str(&format!(" --duration {}ms", duration.as_millis()));
        }
        if let Some(servers) = self.servers {
            line.push_str(&format!(" --servers {servers}"));
        }
        if let Some(clients) = self.clients {
            line.push_str(&format!(" --clients {clients}"));
        }
        if !self.faults.is_empty() {
            line.push_str(&format!(" --faults {}", self.faults));
        }
        if !self.ops.is_empty() {
            line.push_str(&format!(" --ops {}", self.ops));
        }
        if !self.buggify.is_empty() {
            line.push_str(&format!(" --buggify {}", self.buggify));
        }
        if let Some(recipe) = self.recipe {
            line.push_str(&format!(" --recipe {recipe:?}"));
        }
        for rule in &self.at_mark {
            line.push_str(&format!(" --at-mark {rule}"));
        }
        for place in &self.crash_at {
            line.push_str(&format!(" --crash-at {place}"));
        }
        line + &self.without_text()
    }
}

/// The command that starts this program, or the one with the user's workload.
fn command(custom: Option<&Custom>) -> String {
    const RUN: &str = "cargo run ";
    let command = custom.map_or("cargo run -p sim", Custom::command);
    match command.strip_prefix(RUN) {
        Some(rest) if !cfg!(debug_assertions) => format!("{RUN}--release {rest}"),
        Some(_) | None => command.to_owned(),
    }
}

/// The command that runs a schedule again, with the user's workload if there is one.
pub fn repro_of(schedule: &Path, custom: Option<&Custom>) -> String {
    let command = command(custom);
    // A name that begins with a dash would parse as a flag.
    let name = quoted(&schedule.to_string_lossy());
    let between = if name.starts_with('-') { '=' } else { ' ' };
    format!("REPRO: {command} -- --schedule{between}{name}")
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
