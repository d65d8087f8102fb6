//! Scripted tests with one server: each file of `tests/scenarios` is a script, and its snapshot is
//! the server's trace.
//!
//! A script steps the core without the driver, because it chooses every input itself: the trace
//! shows the output of each single step, a deadline may fire late, and events of clients come in
//! orders and at times in which the driver would hold them back.
//!
//! A script has one command a line. `#` begins a comment; the first line says what the script
//! shows.
//!
//! ```text
//! config KEY=N ...          before `boot`: snapshot_txns, snapshot_bytes, snapshot_slice_bytes,
//!                           epoch_txns, undurable_bytes, kept, step_units, extended_types,
//!                           enforce_quota, check_ms, per_minute, never_used_ms, super, required
//! boot                      recovers from the disk, and starts
//! power off                 stops the server; disk commands not done are lost
//! disk [N]                  completes all disk commands (or N of them), in order
//! disk fails                the disk reports a failure
//! disk full | disk roomy    the disk has no room for snapshots | has room again
//! wait MS                   lets time pass; deadlines fire when they are due
//! stall MS                  lets time pass, then a deadline fires late
//! status | digest           prints what the server reports of itself
//! cN open [resume=cM] [seen=Z] [timeout=MS] [bad-password] [as=SCHEME:ID ..]
//! cN OP PATH [..]           create container ttl delete set get exists ls check sync ping close
//!                           auth undecodable unknown
//! cN addwatch PATH [recursive]
//! cN unwatch|watches PATH [data|child|persistent|recursive]
//! cN setwatches PATH [since=Z] [data] [exist] [child] [persistent] [recursive]
//! cN multi OP PATH [..] ; OP PATH [..]
//! cN auth [SCHEME DATA] | sasl | whoami | getacl PATH
//! cN setacl PATH [acl=PERMS:SCHEME:ID ..] [v=N]
//! cN gone                   the connection breaks
//! cN drained                the client drains output while its requests are not read
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use zabkeeper_core::io::ClientEvent;
use zabkeeper_core::store::DiskEvent;
use zabkeeper_core::{
    Config, ConnId, Input, Instant, Now, Outbox, Server, ServerId, Voters, WallMs,
};

use crate::play::{Clients, Disk, assert_recordable, commands, identities};

#[test]
fn scenarios() {
    insta::glob!("../scenarios", "*.txt", |path| {
        let script = std::fs::read_to_string(path).expect("the script is there");
        insta::assert_snapshot!(Play::new().run(&script));
    });
}

/// A server with an ideal disk and a manual clock.
struct Play {
    server: Option<Server>,
    config: Config,
    now: Now,
    disk: Disk,
    clients: Clients,
    trace: String,
}

impl Play {
    fn new() -> Play {
        let id = ServerId(1);
        let config = Config::new(id, Voters::new([id]), Duration::from_millis(1000));
        Play {
            server: None,
            config: config.expect("a fine config"),
            now: Now { mono: Instant(0), wall: WallMs(1_000_000) },
            disk: Disk::default(),
            clients: Clients::default(),
            trace: String::new(),
        }
    }

    fn run(mut self, script: &str) -> String {
        for line in commands(script) {
            writeln!(self.trace, "> {line}").unwrap();
            self.command(&Vec::from_iter(line.split_whitespace()));
        }
        self.trace
    }

    fn command(&mut self, words: &[&str]) {
        match words {
            ["config", settings @ ..] => settings.iter().for_each(|s| self.set(s)),
            ["boot"] => self.boot(),
            ["power", "off"] => {
                self.server = None;
                self.disk.lose_power();
            }
            ["disk", "fails"] => self.step(Input::Disk(DiskEvent::Failed("no such luck".into()))),
            ["disk", room @ ("full" | "roomy")] => self.disk.full = *room == "full",
            ["disk", count] => self.finish(count.parse().unwrap()),
            ["disk"] => {
                while !self.disk.queue.is_empty() {
                    self.finish(self.disk.queue.len());
                }
            }
            ["wait", ms] => self.wait(ms.parse().unwrap()),
            ["stall", ms] => {
                self.pass_to(self.now.mono.after(Duration::from_millis(ms.parse().unwrap())));
                self.step(Input::Timeout);
            }
            ["status"] => self.status(),
            ["digest"] => {
                let digest = self.server.as_ref().expect("the server runs").digest();
                writeln!(self.trace, "digest={digest:016x}").unwrap();
            }
            [conn, rest @ ..] => {
                let conn = ConnId(conn.strip_prefix('c').unwrap().parse().unwrap());
                self.client(conn, rest);
            }
            [] => {}
        }
    }

