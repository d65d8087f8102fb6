//! The configuration: reads `zoo.cfg` into values that are valid by construction.
//!
//! Owns the keys that the modules below do not own, with their defaults, and the combination of
//! all. Must not touch files other than the given one, `myid` and the secret file, nor sockets.

mod access;
mod admin;
mod check;
mod files;
mod groups;
mod java_properties;
mod keys;
mod limits;
mod log;
mod members;
mod metrics;
mod properties;
mod text;
mod trace;

use std::collections::BTreeMap;
use std::env::VarError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zabkeeper_core::driver::ClientLimits;
use zabkeeper_core::driver::four_letter::Whitelist;
use zabkeeper_core::{Config, Member, Members, ReconfigOptions, ServerId, Voters, Zxid};

pub(crate) use admin::AdminOptions;
pub(crate) use check::{Checked, Verdict};
pub(crate) use files::{ConfigFiles, files_of, with_suffix};
use keys::Kind;
pub(crate) use log::{LogFormat, LogSettings};
pub(crate) use members::Ensemble;
pub(crate) use metrics::MetricsAddress;
pub use properties::BadSetting;
use properties::{Entry, FLAGS, Properties};
pub(crate) use text::shown;
use trace::Fate;

/// The settings of the process, of the driver and of the core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The configuration of the core.
    pub(crate) core: Config,
    /// The file that the settings come from, and the version of the configuration in it; `None` if
    /// they come from no file.
    pub(crate) file: Option<(PathBuf, Zxid)>,
    /// The ensemble; `None` for a standalone server.
    pub(crate) ensemble: Option<Ensemble>,
    /// Host name or address to listen on; `None` means every address of the machine.
    pub(crate) host: Option<String>,
    /// Client port to listen on; 0 lets the system choose one, which then replaces the 0.
    pub(crate) port: u16,
    /// `dataDir`: snapshots are in its subdirectory [`OUR_FOLDER`].
    pub(crate) data_dir: PathBuf,
    /// `dataLogDir`: log and state file are in its subdirectory [`OUR_FOLDER`].
    pub(crate) log_dir: PathBuf,
    /// `datadir.autocreate`: may the server create missing directories?
    pub(crate) create_folders: bool,
    /// Size of a log segment in bytes: the smaller of `preAllocSize` and `txnLogSizeLimitInKb`,
    /// which are in KiB.
    pub(crate) segment_bytes: u64,
    /// `fsync.warningthresholdms`: a write to the log that takes longer is logged.
    pub(crate) slow_write: Duration,
    /// Limits on clients.
    pub(crate) limits: ClientLimits,
    /// `clientTcpKeepAlive` (WIRE-19).
    pub(crate) keep_alive: bool,
    /// `clientPortListenBacklog`; `None` means the default.
    pub(crate) backlog: Option<u32>,
    /// Where Prometheus reads the metrics; `None` if nowhere.
    pub(crate) metrics: Option<MetricsAddress>,
    /// Four-letter commands that are answered.
    pub whitelist: Whitelist,
    /// The admin server; `None` if it is off.
    pub(crate) admin: Option<AdminOptions>,
    /// The log of the process.
    pub(crate) log: LogSettings,
    /// The values by key, as they are written, without those that name the members: what changes
    /// at a reload.
    pub(crate) written: BTreeMap<String, String>,
}

/// Our subdirectory of `dataDir` and `dataLogDir`, so that no directory mixes our files with
/// ZooKeeper's.
pub(crate) const OUR_FOLDER: &str = "zabkeeper";

/// Largest `tickTime`, ms: 20 ticks, the default maximum session timeout, fit the protocol's `int`.
const MAX_TICK_MS: i64 = i32::MAX as i64 / 20;

/// Largest `initLimit` and `syncLimit`, in ticks: a day of 3 s ticks, the default.
const MAX_TICKS: i64 = 28_800;

/// Default of `fsync.warningthresholdms`.
const SLOW_WRITE: Duration = Duration::from_secs(1);

/// The values of most switches.
const TRUE_FALSE: [&str; 2] = ["true", "false"];

/// The id of a standalone server without a `server.N` line.
const ALONE: ServerId = ServerId(1);

