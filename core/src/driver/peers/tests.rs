//! What the core of each server gets, over the pipes of `net`.

use net::{Net, ack, down, greeting, notification, options, proposal, sync};

use super::*;
use crate::ids::Zxid;
use crate::peer::secret::Secrets;
use crate::peer::{FromLeader, LinkCloseReason, PeerMessage, frame};

mod net;

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);

#[test]
fn messages_arrive_in_order_in_both_directions() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    let sent: Vec<PeerMessage> = (0..300).map(|number| proposal(number, 10_000)).collect();
    for message in &sent {
        net.order(TWO, PeerCommand::Send(there, message.clone()));
    }
    net.order(ONE, PeerCommand::Send(here, sync(7)));
    let message = |message: &PeerMessage| Input::Peer(here, PeerEvent::Message(message.clone()));
    let mut expected = vec![Input::Peer(here, PeerEvent::Drained)];
    expected.extend(sent.iter().map(message));
    assert_eq!(net.take(ONE), expected);
    let [drained, synced] = [PeerEvent::Drained, PeerEvent::Message(sync(7))];
    let mut at_two = net.take(TWO);
    at_two.sort_by_key(|input| matches!(input, Input::Peer(_, PeerEvent::Message(_))));
    assert_eq!(at_two, [Input::Peer(there, drained), Input::Peer(there, synced)]);
}

#[test]
fn close_sends_queued_messages_first_and_reports_down_once() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    net.order(TWO, PeerCommand::Send(there, proposal(1, 1 << 20)));
    net.order(TWO, PeerCommand::Close(there, LinkCloseReason::Unwanted));
    net.order(TWO, PeerCommand::Close(there, LinkCloseReason::Unwanted));
    net.order(TWO, PeerCommand::Send(there, proposal(2, 1)));
    assert_eq!(net.take(TWO), [down(there)]);
    let message = Input::Peer(here, PeerEvent::Message(proposal(1, 1 << 20)));
    assert_eq!(net.take(ONE), [message, down(here)]);
    assert!(net.pipes.is_empty() && net.ends.values().all(|end| end.conns.is_empty()));
    // The link was brief, so a pause follows.
    net.order(ONE, PeerCommand::Dial(TWO));
    assert_eq!(net.take(ONE), []);
    net.pass(10);
    let later = net.take(ONE);
    assert!(matches!(later[..], [Input::Peer(link, PeerEvent::Up { .. })] if link > here));
}

/// Regression: a server without a place at its leader dialled it as fast as the network allowed.
#[test]
fn pause_before_a_refused_link_grows_until_the_server_looks_for_a_leader() {
    let mut net = Net::new(&options(None));
    let mut waits = Vec::new();
    let leads = |round| Notification { server_state: ServerState::Leading, ..notification(round) };
    for round in 0..9 {
        let began = net.now;
        net.order(ONE, PeerCommand::Dial(TWO));
        net.say(TWO, ONE, if round < 8 { leads(round) } else { notification(round) });
        while net.take(ONE).iter().all(|input| matches!(input, Input::Election(..))) {
            net.pass(10);
        }
        waits.push(net.now.since(began).as_millis());
        let [Input::Peer(there, PeerEvent::Up { .. })] = net.take(TWO)[..] else {
            panic!("it was not dialled");
        };
        net.order(TWO, PeerCommand::Close(there, LinkCloseReason::Follows));
        net.run();
        net.take(ONE);
        net.take(TWO);
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 320, 640, 0]);
}

