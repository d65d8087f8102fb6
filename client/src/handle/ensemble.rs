//! The ensemble itself: its configuration, and the servers that the session may use.
//!
//! Owns these operations and their requests. Must not read what a configuration says: its text is
//! that of ZooKeeper, lines such as `server.1=host:2888:3888:participant;host:2181`.

use bytes::Bytes;
use zabkeeper_core::Zxid;
use zabkeeper_core::wire::{ReconfigRequest, Request, Stat};

use super::call::Call;
use super::engine::{Asked, Command};
use super::watch::{OneshotWatch, Wanted};
use super::{Client, read};
use crate::session::ConnectString;

/// A change of the ensemble's configuration (RECONF-05): servers that join or leave, or all members
/// anew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reconfig {
    joining: Vec<String>,
    leaving: Vec<String>,
    members: Vec<String>,
    version: Option<Zxid>,
}

impl Reconfig {
    /// No change yet.
    pub fn new() -> Reconfig {
        Reconfig::default()
    }

    /// This server joins or gets another role or address: a line such as
    /// `server.4=host:2888:3888:participant;2181`.
    pub fn join(mut self, server: impl Into<String>) -> Reconfig {
        self.joining.push(server.into());
        self
    }

    /// The server with this id leaves.
    pub fn leave(mut self, id: impl ToString) -> Reconfig {
        self.leaving.push(id.to_string());
        self
    }

    /// The ensemble consists of the servers that are given so, and of no other; then nobody may
    /// join or leave besides.
    pub fn member(mut self, server: impl Into<String>) -> Reconfig {
        self.members.push(server.into());
        self
    }

    /// The change fails with `BadVersion` unless the configuration has this version.
    pub fn version(mut self, version: Zxid) -> Reconfig {
        self.version = Some(version);
        self
    }

    fn into_request(self) -> Request {
        let list = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(","));
        Request::Reconfigure(ReconfigRequest {
            joining: list(self.joining),
            leaving: list(self.leaving),
            new_members: list(self.members),
            version: self.version.map_or(-1, Zxid::wire),
        })
    }
}

impl Client {
    /// The text of the ensemble's configuration, and the statistics of its node. No chroot is added
    /// to the path (CLIENT-02).
    ///
    /// # Errors
    /// `NoAuth`.
    pub fn ensemble_config(&self) -> Call<(Bytes, Stat)> {
        self.queue("config", String::new(), Ok(Asked::Config(false)), None, read::data)
    }

    /// [`Client::ensemble_config`], and a watch that fires when the configuration changes.
    ///
    /// # Errors
    /// Those of [`Client::ensemble_config`]; then no watch is set.
    pub fn ensemble_config_and_watch(&self) -> Call<(Bytes, Stat, OneshotWatch)> {
        let (asked, wanted) = (Ok(Asked::Config(true)), Some(Wanted::Config));
        self.queue("config", String::new(), asked, wanted, read::data_and_watch)
    }

    /// Changes the ensemble's configuration, and returns the new one.
    ///
    /// # Errors
    /// `ReconfigDisabled` unless the servers have `reconfigEnabled=true`; `NoAuth` unless the
    /// session may write the configuration's node; `BadVersion`; `BadArguments` for lines that the
    /// servers do not read; `NewConfigNoQuorum` while too few of the new voters follow the leader;
    /// `ReconfigInProgress`.
    pub fn reconfig(&self, change: Reconfig) -> Call<(Bytes, Stat)> {
        self.ask("reconfig", String::new(), Ok(change.into_request()), None, read::data)
    }

    /// Replaces the list of servers that the session connects to (CLIENT-06). The session moves if
    /// its server is not listed any more, and, if the list grows, with the probability that spreads
    /// the clients of all servers evenly; then operations under way fail with
    /// [`Failure::ConnectionLoss`](crate::Failure::ConnectionLoss). The chroot stays, whatever the
    /// string says.
    pub fn update_servers(&self, servers: ConnectString) {
        // Without an engine the session has ended.
        let _ = self.commands.unbounded_send(Command::Servers(servers));
    }
}
