//! The commands of the admin server: their names, and what each needs.
//!
//! Owns this table (ADMIN-05 to ADMIN-33; Java `Commands`). Must not answer them.

/// A command, by its primary name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AdminCommand {
    /// The configuration of the server (ADMIN-06).
    Configuration,
    /// Resets the statistics of connections (ADMIN-05).
    ConnectionStatReset,
    /// Connections with their statistics (ADMIN-07).
    Connections,
    /// Sizes of the data and log directories, bytes (ADMIN-09).
    Dirs,
    /// When sessions expire, and ephemeral nodes by session (ADMIN-10).
    Dump,
    /// The environment of the process (ADMIN-11).
    Environment,
    /// The trace mask (ADMIN-12).
    GetTraceMask,
    /// Digests of the newest states (ADMIN-08).
    Hash,
    /// The text of the configuration file (ADMIN-13).
    InitialConfiguration,
    /// Does the server serve read-only clients only (ADMIN-14)?
    IsReadOnly,
    /// The newest snapshot (ADMIN-15).
    LastSnapshot,
    /// Who leads (ADMIN-16).
    Leader,
    /// All metrics (ADMIN-17).
    Monitor,
    /// Resets the statistics of observers' connections (ADMIN-18).
    ObserverConnectionStatReset,
    /// The observers that this server feeds (ADMIN-27).
    Observers,
    /// Answers without content (ADMIN-20).
    Ruok,
    /// Statistics of the server (ADMIN-24).
    ServerStats,
    /// Sets the trace mask (ADMIN-21).
    SetTraceMask,
    /// Resets the statistics of the server (ADMIN-26).
    StatReset,
    /// Statistics of the server and of its connections (ADMIN-25).
    Stats,
    /// The properties that the process was started with (ADMIN-28).
    SystemProperties,
    /// The voters (ADMIN-29).
    VotingView,
    /// Number of watches (ADMIN-32).
    WatchSummary,
    /// Watches by session (ADMIN-30).
    Watches,
    /// Watches by path (ADMIN-31).
    WatchesByPath,
    /// The state of the protocol (ADMIN-33).
    ZabState,
}

/// Every command with its names: the primary one, then the others.
const COMMANDS: [(AdminCommand, &[&str]); 26] = [
    (AdminCommand::Configuration, &["configuration", "conf", "config"]),
    (AdminCommand::ConnectionStatReset, &["connection_stat_reset", "crst"]),
    (AdminCommand::Connections, &["connections", "cons"]),
    (AdminCommand::Dirs, &["dirs"]),
    (AdminCommand::Dump, &["dump"]),
    (AdminCommand::Environment, &["environment", "env", "envi"]),
    (AdminCommand::GetTraceMask, &["get_trace_mask", "gtmk"]),
    (AdminCommand::Hash, &["hash"]),
    (AdminCommand::InitialConfiguration, &["initial_configuration", "icfg"]),
    (AdminCommand::IsReadOnly, &["is_read_only", "isro"]),
    (AdminCommand::LastSnapshot, &["last_snapshot", "lsnp"]),
    (AdminCommand::Leader, &["leader", "lead"]),
    (AdminCommand::Monitor, &["monitor", "mntr"]),
    (AdminCommand::ObserverConnectionStatReset, &["observer_connection_stat_reset", "orst"]),
    (AdminCommand::Observers, &["observers", "obsr"]),
    (AdminCommand::Ruok, &["ruok"]),
    (AdminCommand::ServerStats, &["server_stats", "srvr"]),
    (AdminCommand::SetTraceMask, &["set_trace_mask", "stmk"]),
    (AdminCommand::StatReset, &["stat_reset", "srst"]),
    (AdminCommand::Stats, &["stats", "stat"]),
    (AdminCommand::SystemProperties, &["system_properties", "sysp"]),
    (AdminCommand::VotingView, &["voting_view"]),
    (AdminCommand::WatchSummary, &["watch_summary", "wchs"]),
    (AdminCommand::Watches, &["watches", "wchc"]),
    (AdminCommand::WatchesByPath, &["watches_by_path", "wchp"]),
    (AdminCommand::ZabState, &["zabstate"]),
];

impl AdminCommand {
    /// The command with this name, which may be a short one.
    pub fn parse(name: &str) -> Option<AdminCommand> {
        let found = COMMANDS.iter().find(|(_, names)| names.contains(&name));
        found.map(|(command, _)| *command)
    }

    /// Every command, in the order of the primary names.
    pub fn all() -> impl Iterator<Item = AdminCommand> {
        COMMANDS.iter().map(|(command, _)| *command)
    }

    /// The primary name, which answers repeat.
    pub fn name(self) -> &'static str {
        let found = COMMANDS.iter().find(|(command, _)| *command == self);
        found.map_or("", |(_, names)| names[0])
    }

    /// Is it answered only while clients are served, be they read-only (ADMIN-02)?
    pub fn needs_service(self) -> bool {
        match self {
            AdminCommand::Environment
            | AdminCommand::GetTraceMask
            | AdminCommand::Monitor
            | AdminCommand::SetTraceMask
            | AdminCommand::SystemProperties => false,
            AdminCommand::Configuration
            | AdminCommand::ConnectionStatReset
            | AdminCommand::Connections
            | AdminCommand::Dirs
            | AdminCommand::Dump
            | AdminCommand::Hash
            | AdminCommand::InitialConfiguration
            | AdminCommand::IsReadOnly
            | AdminCommand::LastSnapshot
            | AdminCommand::Leader
            | AdminCommand::ObserverConnectionStatReset
            | AdminCommand::Observers
            | AdminCommand::Ruok
            | AdminCommand::ServerStats
            | AdminCommand::StatReset
            | AdminCommand::Stats
            | AdminCommand::VotingView
            | AdminCommand::WatchSummary
            | AdminCommand::Watches
            | AdminCommand::WatchesByPath
            | AdminCommand::ZabState => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_that_of_one_command() {
        let names: Vec<&str> =
            COMMANDS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for (command, own) in &COMMANDS {
            for name in *own {
                assert_eq!(AdminCommand::parse(name), Some(*command), "{name}");
                assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name}");
            }
        }
        assert!(AdminCommand::all().is_sorted_by_key(AdminCommand::name));
        assert_eq!(AdminCommand::parse("Ruok"), None);
    }
}
