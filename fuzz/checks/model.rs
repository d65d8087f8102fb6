//! Checks a running server with any sequence of requests, using the simulator's oracles and an
//! ideal disk. The fuzz target and the test that replays its corpus share these checks.
//!
//! The oracles compare each transaction, each reply and each event with the reference model, which
//! does not use the core's tree. An input is the server's settings, followed by actions; see
//! `happens`. Bit 5 of an action joins it with the next one: the server has no turn between them.
//! Unlike `live_server` it writes complete frames only, for each of which the model knows the
//! reply.

mod disk;
mod live;
mod owed;
mod request;
mod settings;
mod source;

use std::net::IpAddr;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use live::{Judge, Live, Seen};
use sim::check::model::Rules;
use sim::check::observe::{ClientId, Holder, Observation, Observed};
use sim::check::oracle::Oracles;
use source::Source;
use zabkeeper_core::wire::{OpCode, Request, XID_AUTH};
use zabkeeper_core::{ConnId, Instant, ServerId, SessionOptions};

/// The only server.
const SERVER: ServerId = ServerId(1);

/// Statistics of an input.
pub(crate) struct Judged {
    pub(crate) answers: usize,
    pub(crate) events: usize,
    /// Oracles that have checked something at least once.
    pub(crate) oracles: Vec<&'static str>,
}

/// The simulator's oracles.
struct Jury(Oracles);

impl Judge for Jury {
    fn address(&self, conn: ConnId) -> IpAddr {
        client(conn).address().parse().expect("clients have addresses")
    }

    fn see(&mut self, at: Instant, what: Seen<'_>) {
        let server = SERVER;
        let what = match what {
            Seen::Opened(conn) => Observation::ConnOpened { client: client(conn), conn, server },
            Seen::ToServer(conn, frame) => Observation::ToServer { conn, frame },
            Seen::ToClient(conn, frame) => Observation::ToClient { conn, frame },
            Seen::Closed(conn) => Observation::ConnClosed { conn },
            Seen::Started => Observation::Started { server, sessions: SessionOptions::default() },
            Seen::Recovered(state, last) => {
                Observation::Recovered { server, state: state.clone(), last }
            }
            Seen::Stopped => Observation::Stopped { server },
            Seen::Input(input) => Observation::Input { server, input },
            Seen::Output(out, status) => Observation::Output {
                server,
                disk: &out.disk,
                peers: &out.peers,
                election: &out.election,
                status,
            },
            Seen::Applied(zxid, digest) => {
                Observation::Applied { server, zxid, digest, holder: Holder(None) }
            }
        };
        self.observe(at, what);
    }
}

impl Jury {
    fn observe(&mut self, at: Instant, what: Observation<'_>) {
        if let Err(violation) = self.0.observe(&Observed { at, what }) {
            panic!("{violation:#?}");
        }
    }
}

/// Each connection counts as another client: a resuming client knows only its session id and
/// password.
fn client(conn: ConnId) -> ClientId {
    ClientId(u32::try_from(conn.0).expect("inputs are short"))
}

/// Checks one input.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Judged {
    let mut source = Source(input);
    let settings = settings::modelled(&mut source);
    let (auth, tree) = (settings.config.auth.clone(), settings.config.tree.clone());
    let rules = Rules { auth, tree, ..Rules::default() };
    let mut live = Live::new(settings, Jury(Oracles::new(&[SERVER], rules).with_bad_clients()));
    let mut slots = [None; 4];
    let mut xid = 0;
    while !source.0.is_empty() {
        xid += 1;
        let waits = source.0[0] & 0x20 != 0;
        happens(&mut live, &mut slots, xid, &mut source);
        if !waits {
            live.turn();
        }
    }
    live.settle_and_check_idle();
    live.restart();
    let ((applied, digest, sessions), holder) = (live.holds(), Holder(None));
    let last = Observation::Final { server: SERVER, applied, digest, holder, sessions };
    let at = live.now();
    live.judge.observe(at, last);
    let Jury(oracles) = &live.judge;
    let judged = oracles.checks().into_iter().filter(|(_, count)| *count > 0);
    Judged {
        answers: live.answers,
        events: live.events,
        oracles: judged.map(|(name, _)| name).collect(),
    }
}

fn happens(
    live: &mut Live<Jury>,
    slots: &mut [Option<ConnId>; 4],
    xid: i32,
    source: &mut Source<'_>,
) {
    let what = source.byte();
    let slot = &mut slots[usize::from(what >> 6)];
    *slot = slot.filter(|conn| live.is_open(*conn));
    match what & 31 {
        0..=2 => {
            let conn = live.open();
            live.greet(conn, 1000 * i32::from(source.byte()), None);
            if let Some(before) = slot.replace(conn) {
                live.drop_conn(before);
            }
        }
        3 | 4 => {
            let known = usize::from(source.byte()) % live.sessions.len().max(1);
            let resume = live.sessions.get(known).cloned();
            let conn = live.open();
            live.greet(conn, 4000, resume);
            *slot = Some(conn);
        }
        5 => {
            if let Some(conn) = slot.take() {
                live.drop_conn(conn);
            }
        }
        6 | 7 => live.pass(millis(source)),
        8 => live.stall(millis(source)),
        9 | 10 => live.finish_log(usize::from(source.byte())),
        11 => live.finish_other(),
        12 => live.settle(),
        13 => live.restart(),
        14 => {
            // Any record, which may not decode, of an operation that is answered in order.
            let op = i32::from(source.byte().cast_signed());
            let apart = [OpCode::Auth, OpCode::Sasl].iter().any(|apart| apart.wire() == op);
            let Some(conn) = slot.filter(|_| !apart) else {
                return;
            };
            let mut frame = BytesMut::new();
            frame.put_i32(xid);
            frame.put_i32(op);
            frame.extend_from_slice(source.bytes());
            live.frame(conn, frame.freeze());
        }
        31 => {
            // How many bytes of output the client takes: all in one of four cases.
            let room = source.byte();
            let room = if room & 3 == 3 { usize::MAX } else { usize::from(room) };
            if let Some(conn) = *slot {
                live.take_output(conn, room);
            }
        }
        _ => {
            let request = request::request(source, false);
            let Some(conn) = *slot else {
                return;
            };
            let xid = if matches!(request, Request::Auth { .. }) { XID_AUTH } else { xid };
            live.ask(conn, xid, request);
        }
    }
}

fn millis(source: &mut Source<'_>) -> Duration {
    let time = u64::from(source.byte());
    Duration::from_millis(time * time)
}