#[test]
fn pause_before_a_dial_grows_until_the_server_connects() {
    let mut net = Net::new(&options(None));
    net.absent.insert(TWO);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let began = net.now;
        net.order(ONE, PeerCommand::Dial(TWO));
        while net.take(ONE).is_empty() {
            net.pass(10);
        }
        waits.push(net.now.since(began).as_millis());
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 320, 640, 1000]);
    let (_, why) = net.end(ONE).failure(TWO).expect("it was not reached").clone();
    assert_eq!(why.to_string(), "nobody is there");
    // The next pause would be a second, but a message of the other server ends it.
    net.absent.clear();
    net.order(ONE, PeerCommand::Dial(TWO));
    net.notify(TWO, ONE, 5);
    let inputs = net.take(ONE);
    assert_eq!(inputs[0], Input::Election(TWO, notification(5)));
    assert!(matches!(inputs[1], Input::Peer(_, PeerEvent::Up { dialled: true, .. })));
    assert!(
        net.end(ONE).failure(TWO).is_none() && net.end(ONE).receives_notifications_from_us(TWO)
    );
}

/// CONF-20.
#[test]
fn attempt_after_a_failure_begins_with_another_address() {
    let mut net = Net::new(&options(None));
    let began = net.now;
    let first = |net: &mut Net, now: Instant| {
        net.end(ONE).deliver(&mut vec![PeerCommand::Dial(TWO)], &mut Vec::new(), now);
        let dial = net.end(ONE).next_dial(now, || LinkId(now.0)).expect("it is due");
        assert_eq!((dial.to, dial.channel), (TWO, Channel::Quorum));
        (dial.link, dial.first)
    };
    let mut seen = Vec::new();
    for second in 1..=3 {
        let now = began.after(Duration::from_secs(second));
        let (link, at) = first(&mut net, now);
        seen.push(at);
        if second == 1 {
            // Its address accepts the connection, and nobody answers.
            net.end(ONE).connected(link, Nonce::default(), now);
            net.end(ONE).receive_end(link, now);
        } else {
            net.end(ONE).unreachable(link, "nobody is there".to_owned(), now);
        }
    }
    net.end(ONE).push(Input::Election(TWO, notification(5)));
    seen.push(first(&mut net, began.after(Duration::from_secs(4))).1);
    assert_eq!(seen, [0, 1, 2, 0], "a message ends the count");
}

#[test]
fn server_that_connects_is_dialled_at_once_although_an_attempt_is_unanswered() {
    let mut net = Net::new(&options(None));
    net.silent.insert(TWO);
    net.notify(ONE, TWO, 1);
    net.run();
    let [attempt] = net.unanswered[..] else { panic!("one attempt: {:?}", net.unanswered) };
    net.silent.clear();
    net.notify(TWO, ONE, 5);
    assert_eq!(net.take(ONE), [Input::Election(TWO, notification(5))]);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(1))]);
    let now = net.now;
    net.end(ONE).unreachable(attempt, "timed out".to_owned(), now);
    assert!(net.end(ONE).failure(TWO).is_none(), "a later attempt has succeeded");
    net.end(ONE).connected(attempt, Nonce::default(), now);
    assert_eq!(net.end(ONE).interest(attempt), Interest::Close);
    net.run();
    net.notify(ONE, TWO, 2);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(2))]);
}

#[test]
fn attempts_to_dial_are_abandoned_at_most_once_a_second() {
    let mut net = Net::new(&options(None));
    net.silent.insert(TWO);
    net.notify(ONE, TWO, 1);
    net.run();
    for _ in 0..3 {
        net.greet(ONE, Channel::Election, 2, 2);
    }
    assert_eq!(net.unanswered.len(), 2, "the first one is abandoned, and the second is not");
    net.pass(1_000);
    net.greet(ONE, Channel::Election, 2, 2);
    assert_eq!(net.unanswered.len(), 3);
}

#[test]
fn only_the_newest_notification_waits_for_a_connection() {
    let mut net = Net::new(&options(None));
    net.absent.insert(TWO);
    (1..=3).for_each(|round| net.notify(ONE, TWO, round));
    net.pass(50);
    net.notify(ONE, TWO, 4);
    net.absent.clear();
    net.pass(200);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(4))]);
    // The socket takes no output: after 5 s the newest notification replaces the queued one, on
    // another connection.
    let link = net.end(ONE).peers[&TWO].sender.expect("it is connected");
    net.stuck.insert(link);
    net.notify(ONE, TWO, 5);
    net.run();
    net.notify(ONE, TWO, 6);
    net.notify(ONE, TWO, 7);
    net.pass(6_000);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(7))]);
}

