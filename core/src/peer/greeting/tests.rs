//! Tests of both ends of the handshake, and of the refusals that each end reports.

use super::*;
use crate::peer::frame;

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);
const DIALLER: Nonce = [1; 16];
const LISTENER: Nonce = [2; 16];

fn local(id: ServerId) -> Local {
    Local { id, ensemble: 0, secrets: Secrets::default(), demands_secret: false, version: VERSION }
}

fn with(id: ServerId, secrets: &str, demands_secret: bool) -> Local {
    let secrets = Secrets::parse(secrets).expect("secrets");
    Local { secrets, demands_secret, ..local(id) }
}

/// The results of the dialler and of the listener.
type Ends = (Result<Established, Refusal>, Option<Result<Established, Refusal>>);

/// Server 1 dials server 2: the results of both; `None` if the listener still waits.
fn meet_on(channel: Channel, dialler: &Local, listener: &Local) -> Ends {
    let (dialling, bytes) = Dialling::begin(dialler.clone(), Channel::Quorum, TWO, DIALLER);
    let mut to_listener = BytesMut::from(&bytes[..]);
    let greeting = Greeting::take(&mut to_listener).expect("a greeting").expect("whole");
    if let Err(why) = greeting.check(listener, channel) {
        let answer = greeting.refuse(listener, &why, LISTENER);
        let error = dialling.establish(&mut BytesMut::from(&answer[..]));
        return (Err(error.expect_err("refused")), Some(Err(why)));
    }
    let (accepting, answer) = greeting.welcome(listener, LISTENER);
    for cut in 0..answer.len() {
        let begun = dialling.establish(&mut BytesMut::from(&answer[..cut]));
        assert!(matches!(begun, Ok(None) | Err(_)), "{cut}: {begun:?}");
    }
    match dialling.establish(&mut BytesMut::from(&answer[..])) {
        Ok(None) => panic!("the answer is whole"),
        Ok(Some((established, proof))) => {
            to_listener.extend_from_slice(&proof);
            (Ok(established), accepting.establish(&mut to_listener).transpose())
        }
        Err(why) => (Err(why), accepting.establish(&mut to_listener).transpose()),
    }
}

fn meet(dialler: &Local, listener: &Local) -> Ends {
    meet_on(Channel::Quorum, dialler, listener)
}

/// Both ends are connected, `proven` or not, and read each other's frames.
fn meets(dialler: &Local, listener: &Local, proven: bool) {
    let (Ok(mut here), Some(Ok(mut there))) = meet(dialler, listener) else {
        panic!("refused: {:?}", meet(dialler, listener));
    };
    assert_eq!((here.peer, there.peer), (TWO, ONE));
    assert_eq!((here.proven, there.proven), (proven, proven));
    for word in ["first", "second"] {
        let mut bytes = Vec::new();
        here.writer.encode(&word, &mut bytes);
        let mut buffer = BytesMut::from(&bytes[..]);
        assert_eq!(there.reader.decode::<String>(&mut buffer), Ok(Some(word.to_owned())));
        // A frame is valid neither a second time nor at its sender.
        let mut again = BytesMut::from(&bytes[..]);
        assert_eq!(there.reader.clone().decode::<String>(&mut again).is_err(), proven);
        let mut back = BytesMut::from(&bytes[..]);
        assert_eq!(here.reader.clone().decode::<String>(&mut back).is_err(), proven);
        let mut plain = Vec::new();
        frame::encode(&word, &mut plain);
        let mut plain = BytesMut::from(&plain[..]);
        plain.extend_from_slice(&[0; 64]);
        assert_eq!(there.reader.clone().decode::<String>(&mut plain).is_err(), proven);
    }
}

fn refused(ends: Ends) -> (Refusal, Refusal) {
    let (Err(here), Some(Err(there))) = ends else {
        panic!("not refused by both: {ends:?}");
    };
    (here, there)
}

#[test]
fn servers_without_a_secret_connect() {
    meets(&local(ONE), &local(TWO), false);
}

#[test]
fn both_ends_speak_the_lower_of_their_highest_versions() {
    let of = |id, version| Local { version, ..with(id, "a secret of sixteen bytes", false) };
    for (here, there, spoken) in [(5, 6, 5), (6, 5, 5), (5, 5, 5), (6, 6, 6)] {
        let (Ok(here), Some(Ok(there))) = meet(&of(ONE, here), &of(TWO, there)) else {
            panic!("refused");
        };
        assert_eq!((here.version, there.version), (spoken, spoken));
    }
}

