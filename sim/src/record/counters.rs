//! Counters of a run.
//!
//! Owns counters. Must not influence the run.

use zabkeeper_core::Input;
use zabkeeper_core::io::{ClientEvent, Mark, Marks, PeerEvent};

use crate::clients::workload::Op;
use crate::faults::catalog::Fault;
use crate::machine::fs::{Crash, Losses};
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::record::role::Role;
use crate::record::roles::Roles;
use crate::record::shapes::Shapes;
use crate::record::sometimes::{self, Sometimes};

/// Counters of one run, or sums over several.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Injected faults, by kind.
    pub faults: [u64; Fault::ALL.len()],
    /// Completed calls, by operation and outcome.
    pub calls: [[u64; 4]; Op::ALL.len()],
    /// Data lost in crashes.
    pub losses: Losses,
    /// Steps that hit each mark.
    pub marks: [u64; Mark::ALL.len()],
    /// Occurrences of each condition.
    pub sometimes: [u64; Sometimes::ALL.len()],
    /// Combinations of states of two servers.
    pub shapes: Shapes,
    /// Named counters.
    pub counts: Counts,
}

/// Plain counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Counts {
    pub boots: u64,
    pub kills: u64,
    pub power_failures: u64,
    pub steps: u64,
    pub commits: u64,
    pub batches: u64,
    pub disk_ops: u64,
    pub connections: u64,
    pub frames: u64,
    pub bytes: u64,
    pub watch_events: u64,
    pub sessions: u64,
    pub sessions_expired: u64,
    pub disk_audits: u64,
    pub digests: u64,
    pub leaderships: u64,
    pub links: u64,
    pub links_refused: u64,
    pub election_conns: u64,
    pub turned_away: u64,
    pub peer_messages: u64,
    pub notifications: u64,
    pub notifications_late: u64,
    pub notifications_outside: u64,
    /// Notifications of servers that follow no leader for a while, because they had no room for a
    /// snapshot.
    pub notifications_resting: u64,
    pub snaps: u64,
    pub truncations: u64,
    pub log_reads: u64,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            faults: [0; Fault::ALL.len()],
            calls: [[0; 4]; Op::ALL.len()],
            losses: Losses::default(),
            marks: [0; Mark::ALL.len()],
            sometimes: [0; Sometimes::ALL.len()],
            shapes: Shapes::default(),
            counts: Counts::default(),
        }
    }
}

impl Counters {
    /// Reads an event of the run, of which `roles` has read it already.
    pub(super) fn record(&mut self, event: &RunEvent<'_>, roles: &Roles) {
        match *event {
            RunEvent::Started { drifts, .. } => {
                self.counts.boots += 1;
                self.faults[Fault::NodeDrift as usize] += u64::from(drifts);
            }
            RunEvent::Recovered { notes, promise_lost, .. } => {
                notes.iter().filter_map(sometimes::note_of_repair).for_each(|some| self.saw(some));
                if promise_lost {
                    self.saw(Sometimes::PromiseLost);
                }
            }
            RunEvent::RoleChanged { status, .. } => {
                if Role::of(status) == Role::Leads {
                    self.counts.leaderships += 1;
                    if roles.now().filter(|role| *role == Role::Leads).count() > 1 {
                        self.saw(Sometimes::TwoLeaders);
                    }
                }
            }
            RunEvent::Ended { server, how, uncommitted, losses, .. } => {
                match how {
                    Crash::Kill => self.counts.kills += 1,
                    Crash::Power { .. } => self.counts.power_failures += 1,
                }
                self.lost(losses);
                self.shapes.down(server);
                if uncommitted {
                    self.saw(Sometimes::LeaderEndsUncommitted);
                }
                if roles.now().all(|role| role == Role::Down) {
                    self.saw(Sometimes::NobodyUp);
                }
            }
            RunEvent::Input { input, .. } => {
                self.counts.steps += 1;
                if let Input::Client(_, ClientEvent::Opened(..) | ClientEvent::Request(_)) = input {
                    self.counts.frames += 1;
                } else if let Input::Peer(_, PeerEvent::Message(_)) = input {
                    self.counts.peer_messages += 1;
                }
            }
            RunEvent::MarksHit { marks, .. } => self.hit(marks),
            RunEvent::LateFault { fault, .. } => self.fault(fault),
            RunEvent::Client(_, ref event) => match *event {
                ClientRunEvent::Connected { .. } => self.counts.connections += 1,
                ClientRunEvent::CallEnded { op, outcome, .. } => {
                    self.calls[op as usize][outcome as usize] += 1;
                }
                ClientRunEvent::BadClientConnected { .. }
                | ClientRunEvent::HangsUp { .. }
                | ClientRunEvent::ConnLost { .. }
                | ClientRunEvent::Called { .. } => {}
            },
            RunEvent::Wiped { .. } | RunEvent::FaultHit(_) | RunEvent::Healed { .. } => {}
        }
    }

