//! The files that keep the configuration in force: a dynamic file, and `zoo.cfg`, which names it
//! (RECONF-14).
//!
//! Owns their names and their contents. Must not touch a file: `config_files` does.
//!
//! As in ZooKeeper, the dynamic file of version `v` is `zoo.cfg.dynamic.v`, its lines are sorted,
//! and those that it replaces leave `zoo.cfg`. Unlike ZooKeeper, all other lines of `zoo.cfg` stay
//! as they are, with their comments and in their order.

use std::path::{Path, PathBuf};

use zabkeeper_core::{EnsembleConfig, ServerId, Zxid};

use super::java_properties::{self, Pair};
use super::keys;

/// What is to be written for a configuration, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConfigFiles {
    /// The copy of `zoo.cfg`, if its server lines are about to move.
    pub(crate) backup: Option<PathBuf>,
    /// The dynamic file and its content.
    pub(crate) dynamic: (PathBuf, String),
    /// The new content of `zoo.cfg`.
    pub(crate) zoo_cfg: Vec<u8>,
}

/// The files of `config` for the server `own`; `zoo_cfg` is the absolute path of the file with this
/// `content`.
///
/// # Errors
/// The path is not Unicode, so no line of `zoo.cfg` can name it.
pub(crate) fn files_of(
    config: &EnsembleConfig,
    own: ServerId,
    zoo_cfg: &Path,
    content: &[u8],
) -> Result<ConfigFiles, String> {
    let dynamic = dynamic_path(zoo_cfg, config.version);
    let name = dynamic.to_str().ok_or("its path is not Unicode: move it to another folder")?;
    let has_client_address = config.server(own).is_some_and(|own| own.client.is_some());
    let (content, splits) = edit(content, name, has_client_address);
    let text = dynamic_text(config);
    let backup = splits.then(|| with_suffix(zoo_cfg, ".bak"));
    Ok(ConfigFiles { backup, dynamic: (dynamic, text), zoo_cfg: content })
}

/// The path of the dynamic file of this version.
fn dynamic_path(zoo_cfg: &Path, version: Zxid) -> PathBuf {
    with_suffix(zoo_cfg, &format!(".dynamic.{:x}", version.0))
}

/// The path with a suffix behind its last name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// The version in the name of a dynamic file, as in `zoo.cfg.dynamic.100000000`: the part behind
/// the last dot, if it is a hexadecimal number. Zero otherwise, as in ZooKeeper.
pub(super) fn version_in(name: &str) -> Zxid {
    let version = name.rsplit_once('.').and_then(|(_, text)| i64::from_str_radix(text, 16).ok());
    Zxid(version.and_then(|version| u64::try_from(version).ok()).unwrap_or(0))
}

/// The content of a dynamic file: ZooKeeper sorts the lines as texts and ends none of them, and
/// refuses a version in it.
fn dynamic_text(config: &EnsembleConfig) -> String {
    let text = config.to_string();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("version=")).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The content of `zoo.cfg` with a line that names the file `dynamic`, and without the lines that
/// this file replaces; and whether members were among those. With `has_client_address` the server
/// line replaces the client port, too.
fn edit(content: &[u8], dynamic: &str, has_client_address: bool) -> (Vec<u8>, bool) {
    // Keys and line ends are ASCII, so the encoding of the rest does not matter.
    let text: String = content.iter().copied().map(char::from).collect();
    let text = text.strip_prefix("\u{ef}\u{bb}\u{bf}").unwrap_or(&text);
    let mut lines = natural_lines(content);
    let (mut at, mut splits) = (None, false);
    for Pair { line, last, key, .. } in java_properties::read(text) {
        let key = keys::of_line(key.trim());
        let is_member = ["server.", "group.", "weight."].iter().any(|own| key.starts_with(own));
        let names_file = key == "dynamicConfigFile";
        let is_client = ["clientPort", "clientPortAddress"].contains(&key);
        if is_member || names_file || key == "peerType" || is_client && has_client_address {
            lines[line - 1..last].fill(&[]);
            splits |= is_member;
        }
        if names_file {
            at = Some(line - 1);
        }
    }
    let named = format!("dynamicConfigFile={}\n", escaped(dynamic));
    let mut edited = Vec::with_capacity(content.len() + named.len());
    let (before, behind) = lines.split_at(at.unwrap_or(lines.len()));
    before.iter().for_each(|line| edited.extend_from_slice(line));
    if !edited.is_empty() && !edited.ends_with(b"\n") {
        edited.push(b'\n');
    }
    edited.extend_from_slice(named.as_bytes());
    behind.iter().for_each(|line| edited.extend_from_slice(line));
    (edited, splits)
}

/// The lines of a properties file with their ends, which are `\n`, `\r` or both.
fn natural_lines(content: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        let both = rest[at..].starts_with(b"\r\n");
        let (line, behind) = rest.split_at(at + 1 + usize::from(both));
        lines.push(line);
        rest = behind;
    }
    lines.push(rest);
    lines
}

