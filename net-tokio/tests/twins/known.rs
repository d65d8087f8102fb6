//! Where we differ from ZooKeeper on purpose. `docs/compatibility.md` has the same list, for users.

use crate::play::{Step, is_intrusion};

/// An intended difference.
pub(crate) struct Known {
    /// What it is called in reports, and the words to look for in `docs/compatibility.md`.
    pub(crate) name: &'static str,
    /// Why it is better so.
    pub(crate) why: &'static str,
    /// Is this an instance? The lines are those of the real server and ours.
    pub(crate) applies: fn(&Step, &[String], &[String]) -> bool,
}

/// As few as possible.
pub(crate) const DIFFERENCES: &[Known] = &[
    Known {
        name: "reconnect with a wrong password",
        why: "ZooKeeper closes the owner's connection before it looks at the password: anyone who knows an id could \
              throw out its owner. We look first.",
        applies: |step, real, ours| {
            let thrown_out = |line: &&String| line.ends_with(" closed");
            is_intrusion(step)
                && real.iter().filter(thrown_out).count()
                    == ours.iter().filter(thrown_out).count() + 1
        },
    },
    Known {
        name: "internal operations from clients",
        why: "createSession, deleteContainer and error are for servers; ZooKeeper takes them from anybody.",
        applies: |step, _, ours| {
            step.requests().iter().any(|request| matches!(request.op, -10 | -1 | 20))
                && ours.iter().any(|line| line.contains(" zxid -1 err -6 "))
        },
    },
];

/// Which of them this is.
pub(crate) fn find(step: &Step, lines: &[Vec<String>]) -> Option<usize> {
    let [real, ours] = lines else { return None };
    DIFFERENCES.iter().position(|known| (known.applies)(step, real, ours))
}
