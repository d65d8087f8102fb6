//! The life of a server, from recovery to the last reply.
//!
//! Owns the order of starting and stopping. Must not know how any part works, nor change what
//! belongs to the whole process: the [`Host`] does.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage_fs::{Opened, Options, OsDir, StoreError};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use zabkeeper_core::driver::SocketId;
use zabkeeper_core::store::Recovered;
use zabkeeper_core::{Halted, Membership, Outline, Server, Zxid};

use crate::admin;
use crate::clock::{Clock, wall};
use crate::config::{OUR_FOLDER, Settings};
use crate::config_files;
use crate::configs;
use crate::conn;
use crate::disk::Disk;
use crate::driver;
use crate::event_loop::{Ended, EventLoop};
use crate::host::{Changes, Failure, Host, Stop, StopRequests};
use crate::listener;
use crate::metrics;
use crate::oracle;
use crate::peers;
use crate::random;
use crate::shared::Shared;
use crate::socket::Socket;

/// Pause before a process restarts itself.
const PAUSE_BEFORE_ANEW: Duration = Duration::from_secs(1);

/// A start that loads at least this much may take seconds, so the log reports it.
const LONG_LOAD_MIB: usize = 32;
const LONG_LOAD_TXNS: usize = 50_000;

/// Time for writes in progress to become durable after a request to stop; below the 10 s after
/// which service managers kill the process.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// The same for a member of an ensemble, where the other servers continue: an early end loses
/// answers, but no writes.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The longest time that a leader has to hand leadership over before that. It needs milliseconds,
/// and a tick if no follower is caught up.
const HAND_OVER: Duration = Duration::from_secs(5);

/// Time for the last replies to leave.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// A runtime for [`serve`].
///
/// # Errors
/// The operating system has no descriptors left for it.
pub(crate) fn runtime() -> Result<LocalRuntime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| Failure::Other(format!("cannot start the runtime: {error}")))
}

/// Serves until the host requests a stop; runs on a [`runtime`] of its own. Whatever concerns the
/// whole process is left to the host.
///
/// # Errors
/// The server cannot start, its disk has failed, or one of its tasks or disk threads has panicked.
pub(crate) async fn serve(
    mut settings: Settings,
    mut host: impl Host + 'static,
) -> Result<(), Failure> {
    settings.core.membership = settings
        .ensemble
        .as_ref()
        .map(|ensemble| Membership { text: ensemble.text(), since: wall() });
    let address = settings.client_address("*");
    let cannot_listen =
        |error| Failure::Other(format!("cannot listen on {address}, as clientPort says: {error}"));
    let socket = listener::bind(&settings).await.map_err(cannot_listen)?;
    settings.port = socket.local_addr().map_err(cannot_listen)?.port();
    let peer_ports = match &settings.ensemble {
        None => Vec::new(),
        Some(ensemble) => {
            let me = ensemble.member(settings.core.id()).expect("it is one of them");
            peers::bind(ensemble, me).await.map_err(Failure::Other)?
        }
    };
    let metrics_port = match &settings.metrics {
        None => None,
        Some(address) => Some(metrics::bind(address).await?),
    };
    let began = Instant::now();
    let (opened, set_aside) = open(&settings)?;
    let txns = opened.recovered.entries.len();
    let server = recover(&settings, opened.recovered)?;
    let init = began.elapsed();
    let slow_write = settings.slow_write;
    let clock = Clock::start();
    let mut driver = driver::new(&settings, server.ensemble_id(), random::number(), clock.mono());
    let startup = &mut driver.clients.metrics_mut().storage.startup;
    startup.init.add_time(init, clock.mono());
    startup.txns.add(txns as u64, clock.mono());
    let shared = Rc::new(Shared::new(settings, clock, driver));
    let wake = Rc::clone(&shared).wake().clone();
    let disk = Disk::start(opened.log, opened.snapshots, opened.reader, wake, slow_write)
        .map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    let (sender, configs) = configs::channel();
    let listening = listener::listen(socket, &shared, configs.clone()).map_err(cannot_listen)?;
    let accepting = shared.spawn(listening);
    peers::warn_without_secret(&shared.settings);
    peers::listen(&shared, peer_ports, configs.clone()).map_err(Failure::Other)?;
    // No connection is accepted before the first await.
    let requests = host.opened()?;
    shared.spawn(stop_on(requests, accepting.abort_handle(), Rc::clone(&shared)));
    shared.spawn(oracle::watch(Rc::clone(&shared)));
    if let Some(changes) = host.changes() {
        shared.spawn(take_over(changes, Rc::clone(&shared)));
    }
    let metrics = metrics_port.map(|port| metrics::start(port, &shared)).transpose()?;
    if let Some((path, version)) = shared.settings.file.clone() {
        let own = shared.settings.core.id();
        shared.spawn(config_files::write_configs(configs, own, path, version));
    }
    // A task like the readers: the runtime asks the kernel for events each time before it polls its
    // main future.
    let (asker, asks) = admin::channel(Arc::clone(shared.wake()));
    let _admin = admin::start(&shared.settings, asker).await;
    let event_loop =
        EventLoop::new(server, Rc::clone(&shared), host, disk, sender, asks, set_aside);
    let event_loop = tokio::task::spawn_local(event_loop.run());
    let ended = tokio::select! {
        biased;
        panicked = shared.panicked() => return Err(panicked),
        ended = event_loop => ended.map_err(|error| Failure::panicked(&*error.into_panic()))?,
    };

    accepting.abort();
    drop(metrics);
    let is_client = |socket: &Rc<Socket>| matches!(socket.id, SocketId::Client(_));
    // A task for each, so that a client that does not read delays no other one.
    let mut replies = JoinSet::new();
    for socket in shared.sockets().into_iter().filter(is_client) {
        let shared = Rc::clone(&shared);
        replies.spawn_local(async move { conn::write_rest(&socket, &shared).await });
    }
    let _in_time = timeout(LAST_REPLIES, replies.join_all()).await;
    match ended {
        Ended::Stopped { complete: true } => tracing::info!("stopped"),
        Ended::Stopped { complete: false } => {
            tracing::warn!("stopped with requests unanswered; their writes may be lost");
        }
        Ended::Halted(Halted::Disk(why), _) => {
            return Err(Failure::Other(format!("the disk failed: {why}")));
        }
        Ended::Halted(why @ Halted::Differs { .. }, _) => {
            // If the server differs again after it was filled, the pause limits how often it asks
            // for a snapshot.
            tokio::time::sleep(PAUSE_BEFORE_ANEW).await;
            if shared.stopping().is_some() {
                return Ok(());
            }
            return Err(Failure::Differs(format!(
                "{why}; this process begins anew, and sets its data aside"
            )));
        }
        Ended::Halted(why @ Halted::Inapplicable { .. }, applied) => {
            return Err(Failure::inapplicable(&why, applied, &shared.settings.data_dir));
        }
    }
    Ok(())
}