/// A value of a properties file, so that Java reads the same text from it: Java reads Latin-1.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            ' '..='~' => text.push(c),
            _ => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                text.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWELVE: &str = "server.2=b:2888:3888:participant;0.0.0.0:2182\n\
                          server.12=c:2888:3888:observer;[::1]:2181\nversion=10000000b";

    fn edited(content: &str, dynamic: &str, has_client_address: bool) -> (String, bool) {
        let (content, splits) = edit(content.as_bytes(), dynamic, has_client_address);
        (String::from_utf8(content).expect("it was UTF-8"), splits)
    }

    #[test]
    fn one_file_is_split_into_two() {
        let config = EnsembleConfig::parse(TWELVE).expect("valid");
        let content = b"# a comment\ndataDir=/d\nclientPort=2182\nserver.2=b:2888:3888\n";
        let files = files_of(&config, ServerId(2), Path::new("/c/zoo.cfg"), content);
        let files = files.expect("the path is Unicode");
        assert_eq!(
            files,
            ConfigFiles {
                backup: Some("/c/zoo.cfg.bak".into()),
                dynamic: (
                    "/c/zoo.cfg.dynamic.10000000b".into(),
                    "server.12=c:2888:3888:observer;[::1]:2181\n\
                     server.2=b:2888:3888:participant;0.0.0.0:2182"
                        .to_owned()
                ),
                zoo_cfg: b"# a comment\ndataDir=/d\n\
                           dynamicConfigFile=/c/zoo.cfg.dynamic.10000000b\n"
                    .to_vec(),
            }
        );
    }

    #[test]
    fn groups_and_weights_are_in_the_dynamic_file() {
        let lines = "server.1=a:1:2:participant\nserver.2=b:1:2:participant\ngroup.1=1:2\n\
                     weight.1=2\nweight.2=1\nversion=7";
        let config = EnsembleConfig::parse(lines).expect("valid");
        let expected = "group.1=1:2\nserver.1=a:1:2:participant\nserver.2=b:1:2:participant\n\
                        weight.1=2\nweight.2=1";
        assert_eq!(dynamic_text(&config), expected);
    }

    #[test]
    fn all_other_lines_stay_as_they_are() {
        let content = "\u{feff}# caf\u{e9}\r\ntickTime : 2000\r\n  server.1 = a:2888\\\r\n\
                       \t:3888\r\n! b\r\nclientPortListenBacklog=7\r\nmine=\\\r\n 1\r\n\
                       weight.1=2\r\npeerType=observer\r\ngroup.1=1\r\nclientPort=5\r\n\
                       clientPortAddress=h";
        let (kept, splits) = edited(content, "/d.1", false);
        assert!(splits);
        assert_eq!(
            kept,
            "\u{feff}# caf\u{e9}\r\ntickTime : 2000\r\n! b\r\nclientPortListenBacklog=7\r\n\
             mine=\\\r\n 1\r\nclientPort=5\r\nclientPortAddress=h\ndynamicConfigFile=/d.1\n"
        );
        let (kept, _) = edited(content, "/d.1", true);
        assert!(kept.ends_with("mine=\\\r\n 1\r\ndynamicConfigFile=/d.1\n"), "{kept}");
    }

    #[test]
    fn line_that_names_the_file_is_replaced_in_its_place() {
        let content = "a=1\ndynamicConfigFile=/c/zoo.cfg.dynamic.1\nb=2";
        let (kept, splits) = edited(content, "/c/zoo.cfg.dynamic.2", true);
        assert_eq!(kept, "a=1\ndynamicConfigFile=/c/zoo.cfg.dynamic.2\nb=2");
        assert!(!splits, "the members were in another file");
        let again = edited(&kept, "/c/zoo.cfg.dynamic.2", true);
        assert_eq!(again, (kept, false), "it is idempotent");
    }

    #[test]
    fn path_is_read_back() {
        for path in ["/a b/zoo.cfg.dynamic.1", "/caf\u{e9}/\u{1f600}\\.1", "/#!=:"] {
            let (text, _) = edited("", path, false);
            let pairs = java_properties::read(&text);
            assert_eq!(pairs[0].value, path);
            assert!(text.is_ascii());
        }
        assert_eq!(edited("a=1", "/d", false).0, "a=1\ndynamicConfigFile=/d\n");
    }

    #[test]
    fn version_is_behind_the_last_dot() {
        for (name, version) in [
            ("/c/zoo.cfg.dynamic.10000000b", 0x1_0000_000b),
            ("/c/members.a", 10),
            ("/c/zoo.cfg.dynamic", 0),
            ("/c.1/members", 0),
            ("/c/zoo.cfg.dynamic.-1", 0),
        ] {
            assert_eq!(version_in(name), Zxid(version), "{name}");
        }
    }
}
