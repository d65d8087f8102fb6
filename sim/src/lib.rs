//! The simulated world: real servers, stores and clients under every fault that the seed draws, and the oracles that
//! watch them. The guide for users is `docs/simulator.md`.
//!
//! ```text
//! seed, queue, trace,     the ground: streams of randomness, order of events, fingerprint, and what a seed means
//!   format
//! agenda, schedule,       what is decided rather than brought about, as data; and less of it
//!   shrink
//! fs, stream, reach       what breaks: disks, connections, and who reaches whom
//! node, client            who suffers: the real server with its driver's loop, the real session
//! options, faults, heal,  what is drawn before a run
//!   buggify, targets,
//!   workload,
//!   selection
//! world, shared, fork,    phases, strikes, the loop; calls one by one, to compare with real servers
//!   scene
//! observe, model, oracle  what is seen and judged
//! judge, guard, tally,    what comes out
//!   roles, shapes,
//!   chronicle, story,
//!   html, report,
//!   sometimes, coverage
//! cli, program, run,      how it is asked for
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