/// Builds the server from the content of the disk. The log reports a long load.
fn recover(settings: &Settings, recovered: Recovered) -> Result<Server, Failure> {
    let snapshot = recovered.snapshot.as_ref();
    let bytes: usize = snapshot.map_or(0, |image| image.chunks.iter().map(Bytes::len).sum());
    let behind: usize = recovered.entries.iter().map(|entry| entry.bytes.len()).sum();
    let (mib, behind_mib, txns) = (bytes >> 20, behind >> 20, recovered.entries.len());
    let is_long = mib + behind_mib >= LONG_LOAD_MIB || txns >= LONG_LOAD_TXNS;
    if is_long {
        tracing::info!(
            "loads a snapshot of {mib} MiB and {txns} transactions of {behind_mib} MiB behind it"
        );
    }
    let began = Instant::now();
    let server = Server::recover(settings.core.clone(), random::bytes::<32>(), recovered)
        .map_err(|damage| Failure::Data(format!("{}: {damage}", settings.data_dir.display())))?;
    if is_long {
        tracing::info!("has loaded it after {} ms", began.elapsed().as_millis());
    }
    Ok(server)
}

/// Opens the store. Damaged data is set aside if other servers can fill this one; the outline of
/// data that a leader has found to differ is returned, too.
fn open(settings: &Settings) -> Result<(Opened<OsDir>, Option<Outline>), Failure> {
    check_folders(settings)?;
    let (log, snapshots) = (settings.log_folder(), settings.snapshot_folder());
    let [log_dir, snapshot_dir] =
        [("dataLogDir", &log), ("dataDir", &snapshots)].map(|(key, folder)| {
            OsDir::new(folder).map_err(|error| Failure::of_folder(key, folder, &error))
        });
    let (log_dir, snapshot_dir) = (log_dir?, snapshot_dir?);
    warn_of_readers([&log_dir, &snapshot_dir]);
    let mut options = Options::new(random::number());
    options.segment_bytes = settings.segment_bytes;
    let place = log.display();
    let mut set_aside = None;
    let opened = match storage_fs::open(log_dir.clone(), snapshot_dir.clone(), options) {
        Err(error @ StoreError::Damaged { .. }) if can_be_filled(settings) => {
            tracing::error!("{place}: {error}");
            set_aside = outline_of_differing(log_dir.clone(), snapshot_dir.clone());
            let failed = |error: StoreError| Failure::of_store(&log, &error);
            let kept = storage_fs::set_aside(log_dir.clone(), snapshot_dir.clone(), options)
                .map_err(failed)?;
            tracing::warn!(
                "set aside as {}; this server has no vote until a leader has filled it",
                kept.join(", ")
            );
            storage_fs::open(log_dir, snapshot_dir, options).map_err(failed)?
        }
        Err(error @ StoreError::Damaged { .. }) => {
            let remedy = damage_remedy(settings);
            return Err(Failure::Data(format!("{place}: {error}; {remedy}")));
        }
        opened => opened.map_err(|error| Failure::of_store(&log, &error))?,
    };
    for note in &opened.notes {
        tracing::warn!("{note}");
    }
    Ok((opened, set_aside))
}

