//! The driver on tokio: sockets, its timers and its tasks.
//!
//! Owns nothing but the calls of tokio. Must not decide anything.

#[cfg(feature = "dns-srv")]
mod dns_srv;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use zabkeeper_core::Instant;

#[cfg(feature = "dns-srv")]
use self::dns_srv::{Following, Service};
use crate::error::Error;
use crate::handle::{Client, Engine};
use crate::runtime::{Driver, Runtime};
use crate::session::{Config, ConnectString, ServerAddr};

/// Session timeout of [`Client::connect`], ms: that of ZooKeeper's command line.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// How to connect; see [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    config: Config,
    request_timeout: Option<Duration>,
    /// Names the servers, which may change.
    #[cfg(feature = "dns-srv")]
    service: Option<Service>,
}

impl Client {
    /// Connects to an ensemble, `host:port,host:port[/chroot]`, and waits until a server has
    /// accepted the session. Its driver runs as a task of the present tokio runtime.
    ///
    /// With the feature `dns-srv`, `dns-srv://name[/chroot]` connects to the servers that the SRV
    /// records of this name list. They are looked up again each minute, and the session follows.
    ///
    /// # Errors
    /// An invalid connect string; a name without SRV records. While no server can be reached this
    /// waits, as ZooKeeper's clients do: bound it with `tokio::time::timeout`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(
        servers: &str,
    ) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Client::resolve(servers).await?.connect().await?)
    }

    /// Settings for a connection to the servers of this connect string; see [`Client::connect`].
    ///
    /// # Errors
    /// An invalid connect string; a name without SRV records.
    pub async fn resolve(
        servers: &str,
    ) -> Result<ClientBuilder, Box<dyn std::error::Error + Send + Sync>> {
        #[cfg(feature = "dns-srv")]
        if let Some(service) = Service::parse(servers) {
            return Client::of_service(service).await;
        }
        Ok(Client::builder(servers.parse()?))
    }

    /// [`Client::resolve`] without a runtime.
    pub(crate) fn resolve_on_thread(
        servers: &str,
    ) -> Result<ClientBuilder, Box<dyn std::error::Error + Send + Sync>> {
        #[cfg(feature = "dns-srv")]
        if let Some(service) = Service::parse(servers) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            // This thread may be one of a runtime, where it must not block on another one.
            let look_up = || runtime.block_on(Client::of_service(service));
            let found = std::thread::scope(|scope| scope.spawn(look_up).join());
            return found.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(Client::builder(servers.parse()?))
    }

    /// Settings for a connection to the servers of a service.
    #[cfg(feature = "dns-srv")]
    pub(crate) async fn of_service(
        service: Service,
    ) -> Result<ClientBuilder, Box<dyn std::error::Error + Send + Sync>> {
        let builder = Client::builder(service.look_up().await?);
        Ok(ClientBuilder { service: Some(service), ..builder })
    }

    /// Settings for a connection to these servers.
    pub fn builder(servers: ConnectString) -> ClientBuilder {
        let config = Config::new(servers, SESSION_TIMEOUT_MS);
        ClientBuilder {
            config,
            request_timeout: None,
            #[cfg(feature = "dns-srv")]
            service: None,
        }
    }
}

impl ClientBuilder {
    /// The requested session timeout; default 30 s. The server grants the nearest allowed value.
    pub fn session_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.config.session_timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        self
    }

    /// After which time without an answer an operation fails (CLIENT-14); default `None`.
    pub fn request_timeout(mut self, timeout: impl Into<Option<Duration>>) -> ClientBuilder {
        self.request_timeout = timeout.into();
        self
    }

    /// All settings of the session.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> ClientBuilder {
        change(&mut self.config);
        self
    }

    /// Spawns the driver and returns the handle at once; operations wait for a connection.
    ///
    /// # Panics
    /// Outside of a tokio runtime, or if the system gives no random numbers.
    pub fn spawn(self) -> Client {
        let (client, session) = self.build();
        tokio::spawn(session.run());
        client
    }

    /// [`ClientBuilder::spawn`] without a runtime: the driver gets a thread of its own, which ends
    /// with the session. See [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// The system gives no thread.
    ///
    /// # Panics
    /// If the system gives no random numbers.
    pub fn spawn_thread(self) -> io::Result<Client> {
        let (client, session) = self.build();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("zabkeeper client".to_owned()).spawn(move || {
            runtime.block_on(session.run());
        })?;
        Ok(client)
    }

    fn build(self) -> (Client, Running) {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).expect("the system gives random numbers");
        #[cfg(feature = "dns-srv")]
        let service = self.service.map(|service| (service, self.config.servers.clone()));
        let (client, engine) = Engine::new(self.config, u128::from_le_bytes(seed));
        let running = Running {
            engine: engine.with_request_timeout(self.request_timeout),
            #[cfg(feature = "dns-srv")]
            service,
        };
        (client, running)
    }

    /// [`ClientBuilder::spawn`], and waits until a server has accepted the session.
    ///
    /// # Errors
    /// The session has ended, such as one that was to be resumed.
    ///
    /// # Panics
    /// As [`ClientBuilder::spawn`].
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.spawn();
        client.connected().await?;
        Ok(client)
    }
}

/// What the task of a session runs.
struct Running {
    engine: Engine,
    /// The service that names the servers, and those that it has named.
    #[cfg(feature = "dns-srv")]
    service: Option<(Service, ConnectString)>,
}

impl Running {
    /// Ends with the session. Must be polled by a runtime of tokio.
    async fn run(self) {
        let driver = Driver::new(self.engine, TokioRuntime::new());
        #[cfg(feature = "dns-srv")]
        if let Some((service, known)) = self.service {
            return Following::new(driver, service, known).await;
        }
        driver.await;
    }
}

/// Sockets and timers of tokio.
struct TokioRuntime {
    began: tokio::time::Instant,
}

impl TokioRuntime {
    fn new() -> TokioRuntime {
        TokioRuntime { began: tokio::time::Instant::now() }
    }
}

impl Runtime for TokioRuntime {
    type Connection = Tcp;
    type Connect = Pin<Box<dyn Future<Output = io::Result<Tcp>> + Send>>;
    type Sleep = tokio::time::Sleep;

    fn connect(&self, server: &ServerAddr) -> Self::Connect {
        let ServerAddr { host, port } = server.clone();
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Tcp(stream))
        })
    }

    fn now(&self) -> Instant {
        Instant::default().after(self.began.elapsed())
    }

    fn sleep_until(&self, deadline: Instant) -> tokio::time::Sleep {
        tokio::time::sleep_until(self.began + deadline.since(Instant::default()))
    }
}

/// A TCP connection with the traits of `futures`.
struct Tcp(TcpStream);

impl AsyncRead for Tcp {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        std::task::ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
