//! Resolves this server's own host names, which may not be in DNS yet: a container's name is
//! published while it starts.
//!
//! Owns the retries until a name has addresses. Must not open sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;

/// Time between two attempts.
const RETRY: Duration = Duration::from_secs(1);

/// One in so many failed attempts is logged.
const LOGGED: u32 = 30;

/// All addresses of a host name now.
///
/// # Errors
/// There are none.
pub(crate) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((host, port)).await?.collect::<Vec<_>>();
    if found.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(found) }
}

/// All addresses of a host name of this server; retries until there are some.
pub(crate) async fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    let mut attempts: u32 = 0;
    loop {
        let why = match look_up(host, port).await {
            Ok(found) => return found,
            Err(error) => error,
        };
        if attempts.is_multiple_of(LOGGED) {
            tracing::warn!(
                "cannot listen on {host} yet, a name of this server: {why}; trying again each \
                 second"
            );
        }
        attempts = attempts.wrapping_add(1);
        tokio::time::sleep(RETRY).await;
    }
}
