//! The same scene for real: what was heard in a simulated ensemble has to be heard from three processes.
//!
//! The sessions are those of the client library, as in the simulator; here over sockets. Each client has the address that
//! it has there, in another net: identities and lists name addresses.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sim::observe::ClientId;
use sim::scene::{self, History, Word};
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
                    // Where the server has gone, reading will tell.
                    let _gone = stream.write_all(&bytes);
                }
                Effect::HangUp { .. } => self.stream = None,
                Effect::Completed(_, result) => {
                    self.answered += 1;
                    self.said.push(Word::Answered(result));
                }
                Effect::Event(event) => self.said.push(Word::Heard(event)),
                Effect::State(State::Connecting | State::Connected) => {}
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

    /// Hands over what has come, if anything.
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

/// Serves all clients until `done`; what they have said and heard by then goes into the history.
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

/// The same with the lists' addresses in the other net.
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

/// Plays what was said in `script` to the ensemble.
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
            Word::Answered(_) | Word::Heard(_) | Word::Over => {}
        }
    }
    history
}

fn lines(history: &History) -> Vec<String> {
    let plain = scene::plain(history).into_iter();
    plain.map(|line| line.replace(REAL_NET, SIMULATED_NET)).collect()
}

#[test]
fn real_servers_say_what_simulated_ones_say() {
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
