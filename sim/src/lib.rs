//! Deterministic simulation: real servers, stores and clients in one thread under the faults that a
//! seed draws, checked by oracles. The guide for users is `docs/simulator.md`.
//!
//! ```text
//! seed, queue, trace,     foundation: random streams, event order, trace fingerprint
//!   format
//! agenda, schedule,       decisions (faults and calls) as data; replaying and shrinking them
//!   shrink
//! fs, stream, reach       simulated disks, connections, and reachability between servers
//! node, client            the real server with its driver loop; the real client session
//! options, faults, heal,  settings that are drawn before a run
//!   buggify, targets,
//!   workload,
//!   selection
//! world, shared, fork,    phases, fault injection, the event loop; `scene` runs calls one by one,
//!   scene                   for the comparison with Apache ZooKeeper
//! observe, model, oracle  observations, the reference model and the oracles
//! judge, guard, tally,    verdict, counters and reports of a run
//!   roles, shapes,
//!   chronicle, story,
//!   html, report,
//!   sometimes, coverage
//! cli, program, run,      command line, batches and measurements
//!   stop, batch, plan,
//!   determinism, ledger,
//!   power, speed, track,
//!   output
//! ```

pub mod agenda;
pub mod batch;
pub mod buggify;
pub mod chronicle;
pub mod cli;
pub mod client;
pub mod coverage;
pub mod determinism;
pub mod faults;
pub mod fork;
pub mod format;
pub mod fs;
pub mod guard;
pub mod heal;
pub mod html;
pub mod judge;
pub mod ledger;
pub mod model;
pub mod node;
pub mod observe;
pub mod options;
pub mod oracle;
pub(crate) mod output;
pub mod plan;
pub mod power;
pub mod program;
pub mod queue;
pub mod reach;
pub mod report;
pub mod roles;
pub mod run;
pub mod scene;
pub mod schedule;
pub mod seed;
pub mod selection;
pub mod shapes;
pub mod shared;
pub mod shrink;
pub mod sometimes;
pub mod speed;
pub mod stop;
pub mod story;
pub mod stream;
pub mod tally;
pub mod targets;
pub mod trace;
pub mod track;
pub mod workload;
pub mod world;
