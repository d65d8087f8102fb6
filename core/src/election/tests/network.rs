//! Whole elections over a simulated network that loses, duplicates and delays notifications.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{history, id, limits, ms, notification, vote, voters};
use crate::election::*;
use crate::rng::Rng;

/// Servers that elect a leader over a network that loses, repeats and reorders messages. After an
/// election, a leader without a quorum and a follower without its leader look again.
struct World {
    rng: Rng,
    now: Instant,
    voters: Voters,
    servers: BTreeMap<ServerId, Player>,
    network: Vec<(Instant, ServerId, ServerId, Notification)>,
    /// Of 100 messages, how many are lost, and how many arrive twice.
    lost: u32,
    repeated: u32,
    delay_ms_max: u32,
    sent: u32,
    elections: u32,
    outcomes: BTreeMap<u64, BTreeSet<ServerId>>,
}

struct Player {
    begins: Instant,
    history: Vote,
    looking: Option<Election>,
    /// Since when, and the notification that it answers with while it leads or follows.
    settled: Option<(Instant, Notification)>,
    round: u64,
}

impl World {
    fn new(seed: u64, delay_ms_max: u32) -> World {
        let mut rng = Rng::new(seed);
        let count = [3, 5][usize::try_from(seed % 2).expect("small")];
        let servers = (1..=count).map(|n| {
            let epoch = 1 + rng.below(2);
            let history = vote(epoch, u64::from(rng.below(4)), n);
            let begins = ms(u64::from(rng.below(15)));
            (id(n), Player { begins, history, looking: None, settled: None, round: 0 })
        });
        World {
            servers: servers.collect(),
            rng,
            now: ms(0),
            voters: voters(count),
            network: Vec::new(),
            lost: 0,
            repeated: 0,
            delay_ms_max,
            sent: 0,
            elections: 0,
            outcomes: BTreeMap::new(),
        }
    }

    fn send(&mut self, from: ServerId, to: ServerId, notification: Notification) {
        self.sent += 1;
        if self.rng.below(100) < self.lost {
            return;
        }
        let copies = if self.rng.below(100) < self.repeated { 2 } else { 1 };
        for _ in 0..copies {
            let delay = Duration::from_millis(u64::from(self.rng.below(self.delay_ms_max)));
            self.network.push((self.now.after(delay), from, to, notification));
        }
    }

    fn notify_all(&mut self, from: ServerId) {
        let looking = self.servers[&from].looking.as_ref().expect("it looks");
        let notification = looking.notification(0).expect("it has voted");
        for to in self.voters.clone().ids().filter(|to| *to != from) {
            self.send(from, to, notification);
        }
    }

    fn begin(&mut self, server: ServerId, lost: Option<ServerId>) {
        self.elections += 1;
        let player = self.servers.get_mut(&server).expect("known");
        let mut looking = Election::new(server, player.round, lost);
        looking.vote(player.history, history(HistoryStatus::Complete), self.now);
        player.looking = Some(looking);
        player.settled = None;
        self.notify_all(server);
    }

    fn deliver(&mut self, from: ServerId, to: ServerId, notification: Notification) {
        let now = self.now;
        let player = self.servers.get_mut(&to).expect("known");
        if let Some(looking) = &mut player.looking {
            match looking.receive(from, &notification, &self.voters, now) {
                Recipients::None => {}
                Recipients::All => self.notify_all(to),
                Recipients::Sender => {
                    let answer = looking.notification(0).expect("it has voted");
                    self.send(to, from, answer);
                }
            }
        } else if let Some((_, server_state)) = player.settled
            && notification.server_state == ServerState::Looking
        {
            self.send(to, from, server_state);
        }
    }

    /// Processes the passing of time on one server.
    fn tick(&mut self, server: ServerId) {
        let player = self.servers.get_mut(&server).expect("known");
        if let Some(looking) = &mut player.looking {
            if let Some(outcome) = looking.outcome(&self.voters, &limits(), self.now) {
                player.round = looking.round();
                let vote = looking.proposal().expect("of the winner");
                let (server_state, leader) = match outcome {
                    Outcome::Lead => (ServerState::Leading, server),
                    Outcome::Follow(leader) => (ServerState::Following, leader),
                };
                assert_eq!(vote.candidate, leader);
                self.outcomes.entry(player.round).or_default().insert(leader);
                player.looking = None;
                player.settled = Some((
                    self.now,
                    notification(server_state, player.round, vote, HistoryStatus::Complete),
                ));
            } else if looking.take_resend(&limits(), self.now) {
                self.notify_all(server);
            }
        } else if player.settled.is_some() {
            self.check_settled(server);
        } else if player.begins <= self.now {
            self.begin(server, None);
        }
    }

