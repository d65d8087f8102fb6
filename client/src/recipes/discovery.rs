//! Service discovery: the instances of each service, with their addresses (RECIPE-01).
//!
//! Owns the format of an instance, which is that of Curator's discovery extension. Must not keep a
//! node or a copy of nodes itself: `persistent_node` and `tree_cache` do.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use serde::{Deserialize, Serialize};

use super::persistent_node::PersistentNode;
use super::tree_cache::TreeCache;
use super::{child, children_if_there, get_if_there};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// Services, each with the instances that are registered: nodes `base/service/instance`.
///
/// # What it promises
/// A registered instance is listed while its [`Registration`] and its session live, also after
/// somebody has deleted its node. Programs with Curator's `ServiceDiscovery` see the same
/// instances.
///
/// # What it does not promise
/// That a listed instance still works: the servers notice its end after its session timeout. A list
/// may be behind by what the reader's server has not applied yet. Nodes whose data are no instance
/// are left out of lists; [`Discovery::instance`] says what is wrong with one.
///
/// Lost connections are waited out. When the session expires, a registration ends with it; see
/// [`Registration::ended`]. Dropping the future of [`Discovery::register`] takes the registration
/// back; other futures change nothing.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::{Discovery, ServiceInstance}};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let discovery = Discovery::new(&client, "/services");
/// let mut instance = ServiceInstance::new("billing", client.unique_id());
/// (instance.address, instance.port) = (Some("10.0.0.7".to_owned()), Some(8080));
/// let registration = discovery.register(&instance).await?;
/// let billing = discovery.provider("billing").await?;
/// println!("ask {:?}", billing.next().and_then(|instance| instance.address));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Discovery {
    client: Client,
    base: String,
}

/// An instance of a service, with the properties that Curator's `ServiceInstance` has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInstance {
    /// The name of the service.
    pub name: String,
    /// The name of the instance, unique in its service.
    pub id: String,
    /// The host, by name or address.
    pub address: Option<String>,
    /// The port of connections without TLS.
    pub port: Option<u16>,
    /// The port of connections with TLS.
    pub ssl_port: Option<u16>,
    /// What else programs want to know. Java reads an object as the class that its property
    /// `@class` names.
    #[serde(default)]
    pub payload: serde_json::Value,
    /// When the instance was registered, ms since the Unix epoch, by the clock of its program; 0 if
    /// that does not say.
    #[serde(rename = "registrationTimeUTC", default)]
    pub registration_time_utc: i64,
    /// When the node is deleted.
    #[serde(default)]
    pub service_type: ServiceType,
    /// The form of the instance's URI.
    pub uri_spec: Option<UriSpec>,
    /// Whether the instance takes requests. Old versions of Curator do not write this property.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

/// When the node of an instance is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceType {
    /// With its session.
    #[default]
    Dynamic,
    /// By its program.
    Static,
    /// By its program.
    Permanent,
    /// With its session; the server numbers it.
    DynamicSequential,
}

/// The form of a URI, in parts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UriSpec {
    /// The parts, in their order.
    pub parts: Vec<UriPart>,
}

/// A part of a URI.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UriPart {
    /// A text, or the name of a variable: `scheme`, `address`, `port`, `ssl-port`, `name`, `id`.
    pub value: String,
    /// Whether the value of the variable stands here.
    pub variable: bool,
}

/// An instance is registered. Dropping it deletes the instance's node.
#[derive(Debug)]
pub struct Registration {
    node: PersistentNode,
}

/// The enabled instances of one service, in a copy that follows all changes.
///
/// # What it promises
/// After each change the copy shows it, also after a lost connection.
///
/// # What it does not promise
/// That it is up to date; see [`TreeCache`](super::TreeCache). While the connection is lost, and
/// after the session has ended, it has the instances of the last time. Each call reads the JSON of
/// all instances in the copy: a program with many of them keeps the list until the next change.
#[derive(Debug)]
pub struct ServiceProvider {
    cache: TreeCache,
    path: String,
    /// How many times [`ServiceProvider::next`] was called.
    calls: AtomicUsize,
}

fn enabled() -> bool {
    true
}

impl ServiceInstance {
    /// An enabled instance of this service without address, port and payload.
    pub fn new(name: impl Into<String>, id: impl Into<String>) -> ServiceInstance {
        ServiceInstance {
            name: name.into(),
            id: id.into(),
            address: None,
            port: None,
            ssl_port: None,
            payload: serde_json::Value::Null,
            registration_time_utc: 0,
            service_type: ServiceType::Dynamic,
            uri_spec: None,
            enabled: true,
        }
    }

    fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("all keys are texts").into()
    }
}

impl Discovery {
    /// The services below this node, such as `/services`.
    pub fn new(client: &Client, base: impl Into<String>) -> Discovery {
        Discovery { client: client.clone(), base: base.into() }
    }