    fn set(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap();
        let auth = &mut self.config.auth;
        match key {
            "super" => return auth.super_digest = Some(value.into()),
            "required" => return auth.required_schemes.push(value.into()),
            _ => {}
        }
        let (limits, tree) = (&mut self.config.limits, &mut self.config.tree);
        let n: u32 = value.parse().unwrap();
        match key {
            "snapshot_txns" => limits.snapshot_txns = n,
            "snapshot_bytes" => limits.snapshot_bytes = n.into(),
            "snapshot_slice_bytes" => limits.snapshot_slice_bytes = n,
            "epoch_txns" => limits.epoch_txns = n,
            "undurable_bytes" => limits.undurable_bytes = n.into(),
            "kept" => limits.snapshots_kept = n,
            "step_units" => limits.step_units = n.into(),
            "extended_types" => tree.extended_types = n == 1,
            "enforce_quota" => tree.enforce_quota = n == 1,
            "check_ms" => tree.container_check_ms = n.into(),
            "per_minute" => tree.container_max_per_minute = n,
            "never_used_ms" => tree.container_never_used_ms = n.into(),
            other => panic!("no setting {other}"),
        }
    }

    fn boot(&mut self) {
        let server =
            Server::recover(self.config.clone(), 1, self.disk.recovered()).expect("a sound disk");
        self.server = Some(server);
        self.step(Input::Timeout);
    }

    fn wait(&mut self, ms: u64) {
        let end = self.now.mono.after(Duration::from_millis(ms));
        while let Some((deadline, _)) = self.server.as_ref().and_then(Server::next_deadline)
            && deadline <= end
        {
            self.pass_to(deadline.max(self.now.mono));
            self.step(Input::Timeout);
        }
        self.pass_to(end);
    }

    fn pass_to(&mut self, at: Instant) {
        self.now.wall.0 += i64::try_from(at.since(self.now.mono).as_millis()).unwrap();
        self.now.mono = at;
    }

    fn step(&mut self, input: Input) {
        let mut out = Outbox::default();
        let server = self.server.as_mut().expect("the server runs");
        assert_recordable(&input);
        server.step(self.now, input, &mut out);
        assert_recordable(&out);
        write!(self.trace, "{out}").unwrap();
        self.clients.receive(&out);
        self.disk.queue.extend(out.disk);
    }

    fn finish(&mut self, count: usize) {
        for event in self.disk.finish(count) {
            self.step(Input::Disk(event));
        }
    }

    fn status(&mut self) {
        let s = self.server.as_ref().expect("the server runs").status();
        writeln!(
            self.trace,
            "{:?} serving={} epochs={}/{} applied={} committed={} durable={} appended={} \
             snapshot={} nodes={} ephemerals={} sessions={} watches={} bytes={}",
            s.mode,
            s.serving,
            s.accepted_epoch,
            s.current_epoch,
            s.applied,
            s.committed,
            s.durable,
            s.appended,
            s.snapshot,
            s.nodes,
            s.ephemerals,
            s.sessions,
            s.watches,
            s.data_bytes
        )
        .unwrap();
    }

    fn client(&mut self, conn: ConnId, words: &[&str]) {
        match words {
            ["open", options @ ..] => {
                let request = self.clients.connect_request(options);
                self.step(Input::Client(conn, ClientEvent::Opened(request, identities(options))));
            }
            ["gone"] => self.step(Input::Client(conn, ClientEvent::Closed)),
            ["drained"] => self.step(Input::Client(conn, ClientEvent::Heartbeat)),
            words => {
                let frame = self.clients.request(conn, words);
                self.step(Input::Client(conn, ClientEvent::Request(frame)));
            }
        }
    }
}
