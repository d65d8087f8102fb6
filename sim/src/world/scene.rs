//! Plays a scene (see [`crate::replay::scene`]): one call at a time, each to completion.
//!
//! Owns the order of callers. Must not check replies: oracles do, and the code that compares
//! histories.

use zabkeeper_client::State;
use zabkeeper_core::Instant;
use zabkeeper_core::wire::{ReplyBody, Request};

use super::World;
use crate::check::observe::ClientId;
use crate::clients::diary::{History, Word};
use crate::clients::workload::Op;

/// Upper bound of any wait in a world without faults, ns.
const TIMEOUT: u64 = 60_000_000_000;
/// Interval at which the awaited condition is checked, ns.
const LOOK: u64 = 100_000;
/// One in this many calls closes its client's session, as long as other clients remain.
const LEAVES_ONE_IN: u64 = 150;

impl World {
    /// Makes this many calls, then reads the whole remaining tree.
    pub(crate) fn scene(mut self, calls: usize) -> Result<History, String> {
        let mut history = History::new();
        let mut rng = self.shared.seeds.stream("scene", 0);
        let mut there: Vec<ClientId> = self.clients.keys().copied().skip(1).collect();
        for client in self.clients.values_mut() {
            client.keep_diary();
        }
        let all = |world: &World, state| {
            world.clients.values().skip(1).all(|client| client.state() == Some(state))
        };
        self.until("sessions", &mut history, |world| all(world, State::Connected))?;
        for _ in 0..calls {
            let client = *rng.pick(&there);
            self.ask(client, &mut history, Some(sync()))?;
            if there.len() > 1 && rng.chance(1, LEAVES_ONE_IN) {
                there.retain(|other| *other != client);
                self.dismiss(client, &mut history)?;
                continue;
            }
            self.ask(client, &mut history, None)?;
            // The server may close a client's session because of the credentials it presented.
            there.retain(|id| self.clients[id].state().is_some());
            if there.is_empty() {
                break;
            }
        }
        if let Some(client) = there.first() {
            self.walk(*client, &mut history)?;
        }
        Ok(history)
    }

    /// Closes a client's session.
    fn dismiss(&mut self, id: ClientId, history: &mut History) -> Result<(), String> {
        let (client, shared) = self.client(id);
        client.stay_away();
        client.close(shared);
        self.until("the end of a session", history, |world| world.clients[&id].state().is_none())
    }

    /// A client makes the given call, or draws one, and the world awaits the reply.
    fn ask(
        &mut self,
        id: ClientId,
        history: &mut History,
        request: Option<Request>,
    ) -> Result<(), String> {
        let (client, shared) = self.client(id);
        match request {
            Some(request) => client.call_this(Op::Sync, request, shared),
            None => client.call_any(shared),
        }
        self.until("an answer", history, |world| world.clients[&id].calls() == 0)
    }

    /// Reads data, ACL and children of every node.
    fn walk(&mut self, id: ClientId, history: &mut History) -> Result<(), String> {
        self.ask(id, history, Some(sync()))?;
        let mut paths = vec!["/".to_owned()];
        while let Some(path) = paths.pop() {
            self.ask(id, history, Some(Request::GetData { path: path.clone(), watch: false }))?;
            self.ask(id, history, Some(Request::GetAcl { path: path.clone() }))?;
            let (watch, with_stat) = (false, true);
            let children = Request::GetChildren { path: path.clone(), watch, with_stat };
            self.ask(id, history, Some(children))?;
            if let Some((_, Word::Answered(Ok(done)))) = history.last()
                && let ReplyBody::ChildrenStat(names, _) = &done.body
            {
                let parent = path.trim_end_matches('/');
                let mut children: Vec<String> =
                    names.iter().map(|name| format!("{parent}/{name}")).collect();
                children.sort_unstable();
                paths.append(&mut children);
            }
        }
        Ok(())
    }

    /// Advances time until `done`, and collects the clients' diaries.
    fn until(
        &mut self,
        what: &str,
        history: &mut History,
        done: impl Fn(&World) -> bool,
    ) -> Result<(), String> {
        let latest = self.shared.now.0 + TIMEOUT;
        loop {
            for (id, client) in &mut self.clients {
                history.extend(client.take_diary().into_iter().map(|word| (*id, word)));
            }
            if done(self) {
                return Ok(());
            }
            let goes_on = self.run_until(Instant(self.shared.now.0 + LOOK));
            if let Some(failure) = self.shared.checker.failure() {
                return Err(format!("{}: {}", failure.id, failure.evidence.join("; ")));
            }
            if !goes_on || self.shared.now.0 > latest {
                return Err(format!("waited in vain for {what}"));
            }
        }
    }
}

fn sync() -> Request {
    Request::Sync { path: "/".to_owned() }
}
