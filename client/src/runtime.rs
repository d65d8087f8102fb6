//! The driver of an engine over any asynchronous runtime.
//!
//! Owns connections, their buffers and the order of events. Takes no decision: the engine does.
//! Must not name a runtime: `tokio` and programs implement [`Runtime`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::io::{AsyncRead, AsyncWrite};
use zabkeeper_core::Instant;

use crate::handle::Engine;
#[cfg(feature = "dns-srv")]
use crate::session::ConnectString;
use crate::session::{Effect, Input, LinkId, Outbox, ServerAddr};

/// Bytes that are read from a connection at once, at most.
const READ_BYTES: usize = 64 << 10;

/// What a driver needs from a runtime.
pub trait Runtime: Unpin {
    /// A byte stream to a server.
    type Connection: AsyncRead + AsyncWrite + Unpin;
    /// The future of [`Runtime::connect`].
    type Connect: Future<Output = io::Result<Self::Connection>>;
    /// The future of [`Runtime::sleep_until`].
    type Sleep: Future<Output = ()>;

    /// Resolves the name and connects. The driver gives up after the session's own limit.
    fn connect(&self, server: &ServerAddr) -> Self::Connect;
    /// A clock that never goes back.
    fn now(&self) -> Instant;
    /// Completes at this time of [`Runtime::now`], or soon after.
    fn sleep_until(&self, deadline: Instant) -> Self::Sleep;
}

/// Runs an [`Engine`]: the future ends with the session. Dropping it before leaves the session to
/// expire on the servers.
#[must_use = "a client does nothing unless its driver is polled: spawn it"]
pub struct Driver<R: Runtime> {
    engine: Engine,
    runtime: R,
    /// One at most serves the session, or is to; another one may ask a server for its mode.
    links: Vec<Link<R>>,
    sleep: Option<(Instant, Pin<Box<R::Sleep>>)>,
    out: Outbox,
    buffer: Box<[u8]>,
}

struct Link<R: Runtime> {
    id: LinkId,
    stage: Stage<R>,
}

enum Stage<R: Runtime> {
    Connecting(Pin<Box<R::Connect>>),
    /// A connection, and what is to be written to it.
    Open {
        connection: R::Connection,
        unwritten: BytesMut,
    },
}

impl<R: Runtime> Driver<R> {
    /// The driver of this engine.
    pub fn new(engine: Engine, runtime: R) -> Driver<R> {
        Driver {
            engine,
            runtime,
            links: Vec::new(),
            sleep: None,
            out: Outbox::default(),
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// Passes one event on, if there is one. Received bytes come before a deadline that is due.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for link in &mut self.links {
            if let Poll::Ready(input) = link.poll_input(cx, &mut self.buffer) {
                self.step(input);
                return Poll::Ready(());
            }
        }
        let now = self.runtime.now();
        if self.engine.poll_commands(now, cx, &mut self.out).is_ready() {
            return Poll::Ready(());
        }
        if self.engine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.step(Input::Timeout);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// The session's servers are these from now on (CLIENT-06).
    #[cfg(feature = "dns-srv")]
    pub(crate) fn replace_servers(&mut self, servers: ConnectString) {
        self.step(Input::Servers(servers));
    }

    fn step(&mut self, input: Input) {
        if let Input::DialFailed { link } | Input::Disconnected { link } = &input {
            self.links.retain(|other| other.id != *link);
        }
        self.engine.step(self.runtime.now(), input, &mut self.out);
    }

    fn carry_out(&mut self) {
        for effect in self.out.effects.drain(..) {
            match effect {
                Effect::Dial { link, server } => {
                    let connect = Box::pin(self.runtime.connect(&server));
                    self.links.push(Link { id: link, stage: Stage::Connecting(connect) });
                }
                Effect::Send { link, bytes } => {
                    let link = self.links.iter_mut().find(|other| other.id == link);
                    if let Some(Link { stage: Stage::Open { unwritten, .. }, .. }) = link {
                        unwritten.extend_from_slice(&bytes);
                    }
                }
                Effect::HangUp { link } => self.links.retain(|other| other.id != link),
                Effect::Completed(..)
                | Effect::Event(_)
                | Effect::State(_)
                | Effect::PresumedExpired => {
                    unreachable!("the engine handles them")
                }
            }
        }
    }

    /// Writes what the connections take. Returns whether one has failed.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let failed = self.links.iter_mut().find_map(|link| link.write(cx).err());
        if let Some(link) = failed {
            self.step(Input::Disconnected { link });
        }
        failed.is_some()
    }

    /// Arranges to be woken at the deadline. Returns whether it has passed already.
    fn rest(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.engine.next_deadline() else { return false };
        // Each request and reply defers the deadline. A timer that is early costs one more turn,
        // and less than a new timer each time.
        if self.sleep.as_ref().is_none_or(|(at, _)| *at > deadline) {
            self.sleep = Some((deadline, Box::pin(self.runtime.sleep_until(deadline))));
        }
        let Some((_, sleep)) = &mut self.sleep else { return false };
        let passed = sleep.as_mut().poll(cx).is_ready();
        if passed {
            self.sleep = None;
        }
        passed
    }
}

impl<R: Runtime> Link<R> {
    /// The outcome of connecting, or received bytes, or the end.
    fn poll_input(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Input> {
        let link = self.id;
        let input = match &mut self.stage {
            Stage::Connecting(connect) => match ready!(connect.as_mut().poll(cx)) {
                Ok(connection) => {
                    self.stage = Stage::Open { connection, unwritten: BytesMut::new() };
                    Input::Dialled { link }
                }
                Err(_) => Input::DialFailed { link },
            },
            Stage::Open { connection, .. } => {
                match ready!(Pin::new(connection).poll_read(cx, buffer)) {
                    Ok(count) if count > 0 => {
                        Input::Received { link, bytes: Bytes::copy_from_slice(&buffer[..count]) }
                    }
                    Ok(_) | Err(_) => Input::Disconnected { link },
                }
            }
        };
        Poll::Ready(input)
    }

    /// Writes what the connection takes.
    ///
    /// # Errors
    /// The connection has failed.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), LinkId> {
        let Stage::Open { connection, unwritten } = &mut self.stage else { return Ok(()) };
        while !unwritten.is_empty() {
            match Pin::new(&mut *connection).poll_write(cx, unwritten) {
                Poll::Ready(Ok(count)) if count > 0 => unwritten.advance(count),
                Poll::Ready(_) => return Err(self.id),
                Poll::Pending => return Ok(()),
            }
        }
        // Without a buffer of its own in the connection this is free.
        let _ = Pin::new(connection).poll_flush(cx);
        Ok(())
    }
}

impl<R: Runtime> Future for Driver<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        loop {
            let progress = driver.turn(cx).is_ready();
            driver.carry_out();
            let failed = driver.write(cx);
            if failed || progress {
                continue;
            }
            if driver.engine.is_over() {
                return Poll::Ready(());
            }
            if !driver.rest(cx) {
                return Poll::Pending;
            }
        }
    }
}

impl<R: Runtime> Unpin for Driver<R> {}
