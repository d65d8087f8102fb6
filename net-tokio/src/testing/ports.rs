//! Ports of 127.0.0.1 for the servers of a test.
//!
//! Owns their reservation. Must not listen.
//!
//! A server that a test stops and starts again needs the same ports, and meanwhile its clients
//! connect to them over and over. The kernel could give such a port to a connection or to another
//! server. So on Linux a reserved port stays bound, without listening: the kernel assigns it to
//! nobody, connections to it are refused, and a server can bind it, because both sockets have
//! `SO_REUSEADDR`. Other systems do not let a second socket bind the port; there it is only chosen,
//! and a server whose port is taken cannot start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use super::Error;
use crate::listening::bind_to;

/// A port that the kernel gives to no other socket while this value exists (Linux).
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    reservation: Option<TcpSocket>,
}

/// The ports of a server.
#[derive(Debug)]
pub(super) struct Ports {
    client: Port,
    quorum: Port,
    election: Port,
}

impl Port {
    fn reserve() -> io::Result<Port> {
        let socket = bind_to(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let number = socket.local_addr()?.port();
        Ok(Port { number, reservation: Some(socket) })
    }
}

impl Ports {
    pub(super) fn reserve() -> Result<Ports, Error> {
        let reserve = || {
            Port::reserve().map_err(|error| {
                Error::System(format!(
                    "cannot bind a free port of 127.0.0.1: {error}; a server needs three ports and \
                     some 20 descriptors (ulimit -n)"
                ))
            })
        };
        Ok(Ports { client: reserve()?, quorum: reserve()?, election: reserve()? })
    }

    /// Lets a server bind the ports; call it when all ports of the ensemble are chosen, so that
    /// they differ.
    pub(super) fn open(&mut self) {
        if cfg!(not(target_os = "linux")) {
            for port in [&mut self.client, &mut self.quorum, &mut self.election] {
                port.reservation = None;
            }
        }
    }

    /// The port for clients.
    pub(super) fn client(&self) -> u16 {
        self.client.number
    }

    /// The line of the server with this id.
    pub(super) fn server_line(&self, id: u64) -> String {
        format!("server.{id}=127.0.0.1:{}:{}", self.quorum.number, self.election.number)
    }
}
