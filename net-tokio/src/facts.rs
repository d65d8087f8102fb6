//! Facts for the answers to four-letter commands that only the process knows: its settings, its
//! directories, its environment.
//!
//! Owns the collection of these facts. Must not know the answers: the core's driver does.

use std::path::Path;
use std::rc::Rc;

use zabkeeper_core::ConnId;
use zabkeeper_core::driver::Driver;
use zabkeeper_core::driver::four_letter::{
    Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions, HostFacts, HostQuery,
    PART_LINES,
};

use crate::config::{Ensemble, Settings};
use crate::listener::BACKLOG;
use crate::shared::Shared;

/// The settings that answers depend on.
pub fn options(settings: &Settings) -> FourLetterOptions {
    let info = |ensemble: &Ensemble| {
        let me = ensemble.member(settings.core.id()).expect("it is one of them");
        EnsembleInfo {
            election_ports: me.election_ports(),
            quorum_ports: me.quorum_ports(),
            observes: me.observes,
            voters: ensemble.voters.ids().count(),
            membership: ensemble.text(),
        }
    };
    FourLetterOptions {
        whitelist: settings.whitelist.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        built_at: env!("ZABKEEPER_BUILT_AT").parse().expect("the build script writes a number"),
        client_host: settings.host.clone().unwrap_or_else(|| "0.0.0.0".to_owned()),
        client_port: settings.port,
        data_dir: settings.snapshot_folder().display().to_string(),
        log_dir: settings.log_folder().display().to_string(),
        part_lines: PART_LINES,
        backlog: settings.backlog.unwrap_or(BACKLOG),
        ensemble: settings.ensemble.as_ref().map(info),
    }
}

/// Collects the fact that an answer waits for. Directories are read on another thread, because the
/// disk may be slow.
pub(crate) fn collect(shared: &Rc<Shared>, driver: &mut Driver, conn: ConnId, query: HostQuery) {
    let facts = match query {
        HostQuery::Descriptors => HostFacts::Descriptors(descriptors()),
        HostQuery::Environment => HostFacts::Environment(environment()),
        HostQuery::DiskUse => {
            let to = Rc::clone(shared);
            shared.spawn(async move {
                let dirs = [to.settings.snapshot_folder(), to.settings.log_folder()];
                let sizes = move || dirs.map(|dir| bytes_in(&dir));
                let sizes = tokio::task::spawn_blocking(sizes).await;
                let [snapshots, log] = sizes.expect("reading directories does not panic");
                let facts = HostFacts::DiskUse(DiskUse { snapshots, log });
                to.driver().four_letter.supply(conn, facts);
                to.wake().notify_one();
            });
            return;
        }
    };
    driver.four_letter.supply(conn, facts);
}

/// Bytes of all files in a directory; files that cannot be read do not count.
pub(crate) fn bytes_in(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

pub(crate) fn environment() -> Environment {
    let kernel = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        Some(text.trim().to_owned())
    };
    Environment {
        host: kernel("hostname"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        os_version: kernel("osrelease"),
        user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok(),
        home: std::env::var("HOME").ok(),
        dir: std::env::current_dir().ok().map(|dir| dir.display().to_string()),
        memory: memory(),
    }
}

/// Memory in MiB, from Linux's `/proc`; `None` elsewhere.
fn memory() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? >> 10)
    };
    Some([mib("MemAvailable:")?, mib("MemTotal:")?])
}

/// Descriptors, from Linux's `/proc`; `None` elsewhere.
pub(crate) fn descriptors() -> Option<Descriptors> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let limit = line.split_whitespace().next()?.parse().ok()?;
    Some(Descriptors { open, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FLW-01.
    #[test]
    fn options_name_ports_and_members() {
        let lines = "dataDir=/d\ndataLogDir=/l\nclientPortListenBacklog=7\n\
                     4lw.commands.whitelist=*\nserver.1=a:2888:3888;2181\n\
                     server.2=[::1]:2889:3889;[::1]:2182\nserver.3=c:2888:3888;2181";
        let (settings, _) =
            crate::config::parse("zoo.cfg", lines, &[], &|_| Ok("2\n".to_owned())).expect("parses");
        let options = options(&settings);
        let dirs = (&*options.data_dir, &*options.log_dir);
        assert_eq!((dirs, options.backlog), (("/d/zabkeeper", "/l/zabkeeper"), 7));
        let ensemble = options.ensemble.expect("has three members");
        let ports = (&*ensemble.quorum_ports, &*ensemble.election_ports);
        assert_eq!(ports, ("2889", "3889"));
        assert_eq!(
            ensemble.membership,
            "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
             server.2=[::1]:2889:3889:participant;[::1]:2182\n\
             server.3=c:2888:3888:participant;0.0.0.0:2181\nversion=0"
        );
    }
}
