//! A copy of a subtree that follows its changes.
//!
//! Owns the copy, and which nodes have to be read again. Must not read a node twice at a time for
//! nothing: an event that comes while a node is being read asks for one more read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::future::{BoxFuture, FutureExt, poll_fn};
use futures::stream::{FuturesUnordered, Stream, StreamExt};
use zabkeeper_core::wire::{AddWatchMode, Stat, WatchEvent};
use zabkeeper_core::{ErrorCode, Zxid};

use super::{NO_ROOM_PAUSE, child, lacks_room, retried};
use crate::error::Error;
use crate::handle::Client;
use crate::session::State;

/// Nodes that are read at once.
const AHEAD: usize = 128;

/// A copy of a node and everything below it in the memory of the program, which follows all
/// changes.
///
/// # What it promises
/// While [`TreeCache::zxid`] names a zxid, the copy is what the servers had at that zxid, as a
/// whole; it never goes back. After a lost connection the copy is read again, so no change is
/// missed.
///
/// # What it does not promise
/// That it is up to date: it is behind by what the session's server has not applied, and by what is
/// being read. While a tree changes faster than it can be read, the copy changes node by node, and
/// has no zxid. Nodes that the session may not read are left out. The
/// intermediate states of a node that changes twice at once may be skipped. The counts of children
/// in the statistics of a node may be older than the children themselves.
///
/// Lost connections are waited out; when the session ends, the copy stays as it is, and
/// [`TreeCache::ended`] says why. Dropping it removes the watch.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::TreeCache};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let cache = TreeCache::load(&client, "/settings").await?;
/// let timeout = cache.get("/settings/timeout").map(|node| node.data);
/// println!("the timeout is {timeout:?}");
/// # Ok(()) }
/// ```
pub struct TreeCache {
    shared: Arc<Mutex<Copied>>,
    /// Dropped with the cache, which ends its maintenance.
    _alive: oneshot::Sender<()>,
}

/// A node of the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedNode {
    /// Its data.
    pub data: Bytes,
    /// Its statistics.
    pub stat: Stat,
}

/// What the program sees.
#[derive(Default)]
struct Copied {
    nodes: BTreeMap<String, CachedNode>,
    /// Up to which zxid the copy is complete; `None` while something is left to read.
    zxid: Option<Zxid>,
    ended: Option<Error>,
    listeners: Vec<mpsc::UnboundedSender<String>>,
}

impl TreeCache {
    /// Watches the node of this path and all below it, reads them, and returns when the copy is
    /// complete. The node need not exist.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth` if the session may not watch the node.
    pub async fn load(client: &Client, path: impl Into<String>) -> Result<TreeCache, Error> {
        let shared = Arc::new(Mutex::new(Copied::default()));
        let (alive, dropped) = oneshot::channel();
        let (loaded, complete) = oneshot::channel();
        let maintenance = Maintenance {
            client: client.clone(),
            root: path.into(),
            shared: shared.clone(),
            todo: VecDeque::new(),
            reading: BTreeMap::new(),
            seen: Zxid::ZERO,
            loaded: Some(loaded),
        };
        let run = maintenance.run().boxed();
        client.detach(futures::future::select(run, dropped).map(|_| ()));
        let ended = complete.await;
        let cache = TreeCache { shared, _alive: alive };
        match cache.ended() {
            Some(error) => Err(error),
            None if ended.is_err() => {
                let failure = crate::Failure::Closed;
                Err(Error::new("cache", String::new(), failure))
            }
            None => Ok(cache),
        }
    }

    /// The node of this path, if it is part of the copy.
    pub fn get(&self, path: &str) -> Option<CachedNode> {
        lock(&self.shared).nodes.get(path).cloned()
    }

    /// The names of a node's children in the copy, in the order of their names.
    pub fn children(&self, path: &str) -> Vec<String> {
        let copied = lock(&self.shared);
        let names = copied.below(path).map(|(_, rest)| rest);
        names.filter(|rest| !rest.contains('/')).map(str::to_owned).collect()
    }

    /// All nodes, and the zxid up to which they are complete: see [`TreeCache::zxid`].
    pub fn snapshot(&self) -> (Option<Zxid>, BTreeMap<String, CachedNode>) {
        let copied = lock(&self.shared);
        (copied.zxid, copied.nodes.clone())
    }