    /// 200 ms after an election, a leader must have a quorum and a follower its leader, or it looks
    /// again.
    fn check_settled(&mut self, server: ServerId) {
        let (since, notification) = self.servers[&server].settled.expect("it has settled");
        let leader = notification.vote.candidate;
        let of = |id: ServerId| self.servers[&id].settled.map(|(_, notification)| notification);
        let leads = of(leader)
            .is_some_and(|notification| notification.server_state == ServerState::Leading);
        let followed =
            self.voters.is_quorum(|id| of(id).is_some_and(|s| s.vote.candidate == leader));
        let sound = if leader == server { followed } else { leads };
        if !sound && self.now >= since.after(Duration::from_millis(200)) {
            self.begin(server, (leader != server).then_some(leader));
        }
    }

    /// The server loses its memory, its round included, and keeps its history.
    fn restart(&mut self) {
        let count = u32::try_from(self.servers.len()).expect("few");
        let server = id(1 + u64::from(self.rng.below(count)));
        let begins = self.now.after(Duration::from_millis(u64::from(self.rng.below(300))));
        let player = self.servers.get_mut(&server).expect("known");
        *player =
            Player { begins, history: player.history, looking: None, settled: None, round: 0 };
    }

    fn run(&mut self, until: Instant) {
        while self.now < until {
            self.now = self.now.after(Duration::from_millis(1));
            let now = self.now;
            let (mut due, later): (Vec<_>, Vec<_>) =
                self.network.drain(..).partition(|(at, ..)| *at <= now);
            self.network = later;
            while !due.is_empty() {
                let next = self.rng.below(u32::try_from(due.len()).expect("few"));
                let (_, from, to, notification) =
                    due.swap_remove(usize::try_from(next).expect("few"));
                self.deliver(from, to, notification);
            }
            for server in self.voters.clone().ids() {
                self.tick(server);
            }
        }
    }

    /// The leader that all servers name, if they agree and it leads.
    fn agreed(&self) -> Option<ServerId> {
        let notification =
            |player: &Player| player.settled.map(|(_, notification)| notification.vote.candidate);
        let leaders: BTreeSet<_> = self.servers.values().map(notification).collect();
        let leader = leaders.first().copied().flatten()?;
        let leads = self.servers[&leader].settled?.1.server_state == ServerState::Leading;
        (leaders.len() == 1 && leads).then_some(leader)
    }
}

/// FLE-05.
#[test]
fn best_vote_wins_in_one_round_on_a_reliable_network() {
    for seed in 0..2_000 {
        let mut world = World::new(seed, 4);
        world.run(ms(150));
        let best = world.servers.values().map(|player| player.history).max().expect("some");
        let count = u32::try_from(world.servers.len()).expect("few");
        assert_eq!(world.agreed(), Some(best.candidate), "seed {seed}");
        assert_eq!(world.elections, count, "seed {seed}: once each");
        // A server notifies all of each vote that it adopts, and answers each notification at most
        // once.
        assert!(world.sent <= 6 * count * (count - 1), "seed {seed}: {} messages", world.sent);
        let before = world.sent;
        world.run(ms(3_000));
        assert_eq!((world.sent, world.network.len()), (before, 0), "seed {seed}: silence");
    }
}

/// FLE-04.
#[test]
fn voters_agree_and_stop_notifying_after_a_lossy_network() {
    let (mut elections, mut servers) = (0, 0);
    for seed in 0..500 {
        let mut world = World::new(seed, 60);
        (world.lost, world.repeated) = (40, 20);
        for until in [500, 1_000, 2_000] {
            world.run(ms(until));
            world.restart();
        }
        (world.lost, world.repeated) = (0, 0);
        world.run(ms(6_000));
        assert!(world.agreed().is_some(), "seed {seed}: {:?}", world.outcomes);
        let count = u32::try_from(world.servers.len()).expect("few");
        let bound = 3 * count * (count - 1) * world.elections;
        assert!(world.sent <= bound, "seed {seed}: {} messages", world.sent);
        let before = world.sent;
        world.run(ms(9_000));
        assert_eq!((world.sent, world.network.len()), (before, 0), "seed {seed}: silence");
        elections += world.elections;
        servers += count;
    }
    assert!(elections > servers + servers, "some elections were in vain, or this proves little");
}
