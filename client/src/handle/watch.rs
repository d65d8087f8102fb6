//! Watches as futures and streams, and who waits for which events.
//!
//! Owns the waiting sides and their receivers. Must not send requests: the engine does, which also
//! keeps the order of replies and events.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::channel::{mpsc, oneshot};
use futures::stream::{FusedStream, Stream};
use zabkeeper_core::wire::{AddWatchMode, WatchEvent, WatcherType};

use crate::error::Error;
use crate::session::Failure;
use crate::session::watches::{kinds_fired, self_and_above};

/// Events that a stream holds for a program that does not read them; one more ends the stream.
const UNREAD_MAX: usize = 1024;

/// A watch that fires once: the future of its event.
///
/// It ends with an error when the session ends. Dropping it is free; the server may still send the
/// event.
#[derive(Debug)]
pub struct OneshotWatch {
    path: String,
    event: oneshot::Receiver<Result<WatchEvent, Failure>>,
}

impl Future for OneshotWatch {
    type Output = Result<WatchEvent, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let event = std::task::ready!(Pin::new(&mut self.event).poll(cx));
        let event = event.unwrap_or(Err(Failure::Closed));
        Poll::Ready(event.map_err(|failure| Error::new("watch", self.path.clone(), failure)))
    }
}

/// A persistent watch: the stream of its events, in the order of the transactions.
///
/// Its last item is an error: the session has ended, or the program has left 1,024 events unread.
/// Changes while the connection is lost give one event per node at most (WATCH-25). Dropping the
/// stream removes the watch from the server, unless another stream has the same.
#[derive(Debug)]
pub struct WatchStream {
    path: String,
    events: mpsc::Receiver<WatchEvent>,
    /// Why the stream ends, after its last event; `None` once this was returned.
    end: Option<oneshot::Receiver<Failure>>,
    /// Dropped with the stream, so that the engine notices.
    _alive: Alive,
}

impl WatchStream {
    /// The watched path.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.events.is_terminated()
            && let Some(event) = std::task::ready!(Pin::new(&mut self.events).poll_next(cx))
        {
            return Poll::Ready(Some(Ok(event)));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let failure = std::task::ready!(Pin::new(end).poll(cx)).unwrap_or(Failure::Closed);
        self.end = None;
        Poll::Ready(Some(Err(Error::new("addWatch", self.path.clone(), failure))))
    }
}

/// Tells the engine when it is dropped.
#[derive(Debug)]
struct Alive {
    id: u64,
    dropped: mpsc::UnboundedSender<u64>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Without an engine there is no watch any more.
        let _ = self.dropped.unbounded_send(self.id);
    }
}

/// What a call wants to watch if it succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// The data of the node: set by getData.
    Data,
    /// The same, or its creation: set by exists.
    Exists,
    /// The list of children.
    Children,
    /// addWatch.
    Stream(AddWatchMode),
    /// The data of the node that shows the ensemble's configuration.
    Config,
    /// The end of the watches of this kind, not a watch.
    Removal(WatcherType),
}

/// The receiver for the caller.
#[derive(Debug)]
pub(super) enum Watch {
    Oneshot(OneshotWatch),
    Stream(WatchStream),
}

#[derive(Debug)]
struct Subscriber {
    path: String,
    mode: AddWatchMode,
    events: mpsc::Sender<WatchEvent>,
    end: oneshot::Sender<Failure>,
}

type Waiting = BTreeMap<String, Vec<oneshot::Sender<Result<WatchEvent, Failure>>>>;

/// Who waits for which events.
#[derive(Debug)]
pub(super) struct Watchers {
    data: Waiting,
    children: Waiting,
    streams: BTreeMap<u64, Subscriber>,
    /// The streams of each path, by mode.
    persistent: BTreeMap<String, Vec<u64>>,
    recursive: BTreeMap<String, Vec<u64>>,
    last_id: u64,
    /// Watches that have lost their last stream, because it was full.
    removed: Vec<(String, AddWatchMode)>,
    dropped: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
}

impl Watchers {
    pub(super) fn new() -> Watchers {
        Watchers {
            data: BTreeMap::new(),
            children: BTreeMap::new(),
            streams: BTreeMap::new(),
            persistent: BTreeMap::new(),
            recursive: BTreeMap::new(),
            last_id: 0,
            removed: Vec::new(),
            dropped: mpsc::unbounded(),
        }
    }

