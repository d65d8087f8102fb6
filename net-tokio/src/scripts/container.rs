//! `zabkeeper container`: `zoo.cfg` and `myid` from the environment variables of the container
//! image `zookeeper`.
//!
//! Owns these variables, with the defaults of that image. Must not check values: the parser does.
//!
//! As with that image, files that exist are used as they are: a mounted `zoo.cfg` counts, and no
//! restart changes the id of a server.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{CommandFailure, failed};

/// The variables of the lines of `zoo.cfg`, and their defaults.
const LINES: [(&str, &str, &str); 10] = [
    ("dataDir", DATA_DIR, "/data"),
    ("dataLogDir", "ZOO_DATA_LOG_DIR", "/datalog"),
    ("tickTime", "ZOO_TICK_TIME", "2000"),
    ("initLimit", "ZOO_INIT_LIMIT", "5"),
    ("syncLimit", "ZOO_SYNC_LIMIT", "2"),
    ("autopurge.snapRetainCount", "ZOO_AUTOPURGE_SNAPRETAINCOUNT", "3"),
    ("autopurge.purgeInterval", "ZOO_AUTOPURGE_PURGEINTERVAL", "0"),
    ("maxClientCnxns", "ZOO_MAX_CLIENT_CNXNS", "60"),
    ("standaloneEnabled", "ZOO_STANDALONE_ENABLED", "true"),
    ("admin.enableServer", "ZOO_ADMINSERVER_ENABLED", "true"),
];

const DATA_DIR: &str = "ZOO_DATA_DIR";
const CONF_DIR: &str = "ZOO_CONF_DIR";
const MY_ID: &str = "ZOO_MY_ID";

/// The secret of the servers (`quorum.secretFile`), which is written to a file in the folder of
/// `zoo.cfg`: files that Kubernetes mounts have modes that the server refuses.
const SECRET: &str = "ZABKEEPER_QUORUM_SECRET";
const SECRET_FILE: &str = "quorum.secret";

/// The only server, if no variable lists servers.
const ALONE: &str = "server.1=localhost:2888:3888;2181";

/// Writes the files that are missing, and returns the path of `zoo.cfg`.
///
/// # Errors
/// A folder cannot be written to, or a variable cannot be used.
pub(crate) fn prepare() -> Result<PathBuf, CommandFailure> {
    let variable = |name: &str| {
        std::env::var_os(name).map(OsString::into_string).transpose().map_err(|value| {
            failed(format!("{name}={}: not UTF-8; write it in UTF-8", value.display()))
        })
    };
    // All of them are looked up here, so that the rest cannot fail on their encoding.
    let names = LINES.iter().map(|(_, name, _)| *name);
    let names = names.chain([CONF_DIR, MY_ID, "HOSTNAME", SERVERS, WHITELIST, EXTRA, SECRET]);
    let mut values = Vec::new();
    for name in names {
        values.extend(variable(name)?.map(|value| (name, value)));
    }
    let lookup = |name: &str| {
        let found = values.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| value.clone())
    };
    let conf_dir = PathBuf::from(lookup(CONF_DIR).unwrap_or_else(|| "/conf".to_owned()));
    let data_dir = PathBuf::from(lookup(DATA_DIR).unwrap_or_else(|| "/data".to_owned()));
    let zoo_cfg = conf_dir.join("zoo.cfg");
    if let Some(secret) = lookup(SECRET) {
        write_secret(&conf_dir.join(SECRET_FILE), &secret)?;
    }
    write_if_absent(&zoo_cfg, || Ok(zoo_cfg_of(&conf_dir, &lookup)))?;
    write_if_absent(&data_dir.join("myid"), || id(&lookup).map(|id| format!("{id}\n")))?;
    Ok(zoo_cfg)
}

const SERVERS: &str = "ZOO_SERVERS";
const WHITELIST: &str = "ZOO_4LW_COMMANDS_WHITELIST";
const EXTRA: &str = "ZOO_CFG_EXTRA";

