//! One server: processes inputs one at a time; the only file that changes the server's role (Java
//! `QuorumPeer`).
//!
//! Owns clients, links, the role and the replica, and passes calls between them. Must not do what
//! one of these can do alone.
//!
//! ```text
//!            ┌───────── elected ──────────► Leading ───────┐  no quorum, epoch used up,
//!            │                                             │  or a learner has more history
//!  start ─► Looking ◄──────────────────────────────────────┤
//!            │                                             │
//!            └───── another is elected ───► Following ─────┘  the leader is lost
//! ```

mod clients;
mod disk;
pub(crate) mod operators;
mod peers;
mod role;
mod stop;
mod view;
mod work;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::auth::{Scheme, Schemes};
use crate::config::Config;
use crate::cx::Cx;
use crate::election::Election;
use crate::error::Corrupt;
use crate::front::Front;
use crate::identity::Seed;
use crate::ids::{Instant, LinkId, ServerId, Zxid};
use crate::io::{ClientEvent, Input, Mark, Now, Outbox, PeerCommand, Pressure};
use crate::membership::Members;
use crate::notice::Notice;
use crate::peer::{LinkCloseReason, StepDownReason, Vote};
use crate::replica::{Membership, Replica, kept_list};
use crate::rng::Rng;
use crate::session::SessionTracker;
use crate::status::Halted;
use crate::store::Recovered;
use crate::timer::{Timer, TimerTable};
use crate::zab::{Follower, FollowerEffect, Leader, LeaderEffect};
use peers::Inbound;
use role::Role;
use work::Work;

/// A server of an ensemble.
///
/// * Once: [`Server::recover`], and [`Server::with_scheme`] for schemes of authentication that are
///   not built in.
/// * Then, repeatedly: [`Server::step`] with each input, and with [`Input::Timeout`] when
///   [`Server::next_deadline`] has passed.
/// * At any time: [`Server::pressure`], [`Server::status`] and the other getters, which change
///   nothing.
#[derive(Debug)]
pub struct Server {
    config: Arc<Config>,
    /// The members of the ensemble: those that the log makes known, or those of the configuration.
    members: Arc<Members>,
    schemes: Arc<Schemes>,
    seed: Seed,
    rng: Rng,
    role: Role,
    replica: Replica,
    timers: TimerTable,
    /// The round of the last election that this server took part in; `elected` is its outcome.
    round: u64,
    elected: Option<Vote>,
    /// Inbound links, until a leader adopts them as learners.
    inbound: BTreeMap<LinkId, Inbound>,
    front: Front,
    work: Work,
    /// Is the process to stop?
    stopping: bool,
    /// Does the oracle permit this server to go on without the other voter?
    oracle: bool,
    /// Why the server has halted, if it has.
    halted: Option<Halted>,
}

impl Server {
    /// A server with the state that recovery found. It knows no leader; the first
    /// [`Input::Timeout`], due at once, starts the election.
    ///
    /// `seed` feeds all random choices and secrets: equal seeds and inputs give equal outputs.
    ///
    /// # Errors
    /// Content that passed its checksums and is still inconsistent.
    pub fn recover(
        config: Config,
        seed: impl Into<Seed>,
        recovered: Recovered,
    ) -> Result<Server, Corrupt> {
        let seed = seed.into();
        let mut rng = Rng::new(seed.number()).with_map_salt(config.map_salt);
        let replica = Replica::recover(config.reconfig.as_ref(), recovered, &mut rng)?;
        let known = replica.membership().map(|membership| membership.members().clone());
        let members = known.unwrap_or_else(|| Arc::new(config.members().clone()));
        let mut timers = TimerTable::default();
        timers.set(Timer::Election, Some(Instant(0)));
        let looking = Election::new(config.id(), 0, None).among(members.voters());
        Ok(Server {
            schemes: Arc::new(Schemes::new(&config.auth)),
            front: Front::new(&config),
            members,
            config: Arc::new(config),
            seed,
            rng,
            role: Role::Looking(looking),
            replica,
            timers,
            round: 0,
            elected: None,
            inbound: BTreeMap::new(),
            work: Work::default(),
            stopping: false,
            oracle: false,
            halted: None,
        })
    }

