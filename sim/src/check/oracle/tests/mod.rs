//! Each oracle checks a correct history and the same history with one fault: it must pass the first
//! and report the second under its own id. A test name that begins with an id is the violation that
//! must be reported: `t7_granted_write_is_refused`. `legal` has unusual histories that a correct
//! server may produce.

mod access;
mod anywhere;
mod cast;
mod consistency;
mod ensembles;
mod four_letter;
mod history;
mod legal;
mod lifetimes;
mod local;
mod operators;
mod outside;
mod progress;
mod read_only;
mod real;
mod recipes;
mod servers;
mod sessions;
mod watches;
