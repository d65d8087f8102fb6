//! Each oracle checks a correct history and the same history with one fault: it must pass the first
//! and report the second under its own id. `legal` has unusual histories that a correct server may
//! produce.

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
mod real;
mod servers;
mod sessions;
mod watches;
