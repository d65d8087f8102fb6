//! Which faults a run may inject.
//!
//! Owns the menu of each profile, and their odds. Must not know when they are injected.

use crate::engine::seed::{Rng, Seeds};
use crate::engine::selection::Selectable;
use crate::faults::catalog::{Fault, FaultPlan};
use crate::world::options::{Pinned, Profile};

/// The faults of a profile by name, the odds that each is on, and factors of its usual rate.
type Menu = (&'static [&'static str], (u64, u64), &'static [(u64, u64)]);

fn menu(profile: Profile) -> Menu {
    match profile {
        Profile::Calm | Profile::Perf => (&[], (0, 1), &[]),
        Profile::Default => {
            (&["node", "disk", "net", "client"], (7, 8), &[(1, 2), (1, 1), (1, 1), (2, 1)])
        }
        Profile::Swarm => {
            (&["node", "disk", "net", "client"], (1, 2), &[(1, 8), (1, 3), (1, 1), (3, 1), (8, 1)])
        }
        Profile::Crashy => {
            (&["node", "disk.torn", "disk.garbage", "disk.names"], (7, 8), &[(4, 1)])
        }
        Profile::Disk => (&["disk", "node.power", "node.crash-in-step"], (7, 8), &[(4, 1)]),
        Profile::Net => (&["net", "client.garbage"], (7, 8), &[(4, 1)]),
        Profile::Session => (&["client", "net", "node.pause", "node.kill"], (7, 8), &[(2, 1)]),
        Profile::Lite => (&["node", "disk", "net", "client"], (1, 2), &[(2, 1), (4, 1), (8, 1)]),
    }
}

/// The faults of a menu.
fn members(names: &[&str]) -> Vec<Fault> {
    let all = names.iter().flat_map(|group| Fault::matching(group));
    all.filter(|fault| !Fault::APART.contains(fault)).collect()
}

/// Adds the faults that have streams of their own, if the plan has others.
pub(super) fn draw_apart(profile: Profile, plan: &mut FaultPlan, seeds: Seeds) {
    let rng = &mut seeds.stream("config/hand-over", 0);
    let several = plan.on().nth(1).is_some();
    let ends_servers = menu(profile).0.contains(&"node");
    if several && ends_servers && rng.chance(1, 4) {
        plan.switch_on(Fault::NodeHandOver, *rng.pick(&[(1, 2), (1, 1), (4, 1)]));
    }
}

/// Modes of a power failure's data loss, which have no effect without a power failure.
const NOT_ALONE: [Fault; 3] = [Fault::DiskTorn, Fault::DiskGarbage, Fault::DiskNames];

/// One seed in eight has no faults, and one in eight a single fault at ten times its rate; the
/// others have a random subset of the profile's faults.
pub(super) fn draw_faults(profile: Profile, rng: &mut Rng) -> FaultPlan {
    let mut plan = FaultPlan::none();
    let (groups, part, rates) = menu(profile);
    if groups.is_empty() {
        return plan;
    }
    let members = members(groups);
    match rng.below(8) {
        0 => {}
        1 => {
            let alone =
                Vec::from_iter(members.into_iter().filter(|fault| !NOT_ALONE.contains(fault)));
            plan.switch_on(*rng.pick(&alone), (10, 1));
        }
        _ => {
            for fault in members {
                let (on, rate) = (rng.chance(part.0, part.1), *rng.pick(rates));
                if on {
                    plan.switch_on(fault, rate);
                }
            }
        }
    }
    plan
}

/// The faults that may be injected at marks, if rules are drawn. A seed with several faults may
/// also have rules with faults that are not injected by time, as long as they are in the profile
/// and not deselected.
pub(super) fn allowed_at_marks(
    profile: Profile,
    drawn: &FaultPlan,
    pinned: &Pinned,
) -> Option<FaultPlan> {
    let mut allowed = drawn.clone();
    if drawn.on().nth(1).is_some() {
        for fault in members(menu(profile).0) {
            allowed.switch_on(fault, (1, 1));
        }
        allowed.select(&pinned.faults);
    }
    pinned.rules.is_none().then_some(allowed)
}