#[test]
fn notification_that_has_not_left_is_sent_again_unless_a_newer_one_waits() {
    let mut net = Net::new(&options(None));
    net.notify(ONE, TWO, 1);
    assert_eq!(net.take(TWO).len(), 1);
    let link = net.end(ONE).peers[&TWO].sender.expect("it is connected");
    net.stuck.insert(link);
    net.notify(ONE, TWO, 2);
    net.run();
    let now = net.now;
    net.end(ONE).receive_end(link, now);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(2))]);
}

#[test]
fn notifications_beyond_a_burst_wait_and_the_newest_of_them_counts() {
    let mut net = Net::new(&options(None));
    let link = net.greet(TWO, Channel::Election, 1, 1);
    for round in 1..=200 {
        let mut bytes = Vec::new();
        frame::encode(&notification(round), &mut bytes);
        net.write(TWO, link, &bytes);
    }
    let inputs = net.take(TWO);
    assert_eq!(inputs.len(), 51, "a burst of 50, and one that empties the bucket's debt");
    net.pass(20);
    let last = net.take(TWO);
    assert_eq!(last, [Input::Election(ONE, notification(200))]);
    assert!(net.end(TWO).next_deadline().is_none_or(|due| due > net.now));
}

#[test]
fn connections_without_a_valid_greeting_are_closed_with_the_reason() {
    let mut net = Net::new(&options(None));
    let [here, there] = net.linked();
    for channel in [Channel::Quorum, Channel::Election] {
        for (from, to) in [(1, 3), (7, 3), (2, 2)] {
            let link = net.connect(TWO, channel, 9);
            net.write(TWO, link, &greeting(channel, ServerId(from), ServerId(to)));
            assert!(net.is_closed(TWO, link), "{from} {to}");
            assert_eq!(net.received[&link].len(), 63, "it is told why");
        }
        let garbage = net.connect(TWO, channel, 9);
        net.write(TWO, garbage, &[b'x'; 100]);
        assert!(net.is_closed(TWO, garbage));
        let silent = net.connect(TWO, channel, 9);
        net.pass(2_990);
        assert!(!net.is_closed(TWO, silent));
        net.pass(20);
        assert!(net.is_closed(TWO, silent));
        let probe = net.connect(TWO, channel, 9);
        net.pipes.get_mut(&(TWO, probe)).expect("it is open").ended = true;
        net.run();
        assert!(net.is_closed(TWO, probe));
        let kinds: Vec<&str> = net.rejected().iter().map(PeerCloseReason::kind).collect();
        assert_eq!(kinds[3..], ["malformed", "silent"], "{kinds:?}");
    }
    let confused = net.connect(TWO, Channel::Quorum, 9);
    net.write(TWO, confused, &greeting(Channel::Election, ONE, TWO));
    assert!(net.is_closed(TWO, confused));
    let garbage = net.greet(TWO, Channel::Election, 1, 9);
    net.write(TWO, garbage, &[0xff; 100]);
    assert!(net.is_closed(TWO, garbage));
    net.order(ONE, PeerCommand::Send(here, sync(1)));
    assert_eq!(net.take(TWO), [Input::Peer(there, PeerEvent::Message(sync(1)))]);
}

