//! Tests of ACL-01 to ACL-19. The expected values are the answers of ZooKeeper 3.9.4.

use std::slice;

use super::DigestAlg;
use super::*;

/// The identity of `bob:secret`, from a real server.
const BOB: &str = "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=";

fn acl(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms: Perms(perms), scheme: scheme.into(), id: id.into() }
}

fn world(perms: i32) -> Acl {
    acl(perms, "world", "anyone")
}

fn id(scheme: &str, id: &str) -> Arc<Id> {
    Arc::new(plain(scheme, id))
}

fn plain(scheme: &str, id: &str) -> Id {
    Id { scheme: scheme.into(), id: id.into() }
}

/// Facts of a client with these identities, without data of a node.
fn facts(known: &[Arc<Id>]) -> Facts<'_> {
    Facts { known, data: None }
}

fn builtin() -> Schemes {
    Schemes::new(&AuthOptions::default())
}

/// Do these identities have one of the permissions?
fn may(schemes: &Schemes, ids: &[Arc<Id>], list: &[Acl], perms: Perms) -> bool {
    Who::new(ids, schemes).may(list, &Access::new(perms, "/x"))
}

/// The identities of a client that sends these digest packets, including its address.
fn shown(schemes: &Schemes, packets: &[&[u8]]) -> Vec<Arc<Id>> {
    let mut known = schemes.opened(vec![plain("ip", "127.0.0.1")]);
    for packet in packets {
        let AuthOutcome::Accepted(ids) =
            schemes.authenticate("digest", Some(packet), &facts(known.ids()))
        else {
            panic!("digest takes everything");
        };
        known.extend(ids).expect("few");
    }
    known.ids().to_vec()
}

fn digest(schemes: &Schemes, packet: &[u8]) -> String {
    shown(schemes, &[packet])
        .into_iter()
        .find(|id| id.scheme == "digest")
        .expect("an id")
        .id
        .clone()
}

/// ACL-01.
#[test]
fn edge_179_one_matching_entry_with_a_shared_bit_grants_access() {
    let schemes = builtin();
    let list = [world(1), acl(4, "digest", BOB), acl(8, "ip", "10.0.0.0/8")];
    let bob = shown(&schemes, &[b"bob:secret"]);
    assert!(may(&schemes, &[], &list, Perms::READ));
    assert!(!may(&schemes, &[], &list, Perms::CREATE));
    assert!(may(&schemes, &bob, &list, Perms::CREATE));
    assert!(!may(&schemes, &bob, &list, Perms::DELETE), "from another network");
    assert!(may(&schemes, &[id("ip", "10.1.2.3")], &list, Perms::DELETE));
    assert!(may(&schemes, &[], &[], Perms::DELETE), "no list, no restriction");
}

/// ACL-01.
#[test]
fn edge_178_super_and_skip_acl_pass_every_list() {
    let mut options = AuthOptions::default();
    let schemes = Schemes::new(&options);
    assert!(may(&schemes, &[id("super", "")], &[world(0)], Perms::ADMIN));
    assert!(!may(&schemes, &[], &[world(0)], Perms::ADMIN));
    options.skip_acl = true;
    assert!(may(&Schemes::new(&options), &[], &[world(0)], Perms::ADMIN));
}

/// ACL-01.
#[test]
fn disabled_scheme_matches_no_client() {
    let entry = acl(31, "digest", BOB);
    let options = AuthOptions { digest_disabled: true, ..AuthOptions::default() };
    let schemes = Schemes::new(&options);
    assert!(!may(&schemes, &[id("digest", BOB)], slice::from_ref(&entry), Perms::READ));
    assert!(may(&builtin(), &[id("digest", BOB)], &[entry], Perms::READ));
    assert_eq!(
        schemes.authenticate("digest", Some(b"bob:secret"), &facts(&[])),
        AuthOutcome::Refused
    );
}

