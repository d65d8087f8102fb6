//! The handle of a session: operations as futures, watches as streams, without a runtime.
//!
//! Owns the operations and the types of their results. Must not know sockets, clocks or a runtime:
//! a driver runs the [`Engine`] of the handle.

mod call;
mod create;
mod deletions;
mod engine;
mod ensemble;
mod multi;
mod read;
mod subtree;
mod view;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use futures::stream::Stream;
use futures::{FutureExt, StreamExt};
use zabkeeper_core::wire::{Acl, AddWatchMode, Id, Request, Secret, Stat, WatcherType};
use zabkeeper_core::{ErrorCode, SessionId};

pub use self::call::Call;
use self::call::Read;
pub use self::create::{CreateMode, CreateOptions};
pub use self::engine::Engine;
use self::engine::{Answer, Asked, Command};
pub use self::ensemble::Reconfig;
pub use self::multi::{Multi, MultiError, MultiOutcome, MultiRead, MultiReadOutcome};
use self::view::View;
use self::watch::Wanted;
pub use self::watch::{OneshotWatch, WatchStream};
use crate::error::Error;
use crate::session::{Failure, State, path_fault};

/// A handle of a session with a ZooKeeper ensemble. Clones share the session.
///
/// Each operation is queued when its method is called, before its future is polled first, and the
/// servers carry operations of one session out in that order. When the last clone is dropped, the
/// session is closed.
///
/// While no server is connected, operations wait; they fail with
/// [`Failure::ConnectionLoss`] when an attempt to connect fails or a connection is lost. A path
/// that ZooKeeper would refuse fails at once with [`Failure::InvalidPath`], which says why.
#[derive(Clone)]
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    view: Arc<View>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {:?})", self.session_id(), self.state())
    }
}

impl Client {
    fn new(commands: mpsc::UnboundedSender<Command>, view: Arc<View>) -> Client {
        Client { commands, view }
    }

