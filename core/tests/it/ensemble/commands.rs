//! The commands of a script, by what they act on: the play, disks, the network.
//!
//! Owns their syntax. Must not print: `observe` does.

use std::time::Duration;

use zabkeeper_core::{ConnId, Input, ServerId};

use super::{Member, Play, What, id};
use crate::play::Disk;

impl Play {
    pub(super) fn command(&mut self, words: &[&str]) {
        match words {
            ["ensemble", count] => {
                self.members.clear();
                self.forget();
                self.assemble(count.parse().unwrap(), 0);
            }
            ["ensemble", count, "observers", observers] => {
                self.members.clear();
                self.forget();
                self.assemble(count.parse().unwrap(), observers.parse().unwrap());
            }
            ["reconfigurable", count] => {
                self.members.clear();
                self.forget();
                for id in 1..=count.parse().unwrap() {
                    self.list(ServerId(id), count.parse().unwrap());
                }
            }
            ["old", ids @ ..] => {
                for id in self.named(ids) {
                    let member = self.members.get_mut(&id).unwrap();
                    member.upgrade = member.config.reconfig.take();
                }
            }
            ["upgrade", ids @ ..] => {
                for id in self.named(ids) {
                    let member = self.members.get_mut(&id).unwrap();
                    member.config.reconfig = member.upgrade.take();
                }
            }
            ["join", server, "lists", count] => self.list(id(server), count.parse().unwrap()),
            ["grow", count] => {
                let before = std::mem::take(&mut self.members);
                self.assemble(count.parse().unwrap(), 0);
                for (id, Member { server, disk, next_link, .. }) in before {
                    let member = self.members.get_mut(&id).expect("nobody leaves");
                    (member.server, member.disk, member.next_link) = (server, disk, next_link);
                }
            }
            ["config", settings @ ..] => settings.iter().for_each(|s| self.set(s)),
            ["start"] => {
                let before = self.trace.len();
                self.command(&["boot"]);
                self.settle();
                self.trace.truncate(before);
            }
            ["boot", ids @ ..] => {
                for id in self.named(ids) {
                    self.boot(id);
                }
            }
            ["kill", ids @ ..] => self.named(ids).into_iter().for_each(|id| self.kill(id)),
            ["stop", server] => {
                self.stopping.insert(id(server));
                self.step(id(server), Input::Stop);
            }
            ["oracle", server, says @ ("yes" | "no")] => {
                self.step(id(server), Input::Oracle(*says == "yes"));
            }
            ["vanish", server] => {
                self.kill(id(server));
                self.events.retain(|event| event.from != id(server));
            }
            ["keep" | "put" | "wipe" | "disk" | "forge" | "rot", ..]
            | ["hold" | "release", "disk", _] => self.disk_command(words),
            ["hold" | "release" | "deliver" | "lose" | "cut" | "mend" | "refuse" | "admit", ..] => {
                self.network_command(words);
            }
            ["settle"] => self.settle(),
            ["wait", ms] => self.wait(ms.parse().unwrap()),
            ["pause", server] => {
                self.paused.insert(id(server));
            }
            ["resume", server] => {
                self.paused.remove(&id(server));
            }
            ["show", "pings"] => self.show_pings = true,
            ["status"] => self.status(),
            ["progress"] => self.progress(),
            ["digest"] => self.digest(),
            [server, conn, rest @ ..] => {
                let conn = ConnId(conn.strip_prefix('c').unwrap().parse().unwrap());
                self.client(id(server.strip_prefix('s').unwrap()), conn, rest);
            }
            words => panic!("what is {words:?}?"),
        }
    }

