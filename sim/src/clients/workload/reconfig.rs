//! Requests to reconfigure the ensemble (RECONF-05, RECONF-06), and reads of its configuration.
//!
//! Owns their arguments. Must not know which configuration is in force: most requests name servers
//! at random, so that many are refused.

use zabkeeper_core::ServerId;
use zabkeeper_core::wire::{ReconfigRequest, ReplyBody, Request, Secret};

use super::{Op, Ops, identity};
use crate::check::ensemble::{self, OBSERVER, PARTICIPANT, line};
use crate::engine::seed::Rng;

/// The node of the configuration.
const NODE: &str = "/zookeeper/config";

impl Ops {
    /// A request for an ensemble of servers from 1 to `servers`. Often the client authenticates as
    /// the super user first, because nobody else may reconfigure (RECONF-02).
    pub(super) fn reconfigure(&mut self, servers: u32) -> Request {
        if self.rng.chance(1, 4) {
            return Request::GetData { path: NODE.to_owned(), watch: self.rng.chance(1, 2) };
        }
        if self.rng.chance(1, 2) {
            let auth = Secret::from(identity::SUPER);
            let request = Request::Auth { scheme: "digest".to_owned(), auth };
            self.before = vec![(Op::Auth, request)];
        }
        let version = match self.rng.below(6) {
            0 => self.config_version.unwrap_or(1),
            1 => 1 << 32,
            _ => -1,
        };
        Request::Reconfigure(match self.rng.below(8) {
            0..3 => {
                let last = u64::from(servers);
                let out = [self.rng.range(1, last), self.rng.range(1, last)];
                let kept = (1..=last).filter(|id| !out.contains(id));
                let lines = kept.map(|id| server(id, &mut self.rng)).collect::<String>();
                let new_members = Some(lines.trim_end().replace('\n', ","));
                ReconfigRequest { joining: None, leaving: None, new_members, version }
            }
            kind => {
                let mut any = || self.rng.range(1, servers.into());
                let (joins, leaves) = (any(), any().to_string());
                let joins = match self.rng.below(20) {
                    0 => format!("server.{joins}=10.0.1.{joins}:2888:3888"),
                    1 => "server.x=10.0.1.1:2888:3888;2181".to_owned(),
                    _ => server(joins, &mut self.rng).trim_end().to_owned(),
                };
                let joining = (kind != 3).then_some(joins);
                let leaving = (kind < 6).then_some(leaves);
                ReconfigRequest { joining, leaving, new_members: None, version }
            }
        })
    }

    /// Remembers the version of the configuration in a reply.
    pub(super) fn learn_config(&mut self, path: &str, body: &ReplyBody) {
        if let ReplyBody::Data(Some(text), _) = body
            && (path.is_empty() || path == NODE)
            && let Some(version) = ensemble::version(text)
        {
            self.config_version = i64::try_from(version).ok();
        }
    }
}

/// The line of a server; one server in five is to observe.
fn server(id: u64, rng: &mut Rng) -> String {
    line(ServerId(id), if rng.chance(1, 5) { OBSERVER } else { PARTICIPANT })
}
