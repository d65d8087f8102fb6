//! The quorum and election ports of this server.
//!
//! Owns where they listen, and accepting. Must not read from a connection, nor identify the other
//! end: the driver does.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use zabkeeper_core::driver::SocketId;
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::{LinkId, Member, ServerAddress};

use super::tune;
use crate::config::Ensemble;
use crate::configs::Configs;
use crate::conn::serve_connection;
use crate::descriptors::Reserve;
use crate::listening::{Listening, Pauses, Place, bind_to, everywhere, local};
use crate::names;
use crate::random;
use crate::shared::Shared;

/// Listen backlog: connections that the kernel completes before the server accepts them.
const BACKLOG: u32 = 128;

/// Pause after a failed accept, and between attempts to bind.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const BIND_RETRY: Duration = Duration::from_secs(1);

/// One in this many failed attempts to bind is logged.
const LOGGED: u32 = 30;

/// A port of this server that is bound and does not listen yet.
pub(crate) struct PeerPort {
    channel: Channel,
    socket: TcpSocket,
}

/// Binds the ports of this server, so that a port in use is reported before data is recovered.
/// Waits for a name that has no address yet.
///
/// # Errors
/// An address is not one of this machine, or is in use, after the configured number of retries; as
/// a line for the operator.
pub(crate) async fn bind(ensemble: &Ensemble, me: &Member) -> Result<Vec<PeerPort>, String> {
    let mut failures = 0;
    loop {
        match bind_once(ensemble, me).await {
            Ok(bound) => return Ok(bound),
            Err(what) if ensemble.bind_retries.is_some_and(|times| failures >= times) => {
                return Err(what);
            }
            Err(what) => {
                if failures.is_multiple_of(LOGGED) {
                    tracing::warn!("{what}; trying again each second");
                }
                failures = failures.saturating_add(1);
                tokio::time::sleep(BIND_RETRY).await;
            }
        }
    }
}

async fn bind_once(ensemble: &Ensemble, me: &Member) -> Result<Vec<PeerPort>, String> {
    let places = places(ensemble, me).await?;
    let bind = |(channel, address): Place<Channel>| match bind_to(address) {
        Ok(socket) => Ok(PeerPort { channel, socket }),
        Err(error) => Err(cannot_listen(me, channel, &error)),
    };
    places.into_iter().map(bind).collect()
}

fn cannot_listen(me: &Member, channel: Channel, error: &io::Error) -> String {
    let name = match channel {
        Channel::Quorum => me.quorum_address(),
        Channel::Election => me.election_address(),
    };
    format!("cannot listen for other servers on {name}, as server.{} says: {error}", me.id)
}

