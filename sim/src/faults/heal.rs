//! The servers that the heal leaves out: a minority keeps its faults, and the remaining quorum must
//! recover without it.
//!
//! Owns which servers are left out, and their faults. Must not carry them out: `world` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use zabkeeper_core::{Instant, ServerId};

use crate::engine::seed::Rng;

/// Later than the end of any run.
pub const FOREVER: Instant = Instant(1 << 62);

/// The fault that a server left out of the heal keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    /// Its process, or its machine, is down.
    Dead,
    /// Its process does not run; its kernel still accepts connections.
    Hung,
    /// No sync of its disk ends.
    Stuck,
    /// It is partitioned from all servers and clients.
    Alone,
    /// It is partitioned from all servers, but clients reach it.
    Apart,
}

/// The servers that the heal leaves out, by fault.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// See [`Fate::Dead`].
    pub dead: BTreeSet<ServerId>,
    /// See [`Fate::Hung`].
    pub hung: BTreeSet<ServerId>,
    /// See [`Fate::Stuck`].
    pub stuck: BTreeSet<ServerId>,
    /// See [`Fate::Alone`].
    pub alone: BTreeSet<ServerId>,
    /// See [`Fate::Apart`].
    pub apart: BTreeSet<ServerId>,
}

impl Fate {
    /// All fates.
    pub const ALL: [Fate; 5] = [Fate::Dead, Fate::Hung, Fate::Stuck, Fate::Alone, Fate::Apart];

    /// The fate in words.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Dead => "stays dead",
            Fate::Hung => "hangs",
            Fate::Stuck => "has a stuck disk",
            Fate::Alone => "stays cut off from everybody",
            Fate::Apart => "stays cut off from all servers",
        }
    }
}

impl LeftOut {
    /// No server in half of the runs; otherwise a minority, each with a random fate.
    pub fn draw(servers: u32, rng: &mut Rng) -> LeftOut {
        let mut left = LeftOut::default();
        if servers < 3 || rng.chance(1, 2) {
            return left;
        }
        let mut ids: Vec<ServerId> = (1..=u64::from(servers)).map(ServerId).collect();
        for _ in 0..rng.range_u32(1, (servers - 1) / 2) {
            let id = ids.remove(rng.index(ids.len()));
            left.set(*rng.pick(&Fate::ALL)).insert(id);
        }
        left
    }

    /// The servers left out of an ensemble of this size: a minority, even if the ensemble was made
    /// smaller since the draw.
    pub fn fates(&self, servers: u32) -> BTreeMap<ServerId, Fate> {
        let LeftOut { dead, hung, stuck, alone, apart } = self;
        let sets = [dead, hung, stuck, alone, apart].into_iter().zip(Fate::ALL);
        let all: BTreeMap<ServerId, Fate> =
            sets.flat_map(|(set, fate)| set.iter().map(move |id| (*id, fate))).collect();
        let most = (servers.max(1) - 1) / 2;
        let there = all.into_iter().filter(|(id, _)| id.0 <= servers.into());
        there.take(most as usize).collect()
    }

    /// The same sets, reduced to the servers that [`LeftOut::fates`] returns.
    pub fn among(&self, servers: u32) -> LeftOut {
        let mut left = LeftOut::default();
        for (id, fate) in self.fates(servers) {
            left.set(fate).insert(id);
        }
        left
    }

    /// Checks that all of them can be left out of an ensemble of this size.
    ///
    /// # Errors
    /// Names the server that cannot, and why.
    pub fn check(&self, servers: u32) -> Result<(), String> {
        let LeftOut { dead, hung, stuck, alone, apart } = self;
        let mut seen = BTreeSet::new();
        for id in [dead, hung, stuck, alone, apart].into_iter().flatten() {
            if !(1..=u64::from(servers)).contains(&id.0) {
                return Err(format!(
                    "heal.* names server {id}, and the last one of the run is {servers}"
                ));
            }
            if !seen.insert(id) {
                return Err(format!("heal.* names server {id} more than once"));
            }
        }
        let most = (servers.max(1) - 1) / 2;
        if seen.len() > most as usize {
            return Err(format!(
                "heal.* leaves {} of {servers} servers out, and at most {most} leave a quorum",
                seen.len()
            ));
        }
        Ok(())
    }

    /// The servers with this fate.
    pub fn set(&mut self, fate: Fate) -> &mut BTreeSet<ServerId> {
        match fate {
            Fate::Dead => &mut self.dead,
            Fate::Hung => &mut self.hung,
            Fate::Stuck => &mut self.stuck,
            Fate::Alone => &mut self.alone,
            Fate::Apart => &mut self.apart,
        }
    }
}

/// In words: the servers that are healed, and the fates of the others.
pub fn describe(fates: &BTreeMap<ServerId, Fate>, all: impl Iterator<Item = ServerId>) -> String {
    let core = all.filter(|id| !fates.contains_key(id)).map(|id| format!("s{id}"));
    let core = core.collect::<Vec<_>>().join(", ");
    let rest = fates.iter().map(|(id, fate)| format!("s{id} {fate}"));
    format!("only {core}; {}", rest.collect::<Vec<_>>().join(", "))
}

/// The end of a period in words; `shown` is the formatted time.
pub fn until(end: Instant, shown: impl fmt::Display) -> String {
    if end < FOREVER { format!("until {shown}") } else { "for ever".to_owned() }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::seed::Seeds;

    #[test]
    fn heal_draws_a_minority_in_half_of_the_runs_and_every_fate() {
        let mut some = 0;
        let mut fates = BTreeSet::new();
        for seed in 0..400 {
            for servers in 1..=7 {
                let rng = &mut Seeds::new(seed).stream("config/heal", 0);
                let left = LeftOut::draw(servers, rng).fates(servers);
                assert!(2 * left.len() < servers as usize);
                assert!(left.keys().all(|id| (1..=u64::from(servers)).contains(&id.0)));
                some += usize::from(servers == 5 && !left.is_empty());
                fates.extend(left.into_values());
            }
        }
        assert!((150..250).contains(&some), "{some}");
        assert_eq!(fates.len(), Fate::ALL.len());
    }

    #[test]
    fn smaller_ensemble_still_has_a_quorum() {
        let mut left = LeftOut::default();
        left.dead.extend([2, 4].map(ServerId));
        left.hung.insert(ServerId(1));
        assert_eq!(left.fates(7).len(), 3);
        assert_eq!(left.fates(3), BTreeMap::from([(ServerId(1), Fate::Hung)]));
        assert!(left.fates(2).is_empty() && left.fates(1).is_empty());
        assert_eq!(left.check(7), Ok(()));
        let why = |servers| left.check(servers).expect_err("cannot be");
        assert_eq!(why(3), "heal.* names server 4, and the last one of the run is 3");
        assert_eq!(why(5), "heal.* leaves 3 of 5 servers out, and at most 2 leave a quorum");
        assert_eq!((left.among(7), left.among(3).check(3)), (left.clone(), Ok(())));
        let text = describe(&left.fates(7), (1..=7).map(ServerId));
        assert_eq!(text, "only s3, s5, s6, s7; s1 hangs, s2 stays dead, s4 stays dead");
        let texts = [Instant(5_000_000), FOREVER].map(|end| until(end, end));
        assert_eq!(texts, ["until 0.005000s", "for ever"]);
    }
}