/// RECONF-13, RECONF-15.
#[test]
fn server_that_is_no_member_is_answered_on_its_own_connection() {
    let mut net = Net::new(&options(None));
    let link = net.greet(TWO, Channel::Election, 7, 9);
    let before = net.received[&link].len();
    net.notify(TWO, ServerId(7), 1);
    net.run();
    let mut answer = Vec::new();
    frame::encode(&notification(1), &mut answer);
    assert_eq!(net.received[&link][before..], answer);
    assert_eq!(net.end(TWO).next_dial(Instant(u64::MAX), || LinkId(99)), None);
    // The server that asks reads the answer on the connection that it has dialled.
    net.notify(ONE, TWO, 3);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(3))]);
    let there = net.end(TWO).peers[&ONE].listeners[0];
    let nobody = Arc::new(Members::new(crate::Voters::new([TWO])));
    net.end(TWO).set_members(&nobody);
    net.notify(TWO, ONE, 4);
    assert_eq!(net.take(ONE), [Input::Election(TWO, notification(4))]);
    assert!(!net.is_closed(TWO, there));
}

#[test]
fn number_of_servers_that_are_no_members_is_bounded() {
    let mut net = Net::new(&options(None));
    let bound = u64::try_from(unlisted::UNLISTED_MAX).expect("small");
    let connect = |net: &mut Net, id: u64| {
        let link = net.connect(TWO, Channel::Election, 9);
        net.write(TWO, link, &greeting(Channel::Election, ServerId(id), TWO));
        (link, net.is_closed(TWO, link))
    };
    let links: Vec<_> = (0..bound).map(|id| connect(&mut net, 100 + id)).collect();
    assert!(links.iter().all(|(_, closed)| !closed));
    assert!(connect(&mut net, 99).1, "one too many");
    assert!(!connect(&mut net, 100).1 && !connect(&mut net, 1).1, "known servers");
    let now = net.now;
    net.end(TWO).forget(links[1].0, now);
    assert!(!connect(&mut net, 99).1, "one has gone");
}

#[test]
fn oldest_connection_without_a_greeting_is_closed_and_a_server_is_accepted() {
    let mut net = Net::new(&options(None));
    let silent: Vec<LinkId> = (0..100).map(|_| net.connect(TWO, Channel::Quorum, 9)).collect();
    net.run();
    let open = silent.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(open, UNGREETED_MAX);
    assert!(net.is_closed(TWO, silent[0]) && !net.is_closed(TWO, silent[99]));
    net.linked();
}

#[test]
fn active_link_is_kept_and_a_silent_or_closed_one_is_replaced() {
    let mut net = Net::new(&options(None));
    // A link is silent after half of the sync limit of 5 s.
    let old = net.greet(TWO, Channel::Quorum, 1, 1);
    let up = |link| Input::Peer(link, PeerEvent::Up { peer: ONE, dialled: false });
    assert_eq!(net.take(TWO), [up(old)]);
    net.pass(2_000);
    net.write(TWO, old, &ack());
    assert_eq!(net.take(TWO).len(), 1);
    let refused = net.greet(TWO, Channel::Quorum, 1, 9);
    let later = net.greet(TWO, Channel::Quorum, 1, 1);
    net.pass(2_490);
    assert_eq!(net.take(TWO), []);
    net.pass(20);
    let inputs = net.take(TWO);
    assert_eq!(inputs[..2], [down(old), up(refused)], "whoever came first has the place");
    net.pass(3_000);
    assert!(net.is_closed(TWO, later));
    net.take(TWO);
    // When the link closes, its place is free at once.
    let waits = net.greet(TWO, Channel::Quorum, 1, 1);
    net.write(TWO, refused, &[0xff; 100]);
    assert_eq!(net.take(TWO), [down(refused), up(waits)]);
}

#[test]
fn too_frequent_connections_are_refused_without_the_core() {
    let mut net = Net::new(&options(None));
    let stands = net.greet(TWO, Channel::Quorum, 1, 1);
    net.take(TWO);
    let many: Vec<LinkId> = (0..100).map(|_| net.greet(TWO, Channel::Quorum, 1, 1)).collect();
    let waiting = many.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(waiting, QUEUED_MAX);
    assert_eq!(net.take(TWO), []);
    let busy = net.rejected();
    assert_eq!(busy.len(), 96);
    assert!(
        busy.iter()
            .all(|why| *why == PeerCloseReason::Refused(crate::peer::greeting::Refusal::Busy(ONE)))
    );
    assert!(!net.is_closed(TWO, stands));
}

