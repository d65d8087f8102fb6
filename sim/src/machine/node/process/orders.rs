//! Commands of the log lane that are not completed yet, so that the trace can name what a
//! completion completes.
//!
//! Owns the texts. Must not influence anything.

use std::collections::VecDeque;
use std::fmt;

use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState};
use zabkeeper_core::{Input, WriteId, Zxid};

/// Incomplete commands, oldest first.
#[derive(Debug, Default)]
pub(super) struct Orders(VecDeque<(WriteId, Order)>);

#[derive(Debug)]
enum Order {
    Append(Zxid),
    Truncate(Zxid),
    Rebase(Zxid),
    State(DurableState),
}

/// The last command that is complete, and how many others are.
#[derive(Debug, Default)]
pub(super) struct Done {
    last: Option<Order>,
    others: usize,
}

impl Orders {
    /// Notes the commands of a step.
    pub(super) fn are_given(&mut self, commands: &[DiskCommand]) {
        self.0.extend(commands.iter().filter_map(|command| match command {
            DiskCommand::Append { id, entry } => Some((*id, Order::Append(entry.zxid))),
            DiskCommand::Truncate { id, to } => Some((*id, Order::Truncate(*to))),
            DiskCommand::Rebase { id, snapshot } => Some((*id, Order::Rebase(*snapshot))),
            DiskCommand::SaveState { id, state } => Some((*id, Order::State(state.clone()))),
            DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. } => None,
        }));
    }

    /// The commands that this input completes.
    pub(super) fn done(&mut self, input: &Input) -> Done {
        let Input::Disk(DiskEvent::Done(id)) = input else {
            return Done::default();
        };
        let count = self.0.partition_point(|(given, _)| given <= id);
        let last = self.0.drain(..count).next_back();
        Done { last: last.map(|(_, order)| order), others: count.saturating_sub(1) }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.last {
            None => return Ok(()),
            Some(Order::Append(zxid)) => write!(f, ": append {zxid}")?,
            Some(Order::Truncate(to)) => write!(f, ": truncate to {to}")?,
            Some(Order::Rebase(snapshot)) => write!(f, ": rebase on {snapshot}")?,
            Some(Order::State(state)) => write!(f, ": state {state}")?,
        }
        if self.others > 0 { write!(f, ", and {} before it", self.others) } else { Ok(()) }
    }
}