    fn disk_command(&mut self, words: &[&str]) {
        match words {
            ["keep", server, name] => {
                let disk = self.members[&id(server)].disk.clone();
                self.kept.insert((*name).to_owned(), disk);
            }
            ["put", server, name] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk = self.kept[*name].clone();
                self.forget();
            }
            ["wipe", server] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk = Disk::default();
            }
            ["hold", "disk", server] => {
                self.held_disks.insert(id(server));
            }
            ["release", "disk", server] => {
                self.held_disks.remove(&id(server));
            }
            ["disk", server] => {
                let all = self.members[&id(server)].disk.queue.len();
                self.finish(id(server), all);
            }
            ["disk", server, "log"] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                let count = member.disk.let_log_overtake();
                self.finish(id(server), count);
            }
            ["disk", server, room @ ("full" | "roomy")] => {
                self.members.get_mut(&id(server)).unwrap().disk.full = *room == "full";
            }
            ["forge", server] => {
                let member = self.members.get_mut(&id(server)).unwrap();
                assert!(member.server.is_none(), "kill it first");
                member.disk.forge();
                self.forged = true;
            }
            ["rot", server] => self.members.get_mut(&id(server)).unwrap().disk.rot(),
            ["disk", server, count] => self.finish(id(server), count.parse().unwrap()),
            words => panic!("what is {words:?}?"),
        }
    }

    fn network_command(&mut self, words: &[&str]) {
        match words {
            ["hold", way] => self.held.extend(self.ways(way)),
            ["release", way] => self.ways(way).iter().for_each(|way| {
                self.held.remove(way);
            }),
            ["deliver", way, count @ ..] => self.deliver(way, count),
            ["lose", way] => {
                let ways = self.ways(way);
                assert!(ways.iter().all(|(from, _)| !self.runs(*from)), "{way}: not dead");
                self.events.retain(|event| {
                    let sent = matches!(event.what, What::Message(..) | What::Election(..));
                    !sent || !ways.contains(&(event.from, event.to))
                });
            }
            ["refuse", server] => drop(self.refusing.insert(id(server))),
            ["admit", server] => drop(self.refusing.remove(&id(server))),
            ["cut", pair] => self.break_links(pair),
            ["mend", pair] => {
                let (a, b) = pair.split_once('-').unwrap();
                self.cut.retain(|cut| *cut != (id(a), id(b)) && *cut != (id(b), id(a)));
            }
            words => panic!("what is {words:?}?"),
        }
    }

    fn set(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap();
        let n: u32 = value.parse().unwrap();
        for member in self.members.values_mut() {
            let (limits, tree) = (&mut member.config.limits, &mut member.config.tree);
            match key {
                "recent_bytes" => limits.recent_bytes = n.into(),
                "bulk_bytes" => limits.bulk_bytes = n,
                "factor" => limits.snapshot_size_factor = n.into(),
                "snapshot_txns" => limits.snapshot_txns = n,
                "snapshot_slice_bytes" => limits.snapshot_slice_bytes = n,
                "kept" => limits.snapshots_kept = n,
                "compare" => limits.compare_txns = n,
                "step_units" => limits.step_units = n.into(),
                "epoch_txns" => limits.epoch_txns = n,
                "check_ms" => tree.container_check_ms = n.into(),
                "per_minute" => tree.container_max_per_minute = n,
                "local" => member.config.sessions.local = n == 1,
                "upgrade" => member.config.sessions.upgrade = n == 1,
                "leader_serves" => member.config.leader_serves = n == 1,
                "read_only" => member.config.read_only_mode = n == 1,
                "masters" => member.config.observer_masters = n == 1,
                "oracle" => member.config.oracle = n == 1,
                "hold_ms" => limits.hold = Duration::from_millis(n.into()),
                other => panic!("no setting {other}"),
            }
        }
    }

    /// The servers with these numbers; all where there are none.
    pub(super) fn named(&self, ids: &[&str]) -> Vec<ServerId> {
        if ids.is_empty() {
            self.members.keys().copied().collect()
        } else {
            ids.iter().map(|n| id(n)).collect()
        }
    }

    pub(super) fn ways(&self, way: &str) -> Vec<(ServerId, ServerId)> {
        let (from, to) = way.split_once("->").unwrap();
        let all = |name: &str| if name == "*" { self.named(&[]) } else { vec![id(name)] };
        let pairs = all(from).into_iter().flat_map(|a| all(to).into_iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }
}