/// The text of `zoo.cfg`. Servers and further lines are words that blanks or line feeds separate.
fn zoo_cfg_of(conf_dir: &Path, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (key, name, default) in LINES {
        let value = variable(name).unwrap_or_else(|| default.to_owned());
        lines.push(format!("{key}={value}"));
    }
    let words = |name: &str| -> Vec<String> {
        let text = variable(name).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let servers = words(SERVERS);
    lines.extend(if servers.is_empty() { vec![ALONE.to_owned()] } else { servers });
    if let Some(names) = variable(WHITELIST).filter(|names| !names.is_empty()) {
        lines.push(format!("4lw.commands.whitelist={names}"));
    }
    if variable(SECRET).is_some() {
        lines.push(format!("quorum.secretFile={}", conf_dir.join(SECRET_FILE).display()));
    }
    lines.extend(words(EXTRA));
    lines.join("\n") + "\n"
}

/// The id of this server: `ZOO_MY_ID`, or, among several servers, the number behind the host name
/// plus one, as the pods of a StatefulSet are counted from zero, or 1.
fn id(variable: &dyn Fn(&str) -> Option<String>) -> Result<u64, CommandFailure> {
    if let Some(text) = variable(MY_ID).filter(|text| !text.is_empty()) {
        return text.trim().parse().map_err(|_| failed(format!("{MY_ID}={text}: not a number")));
    }
    let servers = variable(SERVERS).unwrap_or_default().split_whitespace().count();
    if servers < 2 {
        return Ok(1);
    }
    let host = variable("HOSTNAME").unwrap_or_default();
    let ordinal = host.rsplit_once('-').and_then(|(_, number)| number.parse::<u64>().ok());
    ordinal.and_then(|ordinal| ordinal.checked_add(1)).ok_or_else(|| {
        failed(format!(
            "{MY_ID} is missing: {SERVERS} lists {servers} servers, and the host name {host:?} does \
             not end with a number as in zookeeper-0"
        ))
    })
}

/// Writes the secret, which may have changed since the last start.
fn write_secret(path: &Path, secret: &str) -> Result<(), CommandFailure> {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        writeln!(file, "{}", secret.trim_end())
    };
    write().map_err(|error| failed(format!("cannot write {}: {error}", path.display())))
}

fn write_if_absent(
    path: &Path,
    text: impl FnOnce() -> Result<String, CommandFailure>,
) -> Result<(), CommandFailure> {
    if path.exists() {
        return Ok(());
    }
    let text = text()?;
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    };
    write().map_err(|error| {
        failed(format!(
            "cannot write {}: {error}; mount a volume there that this user may write to",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn defaults_are_those_of_the_image() {
        let expected = "dataDir=/data\ndataLogDir=/datalog\ntickTime=2000\ninitLimit=5\n\
                        syncLimit=2\nautopurge.snapRetainCount=3\nautopurge.purgeInterval=0\n\
                        maxClientCnxns=60\nstandaloneEnabled=true\nadmin.enableServer=true\n\
                        server.1=localhost:2888:3888;2181\n";
        assert_eq!(zoo_cfg_of(Path::new("/conf"), &of(&[])), expected);
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let parsed = crate::config::parse("zoo.cfg", expected, &[], &no_file);
        let (settings, _) = parsed.expect("is valid");
        assert_eq!(settings.client_address("*"), "*:2181");
    }

    #[test]
    fn variables_make_lines() {
        let variables = [
            ("ZOO_DATA_DIR", "/d"),
            ("ZOO_TICK_TIME", "3000"),
            (SERVERS, "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181\n"),
            (WHITELIST, "srvr, ruok"),
            (EXTRA, "reconfigEnabled=true snapCount=7"),
            (SECRET, "a secret"),
        ];
        let text = zoo_cfg_of(Path::new("/c"), &of(&variables));
        assert!(text.starts_with("dataDir=/d\ndataLogDir=/datalog\ntickTime=3000\n"), "{text}");
        let end = "server.1=a:2888:3888;2181\nserver.2=b:2888:3888;2181\n\
                   4lw.commands.whitelist=srvr, ruok\nquorum.secretFile=/c/quorum.secret\n\
                   reconfigEnabled=true\nsnapCount=7\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn id_is_that_of_the_variable_or_of_the_pod() {
        let several = (SERVERS, "server.1=a:1:2 server.2=b:1:2");
        assert_eq!(id(&of(&[])), Ok(1));
        assert_eq!(id(&of(&[(MY_ID, "7"), several])), Ok(7));
        assert_eq!(id(&of(&[("HOSTNAME", "zk-2"), several])), Ok(3));
        assert_eq!(id(&of(&[("HOSTNAME", "zk-2")])), Ok(1));
        for variables in [&[several][..], &[("HOSTNAME", "host"), several], &[(MY_ID, "one")]] {
            assert!(id(&of(variables)).is_err(), "{variables:?}");
        }
    }
}
