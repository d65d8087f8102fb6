//! Four-letter commands, which operators send on a new connection in place of a handshake
//! (WIRE-13).
//!
//! Owns their recognition. Must not answer them: `driver::four_letter` does.

/// A known command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FourLetterCommand {
    /// The configuration in force (FLW-01).
    Conf,
    /// Connections with their statistics (FLW-02).
    Cons,
    /// Resets the statistics of connections (FLW-03).
    Crst,
    /// Sizes of the data and log directories, bytes (FLW-04).
    Dirs,
    /// Sessions, ephemeral nodes, connections (FLW-05).
    Dump,
    /// Environment and version of the server (FLW-06).
    Envi,
    /// The trace mask (FLW-07).
    Gtmk,
    /// Digests of the newest states (FLW-18).
    Hash,
    /// `rw` or `ro` (FLW-17).
    Isro,
    /// Metrics, one per line (FLW-16).
    Mntr,
    /// `imok` (FLW-09).
    Ruok,
    /// Resets the statistics of the server (FLW-10).
    Srst,
    /// Statistics of the server (FLW-11).
    Srvr,
    /// Statistics of the server and of its connections (FLW-12).
    Stat,
    /// Sets the trace mask, whose 8 bytes follow (FLW-08).
    Stmk,
    /// Bytes that telnet sends when its user interrupts the connection (FLW-19).
    TelnetClose,
    /// Watches by session (FLW-14).
    Wchc,
    /// Watches by path (FLW-15).
    Wchp,
    /// Number of watches (FLW-13).
    Wchs,
}

/// Every command, its bytes, and its name in the whitelist.
const COMMANDS: [(FourLetterCommand, &[u8; 4], &str); 19] = [
    (FourLetterCommand::Conf, b"conf", "conf"),
    (FourLetterCommand::Cons, b"cons", "cons"),
    (FourLetterCommand::Crst, b"crst", "crst"),
    (FourLetterCommand::Dirs, b"dirs", "dirs"),
    (FourLetterCommand::Dump, b"dump", "dump"),
    (FourLetterCommand::Envi, b"envi", "envi"),
    (FourLetterCommand::Gtmk, b"gtmk", "gtmk"),
    (FourLetterCommand::Hash, b"hash", "hash"),
    (FourLetterCommand::Isro, b"isro", "isro"),
    (FourLetterCommand::Mntr, b"mntr", "mntr"),
    (FourLetterCommand::Ruok, b"ruok", "ruok"),
    (FourLetterCommand::Srst, b"srst", "srst"),
    (FourLetterCommand::Srvr, b"srvr", "srvr"),
    (FourLetterCommand::Stat, b"stat", "stat"),
    (FourLetterCommand::Stmk, b"stmk", "stmk"),
    (FourLetterCommand::TelnetClose, b"\xff\xf4\xff\xfd", "telnet close"),
    (FourLetterCommand::Wchc, b"wchc", "wchc"),
    (FourLetterCommand::Wchp, b"wchp", "wchp"),
    (FourLetterCommand::Wchs, b"wchs", "wchs"),
];

impl FourLetterCommand {
    /// The command with these four bytes, if ZooKeeper has it.
    pub fn recognise(bytes: &[u8; 4]) -> Option<FourLetterCommand> {
        COMMANDS.iter().find(|(_, known, _)| *known == bytes).map(|(command, ..)| *command)
    }

    /// Every command.
    pub fn all() -> impl Iterator<Item = FourLetterCommand> {
        COMMANDS.iter().map(|(command, ..)| *command)
    }

    /// The command as text.
    pub fn name(self) -> &'static str {
        // The table is in the order of the variants.
        COMMANDS[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIRE-13.
    #[test]
    fn every_four_letter_command_is_recognized_and_named() {
        for (command, bytes, name) in COMMANDS {
            assert_eq!(FourLetterCommand::recognise(bytes), Some(command));
            assert_eq!(command.name(), name);
            assert!(command == FourLetterCommand::TelnetClose || bytes == name.as_bytes());
        }
        assert_eq!(FourLetterCommand::recognise(b"orst"), None);
        assert_eq!(
            FourLetterCommand::recognise(&0xfff4_fffd_u32.to_be_bytes()),
            Some(FourLetterCommand::TelnetClose)
        );
    }
}
