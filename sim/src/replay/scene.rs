//! A scene: sequential calls without faults, so that no clock, disk or network may change the
//! replies. Clients of a simulated ensemble and of real servers must receive the same replies and
//! events.
//!
//! Owns the history of a scene, and which of its parts must be equal. `world` executes it.
//!
//! Before each call its client syncs: its server has then applied every acknowledged write, and
//! sent all due events. Effects of time are excluded: containers, TTLs, session expiration.

use std::collections::BTreeSet;

use zabkeeper_client::Done;
use zabkeeper_core::wire::{MultiResult, ReplyBody, Stat, WatchEvent};
use zabkeeper_core::{SessionId, Zxid};

use crate::check::observe::ClientId;
use crate::clients::diary::{History, Word};
use crate::clients::workload::Op;
use crate::engine::seed::Seeds;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::world::World;
use crate::world::options::{Options, Pinned, Profile, ServerOptions};

/// Servers of a scene.
pub const SERVERS: u32 = 3;
/// Clients of a scene, counted from one: a real client cannot have the address of client zero.
pub const CLIENTS: u32 = 5;
/// Session timeout of all clients, ms: far longer than a scene takes.
pub const SESSION_MS: u32 = 40_000;

/// Plays the scene of a seed in a simulated ensemble: `calls` random calls, then reads of the whole
/// remaining tree. `members` is the content of `/zookeeper/config`.
///
/// # Errors
/// A violated promise, or a call that does not complete.
pub fn play(seed: u64, calls: usize, members: String) -> Result<History, String> {
    let seeds = Seeds::new(seed);
    let clients = Some(CLIENTS + 1);
    let pinned = Pinned { servers: Some(SERVERS), clients, ..Pinned::default() };
    let mut options = Options::draw(seeds, Profile::Calm, &pinned);
    options.server = ServerOptions::usual();
    options.local = Default::default();
    options.members = Some(members);
    let workload = &mut options.workload;
    workload.mix = workload.mix.without(&[Op::Container, Op::Ttl]);
    workload.session_ms = (SESSION_MS.into(), SESSION_MS.into());
    workload.depth = 1;
    let mut schedule = Schedule::of_run(seed, &options, Vec::new());
    schedule.absent = [ClientId(0)].into();
    World::scripted(&schedule, TraceSink::Off, false).scene(calls)
}

/// The parts that must be equal wherever the scene is played, one line per reply or event, grouped
/// by client: zxids and sessions are replaced by ranks, times by zero.
pub fn plain(history: &History) -> Vec<String> {
    let mut history = history.clone();
    let (mut zxids, mut owners) = (BTreeSet::new(), Vec::new());
    for (_, word) in &mut history {
        numbers(word, &mut |number| match number {
            Number::Zxid(zxid) => drop(zxids.insert(*zxid)),
            Number::Owner(owner) if !owners.contains(owner) => owners.push(*owner),
            Number::Owner(_) | Number::Time(_) => {}
        });
    }
    let rank = |zxid: &Zxid| Zxid(zxids.range(..zxid).count() as u64);
    let name = |owner: &SessionId| {
        let place = owners.iter().position(|other| other == owner).unwrap_or(0);
        SessionId(i64::try_from(place).unwrap_or(0))
    };
    for (_, word) in &mut history {
        numbers(word, &mut |number| match number {
            Number::Zxid(zxid) => *zxid = rank(zxid),
            Number::Owner(owner) if owner.0 != 0 => *owner = name(owner),
            Number::Owner(_) => {}
            Number::Time(ms) => *ms = 0,
        });
    }
    history.sort_by_key(|(client, _)| *client);
    let mut asked = None;
    let line = |(ClientId(client), word): &(ClientId, Word)| match word {
        // Calls have no line of their own, because an event may arrive before or after the client
        // makes one.
        Word::Asked(request) => {
            asked = Some(request.clone());
            None
        }
        Word::Left => None,
        Word::Answered(answer) => Some(format!("client {client}: {asked:?}: {answer:?}")),
        Word::Event(event) => Some(format!("client {client}: {event:?}")),
        Word::Over => Some(format!("client {client}: over")),
    };
    history.iter().filter_map(line).collect()
}

/// A number that differs between ensembles.
enum Number<'a> {
    Zxid(&'a mut Zxid),
    Owner(&'a mut SessionId),
    Time(&'a mut i64),
}

/// Passes all such numbers to `see`. Sorts names of children, and identities, whose order depends
/// on a hash that includes the client's address: neither order is guaranteed.
fn numbers(word: &mut Word, see: &mut impl FnMut(Number<'_>)) {
    match word {
        Word::Event(WatchEvent { zxid, .. }) => {
            zxid.iter_mut().for_each(|zxid| see(Number::Zxid(zxid)));
        }
        Word::Answered(Ok(Done { zxid, body })) => {
            see(Number::Zxid(zxid));
            in_body(body, see);
        }
        Word::Asked(_) | Word::Left | Word::Answered(Err(_)) | Word::Over => {}
    }
}

fn in_body(body: &mut ReplyBody, see: &mut impl FnMut(Number<'_>)) {
    match body {
        ReplyBody::Identities(ids) => ids.sort_by_key(|id| (id.scheme.clone(), id.id.clone())),
        ReplyBody::PathStat(_, stat)
        | ReplyBody::Stat(stat)
        | ReplyBody::Data(_, stat)
        | ReplyBody::Acl(_, stat) => in_stat(stat, see),
        ReplyBody::Children(names) => names.sort_unstable(),
        ReplyBody::ChildrenStat(names, stat) => {
            names.sort_unstable();
            in_stat(stat, see);
        }
        ReplyBody::Multi(results) | ReplyBody::BrokenMulti(results) => {
            for result in results {
                match result {
                    MultiResult::CreatedStat(_, stat)
                    | MultiResult::Changed(stat)
                    | MultiResult::Data(_, stat) => in_stat(stat, see),
                    MultiResult::Children(names) => names.sort_unstable(),
                    MultiResult::Created(_)
                    | MultiResult::Deleted
                    | MultiResult::Checked
                    | MultiResult::Failed(_) => {}
                }
            }
        }
        ReplyBody::Empty
        | ReplyBody::Path(_)
        | ReplyBody::Number(_)
        | ReplyBody::Token(_)
        | ReplyBody::NullPath => {}
    }
}

fn in_stat(stat: &mut Stat, see: &mut impl FnMut(Number<'_>)) {
    for zxid in [&mut stat.czxid, &mut stat.mzxid, &mut stat.pzxid] {
        see(Number::Zxid(zxid));
    }
    see(Number::Owner(&mut stat.ephemeral_owner));
    for ms in [&mut stat.ctime, &mut stat.mtime] {
        see(Number::Time(ms));
    }
}
