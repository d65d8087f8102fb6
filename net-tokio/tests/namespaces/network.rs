//! A network of namespaces: one for each server, and one for the clients, which has the bridge.
//!
//! Server N has the address 10.0.1.N, the clients have 10.0.1.254; no namespace is connected to the
//! machine's own network. Names contain the process id. Dropping the network removes it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::harness::nobody_forks;

const CLIENT_PORT: u16 = 2181;
/// Where `ip` keeps the names.
const NAMESPACES: &str = "/run/netns";
const PREFIX: &str = "zabkeeper-";

pub(crate) struct Network {
    prefix: String,
    servers: u64,
    /// Are packets dropped by nft? Otherwise routes drop them.
    nft: bool,
    /// Can nft drop a share of the packets?
    loss: bool,
    /// How the kernel can delay packets, if it can.
    delay: Option<Delay>,
}

/// A queueing discipline that makes packets late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delay {
    /// Each packet by a time of its own.
    Netem,
    /// A line so slow that packets wait for each other, for kernels without netem. Packets that
    /// would wait longer are lost.
    Tbf,
}

/// The address at which clients reach a server.
pub(crate) fn client_address(server: u64) -> SocketAddr {
    SocketAddr::from((address(server), CLIENT_PORT))
}

fn address(server: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, u8::try_from(server).expect("few servers"))
}

impl Delay {
    /// The words of `tc qdisc` for packets that are late by about this time.
    fn by(self, ms: u64) -> String {
        match self {
            Delay::Netem => format!("add dev eth0 root netem delay {ms}ms {}ms", ms / 2),
            // 16 kB/s: a packet of 640 bytes takes 40 ms.
            Delay::Tbf => {
                format!("add dev eth0 root tbf rate 128kbit burst 1600 latency {}ms", 10 * ms)
            }
        }
    }
}

