//! The entries of the trace that an event of the run makes.
//!
//! Owns their kinds, payloads and texts. Must not know who reads them. Payloads enter the hash of a
//! run, so they keep their old words.

use zabkeeper_core::io::{ClientEvent, PeerEvent};
use zabkeeper_core::store::{DiskEvent, DurableState};
use zabkeeper_core::{Input, Zxid};

use crate::check::observe::ClientId;
use crate::machine::fs::{Crash, Losses};
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::record::role::Role;
use crate::record::trace::Kind;

/// Passes the entries of an event to `note`, as `Shared::note` takes them.
pub(crate) fn entries(
    event: &RunEvent<'_>,
    note: &mut impl FnMut(Kind, (u64, u64), &[u8], &dyn Fn() -> String),
) {
    match *event {
        RunEvent::Started { server, incarnation, changed, .. } => {
            note(Kind::Process, (server.0, incarnation), b"start", &|| {
                format!("s{server} starts, incarnation {incarnation}{changed}")
            });
        }
        RunEvent::Recovered { server, incarnation, state, last, notes, .. } => {
            let payload = format!("{} {} {}", last.0, state.accepted_epoch, state.snapshot.0);
            note(Kind::Process, (server.0, incarnation), payload.as_bytes(), &|| {
                let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
                format!("s{server} recovered: log ends at {last}, {}{notes}", state_text(state))
            });
        }
        RunEvent::RoleChanged { server, incarnation, status } => {
            let role = Role::of(status);
            note(Kind::Process, (server.0, incarnation), &[role as u8], &|| {
                let halted = status.halted.is_some();
                format!("s{server} {}", if halted { Role::HALTED } else { role.name() })
            });
        }
        RunEvent::Ended { server, incarnation, planned, losses, .. } => {
            note(Kind::Process, (server.0, incarnation), b"crash", &|| match planned {
                Crash::Kill => format!("s{server} is killed"),
                Crash::Power { .. } => format!("s{server} loses power"),
            });
            let counts = losses.fields().map(|(_, count)| count.to_le_bytes());
            note(Kind::Process, (server.0, incarnation), counts.as_flattened(), &|| {
                format!("s{server} after the crash, on its disk: {}", losses_text(losses))
            });
        }
        RunEvent::Wiped { server, incarnation } => {
            note(Kind::Process, (server.0, incarnation), b"wipe", &|| {
                format!("s{server} has an empty disk")
            });
        }
        RunEvent::Input { server, input, completes } => {
            let (number, what) = summary(input);
            note(Kind::Step, (server.0, number), what, &|| format!("s{server} {input}{completes}"));
        }
        RunEvent::Healed { outside } => note(Kind::Phase, (0, 0), b"heal", &|| {
            if outside.is_empty() { "heal".to_owned() } else { format!("heal: {outside}") }
        }),
        RunEvent::Client(client, ref event) => of_client(client, event, note),
        RunEvent::MarksHit { .. } | RunEvent::FaultHit(_) | RunEvent::LateFault { .. } => {}
    }
}

fn of_client(
    ClientId(id): ClientId,
    event: &ClientRunEvent<'_>,
    note: &mut impl FnMut(Kind, (u64, u64), &[u8], &dyn Fn() -> String),
) {
    match *event {
        ClientRunEvent::Connected { conn, server } => {
            note(Kind::Conn, (id.into(), conn.0), b"open", &|| {
                format!("client {id} connected to s{server} by {conn}")
            });
        }
        ClientRunEvent::BadClientConnected { conn, server, session } => {
            note(Kind::Conn, (id.into(), conn.0), b"intruder", &|| {
                let wants = session.map(|id| format!(" for session {id}")).unwrap_or_default();
                format!("bad client {id} connects to s{server} by {conn}{wants}")
            });
        }
        ClientRunEvent::HangsUp { conn } => {
            note(Kind::Conn, (id.into(), conn.0), b"hang up", &|| {
                format!("client {id} hangs up {conn}")
            });
        }
        ClientRunEvent::ConnLost { conn, why } => {
            note(Kind::Conn, (id.into(), conn.0), b"gone", &|| {
                format!("client {id} lost {conn}: {why:?}")
            });
        }
        ClientRunEvent::Called { call, op, request } => {
            note(Kind::Call, (id.into(), call.0), &[op as u8], &|| {
                format!("client {id} {call} {request}")
            });
        }
        ClientRunEvent::CallEnded { call, op, outcome, result } => {
            let zxid = result.as_ref().map_or(0, |done| done.zxid.0);
            let ends = (id.into(), call.0 ^ zxid.rotate_left(8));
            note(Kind::Call, ends, &[op as u8, outcome as u8], &|| {
                format!("client {id} {call} {result:?}")
            });
        }
    }
}

fn state_text(state: &DurableState) -> String {
    let snapshot = match state.snapshot {
        Zxid::ZERO => "no snapshot".to_owned(),
        zxid => format!("snapshot {zxid}"),
    };
    let damaged = if state.damaged { ", damaged" } else { "" };
    let (promised, history) = (state.accepted_epoch, state.current_epoch);
    format!("promised epoch {promised}, history of epoch {history}, {snapshot}{damaged}")
}

fn losses_text(losses: &Losses) -> String {
    let taken = losses.fields().into_iter().filter(|(_, count)| *count > 0);
    let taken: Vec<String> = taken.map(|(what, count)| format!("{count} {what}")).collect();
    if taken.is_empty() { "all kept".to_owned() } else { taken.join(", ") }
}

/// An input as numbers, for the hash of the trace; bytes that have arrived are in the hash already.
fn summary(input: &Input) -> (u64, &'static [u8]) {
    match input {
        Input::Timeout => (0, b"timeout"),
        Input::Stop => (0, b"stop"),
        Input::Oracle(permits) => (u64::from(*permits), b"oracle"),
        Input::Client(conn, ClientEvent::Opened(..)) => (conn.0, b"opened"),
        Input::Client(conn, ClientEvent::Request(_)) => (conn.0, b"request"),
        Input::Client(conn, ClientEvent::Closed) => (conn.0, b"closed"),
        Input::Client(conn, ClientEvent::Heartbeat) => (conn.0, b"heard"),
        Input::Election(from, _) => (from.0, b"notification"),
        Input::EnsembleConfig(from, _) => (from.0, b"ensemble config"),
        Input::Peer(link, PeerEvent::Up { .. }) => (link.0, b"up"),
        Input::Peer(link, PeerEvent::Unreachable { .. }) => (link.0, b"unreachable"),
        Input::Peer(link, PeerEvent::Message(_)) => (link.0, b"message"),
        Input::Peer(link, PeerEvent::Drained) => (link.0, b"drained"),
        Input::Peer(link, PeerEvent::Down) => (link.0, b"down"),
        Input::Peer(link, PeerEvent::Version(_)) => (link.0, b"version"),
        Input::Disk(DiskEvent::Done(id)) => (id.0, b"done"),
        Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
            (zxid.0 ^ u64::from(*index).rotate_left(40), b"chunk")
        }
        Input::Disk(DiskEvent::SnapshotFailed { zxid, .. }) => (zxid.0, b"snapshot failed"),
        Input::Disk(DiskEvent::Failed(_)) => (0, b"failed"),
        Input::Disk(DiskEvent::LogRead { link, .. }) => (link.0, b"log read"),
        Input::Disk(DiskEvent::SnapshotRead { link, .. }) => (link.0, b"snapshot read"),
    }
}
