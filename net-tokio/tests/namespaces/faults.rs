//! The schedule of faults. Each one lasts until the servers that it leaves connected have
//! acknowledged writes, so a schedule also shows that a quorum goes on.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::{ReconfigRequest, Request};

use crate::client::{Answer, Client};
use crate::ensemble::{Ensemble, lines};
use crate::say;
use crate::tape::Tape;
use crate::workload::Workload;
use sim::engine::seed::{Rng, Seeds};

/// Number of acknowledged writes that show that an ensemble serves.
const PROGRESS: u64 = 20;
const CONFIG: &str = "/zookeeper/config";
/// Number of the client that reconfigures.
const OPERATOR: u32 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// No packets between the leader and the others; SIGKILL for the leader, or not.
    LeaderAlone,
    /// No packets between one follower and the others; SIGKILL for the follower, or not.
    FollowerAlone,
    /// No packet of the leader reaches one follower.
    DeafFollower,
    /// No packet of one follower reaches the leader.
    MuteFollower,
    /// SIGKILL for the leader, and a new start.
    KillLeader,
    /// SIGKILL for all servers at once, and new starts.
    KillAll,
    /// SIGSTOP for the leader, and SIGCONT when another one leads.
    PauseLeader,
    /// One server leaves while another one, or itself, is alone; then it joins again.
    Reconfigure,
    /// A tenth of the packets between servers is lost.
    Loss,
    /// The packets of the leader arrive late.
    Delay,
}

/// Faults in their order, with the choices that each one makes.
pub(crate) struct Schedule(Vec<(Fault, u64)>);

impl Schedule {
    pub(crate) fn draw(rng: &mut Rng, ensemble: &Ensemble) -> Schedule {
        let mut faults = vec![
            Fault::LeaderAlone,
            Fault::FollowerAlone,
            Fault::DeafFollower,
            Fault::MuteFollower,
            Fault::KillLeader,
            Fault::KillAll,
            Fault::PauseLeader,
            Fault::Reconfigure,
        ];
        faults.extend(ensemble.network.can_lose().then_some(Fault::Loss));
        faults.extend(ensemble.network.can_delay().then_some(Fault::Delay));
        faults.sort_by_cached_key(|_| rng.word());
        Schedule(faults.into_iter().map(|fault| (fault, rng.word())).collect())
    }

    /// Injects and heals the faults one by one; at the end all servers serve.
    pub(crate) fn perform(self, ensemble: &mut Ensemble, workload: &Workload, tape: &Arc<Tape>) {
        for (fault, seed) in self.0 {
            let rng = Seeds::new(seed).stream("fault", 0);
            Injection { ensemble, workload, tape, rng }.inject(fault);
            ensemble.network.heal();
            await_progress(ensemble, workload, &ensemble.ids());
        }
        ensemble.await_serving();
    }
}

/// Waits until these servers together have acknowledged some more writes.
fn await_progress(ensemble: &Ensemble, workload: &Workload, servers: &[u64]) {
    let goal = workload.acknowledged(servers) + PROGRESS;
    ensemble.eventually(&format!("writes at the servers {servers:?}"), || {
        workload.acknowledged(servers) >= goal
    });
}

struct Injection<'a> {
    ensemble: &'a mut Ensemble,
    workload: &'a Workload,
    tape: &'a Arc<Tape>,
    rng: Rng,
}

