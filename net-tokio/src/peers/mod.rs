//! Sockets between servers.
//!
//! Owns opening and accepting these sockets. Must not decide which are accepted or dialled: the
//! driver does.

mod dial;
mod listener;
#[cfg(test)]
mod tests;

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::config::Settings;
pub(crate) use dial::dial;
pub(crate) use listener::{bind, listen};

/// Silence on a connection between servers after which the kernel probes the other end.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Sets options by which the kernel detects a dead machine no later than the core closes its link,
/// also on idle connections.
fn tune(stream: &TcpStream, settings: &Settings) {
    // Messages are written in batches, so Nagle's algorithm would only delay them.
    let _best_effort = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 2);
    let _best_effort = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _best_effort = socket.set_tcp_user_timeout(Some(settings.core.sync_limit()));
}

/// Warns the operator of what is open because the ensemble has no secret, or does not demand it.
pub(crate) fn warn_without_secret(settings: &Settings) {
    let Some(ensemble) = &settings.ensemble else { return };
    if ensemble.secrets.is_empty() {
        let me = ensemble.member(settings.core.id()).expect("it is one of them");
        tracing::warn!(
            "whoever reaches the ports {} and {} can act as a server of this ensemble: read and \
             change all data, and stop \
             the service; this line in zoo.cfg closes them to all but servers with the same \
             secret: \
             quorum.secretFile=/etc/zabkeeper/secret",
            me.quorum_ports(),
            me.election_ports()
        );
    } else if !ensemble.demands_secret {
        tracing::warn!(
            "quorum.secretRequired=false: servers that do not know the secret are let in; set it \
             to true once all \
             servers have quorum.secretFile"
        );
    }
}
