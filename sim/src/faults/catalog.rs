//! The catalogue of faults: names, effects, default rates, and which are selected.
//!
//! Owns selection and rates. Must not carry out any fault: `world` does.

use std::fmt;

use crate::engine::selection::{Selectable, Selection};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "`sentence` is the documentation")]
pub enum Fault {
    NodeKill,
    NodePower,
    NodeKillLeader,
    NodeBlackout,
    NodePause,
    NodeSlow,
    NodeDrift,
    NodeWall,
    NodeCrashInStep,
    NodeCrashInRecovery,
    DiskSlow,
    DiskStall,
    DiskWriteError,
    DiskFull,
    DiskFsyncError,
    DiskTorn,
    DiskGarbage,
    DiskNames,
    DiskWipe,
    NetReset,
    NetHalfOpen,
    NetStall,
    NetRefuse,
    NetCut,
    NetTail,
    NetSplit,
    NetOneWay,
    NetPartial,
    NetIsolateLeader,
    NetVotes,
    NetBadPeer,
    ClientFreeze,
    ClientDeath,
    ClientClose,
    ClientWrongPassword,
    ClientGarbage,
    ClientDuplicate,
    ClientStorm,
    ClientDeaf,
    ClientDrift,
    ClientRestart,
    NetByzantine,
    ClientOperator,
    NetStragglers,
    DiskBitRot,
    NodeStop,
    DiskSnapshotsFull,
    ClientSlow,
    NodeHandOver,
}

/// How a fault is triggered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// At random times, with this mean interval, ms.
    Every(u64),
    /// Always: a property of a run, in force where it is selected.
    Always,
}

/// Which faults are selected, and how often they are injected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// By fault: mean interval, ms; zero for properties; `None` if not selected.
    means: [Option<u64>; Fault::ALL.len()],
}

impl Fault {
    /// The group name of all partitions between servers.
    pub const PARTITION: &str = "net.partition";
    /// The faults of that group.
    pub const PARTITIONS: [Fault; 5] = [
        Fault::NetSplit,
        Fault::NetOneWay,
        Fault::NetPartial,
        Fault::NetIsolateLeader,
        Fault::NetStragglers,
    ];

    /// All faults, in order.
    pub const ALL: [Fault; 49] = [
        Fault::NodeKill,
        Fault::NodePower,
        Fault::NodeKillLeader,
        Fault::NodeBlackout,
        Fault::NodePause,
        Fault::NodeSlow,
        Fault::NodeDrift,
        Fault::NodeWall,
        Fault::NodeCrashInStep,
        Fault::NodeCrashInRecovery,
        Fault::DiskSlow,
        Fault::DiskStall,
        Fault::DiskWriteError,
        Fault::DiskFull,
        Fault::DiskFsyncError,
        Fault::DiskTorn,
        Fault::DiskGarbage,
        Fault::DiskNames,
        Fault::DiskWipe,
        Fault::NetReset,
        Fault::NetHalfOpen,
        Fault::NetStall,
        Fault::NetRefuse,
        Fault::NetCut,
        Fault::NetTail,
        Fault::NetSplit,
        Fault::NetOneWay,
        Fault::NetPartial,
        Fault::NetIsolateLeader,
        Fault::NetVotes,
        Fault::NetBadPeer,
        Fault::ClientFreeze,
        Fault::ClientDeath,
        Fault::ClientClose,
        Fault::ClientWrongPassword,
        Fault::ClientGarbage,
        Fault::ClientDuplicate,
        Fault::ClientStorm,
        Fault::ClientDeaf,
        Fault::ClientDrift,
        Fault::ClientRestart,
        Fault::NetByzantine,
        Fault::ClientOperator,
        Fault::NetStragglers,
        Fault::DiskBitRot,
        Fault::NodeStop,
        Fault::DiskSnapshotsFull,
        Fault::ClientSlow,
        Fault::NodeHandOver,
    ];

    /// Faults that no menu of a profile has: each is drawn from a random stream of its own.
    pub const APART: [Fault; 1] = [Fault::NodeHandOver];

    /// The name that the command line and reports use.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The default trigger.
    pub fn trigger(self) -> Trigger {
        self.row().1
    }

