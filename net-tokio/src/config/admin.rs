//! Keys of the admin server (CONF-57).
//!
//! Owns these keys. Must not open ports: `crate::admin` does.

use std::collections::BTreeMap;
use std::time::Duration;

use zabkeeper_core::Member;

use super::properties::{BadSetting, Properties};
use super::{TRUE_FALSE, fit};

/// Settings of the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminOptions {
    /// `admin.serverAddress`; `None` means every address of the machine.
    pub(crate) host: Option<String>,
    /// `admin.serverPort`; 0 lets the system choose one.
    pub(crate) port: u16,
    /// `admin.idleTimeout`: a connection on which nothing moves is closed after this time.
    pub(crate) idle: Duration,
    /// `admin.commandURL`, without a slash at its end.
    pub(crate) url: String,
    /// The text of the configuration file; `None` without a file.
    pub(crate) file_text: Option<String>,
    /// The properties of the options for Java.
    pub(crate) properties: BTreeMap<String, String>,
}

/// ZooKeeper's default of `admin.serverPort`.
const PORT: u16 = 8080;

/// ZooKeeper's default of `admin.idleTimeout`.
const IDLE: Duration = Duration::from_secs(30);

impl AdminOptions {
    /// The options without a configuration file: on this machine only.
    pub(super) fn for_a_try() -> AdminOptions {
        AdminOptions {
            host: Some("127.0.0.1".to_owned()),
            port: PORT,
            idle: IDLE,
            url: "/commands".to_owned(),
            file_text: None,
            properties: BTreeMap::new(),
        }
    }
}

/// Reads the options; `None` if the admin server is off.
pub(super) fn read(keys: &mut Properties) -> Result<Option<AdminOptions>, BadSetting> {
    let enabled = keys.switch("admin.enableServer", TRUE_FALSE)?.unwrap_or(true);
    let host = keys.text("admin.serverAddress", "an address of this machine")?;
    let host = host.map(|host| Member::without_brackets(&host).to_owned());
    let hint = "a port, such as 8080, or 0 for any that is free";
    let port = keys.number("admin.serverPort", 0..=65_535, hint)?;
    let hint = "milliseconds, such as 30000";
    let idle = keys.number("admin.idleTimeout", 1..=i64::from(i32::MAX), hint)?;
    let entry = keys.entry("admin.commandURL").cloned();
    let url = keys.text("admin.commandURL", "a path, such as /commands")?;
    let url = url.unwrap_or_else(|| "/commands".to_owned()).trim_end_matches('/').to_owned();
    if let (false, Some(entry)) = (url.starts_with('/') && url.len() > 1, entry) {
        return Err(keys.refuse(&entry, "not a path; write one such as /commands"));
    }
    Ok(enabled.then(|| AdminOptions {
        host: host.filter(|host| !Member::is_everywhere(host)),
        port: port.map_or(PORT, fit),
        idle: idle.map_or(IDLE, |ms| Duration::from_millis(fit(ms))),
        url,
        file_text: None,
        properties: BTreeMap::new(),
    }))
}
