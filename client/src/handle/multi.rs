//! Several operations as one transaction.
//!
//! Owns the builder and the results by operation. Must not send: the handle does.

use std::fmt;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::{MultiResult, Request, Stat};

use super::create::CreateOptions;
use crate::session::{Failure, path_fault};

/// The operations of a transaction, which are carried out all or none, in this order. Each one sees
/// the effects of those before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Multi {
    operations: Vec<Request>,
    /// What is wrong with the first path that ZooKeeper would refuse.
    fault: Option<&'static str>,
}

/// What an operation of a transaction has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MultiOutcome {
    /// The path of the new node, and its statistics unless the server does not tell them.
    Created(String, Option<Stat>),
    /// The node is deleted.
    Deleted,
    /// The new statistics of the node.
    Set(Stat),
    /// The node has the expected version.
    Checked,
}

/// The operation that failed. No operation of the transaction was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MultiError {
    /// Its position in the transaction, from 0.
    pub operation: usize,
    /// Its error.
    pub code: ErrorCode,
}

impl Multi {
    /// No operation yet.
    pub fn new() -> Multi {
        Multi::default()
    }

    /// Creates a node, as [`Client::create`](crate::Client::create) does.
    pub fn create(
        self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Multi {
        let (path, options) = (path.into(), options.into());
        let fault = options.path_fault(&path);
        self.push(options.request(path, Some(data.into())), fault)
    }

    /// Deletes a node, as [`Client::delete`](crate::Client::delete) does.
    pub fn delete(self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Multi {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let fault = path_fault(&path);
        self.push(Request::Delete { path, version }, fault)
    }

    /// Sets the data of a node, as [`Client::set`](crate::Client::set) does.
    pub fn set(
        self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        version: impl Into<Option<i32>>,
    ) -> Multi {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let fault = path_fault(&path);
        self.push(Request::SetData { path, data: Some(data.into()), version }, fault)
    }

    /// Fails the transaction unless the node exists and its data have this version.
    pub fn check(self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Multi {
        let (path, version) = (path.into(), version.into().unwrap_or(-1));
        let fault = path_fault(&path);
        self.push(Request::Check { path, version }, fault)
    }

    /// The number of operations so far.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Has the transaction no operation? A server takes that, too.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn push(mut self, operation: Request, fault: Option<&'static str>) -> Multi {
        self.operations.push(operation);
        self.fault = self.fault.or(fault);
        self
    }

    /// Fails with what is wrong with a path, if ZooKeeper would refuse one.
    pub(super) fn into_request(self) -> Result<Request, &'static str> {
        self.fault.map_or(Ok(Request::Multi(self.operations)), Err)
    }
}

/// Nodes that are read at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MultiRead {
    reads: Vec<Request>,
    /// What is wrong with the first path that ZooKeeper would refuse.
    fault: Option<&'static str>,
}

/// What a read has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MultiReadOutcome {
    /// The data and the statistics of a node.
    Data(Bytes, Stat),
    /// The names of a node's children, in no particular order.
    Children(Vec<String>),
}

impl MultiRead {
    /// No read yet.
    pub fn new() -> MultiRead {
        MultiRead::default()
    }

    /// Reads the data of a node.
    pub fn get(self, path: impl Into<String>) -> MultiRead {
        let path = path.into();
        let fault = path_fault(&path);
        self.push(Request::GetData { path, watch: false }, fault)
    }

    /// Reads the names of a node's children.
    pub fn children(self, path: impl Into<String>) -> MultiRead {
        let path = path.into();
        let fault = path_fault(&path);
        self.push(Request::GetChildren { path, watch: false, with_stat: false }, fault)
    }

    fn push(mut self, read: Request, fault: Option<&'static str>) -> MultiRead {
        self.reads.push(read);
        self.fault = self.fault.or(fault);
        self
    }

    /// Fails as [`Multi::into_request`] does.
    pub(super) fn into_request(self) -> Result<Request, &'static str> {
        self.fault.map_or(Ok(Request::MultiRead(self.reads)), Err)
    }
}

/// The outcome of one read of several.
pub(super) fn read_one(
    result: MultiResult,
) -> Result<Result<MultiReadOutcome, ErrorCode>, Failure> {
    match result {
        MultiResult::Data(data, stat) => {
            Ok(Ok(MultiReadOutcome::Data(data.unwrap_or_default(), stat)))
        }
        MultiResult::Children(names) => Ok(Ok(MultiReadOutcome::Children(names))),
        MultiResult::Failed(code) => match ErrorCode::from_wire(code) {
            Some(code) => Ok(Err(code)),
            None => Err(Failure::UnknownCode(code)),
        },
        MultiResult::Created(_)
        | MultiResult::CreatedStat(..)
        | MultiResult::Changed(_)
        | MultiResult::Deleted
        | MultiResult::Checked => Err(Failure::OtherReply),
    }
}

/// The operations before the failed one have the code 0, those behind it -2.
pub(super) fn read(
    results: Vec<MultiResult>,
) -> Result<Result<Vec<MultiOutcome>, MultiError>, Failure> {
    let failed = results.iter().enumerate().find_map(|(operation, result)| {
        let MultiResult::Failed(code) = result else { return None };
        Some((operation, ErrorCode::from_wire(*code)?))
    });
    if let Some((operation, code)) = failed {
        return Ok(Err(MultiError { operation, code }));
    }
    let outcome = |result| match result {
        MultiResult::Created(path) => Ok(MultiOutcome::Created(path, None)),
        MultiResult::CreatedStat(path, stat) => Ok(MultiOutcome::Created(path, Some(stat))),
        MultiResult::Changed(stat) => Ok(MultiOutcome::Set(stat)),
        MultiResult::Deleted => Ok(MultiOutcome::Deleted),
        MultiResult::Checked => Ok(MultiOutcome::Checked),
        MultiResult::Failed(_) | MultiResult::Data(..) | MultiResult::Children(_) => {
            Err(Failure::OtherReply)
        }
    };
    let outcomes = results.into_iter().map(outcome).collect::<Result<Vec<_>, _>>()?;
    Ok(Ok(outcomes))
}

impl fmt::Display for MultiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MultiError { operation, code } = self;
        write!(f, "operation {operation} of the transaction failed, and none was made: {code}")
    }
}

impl std::error::Error for MultiError {}
