//! Plays for the numbered edge cases of the protocol; `edges.txt` has ZooKeeper's recorded answers.

mod ask;
mod clients;
mod nodes;
mod several;
mod watching;

use crate::play::Step;

/// Steps that show some edge cases.
pub(crate) struct Play {
    /// The numbers of the edge cases, and a description.
    pub(crate) title: &'static str,
    pub(crate) steps: Vec<Step>,
}

type Add<'a> = &'a mut dyn FnMut(&'static str, Vec<Step>);

/// All plays, each with its own subtree and sessions. Those that need a new server are first.
pub(crate) fn plays() -> Vec<Play> {
    let mut plays = Vec::new();
    let mut play = |title, steps| plays.push(Play { title, steps });
    nodes::fresh(&mut play);
    nodes::creates(&mut play);
    nodes::kinds(&mut play);
    nodes::changes(&mut play);
    several::multis(&mut play);
    several::nulls(&mut play);
    several::reconfig(&mut play);
    watching::watches(&mut play);
    watching::sets_of_watches(&mut play);
    clients::sessions(&mut play);
    clients::access(&mut play);
    nodes::quotas(&mut play);
    plays
}
