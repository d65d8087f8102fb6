//! The endpoint that Prometheus reads: `GET /metrics` (METRIC-03).
//!
//! Owns its thread, and how samples are fetched. Must not count anything, nor touch the core: the
//! event loop answers its questions.
//!
//! The endpoint has a thread of its own, so that a slow reader delays no client. The serving thread
//! makes a list of samples when it is asked, at most four times a second, however often the page is
//! read.

mod prometheus;

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use zabkeeper_core::driver::four_letter::Descriptors;
use zabkeeper_core::driver::metrics::Sample;

use crate::config::MetricsAddress;
use crate::facts;
use crate::host::Failure;
use crate::serve;
use crate::shared::Shared;

/// Connections that are served at the same time; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 16;

/// Time for which a list of samples is good.
const FRESH: Duration = Duration::from_millis(250);

/// Time for the event loop to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Time for the header of a request, and for a whole connection.
const HEADER: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(120);

/// Pause after a failed accept: the usual cause is a lack of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A question to the event loop.
pub(crate) struct Ask {
    /// The file descriptors of the process, which the asking thread has counted.
    pub(crate) descriptors: Option<Descriptors>,
    /// Where the samples go.
    pub(crate) answer: oneshot::Sender<Vec<Sample>>,
}

/// The running endpoint. Dropping it ends its thread and closes its port.
pub(crate) struct Endpoint {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Binds the address, which may be in use or none of this machine.
///
/// # Errors
/// The endpoint cannot listen there.
pub(crate) async fn bind(address: &MetricsAddress) -> Result<std::net::TcpListener, Failure> {
    let MetricsAddress { host, port } = address;
    let failed = |error: io::Error| {
        Failure::Other(format!(
            "cannot listen on {host}:{port}, as metricsProvider.httpPort says: {error}"
        ))
    };
    let listener = TcpListener::bind((host.as_str(), *port)).await.map_err(failed)?;
    listener.into_std().map_err(failed)
}

/// Starts the endpoint, and the task that passes its questions to the event loop.
///
/// # Errors
/// The operating system cannot create the thread.
pub(crate) fn start(
    listener: std::net::TcpListener,
    shared: &Rc<Shared>,
) -> Result<Endpoint, Failure> {
    let address = listener.local_addr();
    let (asks, mut questions) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel();
    let builder = thread::Builder::new().name("metrics".to_owned());
    let run = move || {
        if let Err(error) = serve::runtime().and_then(|runtime| {
            runtime
                .block_on(listen(listener, asks, stopped))
                .map_err(|error| Failure::Other(format!("cannot listen for Prometheus: {error}")))
        }) {
            tracing::error!("{error}");
        }
    };
    let thread = builder
        .spawn(run)
        .map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
    let to = Rc::clone(shared);
    shared.spawn(async move {
        while let Some(ask) = questions.recv().await {
            to.ask_for_samples(ask);
        }
    });
    if let Ok(address) = address {
        tracing::info!("metrics for Prometheus: http://{address}/metrics");
    }
    Ok(Endpoint { stop: Some(stop), thread: Some(thread) })
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread drops its runtime at once, whatever its connections do.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

/// What the tasks of the endpoint share.
struct Source {
    asks: mpsc::Sender<Ask>,
    /// The last page, and when its samples were taken.
    page: Mutex<Option<(Instant, Bytes)>>,
}

async fn listen(
    listener: std::net::TcpListener,
    asks: mpsc::Sender<Ask>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let source = Rc::new(Source { asks, page: Mutex::default() });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accept = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            _ = &mut stopped => return Ok(()),
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let source = Rc::clone(&source);
                tokio::task::spawn_local(async move {
                    let _place = place;
                    // A connection that fails or takes too long concerns its reader only.
                    let _ended = timeout(CONNECTION, serve_connection(stream, source)).await;
                });
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, source: Rc<Source>) -> hyper::Result<()> {
    let answer = move |request: Request<hyper::body::Incoming>| {
        let source = Rc::clone(&source);
        async move { Ok::<_, Infallible>(source.answer(&request).await) }
    };
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
}

impl Source {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.uri().path() != "/metrics" {
            return short(StatusCode::NOT_FOUND, "the metrics are at /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut answer = short(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match self.page().await {
            Some(page) => {
                let mut answer = Response::new(Full::new(page));
                let format = HeaderValue::from_static(prometheus::CONTENT_TYPE);
                answer.headers_mut().insert(CONTENT_TYPE, format);
                answer
            }
            None => short(StatusCode::SERVICE_UNAVAILABLE, "the server does not answer\n"),
        }
    }

    /// The page, from samples that are fresh.
    async fn page(&self) -> Option<Bytes> {
        // Whoever comes while the samples are taken waits for them.
        let mut page = self.page.lock().await;
        if let Some((at, page)) = &*page
            && at.elapsed() < FRESH
        {
            return Some(page.clone());
        }
        let (answer, samples) = oneshot::channel();
        let ask = Ask { descriptors: facts::descriptors(), answer };
        let samples = timeout(ANSWER, async {
            self.asks.send(ask).await.ok()?;
            samples.await.ok()
        });
        let text = Bytes::from(prometheus::text(&samples.await.ok().flatten()?));
        *page = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

fn short(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    answer
}

/// Questions that the event loop answers in its next turn.
#[derive(Default)]
pub(crate) struct Asks(RefCell<Vec<Ask>>);

impl Asks {
    pub(crate) fn push(&self, ask: Ask) {
        self.0.borrow_mut().push(ask);
    }

    /// The next question whose asker still waits.
    pub(crate) fn next(&self) -> Option<Ask> {
        let mut asks = self.0.borrow_mut();
        std::iter::from_fn(|| asks.pop()).find(|ask| !ask.answer.is_closed())
    }
}
