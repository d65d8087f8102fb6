//! File descriptors: the limit of the process, and the reserves that accepted sockets must not use.
//!
//! Owns the limit and the reserves. Must not accept or open anything.
//!
//! Without a descriptor the log cannot create its next segment and the server stops. So accepted
//! sockets leave a reserve: [`Reserve::Clients`] for client connections, the smaller
//! [`Reserve::Servers`] for connections of other servers. The kernel gives a new socket the lowest
//! free descriptor number. As long as no listener accepts while that number lies within the
//! reserve, accepted sockets never use the highest numbers.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

/// Pause between two checks for a free descriptor.
const RETRY: Duration = Duration::from_millis(100);

/// The reserve that applies to a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserve {
    /// Client connections leave 64 descriptors to other servers and to files.
    Clients,
    /// Connections of other servers leave 32 descriptors to files.
    Servers,
}

/// Raises the soft limit on open files (`RLIMIT_NOFILE`) to the hard limit, as the JVM does.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return;
    }
    let wanted = Rlimit { current: before.maximum, maximum: before.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        let (soft, hard) = (before.current.unwrap_or(u64::MAX), before.maximum.unwrap_or(u64::MAX));
        tracing::warn!(
            "cannot raise the limit on open files (ulimit -n) from {soft} to {hard}, so {soft} it \
             is: {error}"
        );
    }
}

impl Reserve {
    /// Waits until the next accepted socket would get a descriptor outside the reserve.
    pub(crate) async fn await_room(self, listener: &TcpListener) {
        loop {
            // A duplicate of any open descriptor gets the number that an accepted socket would get.
            match fcntl_dupfd_cloexec(listener, 0) {
                Ok(lowest) if !self.holds(&lowest) => return,
                Ok(_) | Err(_) => {}
            }
            let (kind, who) = match self {
                Reserve::Clients => ("clients", "clients that connect"),
                Reserve::Servers => ("servers", "other servers that connect"),
            };
            let limit = limit().unwrap_or(u64::MAX);
            tracing::warn!(
                kind,
                "{who} have to wait: but for a reserve of {}, all {limit} descriptors are in use; \
                 raise the limit \
                 on open files (ulimit -n, LimitNOFILE of systemd), or bound connections by \
                 maxCnxns",
                self.size(limit)
            );
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Does this descriptor's number lie within the reserve?
    pub(crate) fn holds(self, descriptor: &impl AsFd) -> bool {
        let number = u64::try_from(descriptor.as_fd().as_raw_fd()).expect("it is open");
        limit().is_some_and(|limit| number >= limit - self.size(limit))
    }

    /// Size of the reserve; smaller if the limit is low.
    fn size(self, limit: u64) -> u64 {
        match self {
            Reserve::Clients => 64.min(limit / 4),
            Reserve::Servers => 32.min(limit / 8),
        }
    }
}

/// The soft limit on open files; `None` means unlimited.
fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_reserve_exceeds_server_reserve_and_both_shrink_with_limit() {
        for (limit, clients, servers) in [(1024, 64, 32), (256, 64, 32), (64, 16, 8), (3, 0, 0)] {
            let sizes = (Reserve::Clients.size(limit), Reserve::Servers.size(limit));
            assert_eq!(sizes, (clients, servers), "of {limit}");
        }
    }
}
