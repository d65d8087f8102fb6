//! A value of a program's own type in a node: configuration, or an entry of a name service
//! (RECIPE-01).
//!
//! Owns the encoding and the cached value. Must not decide whether a change was made whose answer
//! is lost: `once` does.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::{mpsc, oneshot};
use futures::future::select;
use futures::stream::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zabkeeper_core::ErrorCode;

use super::once::Once;
use super::{create_above, failed, get_if_there, if_there, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi, OneshotWatch};
use crate::session::Failure;

/// A node whose data are a value of type `T` in JSON, with a cached copy that follows its changes.
///
/// # What it promises
/// Each successful [`Configuration::set`] and [`Configuration::update`] is made exactly once, also
/// if its answer is lost, and an update replaces the value that its function has seen. Data that
/// are no `T` do not reach the program: the cached value stays, and [`Configuration::fault`] says
/// what is wrong.
///
/// # What it does not promise
/// That the cached value is up to date: it is behind by what the session's server has not applied
/// and by one read, also right after a change of the program's own. Values that are replaced at
/// once may be skipped. A version counts the changes of one node: after the node was deleted and
/// created again, it may mean another value.
///
/// While the connection is lost the cached value stays; the session sets its watch again, so a
/// change of that time follows. When the session ends, the value stays for good, and
/// [`Configuration::fault`] says why. Changes wait out lost connections; one that is dropped, or
/// fails with a fatal error, may be made. Dropping the configuration ends the copy, not the node.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use std::collections::BTreeMap;
/// use zabkeeper_client::{Client, recipes::Configuration};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let limits: Configuration<BTreeMap<String, u32>> =
///     Configuration::load(&client, "/app/limits").await?;
/// let raise = |limits: Option<&BTreeMap<String, u32>>| {
///     let mut limits = limits.cloned().unwrap_or_default();
///     *limits.entry("requests".to_owned()).or_insert(100) += 1;
///     limits
/// };
/// println!("version {}", limits.update(raise).await?.version);
/// # Ok(()) }
/// ```
pub struct Configuration<T> {
    client: Client,
    path: String,
    cached: Arc<Mutex<Cached<T>>>,
    /// Dropped with the configuration, which ends the copy.
    _alive: oneshot::Sender<()>,
}

/// A value, and the version of the node's data.
#[derive(PartialEq, Eq, Debug)]
pub struct Versioned<T> {
    /// The value.
    pub value: Arc<T>,
    /// The version, for [`Configuration::set`].
    pub version: i32,
}

/// What the node has: `None` if it does not exist.
type Found<T> = Result<Option<Versioned<T>>, Error>;

