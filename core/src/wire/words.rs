//! Four-letter words: commands of operators that open a connection in place of a handshake (WIRE-13).
//!
//! Owns their recognition. Must not answer them: drivers do.

/// A known command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The configuration in force (FLW-01).
    Conf,
    /// What the server runs on, and its version (FLW-06).
    Envi,
    /// `rw` or `ro` (FLW-17).
    Isro,
    /// Metrics, a line each (FLW-16).
    Mntr,
    /// `imok` (FLW-09).
    Ruok,
    /// Statistics of the server (FLW-11).
    Srvr,
    /// The same with connections (FLW-12).
    Stat,
    /// Known to ZooKeeper and not answered here, as where the whitelist leaves it out.
    Other([u8; 4]),
}

/// Words that ZooKeeper knows and this server does not answer.
const OTHERS: [&[u8; 4]; 12] = [
    b"cons", b"crst", b"dirs", b"dump", b"gtmk", b"hash", b"orst", b"srst", b"stmk", b"wchc",
    b"wchp", b"wchs",
];

impl Word {
    /// The command with these four bytes, if ZooKeeper has it.
    pub fn recognise(bytes: &[u8; 4]) -> Option<Word> {
        match bytes {
            b"conf" => Some(Word::Conf),
            b"envi" => Some(Word::Envi),
            b"isro" => Some(Word::Isro),
            b"mntr" => Some(Word::Mntr),
            b"ruok" => Some(Word::Ruok),
            b"srvr" => Some(Word::Srvr),
            b"stat" => Some(Word::Stat),
            other => OTHERS.contains(&other).then_some(Word::Other(*other)),
        }
    }

    /// The command as text.
    pub fn name(&self) -> &str {
        match self {
            Word::Conf => "conf",
            Word::Envi => "envi",
            Word::Isro => "isro",
            Word::Mntr => "mntr",
            Word::Ruok => "ruok",
            Word::Srvr => "srvr",
            Word::Stat => "stat",
            Word::Other(bytes) => std::str::from_utf8(bytes).expect("the words are ASCII"),
        }
    }
}
