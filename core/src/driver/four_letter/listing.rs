//! Long answers: `dump`, `wchc` and `wchp`, made in parts of a bounded number of lines.
//!
//! Owns the progress of an answer. Must not queue it: `four_letter` does, one part after the other,
//! each once the client has taken the part before.
//!
//! Each line is correct when it is made. A line that becomes valid or invalid between two parts may
//! be in the answer or not. In `dump`, the sessions and connections are those of the first part.

use super::conns::{Dump, Pairs, dump_connections, dump_sessions};
use super::{Clients, Step};
use crate::ids::{ConnId, SessionId};
use crate::io::Now;
use crate::server::Server;
use crate::status::Mode;
use crate::watch::WatchListing;

/// The rest of a long answer.
#[derive(Debug)]
pub(super) enum Listing {
    Dump(Box<DumpListing>),
    ByConn(WatchListing, Pairs<ConnId>),
    ByPath(WatchListing, Pairs<String>),
}

/// Progress of `dump` (FLW-05).
#[derive(Debug)]
pub(super) struct DumpListing {
    dump: Dump,
    begun: bool,
    last: Option<(SessionId, String)>,
    pairs: Pairs<SessionId>,
}

impl Listing {
    /// `local`: may the server have local sessions?
    pub(super) fn dump(
        server: &Server,
        clients: &Clients,
        mode: Mode,
        local: bool,
        now: Now,
    ) -> Listing {
        let dump = Dump {
            mode,
            sessions: server.sessions(),
            local_sessions: local.then(|| server.local_sessions()),
            owners: server.ephemerals().count(),
            clients: clients.lines(),
            now,
            sessionless_timeout: clients.limits().sessionless_timeout,
        };
        let pairs = Pairs::default();
        Listing::Dump(Box::new(DumpListing { dump, begun: false, last: None, pairs }))
    }

    /// The listing of `wchc` (FLW-14).
    pub(super) fn by_conn() -> Listing {
        Listing::ByConn(WatchListing::default(), Pairs::default())
    }

    /// The listing of `wchp` (FLW-15).
    pub(super) fn by_path() -> Listing {
        Listing::ByPath(WatchListing::default(), Pairs::default())
    }

    /// The next part.
    pub(super) fn next(&mut self, server: &Server, clients: &Clients, lines: usize) -> Step {
        let session = |conn| clients.session(conn).unwrap_or_default();
        let mut text = String::new();
        let more = match self {
            Listing::Dump(listing) => return listing.next(server, lines),
            Listing::ByConn(at, pairs) => server.list_watches_by_conn(at, lines, |conn, path| {
                pairs.add(&mut text, &conn, session(conn), path);
            }),
            Listing::ByPath(at, pairs) => server.list_watches_by_path(at, lines, |path, conn| {
                pairs.add(&mut text, path, path, session(conn));
            }),
        };
        if more { Step::Part(text) } else { Step::Answer(text + "\n") }
    }
}

impl DumpListing {
    fn next(&mut self, server: &Server, lines: usize) -> Step {
        let begins = !std::mem::replace(&mut self.begun, true);
        let mut text = if begins { dump_sessions(&self.dump) } else { String::new() };
        let begin = self.last.take();
        let behind = begin.as_ref().map(|(session, path)| (*session, path.as_str()));
        let mut listed = 0;
        let mut last = None;
        for (session, path) in server.ephemerals_behind(behind).take(lines) {
            self.pairs.add(&mut text, &session, format_args!("{session}:"), path);
            last = Some((session, path));
            listed += 1;
        }
        if listed == lines {
            self.last = last.map(|(session, path)| (session, path.to_owned()));
            return Step::Part(text);
        }
        Step::Answer(text + &dump_connections(&self.dump))
    }
}