/// What the program sees.
struct Cached<T> {
    value: Option<Versioned<T>>,
    fault: Option<Error>,
    listeners: Vec<mpsc::UnboundedSender<Found<T>>>,
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Configuration<T> {
    /// Reads the node of this path, and follows its changes. The node need not exist.
    ///
    /// # Errors
    /// [`Failure::UnexpectedData`] with path and reason if the data are no `T`; fatal ones;
    /// `NoAuth`.
    pub async fn load(client: &Client, path: impl Into<String>) -> Result<Configuration<T>, Error> {
        let (client, path) = (client.clone(), path.into());
        let cached = Cached { value: None, fault: None, listeners: Vec::new() };
        let cached = Arc::new(Mutex::new(cached));
        let (alive, dropped) = oneshot::channel();
        let (loaded, first) = oneshot::channel();
        let follow = follow(client.clone(), path.clone(), cached.clone(), loaded).boxed();
        client.detach(select(follow, dropped).map(|_| ()));
        let is_read = first.await.is_ok();
        let configuration = Configuration { client, path, cached, _alive: alive };
        match configuration.fault() {
            Some(fault) => Err(fault),
            None if is_read => Ok(configuration),
            None => Err(Error::new("get", configuration.path, Failure::Closed)),
        }
    }

    /// The cached value; `None` if there was no node.
    pub fn get(&self) -> Option<Versioned<T>> {
        lock(&self.cached).value.clone()
    }

    /// Why the cached value is not the node's: its data are no `T`, until somebody replaces them.
    /// Or why it follows the node no more: `NoAuth`, or the end of the session. Otherwise `None`.
    pub fn fault(&self) -> Option<Error> {
        lock(&self.cached).fault.clone()
    }

    /// The values from now on: `None` after the node was deleted, an error if its data are no `T`.
    /// The stream ends with the session or the configuration.
    pub fn changes(
        &self,
    ) -> impl Stream<Item = Result<Option<Versioned<T>>, Error>> + Send + Unpin + use<T> {
        let (sender, changes) = mpsc::unbounded();
        let mut cached = lock(&self.cached);
        // After the end nobody would send anything.
        if cached.fault.as_ref().is_none_or(|fault| fault.failure() == Failure::UnexpectedData) {
            cached.listeners.push(sender);
        }
        changes
    }

    /// Sets the value if the node has this version. `None` sets it in any case, and creates the
    /// node when needed, and those above it as containers.
    ///
    /// # Errors
    /// Where a version is given, `BadVersion` if somebody has changed the value meanwhile, and
    /// `NoNode` if there is no node; [`Failure::UnexpectedData`] if the value has no JSON; fatal
    /// ones; `NoAuth`; `QuotaExceeded`.
    pub async fn set(&self, value: &T, version: impl Into<Option<i32>>) -> Result<(), Error> {
        let (data, version) = (self.encode(value)?, version.into());
        let mut once = Once::new(&self.client, &self.path);
        loop {
            let set = Multi::new().set(&self.path, data.clone(), version);
            match once.make(&set).await? {
                Ok(()) => return Ok(()),
                Err(error) if error.code == ErrorCode::NoNode && version.is_none() => {
                    if self.create(&mut once, &data).await? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(failed("set", &self.path, error)),
            }
        }
    }

    /// Replaces the value by what this function makes of it, and returns the new one. The function
    /// gets the node's own value, `None` if there is no node, and is called again whenever somebody
    /// else was faster.
    ///
    /// # Errors
    /// [`Failure::UnexpectedData`] if the data are no `T`, which are kept, or if the new value has
    /// no JSON; fatal ones; `NoAuth`; `QuotaExceeded`.
    pub async fn update(
        &self,
        mut change: impl FnMut(Option<&T>) -> T,
    ) -> Result<Versioned<T>, Error> {
        let mut once = Once::new(&self.client, &self.path);
        loop {
            let found = get_if_there(&self.client, &self.path).await?;
            let found =
                found.map(|(data, stat)| Ok((decode::<T>(&self.path, &data)?, stat.version)));
            let found = found.transpose()?;
            let value = change(found.as_ref().map(|(value, _)| value));
            let data = self.encode(&value)?;
            let (is_made, version) = match found {
                Some((_, version)) => {
                    let is_made = self.replace(&mut once, data, version).await?;
                    (is_made, version.wrapping_add(1))
                }
                None => (self.create(&mut once, &data).await?, 0),
            };
            if is_made {
                return Ok(Versioned { value: Arc::new(value), version });
            }
        }
    }

    /// Replaces the data of this version, unless somebody else has changed or deleted them.
    async fn replace(&self, once: &mut Once, data: Bytes, version: i32) -> Result<bool, Error> {
        match once.make(&Multi::new().set(&self.path, data, version)).await? {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.code, ErrorCode::BadVersion | ErrorCode::NoNode) => {
                Ok(false)
            }
            Err(error) => Err(failed("update", &self.path, error)),
        }
    }

    /// Creates the node, unless somebody else has done so.
    async fn create(&self, once: &mut Once, data: &Bytes) -> Result<bool, Error> {
        let create = Multi::new().create(&self.path, data.clone(), CreateMode::Persistent);
        loop {
            match once.make(&create).await? {
                Ok(()) => return Ok(true),
                Err(error) if error.code == ErrorCode::NodeExists => return Ok(false),
                Err(error) if error.code == ErrorCode::NoNode => {
                    create_above(&self.client, &self.path).await?;
                }
                Err(error) => return Err(failed("create", &self.path, error)),
            }
        }
    }

    fn encode(&self, value: &T) -> Result<Bytes, Error> {
        let unfit = |error| Error::unexpected("set", &self.path, error);
        serde_json::to_vec(value).map(Bytes::from).map_err(unfit)
    }
}

/// Keeps the cached value up to date until the session ends.
async fn follow<T: DeserializeOwned>(
    client: Client,
    path: String,
    cached: Arc<Mutex<Cached<T>>>,
    loaded: oneshot::Sender<()>,
) {
    let mut loaded = Some(loaded);
    let ended = loop {
        let (found, watch) = match read(&client, &path).await {
            Ok(read) => read,
            Err(error) => break error,
        };
        lock(&cached).replace(found);
        if let Some(loaded) = loaded.take() {
            // Who has dropped the future of the load does not wait.
            let _ = loaded.send(());
        }
        if let Err(error) = watch.await {
            break error;
        }
    };
    let mut cached = lock(&cached);
    cached.fault = Some(ended);
    cached.listeners.clear();
}

/// What the node has, and a watch for its next change.
async fn read<T: DeserializeOwned>(
    client: &Client,
    path: &str,
) -> Result<(Found<T>, OneshotWatch), Error> {
    loop {
        let found = if_there(retried(client, || client.get_and_watch(path)).await)?;
        if let Some((data, stat, watch)) = found {
            let version = stat.version;
            let value = decode(path, &data).map(Arc::new);
            return Ok((value.map(|value| Some(Versioned { value, version })), watch));
        }
        if let (None, watch) = retried(client, || client.exists_and_watch(path)).await? {
            return Ok((Ok(None), watch));
        }
    }
}

fn decode<T: DeserializeOwned>(path: &str, data: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(data).map_err(|error| Error::unexpected("get", path, error))
}

fn lock<T>(cached: &Mutex<Cached<T>>) -> MutexGuard<'_, Cached<T>> {
    cached.lock().expect("no code that holds it panics")
}

impl<T> Cached<T> {
    fn replace(&mut self, found: Found<T>) {
        match found.clone() {
            Ok(value) => (self.value, self.fault) = (value, None),
            Err(error) => self.fault = Some(error),
        }
        self.listeners.retain(|listener| listener.unbounded_send(found.clone()).is_ok());
    }
}

impl<T> Clone for Versioned<T> {
    fn clone(&self) -> Versioned<T> {
        Versioned { value: self.value.clone(), version: self.version }
    }
}

impl<T> fmt::Debug for Configuration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cached = lock(&self.cached);
        let version = cached.value.as_ref().map(|value| value.version);
        write!(f, "Configuration({}, version {version:?}, fault {:?})", self.path, cached.fault)
    }
}