    /// Its effect.
    pub fn sentence(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, Trigger, &'static str) {
        use Trigger::{Always, Every};
        match self {
            Fault::NodeKill => {
                ("node.kill", Every(15_000), "kill -9: the process ends, the page cache stays")
            }
            Fault::NodePower => {
                ("node.power", Every(15_000), "power failure: what was not synced may be lost")
            }
            Fault::NodeKillLeader => {
                ("node.kill-leader", Every(15_000), "a process that leads ends, however it may")
            }
            Fault::NodeBlackout => (
                "node.blackout",
                Every(40_000),
                "power failure of several servers, or all, at once",
            ),
            Fault::NodePause => {
                ("node.pause", Every(20_000), "the process stops, then gets all at once")
            }
            Fault::NodeSlow => ("node.slow", Every(40_000), "every step takes long for a while"),
            Fault::NodeDrift => ("node.drift", Always, "the clock runs up to 10 % fast or slow"),
            Fault::NodeWall => ("node.wall", Every(20_000), "the wall clock jumps either way"),
            Fault::NodeCrashInStep => (
                "node.crash-in-step",
                Every(20_000),
                "crash between any two outputs of a step, and any two operations of the disk",
            ),
            Fault::NodeCrashInRecovery => {
                ("node.crash-in-recovery", Always, "one recovery in three is cut at some operation")
            }
            Fault::DiskSlow => {
                ("disk.slow", Every(30_000), "everything takes 10 to 100 times as long")
            }
            Fault::DiskStall => ("disk.stall", Every(25_000), "no sync ends for seconds"),
            Fault::DiskWriteError => ("disk.write-error", Every(60_000), "a write fails half-way"),
            Fault::DiskFull => ("disk.full", Every(60_000), "no room is left from some byte on"),
            Fault::DiskFsyncError => {
                ("disk.fsync-error", Every(60_000), "a sync fails once, and its pages are lost")
            }
            Fault::DiskTorn => ("disk.torn", Always, "power failures keep single sectors"),
            Fault::DiskGarbage => {
                ("disk.garbage", Always, "power failures leave zeros or garbage in torn writes")
            }
            Fault::DiskNames => ("disk.names", Always, "power failures keep and lose single names"),
            Fault::DiskWipe => (
                "disk.wipe",
                Every(60_000),
                "a server comes back with an empty disk, where the others can spare it",
            ),
            Fault::NetReset => ("net.reset", Every(3_000), "a connection breaks at any byte"),
            Fault::NetHalfOpen => {
                ("net.half-open", Every(5_000), "a connection breaks, and one end notices it late")
            }
            Fault::NetStall => {
                ("net.stall", Every(4_000), "one direction stands still for a while")
            }
            Fault::NetRefuse => ("net.refuse", Every(15_000), "no connection is made for a while"),
            Fault::NetCut => ("net.cut", Always, "what is sent arrives in arbitrary pieces"),
            Fault::NetTail => ("net.tail", Always, "one segment in 200 takes 100 times as long"),
            Fault::NetSplit => {
                ("net.split", Every(12_000), "two parts of the ensemble cannot reach each other")
            }
            Fault::NetOneWay => (
                "net.one-way",
                Every(15_000),
                "one part receives from the other, which receives nothing of it",
            ),
            Fault::NetPartial => {
                ("net.partial", Every(15_000), "some pairs of servers cannot reach each other")
            }
            Fault::NetIsolateLeader => (
                "net.isolate-leader",
                Every(15_000),
                "no server reaches the leader, or the leader reaches none",
            ),
            Fault::NetVotes => {
                ("net.votes", Always, "notifications are lost, doubled and late, as drawn")
            }
            Fault::NetBadPeer => {
                ("net.bad-peer", Every(12_000), "random bytes arrive at the port for servers")
            }
            Fault::ClientFreeze => {
                ("client.freeze", Every(8_000), "a client stops, often beyond its session timeout")
            }
            Fault::ClientDeath => (
                "client.death",
                Every(10_000),
                "a client ends without closing its session, perhaps right after it reconnects; a new \
                 one takes its place",
            ),
            Fault::ClientClose => (
                "client.close",
                Every(8_000),
                "a client closes its session, often with calls under way",
            ),
            Fault::ClientWrongPassword => (
                "client.wrong-password",
                Every(8_000),
                "a client tries to resume a session with a wrong password",
            ),
            Fault::ClientGarbage => (
                "client.garbage",
                Every(5_000),
                "a connection is silent, or sends half a frame, a frame that is too long, or random bytes",
            ),
            Fault::ClientDuplicate => (
                "client.duplicate",
                Every(12_000),
                "another client resumes a living session on another connection",
            ),
            Fault::ClientStorm => {
                ("client.storm", Every(40_000), "all clients lose their connections at once")
            }
            Fault::ClientDeaf => (
                "client.deaf",
                Every(15_000),
                "a client sends requests and does not read for a while",
            ),
            Fault::ClientDrift => {
                ("client.drift", Always, "the clocks of clients run up to 10 % fast or slow")
            }
            Fault::ClientRestart => (
                "client.restart",
                Every(12_000),
                "a client's process ends, and another one resumes its session with another timeout",
            ),
            Fault::NetByzantine => {
                ("net.byzantine", Every(10_000), "a byzantine peer acts in the place of a server")
            }
            Fault::ClientOperator => {
                ("client.operator", Every(8_000), "an operator asks with four-letter commands")
            }
            Fault::NetStragglers => (
                "net.stragglers",
                Every(15_000),
                "a leader and some followers are cut off, and come back one by one to other \
                 leaders",
            ),
            Fault::DiskBitRot => (
                "disk.bit-rot",
                Every(20_000),
                "what was durable is damaged when a server starts again, where the others can \
                 spare it",
            ),
            Fault::NodeStop => (
                "node.stop",
                Every(30_000),
                "SIGTERM: the log's writes end, its end is recorded, then the process ends",
            ),
            Fault::DiskSnapshotsFull => (
                "disk.snapshots-full",
                Every(25_000),
                "for a while there is no room for snapshots, or no descriptor",
            ),
            Fault::ClientSlow => (
                "client.slow",
                Every(12_000),
                "a client asks on and reads in small parts, with pauses, for a while",
            ),
            Fault::NodeHandOver => (
                "node.hand-over",
                Every(12_000),
                "SIGTERM, mostly to a leader: it hands over, answers what it has read, then ends",
            ),
        }
    }
}