/// The outline of data that a leader has found to differ; `None` if the data cannot be read.
fn outline_of_differing(log: OsDir, snapshots: OsDir) -> Option<Outline> {
    let recovered = storage_fs::inspect(log, snapshots).ok()?.recovered;
    // Zero marks damaged data that an earlier start was setting aside; no leader has compared it.
    let at = recovered.state.differs.filter(|at| *at > Zxid::ZERO)?;
    Outline::at(at, recovered).ok()
}

/// Do the other servers include a majority of the ensemble, which holds what this server has lost?
fn can_be_filled(settings: &Settings) -> bool {
    let (own, voters) = (settings.core.id(), settings.core.voters());
    voters.is_quorum(|id| id != own)
}

/// What to do about damaged data. A member of an ensemble must not start from a copy, because the
/// other members hold newer data.
fn damage_remedy(settings: &Settings) -> String {
    let data = settings.data_dir.display();
    if settings.ensemble.is_some() {
        format!(
            "do not restore it from a copy: where the other server has all of its data, move \
             {data} \
             away on this one and start it, and the other one fills it"
        )
    } else {
        format!(
            "restore {data} from a copy, which loses what was written since, or have the files \
             looked at"
        )
    }
}

/// Warns of directories that other users may enter. The server keeps the mode of directories that
/// it has not created, because other programs may rely on it.
fn warn_of_readers(dirs: [&OsDir; 2]) {
    let mut paths: Vec<&Path> = Vec::new();
    for dir in dirs {
        if dir.is_open_to_others().unwrap_or(false) && !paths.contains(&dir.path()) {
            paths.push(dir.path());
        }
    }
    for path in paths {
        let path = path.display();
        tracing::warn!(
            "{path}: other users may enter this directory; chmod 700 {path} keeps them out"
        );
    }
}

/// ZooKeeper's folder within `dataDir` and `dataLogDir`.
const FOLDER_OF_ZOOKEEPER: &str = "version-2";

/// ZooKeeper's folder within this one, if it holds data. An empty folder is none:
/// `zkServer-initialize.sh` leaves one behind.
pub(crate) fn data_of_zookeeper(folder: &Path) -> Option<PathBuf> {
    let theirs = folder.join(FOLDER_OF_ZOOKEEPER);
    let is_empty = match std::fs::read_dir(&theirs) {
        Ok(mut entries) => entries.next().is_none(),
        // A folder that exists and cannot be read counts as data.
        Err(_) => !theirs.exists(),
    };
    (!is_empty).then_some(theirs)
}

/// Refuses to start empty beside data of ZooKeeper, because that would look like a loss of the
/// data.
fn refuse_data_of_zookeeper(folder: &Path) -> Result<(), Failure> {
    match data_of_zookeeper(folder).filter(|_| !folder.join(OUR_FOLDER).exists()) {
        None => Ok(()),
        Some(theirs) => Err(Failure::Data(format!(
            "{} holds data of Apache ZooKeeper, which this version cannot read; name an empty \
             folder as dataDir",
            theirs.display()
        ))),
    }
}

/// Refuses what the folders hold, before anything is opened.
pub(crate) fn check_folders(settings: &Settings) -> Result<(), Failure> {
    for (key, folder) in [("dataDir", &settings.data_dir), ("dataLogDir", &settings.log_dir)] {
        refuse_data_of_zookeeper(folder)?;
        if !settings.create_folders {
            refuse_a_folder_without_data(key, folder)?;
        }
    }
    Ok(())
}

/// Refuses to start without data if the settings require data: the folder may be the mount point of
/// a disk that is not mounted (CONF-33).
fn refuse_a_folder_without_data(key: &str, folder: &Path) -> Result<(), Failure> {
    if [OUR_FOLDER, FOLDER_OF_ZOOKEEPER].iter().any(|name| folder.join(name).is_dir()) {
        return Ok(());
    }
    let ours = folder.join(OUR_FOLDER);
    Err(Failure::Data(format!(
        "there is no folder {ours}, and datadir.autocreate=false keeps a server from starting \
         empty: mount the \
         disk of {key}, or create that folder for a new server",
        ours = ours.display()
    )))
}

/// How long a server that is told to stop may go on.
pub(crate) fn time_to_stop(settings: &Settings) -> Duration {
    if settings.ensemble.is_some() {
        LAST_ANSWERS + settings.core.tick().min(HAND_OVER)
    } else {
        LAST_WRITES
    }
}

/// Takes over settings that change.
async fn take_over(mut changes: UnboundedReceiver<Changes>, shared: Rc<Shared>) {
    while let Some(Changes { limits, whitelist }) = changes.recv().await {
        shared.driver().reload(&limits, whitelist);
        shared.wake().notify_one();
    }
}

/// Carries out the requests to stop.
async fn stop_on(mut requests: StopRequests, accepting: AbortHandle, shared: Rc<Shared>) {
    while let Some(request) = requests.recv().await {
        accepting.abort();
        let time = match request {
            Stop::AtOnce => Duration::ZERO,
            Stop::Gracefully => {
                tracing::info!("stopping");
                time_to_stop(&shared.settings)
            }
        };
        shared.stop(shared.clock.mono().after(time));
    }
}
