//! Several operations as one transaction.
//!
//! Owns the builder and the results by operation. Must not send: the handle does.

use std::fmt;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::{MultiResult, Request, Stat};

use super::create::CreateOptions;
use crate::session::Failure;

/// The operations of a transaction, which are carried out all or none, in this order. Each one sees
/// the effects of those before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Multi {
    operations: Vec<Request>,
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
        mut self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Multi {
        self.operations.push(options.into().request(path.into(), data.into()));
        self
    }

    /// Deletes a node, as [`Client::delete`](crate::Client::delete) does.
    pub fn delete(mut self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Multi {
        let version = version.into().unwrap_or(-1);
        self.operations.push(Request::Delete { path: path.into(), version });
        self
    }

    /// Sets the data of a node, as [`Client::set`](crate::Client::set) does.
    pub fn set(
        mut self,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        version: impl Into<Option<i32>>,
    ) -> Multi {
        let (data, version) = (Some(data.into()), version.into().unwrap_or(-1));
        self.operations.push(Request::SetData { path: path.into(), data, version });
        self
    }

    /// Fails the transaction unless the node exists and its data have this version.
    pub fn check(mut self, path: impl Into<String>, version: impl Into<Option<i32>>) -> Multi {
        let version = version.into().unwrap_or(-1);
        self.operations.push(Request::Check { path: path.into(), version });
        self
    }

    /// The number of operations so far.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Has the transaction no operation? A server takes that, too.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(super) fn into_request(self) -> Request {
        Request::Multi(self.operations)
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
