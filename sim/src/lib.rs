//! Deterministic simulation: real servers, stores and clients in one thread under the faults that a
//! seed draws, checked by oracles. The guide for users is `docs/simulator.md`.
//!
//! As a library it runs your own programs under these faults: see [`workload`].
//!
//! ```text
//! run       command line, batches, measurements         imports all rooms
//! mutate    mutation runs                               imports run
//! replay    schedules, shrinking, scenes                imports world and the rooms below
//! world     one ensemble: options, event loop, phases,  imports the rooms below
//!           fault injection
//! clients   client library with its user, calls         imports the rooms below
//! machine   server with its host's loop, disk           imports record and the rooms below
//! record    trace, counters, timeline, summary, page    imports the rooms below
//! network   byte streams, reachability                  imports engine, check
//! faults    catalog, coverage marks, heal               imports engine
//! workload  programs of a user, interface for users     imports engine, check
//! engine    seeds, event order, decisions, forks        imports check
//! check     observations, model, oracles, failure       imports no other room
//! ```
//!
//! Imports from a lower row to a higher one have these reasons: `machine` and `clients` act through
//! `world::shared`; `world` executes the schedules of `replay`; decisions of `engine` name faults
//! and calls; rules of `faults` name roles of `record`; and `record` counts calls and lost data,
//! and describes the [`Report`](run::job::Report) of a finished run.

pub mod check;
pub mod clients;
pub mod engine;
pub mod faults;
pub mod machine;
pub mod mutate;
pub mod network;
pub mod record;
pub mod replay;
pub mod run;
pub mod workload;
pub mod world;
