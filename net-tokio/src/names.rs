//! Resolves this server's own host names, which may not be in DNS yet: a container's name is
//! published while it starts.
//!
//! Owns the retries until a name has addresses. Must not open sockets.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;

/// Time between two attempts.
const RETRY: Duration = Duration::from_secs(1);

/// One in so many failed attempts is logged.
const LOGGED: u32 = 30;

/// All addresses of a host name of this server; retries until there are some.
pub(crate) async fn addresses(host: &str, port: u16) -> Vec<SocketAddr> {
    let mut attempts: u32 = 0;
    loop {
        let why = match lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>) {
            Ok(found) if found.is_empty() => "the name has no address".to_owned(),
            Ok(found) => return found,
            Err(error) => error.to_string(),
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