/// ACL-04 to ACL-07.
#[test]
fn edges_161_to_164_and_167_to_169_invalid_lists_are_refused() {
    let schemes = builtin();
    let ids = [id("ip", "127.0.0.1")];
    let nobody = Who::new(&ids, &schemes);
    let bad = [
        vec![],
        vec![acl(31, "world", "bob")],
        vec![acl(31, "world", "")],
        vec![acl(31, "auth", "")],
        vec![acl(31, "foo", "x")],
        vec![acl(31, "super", "")],
        vec![acl(31, "x509", "CN=a")],
        vec![acl(31, "ensemble", "a")],
        vec![acl(31, "", "")],
        vec![world(1), acl(31, "foo", "x")],
    ];
    for list in bad {
        assert_eq!(nobody.fixup(list.clone()), Err(ErrorCode::InvalidAcl), "{list:?}");
    }
    let taken = nobody.fixup(vec![world(255), world(0), world(255), world(-1)]);
    assert_eq!(taken, Ok(vec![world(255), world(0), world(-1)]));
}

/// ACL-06.
#[test]
fn edges_165_and_166_auth_entry_expands_to_authenticated_identities() {
    let options = AuthOptions { super_digest: Some(BOB.into()), ..AuthOptions::default() };
    let schemes = Schemes::new(&options);
    let ids = shown(&schemes, &[b"bob:secret"]);
    assert!(ids.contains(&id("super", "")), "ACL-09: {ids:?}");
    let bob = Who::new(&ids, &schemes);
    let expected = acl(3, "digest", BOB);
    assert_eq!(bob.fixup(vec![acl(3, "auth", "whoever")]), Ok(vec![expected.clone()]));
    // Repeated entries are dropped before `auth` is expanded.
    let twice = vec![acl(3, "auth", "a"), acl(3, "auth", "b"), expected.clone()];
    assert_eq!(bob.fixup(twice), Ok(vec![expected.clone(), expected.clone(), expected]));
}

/// ACL-08.
#[test]
fn edge_170_digests_equal_those_of_a_real_server() {
    let golden: [(&[u8], &str); 13] = [
        (b"bob:secret", BOB),
        (b"bob", "bob:SBgazSKz7a68ikR4aKfffOYpkgo="),
        (b"", ":2jmj7l5rSw0yVb/vlWAYkK/YBwk="),
        (b":", ":BaefBs8/Z/cm2uaNGKIpD2yaUMk="),
        (b":p", ":LlDE5iroUDDm9zdvmLsfjkUvn0k="),
        (b"u:", "u:IX23jg4I7W2/R//KoV8VL1UfuBM="),
        (b"a:b:c", "a:cLzgnoJ6mP5qz3w+mwvPE2vDgu0="),
        ("ü:é".as_bytes(), "ü:bWpS2Ha8OYJqPRUYT4h1iRa2nIY="),
        (b"\xff\xfe:x", "\u{fffd}\u{fffd}:sgm2wdkksskeePf9Lr02TkUKDiU="),
        (b"\xed\xa0\x80:y", "\u{fffd}:zEg/V+WFtr3bcEp7QxLrS8fMHjI="),
        ("\u{1f600}:z".as_bytes(), "\u{1f600}:BKkFaJbMj1d6e0+DT7I/wJUVjzE="),
        (b"a\xe2\x82:b", "a\u{fffd}:n0MVaWXdb4SIOy8y3rG4OHNno0Q="),
        (b"\xc0\x80:q", "\u{fffd}\u{fffd}:astRNSoAdpSZCTGCZUTOpUeGT18="),
    ];
    let schemes = builtin();
    for (packet, expected) in golden {
        assert_eq!(digest(&schemes, packet), expected);
    }
    assert_eq!(schemes.authenticate("digest", None, &facts(&[])), AuthOutcome::Refused);
}