#[test]
fn known_ensemble_ids_must_be_equal() {
    let of = |id, ensemble| Local { ensemble, ..local(id) };
    for (ours, theirs) in [(0, 0), (7, 0), (0, 7), (7, 7)] {
        meets(&of(ONE, ours), &of(TWO, theirs), false);
    }
    let (here, there) = refused(meet(&of(ONE, 7), &of(TWO, 0xa)));
    assert_eq!(here, Refusal::OtherEnsemble { server: TWO, theirs: 0xa, ours: 7 });
    assert_eq!(there, Refusal::OtherEnsemble { server: ONE, theirs: 7, ours: 0xa });
    assert_eq!(
        here.to_string(),
        "server 2 belongs to another ensemble: id 000000000000000a, this one is 0000000000000007: \
         one of both has \
         a foreign data directory, or was empty and has begun an ensemble of its own; move the \
         directory away on that \
         server and start it again"
    );
}

#[test]
fn both_ends_report_why_a_greeting_is_refused() {
    let (here, there) = refused(meet(&local(ONE), &local(ServerId(3))));
    let reached = Refusal::WrongServer { meant: TWO, reached: ServerId(3) };
    assert_eq!((here, there), (reached.clone(), reached));
    let (here, there) = refused(meet_on(Channel::Election, &local(ONE), &local(TWO)));
    assert_eq!((here, there), (Refusal::Channel(1), Refusal::Channel(1)));
    let greeting = |local: Local| {
        let (_, bytes) = Dialling::begin(local, Channel::Quorum, TWO, DIALLER);
        Greeting::take(&mut BytesMut::from(&bytes[..])).unwrap().unwrap()
    };
    assert_eq!(
        greeting(local(TWO)).check(&local(TWO), Channel::Quorum),
        Err(Refusal::Unlisted(TWO)),
        "itself"
    );
    let (dialling, _) = Dialling::begin(local(ONE), Channel::Quorum, TWO, DIALLER);
    for why in [Refusal::Busy(ONE), Refusal::Unknown(ONE, 200)] {
        let bytes = greeting(local(ONE)).refuse(&local(TWO), &why, LISTENER);
        let error = dialling.establish(&mut BytesMut::from(&bytes[..])).unwrap_err();
        assert_eq!(error.verdict(), why.verdict());
    }
}

const OLD: &str = "an old secret of thirty bytes.";
const NEW: &str = "a new secret that is longer yet";

#[test]
fn servers_prove_that_they_know_one_secret() {
    for demands in [true, false] {
        let of = |id, text: &str| with(id, text, demands);
        let both = format!("{NEW}\n{OLD}");
        meets(&of(ONE, OLD), &of(TWO, OLD), true);
        // While the secret is changed: one server has both, then the other one, then the old one is
        // removed.
        meets(&of(ONE, &both), &of(TWO, OLD), true);
        meets(&of(ONE, OLD), &of(TWO, &both), true);
        meets(&of(ONE, &both), &of(TWO, &both), true);
        meets(&of(ONE, NEW), &of(TWO, &both), true);
        let (here, there) = meet(&of(ONE, OLD), &of(TWO, NEW));
        // The listener waits for a proof, and the dialler closes the connection.
        assert_eq!(here.unwrap_err(), Refusal::WrongSecret(TWO));
        assert!(there.is_none());
    }
}

#[test]
fn server_without_a_secret_is_accepted_unless_one_is_required() {
    let (without, may, must) = (local, |id| with(id, OLD, false), |id| with(id, OLD, true));
    meets(&without(ONE), &may(TWO), false);
    meets(&may(ONE), &without(TWO), false);
    meets(&may(ONE), &must(TWO), true);
    meets(&must(ONE), &may(TWO), true);
    let (here, there) = refused(meet(&without(ONE), &must(TWO)));
    assert_eq!((here, there), (Refusal::NoSecretHere(TWO), Refusal::NoSecretThere(ONE)));
    let (here, there) = refused(meet(&must(ONE), &without(TWO)));
    assert_eq!((here, there), (Refusal::NoSecretThere(TWO), Refusal::NoSecretHere(ONE)));
}

