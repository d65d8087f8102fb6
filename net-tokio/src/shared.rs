//! State that the tasks of the serving thread share: the driver and the sockets.
//!
//! Owns the paths between the sockets and the event loop. Must not step the core: only the event
//! loop does.
//!
//! All of it lives on one thread, and no borrow is held across an await, so borrows of the cells
//! never conflict.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use zabkeeper_core::driver::{Driver, SocketId};
use zabkeeper_core::{Instant, Member};

use crate::clock::Clock;
use crate::config::Settings;
use crate::host::Failure;
use crate::metrics::{Ask, Asks};
use crate::random;
use crate::socket::Socket;

/// Bytes read from a socket at once: enough that a pipelining client costs one system call per
/// turn, few enough that no client occupies the thread for long.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// The shared state of the process.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    driver: RefCell<Driver>,
    /// Buffer for reads from all sockets; bytes are copied from it to their connection, so that
    /// idle connections hold no buffer.
    scratch: RefCell<Box<[u8]>>,
    sockets: RefCell<BTreeMap<SocketId, Rc<Socket>>>,
    next_id: Cell<u64>,
    wake: Arc<Notify>,
    stopping: Cell<Option<Instant>>,
    panic: RefCell<Option<Failure>>,
    panicked: Notify,
    /// Host and port at which clients are accepted now; no host means every address.
    client_address: RefCell<(Option<String>, u16)>,
    samples: Asks,
}

impl Shared {
    pub(crate) fn new(settings: Settings, clock: Clock, driver: Driver) -> Shared {
        Shared {
            client_address: RefCell::new((settings.host.clone(), settings.port)),
            settings,
            clock,
            driver: RefCell::new(driver),
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            sockets: RefCell::default(),
            // Random high bits, and low bits to count with: ids of an earlier process do not recur.
            next_id: Cell::new(random::number() & 0x7fff_ffff_0000_0000),
            wake: Arc::default(),
            stopping: Cell::new(None),
            panic: RefCell::default(),
            panicked: Notify::new(),
            samples: Asks::default(),
        }
    }

    /// Starts a task of the serving thread. A panic of the task ends the server.
    pub(crate) fn spawn(
        self: &Rc<Self>,
        task: impl Future<Output = ()> + 'static,
    ) -> JoinHandle<()> {
        let shared = Rc::clone(self);
        let mut task = Box::pin(task);
        tokio::task::spawn_local(poll_fn(move |cx| {
            // The task is not polled again, and the server ends, whatever state a panic has left.
            let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
            polled.unwrap_or_else(|payload| {
                shared.panic.borrow_mut().get_or_insert(Failure::panicked(&*payload));
                shared.panicked.notify_one();
                Poll::Ready(())
            })
        }))
    }

    /// Waits until a task has panicked; returns the first panic.
    pub(crate) async fn panicked(&self) -> Failure {
        loop {
            if let Some(failure) = self.panic.take() {
                return failure;
            }
            self.panicked.notified().await;
        }
    }

    /// The driver; the borrow must end before the next await. A caller that leaves work for the
    /// event loop must wake it.
    pub(crate) fn driver(&self) -> RefMut<'_, Driver> {
        self.driver.borrow_mut()
    }

    /// Notified whenever the event loop has work; the disk threads notify it, too.
    pub(crate) fn wake(&self) -> &Arc<Notify> {
        &self.wake
    }

    /// The id of the next connection, with a client or another server.
    pub(crate) fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// Adds the socket of a connection.
    pub(crate) fn enter(&self, socket: &Rc<Socket>) {
        self.sockets.borrow_mut().insert(socket.id, Rc::clone(socket));
    }

    /// Removes a socket whose task ends.
    pub(crate) fn leave(&self, socket: &Socket) {
        self.sockets.borrow_mut().remove(&socket.id);
        let _reported = self.driver().forget(socket.id, self.clock.mono());
        self.wake.notify_one();
    }

    pub(crate) fn socket(&self, id: SocketId) -> Option<Rc<Socket>> {
        self.sockets.borrow().get(&id).cloned()
    }

    /// All connections, in the order in which they were accepted.
    pub(crate) fn sockets(&self) -> Vec<Rc<Socket>> {
        self.sockets.borrow().values().cloned().collect()
    }

    /// Gives `add` the next bytes of a socket, after waiting for them; returns their number, zero
    /// at the end of the stream.
    ///
    /// # Errors
    /// The socket has failed.
    pub(crate) async fn read_to(
        &self,
        socket: &mut OwnedReadHalf,
        mut add: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let read = poll_fn(|cx| {
            let mut scratch = self.scratch.borrow_mut();
            let mut space = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *socket).poll_read(cx, &mut space))?;
            add(space.filled());
            Poll::Ready(io::Result::Ok(space.filled().len()))
        });
        read.await
    }

    /// Host and port at which clients are accepted now, as text; `everywhere` replaces the host if
    /// that is every address.
    pub(crate) fn client_address(&self, everywhere: &str) -> String {
        let (host, port) = &*self.client_address.borrow();
        Member::address(host.as_deref().unwrap_or(everywhere), port)
    }

    /// Clients are accepted elsewhere from now on.
    pub(crate) fn set_client_address(&self, host: Option<&str>, port: u16) {
        self.client_address.replace((host.map(str::to_owned), port));
        self.driver().four_letter.set_client_address(host, port);
    }

    /// Asks the event loop for the samples of all metrics.
    pub(crate) fn ask_for_samples(&self, ask: Ask) {
        self.samples.push(ask);
        self.wake.notify_one();
    }

    /// The next one who asks for samples.
    pub(crate) fn next_ask_for_samples(&self) -> Option<Ask> {
        self.samples.next()
    }

    /// Begins to stop the server: clients are not read any more, and the event loop ends when all
    /// writes are done, at the latest at `latest`.
    pub(crate) fn stop(&self, latest: Instant) {
        self.stopping.set(Some(latest));
        self.driver().stop();
        self.wake.notify_one();
    }

    /// The deadline for the end of the event loop, if the server is to stop.
    pub(crate) fn stopping(&self) -> Option<Instant> {
        self.stopping.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver, serve};

    #[test]
    fn first_panic_of_a_task_is_kept() {
        let settings = Settings::for_a_try();
        let clock = Clock::start();
        let driver = driver::new(&settings, 0, 0, clock.mono());
        let shared = Rc::new(Shared::new(settings, clock, driver));
        let panicked = serve::runtime().unwrap().block_on(async {
            for number in 1..=2 {
                shared.spawn(async move { panic!("task {number}") }).await.unwrap();
            }
            shared.panicked().await
        });
        assert_eq!(panicked.to_string(), "the server panicked: task 1");
    }
}
