//! The state of a server and its disk as text for dumps: tree, sessions, watches, links, files,
//! log.
//!
//! Owns the text. Must not change what it reads, nor draw from a random stream.

use std::collections::BTreeMap;
use std::fmt::Write;

use zabkeeper_core::txn::Txn;
use zabkeeper_core::wire::WatcherType;
use zabkeeper_core::{Instant, Server};

use super::disk_audit;
use super::{Node, Phase};
use crate::check::guard;

/// Number of transactions shown from the end of the log.
const LOG_SHOWN: usize = 200;
const WATCHES: [(WatcherType, &str); 4] = [
    (WatcherType::Data, "data"),
    (WatcherType::Children, "children"),
    (WatcherType::Persistent, "persistent"),
    (WatcherType::PersistentRecursive, "recursive"),
];

impl Node {
    /// The whole state as text.
    pub fn held(&self, now: Instant) -> String {
        // A server that has violated a rule may panic when it is queried.
        let show = |what: &str, ask: &dyn Fn() -> String| {
            guard::catch(ask).unwrap_or_else(|panic| format!("{what}: {panic}\n"))
        };
        let process = match &self.phase {
            Phase::Down => "no process\n".to_owned(),
            Phase::Recovering(_) => "the process reads its disk\n".to_owned(),
            Phase::Up(process) => {
                show("the server", &|| of_server(process.server()) + &process.links_held())
            }
        };
        process + &show("the disk", &|| self.on_disk(now))
    }

    fn on_disk(&self, now: Instant) -> String {
        let disk = self.disk.borrow();
        let mut text = format!(
            "\ndisk: {} bytes in files, {} changes that a power failure could take away\n",
            disk.used(),
            disk.undurable()
        );
        for (name, bytes, pending) in disk.sizes() {
            let pending =
                if pending == 0 { String::new() } else { format!(", {pending} not durable") };
            let _infallible = writeln!(text, "  {name} {bytes} bytes{pending}");
        }
        match disk_audit::log(&disk, now, self.store) {
            Err(why) => {
                let _infallible = writeln!(text, "\nlog: {why}");
            }
            Ok(entries) => {
                let skipped = entries.len().saturating_sub(LOG_SHOWN);
                let _infallible = writeln!(
                    text,
                    "\nlog, as whoever opens this disk finds it: {} transactions{}",
                    entries.len(),
                    if skipped == 0 { "" } else { ", the last of them" }
                );
                for entry in &entries[skipped..] {
                    let _infallible = match Txn::decode(entry) {
                        Ok(txn) => writeln!(text, "  {txn}"),
                        Err(why) => writeln!(text, "  {} {why}", entry.zxid),
                    };
                }
            }
        }
        text
    }
}

fn of_server(server: &Server) -> String {
    let status = server.status();
    let mut text = format!(
        "tree         {} nodes with {} bytes, {} of them ephemeral; digest with sessions \
         {:016x}\nbacklog      {:?}\n",
        status.nodes,
        status.data_bytes,
        status.ephemerals,
        server.digest(),
        server.backlog()
    );
    text.push_str(
        "\nsessions, of everybody and then its own local ones (a leader knows at which \
        server they are)\n",
    );
    let ephemerals: BTreeMap<_, Vec<&str>> =
        server.ephemerals().map(|(session, paths)| (session, paths.collect())).collect();
    let everybodys = server.sessions().into_iter().map(|session| (session, ""));
    let own = server.local_sessions().into_iter().map(|session| (session, " local,"));
    for (session, session_kind) in everybodys.chain(own) {
        let at = session.server.map_or(String::new(), |id| format!(" at s{id},"));
        let expires = session.expires.map_or(String::new(), |at| format!(", expires at {at}"));
        let nodes = ephemerals.get(&session.id).map_or(String::new(), |paths| paths.join(" "));
        let _infallible = writeln!(
            text,
            "  {}{session_kind}{at} {} ms{expires} {nodes}",
            session.id, session.timeout_ms
        );
    }
    text.push_str("\nwatches\n");
    for (kind, name) in WATCHES {
        for (conn, path) in server.watches_of(kind) {
            let _infallible = writeln!(text, "  {conn} {name} {path}");
        }
    }
    text
}