    /// The zxid of the last change in the copy; `None` while changes are being read.
    pub fn zxid(&self) -> Option<Zxid> {
        lock(&self.shared).zxid
    }

    /// The paths of nodes from now on, each after it was created, changed or deleted in the copy.
    /// The stream ends with the session or the cache.
    pub fn changes(&self) -> impl Stream<Item = String> + Send + Unpin + use<> {
        let (sender, changes) = mpsc::unbounded();
        lock(&self.shared).listeners.push(sender);
        changes
    }

    /// Why the copy follows no changes any more; `None` while it does.
    pub fn ended(&self) -> Option<Error> {
        lock(&self.shared).ended.clone()
    }
}

impl fmt::Debug for TreeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copied = lock(&self.shared);
        write!(f, "TreeCache({} nodes, complete up to {:?})", copied.nodes.len(), copied.zxid)
    }
}

/// The future that keeps the copy up to date.
struct Maintenance {
    client: Client,
    root: String,
    shared: Arc<Mutex<Copied>>,
    /// Nodes to read, and whether with all below them.
    todo: VecDeque<(String, bool)>,
    /// Nodes that are being read. Those to read again afterwards tell whether with all below them.
    reading: BTreeMap<String, Option<bool>>,
    /// The highest zxid of an event or a node.
    seen: Zxid,
    /// Who waits for the first complete copy.
    loaded: Option<oneshot::Sender<()>>,
}

/// What happens next.
enum Next {
    State(Option<State>),
    Event(Option<Result<WatchEvent, Error>>),
    Read(Read),
}

/// A node that was read: its path, whether with all below it, its data and its children.
type Read = (String, bool, Result<Found, Error>);
type Reading = BoxFuture<'static, Read>;
type Found = Option<(CachedNode, Vec<String>)>;

impl Maintenance {
    async fn run(mut self) {
        let ended = loop {
            if let Err(error) = self.follow().await {
                break error;
            }
        };
        let mut copied = lock(&self.shared);
        copied.ended = Some(ended);
        copied.listeners.clear();
    }

    /// Watches, reads everything, and follows until the events do not tell all changes any more.
    async fn follow(&mut self) -> Result<(), Error> {
        let mut states = self.client.states();
        let watch = || self.client.watch(&self.root, AddWatchMode::PersistentRecursive);
        let mut events = retried(&self.client, watch).await?;
        self.todo.clear();
        self.read_anew(self.root.clone(), true);
        self.reading.clear();
        let mut reads = FuturesUnordered::new();
        loop {
            self.begin_reads(&mut reads);
            // An event comes before the answers that show its change, so it is taken first.
            let next = poll_fn(|cx| {
                if let Poll::Ready(state) = states.poll_next_unpin(cx) {
                    return Poll::Ready(Next::State(state));
                }
                if let Poll::Ready(event) = events.poll_next_unpin(cx) {
                    return Poll::Ready(Next::Event(event));
                }
                match reads.poll_next_unpin(cx) {
                    Poll::Ready(Some(read)) => Poll::Ready(Next::Read(read)),
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                }
            });
            match next.await {
                // Events of descendants are lost with a connection (WATCH-25).
                Next::State(Some(state)) if state.is_connected() => return Ok(()),
                Next::State(Some(State::Connecting)) => {}
                Next::State(_) => return self.client.connected().await,
                Next::Event(Some(Ok(event))) => self.on_event(event),
                Next::Event(Some(Err(error))) if error.is_fatal() => return Err(error),
                // Too many events were unread.
                Next::Event(Some(Err(_)) | None) => return Ok(()),
                Next::Read(read) => self.on_read(read).await?,
            }
        }
    }

    fn begin_reads(&mut self, reads: &mut FuturesUnordered<Reading>) {
        while reads.len() < AHEAD
            && let Some((path, below)) = self.todo.pop_front()
        {
            if let Some(again) = self.reading.get_mut(&path) {
                // A read because of an event can precede the one with all below it (seed
                // 0x112900000135 of the swarm at 2a049df).
                *again = Some(below || *again == Some(true));
                continue;
            }
            self.reading.insert(path.clone(), None);
            let client = self.client.clone();
            let read = async move {
                // One call after the other: a session may take one at a time only
                // (`Config::calls_max`; seed 0xc9cfb072020a of the swarm at c9cfb07).
                let found = async {
                    let (data, stat) = client.get(&path).await?;
                    let names = match below {
                        true => client.children(&path).await?.0,
                        false => Vec::new(),
                    };
                    Ok(Some((CachedNode { data, stat }, names)))
                };
                let found = found.await;
                let absent =
                    |error: &Error| error.is(ErrorCode::NoNode) || error.is(ErrorCode::NoAuth);
                let found =
                    found.or_else(|error| if absent(&error) { Ok(None) } else { Err(error) });
                (path, below, found)
            };
            reads.push(read.boxed());
        }
    }