    /// Registers an instance, and returns when its node is there. If another session has it, such
    /// as an earlier one of the same program, this waits until that one ends. The nodes above are
    /// created as containers.
    ///
    /// # Errors
    /// `BadArguments` for [`ServiceType::DynamicSequential`]; fatal ones; those of
    /// [`Client::create`], but for `NodeExists` and `NoNode`.
    pub async fn register(&self, instance: &ServiceInstance) -> Result<Registration, Error> {
        let mode = match instance.service_type {
            ServiceType::Dynamic => CreateMode::Ephemeral,
            ServiceType::Static | ServiceType::Permanent => CreateMode::Persistent,
            ServiceType::DynamicSequential => CreateMode::EphemeralSequential,
        };
        let path = self.path_of(&instance.name, &instance.id);
        let node = PersistentNode::keep(&self.client, path, instance.encode(), mode).await?;
        Ok(Registration { node })
    }

    /// The names of all services, in their order; also of one whose last instance has just gone.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn services(&self) -> Result<Vec<String>, Error> {
        self.names(&self.base).await
    }

    /// The instances of a service, in the order of their ids.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn instances(&self, service: &str) -> Result<Vec<ServiceInstance>, Error> {
        let mut instances = Vec::new();
        for id in self.names(&child(&self.base, service)).await? {
            let data = self.data_of(&self.path_of(service, &id)).await?;
            instances.extend(data.and_then(|data| serde_json::from_slice(&data).ok()));
        }
        Ok(instances)
    }

    /// The instance with this id, if there is one.
    ///
    /// # Errors
    /// [`Failure::UnexpectedData`](crate::Failure::UnexpectedData) with path and reason if the data
    /// are no instance; fatal ones; `NoAuth`.
    pub async fn instance(
        &self,
        service: &str,
        id: &str,
    ) -> Result<Option<ServiceInstance>, Error> {
        let path = self.path_of(service, id);
        let Some(data) = self.data_of(&path).await? else { return Ok(None) };
        let unfit = |error| Error::unexpected("get", &path, error);
        serde_json::from_slice(&data).map(Some).map_err(unfit)
    }

    /// A copy of the instances of a service, complete when this returns.
    ///
    /// # Errors
    /// Those of [`TreeCache::load`](super::TreeCache::load).
    pub async fn provider(&self, service: &str) -> Result<ServiceProvider, Error> {
        let path = child(&self.base, service);
        let cache = TreeCache::load(&self.client, path.clone()).await?;
        Ok(ServiceProvider { cache, path, calls: AtomicUsize::new(0) })
    }

    async fn names(&self, path: &str) -> Result<Vec<String>, Error> {
        let mut names = children_if_there(&self.client, path).await?;
        names.sort_unstable();
        Ok(names)
    }

    /// The data of a node, if there is one.
    async fn data_of(&self, path: &str) -> Result<Option<Bytes>, Error> {
        let found = get_if_there(&self.client, path).await?;
        Ok(found.map(|(data, _)| data))
    }

    fn path_of(&self, service: &str, id: &str) -> String {
        child(&child(&self.base, service), id)
    }
}

impl Registration {
    /// Replaces what others see of the instance. Its node keeps its path and its kind.
    ///
    /// # Errors
    /// Those of [`PersistentNode::set_data`](super::PersistentNode::set_data).
    pub async fn update(&self, instance: &ServiceInstance) -> Result<(), Error> {
        self.node.set_data(instance.encode()).await
    }

    /// Completes when the instance is not kept registered any more, with the reason; see
    /// [`PersistentNode::ended`](super::PersistentNode::ended).
    pub async fn ended(&self) -> Error {
        self.node.ended().await
    }

    /// Deletes the instance's node and waits until the servers have done so.
    ///
    /// # Errors
    /// Those of [`PersistentNode::delete`](super::PersistentNode::delete).
    pub async fn unregister(self) -> Result<(), Error> {
        self.node.delete().await
    }
}

impl ServiceProvider {
    /// The enabled instances in the copy, in the order of their ids.
    pub fn instances(&self) -> Vec<ServiceInstance> {
        let ids = self.cache.children(&self.path);
        let nodes = ids.iter().filter_map(|id| self.cache.get(&child(&self.path, id)));
        let instances = nodes.filter_map(|node| serde_json::from_slice(&node.data).ok());
        instances.filter(|instance: &ServiceInstance| instance.enabled).collect()
    }

    /// The next enabled instance, each in its turn; `None` if there is none.
    pub fn next(&self) -> Option<ServiceInstance> {
        let mut instances = self.instances();
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let turn = call.checked_rem(instances.len())?;
        Some(instances.swap_remove(turn))
    }

    /// The ids of instances from now on, each after it was added, changed or removed in the copy.
    /// The stream ends with the session or the provider.
    pub fn changes(&self) -> impl Stream<Item = String> + Send + Unpin + use<> {
        let prefix = child(&self.path, "");
        let id = move |path: String| path.strip_prefix(&*prefix).map(str::to_owned);
        self.cache.changes().filter_map(move |path| std::future::ready(id(path)))
    }

    /// Why the copy follows no changes any more; `None` while it does.
    pub fn ended(&self) -> Option<Error> {
        self.cache.ended()
    }
}
