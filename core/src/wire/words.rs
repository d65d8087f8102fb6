//! Four-letter words: operator commands that a connection may send in place of a handshake
//! (WIRE-13).
//!
//! Owns their recognition. Must not answer them: drivers do.

/// A known command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Word {
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

/// Every word, its bytes, and its name in the whitelist.
const WORDS: [(Word, &[u8; 4], &str); 19] = [
    (Word::Conf, b"conf", "conf"),
    (Word::Cons, b"cons", "cons"),
    (Word::Crst, b"crst", "crst"),
    (Word::Dirs, b"dirs", "dirs"),
    (Word::Dump, b"dump", "dump"),
    (Word::Envi, b"envi", "envi"),
    (Word::Gtmk, b"gtmk", "gtmk"),
    (Word::Hash, b"hash", "hash"),
    (Word::Isro, b"isro", "isro"),
    (Word::Mntr, b"mntr", "mntr"),
    (Word::Ruok, b"ruok", "ruok"),
    (Word::Srst, b"srst", "srst"),
    (Word::Srvr, b"srvr", "srvr"),
    (Word::Stat, b"stat", "stat"),
    (Word::Stmk, b"stmk", "stmk"),
    (Word::TelnetClose, b"\xff\xf4\xff\xfd", "telnet close"),
    (Word::Wchc, b"wchc", "wchc"),
    (Word::Wchp, b"wchp", "wchp"),
    (Word::Wchs, b"wchs", "wchs"),
];

impl Word {
    /// The command with these four bytes, if ZooKeeper has it.
    pub fn recognise(bytes: &[u8; 4]) -> Option<Word> {
        WORDS.iter().find(|(_, known, _)| *known == bytes).map(|(word, ..)| *word)
    }

    /// Every command.
    pub fn all() -> impl Iterator<Item = Word> {
        WORDS.iter().map(|(word, ..)| *word)
    }

    /// The command as text.
    pub fn name(self) -> &'static str {
        // The table is in the order of the variants.
        WORDS[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIRE-13.
    #[test]
    fn every_four_letter_word_is_recognized_and_named() {
        for (word, bytes, name) in WORDS {
            assert_eq!(Word::recognise(bytes), Some(word));
            assert_eq!(word.name(), name);
            assert!(word == Word::TelnetClose || bytes == name.as_bytes());
        }
        assert_eq!(Word::recognise(b"orst"), None);
        assert_eq!(Word::recognise(&0xfff4_fffd_u32.to_be_bytes()), Some(Word::TelnetClose));
    }
}
