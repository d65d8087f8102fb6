//! The role of a server as reports show it.
//!
//! Owns the roles with their names and letters. Must not know when a server has which.

use zabkeeper_core::{Mode, Status};

/// The role of a server. If several occur within one column of the diagram, the first of these is
/// shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// No process, or one that recovers from its disk.
    Down,
    /// Knows no leader.
    Looking,
    /// Leads, but does not serve yet.
    Begins,
    /// Follows, but does not serve yet.
    Joins,
    /// Leads and serves.
    Leads,
    /// Follows and serves.
    Follows,
    /// Knows no leader, and serves read-only clients.
    ReadOnly,
}

impl Role {
    /// The text for a server whose disk has failed, whatever its role: it is about to end.
    pub const HALTED: &str = "serves no more";

    /// The role according to a server's status.
    pub fn of(status: &Status) -> Role {
        match (status.mode, status.serving) {
            (Mode::Looking, _) => Role::Looking,
            (Mode::ReadOnly, _) => Role::ReadOnly,
            (Mode::Standalone | Mode::Leader, true) => Role::Leads,
            (Mode::Standalone | Mode::Leader, false) => Role::Begins,
            (Mode::Follower | Mode::Observer, true) => Role::Follows,
            (Mode::Follower | Mode::Observer, false) => Role::Joins,
        }
    }

    /// The letter in the diagram.
    pub fn letter(self) -> char {
        match self {
            Role::Down => '-',
            Role::Looking | Role::ReadOnly => '?',
            Role::Begins => 'l',
            Role::Joins => ':',
            Role::Leads => 'L',
            Role::Follows => 'f',
        }
    }

    /// The role in words.
    pub fn name(self) -> &'static str {
        match self {
            Role::Down => "is down",
            Role::Looking => "looks for a leader",
            Role::ReadOnly => "looks for a leader and serves read-only clients",
            Role::Begins => "begins to lead",
            Role::Joins => "joins a leader",
            Role::Leads => "leads",
            Role::Follows => "follows",
        }
    }
}
