//! Which server to try next (CLIENT-04, CLIENT-06; Java: `StaticHostProvider`).
//!
//! Owns the order and the rounds. Must not connect.

use super::connect::ServerAddr;
use super::rng::Rng;

/// The servers of a connect string, shuffled once, so that clients spread over the ensemble.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    order: Vec<ServerAddr>,
    next: usize,
    /// Number of servers not yet tried in this round. A round begins with the session, after each
    /// accepted handshake, and after a complete round.
    untried: usize,
    /// The server taken last.
    last: Option<ServerAddr>,
}

impl Servers {
    pub(crate) fn new(servers: &[ServerAddr], rng: &mut Rng) -> Servers {
        assert!(!servers.is_empty(), "a connect string names a server");
        let mut order = servers.to_vec();
        rng.shuffle(&mut order);
        Servers { untried: order.len(), order, next: 0, last: None }
    }

    pub(crate) fn count(&self) -> usize {
        self.order.len()
    }

    /// Has every server been tried? The next one begins a new round.
    pub(crate) fn round_is_over(&self) -> bool {
        self.untried == 0
    }

    /// Takes the server to try now.
    pub(crate) fn take(&mut self) -> ServerAddr {
        if self.round_is_over() {
            self.untried = self.order.len();
        }
        self.untried -= 1;
        let server = self.order[self.next].clone();
        self.next = (self.next + 1) % self.order.len();
        self.last = Some(server.clone());
        server
    }

    /// Records that the server taken last has accepted the session: the others come first after its
    /// loss.
    pub(crate) fn accepted(&mut self) {
        self.untried = self.order.len() - 1;
    }

    /// The servers besides the one taken last, numbered in turn from the next one to try; `None` if
    /// there is no other.
    pub(crate) fn other(&self, number: usize) -> Option<&ServerAddr> {
        let (before, after) = self.order.split_at(self.next);
        let others = after.iter().chain(before);
        let others = others.filter(|server| Some(*server) != self.last.as_ref());
        number.checked_rem(others.clone().count()).and_then(|number| others.clone().nth(number))
    }

    /// Lets this server be taken next, if it is still listed.
    pub(crate) fn try_next(&mut self, server: &ServerAddr) {
        if let Some(at) = self.order.iter().position(|listed| listed == server) {
            self.next = at;
        }
    }

    /// Replaces the list. Returns whether the session is to leave the server taken last.
    ///
    /// The probabilities make the clients of all servers equally many again (CLIENT-06): where the
    /// list grows, a session moves with probability 1 - before/now, and only to new servers; where
    /// it does not, a session stays, and those of removed servers choose between the old ones,
    /// which have clients already, and the new ones.
    pub(crate) fn replace(&mut self, servers: &[ServerAddr], rng: &mut Rng) -> bool {
        assert!(!servers.is_empty(), "a connect string names a server");
        let mut shuffled = servers.to_vec();
        rng.shuffle(&mut shuffled);
        let (before, now) = (self.order.len() as u64, servers.len() as u64);
        let stays = self.last.as_ref().is_none_or(|last| servers.contains(last));
        let moves = !stays || now > before && rng.below(now) >= before;
        let (old, new): (Vec<_>, Vec<_>) =
            shuffled.into_iter().partition(|server| self.order.contains(server));
        self.order = if !moves {
            // The others come first after the loss of this one.
            let (this, others): (Vec<_>, Vec<_>) =
                old.into_iter().chain(new).partition(|server| Some(server) == self.last.as_ref());
            others.into_iter().chain(this).collect()
        } else if now > before {
            new.into_iter().chain(old).collect()
        } else {
            let (of_old, kept) = (before - now, old.len() as u64);
            mix(old, new, |rng| rng.below(now * (before - kept)) < kept * of_old, rng)
        };
        self.next = 0;
        self.untried = self.order.len() - usize::from(!moves && self.last.is_some());
        moves
    }
}

/// Both lists in their order, the next one of `first` where `takes_first` says so.
fn mix<T>(
    first: Vec<T>,
    second: Vec<T>,
    takes_first: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) -> Vec<T> {
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    let mut mixed = Vec::new();
    while first.peek().is_some() && second.peek().is_some() {
        mixed.extend(if takes_first(rng) { first.next() } else { second.next() });
    }
    mixed.extend(first);
    mixed.extend(second);
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(ids: &[u16]) -> Vec<ServerAddr> {
        ids.iter().map(|id| ServerAddr { host: "s".to_owned(), port: *id }).collect()
    }

    /// How many of 10,000 sessions of the first list, evenly spread, are on each server after the
    /// second list, in percent.
    fn spread(before: &[u16], after: &[u16]) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..10_000 {
            let mut rng = Rng::new(seed);
            let mut list = Servers::new(&servers(before), &mut rng);
            let first = list.take();
            list.accepted();
            let moves = list.replace(&servers(after), &mut rng);
            let on = if moves { list.take() } else { first };
            *counts.entry(on.port).or_insert(0) += 1;
        }
        let percents =
            counts.into_iter().map(|(port, count)| format!("{port}: {}", (count + 50) / 100));
        format!("{before:?} to {after:?}: {}", Vec::from_iter(percents).join(", "))
    }

    /// CLIENT-06, with the example of ZooKeeper's guide: 3 servers become 5, and a session moves
    /// with probability 0.4.
    #[test]
    fn sessions_are_spread_evenly_after_the_list_has_changed() {
        let changes: [(&[u16], &[u16]); 6] = [
            (&[1, 2, 3], &[1, 2, 3, 4, 5]),
            (&[1, 2, 3, 4, 5], &[1, 2, 3]),
            (&[1, 2, 3], &[3, 4, 5]),
            (&[1, 2, 3, 4], &[3, 4, 5]),
            (&[1, 2], &[3, 4, 5]),
            (&[1, 2, 3], &[3, 2, 1]),
        ];
        insta::assert_snapshot!(changes.map(|(before, after)| spread(before, after)).join("\n"), @r"
        [1, 2, 3] to [1, 2, 3, 4, 5]: 1: 20, 2: 21, 3: 20, 4: 19, 5: 20
        [1, 2, 3, 4, 5] to [1, 2, 3]: 1: 33, 2: 33, 3: 33
        [1, 2, 3] to [3, 4, 5]: 3: 33, 4: 34, 5: 33
        [1, 2, 3, 4] to [3, 4, 5]: 3: 33, 4: 33, 5: 34
        [1, 2] to [3, 4, 5]: 3: 33, 4: 33, 5: 33
        [1, 2, 3] to [3, 2, 1]: 1: 33, 2: 34, 3: 33
        ");
    }

    /// CLIENT-04, CLIENT-06.
    #[test]
    fn session_that_stays_tries_the_others_first_after_a_loss() {
        let mut rng = Rng::new(1);
        let mut list = Servers::new(&servers(&[1, 2, 3]), &mut rng);
        let first = list.take();
        list.accepted();
        assert!(!list.replace(&servers(&[3, 2, 1]), &mut rng));
        assert!(list.take() != first && list.take() != first);
        assert!(list.round_is_over());
        assert_eq!(list.take(), first);
    }
}