    fn on_event(&mut self, event: WatchEvent) {
        self.seen = self.seen.max(event.zxid.unwrap_or_default());
        if event.zxid.is_none()
            && let Some((parent, _)) = event.path.rsplit_once('/')
            && parent.len() >= self.root.len()
        {
            // The parent tells the zxid of a deletion.
            self.read_anew(parent.to_owned(), false);
        }
        self.read_anew(event.path, false);
    }

    fn read_anew(&mut self, path: String, below: bool) {
        lock(&self.shared).zxid = None;
        self.todo.push_back((path, below));
    }

    async fn on_read(&mut self, (path, below, found): Read) -> Result<(), Error> {
        if let Some(again) = self.reading.remove(&path).flatten() {
            self.read_anew(path, below || again);
            return Ok(());
        }
        match found {
            Ok(Some((node, names))) => {
                let Stat { mzxid, pzxid, .. } = node.stat;
                self.seen = self.seen.max(mzxid).max(pzxid);
                if below {
                    self.remove_children(&path, &names);
                    let paths = names.iter().map(|name| (child(&path, name), true));
                    self.todo.extend(paths);
                }
                self.put(path, node);
            }
            Ok(None) => self.remove(&path),
            // The copy stays incomplete until this is read; after a lost connection everything is
            // (seed 0xa52739d40249 of the swarm at a52739d).
            Err(error) if error.is_recoverable() => self.read_anew(path, below),
            Err(error) if lacks_room(&error) => {
                self.client.sleep(NO_ROOM_PAUSE).await;
                self.read_anew(path, below);
            }
            Err(error) => return Err(error),
        }
        if self.todo.is_empty() && self.reading.is_empty() {
            lock(&self.shared).zxid = Some(self.seen);
            if let Some(loaded) = self.loaded.take() {
                // Who has dropped the future of the load does not wait.
                let _ = loaded.send(());
            }
        }
        Ok(())
    }

    fn put(&self, path: String, node: CachedNode) {
        let mut copied = lock(&self.shared);
        if copied.nodes.get(&path) != Some(&node) {
            copied.nodes.insert(path.clone(), node);
            copied.tell(&path);
        }
    }

    /// Removes a node and all below it.
    fn remove(&self, path: &str) {
        let mut copied = lock(&self.shared);
        let below = copied.below(path).map(|(path, _)| path.clone());
        for path in below.chain([path.to_owned()]).collect::<Vec<_>>() {
            if copied.nodes.remove(&path).is_some() {
                copied.tell(&path);
            }
        }
    }

    /// Removes the children that are not among these.
    fn remove_children(&self, path: &str, names: &[String]) {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let gone: BTreeSet<String> = {
            let copied = lock(&self.shared);
            let children = copied.below(path).filter_map(|(_, rest)| rest.split('/').next());
            let gone = children.filter(|name| !names.contains(name));
            gone.map(|name| child(path, name)).collect()
        };
        gone.iter().for_each(|path| self.remove(path));
    }
}

fn lock(shared: &Mutex<Copied>) -> MutexGuard<'_, Copied> {
    shared.lock().expect("no code that holds it panics")
}

impl Copied {
    /// The nodes below a path, each with what follows the path and its slash.
    fn below(&self, path: &str) -> impl Iterator<Item = (&String, &str)> {
        let prefix = child(path, "");
        let nodes = self.nodes.range(prefix.clone()..).map(|(path, _)| path);
        let below = nodes.map_while(move |path| Some((path, path.strip_prefix(&*prefix)?)));
        below.filter(|(_, rest)| !rest.is_empty())
    }

    fn tell(&mut self, path: &str) {
        self.listeners.retain(|listener| listener.unbounded_send(path.to_owned()).is_ok());
    }
}
