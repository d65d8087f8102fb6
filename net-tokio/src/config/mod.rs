//! What the operator decides, read from `zoo.cfg` into values that are valid by construction.
//!
//! Owns every key and its default. Must not touch files but the one it is told to read and `myid`, nor sockets.

mod members;
mod properties;
mod tolerated;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zabkeeper_core::wire::{MAX_FRAME_DEFAULT, Word};
use zabkeeper_core::{Config, ServerId, Voters};

pub(crate) use members::{Ensemble, Member};
pub(crate) use properties::BadSetting;
use properties::Properties;

/// Everything that the driver and the core are told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What the core needs.
    pub(crate) core: Config,
    /// The other servers; none for a server on its own.
    pub(crate) ensemble: Option<Ensemble>,
    /// Address to listen on; none is every address of the machine.
    pub(crate) host: Option<String>,
    /// Port to listen on.
    pub(crate) port: u16,
    /// `dataDir`: where snapshots and state go, in a folder of our own.
    pub(crate) data_dir: PathBuf,
    /// `dataLogDir`: where the log goes.
    pub(crate) log_dir: PathBuf,
    /// `preAllocSize`, in bytes here (KiB in the file): how far ahead of its end the log reserves room.
    pub(crate) preallocate_bytes: u64,
    /// `jute.maxbuffer`: largest request, bytes.
    pub(crate) max_frame: u32,
    /// `maxClientCnxns`: connections accepted from one address; none is no bound.
    pub(crate) connections_per_ip: Option<usize>,
    /// `maxCnxns`: connections accepted altogether; none is no bound.
    pub(crate) connections: Option<usize>,
    /// `clientPortListenBacklog`; none is ours.
    pub(crate) backlog: Option<u32>,
    /// Four-letter words that are answered.
    pub(crate) words: Whitelist,
}

/// `4lw.commands.whitelist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whitelist {
    /// `*`.
    All,
    /// These names.
    These(Vec<String>),
}

/// Folder of ours within `dataDir` and `dataLogDir`, so that a directory can never hold two formats mixed.
const OUR_FOLDER: &str = "zabkeeper";

/// Largest tick, ms: 20 of them, the longest session timeout, still fit the wire's signed 32 bits.
const MAX_TICK_MS: i64 = i32::MAX as i64 / 20;

/// Most ticks of a limit: a day of the default tick.
const MAX_TICKS: i64 = 28_800;

/// The server that runs where no `server.N` line names one.
const ALONE: ServerId = ServerId(1);

impl Settings {
    /// For trying it out: this machine only, data in the current folder, all four-letter words.
    pub(crate) fn for_a_try() -> Settings {
        let tick = Duration::from_millis(2000);
        let core = Config::new(ALONE, Voters::new([ALONE]), tick).expect("2 s is a tick");
        let data_dir = PathBuf::from("zabkeeper-data");
        Settings {
            core,
            ensemble: None,
            host: Some("127.0.0.1".to_owned()),
            port: 2181,
            log_dir: data_dir.clone(),
            data_dir,
            preallocate_bytes: 64 << 20,
            max_frame: MAX_FRAME_DEFAULT,
            connections_per_ip: Some(60),
            connections: None,
            backlog: None,
            words: Whitelist::All,
        }
    }

    /// What a file says, and what the operator should be warned of.
    ///
    /// # Errors
    /// A file that cannot be read, or a setting that cannot be.
    pub(crate) fn from_file(path: &Path) -> Result<(Settings, Vec<String>), BadSetting> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| BadSetting::new(format!("{file}: cannot be read: {error}")))?;
        parse(&file, &text, &|myid| std::fs::read_to_string(myid))
    }

    /// Where snapshots and state are.
    pub(crate) fn snapshot_folder(&self) -> PathBuf {
        self.data_dir.join(OUR_FOLDER)
    }

    /// Where the log is.
    pub(crate) fn log_folder(&self) -> PathBuf {
        self.log_dir.join(OUR_FOLDER)
    }
}

impl Whitelist {
    /// Is the command to be answered?
    pub(crate) fn allows(&self, word: &Word) -> bool {
        match self {
            Whitelist::All => true,
            Whitelist::These(names) => names.iter().any(|name| name == word.name()),
        }
    }
}

