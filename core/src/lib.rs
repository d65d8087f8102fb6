//! The state machine of Zabkeeper, without sockets, files, clocks or threads. So far: identifiers, errors and wire formats.

mod error;
mod ids;
pub mod wire;

pub use error::{Corrupt, ErrorCode, Malformed};
pub use ids::{ConnId, Epoch, Instant, ServerId, SessionId, WallMs, WriteId, Zxid};
