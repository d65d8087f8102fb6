//! When enough voters agree, as the oracles count it: the core, which they judge, may be wrong about that.
//!
//! Owns the members. Must not ask the core's quorums.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::ServerId;
use zabkeeper_core::peer::Voice;

/// Those who vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Voters(pub(super) BTreeSet<ServerId>);

impl Voters {
    /// Do more than half of them? Whoever else does is nothing to them (QV-01, Z21).
    pub(super) fn most(&self, does: impl Fn(ServerId) -> bool) -> bool {
        let yes = self.0.iter().filter(|id| does(**id)).count();
        yes > self.0.len() - yes
    }

    /// May those who speak with these voices say what the history is? `nothing`: whoever asks them has logged nothing.
    ///
    /// More than half that know what they have acknowledged do. Without a single one that does, more than half that are
    /// new do; and all together, if there is nothing to lose. And where more than half of those `before` know, who was none of
    /// them and is new counts like one that knows.
    pub(super) fn may_decide(
        &self,
        voices: &BTreeMap<ServerId, Voice>,
        nothing: bool,
        before: &Voters,
    ) -> bool {
        let speaks = |id: ServerId, voice: Voice| voices.get(&id) == Some(&voice);
        let nobody_knows = !self.0.iter().any(|id| speaks(*id, Voice::Full));
        let sound = |id: &ServerId| speaks(*id, Voice::Full) || speaks(*id, Voice::Blank);
        let counts = |id: ServerId| {
            let joins = !before.0.contains(&id) && speaks(id, Voice::Blank);
            joins || speaks(id, Voice::Full)
        };
        self.most(|id| speaks(id, Voice::Full))
            || (nobody_knows && self.most(|id| speaks(id, Voice::Blank)))
            || (nothing && self.0.iter().all(sound))
            || (before.most(|id| speaks(id, Voice::Full)) && self.most(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(n: u64) -> Voters {
        Voters((1..=n).map(ServerId).collect())
    }

    #[test]
    fn qv_01_most_are_more_than_half() {
        for (n, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            assert!(voters(n).most(|id| id.0 <= needed));
            assert!(!voters(n).most(|id| id.0 < needed));
        }
    }

    #[test]
    fn those_who_know_decide_and_new_ones_where_there_is_nothing_to_lose() {
        use Voice::{Blank, Damaged, Full};
        let may = |voices: &[Voice], nothing| {
            let ids = (1..).map(ServerId);
            let voices = ids.zip(voices.iter().copied()).collect();
            voters(3).may_decide(&voices, nothing, &voters(3))
        };
        assert!(may(&[Full, Full], false));
        assert!(!may(&[Full, Blank], false) && !may(&[Full, Blank], true));
        assert!(may(&[Blank, Blank], false));
        assert!(!may(&[Blank, Blank, Full], false) && may(&[Blank, Blank, Full], true));
        assert!(!may(&[Blank, Damaged], false) && !may(&[Damaged, Damaged, Blank], true));
    }

    #[test]
    fn who_joins_counts_beside_most_of_those_who_were_there() {
        use Voice::{Blank, Damaged, Full};
        let grows = |voices: &[Voice], before| {
            let voices = (1..).map(ServerId).zip(voices.iter().copied()).collect();
            voters(3).may_decide(&voices, false, &voters(before))
        };
        assert!(grows(&[Full, Blank], 1) && grows(&[Full, Full, Blank], 2));
        assert!(!grows(&[Full, Damaged], 1) && !grows(&[Full, Blank, Blank], 2));
    }
}
