//! The admin server: HTTP for operators and their tools (ADMIN rows; Java `JettyAdminServer`).
//!
//! Owns its thread, its port and its connections. A thread of its own, so that a slow reader or a
//! long answer occupies the thread of the clients only for the parts that it asks for. Must not
//! know the answers: `core::driver::admin` does.

mod ask;
mod history;
mod json;
mod page;
mod request;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use self::ask::{Asker, Facts};
pub(crate) use self::ask::{Asks, answer, channel};
use self::request::Responder;
use crate::config::Settings;
use crate::listening::{bind_to, everywhere};

/// Connections that are served at once; further ones wait.
const CONNECTIONS: usize = 64;

/// Pending connections of the kernel.
const BACKLOG: u32 = 128;

/// Pause after a failed accept, whose usual cause is a lack of file descriptors.
const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// The running admin server; dropping it closes the port and all connections.
pub(crate) struct AdminServer {
    _stop: oneshot::Sender<Infallible>,
}

/// Starts the admin server if the settings have one. A port that is not free, as when several
/// servers run on one machine, does not keep the server from serving clients.
pub(crate) async fn start(settings: &Settings, asker: Asker) -> Option<AdminServer> {
    let options = settings.admin.as_ref()?;
    let bound = match &options.host {
        None => bind_to(everywhere(options.port)),
        Some(host) => bind_first(host, options.port).await,
    };
    let listening = bound.and_then(|socket| {
        let listener = socket.listen(BACKLOG)?.into_std()?;
        Ok((listener.local_addr()?, listener))
    });
    let (address, listener) = match listening {
        Ok(listening) => listening,
        Err(error) => {
            let (host, port) = (options.host.as_deref().unwrap_or("*"), options.port);
            tracing::warn!(
                "the admin server is off, because it cannot listen on {host}:{port}: {error}; name \
                 another port as admin.serverPort, or write admin.enableServer=false"
            );
            return None;
        }
    };
    let responder = Responder::new(options.clone(), Facts::of(settings), asker);
    let (stop, stopped) = oneshot::channel();
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.block_on(async {
                tokio::select! {
                    served = serve(listener, responder) => {
                        if let Err(error) = served {
                            tracing::warn!("the admin server has ended: {error}");
                        }
                    }
                    _dropped = stopped => {}
                }
            });
            // Directories may be on a disk that does not answer.
            runtime.shutdown_background();
        }
        Err(error) => tracing::warn!("the admin server is off: {error}"),
    };
    if let Err(error) = thread::Builder::new().name("admin".to_owned()).spawn(run) {
        tracing::warn!("the admin server is off: cannot start a thread: {error}");
        return None;
    }
    tracing::info!(%address, url = options.url, "admin server");
    Some(AdminServer { _stop: stop })
}

/// Binds the first address of a host that is one of this machine's.
async fn bind_first(host: &str, port: u16) -> io::Result<tokio::net::TcpSocket> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match bind_to(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn serve(listener: std::net::TcpListener, responder: Responder) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let responder = Arc::new(responder);
    let recorder = Arc::clone(&responder);
    tokio::spawn(async move { recorder.record().await });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, from)) => {
                let responder = Arc::clone(&responder);
                tokio::spawn(async move {
                    serve_connection(stream, from, &responder).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, from: SocketAddr, responder: &Arc<Responder>) {
    // A peer that does not take its answer is given up like one that sends no request.
    let _without_it_only_slower =
        SockRef::from(&stream).set_tcp_user_timeout(Some(responder.options().idle));
    let service = service_fn(|request| {
        let responder = Arc::clone(responder);
        async move { Ok::<_, Infallible>(responder.respond(request, from).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(responder.options().idle)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("admin connection from {from}: {error}");
    }
}
