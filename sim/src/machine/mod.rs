//! The machines of an ensemble: the real server with its host's loop, clocks, and the disk.
//!
//! Owns what happens inside one machine. Must not decide when faults are injected, nor know other
//! machines: messages leave through `network`.

pub mod fs;
pub mod node;
