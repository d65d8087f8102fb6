//! Tests of sessions against simulated servers.

mod random;
mod script;
mod session;
