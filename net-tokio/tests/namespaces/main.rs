//! Ensembles of server processes on networks of their own: each server has a network namespace,
//! packets between servers get lost, processes end, and the ensemble is reconfigured meanwhile. The
//! oracles of the simulator judge what clients have recorded (`sim::check::history`).
//!
//! ```text
//! cargo test -p net-tokio --test namespaces
//! NAMESPACES_SEED=7 cargo test -p net-tokio --test namespaces -- --nocapture
//! ```
//!
//! The seed decides the order of the faults, their victims, and the requests of the clients. The
//! processes run in real time, so two runs of one seed differ.
//!
//! | file | what it has |
//! | --- | --- |
//! | `network` | namespaces, the bridge between them, lost packets |
//! | `ensemble` | server processes and their configuration |
//! | `tape`, `client` | the recording; a client connection whose frames are recorded |
//! | `workload` | clients that read and write until they are stopped |
//! | `faults` | the schedule |
//! | `verdict` | the state of all servers at the end, and the oracles |

#![cfg(target_os = "linux")]
#![expect(
    clippy::disallowed_methods,
    reason = "tests of processes have clocks, threads and files of their own"
)]

mod client;
mod ensemble;
mod faults;
#[expect(dead_code, reason = "these tests need a part of it")]
#[path = "../it/harness.rs"]
mod harness;
mod network;
mod tape;
mod verdict;
mod workload;

use std::io::Write;
use std::sync::Arc;

use crate::ensemble::Ensemble;
use crate::faults::Schedule;
use crate::network::Network;
use crate::tape::Tape;
use crate::workload::Workload;
use sim::engine::seed::Seeds;

const SEED: &str = "NAMESPACES_SEED";

#[test]
fn three_servers_keep_the_promises_on_a_faulty_network() {
    keep_the_promises(3);
}

#[test]
fn five_servers_keep_the_promises_on_a_faulty_network() {
    keep_the_promises(5);
}

fn keep_the_promises(servers: u64) {
    let seed = std::env::var(SEED).map_or(1, |text| text.parse().expect("a number"));
    let network = match Network::new(servers) {
        Ok(network) => network,
        Err(reason) => return say(&format!("SKIPPED: {servers} servers on a network: {reason}")),
    };
    say(&format!("{servers} servers, {SEED}={seed}; {}", network.abilities()));
    let mut rng = Seeds::new(seed).stream("ensemble", servers);
    let tape = Arc::new(Tape::new());
    let mut ensemble = Ensemble::start(network);
    let workload = Workload::start(&tape, servers, rng.word());
    let schedule = Schedule::draw(&mut rng, &ensemble);
    schedule.perform(&mut ensemble, &workload, &tape);
    let acknowledged = workload.stop();
    let log = verdict::agreed_log(ensemble, &tape);
    let checks = verdict::check(Tape::take(tape), &log, servers);
    say(&format!("{servers} servers: {acknowledged} writes acknowledged; {checks}"));
}

/// Writes to standard error past the capture of the test harness.
fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    // Without a terminal the verdict still counts.
    let _unseen = writeln!(out, "{text}");
}
