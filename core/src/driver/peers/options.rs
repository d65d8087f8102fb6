//! Options of connections with other servers, beside those in the core's configuration.
//!
//! Owns the options and their defaults. Must not apply them.

use std::time::Duration;

use crate::ids::ServerId;
use crate::peer::greeting::{Local, VERSION};
use crate::peer::secret::Secrets;

/// Options of connections with other servers, beside those in the core's configuration.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// `cnxTimeout`: time for the answer to a greeting, plus 3 s, and time for a notification to
    /// leave. Default 5 s; the default of `zoo.cfg` is 2 s.
    pub connect_timeout: Duration,
    /// [`Server::ensemble_id`](crate::Server::ensemble_id) when the process starts; 0 if it is
    /// unknown.
    pub ensemble: u64,
    /// `quorum.secretFile`: the secrets that this server proves itself with. If there are any, it
    /// demands a proof from servers that have them.
    pub secrets: Secrets,
    /// `quorum.secretRequired`: are servers without a secret refused?
    pub demands_secret: bool,
    /// Bytes of queued output above which a link is closed: the other server is alive, because the
    /// core receives its messages, but too far behind. A new link sends the missing transactions
    /// from the disk. Default 256 MiB.
    pub output_bytes: usize,
    /// Number of queued inputs of servers above which their connections are not read: the
    /// counterpart of the windows of clients. Default 8,192.
    pub inputs: usize,
    /// `jute.maxbuffer`, bytes: the limit on a learner's messages is twice this, at least 8 MiB.
    pub max_frame: u32,
    /// The highest version of the protocol between servers that this server speaks. Default: the
    /// newest. A server of an earlier release is one with an earlier version.
    pub version: u8,
}

impl PeerOptions {
    /// The defaults, for a server without a secret.
    pub fn new(max_frame: u32) -> PeerOptions {
        PeerOptions {
            connect_timeout: Duration::from_secs(5),
            ensemble: 0,
            secrets: Secrets::default(),
            demands_secret: false,
            output_bytes: 256 << 20,
            inputs: 8192,
            max_frame,
            version: VERSION,
        }
    }

    /// What a server with these options states about itself in greetings.
    pub fn local(&self, id: ServerId) -> Local {
        Local {
            id,
            ensemble: self.ensemble,
            secrets: self.secrets.clone(),
            demands_secret: self.demands_secret,
            version: self.version,
        }
    }
}