/// ACL-08.
#[test]
fn md5_and_sha2_digests_equal_reference_values() {
    let with = |digest_alg| Schemes::new(&AuthOptions { digest_alg, ..AuthOptions::default() });
    let golden = [
        (DigestAlg::Md5, "bob:pasriMfeJxH/y5wk/opUWg=="),
        (DigestAlg::Sha256, "bob:huAluaVu3uER4LIpielGv9Qqk5x3YVDr6I2R/mXf2wE="),
        (
            DigestAlg::Sha512,
            "bob:MON49O1q1UU4gzHRH8XFfdstQyTRtQRoDT+8dvk+qrZdXJegJxeoYDJfch4LeWUjXjSWIiqnKXpFYZi7tC1AZw==",
        ),
    ];
    for (alg, expected) in golden {
        assert_eq!(digest(&with(alg), b"bob:secret"), expected);
    }
}

/// ACL-08.
#[test]
fn edge_163_digest_id_has_two_parts_as_java_splits() {
    let schemes = builtin();
    let nobody = Who::new(&[], &schemes);
    for good in [":b", "a:b", "a:b:", "a:b::"] {
        assert!(nobody.fixup(vec![acl(31, "digest", good)]).is_ok(), "{good}");
    }
    for bad in ["", ":", "::", "ab", "a:", "a:b:c", "a::b"] {
        assert!(nobody.fixup(vec![acl(31, "digest", bad)]).is_err(), "{bad}");
    }
}

/// ACL-10.
#[test]
fn networks_are_accepted_as_by_a_real_server() {
    let schemes = builtin();
    let nobody = Who::new(&[], &schemes);
    let good = [
        "127.0.0.1",
        "127.0.0.1/8",
        "127.0.0.1/0",
        "127.0.0.1/32",
        "127.0.0.1/+8",
        "127.0.0.1/08",
        "127.0.0.01",
        "+127.0.0.1",
        "-0.0.0.0",
        "::1",
        "::",
        "1::",
        "::1/128",
        "::1/0",
        "1:2:3:4:5:6:7:8",
        "1::2:3:4:5:6:7",
        "::2:3:4:5:6:7:8",
        "+1::",
        "-1::",
        "-fff::",
    ];
    for text in good {
        assert!(nobody.fixup(vec![acl(31, "ip", text)]).is_ok(), "{text}");
    }
    let bad = [
        "127.0.0.1/33",
        "127.0.0.1/-1",
        "127.0.0.1/",
        "127.0.0.1/a",
        "127.0.0.1/8/8",
        "127.0.0",
        "127.0.0.1.",
        "256.0.0.1",
        "127.0.0.x",
        ".",
        "",
        "localhost",
        "::1/129",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1::2::3",
        "1::2:3:4:5:6:7:8",
        "12345::",
        "g::",
        "::ffff:127.0.0.1",
        "1:::2",
        "fe80::1%eth0",
        "[::1]",
        ":",
        "1:",
        "127.0.0.1 ",
        "/8",
    ];
    for text in bad {
        assert!(nobody.fixup(vec![acl(31, "ip", text)]).is_err(), "{text}");
    }
}

/// ACL-10.
#[test]
fn network_compares_only_prefix_bits() {
    let schemes = builtin();
    let has = |network: &str, address: &str| {
        may(&schemes, &[id("ip", address)], &[acl(1, "ip", network)], Perms::READ)
    };
    assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
    assert!(has("10.1.2.3/31", "10.1.2.2") && !has("10.1.2.3/31", "10.1.2.4"));
    assert!(has("10.255.0.0/9", "10.128.0.1") && !has("10.255.0.0/9", "10.127.0.1"));
    assert!(has("1.2.3.4/0", "255.255.255.255") && !has("1.2.3.4/0", "::1"));
    assert!(has("fe80::/10", "febf:0:0:0:0:0:0:1") && !has("fe80::/10", "fec0::1"));
    assert!(has("::1", "0:0:0:0:0:0:0:1"));
    assert!(!has("10.1.2.3/33", "10.1.2.3"), "a list of a server that took it grants nothing");
}

