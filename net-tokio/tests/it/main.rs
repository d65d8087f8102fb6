//! Tests of the server binary with real sockets and files, and with an independent client library.

#![expect(
    clippy::disallowed_methods,
    reason = "tests of a process have clocks, threads and files of their own"
)]

mod addresses;
mod admin;
mod cli;
mod clients;
mod corpus;
mod crash;
#[cfg(target_os = "linux")]
mod descriptors;
mod ensemble;
mod faults;
mod four_letter;
mod grow;
mod hand_over;
mod handle;
mod harness;
mod hostile_peers;
mod identity;
mod life_cycle;
mod limits;
mod load;
mod log_tool;
mod members;
mod metrics;
mod oracle;
mod outputs;
mod raw;
mod recipes;
mod reconfig;
mod scene;
mod scripts;
mod startup;
mod testing;
mod virtual_time;