#[test]
fn notification_connections_are_bounded_and_a_silent_one_is_closed_first() {
    let mut net = Net::new(&options(None));
    let links: Vec<LinkId> = (0..4).map(|_| net.greet(TWO, Channel::Election, 1, 1)).collect();
    let mut bytes = Vec::new();
    frame::encode(&notification(1), &mut bytes);
    net.write(TWO, links[0], &bytes);
    net.greet(TWO, Channel::Election, 1, 1);
    let open = links.iter().map(|link| !net.is_closed(TWO, *link)).collect::<Vec<_>>();
    assert_eq!(open, [true, false, true, true]);
}

#[test]
fn long_frames_are_read_only_on_links_on_which_the_core_has_sent() {
    // The first byte of the content is the type of the message: a request of a client, or a
    // proposal, which no learner sends.
    for (content, taken, read) in [(6, true, true), (6, false, false), (3, true, false)] {
        let mut net = Net::new(&options(None));
        let link = net.greet(TWO, Channel::Quorum, 1, 1);
        net.take(TWO);
        if taken {
            let commit = FromLeader::Commit { zxid: Zxid(1) }.into();
            net.order(TWO, PeerCommand::Send(link, commit));
            net.run();
        }
        let head = [&(5_u32 << 20).to_le_bytes()[..], &[0; 4], &[content; 9]].concat();
        net.write(TWO, link, &head);
        assert_eq!(!net.is_closed(TWO, link), read, "{content} {taken}");
    }
}

#[test]
fn unfinished_message_closes_its_link() {
    let mut net = Net::new(&options(None));
    let link = net.greet(TWO, Channel::Quorum, 1, 1);
    let other = net.greet(TWO, Channel::Election, 1, 1);
    net.take(TWO);
    net.write(TWO, other, &[9]);
    let bytes = ack();
    // More bytes of the same message do not prolong its time.
    for byte in &bytes[..bytes.len() - 1] {
        net.write(TWO, link, &[*byte]);
        net.pass(300);
    }
    net.pass(5_000 - 300 * (bytes.len() as u64 - 1) - 10);
    assert_eq!(net.take(TWO), []);
    net.pass(20);
    assert_eq!(net.take(TWO), [down(link)]);
    assert!(net.is_closed(TWO, other));
}

#[test]
fn link_with_too_much_untaken_output_is_closed() {
    let mut options = options(None);
    options.output_bytes = 100_000;
    let mut net = Net::new(&options);
    let [_, there] = net.linked();
    net.stuck.insert(there);
    for number in 0..20 {
        net.order(TWO, PeerCommand::Send(there, proposal(number, 10_000)));
        let bound = options.output_bytes + 10_100;
        assert!(net.end(TWO).output(there).len() <= bound);
    }
    assert_eq!(net.take(TWO), [down(there)]);
}

#[test]
fn servers_are_not_read_while_too_many_inputs_wait() {
    let mut options = options(None);
    options.inputs = 10;
    let mut net = Net::new(&options);
    let link = net.greet(TWO, Channel::Quorum, 1, 1);
    net.take(TWO);
    let now = net.now;
    for _ in 0..10 {
        assert_eq!(net.end(TWO).interest(link), Interest::Read);
        net.end(TWO).receive(link, &ack(), now);
    }
    assert_eq!(net.end(TWO).interest(link), Interest::Wait);
    while net.end(TWO).next_changed().is_some() {}
    while net.end(TWO).next_input().is_some() {}
    net.end(TWO).deliver(&mut Vec::new(), &mut Vec::new(), now);
    assert_eq!(net.end(TWO).next_changed(), Some(link));
    assert_eq!(net.end(TWO).interest(link), Interest::Read);
}

