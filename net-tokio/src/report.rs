//! Answers four-letter words: which may be asked, where their figures come from, what they change.
//!
//! Owns the questions to the event loop and to the operating system. Must not know the text:
//! `words` does.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;
use zabkeeper_core::driver::{Interest, SocketId};
use zabkeeper_core::wire::Word;
use zabkeeper_core::{ConnId, Instant, Mode, Server, SessionId, Status, WatchListing};

use crate::conn::Conn;
use crate::shared::Shared;
use crate::words::{self, Descriptors, DiskUse, Dump, Environment, Figures, NOT_SERVING, Pairs};

/// Lines of a long answer that are made in one turn of the event loop.
const LINES: usize = 1_000;

/// How long a client may take for each part of a long answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Queues the answer to a word; `mask` came with the one that sets the trace mask.
pub(crate) async fn answer(shared: &Rc<Shared>, conn: &Conn, word: Word, mask: Option<i64>) {
    let is_long = matches!(word, Word::Dump | Word::Wchc | Word::Wchp);
    if !is_long || !shared.settings.words.allows(word) {
        let text = answer_short(shared, word, mask).await;
        return queue(shared, conn, &text);
    }
    let Some(status) = shared.ask(|server| server.status()).await else { return };
    if !status.serving {
        return queue(shared, conn, NOT_SERVING);
    }
    // Their length is others' affair, so they are made and sent part by part, and wait for whoever
    // has asked.
    let _told = if word == Word::Dump {
        dump(shared, conn, status.mode).await
    } else {
        watches(shared, conn, word).await
    };
}

/// FLW-14 and FLW-15; none where there is nobody left to tell.
async fn watches(shared: &Rc<Shared>, conn: &Conn, word: Word) -> Option<()> {
    if word == Word::Wchc {
        let part: Part<ByConn> = |server, shared, (at, pairs), text| {
            server.list_watches_by_conn(at, LINES, |conn, path| {
                pairs.add(text, &conn, session_of(shared, conn), path);
            })
        };
        send(shared, conn, part).await?;
    } else {
        let part: Part<ByPath> = |server, shared, (at, pairs), text| {
            server.list_watches_by_path(at, LINES, |path, conn| {
                pairs.add(text, path, path, session_of(shared, conn));
            })
        };
        send(shared, conn, part).await?;
    }
    queue(shared, conn, "\n");
    Some(())
}

/// FLW-05; none where there is nobody left to tell.
async fn dump(shared: &Rc<Shared>, conn: &Conn, mode: Mode) -> Option<()> {
    let (clients, now) = (shared.driver().clients.lines(), shared.clock.now());
    let greeting = shared.settings.limits.sessionless_timeout;
    let has_local = shared.settings.core.sessions.local;
    let collect = move |server: &Server| Dump {
        mode,
        sessions: server.sessions(),
        local_sessions: has_local.then(|| server.local_sessions()),
        owners: server.ephemerals().count(),
        clients,
        now,
        greeting,
    };
    let dump = shared.ask(collect).await?;
    queue(shared, conn, &words::dump_sessions(&dump));
    let part: Part<Ephemerals> = |server, _, (last, pairs), text| {
        let begin = last.take();
        let behind = begin.as_ref().map(|(session, path)| (*session, path.as_str()));
        for (session, path) in server.ephemerals_behind(behind).take(LINES) {
            pairs.add(text, &session, format_args!("{session}:"), path);
            *last = Some((session, path.to_owned()));
        }
        last.is_some()
    };
    send(shared, conn, part).await?;
    queue(shared, conn, &words::dump_connections(&dump));
    Some(())
}

/// How far a listing has come, and what it has printed last.
type ByConn = (WatchListing, Pairs<ConnId>);
type ByPath = (WatchListing, Pairs<String>);
type Ephemerals = (Option<(SessionId, String)>, Pairs<SessionId>);

/// Adds a part of a listing to the text. Is there more?
type Part<S> = fn(&Server, &Shared, &mut S, &mut String) -> bool;

/// Sends all parts; none where nobody takes them, or the event loop has ended.
async fn send<S: Default + 'static>(shared: &Rc<Shared>, conn: &Conn, part: Part<S>) -> Option<()> {
    let mut state = S::default();
    loop {
        let known = Rc::clone(shared);
        let make = move |server: &Server| {
            let mut text = String::new();
            let more = part(server, &known, &mut state, &mut text);
            (state, text, more)
        };
        let (next, text, more) = shared.ask(make).await?;
        state = next;
        queue(shared, conn, &text);
        if !more {
            return Some(());
        }
        timeout(PATIENCE, conn.write_rest(shared)).await.ok()?;
        if shared.driver().interest(conn.id) == Interest::Close {
            return None;
        }
    }
}

fn session_of(shared: &Shared, conn: ConnId) -> SessionId {
    shared.driver().clients.session(conn).unwrap_or_default()
}

fn queue(shared: &Shared, conn: &Conn, text: &str) {
    if let SocketId::Client(id) = conn.id {
        shared.driver().clients.queue_text(id, text);
    }
}

/// The answer to any other word.
async fn answer_short(shared: &Rc<Shared>, word: Word, mask: Option<i64>) -> String {
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

/// The same for words that only a server answers which serves clients; none where the event loop
/// has ended.
async fn answer_serving(shared: &Rc<Shared>, word: Word, status: &Status) -> Option<String> {
    Some(match word {
        Word::Conf => words::conf(&figures(shared, status, disk_use(shared).await, None)),
        Word::Cons => words::cons(&figures(shared, status, DiskUse::default(), None)),
        Word::Crst => {
            shared.driver().clients.reset_conn_stats();
            "Connection stats reset.\n".to_owned()
        }
        Word::Dirs => words::dirs(&disk_use(shared).await),
        Word::Mntr => words::mntr(&figures(shared, status, DiskUse::default(), descriptors())),
        Word::Srst => {
            shared.driver().clients.metrics_mut().reset();
            "Server stats reset.\n".to_owned()
        }
        Word::Srvr => words::srvr(&figures(shared, status, DiskUse::default(), None)),
        Word::Stat => words::stat(&figures(shared, status, DiskUse::default(), None)),
        Word::Wchs => words::watch_summary(shared.ask(|server| server.watch_summary()).await?),
        // FLW-18: the fingerprints of ZooKeeper's history are of its own encoding; nobody can
        // compare them with ours.
        Word::Hash => String::new(),
        Word::Ruok
        | Word::Envi
        | Word::Gtmk
        | Word::Stmk
        | Word::TelnetClose
        | Word::Isro
        | Word::Dump
        | Word::Wchc
        | Word::Wchp => {
            unreachable!("{} is answered elsewhere", word.name())
        }
    })
}

fn figures<'a>(
    shared: &'a Shared,
    status: &'a Status,
    disk: DiskUse,
    descriptors: Option<Descriptors>,
) -> Figures<'a> {
    let driver = shared.driver();
    Figures {
        settings: &shared.settings,
        status,
        metrics: driver.clients.metrics().clone(),
        clients: driver.clients.lines(),
        uptime: shared.clock.mono().since(Instant::default()),
        leader_uptime: shared
            .leading_since
            .get()
            .map_or(Duration::ZERO, |since| shared.clock.mono().since(since)),
        disk,
        descriptors,
        drop_probability: driver.clients.drop_probability(),
    }
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
