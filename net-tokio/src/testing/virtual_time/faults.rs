//! What a test may do to the network of a virtual ensemble.
//!
//! Owns the translation of clients and servers to machines. Must not hold back messages: `network`
//! does.

use zabkeeper_client::Client;

use super::VirtualEnsemble;
use crate::testing::Error;

/// Partitions of the network.
impl VirtualEnsemble {
    /// Cuts a client off from all servers: its connections stay open, and nothing arrives on them.
    /// So the servers expire its session after the session timeout.
    ///
    /// # Errors
    /// No server has accepted the session of this client yet.
    pub fn isolate(&self, client: &Client) -> Result<(), Error> {
        self.set_isolated(client, true)
    }

    /// Ends [`VirtualEnsemble::isolate`]. What was sent meanwhile on connections that are still
    /// open arrives now.
    ///
    /// # Errors
    /// No server has accepted the session of this client yet.
    pub fn rejoin(&self, client: &Client) -> Result<(), Error> {
        self.set_isolated(client, false)
    }

    /// Cuts these servers off from all other servers: they reach each other, and the others reach
    /// each other. Clients reach all servers. Replaces an earlier partition.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub fn partition(&self, ids: impl IntoIterator<Item = u64>) -> Result<(), Error> {
        let mut world = self.shared.world();
        let ids = ids.into_iter().map(|id| world.running(id).map(|_| id));
        let group = ids.collect::<Result<_, Error>>()?;
        world.network.partition(group);
        self.shared.wake();
        Ok(())
    }

    /// Ends [`VirtualEnsemble::partition`]. What was sent meanwhile on connections that are still
    /// open arrives now.
    pub fn heal(&self) {
        self.shared.world().network.partition(Default::default());
        self.shared.wake();
    }

    fn set_isolated(&self, client: &Client, is_isolated: bool) -> Result<(), Error> {
        let session = client.session_id();
        let network = &mut self.shared.world().network;
        let number = network.client_of(session).ok_or_else(|| {
            let what = "no server of this ensemble has accepted the session of this client: await \
                        Client::connected first";
            Error::Invalid(what.to_owned())
        })?;
        network.isolate(number, is_isolated);
        self.shared.wake();
        Ok(())
    }
}