/// ACL-11.
#[test]
fn certificate_subject_is_an_identity_and_may_imply_super() {
    let amy = "CN=amy,OU=ops";
    let options =
        AuthOptions { x509: true, x509_super_user: Some(amy.into()), ..AuthOptions::default() };
    let schemes = Schemes::new(&options);
    let known = schemes.opened(vec![plain("x509", amy)]);
    assert_eq!(known.ids().len(), 2);
    assert!(known.ids().contains(&id("super", amy)));
    let bob = schemes.opened(vec![plain("x509", "CN=bob")]);
    assert_eq!(bob.ids()[..], [id("x509", "CN=bob")]);
    let list = [acl(1, "x509", "CN=bob")];
    assert!(may(&schemes, bob.ids(), &list, Perms::READ));
    assert!(!may(&schemes, &[id("x509", "CN=carl")], &list, Perms::READ));
    assert!(may(&schemes, &[id("x509", amy)], &list, Perms::READ), "without its super, too");
    assert_eq!(
        schemes.authenticate("x509", None, &facts(bob.ids())),
        AuthOutcome::Accepted(Vec::new())
    );
    assert_eq!(
        schemes.authenticate("x509", Some(amy.as_bytes()), &facts(&[])),
        AuthOutcome::Refused
    );
}

/// ACL-14.
#[test]
fn edge_182_ensemble_scheme_closes_on_another_name() {
    let mut options = AuthOptions { ensemble: true, ..AuthOptions::default() };
    let open = Schemes::new(&options);
    options.ensemble_names = vec!["a".into(), "b".into()];
    let named = Schemes::new(&options);
    let fine = AuthOutcome::Accepted(Vec::new());
    assert_eq!(open.authenticate("ensemble", Some(b"x"), &facts(&[])), fine);
    for name in [None, Some(&b""[..]), Some(b"a"), Some(b"b")] {
        assert_eq!(named.authenticate("ensemble", name, &facts(&[])), fine);
    }
    assert_eq!(named.authenticate("ensemble", Some(b"c"), &facts(&[])), AuthOutcome::Closed);
    let anybody = Who::new(&[], &named);
    assert!(anybody.fixup(vec![acl(1, "ensemble", "a")]).is_err());
}

/// ACL-15. Each pair was checked against ZooKeeper 3.9.4 with its `KeyAuthenticationProvider`.
#[test]
fn key_scheme_accepts_multiples_of_the_number_in_a_node() {
    let schemes = Schemes::new(&AuthOptions { key: true, ..AuthOptions::default() });
    assert_eq!((schemes.node("key"), schemes.node("digest")), (Some("/key"), None));
    let accepted = AuthOutcome::Accepted(vec![plain("key", "")]);
    let shown = |data: Option<&str>, auth: Option<&str>| {
        let facts = Facts { known: &[], data: data.map(str::as_bytes) };
        schemes.authenticate("key", auth.map(str::as_bytes), &facts)
    };
    assert_eq!(shown(None, Some("x")), accepted, "no node yet, or one without data");
    assert_eq!(shown(None, Some("")), accepted);
    assert_eq!(shown(None, None), AuthOutcome::Refused);
    for (data, taken, refused) in [
        ("", &[][..], &["1"][..]),
        ("7", &["14", "-7", "+14", "0", "-0"], &["15", "abc", "", " 14", "99999999999", "14x"]),
        ("0", &["5"], &["x"]),
        ("-3", &["9"], &["10"]),
        ("x", &[], &["5"]),
        ("7\n", &[], &["7"]),
        ("-1", &["-2147483648"], &[]),
        ("+7", &["14"], &[]),
    ] {
        assert_eq!(shown(Some(data), None), AuthOutcome::Refused, "{data}");
        for auth in taken {
            assert_eq!(shown(Some(data), Some(auth)), accepted, "{data:?} {auth:?}");
        }
        for auth in refused {
            assert_eq!(shown(Some(data), Some(auth)), AuthOutcome::Refused, "{data:?} {auth:?}");
        }
    }
    let ids = [id("key", "")];
    let who = Who::new(&ids, &schemes);
    assert_eq!(who.fixup(vec![acl(31, "auth", "")]), Ok(vec![acl(31, "key", "")]));
    assert_eq!(who.fixup(vec![acl(31, "key", "7")]), Ok(vec![acl(31, "key", "7")]));
    assert!(may(&schemes, &ids, &[acl(1, "key", "")], Perms::READ));
    assert!(!may(&schemes, &ids, &[acl(1, "key", "7")], Perms::READ));
    assert_eq!(who.shown(), [plain("key", "")]);
}

