//! How zkCli prints statistics, dates, lists, hexadecimal dumps and watch events.
//!
//! Owns these texts. Must not do I/O.

use std::fmt::Write as _;

use zabkeeper_client::{EventType, Stat, State, WatchEvent};
use zabkeeper_core::WallMs;
use zabkeeper_core::driver::four_letter::date;

/// The eleven lines of a node's statistics.
pub(crate) fn stat(stat: &Stat) -> String {
    format!(
        "cZxid = {:#x}\nctime = {}\nmZxid = {:#x}\nmtime = {}\npZxid = {:#x}\ncversion = {}\n\
         dataVersion = {}\naclVersion = {}\nephemeralOwner = {:#x}\ndataLength = {}\n\
         numChildren = {}\n",
        stat.czxid.0,
        date::text(WallMs(stat.ctime)),
        stat.mzxid.0,
        date::text(WallMs(stat.mtime)),
        stat.pzxid.0,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner.0,
        stat.data_length,
        stat.num_children,
    )
}

/// `[a, b]`.
pub(crate) fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    format!("[{}]", items.join(", "))
}

/// Bytes as `get -x` prints them (netty's `prettyHexDump`).
pub(crate) fn hex_dump(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    let rule = "+--------+-------------------------------------------------+----------------+";
    let mut text = format!(
        "         +{:-<49}+\n         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n{rule}\n",
        ""
    );
    for (row, bytes) in bytes.chunks(16).enumerate() {
        let hex: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
        let plain = |byte: &u8| if matches!(byte, 0x20..=0x7e) { char::from(*byte) } else { '.' };
        let plain: String = bytes.iter().map(plain).collect();
        writeln!(text, "|{:08x}|{hex:<48} |{plain:<16}|", row * 16).expect("a text takes all");
    }
    text + rule
}

/// A watch event as zkCli prints it.
pub(crate) fn event(event: &WatchEvent) -> String {
    let zxid = event.zxid.map_or(-1, |zxid| i128::from(zxid.0));
    let (kind, path) = (event_name(event.event), &event.path);
    format!("WatchedEvent state:SyncConnected type:{kind} path:{path} zxid: {zxid}")
}

/// The removal of a watch as zkCli prints it.
pub(crate) fn removal(kind: &str, path: &str) -> String {
    format!("WatchedEvent state:SyncConnected type:{kind} path:{path} zxid: -1")
}

/// A change of the session's state as zkCli prints it.
pub(crate) fn state_event(state: State) -> String {
    let name = match state {
        State::Connecting => "Disconnected",
        State::Connected => "SyncConnected",
        State::ConnectedReadOnly => "ConnectedReadOnly",
        State::Expired => "Expired",
        State::AuthFailed => "AuthFailed",
        State::Closed => "Closed",
    };
    format!("WatchedEvent state:{name} type:None path:null zxid: -1")
}

/// The state of a session in the prompt.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Connecting => "CONNECTING",
        State::Connected => "CONNECTED",
        State::ConnectedReadOnly => "CONNECTEDREADONLY",
        State::Expired | State::Closed => "CLOSED",
        State::AuthFailed => "AUTH_FAILED",
    }
}

/// The name of an event's kind.
pub(crate) fn event_name(event: EventType) -> &'static str {
    match event {
        EventType::NodeCreated => "NodeCreated",
        EventType::NodeDeleted => "NodeDeleted",
        EventType::NodeDataChanged => "NodeDataChanged",
        EventType::NodeChildrenChanged => "NodeChildrenChanged",
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_client::{SessionId, Zxid};

    use super::*;

    #[test]
    fn statistics_are_printed_as_zookeeper_prints_them() {
        let node = Stat {
            czxid: Zxid(3),
            mzxid: Zxid(26),
            ephemeral_owner: SessionId(-2),
            version: 1,
            data_length: 2,
            ..Stat::default()
        };
        assert_eq!(
            stat(&node),
            "cZxid = 0x3\nctime = Thu Jan 01 00:00:00 UTC 1970\nmZxid = 0x1a\n\
             mtime = Thu Jan 01 00:00:00 UTC 1970\npZxid = 0x0\ncversion = 0\ndataVersion = 1\n\
             aclVersion = 0\nephemeralOwner = 0xfffffffffffffffe\ndataLength = 2\n\
             numChildren = 0\n"
        );
    }

    /// The text is what ZooKeeper 3.9.4 prints.
    #[test]
    fn bytes_are_dumped_as_netty_dumps_them() {
        let expected = "\
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
|00000000| 68 65 6c 6c 6f 20 77 6f 72 6c 64                |hello world     |
+--------+-------------------------------------------------+----------------+";
        assert_eq!(hex_dump(b"hello world").trim_start(), expected.trim_start());
        assert_eq!(hex_dump(&[0xff; 17]).lines().count(), 6);
        assert_eq!(hex_dump(b""), "");
    }
}