impl FaultPlan {
    /// No faults.
    pub fn none() -> FaultPlan {
        FaultPlan { means: [None; Fault::ALL.len()] }
    }

    /// Whether the fault is selected.
    pub fn has(&self, fault: Fault) -> bool {
        self.means[fault as usize].is_some()
    }

    /// Mean interval, ns; `None` if not selected or a property.
    pub fn mean(&self, fault: Fault) -> Option<u64> {
        self.means[fault as usize].filter(|mean| *mean > 0).map(|ms| ms * 1_000_000)
    }

    /// Selects a fault, at its default rate times the first number over the second.
    pub fn switch_on(&mut self, fault: Fault, (times, of): (u64, u64)) {
        self.means[fault as usize] = Some(match fault.trigger() {
            Trigger::Every(ms) => (ms * of / times).max(10),
            Trigger::Always => 0,
        });
    }

    /// Deselects a fault.
    pub fn switch_off(&mut self, fault: Fault) {
        self.means[fault as usize] = None;
    }

    /// The selected faults.
    pub fn on(&self) -> impl Iterator<Item = Fault> + '_ {
        Fault::ALL.into_iter().filter(|fault| self.has(*fault))
    }

    /// Applies the command line's selections.
    pub fn select(&mut self, selections: &[Selection<Fault>]) {
        for selection in selections {
            match selection {
                Selection::Add(faults) => {
                    for fault in faults {
                        if !self.has(*fault) {
                            self.switch_on(*fault, (1, 1));
                        }
                    }
                }
                Selection::Remove(faults) => faults.iter().for_each(|f| self.switch_off(*f)),
                Selection::Only(faults) => {
                    let before = std::mem::replace(self, FaultPlan::none());
                    for fault in faults {
                        match before.means[*fault as usize] {
                            Some(mean) => self.means[*fault as usize] = Some(mean),
                            None => self.switch_on(*fault, (1, 1)),
                        }
                    }
                }
            }
        }
    }
}

impl Selectable for Fault {
    const WHAT: &str = "fault";
    const FLAG: &str = "--faults";

    /// The fault of this name, or all of a group (`disk`, `net.partition`).
    fn matching(pattern: &str) -> Vec<Fault> {
        if pattern == Fault::PARTITION {
            return Fault::PARTITIONS.into();
        }
        let begins =
            |name: &str| name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('.'));
        Fault::ALL.into_iter().filter(|f| f.name() == pattern || begins(f.name())).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for fault in self.on() {
            write!(f, "{separator}{fault}")?;
            if let Some(mean) = self.mean(fault) {
                write!(f, "/{}ms", mean / 1_000_000)?;
            }
            separator = " ";
        }
        if separator.is_empty() { write!(f, "none") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_in_order_and_have_unique_names() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index);
            assert_eq!(Fault::matching(fault.name()), [fault]);
        }
    }

    #[test]
    fn selections_add_remove_and_restrict_faults() {
        let mut plan = FaultPlan::none();
        plan.select(&Selection::parse("+disk,-disk.full").expect("valid"));
        assert!(plan.has(Fault::DiskTorn) && !plan.has(Fault::DiskFull));
        plan.select(&Selection::parse("only=disk.stall").expect("valid"));
        assert_eq!(plan.on().collect::<Vec<_>>(), [Fault::DiskStall]);
        assert_eq!(plan.mean(Fault::DiskStall), Some(25_000_000_000));
        assert_eq!(plan.to_string(), "disk.stall/25000ms");
        plan.select(&Selection::parse("only=net.partition").expect("valid"));
        assert_eq!(plan.on().collect::<Vec<_>>(), Fault::PARTITIONS);
        assert!(Selection::<Fault>::parse("+dis").is_err());
        assert!(Selection::<Fault>::parse("disk").is_err());
    }
}