/// Where a server with this line listens: on every address of its names, except those of other
/// machines. As in ZooKeeper, one of several addresses in the line suffices: the network of another
/// one may be down.
///
/// # Errors
/// No address of the line is one of this machine.
async fn places(ensemble: &Ensemble, me: &Member) -> Result<Vec<Place<Channel>>, String> {
    let mut places = Vec::new();
    let mut missing = Vec::new();
    for address in &me.addresses {
        match places_of(ensemble, me, address).await {
            Ok(found) => places.extend(found),
            Err(what) => missing.push(what),
        }
    }
    if places.is_empty() {
        return Err(missing.concat());
    }
    for what in missing {
        tracing::warn!("{what}; goes on with the other addresses");
    }
    // Several addresses may have one port, on every address of the machine.
    let mut all: Vec<Place<Channel>> = Vec::new();
    for place in places {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    Ok(all)
}

async fn places_of(
    ensemble: &Ensemble,
    me: &Member,
    at: &ServerAddress,
) -> Result<Vec<Place<Channel>>, String> {
    let mut places = Vec::new();
    let ports = [(Channel::Quorum, at.quorum_port), (Channel::Election, at.election_port)];
    // Observers dial this port as learners dial the other one; their first message differs.
    let for_observers = ensemble.observer_port.filter(|_| !me.observes);
    let for_observers = for_observers.map(|port| (Channel::Quorum, port));
    for (channel, port) in ports.into_iter().chain(for_observers) {
        let addresses = if ensemble.listen_everywhere {
            vec![everywhere(port)]
        } else {
            let found = match &me.addresses[..] {
                [_] => Ok(names::addresses(&at.host, port).await),
                // The name of another address may be known.
                _ => names::look_up(&at.host, port).await,
            };
            let line = Member { addresses: vec![at.clone()], ..me.clone() };
            let addresses = found.and_then(local);
            addresses.map_err(|error| cannot_listen(&line, channel, &error))?
        };
        places.extend(addresses.into_iter().map(|address| (channel, address)));
    }
    Ok(places)
}

/// Listens on the bound ports, and later where the configuration in force says (RECONF-12).
/// Connections that are open stay.
///
/// # Errors
/// Another process has started listening on an address since `bind`; as a line for the operator.
pub(crate) fn listen(
    shared: &Rc<Shared>,
    ports: Vec<PeerPort>,
    configs: Configs,
) -> Result<(), String> {
    let accepting = Rc::clone(shared);
    let mut listening = Listening::new(BACKLOG, move |channel, listener| {
        accepting.spawn(accept(Rc::clone(&accepting), channel, listener))
    });
    for PeerPort { channel, socket } in ports {
        let address =
            socket.local_addr().map_or_else(|error| error.to_string(), |at| at.to_string());
        let cannot = |error| format!("cannot listen for other servers on {address}: {error}");
        listening.add(channel, socket).map_err(cannot)?;
    }
    shared.spawn(follow(listening, Rc::clone(shared), configs));
    Ok(())
}

async fn follow(mut listening: Listening<Channel>, shared: Rc<Shared>, mut configs: Configs) {
    let Some(ensemble) = &shared.settings.ensemble else { return };
    let own = shared.settings.core.id();
    let mut config = configs.next().await;
    loop {
        let moved = async {
            if let Some(me) = config.server(own) {
                listen_as(&mut listening, ensemble, me).await;
            }
            std::future::pending().await
        };
        let newer = tokio::select! {
            () = moved => continue,
            newer = configs.next() => newer,
        };
        config = newer;
    }
}

/// Listens where this line of the server says; retries until it does.
async fn listen_as(listening: &mut Listening<Channel>, ensemble: &Ensemble, me: &Member) {
    let mut pauses = Pauses::new();
    loop {
        let moved = match places(ensemble, me).await {
            Ok(places) => listening
                .move_to(&places)
                .await
                .map_err(|error| format!("cannot listen for other servers as {me}: {error}")),
            Err(what) => Err(what),
        };
        let what = match moved {
            Ok(false) => return,
            Ok(true) => {
                let (quorum, election) = (me.quorum_address(), me.election_address());
                return tracing::info!(
                    "listens on {quorum} and {election} for other servers: a reconfiguration says \
                     so"
                );
            }
            Err(what) => what,
        };
        let pause = pauses.next();
        tracing::warn!(
            "{what}; the earlier ports stay open; trying again in {} s",
            pause.as_secs()
        );
        tokio::time::sleep(pause).await;
    }
}

async fn accept(shared: Rc<Shared>, channel: Channel, listener: TcpListener) {
    loop {
        Reserve::Servers.await_room(&listener).await;
        match listener.accept().await {
            // The free descriptors were used up since `await_room`: the connection is closed, and
            // the next one waits.
            Ok((stream, _)) if Reserve::Servers.holds(&stream) => {}
            Ok((stream, from)) => {
                tune(&stream, &shared.settings);
                let (link, now) = (LinkId(shared.next_id()), shared.clock.mono());
                shared.driver().peers.accept(link, channel, from, random::bytes(), now);
                let id = SocketId::Server(link);
                shared.spawn(serve_connection(Rc::clone(&shared), stream, id));
                // The new connection adds a deadline to the driver's timer.
                shared.wake().notify_one();
            }
            Err(error) => {
                tracing::warn!("cannot accept another server: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