impl Settings {
    /// Settings for trying it out: listens on 127.0.0.1 only, keeps its data in the current
    /// directory, answers all four-letter commands.
    pub fn for_a_try() -> Settings {
        let tick = Duration::from_millis(2000);
        let core = Config::new(ALONE, Voters::new([ALONE]), tick).expect("2 s is a tick");
        let data_dir = PathBuf::from("zabkeeper-data");
        Settings {
            core,
            file: None,
            ensemble: None,
            host: Some("127.0.0.1".to_owned()),
            port: 2181,
            log_dir: data_dir.clone(),
            data_dir,
            create_folders: true,
            segment_bytes: 64 << 20,
            slow_write: SLOW_WRITE,
            limits: ClientLimits::default(),
            keep_alive: false,
            backlog: None,
            metrics: None,
            whitelist: Whitelist::All,
            admin: Some(AdminOptions::for_a_try()),
            log: LogSettings::default(),
            written: BTreeMap::new(),
        }
    }

    /// Reads the settings of a file and of the options for Java in the environment, and the
    /// warnings for the operator.
    ///
    /// # Errors
    /// An unreadable file, or an invalid setting.
    pub(crate) fn from_file(path: &Path) -> Result<(Settings, Vec<String>), BadSetting> {
        let flags = flags()?;
        let flags: Vec<_> = flags.iter().map(|(variable, text)| (*variable, &**text)).collect();
        Settings::from_file_and(path, &flags)
    }

    /// Reads the settings of a file, whatever the environment of the process is, and the warnings.
    ///
    /// # Errors
    /// An unreadable file, or an invalid setting.
    pub(crate) fn from_file_alone(path: &Path) -> Result<(Settings, Vec<String>), BadSetting> {
        Settings::from_file_and(path, &[])
    }

    fn from_file_and(
        path: &Path,
        flags: &[(&'static str, &str)],
    ) -> Result<(Settings, Vec<String>), BadSetting> {
        let (file, text, warning) = read_file(path)?;
        let (mut settings, mut warnings) =
            parse(&file, &text, flags, &|myid| std::fs::read_to_string(myid))?;
        settings.file = settings.file.map(|(_, version)| (path.to_owned(), version));
        if let Some(admin) = &mut settings.admin {
            admin.file_text = Some(text);
            admin.properties =
                flags.iter().flat_map(|(_, text)| properties::options(text)).collect();
        }
        if let Some(ensemble) = &mut settings.ensemble
            && let Some(secret_file) = &ensemble.secret_file
        {
            ensemble.secrets = secret_file.read(&file)?;
        }
        warnings.splice(..0, warning);
        Ok((settings, warnings))
    }

    /// The configuration of the core.
    pub fn core(&self) -> &Config {
        &self.core
    }

    /// `maxClientCnxns`.
    pub fn connections_per_ip(&self) -> Option<usize> {
        self.limits.connections_per_ip
    }

    /// Host and port for clients, as text; `everywhere` replaces the host if none is configured.
    pub(crate) fn client_address(&self, everywhere: &str) -> String {
        Member::address(self.host.as_deref().unwrap_or(everywhere), &self.port)
    }

    /// The directory of snapshots.
    pub(crate) fn snapshot_folder(&self) -> PathBuf {
        self.data_dir.join(OUR_FOLDER)
    }

    /// The directory of the log and the state file.
    pub(crate) fn log_folder(&self) -> PathBuf {
        self.log_dir.join(OUR_FOLDER)
    }
}

/// The environment variables with options for Java that are set.
fn flags() -> Result<Vec<(&'static str, String)>, BadSetting> {
    let mut flags = Vec::new();
    for variable in FLAGS {
        match std::env::var(variable) {
            Ok(text) => flags.push((variable, text)),
            Err(VarError::NotPresent) => {}
            Err(VarError::NotUnicode(_)) => {
                let what = format!("{variable}: not UTF-8; write it in UTF-8");
                return Err(BadSetting::new(what));
            }
        }
    }
    Ok(flags)
}

/// The name of a file for messages, its text, and the warning that it is not UTF-8.
fn read_file(path: &Path) -> Result<(String, String, Option<String>), BadSetting> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|error| BadSetting::new(format!("{file}: cannot be read: {error}")))?;
    let (text, warning) = text::decode(&file, bytes);
    Ok((file, text, warning))
}