    /// Adds a watch whose request has succeeded.
    pub(super) fn add(&mut self, path: &str, wanted: Wanted) -> Watch {
        let path = path.to_owned();
        let waiting = match wanted {
            Wanted::Data | Wanted::Exists => &mut self.data,
            Wanted::Children => &mut self.children,
            Wanted::Stream(mode) => return Watch::Stream(self.subscribe(path, mode)),
            Wanted::Config | Wanted::Removal(_) => unreachable!("the engine handles them"),
        };
        let (sender, event) = oneshot::channel();
        let waiting = waiting.entry(path.clone()).or_default();
        // Futures that the program has dropped need no event.
        waiting.retain(|waiter| !waiter.is_canceled());
        waiting.push(sender);
        Watch::Oneshot(OneshotWatch { path, event })
    }

    fn subscribe(&mut self, path: String, mode: AddWatchMode) -> WatchStream {
        self.last_id += 1;
        let id = self.last_id;
        let (sender, events) = mpsc::channel(UNREAD_MAX);
        let (end, ended) = oneshot::channel();
        let subscriber = Subscriber { path: path.clone(), mode, events: sender, end };
        self.of_mode(mode).entry(path.clone()).or_default().push(id);
        self.streams.insert(id, subscriber);
        let alive = Alive { id, dropped: self.dropped.0.clone() };
        WatchStream { path, events, end: Some(ended), _alive: alive }
    }

    fn of_mode(&mut self, mode: AddWatchMode) -> &mut BTreeMap<String, Vec<u64>> {
        match mode {
            AddWatchMode::Persistent => &mut self.persistent,
            AddWatchMode::PersistentRecursive => &mut self.recursive,
        }
    }

    /// Passes an event on.
    pub(super) fn fire(&mut self, event: &WatchEvent) {
        let (data, children) = kinds_fired(event.event);
        let of_data = if data { self.data.remove(&event.path) } else { None };
        let of_children = if children { self.children.remove(&event.path) } else { None };
        for waiter in of_data.into_iter().chain(of_children).flatten() {
            let _ = waiter.send(Ok(event.clone()));
        }
        let mut ids = self.persistent.get(&event.path).cloned().unwrap_or_default();
        if data {
            let above = self_and_above(&event.path);
            ids.extend(above.filter_map(|path| self.recursive.get(path)).flatten());
        }
        for id in ids {
            let Some(subscriber) = self.streams.get_mut(&id) else { continue };
            if subscriber.events.try_send(event.clone()).is_err() {
                let removed = self.end(id, Failure::Lagged);
                self.removed.extend(removed);
            }
        }
    }

    /// The program has removed the watches of this kind from a path.
    pub(super) fn remove(&mut self, path: &str, kind: WatcherType) {
        let is = |other| kind == other || kind == WatcherType::Any;
        let data = if is(WatcherType::Data) { self.data.remove(path) } else { None };
        let children = if is(WatcherType::Children) { self.children.remove(path) } else { None };
        for waiter in data.into_iter().chain(children).flatten() {
            let _ = waiter.send(Err(Failure::WatchRemoved));
        }
        let of_mode = |mode| match mode {
            AddWatchMode::Persistent => is(WatcherType::Persistent),
            AddWatchMode::PersistentRecursive => is(WatcherType::PersistentRecursive),
        };
        let streams = self.streams.iter();
        let streams = streams.filter(|(_, stream)| stream.path == path && of_mode(stream.mode));
        for id in Vec::from_iter(streams.map(|(id, _)| *id)) {
            self.end(id, Failure::WatchRemoved);
        }
    }

    fn end(&mut self, id: u64, why: Failure) -> Option<(String, AddWatchMode)> {
        let Subscriber { path, mode, end, .. } = self.streams.remove(&id)?;
        let _ = end.send(why);
        let streams = self.of_mode(mode);
        let others = streams.get_mut(&path).is_some_and(|ids| {
            ids.retain(|other| *other != id);
            !ids.is_empty()
        });
        if others {
            return None;
        }
        streams.remove(&path);
        Some((path, mode))
    }

    /// The next watch that has lost its last stream.
    pub(super) fn poll_removed(&mut self, cx: &mut Context<'_>) -> Poll<(String, AddWatchMode)> {
        if let Some(removed) = self.removed.pop() {
            return Poll::Ready(removed);
        }
        while let Poll::Ready(Some(id)) = Pin::new(&mut self.dropped.1).poll_next(cx) {
            if let Some(removed) = self.end(id, Failure::Closed) {
                return Poll::Ready(removed);
            }
        }
        Poll::Pending
    }

    /// The session has ended.
    pub(super) fn end_all(&mut self, why: Failure) {
        let data = std::mem::take(&mut self.data).into_values();
        let children = std::mem::take(&mut self.children).into_values();
        for waiter in data.chain(children).flatten() {
            let _ = waiter.send(Err(why));
        }
        for subscriber in std::mem::take(&mut self.streams).into_values() {
            let _ = subscriber.end.send(why);
        }
        self.persistent.clear();
        self.recursive.clear();
    }
}
