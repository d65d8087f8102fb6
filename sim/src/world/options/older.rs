//! Servers of the last release, 0.2.0, in a run of the present one: a rolling upgrade.
//!
//! Owns which servers begin as such, when an operator upgrades them, and what they lack. Must not
//! restart servers: the world does.
//!
//! The last release writes the same files, apart from the configuration in the log, and speaks an
//! earlier version of the protocol between servers. So it is the present code with that version and
//! without reconfigurations. Nor has it observers, groups, oracles, read-only mode and leaders that
//! serve no clients: an operator sets these when all servers are upgraded, so no run has both.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::peer::greeting::{VERSION, VERSION_MIN};
use zabkeeper_core::{Config, ServerId};

use super::{Options, Profile};
use crate::engine::seed::Rng;

/// The servers of the last release, and when they change. The servers change one after the other,
/// in a random order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Older {
    /// The servers that begin with the last release.
    pub servers: BTreeSet<ServerId>,
    /// When the first of them is upgraded.
    pub upgrade_at: Duration,
    /// When the first of them returns to the last release; zero: none does.
    pub downgrade_at: Duration,
    /// Time from one server to the next.
    pub pause: Duration,
}

impl Options {
    /// The setting that the last release does not have, if there is one.
    fn excludes_older(&self) -> Option<&'static str> {
        let settings = [
            (self.grows_from > 0, "grows_from"),
            (self.observers > 0, "observers"),
            (self.groups.count > 0, "groups.count"),
            (self.oracle > 0, "oracle"),
            (self.server.read_only_mode, "read_only_mode"),
            (!self.server.leader_serves, "leader_serves"),
        ];
        settings.into_iter().find(|(set, _)| *set).map(|(_, name)| name)
    }

    /// Draws servers of the last release for few ensembles. Clients reconfigure more of these than
    /// of others, if operations are not pinned. Then the older servers are among the first members,
    /// and none returns to the last release: that cannot read what reconfigurations write.
    pub(super) fn draw_older(&mut self, any_ops: bool, rng: &mut Rng) {
        let one_in = if self.profile == Some(Profile::Swarm) { 5 } else { 6 };
        let some = rng.chance(1, one_in);
        let quiet = matches!(self.profile, Some(Profile::Calm | Profile::Perf));
        if !some || quiet || self.servers < 2 || self.excludes_older().is_some() {
            return;
        }
        if self.servers > 2 && any_ops && rng.chance(1, 3) && self.reconfigured().is_none() {
            self.reconfigure(rng);
        }
        self.fill_older(rng);
    }

    fn fill_older(&mut self, rng: &mut Rng) {
        let reconfigured = self.reconfigured();
        let any: Vec<ServerId> =
            reconfigured.clone().unwrap_or_else(|| self.all_servers().collect());
        let all = rng.chance(1, 3);
        let one = *rng.pick(&any);
        let servers: BTreeSet<ServerId> =
            any.into_iter().filter(|id| rng.chance(1, 2) || all || *id == one).collect();
        let half_ms = u64::try_from(self.duration.as_millis() / 2).unwrap_or(u64::MAX).max(2);
        let ms = Duration::from_millis;
        let pause = ms(rng.magnitude(1, 5_000));
        let upgrade_at = ms(rng.range(1, half_ms));
        let returns = rng.chance(1, 2) && reconfigured.is_none();
        let downgrade_at = upgrade_at + ms(rng.range(1, half_ms));
        let downgrade_at = if returns { downgrade_at } else { Duration::ZERO };
        self.older = Older { servers, upgrade_at, downgrade_at, pause };
    }

    /// When the first server returns to the last release, if any does.
    pub fn downgrade_at(&self) -> Option<Duration> {
        let at = self.older.downgrade_at;
        (!at.is_zero() && self.reconfigured().is_none()).then_some(at)
    }

    /// Checks that its settings do not conflict.
    ///
    /// # Errors
    /// Names the settings that conflict, and why.
    pub fn check_older(&self) -> Result<(), String> {
        let Older { servers, downgrade_at, .. } = &self.older;
        if let Some(id) = servers.iter().find(|id| id.0 > self.servers.into()) {
            return Err(format!(
                "older.servers names server {id}, and the last one of the run is {}",
                self.servers
            ));
        }
        if servers.is_empty() {
            return Ok(());
        }
        if let Some(name) = self.excludes_older() {
            return Err(format!("servers of the last release exclude {name}: older.servers"));
        }
        if let Some(first) = self.reconfigured() {
            if let Some(id) = servers.iter().find(|id| !first.contains(id)) {
                return Err(format!(
                    "server {id} of the last release is none of the first members: older.servers, \
                     reconfig_from"
                ));
            }
            if !downgrade_at.is_zero() {
                return Err("the last release cannot read what reconfigurations write: \
                            older.downgrade_at_us, reconfig_from"
                    .into());
            }
        }
        Ok(())
    }
}

/// The highest version of the protocol between servers that a server speaks; `older`: one of the
/// last release.
pub(super) fn version(older: bool) -> u8 {
    if older { VERSION_MIN } else { VERSION }
}

/// The configuration of a server as the last release reads it: that has no reconfigurations.
pub fn config_of_older(config: &Config) -> Config {
    let mut config = config.clone();
    config.reconfig = None;
    config
}
