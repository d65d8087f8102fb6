//! Lists of servers that DNS has: connect strings `dns-srv://name[/chroot]` (CLIENT-01).
//!
//! Owns the lookups and their repetition. Must not choose a server: the session does.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt, unfold};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolverConfig;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

use crate::runtime::{Driver, Runtime};
use crate::session::{ConnectString, SRV_PREFIX};

/// Pause between two lookups, ZooKeeper's default.
const REFRESH: Duration = Duration::from_secs(60);

/// A service whose SRV records name the servers. Priorities and weights do not count: the servers
/// of an ensemble are equals.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    name: String,
    /// Empty, or with its first slash.
    chroot: String,
    refresh: Duration,
    /// Default: that of the system, read for each lookup.
    resolver: Option<ResolverConfig>,
}

impl Service {
    /// The service of a connect string; `None` if that lists servers.
    pub(crate) fn parse(connect: &str) -> Option<Service> {
        let service = connect.strip_prefix(SRV_PREFIX)?;
        let (name, chroot) = service.split_at(service.find('/').unwrap_or(service.len()));
        let (name, chroot) = (name.to_owned(), chroot.to_owned());
        Some(Service { name, chroot, refresh: REFRESH, resolver: None })
    }

    /// The servers now, in the order of their names.
    ///
    /// # Errors
    /// The name servers are not reached, or have no such records; the chroot is invalid.
    pub(crate) async fn look_up(&self) -> Result<ConnectString, Box<dyn Error + Send + Sync>> {
        let builder = match &self.resolver {
            None => TokioResolver::builder_tokio()?,
            Some(config) => {
                let provider = TokioRuntimeProvider::default();
                TokioResolver::builder_with_config(config.clone(), provider)
            }
        };
        let Service { name, chroot, .. } = self;
        let found = builder.build()?.srv_lookup(name.as_str()).await;
        let found = found.map_err(|error| {
            format!("connect string {SRV_PREFIX}{name}: no SRV records of {name}: {error}")
        })?;
        let mut servers = Vec::new();
        for record in found.answers() {
            if let RData::SRV(server) = &record.data {
                let target = server.target.to_utf8();
                servers.push(format!("{}:{}", target.trim_end_matches('.'), server.port));
            }
        }
        servers.sort_unstable();
        servers.dedup();
        Ok(format!("{}{chroot}", servers.join(",")).parse()?)
    }

    /// The later lists, each other than the one before. A lookup that fails changes nothing: the
    /// known servers may well serve.
    fn changes(self, known: ConnectString) -> BoxStream<'static, ConnectString> {
        unfold((self, known), |(service, known)| async move {
            loop {
                tokio::time::sleep(service.refresh).await;
                match service.look_up().await {
                    Ok(list) if list != known => return Some((list.clone(), (service, list))),
                    Ok(_) | Err(_) => {}
                }
            }
        })
        .boxed()
    }
}

/// A driver whose list of servers follows that of a service. The future ends with the session.
pub(crate) struct Following<R: Runtime> {
    driver: Driver<R>,
    lists: BoxStream<'static, ConnectString>,
}

impl<R: Runtime> Following<R> {
    /// `known` is the list that the session has begun with.
    pub(crate) fn new(driver: Driver<R>, service: Service, known: ConnectString) -> Following<R> {
        Following { driver, lists: service.changes(known) }
    }
}

impl<R: Runtime> Future for Following<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(list)) = Pin::new(&mut self.lists).poll_next(cx) {
            self.driver.replace_servers(list);
        }
        Pin::new(&mut self.driver).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::{Arc, Mutex};

    use hickory_resolver::config::{ConnectionConfig, NameServerConfig};
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::SRV;
    use hickory_resolver::proto::rr::{Name, Record};
    use tokio::net::{TcpListener, UdpSocket};

    use super::*;
    use crate::handle::Client;

    const NAME: &str = "_zookeeper._tcp.example.org";

    /// A name server with these records; none: the name does not exist.
    struct NameServer {
        ports: Arc<Mutex<Vec<u16>>>,
        address: SocketAddr,
    }

    impl NameServer {
        async fn start(ports: &[u16]) -> NameServer {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = socket.local_addr().unwrap();
            let listed = Arc::new(Mutex::new(ports.to_vec()));
            let ports = listed.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 512];
                loop {
                    let (count, from) = socket.recv_from(&mut buffer).await.unwrap();
                    let query = Message::from_vec(&buffer[..count]).unwrap();
                    let answer = answer(&query, &listed.lock().unwrap()).to_vec().unwrap();
                    socket.send_to(&answer, from).await.unwrap();
                }
            });
            NameServer { ports, address }
        }

        /// The service of this connect string.
        fn service(&self, connect: &str) -> Service {
            let mut connection = ConnectionConfig::udp();
            connection.port = self.address.port();
            let server = NameServerConfig::new(self.address.ip(), true, vec![connection]);
            let mut service = Service::parse(connect).unwrap();
            service.resolver = Some(ResolverConfig::from_name_servers(vec![server]));
            service.refresh = Duration::from_millis(20);
            service
        }
    }

    fn answer(query: &Message, ports: &[u16]) -> Message {
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.add_queries(query.queries.clone());
        if ports.is_empty() {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        for port in ports {
            let target = Name::from_ascii("127.0.0.1.").unwrap();
            let server = RData::SRV(SRV::new(0, 0, *port, target));
            answer.add_answer(Record::from_rdata(query.queries[0].name().clone(), 0, server));
        }
        answer
    }

    /// CLIENT-01.
    #[tokio::test]
    async fn servers_are_those_of_the_records() {
        let names = NameServer::start(&[2182, 2181, 2182]).await;
        let service = names.service(&format!("{SRV_PREFIX}{NAME}/app"));
        let list = service.look_up().await.unwrap();
        assert_eq!(list.to_string(), "127.0.0.1:2181,127.0.0.1:2182/app");
        names.ports.lock().unwrap().clear();
        let error = service.look_up().await.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("connect string {SRV_PREFIX}{NAME}: no SRV ")),
            "{error}"
        );
        assert!(Service::parse("127.0.0.1:2181/app").is_none());
    }

    /// CLIENT-01. A list that has no server of the session any more makes it move.
    #[tokio::test]
    async fn client_follows_the_records() {
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let [first, second] = listeners.map(futures::executor::block_on).map(Result::unwrap);
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let names = NameServer::start(&[port(&first)]).await;
        let service = names.service(&format!("{SRV_PREFIX}{NAME}"));
        let _client = Client::of_service(service).await.unwrap().spawn();
        let (_connection, _) = first.accept().await.unwrap();
        *names.ports.lock().unwrap() = vec![port(&second)];
        second.accept().await.unwrap();
    }
}
