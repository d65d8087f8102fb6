//! Messages to the service manager, as `sd_notify(3)` sends them.
//!
//! Owns the datagrams and the watchdog's clock. Must not wait: a manager that does not read loses
//! messages.

use std::cell::Cell;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The way to the service manager; nothing is sent without one.
#[derive(Clone, Default)]
pub(crate) struct Notifier(Option<Rc<Manager>>);

struct Manager {
    /// Has the manager been told that clients are served?
    is_ready: Cell<bool>,
    socket: UnixDatagram,
    address: SocketAddr,
    /// Time within which the manager expects a sign of life.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The manager that the environment names: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub(crate) fn from_environment() -> Notifier {
        Notifier::from_variables(&|name| std::env::var(name).ok()).unwrap_or_else(|error| {
            tracing::warn!("NOTIFY_SOCKET: {error}; the service manager is not notified");
            Notifier::default()
        })
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Notifier> {
        let Some(path) = variable("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Ok(Notifier::default());
        };
        let address = address(&path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let number = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok());
        let own = u64::from(std::process::id());
        let is_for_this = number("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let watchdog = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_for_this);
        let watchdog = watchdog.map(Duration::from_micros);
        Ok(Notifier(Some(Rc::new(Manager {
            is_ready: Cell::new(false),
            socket,
            address,
            watchdog,
        }))))
    }

    /// Clients are served.
    pub(crate) fn ready(&self, address: &str) {
        self.send(&format!("READY=1\nSTATUS=serving {address}"));
        self.0.iter().for_each(|manager| manager.is_ready.set(true));
    }

    /// The data is recovered, and the server waits until it may serve.
    pub(crate) fn opened(&self) {
        self.send("STATUS=waiting for a leader and a quorum");
    }

    /// The server is about to stop.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    /// The configuration is read anew, until [`Notifier::reloaded`].
    pub(crate) fn reloading(&self) {
        if !self.is_ready() {
            return;
        }
        // The manager ignores a READY=1 that was sent before this moment.
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// The configuration has been read.
    pub(crate) fn reloaded(&self) {
        if self.is_ready() {
            self.send("READY=1");
        }
    }

    fn is_ready(&self) -> bool {
        self.0.as_ref().is_some_and(|manager| manager.is_ready.get())
    }

    /// Sends signs of life for ever, if the manager expects them: from a task of the serving
    /// thread, so that they end when that thread hangs.
    pub(crate) async fn keep_alive(self) {
        let Some(time) = self.0.as_ref().and_then(|manager| manager.watchdog) else { return };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(time / 2).await;
        }
    }

    fn send(&self, state: &str) {
        if let Some(manager) = &self.0 {
            let _best_effort = manager.socket.send_to_addr(state.as_bytes(), &manager.address);
        }
    }
}

/// The address of the manager's socket: a path, or behind `@` a name without a file.
fn address(path: &str) -> io::Result<SocketAddr> {
    match path.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(name)
        }
        _ => SocketAddr::from_pathname(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier<'a>(variables: &'a [(&'a str, String)]) -> Notifier {
        let variable = |name: &str| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone())
        };
        Notifier::from_variables(&variable).expect("is an address")
    }

    fn next(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).expect("receives");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn messages_reach_a_socket_with_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(&[("NOTIFY_SOCKET", path.display().to_string())]);
        notifier.reloading();
        notifier.ready("*:2181");
        assert_eq!(next(&manager), "READY=1\nSTATUS=serving *:2181");
        notifier.reloading();
        let text = next(&manager);
        let usec = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("says when");
        assert!(usec.parse::<u64>().unwrap() > 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn messages_reach_a_socket_without_a_file() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("zabkeeper-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notifier(&[("NOTIFY_SOCKET", format!("@{name}"))]).stopping();
        assert_eq!(next(&manager), "STOPPING=1\nSTATUS=stopping");
    }

    #[test]
    fn watchdog_is_for_the_process_that_it_names() {
        let of = |pid: u32| {
            let variables = [
                ("NOTIFY_SOCKET", "/nowhere".to_owned()),
                ("WATCHDOG_USEC", "2000000".to_owned()),
                ("WATCHDOG_PID", pid.to_string()),
            ];
            notifier(&variables).0.expect("has a manager").watchdog
        };
        assert_eq!(of(std::process::id()), Some(Duration::from_secs(2)));
        assert_eq!(of(1), None);
        assert!(notifier(&[]).0.is_none());
    }
}
