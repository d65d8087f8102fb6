//! The ports for other servers on loopback. Tests of the driver and of whole ensembles cover the
//! traffic on them.

use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use zabkeeper_core::{ServerAddress, ServerId};

use super::dial::connect;
use super::{bind, listen};
use crate::clock::Clock;
use crate::config::{Ensemble, Settings, parse};
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

type PortOf = fn(&ServerAddress) -> u16;
const QUORUM: PortOf = |address| address.quorum_port;
const ELECTION: PortOf = |address| address.election_port;

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
            let driver = driver::new(&settings, 0, 0, clock.mono());
            let shared = Rc::new(Shared::new(settings, clock, driver));
            let ensemble = shared.settings.ensemble.as_ref().unwrap();
            let [one, two] = [1, 2].map(|id| ensemble.member(ServerId(id)).unwrap());
            let ports = bind(ensemble, one).await.unwrap();
            listen(&shared, ports, configs::channel().1).unwrap();
            let observers = ensemble.observer_port.unwrap();
            for port in [QUORUM, ELECTION] {
                assert!(connect(ensemble, one, port, 0).await.is_ok(), "{host}");
                assert!(connect(ensemble, two, port, 0).await.is_err(), "{host}");
            }
            assert!(connect(ensemble, one, |_| observers, 0).await.is_ok(), "{host}");
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

/// CONF-20.
#[test]
fn one_of_several_addresses_suffices() {
    block_on(async {
        let [a, b, c, d] = free_ports();
        let here = format!("127.0.0.2:{a}:{b}");
        // Nothing listens at this address of the machine, and the second line names no machine.
        let nowhere = format!("127.0.0.3:{c}:{d}");
        let lines = format!(
            "dataDir=/d\nclientPort=1\nmultiAddress.enabled=true\n\
             server.1={here}|192.0.2.1:{a}:{b}\nserver.2={here}|{nowhere}\n\
             server.3={nowhere}|192.0.2.1:{a}:{b}\n"
        );
        let settings = parse("zoo.cfg", &lines, &[], &|_| Ok("1".to_owned())).unwrap().0;
        let clock = Clock::start();
        let driver = driver::new(&settings, 0, 0, clock.mono());
        let shared = Rc::new(Shared::new(settings, clock, driver));
        let ensemble = shared.settings.ensemble.as_ref().unwrap();
        let [one, two, three] = [1, 2, 3].map(|id| ensemble.member(ServerId(id)).unwrap());
        let ports = bind(ensemble, one).await.unwrap();
        listen(&shared, ports, configs::channel().1).unwrap();
        for first in 0..4 {
            for (channel, port) in [(QUORUM, a), (ELECTION, b)] {
                let stream = connect(ensemble, two, channel, first).await.expect("is there");
                assert_eq!(stream.peer_addr().unwrap(), ([127, 0, 0, 2], port).into());
            }
        }
        let mut short = ensemble.clone();
        short.connect_timeout = Duration::from_millis(300);
        assert!(connect(&short, three, QUORUM, 0).await.is_err());
        assert!(bind(&Ensemble { bind_retries: Some(0), ..short }, three).await.is_ok());
    });
}

/// CONF-19, CONF-20.
#[test]
fn several_addresses_with_one_port_are_every_address_once() {
    block_on(async {
        let [a, b] = free_ports();
        let lines = format!(
            "dataDir=/d\nclientPort=1\nmultiAddress.enabled=true\nquorumListenOnAllIPs=true\n\
             server.1=192.0.2.1:{a}:{b}|192.0.2.2:{a}:{b}\nserver.2=c:1:2\n"
        );
        let settings = parse("zoo.cfg", &lines, &[], &|_| Ok("1".to_owned())).unwrap().0;
        let ensemble = settings.ensemble.unwrap();
        assert_eq!(bind(&ensemble, &ensemble.members[0]).await.expect("binds").len(), 2);
    });
}