    /// Creates a node and returns its path, to which the server has appended ten digits if the mode
    /// is sequential.
    ///
    /// # Errors
    /// `NodeExists`, `NoNode` if the parent is absent, `NoChildrenForEphemerals`, `InvalidAcl`,
    /// `NoAuth`, `QuotaExceeded`. After a recoverable error an ephemeral sequential node may exist
    /// whose number nobody knows: the recipes put [`Client::unique_id`] into its name.
    pub fn create(
        &self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Call<String> {
        self.create_of(path.into(), Some(data.into()), options.into(), read::path)
    }

    /// [`Client::create`] of a node without data, which readers can tell from empty data (DATA-13).
    ///
    /// # Errors
    /// Those of [`Client::create`].
    pub fn create_without_data(
        &self,
        path: impl Into<String>,
        options: impl Into<CreateOptions>,
    ) -> Call<String> {
        self.create_of(path.into(), None, options.into(), read::path)
    }

    /// [`Client::create`], with the statistics of the new node.
    ///
    /// # Errors
    /// Those of [`Client::create`].
    pub fn create_with_stat(
        &self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Call<(String, Stat)> {
        self.create_of(path.into(), Some(data.into()), options.into(), read::path_and_stat)
    }

    fn create_of<T>(
        &self,
        path: String,
        data: Option<Bytes>,
        options: CreateOptions,
        read: Read<T>,
    ) -> Call<T> {
        let fault = options.path_fault(&path);
        let request = options.request(path.clone(), data);
        self.ask("create", path, fault.map_or(Ok(request), Err), None, read)
    }

    /// Deletes a node without children; `version` is that of its data, `None` for any.
    ///
    /// # Errors
    /// `NoNode`, `NotEmpty`, `BadVersion`, `NoAuth`.
    pub fn delete(&self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Call<()> {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let request = Request::Delete { path: path.clone(), version };
        self.on("delete", path, request, None, read::nothing)
    }

    /// The statistics of a node, `None` if it does not exist.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn exists(&self, path: impl Into<String>) -> Call<Option<Stat>> {
        let path = path.into();
        let request = Request::Exists { path: path.clone(), watch: false };
        self.on("exists", path, request, None, read::stat_or_none)
    }

    /// [`Client::exists`], and a watch that fires when the node is created, changed or deleted.
    ///
    /// # Errors
    /// Those of every operation; then no watch is set.
    pub fn exists_and_watch(&self, path: impl Into<String>) -> Call<(Option<Stat>, OneshotWatch)> {
        let path = path.into();
        let request = Request::Exists { path: path.clone(), watch: true };
        self.on("exists", path, request, Some(Wanted::Exists), read::stat_or_none_and_watch)
    }

    /// The data and the statistics of a node.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth`.
    pub fn get(&self, path: impl Into<String>) -> Call<(Bytes, Stat)> {
        let path = path.into();
        let request = Request::GetData { path: path.clone(), watch: false };
        self.on("get", path, request, None, read::data)
    }

    /// [`Client::get`], with `None` for a node without data, which is no empty data (DATA-13).
    ///
    /// # Errors
    /// Those of [`Client::get`].
    pub fn get_or_none(&self, path: impl Into<String>) -> Call<(Option<Bytes>, Stat)> {
        let path = path.into();
        let request = Request::GetData { path: path.clone(), watch: false };
        self.on("get", path, request, None, read::data_or_none)
    }

    /// [`Client::get`], and a watch that fires when the node is changed or deleted.
    ///
    /// # Errors
    /// Those of [`Client::get`]; then no watch is set.
    pub fn get_and_watch(&self, path: impl Into<String>) -> Call<(Bytes, Stat, OneshotWatch)> {
        let path = path.into();
        let request = Request::GetData { path: path.clone(), watch: true };
        self.on("get", path, request, Some(Wanted::Data), read::data_and_watch)
    }

    /// Sets the data of a node and returns its new statistics; `version` is the expected one,
    /// `None` for any.
    ///
    /// # Errors
    /// `NoNode`, `BadVersion`, `NoAuth`, `QuotaExceeded`. After a recoverable error with a version,
    /// a repetition that fails with `BadVersion` may mean that the first attempt was carried out.
    pub fn set(
        &self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        version: impl Into<Option<i32>>,
    ) -> Call<Stat> {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let request = Request::SetData { path: path.clone(), data: Some(data.into()), version };
        self.on("set", path, request, None, read::stat)
    }

    /// The names of a node's children, in no particular order, and the node's statistics.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth`.
    pub fn children(&self, path: impl Into<String>) -> Call<(Vec<String>, Stat)> {
        let path = path.into();
        let request = Request::GetChildren { path: path.clone(), watch: false, with_stat: true };
        self.on("ls", path, request, None, read::children)
    }

    /// [`Client::children`], and a watch that fires when a child is created or deleted, or the node
    /// is deleted.
    ///
    /// # Errors
    /// Those of [`Client::children`]; then no watch is set.
    pub fn children_and_watch(
        &self,
        path: impl Into<String>,
    ) -> Call<(Vec<String>, Stat, OneshotWatch)> {
        let path = path.into();
        let request = Request::GetChildren { path: path.clone(), watch: true, with_stat: true };
        self.on("ls", path, request, Some(Wanted::Children), read::children_and_watch)
    }

    /// The access control list of a node, and the node's statistics.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth`.
    pub fn acl(&self, path: impl Into<String>) -> Call<(Vec<Acl>, Stat)> {
        let path = path.into();
        let request = Request::GetAcl { path: path.clone() };
        self.on("getAcl", path, request, None, read::acl)
    }

    /// Replaces the access control list of a node; `version` is the expected one of the list,
    /// `None` for any.
    ///
    /// # Errors
    /// `NoNode`, `BadVersion`, `NoAuth`, `InvalidAcl`.
    pub fn set_acl(
        &self,
        path: impl Into<String>,
        acl: impl Into<Vec<Acl>>,
        version: impl Into<Option<i32>>,
    ) -> Call<Stat> {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let request = Request::SetAcl { path: path.clone(), acl: acl.into(), version };
        self.on("setAcl", path, request, None, read::stat)
    }

    /// Waits until the server that this session is connected with has applied everything that was
    /// committed when the ensemble's leader got this request. A read behind it sees all of that.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn sync(&self, path: impl Into<String>) -> Call<()> {
        let path = path.into();
        let request = Request::Sync { path: path.clone() };
        self.on("sync", path, request, None, read::nothing)
    }

    /// The paths of this session's ephemeral nodes that begin with `prefix`. As with ZooKeeper's
    /// client, prefix and paths ignore the chroot (CLIENT-02).
    ///
    /// # Errors
    /// Those of every operation.
    pub fn ephemerals(&self, prefix: impl Into<String>) -> Call<Vec<String>> {
        let prefix = prefix.into();
        let request = Request::GetEphemerals { prefix: prefix.clone() };
        self.ask("getEphemerals", prefix, Ok(request), None, read::paths)
    }

    /// The number of a node's descendants.
    ///
    /// # Errors
    /// `NoNode`.
    pub fn all_children_number(&self, path: impl Into<String>) -> Call<u32> {
        let path = path.into();
        let request = Request::GetAllChildrenNumber { path: path.clone() };
        self.on("getAllChildrenNumber", path, request, None, read::number)
    }

    /// Watches a path for all changes from now on, whether or not there is a node: the node and its
    /// list of children, or the node and all its descendants.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn watch(&self, path: impl Into<String>, mode: AddWatchMode) -> Call<WatchStream> {
        let path = path.into();
        let request = Request::AddWatch { path: path.clone(), mode };
        self.on("addWatch", path, request, Some(Wanted::Stream(mode)), read::stream)
    }