impl Injection<'_> {
    fn inject(&mut self, fault: Fault) {
        let leader = self.ensemble.leader();
        let followers = self.ensemble.others(leader);
        let follower = *self.rng.pick(&followers);
        say(&format!("{} servers: {fault:?}, leader {leader}", followers.len() + 1));
        match fault {
            Fault::LeaderAlone => {
                self.ensemble.network.part(&[leader], &followers);
                self.lasts(&followers);
                self.may_restart(leader);
            }
            Fault::FollowerAlone => {
                let others = self.ensemble.others(follower);
                self.ensemble.network.part(&[follower], &others);
                self.lasts(&others);
                self.may_restart(follower);
            }
            Fault::DeafFollower => {
                self.ensemble.network.drop_packets(leader, follower);
                self.lasts(&self.ensemble.ids());
            }
            Fault::MuteFollower => {
                self.ensemble.network.drop_packets(follower, leader);
                self.lasts(&self.ensemble.ids());
            }
            Fault::KillLeader => {
                self.ensemble.kill(leader);
                self.lasts(&followers);
                self.ensemble.boot(leader);
            }
            Fault::KillAll => {
                self.ensemble.ids().into_iter().for_each(|id| self.ensemble.kill(id));
                self.ensemble.ids().into_iter().for_each(|id| self.ensemble.boot(id));
            }
            Fault::PauseLeader => {
                self.ensemble.signal(leader, "STOP");
                self.lasts(&followers);
                self.ensemble.signal(leader, "CONT");
            }
            Fault::Reconfigure => self.reconfigure(follower, leader),
            Fault::Loss => {
                self.ensemble.network.lose_some(10);
                self.lasts(&self.ensemble.ids());
            }
            Fault::Delay => {
                self.ensemble.network.delay(leader, 40);
                self.lasts(&self.ensemble.ids());
            }
        }
    }

    /// The fault lasts for a drawn time, and until these servers have acknowledged writes since.
    fn lasts(&mut self, progress: &[u64]) {
        // `syncLimit` is 1.5 s: some faults end before the servers notice them.
        thread::sleep(Duration::from_millis(500 + self.rng.below(2_000)));
        await_progress(self.ensemble, self.workload, progress);
    }

    /// In half of the cases a server that is alone ends and starts again.
    fn may_restart(&mut self, server: u64) {
        if self.rng.chance(50, 100) {
            self.ensemble.kill(server);
            self.ensemble.boot(server);
        }
    }

    /// The server that is alone leaves, or another follower if the rest is a quorum without both.
    fn reconfigure(&mut self, alone: u64, leader: u64) {
        let others = self.ensemble.others(alone);
        let mut leaving = alone;
        if others.len() > 2 && self.rng.chance(50, 100) {
            let followers: Vec<u64> = others.iter().copied().filter(|id| *id != leader).collect();
            leaving = *self.rng.pick(&followers);
        }
        self.ensemble.network.part(&[alone], &others);
        let removal = ReconfigRequest {
            joining: None,
            leaving: Some(leaving.to_string()),
            new_members: None,
            version: -1,
        };
        self.reconfigure_until(&others, removal, |config| !config.contains(&lines(&[leaving])));
        self.lasts(&others);
        self.ensemble.network.heal();
        // Another server is alone while it comes back.
        if others.len() > 2 {
            let away = *self.rng.pick(&others);
            self.ensemble.network.part(&[away], &self.ensemble.others(away));
        }
        let joining = lines(&[leaving]).trim_end().to_owned();
        let addition = ReconfigRequest {
            joining: Some(joining),
            leaving: None,
            new_members: None,
            version: -1,
        };
        let ids = self.ensemble.ids();
        self.reconfigure_until(&ids, addition, |config| config.contains(&lines(&[leaving])));
        self.lasts(&ids);
    }

    /// Asks one server after the other until the configuration is as it shall be.
    fn reconfigure_until(
        &self,
        servers: &[u64],
        request: ReconfigRequest,
        holds: impl Fn(&str) -> bool,
    ) {
        let mut servers = servers.iter().cycle();
        self.ensemble.eventually(&format!("{request:?}"), || {
            let server = *servers.next().expect("an endless list");
            let Some(mut client) = Client::open(self.tape, OPERATOR, server) else {
                return false;
            };
            // Whether it is done is read below: the answer may be lost.
            let answer = client.call(Request::Reconfigure(request.clone()));
            if let Some((err, _)) = answer {
                let busy = [ErrorCode::NewConfigNoQuorum, ErrorCode::ReconfigInProgress];
                let expected = err == 0 || busy.iter().any(|code| code.wire() == err);
                assert!(expected, "{request:?}: {err}\n{}", self.ensemble.logs());
            }
            client.call(Request::Sync { path: CONFIG.into() });
            let read = Request::GetData { path: CONFIG.into(), watch: false };
            client.call(read).is_some_and(|answer| holds(&text(&answer)))
        });
    }
}

/// The data in an answer to getData.
fn text((err, body): &Answer) -> String {
    assert_eq!(*err, 0, "{CONFIG} is there");
    let length = body.first_chunk::<4>().map(|length| i32::from_be_bytes(*length));
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
    let data: Bytes = body.slice(4..4 + length);
    String::from_utf8(data.to_vec()).expect("text")
}
