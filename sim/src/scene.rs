//! A scene: calls one after another, with nothing going wrong, so that no clock, disk or network may change the answers.
//! What clients hear in a simulated ensemble, they have to hear from real servers, too.
//!
//! Owns the history of a scene and what of it must be the same. How it comes about is the world's affair.
//!
//! Before each call its client syncs: then its server has applied all that was ever answered, and has told what there is
//! to tell. Left out is what time does by itself: containers, TTLs, sessions that expire.

use std::collections::BTreeSet;

use zabkeeper_client::{Done, Failure};
use zabkeeper_core::wire::{MultiResult, ReplyBody, Request, Stat, WatchEvent};
use zabkeeper_core::{SessionId, Zxid};

use crate::observe::ClientId;
use crate::options::{Options, Pinned, Profile, ServerOptions};
use crate::schedule::Schedule;
use crate::seed::Seeds;
use crate::trace::Story;
use crate::workload::Op;
use crate::world::World;

/// Servers of a scene.
pub const SERVERS: u32 = 3;
/// Clients of a scene, counted from one: the address of client zero is none that a real one could have.
pub const CLIENTS: u32 = 5;
/// Session timeout of all clients, ms: far longer than a scene takes.
pub const SESSION_MS: u32 = 40_000;

/// Something that a client said or heard.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// It called.
    Asked(Request),
    /// It asked for the end of its session.
    Left,
    /// Its call has ended.
    Answered(Result<Done, Failure>),
    /// A watch has fired.
    Heard(WatchEvent),
    /// Its session is over.
    Over,
}

/// All that was said, in order of time.
pub type History = Vec<(ClientId, Word)>;

/// Plays the scene of a seed in a simulated ensemble: `calls` calls, each drawn when it is made, then a walk through the
/// tree that is left. The node `/zookeeper/config` shows `members`.
///
/// # Errors
/// A broken promise, or a call without an end.
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
    World::scripted(&schedule, Story::Off, false).scene(calls)
}

/// What must be the same wherever the scene is played, a line for each word that was heard, by client: zxids and sessions
/// by their order, without times.
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
        // An event may still be on its way when a client calls.
        Word::Asked(request) => {
            asked = Some(request.clone());
            None
        }
        Word::Left => None,
        Word::Answered(answer) => Some(format!("client {client}: {asked:?}: {answer:?}")),
        Word::Heard(event) => Some(format!("client {client}: {event:?}")),
        Word::Over => Some(format!("client {client}: over")),
    };
    history.iter().filter_map(line).collect()
}

/// What differs from one ensemble to the next.
enum Number<'a> {
    Zxid(&'a mut Zxid),
    Owner(&'a mut SessionId),
    Time(&'a mut i64),
}

/// Shows `see` all such numbers. Names of children are sorted, and identities, which come in an order of hashes that the
/// address has a part in: their order is nobody's promise.
fn numbers(word: &mut Word, see: &mut impl FnMut(Number<'_>)) {
    match word {
        Word::Heard(WatchEvent { zxid, .. }) => {
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
