//! SIGHUP: the settings that change without a restart.
//!
//! Owns which keys these are, and the report of what took effect. Must not act on the server: it
//! takes over what this module gives (`host::Changes`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::{self, Settings, shown};
use crate::host::Changes;
use crate::logging::LogControl;
use crate::process::variable;

/// Keys that take effect at once, beside those of the log.
const AT_ONCE: [&str; 10] = [
    "4lw.commands.whitelist",
    "globalOutstandingLimit",
    "largeRequestMaxBytes",
    "largeRequestThreshold",
    "maxClientCnxns",
    "maxCnxns",
    "request_stale_latency_check",
    "request_throttle_drop_stale",
    "request_throttle_max_requests",
    "throttled_op_wait_time",
];

/// Keys of the log.
const OF_LOG: &str = "zabkeeper.log.";

/// Reads `zoo.cfg` anew.
pub(crate) struct Reloader {
    /// `None` if the settings come from no file.
    path: Option<PathBuf>,
    /// The values in force, as they are written.
    in_force: BTreeMap<String, String>,
    /// The warnings of the last reading.
    warnings: Vec<String>,
    log: LogControl,
}

/// What has changed between two readings.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// `key=value` of what takes effect.
    at_once: Vec<String>,
    /// `key=value` of what needs a restart.
    at_restart: Vec<String>,
}

impl Reloader {
    /// For a process that has begun with these settings, and logged these warnings.
    pub(crate) fn new(settings: &Settings, warnings: Vec<String>, log: LogControl) -> Reloader {
        let path = settings.file.as_ref().map(|(path, _)| path.clone());
        Reloader { path, in_force: settings.written.clone(), warnings, log }
    }

    /// Reads the file, changes the log, and returns what the server has to take over. The log says
    /// what took effect. A file that does not parse changes nothing.
    pub(crate) fn reload(&mut self) -> Option<Changes> {
        let Some(path) = &self.path else {
            tracing::info!("SIGHUP: there is no file to read anew; SIGTERM stops the server");
            return None;
        };
        let file = path.display().to_string();
        let (settings, warnings) = match Settings::from_file(path) {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!("SIGHUP: {error}; the settings stay as they were");
                return None;
            }
        };
        let log = settings.log.clone().with_environment(&variable);
        let applied = log.map_err(|what| what.to_string()).and_then(|log| self.log.apply(&log));
        if let Err(what) = applied {
            tracing::warn!("SIGHUP: {what}; the log goes on where it was");
        }
        for warning in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.warnings = warnings;
        let Difference { at_once, at_restart } = take_over(&mut self.in_force, &settings.written);
        if at_once.is_empty() && at_restart.is_empty() {
            tracing::info!("SIGHUP: read {file} anew: nothing has changed");
        }
        if !at_once.is_empty() {
            tracing::info!("SIGHUP: read {file} anew; in force now: {}", at_once.join(", "));
        }
        if !at_restart.is_empty() {
            let all = at_restart.join(", ");
            tracing::warn!("SIGHUP: read {file} anew; only a restart puts in force: {all}");
        }
        Some(Changes { limits: settings.limits, whitelist: settings.whitelist })
    }
}

/// Notes the values that take effect; the others stay, so that the next reading names them
/// again.
fn take_over(
    in_force: &mut BTreeMap<String, String>,
    written: &BTreeMap<String, String>,
) -> Difference {
    let mut difference = Difference::default();
    let before = std::mem::take(in_force);
    let keys = before.keys().chain(written.keys().filter(|key| !before.contains_key(*key)));
    for key in keys {
        let (old, new) = (before.get(key), written.get(key));
        let is_at_once = AT_ONCE.contains(&key.as_str()) || key.starts_with(OF_LOG);
        let kept = if is_at_once || !config::has_effect(key) { new } else { old };
        if let Some(value) = kept {
            in_force.insert(key.clone(), value.clone());
        }
        if old == new || !config::has_effect(key) {
            continue;
        }
        let text = match new {
            Some(value) => format!("{key}={}", shown(key, value)),
            None => format!("the default of {key}"),
        };
        if is_at_once {
            difference.at_once.push(text);
        } else {
            difference.at_restart.push(text);
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
        lines.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_needs_a_restart_is_named_until_it_is_in_force() {
        let mut in_force = values(&[
            ("maxClientCnxns", "60"),
            ("tickTime", "2000"),
            ("snapCount", "7"),
            ("flushDelay", "1"),
        ]);
        let written = values(&[
            ("tickTime", "3000"),
            ("maxCnxns", "9"),
            ("flushDelay", "2"),
            ("DigestAuthenticationProvider.superDigest", "super:secret"),
        ]);
        let difference = take_over(&mut in_force, &written);
        assert_eq!(difference.at_once, ["the default of maxClientCnxns", "maxCnxns=9"]);
        let at_restart = [
            "the default of snapCount",
            "tickTime=3000",
            "DigestAuthenticationProvider.superDigest=(not shown)",
        ];
        assert_eq!(difference.at_restart, at_restart);
        let difference = take_over(&mut in_force, &written);
        assert_eq!(difference.at_once, [""; 0]);
        assert_eq!(difference.at_restart.len(), 3);
    }

    #[test]
    fn keys_are_known() {
        assert!(AT_ONCE.is_sorted());
        assert!(AT_ONCE.iter().all(|key| config::has_effect(key)));
    }
}