    /// Adds a scheme of authentication, or replaces the one with the same name. Call it before the
    /// first [`Server::step`]; all servers of an ensemble should have the same schemes.
    pub fn with_scheme(mut self, scheme: impl Scheme + 'static) -> Server {
        Arc::make_mut(&mut self.schemes).add(Arc::new(scheme));
        self
    }

    /// Processes one input and appends the resulting commands and their cost to `out`. Work beyond
    /// the budget of a step is left to later steps; the next deadline is then immediate.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Outbox) {
        if self.halted.is_some() {
            return;
        }
        let (config, members) = (self.config.clone(), self.members.clone());
        let mut rng = mem::replace(&mut self.rng, Rng::new(0));
        let schemes = self.schemes.clone();
        if let Input::Oracle(permits) = input {
            self.oracle = permits;
        }
        let mut cx = Cx {
            now,
            config: &config,
            members: &members,
            voters: members.voters(),
            oracle: config.oracle && self.oracle,
            schemes: &schemes,
            rng: &mut rng,
            out,
            stop_at: 0,
        };
        cx.spend(1);
        cx.renew();
        let is_served =
            matches!(input, Input::Client(_, ClientEvent::Opened(..) | ClientEvent::Request(_)));
        if is_served && self.serves() {
            // After a stall, the server serves no client before it has checked that its leader, or
            // its quorum, is still there. A heartbeat may precede messages of servers that have
            // arrived, so it causes no check.
            self.check_role_timers(&mut cx);
        }
        match input {
            Input::Timeout => self.on_timeout(&mut cx),
            Input::Client(conn, event) => self.on_client(conn, event, &mut cx),
            Input::Election(from, said) => self.on_notification(from, &said, &mut cx),
            Input::Peer(link, event) => self.on_peer(link, event, &mut cx),
            Input::Disk(event) => self.on_disk(event, &mut cx),
            Input::EnsembleConfig(from, configs) => self.on_configs(from, &configs, &mut cx),
            Input::Stop => self.on_stop(&mut cx),
            Input::Oracle(_) => self.continue_election(&mut cx),
        }
        self.heed_oracle(&mut cx);
        self.establish_config(&mut cx);
        self.adopt_members(&mut cx);
        if self.halted.is_none() {
            self.maybe_hand_over(&mut cx);
            self.replica.maybe_snapshot(&mut cx);
            self.set_timers(&mut cx);
        }
        self.rng = rng;
    }

    /// The oracle may permit this leader to go on alone from now on, or no longer.
    fn heed_oracle(&mut self, cx: &mut Cx<'_>) {
        if !cx.config.oracle || self.halted.is_some() {
            return;
        }
        let Role::Leading(leader) = &mut self.role else { return };
        let Some(effect) = leader.heed_oracle(&mut self.replica, cx) else { return };
        self.apply_leader_effect(effect, cx);
        if let Role::Leading(leader) = &mut self.role {
            let effect = leader.confirm(cx);
            self.apply_leader_effect(effect, cx);
        }
    }

    /// A leader that waits for servers to be upgraded puts its configuration into the log once the
    /// last of them is.
    fn establish_config(&mut self, cx: &mut Cx<'_>) {
        if let Role::Leading(leader) = &mut self.role
            && self.halted.is_none()
            && leader.serving().is_some()
        {
            leader.propose_config(&mut self.replica, cx);
        }
    }

    /// The step may have logged, committed or removed a configuration: the next one, and what
    /// follows from the change, know the new members.
    fn adopt_members(&mut self, cx: &mut Cx<'_>) {
        let known = self.replica.membership().map(Membership::members);
        let Some(members) = known.filter(|known| !Arc::ptr_eq(known, &self.members)).cloned()
        else {
            return;
        };
        self.members = members.clone();
        if self.halted.is_none() {
            let mut cx = Cx { members: &members, voters: members.voters(), ..cx.reborrow() };
            self.on_new_members(&mut cx);
        }
    }

    /// The time of the next [`Input::Timeout`] and its reason. `None` if only another input can
    /// change anything: for a server that is halted, waits for its disk, or has no sessions.
    pub fn next_deadline(&self) -> Option<(Instant, Timer)> {
        if self.halted.is_some() { None } else { self.timers.next() }
    }

    /// Whether the driver may read from clients.
    pub fn pressure(&self) -> Pressure {
        if self.replica.log().undurable_bytes() > self.config.limits.undurable_bytes {
            Pressure::PauseClients
        } else {
            Pressure::Accept
        }
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.timers.due(Timer::Election, now) {
            self.continue_election(cx);
        }
        self.check_role_timers(cx);
        if let Some(deadline) = self.timers.get(Timer::SessionExpiry)
            && deadline <= now
        {
            self.expire_sessions(deadline, cx);
        }
        if let Some(deadline) = self.timers.get(Timer::LocalSessionExpiry)
            && deadline <= now
        {
            self.expire_local_sessions(deadline, cx);
        }
        // The election may have ended in this very step.
        if self.read_only_from(now).is_some_and(|from| from <= now) {
            self.begin_read_only(cx);
        }
        if self.front.await_leader_deadline().is_some_and(|deadline| deadline <= now) {
            let serves = self.serves();
            self.front.close_waiting(serves, &mut self.replica, cx);
        }
        if self.timers.due(Timer::ContainerCheck, now) {
            self.check_containers(cx);
        }
        if self.timers.due(Timer::Work, now) && self.has_work() {
            self.continue_work(cx);
        }
    }

    /// While clients are not read, the leader deletes no containers either (DATA-22).
    fn check_containers(&mut self, cx: &mut Cx<'_>) {
        let busy = self.pressure() == Pressure::PauseClients;
        let Role::Leading(leader) = &mut self.role else {
            return;
        };
        if leader.hands_over() {
            return;
        }
        match leader.proposer() {
            Some(proposer) if busy => proposer.pause_containers(cx),
            Some(_) | None => leader.check_containers(&mut self.replica, cx),
        }
    }

    /// Acts on the result of a leader's event handler.
    fn apply_leader_effect(&mut self, effect: LeaderEffect, cx: &mut Cx<'_>) {
        match effect {
            LeaderEffect::None => {}
            LeaderEffect::Commit(zxid) => self.commit(zxid, cx),
            LeaderEffect::Establish => self.activate(cx),
            LeaderEffect::Synced(waiters) => {
                for waiter in waiters {
                    self.await_applied(waiter.conn, waiter.request, cx);
                }
            }
            LeaderEffect::Differs(zxid) => self.on_difference(zxid, cx),
            LeaderEffect::StepDown(why) => self.step_down(why, cx),
        }
    }

    /// Acts on the result of a follower's event handler.
    fn apply_follower_effect(&mut self, effect: FollowerEffect, cx: &mut Cx<'_>) {
        match effect {
            FollowerEffect::None => {}
            FollowerEffect::Commit(zxid) => self.commit(zxid, cx),
            FollowerEffect::Serve(committed) => {
                self.commit_all(committed, cx);
                if self.halted.is_some() {
                    return;
                }
                if let Role::Following(follower) = &mut self.role {
                    follower.activate(&mut self.replica, cx);
                }
                self.adopt_observers(cx);
                self.resume_clients(cx);
            }
            FollowerEffect::Synced(conn, request) => self.await_applied(conn, request, cx),
            FollowerEffect::SyncedBehind(behind, conn, request) => {
                self.await_informed(behind, (conn, request), cx);
            }
            FollowerEffect::Differs(zxid) => self.on_difference(zxid, cx),
            FollowerEffect::Abandon(why) => self.look(None, why, cx),
            FollowerEffect::TakeOver(next) => self.on_take_over(next, cx),
        }
    }

    /// The state of this server differs from the ensemble's. The server no longer counts towards a
    /// quorum, and halts once this is durable: the next start sets the data aside.
    fn on_difference(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        cx.mark(Mark::SetsAside);
        self.replica.save_state(cx, |state| {
            state.damaged = true;
            state.differs = Some(zxid);
        });
        let what = format!("what this server has at {zxid} is not what the ensemble has there");
        self.look(None, LinkCloseReason::Incompatible(what), cx);
    }

    /// Commits the initial history, which a quorum has logged, and begins service.
    fn activate(&mut self, cx: &mut Cx<'_>) {
        let history = self.replica.log().appended();
        if history > self.replica.log().applied() {
            cx.mark(Mark::HistoryReplayed);
        }
        self.commit_all(history, cx);
        if self.halted.is_some() {
            return;
        }
        let Role::Leading(leader) = &mut self.role else { unreachable!("only a leader activates") };
        leader.activate(&mut self.replica, cx);
        leader.propose_config(&mut self.replica, cx);
        self.resume_clients(cx);
    }

    /// Another configuration is logged, in force, or gone.
    fn on_new_members(&mut self, cx: &mut Cx<'_>) {
        let Some(membership) = self.replica.membership() else { return };
        let (newest, foreign) = (membership.newest(), membership.foreign_candidates());
        let members = newest.members();
        let observers = members.ids().filter(|id| members.is_observer(*id));
        cx.out.notices.push(Notice::Reconfigured {
            version: newest.version,
            pending: membership.is_changing(),
            voters: members.voters().ids().collect(),
            observers: observers.collect(),
        });
        if !membership.is_changing() && membership.is_logged() {
            let voters = kept_list(membership.active().members().voters());
            if self.replica.state().voters != voters && membership.is_established() {
                // A start must not wait for voters that have left.
                self.replica.save_state(cx, |state| state.voters = voters);
            }
        }
        match &mut self.role {
            Role::Looking(looking) => {
                // The votes so far are those of other voters.
                let election = Election::new(cx.config.id(), looking.round(), None);
                let mut election = election.among(cx.voters);
                election.set_foreign(foreign);
                self.role = Role::Looking(election);
                self.front.end_read_only(&mut self.replica, cx);
                self.continue_election(cx);
            }
            // A voter follows its leader itself.
            Role::Following(follower)
                if follower.is_behind_master() && cx.voters.contains(cx.config.id()) =>
            {
                self.look(None, LinkCloseReason::Unwanted, cx);
            }
            Role::Following(_) => {}
            Role::Leading(leader) => {
                let effect = leader.on_new_members(&self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    /// Becomes leader, and adopts the links on which learners have sent FOLLOWERINFO.
    fn lead(&mut self, cx: &mut Cx<'_>) {
        let alone = cx.voters.alone();
        cx.mark(if alone { Mark::ElectionAlone } else { Mark::ElectionWon });
        self.front.end_read_only(&mut self.replica, cx);
        let askers = self.take_askers();
        self.role = Role::Leading(Leader::begin(self.seed, &mut self.replica, cx));
        self.answer_askers(askers, cx);
        self.adopt_inbound(cx);
    }

    /// Becomes a follower of `leader`.
    fn follow(&mut self, leader: ServerId, cx: &mut Cx<'_>) {
        cx.mark(Mark::ElectionJoined);
        for link in self.take_unfed(leader, cx) {
            cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Follows));
        }
        self.front.end_read_only(&mut self.replica, cx);
        let elected_epoch = self.elected.map(|vote| vote.epoch).unwrap_or_default();
        let askers = self.take_askers();
        self.role = Role::Following(Follower::begin(leader, elected_epoch, cx));
        self.answer_askers(askers, cx);
    }

    /// Starts an election, closes all links of the role, and logs `why`. Client connections stay
    /// open; their requests wait.
    fn look(&mut self, lost: Option<ServerId>, why: LinkCloseReason, cx: &mut Cx<'_>) {
        self.look_for(None, lost, why, cx);
    }

    /// The same; the last leader may have named the `next` one.
    fn look_for(
        &mut self,
        next: Option<Vote>,
        lost: Option<ServerId>,
        why: LinkCloseReason,
        cx: &mut Cx<'_>,
    ) {
        let (links, fed) = match &self.role {
            Role::Looking(_) => (Vec::new(), Vec::new()),
            Role::Following(follower) => {
                (Vec::from_iter(follower.link()), follower.observers().links().collect())
            }
            Role::Leading(leader) => (leader.links().collect(), Vec::new()),
        };
        let close = |link| PeerCommand::Close(link, why.clone());
        cx.out.peers.extend(links.into_iter().map(close));
        // Its observers look for the next leader themselves.
        let leaves = LinkCloseReason::Looks(StepDownReason::Leader);
        let close = |link| PeerCommand::Close(link, leaves.clone());
        cx.out.peers.extend(fed.into_iter().map(close));
        if let Some(leader) = self.leader() {
            cx.out.notices.push(Notice::LeavesLeader { leader, why });
        }
        self.replica.abandon_incoming(cx);
        self.forget_agreed();
        if self.replica.outstanding() > 0 {
            match &self.role {
                Role::Looking(_) => {}
                Role::Following(_) => cx.mark(Mark::FollowerLeftUncommitted),
                Role::Leading(_) => cx.mark(Mark::LeaderLeftUncommitted),
            }
        }
        self.role = Role::Looking(self.election(next, lost, cx));
        self.front.end_read_only(&mut self.replica, cx);
        self.front.on_leader_lost(cx);
        self.continue_election(cx);
    }

    /// The leader that this server follows, or its own id if it leads.
    fn leader(&self) -> Option<ServerId> {
        self.role.leader(self.config.id())
    }

    /// Are clients served?
    fn serves(&self) -> bool {
        self.role.serves()
    }

    fn set_timers(&mut self, cx: &mut Cx<'_>) {
        self.note_pressure(cx);
        let paused = self.front.is_paused();
        let now = cx.now.mono;
        Timer::OF_ROLES.iter().for_each(|timer| self.timers.set(*timer, None));
        let read_only_from = self.read_only_from(now);
        self.timers.set(Timer::ReadOnly, read_only_from);
        match &mut self.role {
            Role::Looking(looking) if !looking.has_voted() && !self.replica.log().is_writing() => {
                self.timers.set(Timer::Election, Some(now));
            }
            Role::Looking(looking) => {
                // No election is decided before the pause after a failed snapshot is over.
                let rest = self.replica.rests_until(now);
                let next = looking.next_deadline().filter(|next| rest.is_none() || *next > now);
                self.timers.set(Timer::Election, next.into_iter().chain(rest).min());
            }
            Role::Following(follower) => {
                self.timers.set(Timer::LeaderSilence, Some(follower.deadline(&self.replica)));
                for (timer, deadline) in follower.observers().deadlines(cx) {
                    self.timers.set(timer, deadline);
                }
            }
            Role::Leading(leader) => {
                for (timer, deadline) in leader.deadlines(cx) {
                    self.timers.set(timer, deadline);
                }
                let hands_over = leader.hands_over();
                let mut proposer = leader.proposer();
                let containers = proposer
                    .as_mut()
                    .and_then(|proposer| proposer.container_deadline(&self.replica, cx));
                self.timers.set(Timer::ContainerCheck, containers.filter(|_| !hands_over));
                let tracker = proposer.map(|proposer| &proposer.tracker);
                let expiry = tracker
                    .filter(|_| !paused && !hands_over)
                    .and_then(SessionTracker::next_expiry);
                self.timers.set(Timer::SessionExpiry, expiry);
            }
        }
        let local = self.front.next_expiry().filter(|_| !paused && self.serves_any());
        self.timers.set(Timer::LocalSessionExpiry, local);
        self.timers.set(Timer::AwaitLeader, self.front.await_leader_deadline());
        self.timers.set(Timer::Work, self.has_work().then_some(now));
    }

    /// Stops the server: its promises can no longer become durable, or its state is wrong. It
    /// closes all client connections and emits nothing afterwards.
    fn halt(&mut self, why: Halted, cx: &mut Cx<'_>) {
        self.front.halt(cx);
        self.halted = Some(why);
    }
}
