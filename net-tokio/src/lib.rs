//! The Zabkeeper server: sockets, threads and clocks around the core.
//!
//! A library, so that tests and fuzz targets can use it: [`testing`] starts real servers inside a
//! test; [`run`] is the whole program; [`config`], the parser of the operator's file, and
//! [`facts`], the settings that answers to operators show, are public for fuzzing. Everything else
//! is private.
//!
//! Owns all input and output of a server. Must not take protocol decisions. One thread holds the
//! sockets and the core, so that a request never changes threads; three other threads write the
//! log, write snapshots, and read both for learners.
//!
//! Only [`run`] changes what belongs to the whole process: signals, the log, the panic hook and the
//! limit on descriptors.
//!
//! ```text
//! listener -> conn (one task per socket) <-> driver (in the core) <-> event_loop (steps the core)
//!                                                                     |  ^
//!                                                            commands v  | completions
//!                                                                disk (three threads)
//!
//! other servers <-> peers (links, notifications) <-> driver
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "clocks, threads, files and randomness enter here, so that they do not enter the core"
)]

mod admin;
mod args;
mod cli;
mod clock;
pub mod config;
mod config_files;
mod configs;
mod conn;
mod descriptors;
mod disk;
mod driver;
mod event_loop;
mod explain;
pub mod facts;
mod host;
mod listener;
mod listening;
mod log_limit;
mod log_tool;
mod logging;
mod metrics;
mod monitor;
mod names;
mod notify;
mod oracle;
mod peers;
mod process;
mod random;
mod reload;
mod scripts;
mod serve;
mod shared;
mod socket;
pub mod testing;

pub use process::run;
