//! The driver of an engine over any asynchronous runtime.
//!
//! Owns connections, their buffers and the order of events. Takes no decision: the engine does.
//! Must not name a runtime: `tokio` and programs implement [`Runtime`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use futures::io::{AsyncRead, AsyncWrite};
use zabkeeper_core::Instant;

use crate::handle::Engine;
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
    connecting: Option<(LinkId, Pin<Box<R::Connect>>)>,
    link: Option<Link<R::Connection>>,
    sleep: Option<(Instant, Pin<Box<R::Sleep>>)>,
    out: Outbox,
    buffer: Box<[u8]>,
}

/// A connection, and what is to be written to it.
struct Link<C> {
    id: LinkId,
    connection: C,
    unwritten: BytesMut,
}

impl<R: Runtime> Driver<R> {
    /// The driver of this engine.
    pub fn new(engine: Engine, runtime: R) -> Driver<R> {
        Driver {
            engine,
            runtime,
            connecting: None,
            link: None,
            sleep: None,
            out: Outbox::default(),
            buffer: vec![0; READ_BYTES].into(),
        }
    }

    /// Passes one event on, if there is one. Received bytes come before a deadline that is due.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((link, connect)) = &mut self.connecting
            && let Poll::Ready(result) = connect.as_mut().poll(cx)
        {
            let id = *link;
            self.connecting = None;
            let input = match result {
                Ok(connection) => {
                    self.link = Some(Link { id, connection, unwritten: BytesMut::new() });
                    Input::Dialled { link: id }
                }
                Err(_) => Input::DialFailed { link: id },
            };
            self.step(input);
            return Poll::Ready(());
        }
        if let Some(link) = &mut self.link
            && let Poll::Ready(read) =
                Pin::new(&mut link.connection).poll_read(cx, &mut self.buffer)
        {
            let id = link.id;
            let input = match read {
                Ok(count) if count > 0 => Input::Received {
                    link: id,
                    bytes: Bytes::copy_from_slice(&self.buffer[..count]),
                },
                Ok(_) | Err(_) => {
                    self.link = None;
                    Input::Disconnected { link: id }
                }
            };
            self.step(input);
            return Poll::Ready(());
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

    fn step(&mut self, input: Input) {
        self.engine.step(self.runtime.now(), input, &mut self.out);
    }

    fn carry_out(&mut self) {
        for effect in self.out.effects.drain(..) {
            match effect {
                Effect::Dial { link, server } => {
                    let connect = self.runtime.connect(&server);
                    self.connecting = Some((link, Box::pin(connect)));
                }
                Effect::Send { link, bytes } => {
                    if let Some(open) = self.link.as_mut().filter(|open| open.id == link) {
                        open.unwritten.extend_from_slice(&bytes);
                    }
                }
                Effect::HangUp { link } => {
                    self.connecting.take_if(|(connecting, _)| *connecting == link);
                    self.link.take_if(|open| open.id == link);
                }
                Effect::Completed(..) | Effect::Event(_) | Effect::State(_) => {
                    unreachable!("the engine handles them")
                }
            }
        }
    }

    /// Writes what the connection takes. Returns whether it has failed.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(link) = &mut self.link else { return false };
        while !link.unwritten.is_empty() {
            let written = Pin::new(&mut link.connection).poll_write(cx, &link.unwritten);
            match written {
                Poll::Ready(Ok(count)) if count > 0 => link.unwritten.advance(count),
                Poll::Ready(_) => {
                    let id = link.id;
                    self.link = None;
                    self.step(Input::Disconnected { link: id });
                    return true;
                }
                Poll::Pending => return false,
            }
        }
        // Without a buffer of its own in the connection this is free.
        let _ = Pin::new(&mut link.connection).poll_flush(cx);
        false
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
