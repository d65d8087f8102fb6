//! Answers four-letter words: which may be asked, where their figures come from, what they change.
//!
//! Owns the questions to the hub and to the operating system. Must not know the text: `words` does.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use zabkeeper_core::wire::Word;
use zabkeeper_core::{ConnId, Instant, Server, SessionId, Status};

use crate::shared::Shared;
use crate::words::{self, Descriptors, DiskUse, Dump, Environment, Figures, NOT_SERVING};

/// The answer to a word; `mask` came with the one that sets the trace mask.
pub(crate) async fn answer(shared: &Rc<Shared>, word: Word, mask: Option<i64>) -> String {
    if !shared.settings.words.allows(word) {
        return words::refused(word);
    }
    // These are answered whatever the server does, even if its core is busy.
    match word {
        Word::Ruok => return "imok".to_owned(),
        Word::Envi => return words::envi(&environment()),
        Word::Gtmk => return shared.trace_mask.get().to_string(),
        Word::Stmk => {
            // As in ZooKeeper the mask can be read again; here it has no effect.
            shared.trace_mask.set(mask.unwrap_or_default());
            return shared.trace_mask.get().to_string();
        }
        // ZooKeeper knows it in order to close without a word, also where everything is allowed.
        Word::TelnetClose => return String::new(),
        Word::Conf
        | Word::Cons
        | Word::Crst
        | Word::Dirs
        | Word::Dump
        | Word::Hash
        | Word::Isro
        | Word::Mntr
        | Word::Srst
        | Word::Srvr
        | Word::Stat
        | Word::Wchc
        | Word::Wchp
        | Word::Wchs => {}
    }
    let Some(status) = shared.ask(|server| server.status()).await else {
        return String::new();
    };
    match (word, status.serving) {
        (Word::Isro, serving) => if serving { "rw" } else { "null" }.to_owned(),
        (Word::Hash, false) => NOT_SERVING.trim_end().to_owned(),
        (_, false) => NOT_SERVING.to_owned(),
        (_, true) => answer_serving(shared, word, &status).await.unwrap_or_default(),
    }
}

/// The same for words that only a server answers which serves clients; none where the hub has ended.
async fn answer_serving(shared: &Rc<Shared>, word: Word, status: &Status) -> Option<String> {
    Some(match word {
        Word::Conf => words::conf(&figures(shared, status, disk_use(shared).await, None)),
        Word::Cons => words::cons(&figures(shared, status, DiskUse::default(), None)),
        Word::Crst => {
            shared.conns().iter().for_each(|conn| conn.reset_stats());
            "Connection stats reset.\n".to_owned()
        }
        Word::Dirs => words::dirs(&disk_use(shared).await),
        Word::Dump => {
            let (mode, clients) = (status.mode, shared.client_lines());
            let (now, greeting) = (shared.clock.now(), shared.settings.limits.greeting);
            let has_local = shared.settings.core.sessions.local;
            let dump = move |server: &Server| {
                let sessions = server.sessions();
                let local_sessions = has_local.then(|| server.local_sessions());
                let ephemerals = server.ephemerals();
                let ephemerals = ephemerals
                    .map(|(session, paths)| (session, paths.map(str::to_owned).collect()))
                    .collect();
                words::dump(&Dump {
                    mode,
                    sessions,
                    local_sessions,
                    ephemerals,
                    clients,
                    now,
                    greeting,
                })
            };
            shared.ask(dump).await?
        }
        Word::Mntr => words::mntr(&figures(shared, status, DiskUse::default(), descriptors())),
        Word::Srst => {
            shared.traffic.borrow_mut().reset();
            "Server stats reset.\n".to_owned()
        }
        Word::Srvr => words::srvr(&figures(shared, status, DiskUse::default(), None)),
        Word::Stat => words::stat(&figures(shared, status, DiskUse::default(), None)),
        Word::Wchc => {
            let sessions = sessions(shared);
            let text = shared
                .ask(move |server| words::watches_by_session(server.watches_by_conn(), &sessions));
            text.await?
        }
        Word::Wchp => {
            let sessions = sessions(shared);
            let text = shared
                .ask(move |server| words::watches_by_path(server.watches_by_path(), &sessions));
            text.await?
        }
        Word::Wchs => words::watch_summary(shared.ask(|server| server.watch_summary()).await?),
        // FLW-18: the fingerprints of ZooKeeper's history are of its own encoding; nobody can compare them with ours.
        Word::Hash => String::new(),
        Word::Ruok | Word::Envi | Word::Gtmk | Word::Stmk | Word::TelnetClose | Word::Isro => {
            unreachable!("{} is answered before", word.name())
        }
    })
}

fn figures<'a>(
    shared: &'a Shared,
    status: &'a Status,
    disk: DiskUse,
    descriptors: Option<Descriptors>,
) -> Figures<'a> {
    Figures {
        settings: &shared.settings,
        status,
        traffic: shared.traffic.borrow().clone(),
        clients: shared.client_lines(),
        uptime: shared.clock.mono().since(Instant::default()),
        leader_uptime: shared
            .leading_since
            .get()
            .map_or(Duration::ZERO, |since| shared.clock.mono().since(since)),
        disk,
        descriptors,
        drop_probability: shared.drop_probability(),
    }
}

/// The session of each connection that has one.
fn sessions(shared: &Shared) -> BTreeMap<ConnId, SessionId> {
    let conns = shared.conns();
    conns.iter().filter_map(|conn| Some((conn.id, conn.session()?))).collect()
}

/// Away from this thread: the disk may be slow.
async fn disk_use(shared: &Shared) -> DiskUse {
    let folders = [shared.settings.snapshot_folder(), shared.settings.log_folder()];
    let sizes = move || folders.map(|folder| bytes_in(&folder));
    let [snapshots, log] =
        tokio::task::spawn_blocking(sizes).await.expect("a panic aborts the process");
    DiskUse { snapshots, log }
}

/// Bytes of all files in a folder; what cannot be read counts nothing.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

fn environment() -> Environment {
    let kernel = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        Some(text.trim().to_owned())
    };
    Environment {
        host: kernel("hostname"),
        os_version: kernel("osrelease"),
        user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok(),
        home: std::env::var("HOME").ok(),
        folder: std::env::current_dir().ok().map(|folder| folder.display().to_string()),
        memory: memory(),
    }
}

/// In MiB, from Linux's `/proc`; none elsewhere.
fn memory() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? >> 10)
    };
    Some([mib("MemAvailable:")?, mib("MemTotal:")?])
}

/// From Linux's `/proc`; none elsewhere.
fn descriptors() -> Option<Descriptors> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let limit = line.split_whitespace().next()?.parse().ok()?;
    Some(Descriptors { open, limit })
}
