//! Recovery from states of the disk that no server writes.

use std::time::Duration;

use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::{Config, Epoch, Server, ServerId, SessionId, Voters, WallMs, Zxid};

use crate::play::Disk;

const HERE: ServerId = ServerId(1);

/// `Server::recover` reports state that no server writes, before the server relies on it.
#[test]
fn recovery_refuses_epochs_that_were_never_promised() {
    let recover = |accepted: u32, current: u32, zxid: Option<Zxid>| {
        let mut disk = Disk::default();
        disk.state.accepted_epoch = Epoch(accepted);
        disk.state.current_epoch = Epoch(current);
        let op = TxnOp::CreateSession { timeout_ms: 4_000 };
        let txn = |zxid| Txn { zxid, session: SessionId(7), time: WallMs(1), origin: None, op };
        disk.log(zxid.map(txn).map(|txn| txn.encode()));
        let config = Config::new(HERE, Voters::new([HERE]), Duration::from_secs(2)).unwrap();
        Server::recover(config, 7, disk.recovered()).map(|_| ()).map_err(|damage| damage.what)
    };
    let first = |epoch: u32| Zxid::start_of(Epoch(epoch)).next();
    assert_eq!(recover(2, 1, first(2)), Ok(()));
    assert_eq!(
        recover(1, 50, None),
        Err("epoch 50 is entered, and only epoch 1 is promised".to_owned())
    );
    assert_eq!(
        recover(2, 2, first(3)),
        Err("the log ends at 0x300000001, and only epoch 2 is promised".to_owned())
    );
}