/// ACL-16.
#[test]
fn edge_171_scheme_that_is_not_offered_refuses() {
    for name in ["foo", "world", "auth", "sasl", "super", "ensemble", "x509", ""] {
        assert_eq!(
            builtin().authenticate(name, Some(b"a:b"), &facts(&[])),
            AuthOutcome::Refused,
            "{name}"
        );
    }
}

/// ACL-17.
#[test]
fn edge_173_identities_accumulate_in_the_order_of_a_real_server() {
    let schemes = builtin();
    let packets: [&[u8]; 4] = [b"bob:secret", b"amy:secret", b"cat:secret", b"amy:secret"];
    let ids = shown(&schemes, &packets);
    let who = Who::new(&ids, &schemes);
    let users = [plain("digest", "bob"), plain("digest", "amy"), plain("digest", "cat")];
    assert_eq!(who.shown(), [&users[..], &[plain("ip", "127.0.0.1")]].concat());
    let expected = [
        acl(31, "digest", BOB),
        acl(31, "digest", "amy:Iq0onHjzb4KyxPAp8YWOIC8zzwY="),
        acl(31, "digest", "cat:kpTKxsHnaWPkMfiSwS+QZoqLUF0="),
    ];
    assert_eq!(who.fixup(vec![acl(31, "auth", "")]), Ok(expected.to_vec()));
}

/// A connection with `count` digest identities of `bytes` bytes each, and the result of adding
/// them.
fn crowd(count: usize, bytes: usize) -> (Identities, Result<(), TooMany>) {
    let mut known = builtin().opened(vec![plain("ip", "::1")]);
    let name = |n| format!("{n:06}{}", "u".repeat(bytes - 6));
    let end = (0..count).try_for_each(|n| known.extend([plain("digest", &name(n))]));
    (known, end)
}

/// ACL-17.
#[test]
fn identities_of_one_connection_are_limited_in_number_and_bytes() {
    let (known, end) = crowd(999, 6);
    assert_eq!((known.ids().len(), end), (1_000, Ok(())), "with its address");
    let (mut known, end) = crowd(2_000, 6);
    assert_eq!((known.ids().len(), end), (1_000, Err(TooMany::Identities)));
    assert_eq!(known.extend([plain("digest", "000007")]), Ok(()), "it is there already");
    let (known, end) = crowd(12, 100_000);
    assert_eq!((known.ids().len(), end), (11, Err(TooMany::Bytes)), "10 of them, and its address");
    let both = [plain("digest", "a"), plain("digest", "b")];
    let (mut known, _) = crowd(998, 6);
    assert_eq!(known.extend(both), Err(TooMany::Identities));
    assert_eq!(known.ids().len(), 999, "all or none");
}

/// ACL-17.
#[test]
fn successive_identity_lists_share_their_elements() {
    let (mut known, _) = crowd(20, 6);
    let before = known.ids().clone();
    known.extend([plain("digest", "one more")]).expect("few");
    assert_eq!(known.ids().len(), before.len() + 1);
    let shared = |id: &Arc<Id>| known.ids().iter().any(|other| Arc::ptr_eq(id, other));
    assert!(before.iter().all(shared));
}

