//! Runs the same sequence of requests in the simulator and against three server processes, and
//! compares all replies and events.
//!
//! The sessions are those of our client library, here over sockets. Each client has the host number
//! that it has in the simulator, in another network: identities and ACLs contain addresses.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sim::check::observe::ClientId;
use sim::clients::diary::{History, Word};
use sim::replay::scene;
use socket2::{Domain, Socket, Type};
use zabkeeper_client::{CallId, Config, Effect, Input, LinkId, Outbox, Session, State};
use zabkeeper_core::wire::Request;

use crate::harness::PATIENCE;
use crate::members::Ensemble;

const SIMULATED_NET: &str = "10.0.0.";
const REAL_NET: &str = "127.0.0.";

struct Client {
    id: ClientId,
    session: Session,
    out: Outbox,
    began: Instant,
    port: u16,
    stream: Option<(LinkId, TcpStream)>,
    calls: u64,
    answered: u64,
    said: Vec<Word>,
}

impl Client {
    fn new(id: u32, port: u16) -> Client {
        let servers = format!("127.0.0.1:{port}").parse().expect("is a connect string");
        let timeout_ms = scene::SESSION_MS.try_into().expect("is small");
        let session = Session::new(Config::new(servers, timeout_ms), id.into());
        let (out, began) = (Outbox::default(), Instant::now());
        let (stream, calls, answered, said) = (None, 0, 0, Vec::new());
        let id = ClientId(id);
        let mut client = Client { id, session, out, began, port, stream, calls, answered, said };
        client.step(Input::Timeout);
        client
    }

    fn step(&mut self, input: Input) {
        let ns = self.began.elapsed().as_nanos().try_into().expect("is short");
        self.session.step(zabkeeper_core::Instant(ns), input, &mut self.out);
        for effect in std::mem::take(&mut self.out.effects) {
            match effect {
                Effect::Dial { link, .. } => {
                    self.stream = Some((link, self.dial()));
                    self.step(Input::Dialled { link });
                }
                Effect::Send { bytes, .. } => {
                    let (_, stream) = self.stream.as_mut().expect("is connected");
                    // If the connection is closed, the next read reports it.
                    let _gone = stream.write_all(&bytes);
                }
                Effect::HangUp { .. } => self.stream = None,
                Effect::Completed(_, result) => {
                    self.answered += 1;
                    self.said.push(Word::Answered(result));
                }
                Effect::Event(event) => self.said.push(Word::Event(event)),
                Effect::State(State::Connecting | State::Connected | State::ConnectedReadOnly)
                | Effect::PresumedExpired => {}
                Effect::State(State::Expired | State::AuthFailed | State::Closed) => {
                    self.said.push(Word::Over);
                }
            }
        }
    }

    fn dial(&self) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let own = format!("{REAL_NET}{}:0", self.id.0).parse::<SocketAddr>().expect("an address");
        socket.bind(&own.into()).expect("is a loopback address");
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], self.port)).into()).expect("connects");
        socket.set_tcp_nodelay(true).expect("is a socket");
        socket.set_nonblocking(true).expect("is a socket");
        socket.into()
    }

    /// Passes a due timeout and received bytes to the session; true if the socket had any input.
    fn read(&mut self) -> bool {
        let now = self.began.elapsed().as_nanos();
        if self.session.next_deadline().is_some_and(|at| u128::from(at.0) <= now) {
            self.step(Input::Timeout);
        }
        let Some((link, stream)) = &mut self.stream else {
            return false;
        };
        let (link, mut chunk) = (*link, [0; 64 << 10]);
        match stream.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Ok(0) | Err(_) => {
                self.stream = None;
                self.step(Input::Disconnected { link });
            }
            Ok(length) => {
                let bytes = Bytes::copy_from_slice(&chunk[..length]);
                self.step(Input::Received { link, bytes });
            }
        }
        true
    }

    fn ask(&mut self, request: Request) {
        self.calls += 1;
        self.step(Input::Submit(CallId(self.calls), request));
    }

    fn is_over(&self) -> bool {
        self.said.last() == Some(&Word::Over)
    }
}

/// Runs all clients until `done`, and appends their replies and events to the history.
fn until(clients: &mut [Client], history: &mut History, done: impl Fn(&[Client]) -> bool) {
    let latest = Instant::now() + PATIENCE;
    while !done(clients) {
        assert!(Instant::now() < latest, "waited in vain after {:?}", history.last());
        let came = clients.iter_mut().fold(false, |came, client| client.read() | came);
        if !came {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    for client in clients {
        history.extend(client.said.drain(..).map(|word| (client.id, word)));
    }
}

/// The request with addresses in its ACLs moved to the real network.
fn in_the_real_net(mut request: Request) -> Request {
    if let Request::Multi(parts) = request {
        return Request::Multi(parts.into_iter().map(in_the_real_net).collect());
    }
    if let Request::Create { acl, .. }
    | Request::CreateContainer { acl, .. }
    | Request::CreateTtl { acl, .. }
    | Request::SetAcl { acl, .. } = &mut request
    {
        for entry in acl {
            entry.id = entry.id.replace(SIMULATED_NET, REAL_NET);
        }
    }
    request
}

/// Sends the requests in `script` to the ensemble; returns the history.
fn perform(ensemble: &Ensemble, script: &History) -> History {
    let mut history = History::new();
    let ports = ensemble.ports.iter().map(|[client, ..]| *client).cycle();
    let mut clients: Vec<Client> =
        (1..=scene::CLIENTS).zip(ports).map(|(id, port)| Client::new(id, port)).collect();
    until(&mut clients, &mut history, |clients| {
        clients.iter().all(|client| client.session.state() == State::Connected)
    });
    for (id, word) in script {
        let at = clients.iter().position(|client| client.id == *id).expect("is in the scene");
        match word {
            Word::Asked(request) => {
                history.push((*id, word.clone()));
                clients[at].ask(in_the_real_net(request.clone()));
                until(&mut clients, &mut history, |clients| {
                    clients[at].answered == clients[at].calls
                });
            }
            Word::Left => {
                history.push((*id, word.clone()));
                clients[at].step(Input::Close);
                until(&mut clients, &mut history, |clients| clients[at].is_over());
            }
            Word::Answered(_) | Word::Event(_) | Word::Over => {}
        }
    }
    history
}

fn lines(history: &History) -> Vec<String> {
    let plain = scene::plain(history).into_iter();
    plain.map(|line| line.replace(REAL_NET, SIMULATED_NET)).collect()
}

#[test]
fn server_processes_answer_as_simulated_servers() {
    for seed in [1, 2, 3] {
        let ensemble = Ensemble::start("");
        let script = scene::play(seed, 500, ensemble.members()).expect("nothing goes wrong");
        let history = perform(&ensemble, &script);
        let (simulated, real) = (lines(&script), lines(&history));
        for (simulated, real) in simulated.iter().zip(&real) {
            assert_eq!(simulated, real, "scene {seed}: what simulated servers said, and real ones");
        }
        assert_eq!(simulated.len(), real.len(), "scene {seed}");
    }
}