    /// Carries several operations out as one transaction, all or none.
    ///
    /// # Errors
    /// Those of the session. That an operation of the transaction failed is a result:
    /// [`MultiError`] says which.
    pub fn multi(&self, multi: Multi) -> Call<Result<Vec<MultiOutcome>, MultiError>> {
        self.ask("multi", String::new(), multi.into_request(), None, read::multi)
    }

    /// Reads several nodes at one moment: no write is made in between. Each has a result or an
    /// error of its own.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn multi_read(&self, multi: MultiRead) -> Call<Vec<Result<MultiReadOutcome, ErrorCode>>> {
        self.ask("multiRead", String::new(), multi.into_request(), None, read::multi_read)
    }

    /// Removes all watches of this kind that this handle and its clones have set on a path. Their
    /// futures and streams end with [`Failure::WatchRemoved`].
    ///
    /// # Errors
    /// `NoWatcher` if there is none.
    pub fn remove_watches(&self, path: impl Into<String>, kind: WatcherType) -> Call<()> {
        let path = path.into();
        let request = Request::Watches { path: path.clone(), kind, remove: true };
        self.on("removewatches", path, request, Some(Wanted::Removal(kind)), read::nothing)
    }

    /// The identities that the server knows this client by.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn who_am_i(&self) -> Call<Vec<Id>> {
        self.ask("whoami", String::new(), Ok(Request::WhoAmI), None, read::identities)
    }

    /// Adds an identity, such as scheme `digest` with `user:password`. It is sent again on each new
    /// connection.
    ///
    /// # Errors
    /// `AuthFailed`, which is fatal: the session ends.
    pub fn add_auth(&self, scheme: impl Into<String>, auth: impl Into<Bytes>) -> Call<()> {
        let scheme = scheme.into();
        let request = Request::Auth { scheme: scheme.clone(), auth: Secret(Some(auth.into())) };
        self.ask("addauth", scheme, Ok(request), None, read::nothing)
    }

    /// The state of the session.
    pub fn state(&self) -> State {
        if self.commands.is_closed() && !self.view.state().is_final() {
            // The driver has ended, so the session is left to expire.
            return State::Closed;
        }
        self.view.state()
    }

    /// The states of the session from now on, each after the change. The stream ends with the
    /// session.
    pub fn states(&self) -> impl Stream<Item = State> + Send + Unpin + use<> {
        let (sender, states) = mpsc::unbounded();
        // Without an engine the stream ends at once.
        let _ = self.commands.unbounded_send(Command::States(sender, self.view.state()));
        states
    }

    /// Completes when the session has ended, or when the servers may have ended it: no server has
    /// answered, for the session timeout, anything that was sent (Curator's `LOST`). So it
    /// completes also while no server is reached. It may be that a server is reached later, and the
    /// session has lived on.
    ///
    /// The time runs by the clock of this machine, from when the last message was sent that was
    /// answered. It can be too long: a server that answers may be cut off from its leader and not
    /// have noticed, for `syncLimit` and half a tick (11 s by default), and a server that dies may
    /// not have told the leader of the session, for half a tick. So resources that must obey one
    /// holder only check its fencing token all the same.
    pub fn session_lost(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let (sender, lost) = oneshot::channel();
        // Without an engine the session has ended.
        let _ = self.commands.unbounded_send(Command::Lost(sender));
        lost.map(|_| ())
    }

    /// The session's id; zero until a server has accepted the session.
    pub fn session_id(&self) -> SessionId {
        self.view.session()
    }

    /// The session timeout that the server has granted; before that the requested one.
    pub fn session_timeout(&self) -> Duration {
        self.view.session_timeout()
    }

    /// Completes after this time by the driver's clock, or when the session ends.
    pub fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let (sender, woken) = oneshot::channel();
        let _ = self.commands.unbounded_send(Command::Sleep(time, sender));
        woken.map(|_| ())
    }

    /// An id that no other call and no other client gets, 32 hexadecimal digits: to find a node
    /// again whose creation was not answered (RECIPE-08).
    pub fn unique_id(&self) -> String {
        format!("{:032x}", self.view.unique_id())
    }

    /// Closes the session after all earlier operations are answered, so that its ephemeral nodes
    /// are deleted at once. Without a connection the session ends here, and expires on the servers.
    pub fn close(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let states = self.states();
        let _ = self.commands.unbounded_send(Command::Close);
        states.for_each(|_| std::future::ready(()))
    }

    /// Waits until a server serves the session: at once, if one does.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn connected(&self) -> Result<(), Error> {
        let mut states = self.states();
        let mut state = self.state();
        while state == State::Connecting {
            state = states.next().await.unwrap_or_else(|| self.state());
        }
        let ended = |failure| Err(Error::new("connect", String::new(), failure));
        state.failure().map_or(Ok(()), ended)
    }

    /// Lets the driver end this future, which its owner has dropped.
    pub(crate) fn detach(&self, future: impl Future<Output = ()> + Send + 'static) {
        // Without a driver the session ends, and what the future would do is pointless.
        let _ = self.commands.unbounded_send(Command::Detach(Box::pin(future)));
    }

    /// Lets the driver end this deletion of a node, whose owner is dropped.
    pub(crate) fn detach_deletion(
        &self,
        path: String,
        deletion: impl Future<Output = ()> + Send + 'static,
    ) {
        let ended = self.view.deletions.begin(path);
        self.detach(deletion.map(|()| drop(ended)));
    }

    /// Waits until the driver has ended the deletions of this node's children.
    pub(crate) fn deleted_under(&self, parent: &str) -> impl Future<Output = ()> + use<> {
        self.view.deletions.ended_under(parent.trim_end_matches('/'))
    }

    /// An operation on a path.
    fn on<T>(
        &self,
        operation: &'static str,
        path: String,
        request: Request,
        wanted: Option<Wanted>,
        read: Read<T>,
    ) -> Call<T> {
        let fault = path_fault(&path);
        self.ask(operation, path, fault.map_or(Ok(request), Err), wanted, read)
    }

    /// An operation; instead of a request, why a path of it is none.
    fn ask<T>(
        &self,
        operation: &'static str,
        path: String,
        request: Result<Request, &'static str>,
        wanted: Option<Wanted>,
        read: Read<T>,
    ) -> Call<T> {
        let request = request.map(Asked::Request).map_err(Failure::InvalidPath);
        self.queue(operation, path, request, wanted, read)
    }

    fn queue<T>(
        &self,
        operation: &'static str,
        path: String,
        request: Result<Asked, Failure>,
        wanted: Option<Wanted>,
        read: Read<T>,
    ) -> Call<T> {
        let (reply, answer): (_, oneshot::Receiver<Answer>) = oneshot::channel();
        let wanted = wanted.map(|wanted| (path.clone(), wanted));
        let queued = request.and_then(|request| {
            let command = Command::Call { request, wanted, reply };
            self.commands.unbounded_send(command).map_err(|_| self.view.failure())
        });
        Call::new(operation, path, queued.map(|()| answer), read, self.view.clone())
    }
}