/// ACL-17.
#[test]
fn many_identities_are_in_the_order_of_java_buckets() {
    let (known, _) = crowd(900, 6);
    let mut expected = vec![plain("ip", "::1")];
    expected.extend((0..900).map(|n| plain("digest", &format!("{n:06}"))));
    // Sorted once, from the order of insertion: the order of Java's buckets after every doubling.
    expected.sort_by_key(|id| known::hash(id) % known::buckets(901));
    assert!(known.ids().iter().map(|id| &**id).eq(&expected));
}

/// ACL-04.
#[test]
fn repeated_entries_of_a_long_list_are_dropped_in_order() {
    let schemes = builtin();
    let list: Vec<Acl> = (0..40_000).map(world).collect();
    let twice = [&list[..], &list[..]].concat();
    assert_eq!(Who::new(&[], &schemes).fixup(twice), Ok(list));
}

/// ACL-06.
#[test]
fn expansion_of_auth_entries_is_limited() {
    let schemes = builtin();
    let (known, _) = crowd(900, 100);
    let who = Who::new(known.ids(), &schemes);
    let list = |entries| (0..entries).map(|n| acl(n, "auth", "")).collect();
    assert_eq!(who.fixup(list(100)).map(|list| list.len()), Ok(90_000));
    assert_eq!(who.fixup(list(10_000)), Err(ErrorCode::InvalidAcl));
}

/// ACL-19.
#[test]
fn edge_181_required_schemes_decide_which_client_is_served() {
    let options = AuthOptions { required_schemes: vec!["digest".into()], ..AuthOptions::default() };
    let schemes = Schemes::new(&options);
    assert!(!schemes.admit(&shown(&schemes, &[])));
    assert!(schemes.admit(&shown(&schemes, &[b"a:b"])));
    assert!(builtin().admit(&[]));
}

/// OP-06.
#[test]
fn edge_174_redacted_list_hides_digests() {
    let mut list = [acl(1, "digest", BOB), acl(1, "ip", "::1"), acl(1, "digest", "x:y:")];
    redact(&mut list);
    assert_eq!(list, [acl(1, "digest", "bob:x"), acl(1, "ip", "::1"), acl(1, "digest", "x:x")]);
}

/// A scheme that a user of the crate adds: a client that knows a number may create nodes below the
/// node of that number.
#[derive(Debug)]
struct Number;

impl Scheme for Number {
    fn name(&self) -> &str {
        "number"
    }

    fn authenticate(&self, auth: Option<&[u8]>, _facts: &Facts<'_>) -> AuthOutcome {
        match auth.and_then(|auth| str::from_utf8(auth).ok()?.parse::<u8>().ok()) {
            Some(n) => AuthOutcome::Accepted(vec![plain("number", &n.to_string())]),
            None => AuthOutcome::Refused,
        }
    }

    fn is_valid(&self, id: &str) -> bool {
        id == "path"
    }

    fn matches(&self, id: &str, _entry: &str, access: &Access<'_>) -> bool {
        access.perms == Perms::CREATE
            && access.sets.is_some()
            && access.path.split('/').nth(1) == Some(id)
    }
}

/// ACL-15.
#[test]
fn custom_scheme_authenticates_and_grants_access() {
    let mut schemes = builtin();
    schemes.add(Arc::new(Number));
    assert_eq!(schemes.authenticate("number", Some(b"x"), &facts(&[])), AuthOutcome::Refused);
    let AuthOutcome::Accepted(ids) = schemes.authenticate("number", Some(b"007"), &facts(&[]))
    else {
        panic!("seven is a number");
    };
    let ids = Vec::from_iter(ids.into_iter().map(Arc::new));
    let who = Who::new(&ids, &schemes);
    let list = who.fixup(vec![acl(31, "number", "path")]).expect("fine");
    let access = Access::new(Perms::CREATE, "/7/new");
    assert!(who.may(&list, &access.setting(&list)));
    assert!(!who.may(&list, &access));
    assert!(!who.may(&list, &Access::new(Perms::CREATE, "/8/new").setting(&list)));
    assert_eq!(who.fixup(vec![acl(1, "auth", "")]), Ok(vec![acl(1, "number", "7")]));
}
