//! How zkCli prints statistics, dates, lists, hexadecimal dumps and watch events.
//!
//! Owns these texts. Must not do I/O.

use std::fmt::Write as _;

use zabkeeper_client::{EventType, Stat, State, WatchEvent};

const DAY_MS: i64 = 86_400_000;

/// The eleven lines of a node's statistics.
pub(crate) fn stat(stat: &Stat) -> String {
    format!(
        "cZxid = {:#x}\nctime = {}\nmZxid = {:#x}\nmtime = {}\npZxid = {:#x}\ncversion = {}\n\
         dataVersion = {}\naclVersion = {}\nephemeralOwner = {:#x}\ndataLength = {}\n\
         numChildren = {}\n",
        stat.czxid.0,
        date(stat.ctime),
        stat.mzxid.0,
        date(stat.mtime),
        stat.pzxid.0,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner.0,
        stat.data_length,
        stat.num_children,
    )
}

/// A time in ms since 1970 as Java's `Date` prints it where the time zone is UTC.
pub(crate) fn date(ms: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = ms.div_euclid(DAY_MS);
    let second = ms.rem_euclid(DAY_MS) / 1000;
    let weekday = days.rem_euclid(7);
    let (year, month, day) = civil(days);
    let name = |names: &[&'static str], at: i64| {
        usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
    };
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        name(&WEEKDAYS, weekday),
        name(&MONTHS, month - 1),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. Years begin in
/// March here, so that the day that leap years add is the last one.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
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
    fn dates_are_those_of_java() {
        for (ms, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_795_906_800_999, "Sat Nov 28 23:00:00 UTC 2026"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00 UTC 2100"),
        ] {
            assert_eq!(date(ms), expected, "{ms}");
        }
    }

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