impl Network {
    /// Makes the network and moves this thread, and those that it starts, to the clients.
    ///
    /// # Errors
    /// Why this machine cannot have one.
    pub(crate) fn new(servers: u64) -> Result<Network, String> {
        let prefix = format!("{PREFIX}{}-{servers}", std::process::id());
        remove_leftovers();
        let mut network = Network { prefix, servers, nft: false, loss: false, delay: None };
        network.build()?;
        let path = format!("{NAMESPACES}/{}", network.clients());
        let namespace = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("setns: {error}"))?;
        network.find_abilities();
        Ok(network)
    }

    fn build(&self) -> Result<(), String> {
        let clients = self.clients();
        ip(&format!("netns add {clients}"))?;
        ip(&format!("-n {clients} link set lo up"))?;
        ip(&format!("-n {clients} link add bridge type bridge"))?;
        ip(&format!("-n {clients} addr add {}/24 dev bridge", address(254)))?;
        ip(&format!("-n {clients} link set bridge up"))?;
        for id in 1..=self.servers {
            let server = self.namespace(id);
            ip(&format!("netns add {server}"))?;
            ip(&format!("-n {server} link set lo up"))?;
            ip(&format!("-n {clients} link add to{id} type veth peer name eth0 netns {server}"))?;
            ip(&format!("-n {clients} link set to{id} master bridge up"))?;
            ip(&format!("-n {server} addr add {}/24 dev eth0", address(id)))?;
            ip(&format!("-n {server} link set eth0 up"))?;
        }
        Ok(())
    }

    fn find_abilities(&mut self) {
        let table = |id| {
            let chain = "add chain inet faults input { type filter hook input priority 0 ; }";
            self.nft(id, "add table inet faults").and_then(|()| self.nft(id, chain))
        };
        self.nft = (1..=self.servers).all(|id| table(id).is_ok());
        self.loss = self.nft && self.nft(1, &lose("10.0.9.9", 1)).is_ok();
        let works = |delay: &Delay| self.qdisc(1, &delay.by(1)).is_ok();
        self.delay = [Delay::Netem, Delay::Tbf].into_iter().find(works);
        self.heal();
    }

    /// What it can do to packets, for people.
    pub(crate) fn abilities(&self) -> String {
        let drops = if self.nft { "nft drops packets" } else { "no nft: routes drop packets" };
        let loss = if self.loss { "" } else { "; no random loss" };
        let delay = match self.delay {
            Some(Delay::Netem) => "",
            Some(Delay::Tbf) => "; no netem: slow lines delay packets",
            None => "; no delay: the kernel has neither netem nor tbf",
        };
        format!("{drops}{loss}{delay}")
    }

    pub(crate) fn can_lose(&self) -> bool {
        self.loss
    }

    pub(crate) fn can_delay(&self) -> bool {
        self.delay.is_some()
    }

    /// Ids of all servers.
    pub(crate) fn servers(&self) -> Vec<u64> {
        (1..=self.servers).collect()
    }

    /// The command that runs a program in the namespace of a server.
    pub(crate) fn command(&self, server: u64, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(server), program]);
        command
    }

    /// From now on no packet of `from` reaches `to`. The other direction is untouched.
    pub(crate) fn drop_packets(&self, from: u64, to: u64) {
        let (source, target) = (address(from), address(to));
        let done = if self.nft {
            self.nft(to, &format!("add rule inet faults input ip saddr {source} drop"))
        } else {
            ip(&format!("-n {} route replace blackhole {target}/32", self.namespace(from)))
        };
        done.expect("worked for the network");
    }

    /// No packet passes between the servers of the one group and those of the other.
    pub(crate) fn part(&self, these: &[u64], those: &[u64]) {
        for one in these {
            for other in those {
                self.drop_packets(*one, *other);
                self.drop_packets(*other, *one);
            }
        }
    }

    /// Each packet of another server is lost with this probability.
    pub(crate) fn lose_some(&self, percent: u64) {
        for to in self.servers() {
            for from in self.servers().into_iter().filter(|from| *from != to) {
                let rule = lose(&address(from).to_string(), percent);
                self.nft(to, &rule).expect("worked for the network");
            }
        }
    }

    /// All packets of this server arrive late.
    pub(crate) fn delay(&self, server: u64, ms: u64) {
        let late = self.delay.expect("the kernel can delay packets").by(ms);
        self.qdisc(server, &late).expect("worked for the network");
    }

    /// All packets arrive again.
    pub(crate) fn heal(&self) {
        for id in self.servers() {
            if self.nft {
                self.nft(id, "flush chain inet faults input").expect("has the chain");
            } else {
                ip(&format!("-n {} route flush type blackhole", self.namespace(id)))
                    .expect("worked for the network");
            }
            if self.delay.is_some() {
                // Most servers have no delay.
                let _none = self.qdisc(id, "del dev eth0 root");
            }
        }
    }

    fn clients(&self) -> String {
        format!("{}-c", self.prefix)
    }

    fn namespace(&self, server: u64) -> String {
        format!("{}-s{server}", self.prefix)
    }

    fn nft(&self, server: u64, rule: &str) -> Result<(), String> {
        run(self.command(server, "nft").args(rule.split(' ')))
    }

    fn qdisc(&self, server: u64, what: &str) -> Result<(), String> {
        run(self.command(server, "tc").arg("qdisc").args(what.split(' ')))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let servers = self.servers().into_iter().map(|id| self.namespace(id));
        for name in servers.chain([self.clients()]) {
            // Those that were not made cannot be removed.
            let _absent = ip(&format!("netns del {name}"));
        }
    }
}

/// Removes the namespaces of tests that were killed, and ends the servers in them.
fn remove_leftovers() {
    let Ok(names) = std::fs::read_dir(NAMESPACES) else { return };
    for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_left = |pid: &str| !Path::new(&format!("/proc/{pid}")).exists();
        if pid.is_some_and(is_left) {
            let servers = Command::new("ip").args(["netns", "pids", &name]).output();
            let servers = servers.map_or(Vec::new(), |output| output.stdout);
            for pid in String::from_utf8_lossy(&servers).split_whitespace() {
                let _gone = run(Command::new("kill").args(["-s", "KILL", pid]));
            }
            let _gone = ip(&format!("netns del {name}"));
        }
    }
}

fn lose(source: &str, percent: u64) -> String {
    format!("add rule inet faults input ip saddr {source} numgen random mod 100 < {percent} drop")
}

fn ip(arguments: &str) -> Result<(), String> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> Result<(), String> {
    let _alone = nobody_forks();
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}", text.trim()))
}