/// Reads the text of `file`, whose name only goes into messages; `read` reads the file `myid`.
///
/// # Errors
/// The first setting that cannot be.
pub(crate) fn parse(
    file: &str,
    text: &str,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(Settings, Vec<String>), BadSetting> {
    let mut keys = Properties::read(file, text)?;
    let data_dir = match keys.take("dataDir") {
        Some(entry) if !entry.value.is_empty() => PathBuf::from(entry.value),
        _ => return Err(keys.missing("dataDir", "the folder for its data, as dataDir=/var/lib/zk")),
    };
    let members = members::read_members(&mut keys)?;
    // One `server.N` line makes a server on its own, whatever `myid` says, as with ZooKeeper.
    let id = match &members[..] {
        [] => ALONE,
        [only] => only.id,
        several => my_id(&data_dir, several, read)?,
    };
    let client = members.iter().find(|member| member.id == id).and_then(|me| me.client.clone());
    let ensemble = members::ensemble(&mut keys, members)?;
    let voters = ensemble.as_ref().map_or_else(|| Voters::new([id]), Ensemble::voters);
    let core = core_config(&mut keys, id, voters)?;
    // Empty, it would put the log into whatever folder the server is started from.
    let log_dir = keys.text("dataLogDir", "a folder for the log")?;
    let log_dir = log_dir.map_or_else(|| data_dir.clone(), PathBuf::from);
    let port = keys.number("clientPort", 1..=65_535, "a port, such as 2181")?.map(fit);
    let (port, member_host) = match (port, client) {
        (Some(port), _) => (port, None),
        (None, Some((host, port))) => (port, host),
        (None, None) => return Err(keys.missing("clientPort", "clientPort=2181")),
    };
    let preallocate = keys.number("preAllocSize", 1..=1 << 22, "KiB, such as 65536")?;
    let max_frame = keys.number("jute.maxbuffer", 1024..=128 << 20, "bytes, such as 1048575")?;
    let settings = Settings {
        core,
        ensemble,
        host: keys.text("clientPortAddress", "an address of this machine")?.or(member_host),
        port,
        data_dir,
        log_dir,
        preallocate_bytes: fit::<u64>(preallocate.unwrap_or(65_536)) << 10,
        max_frame: max_frame.map_or(MAX_FRAME_DEFAULT, fit),
        connections_per_ip: bound(&mut keys, "maxClientCnxns")?.unwrap_or(Some(60)),
        connections: bound(&mut keys, "maxCnxns")?.unwrap_or(None),
        backlog: backlog(&mut keys)?,
        words: whitelist(&mut keys),
    };
    ignore_the_rest(&mut keys);
    Ok((settings, keys.warnings))
}

/// Which of several servers this one is: the file `myid` says (CONF-60).
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
    let id = text.trim().parse().ok().map(ServerId);
    id.filter(|id| members.iter().any(|member| member.id == *id)).ok_or_else(|| {
        let text: String = text.trim().chars().take(40).collect();
        BadSetting::new(format!("{file}: {text:?} has no server.N line; use one of {ids}"))
    })
}

fn core_config(keys: &mut Properties, id: ServerId, voters: Voters) -> Result<Config, BadSetting> {
    let tick_ms = keys.number("tickTime", 1..=MAX_TICK_MS, "milliseconds, such as 2000")?;
    let tick = Duration::from_millis(fit(tick_ms.unwrap_or(3000)));
    let core = Config::new(id, voters, tick).expect("a tick above zero, one of the voters");
    let [init, sync] = [("initLimit", 10), ("syncLimit", 5)].map(|(key, default)| {
        Ok(keys.number(key, 1..=MAX_TICKS, "ticks, such as 10")?.map_or(default, fit))
    });
    let core = core.with_phase_limits(init?, sync?).expect("ticks above zero");
    let mut core = session_timeouts(keys, core)?;
    let snap_count = keys.number("snapCount", 2..=1 << 31, "transactions, such as 100000")?;
    if let Some(count) = snap_count {
        core.limits.snapshot_txns = fit(count);
    }
    let retained = keys.entry("autopurge.snapRetainCount").cloned();
    let kept = keys.number("autopurge.snapRetainCount", 0..=1 << 20, "3 or more")?;
    if let (Some(kept), Some(entry)) = (kept, retained) {
        if kept < 3 {
            keys.warn(&entry, "fewer than 3 is not safe; 3 are kept");
        }
        core.limits.snapshots_kept = fit(kept.max(3));
    }
    Ok(core)
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

/// None where it is absent or -1, ZooKeeper's word for the default.
fn session_timeout(keys: &mut Properties, key: &str) -> Result<Option<Duration>, BadSetting> {
    let hint = "milliseconds, such as 4000, or -1 for the default";
    let ms = keys.number(key, -1..=i64::from(i32::MAX), hint)?;
    Ok(ms.filter(|ms| *ms != -1).map(|ms| Duration::from_millis(fit(ms))))
}

/// A bound of connections, zero switching it off.
fn bound(keys: &mut Properties, key: &str) -> Result<Option<Option<usize>>, BadSetting> {
    let hint = "a number of connections, or 0 for no bound";
    let number = keys.number(key, 0..=i64::from(i32::MAX), hint)?;
    Ok(number.map(|number| (number > 0).then(|| fit(number))))
}

fn backlog(keys: &mut Properties) -> Result<Option<u32>, BadSetting> {
    let hint = "a number of connections, or -1 for the default";
    let number = keys.number("clientPortListenBacklog", -1..=i64::from(i32::MAX), hint)?;
    Ok(number.filter(|number| *number > 0).map(fit))
}

fn whitelist(keys: &mut Properties) -> Whitelist {
    let value = keys.take("4lw.commands.whitelist").map_or("srvr".to_owned(), |e| e.value);
    let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(|name| name == "*") { Whitelist::All } else { Whitelist::These(names) }
}

fn ignore_the_rest(keys: &mut Properties) {
    for entry in keys.take_prefixed("") {
        if tolerated::is_known(&entry.key) {
            keys.warn(&entry, "has no effect yet");
        } else {
            keys.warn(&entry, "unknown key, ignored; is it spelt right?");
        }
    }
}

/// Narrows a number whose range has been checked.
fn fit<T: TryFrom<i64>>(number: i64) -> T {
    T::try_from(number).ok().expect("the range has been checked")
}

#[cfg(test)]
mod tests;