#[test]
fn proof_of_the_secret_replaces_links_at_once_and_is_demanded() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    let [here, there] = net.linked();
    let refused = net.greet(TWO, Channel::Quorum, 1, 1);
    assert!(net.is_closed(TWO, refused));
    net.order(ONE, PeerCommand::Dial(TWO));
    let [two, one] = [net.take(TWO), net.take(ONE)];
    assert!(
        matches!(two[..], [Input::Peer(a, PeerEvent::Down), Input::Peer(_, PeerEvent::Up { .. })] if a == there)
    );
    assert!(one.contains(&down(here)));
}

#[test]
fn first_notification_follows_the_proof_of_the_secret() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    net.notify(ONE, TWO, 1);
    assert_eq!(net.take(TWO), [Input::Election(ONE, notification(1))]);
}

#[test]
fn connection_without_its_proof_counts_as_ungreeted() {
    let mut net = Net::new(&options(Some("a secret that only tests would use")));
    let secrets = Secrets::parse("a secret that only tests would use").expect("a secret");
    let local = Local { secrets, demands_secret: true, ..PeerOptions::new(0).local(ONE) };
    let greeting = Dialling::begin(local, Channel::Quorum, TWO, [0; 16]).1;
    let links: Vec<LinkId> = (0..100)
        .map(|_| {
            let link = net.connect(TWO, Channel::Quorum, 9);
            net.write(TWO, link, &greeting);
            link
        })
        .collect();
    let open = links.iter().filter(|link| !net.is_closed(TWO, **link)).count();
    assert_eq!(open, UNGREETED_MAX);
}

#[test]
fn core_learns_the_version_of_an_older_server() {
    let mut net = Net::new(&options(None));
    // 0.2.0 speaks version 5.
    let mut greeting = greeting(Channel::Quorum, ONE, TWO);
    let end = greeting.len() - 4;
    let (content, sum) = greeting.split_at_mut(end);
    let highest = &mut content["zabk-peer".len()];
    assert_eq!(std::mem::replace(highest, 5), 6);
    sum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    let link = net.connect(TWO, Channel::Quorum, 1);
    net.write(TWO, link, &greeting);
    let up = PeerEvent::Up { peer: ONE, dialled: false };
    let events = [up, PeerEvent::Version(5)].map(|event| Input::Peer(link, event));
    assert_eq!(net.take(TWO), events);
}

#[test]
fn link_placed_in_a_turn_is_not_closed_in_the_same_turn() {
    let mut net = Net::new(&options(None));
    let silent = net.greet(TWO, Channel::Quorum, 1, 1);
    // An invalid message follows the greeting.
    let bad = net.connect(TWO, Channel::Quorum, 9);
    let bytes = [greeting(Channel::Quorum, ONE, TWO), vec![0xff; 100]].concat();
    net.write(TWO, bad, &bytes);
    let good = net.greet(TWO, Channel::Quorum, 1, 1);
    net.pass(2_600);
    let inputs = net.take(TWO);
    assert!(net.is_closed(TWO, silent) && net.is_closed(TWO, bad));
    assert!(!net.is_closed(TWO, good), "{inputs:?}");
}

#[test]
fn messages_after_a_greeting_wait_while_too_many_inputs_are_queued() {
    let mut options = options(None);
    options.inputs = 3;
    let mut net = Net::new(&options);
    let now = net.now;
    for _ in 0..3 {
        net.end(TWO).push(Input::Election(ONE, notification(1)));
    }
    let link = net.connect(TWO, Channel::Quorum, 1);
    let bytes = [greeting(Channel::Quorum, ONE, TWO), ack(), ack(), ack()].concat();
    net.end(TWO).receive(link, &bytes, now);
    assert_eq!(net.end(TWO).waiting(), 4, "the link is up");
    while net.end(TWO).next_input().is_some() {}
    net.end(TWO).deliver(&mut Vec::new(), &mut Vec::new(), now);
    assert_eq!(net.end(TWO).waiting(), 3);
}
