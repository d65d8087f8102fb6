//! File descriptors: how many the process may have, and who leaves some to others.
//!
//! Owns the limit and the reserve. Must not accept or open anything.
//!
//! Without a descriptor the log gets no next segment and the server has to stop, so those who connect leave some: clients
//! [`Reserve::Clients`], other servers fewer. An accepted socket gets the lowest number that is free. So where nobody
//! accepts while that number lies within the reserve, the highest numbers are never those of accepted sockets.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

/// Time between two looks whether descriptors have become free.
const RETRY: Duration = Duration::from_millis(100);

/// Who leaves descriptors to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserve {
    /// Clients leave 64 to other servers and to files.
    Clients,
    /// Other servers leave 32 to files.
    Servers,
}

/// Lets the process have as many descriptors as it may give itself, as Java does.
pub(crate) fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return;
    }
    let wanted = Rlimit { current: before.maximum, maximum: before.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        let (soft, hard) = (before.current.unwrap_or(u64::MAX), before.maximum.unwrap_or(u64::MAX));
        tracing::warn!(
            "cannot raise the limit on open files (ulimit -n) from {soft} to {hard}, so {soft} it is: {error}"
        );
    }
}

impl Reserve {
    /// Waits until a socket can be accepted that leaves the reserve alone.
    pub(crate) async fn await_room(self, listener: &TcpListener) {
        loop {
            // Anything that is open will do: the copy gets the number that a socket would get.
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
                "{who} have to wait: but for a reserve of {}, all {limit} descriptors are in use; raise the limit \
                 on open files (ulimit -n, LimitNOFILE of systemd), or bound connections by maxCnxns",
                self.size(limit)
            );
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Is the number of this descriptor one of the reserve's?
    pub(crate) fn holds(self, descriptor: &impl AsFd) -> bool {
        let number = u64::try_from(descriptor.as_fd().as_raw_fd()).expect("it is open");
        limit().is_some_and(|limit| number >= limit - self.size(limit))
    }

    /// Less where there are few.
    fn size(self, limit: u64) -> u64 {
        match self {
            Reserve::Clients => 64.min(limit / 4),
            Reserve::Servers => 32.min(limit / 8),
        }
    }
}

/// How many descriptors the process may have; none is no limit.
fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_more_than_servers_and_a_small_limit_leaves_room_for_both() {
        for (limit, clients, servers) in [(1024, 64, 32), (256, 64, 32), (64, 16, 8), (3, 0, 0)] {
            let sizes = (Reserve::Clients.size(limit), Reserve::Servers.size(limit));
            assert_eq!(sizes, (clients, servers), "of {limit}");
        }
    }
}
