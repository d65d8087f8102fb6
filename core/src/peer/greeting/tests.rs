//! Both ends of a greeting, and what each says of the other.

use super::*;
use crate::peer::frame;

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);
const DIALLER: Nonce = [1; 16];
const LISTENER: Nonce = [2; 16];

fn local(id: ServerId) -> Local {
    Local { id, ensemble: 0, secrets: Secrets::default(), demands_secret: false }
}

fn with(id: ServerId, secrets: &str, demands_secret: bool) -> Local {
    let secrets = Secrets::parse(secrets).expect("secrets");
    Local { secrets, demands_secret, ..local(id) }
}

/// How the dialler and the listener end.
type Ends = (Result<Established, Refusal>, Option<Result<Established, Refusal>>);

/// Server 1 dials server 2: what becomes of it on both sides; `None` where the listener waits.
fn meet_on(channel: Channel, dialler: &Local, listener: &Local) -> Ends {
    let (dialling, bytes) = Dialling::begin(dialler.clone(), Channel::Quorum, TWO, DIALLER);
    let mut to_listener = BytesMut::from(&bytes[..]);
    let greeting = Greeting::take(&mut to_listener).expect("a greeting").expect("whole");
    let lists = |id| id == ONE || id == TWO;
    if let Err(why) = greeting.check(listener, channel, lists) {
        let answer = greeting.refuse(listener, &why, LISTENER);
        let told = dialling.establish(&mut BytesMut::from(&answer[..]));
        return (Err(told.expect_err("refused")), Some(Err(why)));
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

/// Both sides are there, proven or not, and understand each other's frames.
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
        // Neither repeated nor sent back.
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
fn servers_without_a_secret_meet() {
    meets(&local(ONE), &local(TWO), false);
}

#[test]
fn ensemble_ids_have_to_be_equal_where_both_are_known() {
    let of = |id, ensemble| Local { ensemble, ..local(id) };
    for (ours, theirs) in [(0, 0), (7, 0), (0, 7), (7, 7)] {
        meets(&of(ONE, ours), &of(TWO, theirs), false);
    }
    let (here, there) = refused(meet(&of(ONE, 7), &of(TWO, 0xa)));
    assert_eq!(here, Refusal::OtherEnsemble { server: TWO, theirs: 0xa, ours: 7 });
    assert_eq!(there, Refusal::OtherEnsemble { server: ONE, theirs: 7, ours: 0xa });
    assert_eq!(
        here.to_string(),
        "server 2 belongs to another ensemble: id 000000000000000a, this one is 0000000000000007: one of both has \
         a foreign data directory, or was empty and has begun an ensemble of its own; move the directory away on that \
         server and start it again"
    );
}

#[test]
fn both_sides_learn_why_a_greeting_is_refused() {
    let stranger = local(ServerId(9));
    let (here, there) = refused(meet(&stranger, &local(TWO)));
    assert_eq!((here, there), (Refusal::UnlistedThere(TWO), Refusal::Unlisted(ServerId(9))));
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
        greeting(local(TWO)).check(&local(TWO), Channel::Quorum, |_| true),
        Err(Refusal::Unlisted(TWO)),
        "itself"
    );
    let (dialling, _) = Dialling::begin(local(ONE), Channel::Quorum, TWO, DIALLER);
    for why in [Refusal::Busy(ONE), Refusal::Unknown(ONE, 200)] {
        let bytes = greeting(local(ONE)).refuse(&local(TWO), &why, LISTENER);
        let told = dialling.establish(&mut BytesMut::from(&bytes[..])).unwrap_err();
        assert_eq!(told.verdict(), why.verdict());
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
        // While it is changed: first one has both, then the other, then the old one goes.
        meets(&of(ONE, &both), &of(TWO, OLD), true);
        meets(&of(ONE, OLD), &of(TWO, &both), true);
        meets(&of(ONE, &both), &of(TWO, &both), true);
        meets(&of(ONE, NEW), &of(TWO, &both), true);
        let (here, there) = meet(&of(ONE, OLD), &of(TWO, NEW));
        // The listener waits for a proof, and the dialler goes.
        assert_eq!(here.unwrap_err(), Refusal::WrongSecret(TWO));
        assert!(there.is_none());
    }
}

#[test]
fn who_has_no_secret_is_let_in_until_one_is_required() {
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

/// Whoever has listened to a connection has no use of its proofs on another one.
#[test]
fn proofs_are_of_one_connection() {
    let (one, two) = (with(ONE, OLD, true), with(TWO, OLD, true));
    let (dialling, bytes) = Dialling::begin(one, Channel::Quorum, TWO, DIALLER);
    let greeting = || Greeting::take(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
    let (accepting, answer) = greeting().welcome(&two, LISTENER);
    let (_, proof) = dialling.establish(&mut BytesMut::from(&answer[..])).unwrap().unwrap();
    assert!(accepting.establish(&mut BytesMut::from(&proof[..])).unwrap().is_some());
    // The same greeting and the same proof once more: the listener's nonce is another one.
    let (again, _) = greeting().welcome(&two, [3; 16]);
    let replayed = again.establish(&mut BytesMut::from(&proof[..]));
    assert_eq!(replayed.unwrap_err(), Refusal::WrongSecret(ONE));
    // An answer that was recorded, to a new greeting.
    let (anew, _) = Dialling::begin(with(ONE, OLD, true), Channel::Quorum, TWO, [4; 16]);
    let replayed = anew.establish(&mut BytesMut::from(&answer[..]));
    assert_eq!(replayed.unwrap_err(), Refusal::WrongSecret(TWO));
    // The listener's own proofs, sent back.
    let own = &answer[FACTS_BYTES..];
    let reflected = accepting.establish(&mut BytesMut::from(own));
    assert_eq!(reflected.unwrap_err(), Refusal::WrongSecret(ONE));
    // Somebody on the path who changes a fact of the answer, with the right checksum.
    let mut changed = Facts::take(&mut BytesMut::from(&answer[..])).unwrap().unwrap().0;
    changed.ensemble = 77;
    let changed = [&changed.encode()[..], own].concat();
    let refused = dialling.establish(&mut BytesMut::from(&changed[..]));
    assert_eq!(refused.unwrap_err(), Refusal::WrongSecret(TWO));
}

/// docs/formats.md has these bytes.
#[test]
fn golden_bytes_of_a_greeting() {
    let local = Local { ensemble: 0x0102, ..with(ONE, OLD, false) };
    let (_, bytes) = Dialling::begin(local, Channel::Quorum, TWO, DIALLER);
    let content = [
        &b"zabk-peer"[..],
        &[5, 5, 0, 63, 0, 1, 1, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0],
        &[1; 16],
    ]
    .concat();
    assert_eq!(bytes[..59], content);
    assert_eq!(bytes[59..], crc32c::crc32c(&content).to_le_bytes());
}

#[test]
fn strangers_other_versions_and_damage_are_told_apart() {
    let (_, bytes) = Dialling::begin(local(ONE), Channel::Quorum, TWO, DIALLER);
    let take = |bytes: &[u8]| Greeting::take(&mut BytesMut::from(bytes));
    let stranger = Err(Refusal::Malformed(BadFrame::Stranger));
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
    // A later version that still speaks this one may say more, and one that does not is told so.
    let later = |lowest, highest| {
        let mut longer = bytes[..FACTS_BYTES - 4].to_vec();
        longer[9..11].copy_from_slice(&[highest, lowest]);
        longer[12] = u8::try_from(FACTS_BYTES + 6).unwrap();
        longer.extend_from_slice(b"more..");
        longer.extend_from_slice(&crc32c::crc32c(&longer).to_le_bytes());
        let greeting = take(&longer).unwrap().unwrap();
        greeting.check(&local(TWO), Channel::Quorum, |_| true)
    };
    assert_eq!(later(3, 9), Ok(()));
    assert_eq!(later(8, 9), Err(Refusal::Version(8, 9)));
}
