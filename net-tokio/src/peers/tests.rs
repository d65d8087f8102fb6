//! The ports for other servers on loopback. Tests of the driver and of whole ensembles cover the
//! traffic on them.

use std::net::TcpListener;
use std::rc::Rc;

use tokio::runtime::{Builder, LocalOptions};
use zabkeeper_core::ServerId;

use super::dial::connect;
use super::{bind, listen};
use crate::clock::Clock;
use crate::config::{Settings, parse};
use crate::configs;
use crate::driver;
use crate::shared::Shared;

fn block_on(test: impl Future<Output = ()>) {
    let runtime =
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn settings(host: &str, [a, b, c, d, e]: [u16; 5]) -> Settings {
    let lines =
        format!("dataDir=/d\nclientPort=1\nserver.1={host}:{a}:{b}\nserver.2={host}:{c}:{d}\n");
    let lines = lines + &format!("observerMasterPort={e}\n");
    parse("zoo.cfg", &lines, &[], &|_| Ok("1".to_owned())).unwrap().0
}

#[test]
fn server_is_reached_at_its_names_and_addresses() {
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        block_on(async {
            let (settings, clock) = (settings(host, free_ports()), Clock::start());
            let driver = driver::new(&settings, 0, &clock);
            let shared = Rc::new(Shared::new(settings, clock, driver));
            let ensemble = shared.settings.ensemble.as_ref().unwrap();
            let [one, two] = [1, 2].map(|id| ensemble.member(ServerId(id)).unwrap());
            let ports = bind(ensemble, one).await.unwrap();
            listen(&shared, ports, configs::channel().1).unwrap();
            let observers = ensemble.observer_port.unwrap();
            for port in [one.quorum_port, one.election_port, observers] {
                assert!(connect(ensemble, one, port).await.is_ok(), "{host} {port}");
            }
            for port in [two.quorum_port, two.election_port] {
                assert!(connect(ensemble, two, port).await.is_err(), "{host} {port}");
            }
        });
    }
}

#[test]
fn address_that_cannot_be_bound_names_its_line() {
    block_on(async {
        let [taken, b, c, d, e] = free_ports();
        let _holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
        let ensemble = settings("127.0.0.1", [taken, b, c, d, e]).ensemble.unwrap();
        let error = bind(&ensemble, &ensemble.members[0]).await.err().unwrap();
        let expected = format!(
            "cannot listen for other servers on 127.0.0.1:{taken}, as server.1 says: Address \
             already \
             in use (os error 98)"
        );
        assert_eq!(error, expected);
    });
}
