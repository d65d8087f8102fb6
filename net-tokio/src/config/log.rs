//! Keys of the log, which ZooKeeper leaves to logback: where lines go, in which form, and which.
//! Environment variables override them.
//!
//! Owns these keys and variables. Must not open files: `logging` does.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::fit;
use super::properties::{BadSetting, Properties};

/// Where the log goes, and what is logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LogSettings {
    /// `zabkeeper.log.level`: a level, or filters as in `RUST_LOG`.
    pub(crate) level: Option<String>,
    /// `zabkeeper.log.file`; `None` means standard error.
    pub(crate) file: Option<PathBuf>,
    /// `zabkeeper.log.format`.
    pub(crate) format: LogFormat,
    /// `zabkeeper.log.maxFileSizeInMb`: bytes after which a new file begins; `None` is unlimited.
    pub(crate) max_bytes: Option<u64>,
    /// `zabkeeper.log.maxBackupIndex`: earlier files that are kept.
    pub(crate) backups: u32,
}

/// The form of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// Text.
    Text,
    /// One JSON object in each line.
    Json,
}

/// Defaults of ZooKeeper's `logback.xml`.
const MAX_MIB: i64 = 256;
const BACKUPS: i64 = 20;

const MOST_MIB: i64 = 1 << 20;
const MOST_BACKUPS: i64 = 1000;

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            level: None,
            file: None,
            format: LogFormat::Text,
            max_bytes: Some(fit::<u64>(MAX_MIB) << 20),
            backups: fit(BACKUPS),
        }
    }
}

/// Reads the keys.
pub(super) fn read(keys: &mut Properties) -> Result<LogSettings, BadSetting> {
    let mut log = LogSettings::default();
    if let Some(entry) = keys.entry("zabkeeper.log.level").cloned() {
        let text = keys.text("zabkeeper.log.level", "a level, such as info")?;
        log.level =
            text.map(|text| level(&text)).transpose().map_err(|what| keys.refuse(&entry, &what))?;
    }
    log.file = keys.text("zabkeeper.log.file", "the path of a file")?.map(PathBuf::from);
    if let Some(entry) = keys.take("zabkeeper.log.format") {
        log.format = format(&entry.value).ok_or_else(|| keys.refuse(&entry, "use text or json"))?;
    }
    let hint = "MiB, such as 256; 0: another program rotates";
    if let Some(mib) = keys.number("zabkeeper.log.maxFileSizeInMb", 0..=MOST_MIB, hint)? {
        log.max_bytes = limit(mib);
    }
    let hint = "a number of files, such as 20";
    if let Some(files) = keys.number("zabkeeper.log.maxBackupIndex", 0..=MOST_BACKUPS, hint)? {
        log.backups = fit(files);
    }
    Ok(log)
}

impl LogSettings {
    /// These settings with those of the environment, which count.
    ///
    /// # Errors
    /// A variable with an invalid value.
    pub(crate) fn with_environment(
        mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<LogSettings, BadSetting> {
        let refuse = |name: &str, value: &str, hint: &str| {
            BadSetting::new(format!("{name}={value}: use {hint}"))
        };
        if let Some(file) = variable(FILE) {
            self.file = Some(PathBuf::from(file));
        }
        if let Some(text) = variable(FORMAT) {
            self.format = format(&text).ok_or_else(|| refuse(FORMAT, &text, "text or json"))?;
        }
        let number = |name: &str, most: i64| {
            let Some(text) = variable(name) else { return Ok(None) };
            let number = text.parse().ok().filter(|number| (0..=most).contains(number));
            number.map(Some).ok_or_else(|| refuse(name, &text, &format!("a number up to {most}")))
        };
        if let Some(mib) = number(MAX_FILE_SIZE, MOST_MIB)? {
            self.max_bytes = limit(mib);
        }
        if let Some(files) = number(MAX_BACKUP_INDEX, MOST_BACKUPS)? {
            self.backups = fit(files);
        }
        Ok(self)
    }
}

/// The environment variables.
pub(crate) const FILE: &str = "ZABKEEPER_LOG_FILE";
const FORMAT: &str = "ZABKEEPER_LOG_FORMAT";
const MAX_FILE_SIZE: &str = "ZABKEEPER_LOG_MAX_FILE_SIZE_IN_MB";
const MAX_BACKUP_INDEX: &str = "ZABKEEPER_LOG_MAX_BACKUP_INDEX";

fn format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

fn limit(mib: i64) -> Option<u64> {
    (mib > 0).then(|| fit::<u64>(mib) << 20)
}

/// Checks a level or a list of filters.
fn level(text: &str) -> Result<String, String> {
    let hint = "use error, warn, info, debug, trace or off, or filters as in zabkeeper::conn=debug";
    // `EnvFilter` takes any other word for the name of a module.
    let is_word = text.chars().all(|c| c.is_ascii_alphanumeric());
    if is_word && text.parse::<LevelFilter>().is_err() {
        return Err(hint.to_owned());
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; {hint}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_a_word_or_filters() {
        for text in ["info", "DEBUG", "off", "warn,zabkeeper::conn=debug"] {
            assert_eq!(level(text).as_deref(), Ok(text));
        }
        for text in ["inof", "verbose", "zabkeeper=inof"] {
            assert!(level(text).is_err_and(|what| what.contains("use error, warn")), "{text}");
        }
    }

    #[test]
    fn environment_overrides_the_file() {
        let variables = [(FILE, "/l"), (FORMAT, "json"), (MAX_FILE_SIZE, "0")];
        let variable = |name: &str| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, text)| (*text).to_owned())
        };
        let of_file = LogSettings { backups: 3, ..LogSettings::default() };
        let log = of_file.with_environment(&variable).expect("are valid");
        let expected = LogSettings {
            level: None,
            file: Some("/l".into()),
            format: LogFormat::Json,
            max_bytes: None,
            backups: 3,
        };
        assert_eq!(log, expected);
        let wrong = |name: &str| (name == FORMAT).then(|| "xml".to_owned());
        let error = LogSettings::default().with_environment(&wrong).expect_err("is refused");
        assert_eq!(error.to_string(), "ZABKEEPER_LOG_FORMAT=xml: use text or json");
    }
}