/// The folders of a file: `dataDir` and `dataLogDir`, which are the same by default. For tools that
/// work before the rest of the file is complete.
///
/// # Errors
/// An unreadable file, or no `dataDir` in it.
pub(crate) fn folders_of(path: &Path) -> Result<[PathBuf; 2], BadSetting> {
    let (file, text, _) = read_file(path)?;
    let mut keys = Properties::read(&file, &text)?;
    let data = data_dir(&mut keys)?;
    let log = keys.text("dataLogDir", "a folder for the log")?;
    Ok([data.clone(), log.map_or(data, PathBuf::from)])
}

fn data_dir(keys: &mut Properties) -> Result<PathBuf, BadSetting> {
    match keys.take("dataDir") {
        Some(entry) if !entry.value.is_empty() => Ok(PathBuf::from(entry.value)),
        _ => Err(keys.missing("dataDir", "the folder for its data, as dataDir=/var/lib/zk")),
    }
}

/// Parses `text`, the content of `file`, whose name is used in messages only, and `flags`: the
/// environment variables with Java options and their values; the last one takes precedence. `read`
/// reads the file `myid`. Returns the settings and the warnings.
///
/// # Errors
/// The first invalid setting.
pub fn parse(
    file: &str,
    text: &str,
    flags: &[(&'static str, &str)],
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Settings, Vec<String>), BadSetting> {
    let mut keys = Properties::read(file, text)?;
    for (variable, text) in flags.iter().rev() {
        keys.add_flags(variable, text)?;
    }
    let settings = settle(&mut keys, file, read)?;
    Ok((settings, keys.warnings))
}

/// Makes settings of all entries, and leaves the warnings in `keys`.
fn settle(
    keys: &mut Properties,
    file: &str,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Settings, BadSetting> {
    let written = keys.values();
    refuse_what_would_not_protect(keys)?;
    let data_dir = data_dir(keys)?;
    let version = dynamic_file(keys, read)?;
    let standalone = keys.switch("standaloneEnabled", TRUE_FALSE)?.unwrap_or(true);
    let reconfig = keys.switch("reconfigEnabled", TRUE_FALSE)?.unwrap_or(false);
    let multi_address = keys.switch("multiAddress.enabled", TRUE_FALSE)?.unwrap_or(false);
    let members = members::read_members(keys, standalone, multi_address)?;
    // As in ZooKeeper, a single `server.N` line makes a standalone server, and `myid` is not read.
    let id = match &members[..] {
        [] => ALONE,
        [only] => only.id,
        several => my_id(&data_dir, several, read)?,
    };
    let client = members.iter().find(|member| member.id == id).and_then(|me| me.client.clone());
    let ensemble = members::ensemble(keys, id, members, standalone)?;
    let members = ensemble.as_ref().map_or_else(|| Voters::new([id]).into(), Ensemble::roles);
    let mut core = core_config(keys, id, members)?;
    core.sessions = access::sessions(keys, ensemble.is_some())?;
    if let Some(ensemble) = ensemble.as_ref().filter(|_| reconfig) {
        let initial = ensemble.initial(version)?;
        let single_voter = !standalone;
        core.reconfig = Some(ReconfigOptions { initial, single_voter, multi_address });
    }
    core.read_only_mode = access::read_only_mode(keys, ensemble.is_some(), core.sessions)?;
    core.leader_serves = keys.switch("leaderServes", ["yes", "no"])?.unwrap_or(true);
    core.observer_masters =
        ensemble.as_ref().is_some_and(|ensemble| ensemble.observer_port.is_some());
    core.oracle = ensemble.as_ref().is_some_and(|ensemble| ensemble.oracle.is_some());
    let voters = core.voters().ids().count();
    // An empty path would put the log into the current directory.
    let log_dir = keys.text("dataLogDir", "a folder for the log")?;
    let log_dir = log_dir.map_or_else(|| data_dir.clone(), PathBuf::from);
    let (host, port) = client_address(keys, client, ensemble.is_some())?;
    let limits = limits::read(keys, voters)?;
    // Every node that a request may write must fit into a reply.
    core.limits.record_bytes = core.limits.record_bytes.max(limits.max_frame as usize / 2 * 3);
    let preallocate = keys.number("preAllocSize", 1..=1 << 22, "KiB, such as 65536")?;
    let hint = "KiB, such as 65536; -1: no limit but preAllocSize";
    let rolled = keys.number("txnLogSizeLimitInKb", -1..=1 << 40, hint)?.filter(|kib| *kib > 0);
    let segment_kib = preallocate.unwrap_or(65_536).min(rolled.unwrap_or(i64::MAX));
    let hint = "milliseconds, such as 1000";
    let slow_write = keys.number("fsync.warningthresholdms", 0..=i64::from(i32::MAX), hint)?;
    let whitelist = whitelist(keys, core.read_only_mode);
    let settings = Settings {
        core,
        file: Some((file.into(), version)),
        ensemble,
        host,
        port,
        data_dir,
        log_dir,
        create_folders: keys.switch("datadir.autocreate", TRUE_FALSE)?.unwrap_or(true),
        segment_bytes: fit::<u64>(segment_kib) << 10,
        slow_write: slow_write.map_or(SLOW_WRITE, |ms| Duration::from_millis(fit(ms))),
        limits,
        keep_alive: keys.switch("clientTcpKeepAlive", TRUE_FALSE)?.unwrap_or(false),
        backlog: backlog(keys)?,
        metrics: metrics::read(keys)?,
        whitelist,
        admin: admin::read(keys)?,
        log: log::read(keys)?,
        written,
    };
    ignore_the_rest(keys);
    Ok(settings)
}

/// Host and port for clients: those of the keys, or those behind the `;` of the server's own line.
/// If an ensemble's server has both, they have to agree, as in ZooKeeper.
fn client_address(
    keys: &mut Properties,
    line: Option<(Option<String>, u16)>,
    is_ensemble: bool,
) -> Result<(Option<String>, u16), BadSetting> {
    let entries = ["clientPort", "clientPortAddress"].map(|key| keys.entry(key).cloned());
    let hint = "a port, such as 2181, or 0 for any that is free";
    let port: Option<u16> = keys.number("clientPort", 0..=65_535, hint)?.map(fit);
    let host = keys.text("clientPortAddress", "an address of this machine")?;
    let host = host.map(|host| Member::without_brackets(&host).to_owned());
    let of_machine = |host: &Option<String>| host.clone().filter(|h| !Member::is_everywhere(h));
    let (line_host, line_port) = match (port, line) {
        (None, None) => return Err(keys.missing("clientPort", "clientPort=2181")),
        (Some(port), None) => return Ok((host, port)),
        (None, Some((line_host, port))) if !is_ensemble => return Ok((host.or(line_host), port)),
        (Some(port), Some(_)) if !is_ensemble => return Ok((host, port)),
        (_, Some((line_host, line_port))) => (of_machine(&line_host), line_port),
    };
    let [port_entry, host_entry] = entries;
    let behind = Member::address(line_host.as_deref().unwrap_or("0.0.0.0"), &line_port);
    let what = format!("the line of this server has ;{behind}, which applies; remove this line");
    if let Some(entry) = port_entry
        && port.is_some_and(|port| ![0, line_port].contains(&port))
    {
        return Err(keys.refuse(&entry, &what));
    }
    if let (Some(host), Some(entry)) = (of_machine(&host), host_entry) {
        match &line_host {
            None => return Err(keys.refuse(&entry, &what)),
            // Two names may stand for one address.
            Some(line_host) if *line_host != host => keys.warn(&entry, &what),
            Some(_) => {}
        }
    }
    Ok((line_host, line_port))
}

/// ZAB-20: in tests, ZooKeeper begins each epoch at this counter, so that it is soon used up. Here
/// counters begin at 1, and epochs end after as many transactions.
fn shorten_epochs(keys: &mut Properties, core: &mut Config) -> Result<(), BadSetting> {
    let entry = keys.entry("testingonly.initialZxid").cloned();
    let most = i64::from(core.limits.epoch_txns);
    let hint = "a counter, such as 4294967280 for 14 transactions per epoch";
    let first = keys.number("testingonly.initialZxid", 0..=most - 5, hint)?;
    if let (Some(first), Some(entry)) = (first, entry) {
        core.limits.epoch_txns = fit(most - first);
        keys.warn(&entry, &format!("for tests: an epoch has {} transactions", most - first));
    }
    Ok(())
}

/// Reads the file with the members that `dynamicConfigFile` names, if there is one. Returns the
/// version in its name; zero without one (RECONF-14).
fn dynamic_file(
    keys: &mut Properties,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Zxid, BadSetting> {
    let Some(entry) = keys.take("dynamicConfigFile") else { return Ok(Zxid::ZERO) };
    let text = read(Path::new(&entry.value))
        .map_err(|error| keys.refuse(&entry, &format!("cannot be read: {error}")))?;
    keys.add_dynamic(&entry.value, &text)?;
    Ok(files::version_in(&entry.value))
}

/// Refuses keys that require a security feature that is not supported yet: to start without it
/// would be unsafe.
fn refuse_what_would_not_protect(keys: &mut Properties) -> Result<(), BadSetting> {
    for (key, what) in [
        (
            "sessionRequireClientSASLAuth",
            "SASL comes with a later version: it could keep nobody out",
        ),
        ("sslQuorum", "TLS comes with a later version: servers would talk in the clear"),
        (
            "quorum.auth.learnerRequireSasl",
            "SASL comes with a later version: any leader would be followed",
        ),
        ("quorum.auth.serverRequireSasl", "SASL comes with a later version: any server could join"),
        ("audit.enable", "audit logs come with a later version: nothing would be recorded"),
    ] {
        let entry = keys.entry(key).cloned();
        if let (Some(true), Some(entry)) = (keys.switch(key, TRUE_FALSE)?, entry) {
            return Err(keys.refuse(&entry, what));
        }
    }
    if let Some(entry) = keys.take("electionAlg").filter(|entry| entry.value != "3") {
        return Err(keys.refuse(&entry, "there is one election only; use 3, or remove the line"));
    }
    Ok(())
}

/// The id of this server among several, from the file `myid` (CONF-60).
fn my_id(
    data_dir: &Path,
    members: &[Member],
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<ServerId, BadSetting> {
    let path = data_dir.join("myid");
    let file = path.display();
    let ids: Vec<String> = members.iter().map(|member| member.id.to_string()).collect();
    let ids = ids.join(", ");
    let text = read(&path).map_err(|error| {
        let what = format!(
            "{file}: cannot be read: {error}; write the number of this server into it, one of {ids}"
        );
        BadSetting::new(what)
    })?;
    // As in ZooKeeper, only the first line is read.
    let text = text.split(['\n', '\r']).next().unwrap_or_default().trim();
    let id = text.parse().ok().map(ServerId);
    id.filter(|id| members.iter().any(|member| member.id == *id)).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        BadSetting::new(format!("{file}: {text:?} has no server.N line; use one of {ids}"))
    })
}

fn core_config(
    keys: &mut Properties,
    id: ServerId,
    members: Members,
) -> Result<Config, BadSetting> {
    let tick_ms = keys.number("tickTime", 1..=MAX_TICK_MS, "milliseconds, such as 2000")?;
    let tick = Duration::from_millis(fit(tick_ms.unwrap_or(3000)));
    let core = Config::new(id, members, tick).expect("a tick above zero, one of the members");
    let [init, sync] = [("initLimit", 10), ("syncLimit", 5)].map(|(key, default)| {
        Ok(keys.number(key, 1..=MAX_TICKS, "ticks, such as 10")?.map_or(default, fit))
    });
    let core = core.with_phase_limits(init?, sync?).expect("ticks above zero");
    let mut core = session_timeouts(keys, core)?;
    let snap_count = keys.number("snapCount", 2..=1 << 31, "transactions, such as 100000")?;
    if let Some(count) = snap_count {
        core.limits.snapshot_txns = fit(count);
    }
    let limit =
        keys.number("snapSizeLimitInKb", -1..=1 << 40, "KiB, such as 4194304; 0: no limit")?;
    if let Some(kib) = limit {
        core.limits.snapshot_bytes = if kib > 0 { fit::<u64>(kib) << 10 } else { u64::MAX };
    }
    core.limits.snapshot_size_factor =
        snapshot_size_factor(keys, core.limits.snapshot_size_factor)?;
    shorten_epochs(keys, &mut core)?;
    // CONF-40.
    core.limits.prefer_snapshots = keys.switch("forceSnapshotSync", TRUE_FALSE)?.unwrap_or(false);
    let retained = keys.entry("autopurge.snapRetainCount").cloned();
    let kept = keys.number("autopurge.snapRetainCount", 0..=1 << 20, "3 or more")?;
    if let (Some(kept), Some(entry)) = (kept, retained) {
        if kept < 3 {
            keys.warn(&entry, "fewer than 3 is not safe; 3 are kept");
        }
        core.limits.snapshots_kept = fit(kept.max(3));
    }
    let mut core = access::with_tree(keys, core)?;
    core.auth = access::auth(keys)?;
    Ok(core)
}

/// CONF-29. As in ZooKeeper, with a negative factor no DIFF is read from the disk if a snapshot can
/// replace it.
fn snapshot_size_factor(keys: &mut Properties, default: u64) -> Result<u64, BadSetting> {
    const KEY: &str = "snapshotSizeFactor";
    if keys.entry(KEY).is_some_and(|entry| entry.value.starts_with('-')) {
        keys.take(KEY);
        return Ok(0);
    }
    let factor = keys.millionths(KEY, 4_000, "a decimal number, such as 0.33; -1: no log")?;
    Ok(factor.map_or(default, u64::from))
}

fn session_timeouts(keys: &mut Properties, core: Config) -> Result<Config, BadSetting> {
    let given = keys.entry("minSessionTimeout").or(keys.entry("maxSessionTimeout")).cloned();
    let min = session_timeout(keys, "minSessionTimeout")?.unwrap_or(core.session_timeout_min());
    let max = session_timeout(keys, "maxSessionTimeout")?.unwrap_or(core.session_timeout_max());
    match (core.with_session_timeouts(min, max), given) {
        (Ok(core), _) => Ok(core),
        (Err(error), Some(entry)) => Err(keys.refuse(&entry, &error.what)),
        (Err(error), None) => Err(BadSetting::new(error.to_string())),
    }
}

/// Reads a session timeout; `None` if the key is absent or -1, which is ZooKeeper's default.
fn session_timeout(keys: &mut Properties, key: &str) -> Result<Option<Duration>, BadSetting> {
    let hint = "milliseconds, such as 4000, or -1 for the default";
    let ms = keys.number(key, -1..=i64::from(i32::MAX), hint)?;
    Ok(ms.filter(|ms| *ms != -1).map(|ms| Duration::from_millis(fit(ms))))
}

fn backlog(keys: &mut Properties) -> Result<Option<u32>, BadSetting> {
    let hint = "a number of connections, or -1 for the default";
    let number = keys.number("clientPortListenBacklog", -1..=i64::from(i32::MAX), hint)?;
    Ok(number.filter(|number| *number > 0).map(fit))
}

/// `srvr` is always answered: ZooKeeper's own scripts need it (FLW-11). Clients that are connected
/// to a read-only server need `isro`.
fn whitelist(keys: &mut Properties, read_only_mode: bool) -> Whitelist {
    let (_, mut names) = keys.list("4lw.commands.whitelist").unzip();
    let mut names = names.take().unwrap_or_default();
    if names.iter().any(|name| name == "*") {
        return Whitelist::All;
    }
    names.push("srvr".to_owned());
    if read_only_mode {
        names.push("isro".to_owned());
    }
    Whitelist::These(names)
}

/// Does the server act on this key?
pub(crate) fn has_effect(key: &str) -> bool {
    match keys::kind(key) {
        Some(Kind::Line | Kind::Property | Kind::BareProperty) => true,
        Some(Kind::Same(_) | Kind::Later) | None => false,
    }
}

fn ignore_the_rest(keys: &mut Properties) {
    let switches: Vec<Entry> = keys.take_rest();
    let is_off = |group: &str| {
        let mut switches = switches.iter().map(|entry| (keys::of_line(&entry.key), &entry.value));
        switches.any(|(key, value)| key == group && value.eq_ignore_ascii_case("false"))
    };
    for entry in &switches {
        let key = keys::of_line(&entry.key);
        let holds = keys::says_what_holds(key, &entry.value);
        let switch = keys::switch_of(key).filter(|switch| is_off(switch));
        if holds || switch.is_some() {
            let what = switch.map_or_else(
                || "this server does so anyway".to_owned(),
                |switch| format!("{switch}=false switches it off"),
            );
            keys.trace.settle(entry, Fate::NoEffect(what));
            continue;
        }
        let what = match keys::kind(key) {
            Some(Kind::Same(why)) => format!("has no effect here: {why}"),
            Some(Kind::Later) => "has no effect yet".to_owned(),
            // All other supported keys were removed when they were read.
            Some(Kind::Line | Kind::Property | Kind::BareProperty) => {
                "has no effect on a server on its own".to_owned()
            }
            None => {
                keys.warn_unknown(entry);
                continue;
            }
        };
        keys.warn_without_effect(entry, &what);
    }
}

/// Narrows a number whose range has been checked.
fn fit<T: TryFrom<i64>>(number: i64) -> T {
    T::try_from(number).ok().expect("the range has been checked")
}

#[cfg(test)]
mod tests;
