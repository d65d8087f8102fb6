//! Passwords of sessions: ZooKeeper's for sessions created before the ensemble had a secret, and
//! passwords computed with that secret for later sessions.

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::io::{ClientCommand, ClientEvent, Outbox};
use zabkeeper_core::store::DurableState;
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::{ConnectRequest, ConnectResponse, Password};
use zabkeeper_core::{
    Config, ConnId, Epoch, Input, Instant, Now, Server, ServerId, SessionId, Voters, WallMs, Zxid,
};

use crate::play::Disk;

const HERE: ServerId = ServerId(1);

struct Alone {
    server: Server,
    disk: Disk,
    next_conn: u64,
}

impl Alone {
    fn boot(mut disk: Disk) -> Alone {
        let config = Config::new(HERE, Voters::new([HERE]), Duration::from_secs(2)).unwrap();
        let server = Server::recover(config, 7, disk.recovered()).unwrap();
        let mut alone = Alone { server, disk, next_conn: 1 };
        alone.step(Input::Timeout);
        alone
    }

    fn step(&mut self, input: Input) -> Vec<(ConnId, ClientCommand)> {
        let mut inputs = vec![input];
        let mut heard = Vec::new();
        while let Some(input) = inputs.pop() {
            let mut out = Outbox::default();
            let now = Now { mono: Instant(1), wall: WallMs(1_700_000_000_000) };
            self.server.step(now, input, &mut out);
            heard.append(&mut out.clients);
            self.disk.queue.append(&mut out.disk);
            let all = self.disk.queue.len();
            inputs.extend(self.disk.finish(all).into_iter().map(Input::Disk));
        }
        heard
    }

    fn connect(&mut self, session: SessionId, password: &[u8]) -> ConnectResponse {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: 8_000,
            session,
            password: Bytes::copy_from_slice(password),
            read_only: None,
        };
        let heard = self.step(Input::Client(conn, ClientEvent::Opened(request, [].into())));
        let answer = heard.into_iter().find_map(|(to, command)| match command {
            ClientCommand::Connected(response) if to == conn => Some(response),
            ClientCommand::Connected(_)
            | ClientCommand::Reply(_)
            | ClientCommand::Event(_)
            | ClientCommand::Close
            | ClientCommand::Complaint(_) => None,
        });
        answer.unwrap()
    }
}

/// The session of the golden file's first line, with ZooKeeper's password for it.
fn recorded() -> (SessionId, Password) {
    let golden = include_str!("../golden/passwords.txt");
    let line = golden.lines().find(|line| !line.starts_with('#')).unwrap();
    let (id, password) = line.split_once(' ').unwrap();
    let password = u128::from_str_radix(password, 16).unwrap().to_be_bytes();
    (SessionId(i64::from_str_radix(id, 16).unwrap()), password)
}

/// A disk with one session, written before ensembles had a secret.
fn older_data() -> Disk {
    let (session, _) = recorded();
    let mut disk = Disk::default();
    let zxid = Zxid(0x1_0000_0001);
    let origin = Some(Origin::handshake(HERE, ConnId(1)));
    let op = TxnOp::CreateSession { timeout_ms: 8_000 };
    disk.log([Txn { zxid, session, time: WallMs(1), origin, op }.encode()]);
    disk.state = DurableState {
        accepted_epoch: Epoch(1),
        current_epoch: Epoch(1),
        voters: [HERE].into(),
        ..DurableState::default()
    };
    disk
}

/// HS-08.
#[test]
fn each_session_has_its_own_password_which_survives_restart() {
    let mut alone = Alone::boot(Disk::default());
    let [one, other] = [1, 2].map(|_| alone.connect(SessionId(0), &[0; 16]));
    assert_ne!(one.session, other.session);
    assert_ne!(one.password, other.password);
    assert_eq!(alone.connect(one.session, &other.password).session, SessionId(0), "refused");
    assert_eq!(alone.connect(one.session, &one.password), one);
    let Alone { disk, .. } = alone;
    let mut again = Alone::boot(disk);
    assert_eq!(again.connect(one.session, &one.password), one, "after a restart");
}

/// HS-08.
#[test]
fn sessions_older_than_the_secret_keep_their_passwords() {
    let (session, password) = recorded();
    let mut alone = Alone::boot(older_data());
    assert_eq!(alone.connect(session, &[7; 16]).session, SessionId(0), "refused");
    assert_eq!(alone.connect(session, &password).password, password);
    let new = alone.connect(SessionId(0), &[0; 16]);
    let Alone { disk, .. } = alone;
    let mut again = Alone::boot(disk);
    assert_eq!(again.connect(session, &password).password, password);
    assert_eq!(again.connect(new.session, &new.password), new);
}
