//! Writes the configuration in force into the operator's files (RECONF-14).
//!
//! Owns the order of writes and their durability. Must not decide what is written:
//! `config::files` does.
//!
//! Each file is replaced by a rename, so a reader finds the old content or the new one. `zoo.cfg`
//! is replaced last, so it always names a complete file. A failure does not stop the server: what
//! counts is the replicated configuration, and the files are for the next start and for tools.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use zabkeeper_core::{EnsembleConfig, ServerId, Zxid};

use crate::config::{ConfigFiles, files_of, with_suffix};
use crate::configs::Configs;

/// Writes each configuration that comes into force into the files at `zoo_cfg`, which have that of
/// the version `written`.
///
/// A server that the configuration does not list keeps its files, so that it can be restarted: it
/// has to join first, or it was removed.
pub(crate) async fn write_configs(
    mut configs: Configs,
    own: ServerId,
    zoo_cfg: PathBuf,
    mut written: Zxid,
) {
    loop {
        let config = configs.next().await;
        if config.version <= written || config.server(own).is_none() {
            continue;
        }
        written = config.version;
        let path = zoo_cfg.clone();
        // Another thread, because the disk may be slow.
        let write = tokio::task::spawn_blocking(move || write(&config, own, &path));
        match write.await.expect("writing does not panic") {
            Ok(dynamic) => tracing::info!("wrote the configuration in force to {dynamic}"),
            Err(what) => tracing::error!(
                "{what}; the configuration in force is kept in the data directory and counts, but \
                 {} is out of date: let this server write there, and it does so at the next \
                 change or start",
                zoo_cfg.display()
            ),
        }
    }
}

/// Writes all files; returns the name of the dynamic one.
fn write(config: &EnsembleConfig, own: ServerId, zoo_cfg: &Path) -> Result<String, String> {
    let cannot = |action: &str, path: &Path, error: io::Error| {
        format!("{}: cannot be {action}: {error}", path.display())
    };
    let path = std::path::absolute(zoo_cfg).map_err(|error| cannot("found", zoo_cfg, error))?;
    // A symbolic link stays; what it points to is replaced.
    let target = fs::canonicalize(&path).map_err(|error| cannot("found", &path, error))?;
    let content = fs::read(&target).map_err(|error| cannot("read", &target, error))?;
    // The files may hold passwords, so the new ones get the mode of the old one.
    let mode = fs::metadata(&target).map_err(|error| cannot("read", &target, error))?.permissions();
    let ConfigFiles { backup, dynamic, zoo_cfg } = files_of(config, own, &path, &content)
        .map_err(|what| format!("{}: {what}", path.display()))?;
    let backup = backup.map(|backup| (backup, &content[..]));
    let (name, text) = dynamic;
    let files = backup
        .into_iter()
        .chain([(name.clone(), text.as_bytes())])
        .chain((zoo_cfg != content).then_some((target, &zoo_cfg[..])));
    for (path, content) in files {
        replace(&path, content, &mode).map_err(|error| cannot("written", &path, error))?;
    }
    Ok(name.display().to_string())
}

/// Replaces a file, durably.
fn replace(path: &Path, content: &[u8], mode: &Permissions) -> io::Result<()> {
    let new = with_suffix(path, ".tmp");
    let written = write_new(&new, content, mode).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _best_effort = fs::remove_file(&new);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

fn write_new(path: &Path, content: &[u8], mode: &Permissions) -> io::Result<()> {
    // What an earlier process has left behind may be a link.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(mode.clone())?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config(version: u64) -> EnsembleConfig {
        let lines = format!("server.1=a:1:2;2181\nserver.2=b:1:2;2181\nversion={version:x}");
        EnsembleConfig::parse(&lines).expect("valid")
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("is text")).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_with_the_mode_of_zoo_cfg() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real.cfg");
        let link = dir.path().join("zoo.cfg");
        fs::write(&real, "# secret\nserver.1=a:1:2;2181\n").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        // Left behind by a process that was killed.
        fs::write(dir.path().join("real.cfg.tmp"), "half").unwrap();
        for version in [0x1_0000_0000, 0x1_0000_0002] {
            write(&config(version), ServerId(1), &link).unwrap();
        }
        assert_eq!(
            names(dir.path()),
            [
                "real.cfg",
                "zoo.cfg",
                "zoo.cfg.bak",
                "zoo.cfg.dynamic.100000000",
                "zoo.cfg.dynamic.100000002"
            ]
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let dynamic = dir.path().join("zoo.cfg.dynamic.100000002");
        let text = fs::read_to_string(&link).unwrap();
        assert_eq!(text, format!("# secret\ndynamicConfigFile={}\n", dynamic.display()));
        let backup = fs::read_to_string(dir.path().join("zoo.cfg.bak")).unwrap();
        assert_eq!(backup, "# secret\nserver.1=a:1:2;2181\n");
        for path in [&real, &dynamic, &dir.path().join("zoo.cfg.bak")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
        }
    }

    #[test]
    fn failure_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zoo.cfg");
        let error = write(&config(7), ServerId(1), &path).expect_err("there is no file");
        let expected = format!("{}: cannot be found: No such file", path.display());
        assert!(error.starts_with(&expected), "{error}");
        fs::write(&path, "a=1\n").unwrap();
        // A folder in the place of the dynamic file cannot be replaced.
        fs::create_dir(dir.path().join("zoo.cfg.dynamic.7")).unwrap();
        let error = write(&config(7), ServerId(1), &path).expect_err("there is a folder");
        assert!(error.contains("zoo.cfg.dynamic.7: cannot be written: "), "{error}");
        assert_eq!(names(dir.path()), ["zoo.cfg", "zoo.cfg.dynamic.7"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a=1\n");
    }
}
