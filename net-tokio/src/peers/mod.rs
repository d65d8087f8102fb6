//! Sockets between servers, and what operators read of them.
//!
//! Owns opening and accepting these sockets, and the log's lines about them. Must not decide who is
//! accepted or dialled: the driver does.

mod dial;
mod listener;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use zabkeeper_core::driver::{PeerCloseReason, PeerNote};
use zabkeeper_core::peer::greeting::{Channel, Refusal};

use crate::config::{Member, Settings};
use crate::shared::Shared;
pub(crate) use dial::dial;
pub(crate) use listener::{bind, listen};

/// How long a connection between servers is silent before the kernel asks whether the other end is
/// there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// So that a machine that died is noticed at the latest when the core gives it up, also by idle
/// connections.
fn tune(stream: &TcpStream, settings: &Settings) {
    // Messages are written in batches, so waiting to fill packets would only delay them.
    let _best_effort = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 2);
    let _best_effort = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _best_effort = socket.set_tcp_user_timeout(Some(settings.core.sync_limit()));
}

/// What keeps this server from each other one, for operators.
pub(crate) fn troubles(shared: &Shared) -> String {
    let Some(ensemble) = &shared.settings.ensemble else { return String::new() };
    let (me, driver) = (shared.settings.core.id(), shared.driver());
    let own = ensemble.member(me).map(Member::election_address);
    let mut text = String::new();
    for member in ensemble.members.iter().filter(|member| member.id != me) {
        let id = member.id;
        let written = match (driver.peers.failure(id), &own) {
            (Some((channel, why)), _) => {
                write!(text, "; cannot reach server {id} at {}: {why}", address(member, *channel))
            }
            (None, Some(own)) if !driver.peers.is_heard(id) => write!(
                text,
                "; server {id} has not connected to this server, which its zoo.cfg should have at \
                 {own}"
            ),
            (None, _) => Ok(()),
        };
        written.expect("a String takes any text");
    }
    text
}

fn address(member: &Member, channel: Channel) -> String {
    match channel {
        Channel::Quorum => member.quorum_address(),
        Channel::Election => member.election_address(),
    }
}

/// Logs what the driver has to tell of connections with other servers.
pub(crate) fn log(settings: &Settings, note: &PeerNote) {
    match note {
        PeerNote::Up { link, server, dialled } => {
            let how = if *dialled { "dialled" } else { "accepted" };
            tracing::info!(%link, server = server.0, "link with server {server} is up, {how}");
        }
        PeerNote::Down { link, server, why } => {
            tracing::info!(%link, server = server.0, "link with server {server} is down: {why}");
        }
        // Whose port is on the other side is a matter of configuration: says what is wrong with a
        // connection.
        PeerNote::Rejected { from, why } => {
            tracing::warn!(kind = why.kind(), "closed the connection from {from}: {why}");
        }
        PeerNote::DialFailed { server: to, channel, first, why } => {
            let member = settings.ensemble.as_ref().and_then(|ensemble| ensemble.member(*to));
            let at = member.map_or_else(String::new, |member| address(member, *channel));
            if let PeerCloseReason::Refused(Refusal::Busy(_)) = why {
                tracing::debug!("server {to} at {at} is busy: {why}");
            } else if let PeerCloseReason::Refused(refusal) = why {
                // A refusal is for the operator to end.
                let kind = refusal.kind();
                tracing::warn!(kind, server = to.0, "no connection to server {to} at {at}: {why}");
            } else if *first {
                // The first failure to reach a server is news; that it goes on is not.
                tracing::info!(server = to.0, "cannot reach server {to} at {at}: {why}");
            } else {
                tracing::debug!("still cannot reach server {to} at {at}: {why}");
            }
        }
    }
}

/// Tells the operator what is open because the ensemble has no secret, or does not demand it.
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
            me.quorum_port,
            me.election_port
        );
    } else if !ensemble.demands_secret {
        tracing::warn!(
            "quorum.secretRequired=false: servers that do not know the secret are let in; set it \
             to true once all \
             servers have quorum.secretFile"
        );
    }
}