    /// Counts what a disk has lost in a crash.
    fn lost(&mut self, losses: &Losses) {
        self.losses.add(losses);
        if losses.torn > 0 {
            self.saw(Sometimes::TornWrite);
        }
        self.faults[Fault::DiskTorn as usize] += losses.torn;
        self.faults[Fault::DiskGarbage as usize] += losses.garbled;
        self.faults[Fault::DiskNames as usize] += losses.names_lost + losses.resurrected;
    }

    /// Counts an injected fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Counts the marks that a step hit.
    fn hit(&mut self, marks: Marks) {
        for mark in marks.iter() {
            self.marks[mark as usize] += 1;
        }
    }

    /// Counts a condition that occurred.
    pub fn saw(&mut self, some: Sometimes) {
        self.sometimes[some as usize] += 1;
    }

    /// Whether this mark was hit.
    pub fn has_hit(&self, mark: Mark) -> bool {
        self.marks[mark as usize] > 0
    }

    /// Completed calls of any outcome.
    pub fn calls_ended(&self) -> u64 {
        self.calls.iter().flatten().sum()
    }

    /// Adds the counters of another run.
    pub fn add(&mut self, other: &Counters) {
        for (sum, more) in self.faults.iter_mut().zip(other.faults) {
            *sum += more;
        }
        for (sum, more) in self.calls.iter_mut().flatten().zip(other.calls.iter().flatten()) {
            *sum += more;
        }
        self.losses.add(&other.losses);
        for (sum, more) in self.marks.iter_mut().zip(other.marks) {
            *sum += more;
        }
        for (sum, more) in self.sometimes.iter_mut().zip(other.sometimes) {
            *sum += more;
        }
        self.shapes.add(&other.shapes);
        for ((_, sum), (_, more)) in self.counts.fields_mut().into_iter().zip(other.counts.fields())
        {
            *sum += more;
        }
    }
}

impl Counts {
    /// All counters with their names.
    pub fn fields(&self) -> [(&'static str, u64); 27] {
        let mut copy = *self;
        copy.fields_mut().map(|(name, count)| (name, *count))
    }

    fn fields_mut(&mut self) -> [(&'static str, &mut u64); 27] {
        [
            ("boots", &mut self.boots),
            ("kills", &mut self.kills),
            ("power failures", &mut self.power_failures),
            ("steps", &mut self.steps),
            ("commits", &mut self.commits),
            ("log batches", &mut self.batches),
            ("disk ops", &mut self.disk_ops),
            ("connections", &mut self.connections),
            ("frames", &mut self.frames),
            ("bytes", &mut self.bytes),
            ("watch events", &mut self.watch_events),
            ("sessions", &mut self.sessions),
            ("sessions expired", &mut self.sessions_expired),
            ("disk audits", &mut self.disk_audits),
            ("digests", &mut self.digests),
            ("leaderships", &mut self.leaderships),
            ("links", &mut self.links),
            ("links refused", &mut self.links_refused),
            ("connections for notifications", &mut self.election_conns),
            ("handshakes turned away", &mut self.turned_away),
            ("peer messages", &mut self.peer_messages),
            ("notifications", &mut self.notifications),
            ("notifications received late", &mut self.notifications_late),
            ("notifications of whom the heal leaves out", &mut self.notifications_outside),
            ("snapshots taken over", &mut self.snaps),
            ("truncations", &mut self.truncations),
            ("log reads", &mut self.log_reads),
        ]
    }
}