/// Proofs that were recorded on one connection are invalid on another one.
#[test]
fn proofs_are_valid_for_one_connection_only() {
    let (one, two) = (with(ONE, OLD, true), with(TWO, OLD, true));
    let (dialling, bytes) = Dialling::begin(one, Channel::Quorum, TWO, DIALLER);
    let greeting = || Greeting::take(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
    let (accepting, answer) = greeting().welcome(&two, LISTENER);
    let (_, proof) = dialling.establish(&mut BytesMut::from(&answer[..])).unwrap().unwrap();
    assert!(accepting.establish(&mut BytesMut::from(&proof[..])).unwrap().is_some());
    // The same greeting and proof are sent again: the listener's nonce differs.
    let (again, _) = greeting().welcome(&two, [3; 16]);
    let replayed = again.establish(&mut BytesMut::from(&proof[..]));
    assert_eq!(replayed.unwrap_err(), Refusal::WrongSecret(ONE));
    // A recorded answer to another greeting.
    let (anew, _) = Dialling::begin(with(ONE, OLD, true), Channel::Quorum, TWO, [4; 16]);
    let replayed = anew.establish(&mut BytesMut::from(&answer[..]));
    assert_eq!(replayed.unwrap_err(), Refusal::WrongSecret(TWO));
    // The listener's own proofs, sent back to it.
    let own = &answer[FACTS_BYTES..];
    let reflected = accepting.establish(&mut BytesMut::from(own));
    assert_eq!(reflected.unwrap_err(), Refusal::WrongSecret(ONE));
    // A man in the middle changes a fact of the answer, and its checksum.
    let mut changed = Facts::take(&mut BytesMut::from(&answer[..])).unwrap().unwrap().0;
    changed.ensemble = 77;
    let changed = [&changed.encode()[..], own].concat();
    let refused = dialling.establish(&mut BytesMut::from(&changed[..]));
    assert_eq!(refused.unwrap_err(), Refusal::WrongSecret(TWO));
}

/// docs/formats.md documents these bytes.
#[test]
fn golden_bytes_of_a_greeting() {
    let local = Local { ensemble: 0x0102, ..with(ONE, OLD, false) };
    let (_, bytes) = Dialling::begin(local, Channel::Quorum, TWO, DIALLER);
    let content = [
        &b"zabk-peer"[..],
        &[6, 5, 0, 63, 0, 1, 1, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0],
        &[1; 16],
    ]
    .concat();
    assert_eq!(bytes[..59], content);
    assert_eq!(bytes[59..], crc32c::crc32c(&content).to_le_bytes());
}

#[test]
fn foreign_bytes_other_versions_and_damage_are_distinguished() {
    let (_, bytes) = Dialling::begin(local(ONE), Channel::Quorum, TWO, DIALLER);
    let take = |bytes: &[u8]| Greeting::take(&mut BytesMut::from(bytes));
    let stranger = Err(Refusal::Malformed(BadFrame::UnknownGreeting));
    assert_eq!(take(b"GET / HTTP/1.1\r\n\r\n"), stranger);
    assert_eq!(take(b"G"), stranger, "at once");
    assert_eq!(take(&[]), Ok(None));
    let mut second = bytes.clone();
    second[9] = 2;
    assert_eq!(take(&second[..31]), Err(Refusal::Version(2, 2)));
    for at in 14..FACTS_BYTES {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(take(&damaged), Err(Refusal::Malformed(BadFrame::Checksum)), "byte {at}");
    }
    // A later version that still understands this one may send longer facts; one that does not is
    // refused for its version.
    let later = |lowest, highest| {
        let mut longer = bytes[..FACTS_BYTES - 4].to_vec();
        longer[9..11].copy_from_slice(&[highest, lowest]);
        longer[12] = u8::try_from(FACTS_BYTES + 6).unwrap();
        longer.extend_from_slice(b"more..");
        longer.extend_from_slice(&crc32c::crc32c(&longer).to_le_bytes());
        let greeting = take(&longer).unwrap().unwrap();
        greeting.check(&local(TWO), Channel::Quorum)
    };
    assert_eq!(later(3, 9), Ok(()));
    assert_eq!(later(8, 9), Err(Refusal::Version(8, 9)));
}
