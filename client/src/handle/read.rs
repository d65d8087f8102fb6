//! The results of operations, read from the replies.
//!
//! Owns which body each operation expects. Must not translate errors: `Call` does.

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::{Acl, Id, ReplyBody, Stat};

use super::multi::{self, MultiError, MultiOutcome, MultiReadOutcome};
use super::watch::{OneshotWatch, Watch, WatchStream};
use crate::session::{Done, Failure};

type Reply = Result<Done, Failure>;
type Read<T> = Result<T, Failure>;

pub(super) fn nothing(reply: Reply, _: Option<Watch>) -> Read<()> {
    reply.map(|_| ())
}

pub(super) fn path(reply: Reply, watch: Option<Watch>) -> Read<String> {
    path_and_stat(reply, watch).map(|(path, _)| path)
}

pub(super) fn path_and_stat(reply: Reply, _: Option<Watch>) -> Read<(String, Stat)> {
    let ReplyBody::PathStat(path, stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok((path, stat))
}

pub(super) fn stat(reply: Reply, _: Option<Watch>) -> Read<Stat> {
    let ReplyBody::Stat(stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok(stat)
}

pub(super) fn stat_or_none(reply: Reply, watch: Option<Watch>) -> Read<Option<Stat>> {
    if reply == Err(Failure::Code(ErrorCode::NoNode)) {
        return Ok(None);
    }
    stat(reply, watch).map(Some)
}

pub(super) fn stat_or_none_and_watch(
    reply: Reply,
    watch: Option<Watch>,
) -> Read<(Option<Stat>, OneshotWatch)> {
    let stat = stat_or_none(reply, None)?;
    Ok((stat, oneshot(watch)?))
}

pub(super) fn data_or_none(reply: Reply, _: Option<Watch>) -> Read<(Option<Bytes>, Stat)> {
    let ReplyBody::Data(data, stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok((data, stat))
}

/// A node without data reads as empty (DATA-13).
pub(super) fn data(reply: Reply, _: Option<Watch>) -> Read<(Bytes, Stat)> {
    let ReplyBody::Data(data, stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok((data.unwrap_or_default(), stat))
}

pub(super) fn data_and_watch(
    reply: Reply,
    watch: Option<Watch>,
) -> Read<(Bytes, Stat, OneshotWatch)> {
    let (data, stat) = data(reply, None)?;
    Ok((data, stat, oneshot(watch)?))
}

pub(super) fn children(reply: Reply, _: Option<Watch>) -> Read<(Vec<String>, Stat)> {
    let ReplyBody::ChildrenStat(names, stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok((names, stat))
}

pub(super) fn children_and_watch(
    reply: Reply,
    watch: Option<Watch>,
) -> Read<(Vec<String>, Stat, OneshotWatch)> {
    let (names, stat) = children(reply, None)?;
    Ok((names, stat, oneshot(watch)?))
}

pub(super) fn acl(reply: Reply, _: Option<Watch>) -> Read<(Vec<Acl>, Stat)> {
    let ReplyBody::Acl(acl, stat) = reply?.body else { return Err(Failure::OtherReply) };
    Ok((acl, stat))
}

pub(super) fn paths(reply: Reply, _: Option<Watch>) -> Read<Vec<String>> {
    let ReplyBody::Children(paths) = reply?.body else { return Err(Failure::OtherReply) };
    Ok(paths)
}

pub(super) fn number(reply: Reply, _: Option<Watch>) -> Read<u32> {
    let ReplyBody::Number(number) = reply?.body else { return Err(Failure::OtherReply) };
    u32::try_from(number).map_err(|_| Failure::OtherReply)
}

pub(super) fn identities(reply: Reply, _: Option<Watch>) -> Read<Vec<Id>> {
    let ReplyBody::Identities(ids) = reply?.body else { return Err(Failure::OtherReply) };
    Ok(ids)
}

pub(super) fn multi(reply: Reply, _: Option<Watch>) -> Read<Result<Vec<MultiOutcome>, MultiError>> {
    let ReplyBody::Multi(results) = reply?.body else { return Err(Failure::OtherReply) };
    multi::read(results)
}

pub(super) fn multi_read(
    reply: Reply,
    _: Option<Watch>,
) -> Read<Vec<Result<MultiReadOutcome, ErrorCode>>> {
    let ReplyBody::Multi(results) = reply?.body else { return Err(Failure::OtherReply) };
    results.into_iter().map(multi::read_one).collect()
}

pub(super) fn stream(reply: Reply, watch: Option<Watch>) -> Read<WatchStream> {
    reply?;
    let Some(Watch::Stream(stream)) = watch else { return Err(Failure::OtherReply) };
    Ok(stream)
}

fn oneshot(watch: Option<Watch>) -> Read<OneshotWatch> {
    let Some(Watch::Oneshot(watch)) = watch else { return Err(Failure::OtherReply) };
    Ok(watch)
}
