//! Tests of single decisions, and in `network` of whole elections over a lossy network.

use std::time::Duration;

use super::*;
use crate::config::Config;

mod network;

fn id(id: u64) -> ServerId {
    ServerId(id)
}

fn vote(epoch: u32, zxid: u64, candidate: u64) -> Vote {
    Vote { epoch: Epoch(epoch), zxid: Zxid(zxid), candidate: id(candidate) }
}

fn voters(count: u64) -> Voters {
    Voters::new((1..=count).map(ServerId))
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn limits() -> Limits {
    let config = Config::new(id(1), voters(1), Duration::from_secs(2));
    config.expect("a fine config").limits
}

fn history(history_status: HistoryStatus) -> HistoryInfo {
    HistoryInfo::new(history_status, Epoch(0))
}

fn notification(
    server_state: ServerState,
    round: u64,
    vote: Vote,
    history_status: HistoryStatus,
) -> Notification {
    Notification { server_state, round, vote, history: history(history_status), ensemble: 0 }
}

fn looks(round: u64, vote: Vote) -> Notification {
    notification(ServerState::Looking, round, vote, HistoryStatus::Complete)
}

fn follows(round: u64, vote: Vote) -> Notification {
    notification(ServerState::Following, round, vote, HistoryStatus::Complete)
}

fn leads(round: u64, vote: Vote) -> Notification {
    notification(ServerState::Leading, round, vote, HistoryStatus::Complete)
}

/// A server among `of` voters, in round 5, that has voted for a history of its own at time zero.
struct Case {
    looking: Election,
    voters: Voters,
}

impl Case {
    fn new(own: Vote, history_status: HistoryStatus, of: u64) -> Case {
        let mut looking = Election::new(own.candidate, 4, None);
        looking.vote(own, history(history_status), ms(0));
        Case { looking, voters: voters(of) }
    }

    fn receive(&mut self, from: u64, notification: Notification) -> Recipients {
        self.looking.receive(id(from), &notification, &self.voters, ms(0))
    }

    fn outcome(&mut self, at: u64) -> Option<Outcome> {
        self.looking.outcome(&self.voters, &limits(), ms(at))
    }
}

/// FLE-03.
#[test]
fn server_sends_nothing_before_its_vote_but_keeps_received_votes() {
    let mut looking = Election::new(id(1), 0, None);
    let voters = voters(3);
    assert_eq!((looking.has_voted(), looking.notification(0)), (false, None));
    let recipients = looking.receive(id(3), &looks(4, vote(2, 9, 3)), &voters, ms(0));
    assert_eq!((recipients, looking.round()), (Recipients::None, 4));
    looking.receive(id(2), &looks(4, vote(2, 9, 3)), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(9_000)), None);
    assert_eq!((looking.next_deadline(), looking.take_resend(&limits(), ms(0))), (None, false));
    looking.vote(vote(1, 5, 1), history(HistoryStatus::Complete), ms(0));
    assert_eq!(looking.notification(0), Some(looks(4, vote(2, 9, 3))));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), Some(Outcome::Follow(id(3))));
}

/// FLE-04.
#[test]
fn notification_determines_round_proposal_and_recipients() {
    use Recipients::{All, None, Sender};
    let own = vote(1, 5, 2);
    for (received, recipients, round, proposal) in [
        (looks(5, vote(1, 6, 1)), All, 5, vote(1, 6, 1)),
        (looks(5, vote(2, 0, 1)), All, 5, vote(2, 0, 1)),
        (looks(5, vote(1, 5, 3)), All, 5, vote(1, 5, 3)),
        (looks(5, vote(1, 5, 1)), Sender, 5, own),
        (looks(5, own), Sender, 5, own),
        (looks(4, vote(9, 9, 3)), Sender, 5, own),
        (looks(6, vote(1, 4, 3)), All, 6, own),
        (looks(6, vote(1, 6, 3)), All, 6, vote(1, 6, 3)),
        (looks(5, vote(9, 9, 7)), None, 5, own),
    ] {
        let mut case = Case::new(own, HistoryStatus::Complete, 3);
        assert_eq!(case.receive(1, received), recipients, "{received}");
        assert_eq!((case.looking.round(), case.looking.proposal()), (round, Some(proposal)));
    }
}

/// FLE-04.
#[test]
fn higher_round_discards_votes_of_the_old_round() {
    let mut case = Case::new(vote(1, 5, 1), HistoryStatus::Complete, 3);
    case.receive(2, looks(5, vote(1, 7, 2)));
    assert_eq!(case.receive(3, looks(6, vote(1, 3, 3))), Recipients::All);
    assert_eq!(case.looking.proposal(), Some(vote(1, 5, 1)), "against the own history");
    assert_eq!(case.outcome(9_000), None, "only a worse vote was received in this round");
}

/// FLE-04.
#[test]
fn repeated_equal_votes_are_not_answered() {
    let (mut one, mut two) = (
        Case::new(vote(1, 5, 1), HistoryStatus::Complete, 3),
        Case::new(vote(1, 5, 2), HistoryStatus::Complete, 3),
    );
    let mut to_two = vec![one.looking.notification(0).expect("voted")];
    let mut to_one = vec![two.looking.notification(0).expect("voted")];
    let mut messages = 0;
    while !to_one.is_empty() || !to_two.is_empty() {
        messages += to_one.len() + to_two.len();
        assert!(messages < 10, "an echo");
        let (for_one, for_two) = (std::mem::take(&mut to_one), std::mem::take(&mut to_two));
        for notification in for_one {
            if one.receive(2, notification) != Recipients::None {
                to_two.extend(one.looking.notification(0));
            }
        }
        for notification in for_two {
            if two.receive(1, notification) != Recipients::None {
                to_one.extend(two.looking.notification(0));
            }
        }
    }
    let agreed = looks(5, vote(1, 5, 2));
    assert_eq!(one.looking.notification(0), Some(agreed));
    assert_eq!(one.receive(2, agreed), Recipients::None);
    assert_eq!(two.receive(1, agreed), Recipients::None);
}

/// FLE-05.
#[test]
fn election_ends_at_once_if_all_agree_else_after_final_wait() {
    let best = vote(1, 7, 3);
    let mut case = Case::new(vote(1, 5, 1), HistoryStatus::Complete, 3);
    assert_eq!(case.outcome(0), None);
    case.receive(3, looks(5, best));
    assert_eq!(case.outcome(10), None, "server 2 may know better");
    assert_eq!(case.looking.next_deadline(), Some(ms(0)), "the repeat is not armed");
    assert!(!case.looking.take_resend(&limits(), ms(10)));
    assert_eq!(case.looking.next_deadline(), Some(ms(30)));
    assert_eq!(case.outcome(29), None);
    assert_eq!(case.outcome(30), Some(Outcome::Follow(id(3))));

    let mut case = Case::new(best, HistoryStatus::Complete, 3);
    case.receive(1, looks(5, best));
    assert_eq!(case.outcome(0), None);
    case.receive(2, looks(5, best));
    assert_eq!(case.outcome(0), Some(Outcome::Lead));
    assert_eq!(Case::new(best, HistoryStatus::Complete, 3).outcome(9_000), None);

    let mut alone = Election::new(id(1), 0, None);
    alone.vote(vote(0, 0, 1), history(HistoryStatus::Uninitialized), ms(0));
    assert_eq!(alone.outcome(&voters(1), &limits(), ms(0)), Some(Outcome::Lead));
}

/// FLE-05.
#[test]
fn better_vote_restarts_the_final_wait() {
    let mut case = Case::new(vote(1, 5, 1), HistoryStatus::Complete, 5);
    for (from, notification) in [(2, vote(1, 5, 3)), (3, vote(1, 5, 3))] {
        case.receive(from, looks(5, notification));
    }
    assert_eq!(case.outcome(0), None);
    assert_eq!(case.receive(4, looks(5, vote(1, 6, 4))), Recipients::All);
    assert_eq!(case.outcome(20), None, "it is no longer what a quorum shares");
    case.receive(2, looks(5, vote(1, 6, 4)));
    assert_eq!(case.outcome(25), None);
    assert_eq!(case.outcome(45), Some(Outcome::Follow(id(4))));
}

#[test]
fn election_does_not_wait_for_the_lost_leader() {
    let voters = voters(3);
    let mut looking = Election::new(id(1), 4, Some(id(3)));
    looking.vote(vote(1, 5, 1), history(HistoryStatus::Complete), ms(0));
    looking.receive(id(2), &looks(5, vote(1, 5, 2)), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), Some(Outcome::Follow(id(2))));

    // The lost leader is back and looks for a leader itself: it counts as alive.
    let mut looking = Election::new(id(1), 4, Some(id(3)));
    looking.vote(vote(1, 5, 1), history(HistoryStatus::Complete), ms(0));
    looking.receive(id(3), &looks(1, vote(1, 5, 3)), &voters, ms(0));
    looking.receive(id(2), &looks(5, vote(1, 5, 2)), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), None);

    // The other server votes for the lost leader, which has not confirmed that it looks: no reason
    // to end the election at once.
    let mut looking = Election::new(id(1), 4, Some(id(3)));
    looking.vote(vote(1, 5, 1), history(HistoryStatus::Complete), ms(0));
    looking.receive(id(2), &looks(5, vote(1, 9, 3)), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), None);
    assert_eq!(looking.outcome(&voters, &limits(), ms(20)), Some(Outcome::Follow(id(3))));
}

/// FLE-06.
#[test]
fn resend_pause_doubles_until_the_vote_changes() {
    let mut case = Case::new(vote(1, 5, 1), HistoryStatus::Complete, 3);
    let mut at = Vec::new();
    for now in 0..2_600 {
        if case.looking.take_resend(&limits(), ms(now)) {
            at.push(now);
            assert!(case.looking.next_deadline() > Some(ms(now)));
        }
    }
    assert_eq!(at, [100, 300, 700, 1_500, 2_500]);
    case.looking.receive(id(2), &looks(5, vote(1, 6, 2)), &case.voters, ms(2_600));
    assert!(!case.looking.take_resend(&limits(), ms(2_699)));
    assert!(case.looking.take_resend(&limits(), ms(2_700)));
}

/// FLE-07.
#[test]
fn joining_needs_a_quorum_and_a_notification_of_the_leader() {
    let (leader, other) = (vote(1, 5, 4), vote(2, 1, 3));
    for (received, joins) in [
        (&[(4, leads(9, leader)), (2, follows(9, leader)), (3, follows(8, leader))][..], true),
        (&[(4, leads(2, leader)), (2, follows(2, leader)), (3, follows(2, leader))], true),
        (&[(2, follows(9, leader)), (3, follows(9, leader)), (5, follows(9, leader))], false),
        (&[(4, leads(9, leader)), (2, follows(9, leader)), (3, leads(9, other))], false),
        (&[(4, leads(9, leader)), (2, follows(9, leader)), (3, follows(7, vote(2, 5, 4)))], true),
        // Server 2 looks again: its earlier notification no longer counts.
        (
            &[
                (4, leads(2, leader)),
                (2, follows(2, leader)),
                (3, follows(2, leader)),
                (2, looks(1, leader)),
            ],
            false,
        ),
        // A voter of another configuration, which is none here, does not count.
        (&[(4, leads(2, leader)), (2, follows(2, leader)), (7, follows(2, leader))], false),
    ] {
        let mut case = Case::new(vote(9, 9, 1), HistoryStatus::Complete, 5);
        for (from, notification) in received {
            case.receive(*from, *notification);
        }
        let outcome = joins.then_some(Outcome::Follow(id(4)));
        assert_eq!(case.outcome(9_000), outcome, "{received:?}");
        if joins {
            assert_eq!(
                (case.looking.round(), case.looking.proposal()),
                (received[0].1.round, Some(leader))
            );
        }
    }
}

/// FLE-07.
#[test]
fn joining_does_not_depend_on_history_status() {
    for history_status in
        [HistoryStatus::Complete, HistoryStatus::Uninitialized, HistoryStatus::Lost]
    {
        let mut case = Case::new(vote(0, 0, 1), history_status, 3);
        case.receive(2, leads(7, vote(1, 5, 2)));
        assert_eq!(case.outcome(0), None);
        case.receive(
            3,
            notification(ServerState::Following, 7, vote(1, 5, 2), HistoryStatus::Uninitialized),
        );
        assert_eq!(case.outcome(0), Some(Outcome::Follow(id(2))), "{history_status:?}");
    }
}

/// FLE-07.
#[test]
fn followers_of_an_earlier_round_do_not_elect_this_server() {
    let mut case = Case::new(vote(1, 5, 3), HistoryStatus::Complete, 3);
    for from in [1, 2] {
        assert_eq!(case.receive(from, follows(4, vote(1, 4, 3))), Recipients::None);
    }
    assert_eq!(case.outcome(9_000), None);
    // Of this round, they count as votes: their senders decided before their votes arrived here.
    case.receive(1, follows(5, vote(1, 5, 3)));
    case.receive(2, follows(5, vote(1, 5, 3)));
    assert_eq!(case.outcome(9_000), Some(Outcome::Lead));
}

/// FLE-07.
#[test]
fn leader_without_followers_is_found_from_a_lower_round() {
    let mut looking = Election::new(id(3), 0, None);
    let voters = voters(3);
    looking.vote(vote(1, 5, 3), history(HistoryStatus::Complete), ms(0));
    let alone = leads(8, vote(2, 1, 2));
    assert_eq!(looking.receive(id(2), &alone, &voters, ms(0)), Recipients::All);
    assert_eq!(looking.notification(0), Some(looks(8, vote(2, 1, 2))));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), None);
    // A leader's zxid rises while it leads: that is not a new vote.
    let later = leads(8, vote(2, 2, 2));
    assert_eq!(looking.receive(id(2), &later, &voters, ms(0)), Recipients::None);
    assert_eq!(looking.outcome(&voters, &limits(), ms(20)), Some(Outcome::Follow(id(2))));

    let mut better = Case::new(vote(3, 1, 1), HistoryStatus::Complete, 3);
    assert_eq!(better.receive(2, alone), Recipients::All, "a higher round");
    assert_eq!(better.looking.notification(0), Some(looks(8, vote(3, 1, 1))), "not a better vote");
    assert_eq!(better.outcome(9_000), None);
}

/// FLE-14.
#[test]
fn observer_never_offers_its_history_and_follows_whom_a_quorum_elects() {
    let mut observer = Election::new(id(4), 4, None).among(&voters(3));
    let voters = voters(3);
    observer.vote(vote(9, 9, 4), history(HistoryStatus::Complete), ms(0));
    assert_eq!(observer.notification(0), Some(looks(5, vote(0, 0, 4))), "names no history");
    assert_eq!(observer.proposal(), None);
    let better = vote(1, 5, 3);
    observer.receive(id(1), &looks(5, better), &voters, ms(0));
    assert_eq!(observer.outcome(&voters, &limits(), ms(9_000)), None, "one of three");
    observer.receive(id(3), &looks(5, better), &voters, ms(0));
    observer.outcome(&voters, &limits(), ms(9_000));
    let outcome = observer.outcome(&voters, &limits(), ms(9_020));
    assert_eq!(outcome, Some(Outcome::Follow(id(3))));
}

/// FLE-14.
#[test]
fn observers_that_asked_during_the_election_are_remembered_once() {
    let mut case = Case::new(vote(1, 5, 3), HistoryStatus::Complete, 3);
    case.receive(4, looks(7, vote(0, 0, 4)));
    case.receive(4, looks(7, vote(0, 0, 4)));
    case.receive(5, follows(7, vote(1, 5, 3)));
    assert_eq!(case.looking.take_askers(), [id(4)].into());
    assert_eq!(case.looking.take_askers(), [].into());
}

/// FLE-02, edge case 213: nobody votes for a server of weight zero, itself included.
#[test]
fn server_of_weight_zero_is_never_elected() {
    let groups = [(1, &[1, 2, 3].map(ServerId)[..])];
    let voters = voters(3).with_groups(groups, &[(id(3), 0)].into()).unwrap();
    let mut looking = Election::new(id(1), 4, None).among(&voters);
    looking.vote(vote(1, 5, 1), history(HistoryStatus::Complete), ms(0));
    let better = looks(5, vote(2, 9, 3));
    assert_eq!(looking.receive(id(3), &better, &voters, ms(0)), Recipients::Sender);
    assert_eq!(looking.receive(id(3), &leads(5, vote(2, 9, 3)), &voters, ms(0)), Recipients::None);
    assert_eq!(looking.proposal(), Some(vote(1, 5, 1)));
    looking.receive(id(2), &looks(5, vote(1, 5, 1)), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(0)), None, "server 3 may yet agree");
    assert_eq!(looking.outcome(&voters, &limits(), ms(9_000)), Some(Outcome::Lead));

    let mut weightless = Election::new(id(3), 4, None).among(&voters);
    weightless.vote(vote(2, 9, 3), history(HistoryStatus::Complete), ms(0));
    assert_eq!(weightless.notification(0), Some(better), "it asks for answers");
    for from in [1, 2] {
        weightless.receive(id(from), &looks(5, vote(2, 9, 3)), &voters, ms(0));
    }
    assert_eq!(weightless.outcome(&voters, &limits(), ms(9_000)), None);
    for from in [1, 2] {
        weightless.receive(id(from), &looks(5, vote(1, 5, 1)), &voters, ms(0));
    }
    assert_eq!(weightless.outcome(&voters, &limits(), ms(9_000)), Some(Outcome::Follow(id(1))));
}

/// FLE-09.
#[test]
fn non_voters_are_answered_but_not_counted() {
    let own = vote(1, 5, 3);
    for (notification, recipients) in [
        (looks(1, vote(9, 9, 8)), Recipients::Sender),
        (looks(5, vote(1, 5, 2)), Recipients::Sender),
        (looks(5, own), Recipients::None),
        (looks(5, vote(9, 9, 8)), Recipients::None),
        (looks(6, own), Recipients::None),
        (follows(5, own), Recipients::None),
    ] {
        let mut case = Case::new(own, HistoryStatus::Complete, 3);
        assert_eq!(case.receive(8, notification), recipients, "{notification}");
        assert_eq!((case.looking.round(), case.looking.proposal()), (5, Some(own)));
        assert_eq!(case.outcome(9_000), None);
    }
}

#[test]
fn uninitialized_voters_decide_only_among_themselves() {
    use HistoryStatus::{Complete, Lost, Uninitialized};
    let empty = vote(0, 0, 3);
    for (own, history_status, received, over) in [
        // All disks are empty.
        (vote(0, 0, 1), Uninitialized, &[(3, Uninitialized, empty)][..], true),
        // Server 1 has begun an epoch before, and logged nothing: all voters are needed.
        (vote(0, 0, 1), Complete, &[(3, Uninitialized, empty)], false),
        (vote(0, 0, 1), Complete, &[(3, Uninitialized, empty), (2, Uninitialized, empty)], true),
        // A complete history was reported once, so empty disks may have lost data, even if its
        // server is silent now.
        (
            vote(0, 0, 1),
            Uninitialized,
            &[(2, Complete, vote(0, 0, 2)), (3, Uninitialized, empty)],
            false,
        ),
        // A server with an erased disk and one with a history: neither counts beside the other.
        (vote(0, 0, 1), Uninitialized, &[(3, Complete, vote(1, 5, 3))], false),
        (
            vote(0, 0, 1),
            Uninitialized,
            &[(3, Complete, vote(1, 5, 3)), (2, Uninitialized, vote(1, 5, 3))],
            false,
        ),
        (
            vote(0, 0, 1),
            Uninitialized,
            &[(3, Complete, vote(1, 5, 3)), (2, Complete, vote(1, 5, 3))],
            true,
        ),
        // A server with a lost history counts for nothing.
        (vote(1, 4, 1), Complete, &[(3, Lost, vote(1, 4, 1))], false),
        (vote(1, 4, 1), Complete, &[(3, Lost, vote(1, 4, 1)), (2, Complete, vote(1, 4, 1))], true),
        (vote(0, 0, 1), Uninitialized, &[(2, Lost, vote(0, 0, 2))], false),
    ] {
        let mut case = Case::new(own, history_status, 3);
        for (from, history_status, vote) in received {
            case.receive(*from, notification(ServerState::Looking, 5, *vote, *history_status));
        }
        case.outcome(0);
        assert_eq!(case.outcome(9_000).is_some(), over, "{own} {history_status:?} {received:?}");
    }
}

#[test]
fn server_with_lost_history_asks_and_never_leads() {
    let mut case = Case::new(vote(3, 9, 3), HistoryStatus::Lost, 3);
    assert_eq!(case.looking.proposal(), None);
    let asks = notification(ServerState::Looking, 5, vote(0, 0, 3), HistoryStatus::Lost);
    assert_eq!(case.looking.notification(0), Some(asks));
    assert_eq!(case.outcome(9_000), None);
    assert_eq!(
        case.receive(1, looks(5, vote(3, 9, 3))),
        Recipients::Sender,
        "it would have me lead"
    );
    assert_eq!(case.looking.proposal(), None);
    assert_eq!(case.receive(2, looks(5, vote(1, 4, 2))), Recipients::All);
    assert_eq!(case.outcome(9_000), None, "its own voice does not count");
    case.receive(1, looks(5, vote(1, 4, 2)));
    assert_eq!(case.outcome(9_000), Some(Outcome::Follow(id(2))));

    let mut other = Case::new(vote(0, 0, 1), HistoryStatus::Uninitialized, 3);
    assert_eq!(other.receive(3, asks), Recipients::Sender);
    assert_eq!(other.looking.proposal(), Some(vote(0, 0, 1)), "although 3 is more than 1");
}

#[test]
fn candidate_with_less_history_than_reported_loses_votes() {
    let full = vote(2, 7, 3);
    for (now_says, history_status, proposal) in [
        (vote(0, 0, 3), HistoryStatus::Uninitialized, vote(1, 5, 2)),
        (vote(1, 5, 2), HistoryStatus::Complete, vote(1, 5, 2)),
        (vote(0, 0, 3), HistoryStatus::Lost, vote(1, 5, 2)),
        (full, HistoryStatus::Complete, full),
    ] {
        let mut case = Case::new(vote(1, 4, 1), HistoryStatus::Complete, 3);
        case.receive(2, looks(5, vote(1, 5, 2)));
        case.receive(3, looks(5, full));
        assert_eq!(case.looking.proposal(), Some(full));
        case.receive(3, notification(ServerState::Looking, 5, now_says, history_status));
        assert_eq!(case.looking.proposal(), Some(proposal));
        // Other voters' old votes do not bring the rejected vote back.
        case.receive(2, looks(5, full));
        assert_eq!(case.looking.proposal(), Some(proposal));
    }
    // The server with the erased disk rejects others' votes for its former history.
    let mut wiped = Case::new(vote(0, 0, 3), HistoryStatus::Uninitialized, 3);
    assert_eq!(wiped.receive(1, looks(5, full)), Recipients::Sender);
    assert_eq!(wiped.looking.proposal(), Some(vote(0, 0, 3)));
}

/// Servers 1 and 2 have their vote for server 5 from each other only. Server 4 knows from server 5
/// itself that its history ends earlier, and never shares the vote. This happens when a late
/// notification of an earlier start of server 5 arrives, and server 5 is cut off then.
#[test]
fn vote_for_an_absent_candidate_starts_a_new_round() {
    let resends = |case: &mut Case| {
        for at in 0..100 {
            case.looking.take_resend(&limits(), ms(at * 100));
        }
        (case.looking.round(), case.looking.proposal().expect("a vote").candidate)
    };
    let (mine, theirs) = (vote(2, 9, 1), vote(2, 9, 5));
    let mut case = Case::new(mine, HistoryStatus::Complete, 5);
    assert_eq!(case.receive(2, looks(5, theirs)), Recipients::All);
    assert_eq!(case.looking.proposal(), Some(theirs));
    assert_eq!(resends(&mut case), (6, id(1)), "and not more than one");

    let mut received = Case::new(mine, HistoryStatus::Complete, 5);
    received.receive(5, looks(5, theirs));
    assert_eq!(resends(&mut received), (5, id(5)), "it was there, and may be there again");
    assert_eq!(
        resends(&mut Case::new(mine, HistoryStatus::Complete, 5)),
        (5, id(1)),
        "its own vote"
    );
}

#[test]
fn highest_round_does_not_panic() {
    let mut looking = Election::new(id(1), u64::MAX, None);
    looking.vote(vote(1, 1, 1), history(HistoryStatus::Complete), ms(0));
    assert_eq!(looking.round(), u64::MAX);
    looking.receive(id(2), &looks(u64::MAX, vote(1, 1, 2)), &voters(2), ms(0));
    assert_eq!(looking.outcome(&voters(2), &limits(), ms(0)), Some(Outcome::Follow(id(2))));
}

/// FLE-07, RECONF-10.
#[test]
fn follower_counts_that_was_heard_before_its_leader_was_a_candidate() {
    let mut looking = Election::new(id(5), 4, None).among(&voters(2));
    looking.vote(vote(2, 9, 5), history(HistoryStatus::Complete), ms(0));
    let led = vote(2, 9, 3);
    looking.receive(id(1), &follows(5, led), &voters(2), ms(0));
    looking.receive(id(2), &follows(5, led), &voters(2), ms(0));
    looking.receive(id(3), &leads(5, led), &voters(2), ms(0));
    assert_eq!(looking.outcome(&voters(2), &limits(), ms(0)), None, "no candidate");
    looking.set_foreign((BTreeSet::from([id(3)]), Zxid(9)));
    looking.receive(id(3), &leads(5, led), &voters(2), ms(0));
    assert_eq!(looking.outcome(&voters(2), &limits(), ms(0)), Some(Outcome::Follow(id(3))));
}

/// FLE-07, RECONF-10.
#[test]
fn leader_of_the_old_voters_is_joined_although_new_voters_are_logged() {
    let of = |ids: &[u64]| Voters::new(ids.iter().copied().map(id));
    let voters = of(&[1, 3, 5]).with_next(&of(&[2, 4]));
    let mut looking = Election::new(id(4), 4, None).among(&voters);
    looking.vote(vote(2, 9, 4), history(HistoryStatus::Complete), ms(0));
    let led = vote(2, 5, 1);
    looking.receive(id(1), &leads(4, led), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(9_000)), None, "one of three");
    looking.receive(id(3), &follows(4, led), &voters, ms(0));
    assert_eq!(looking.outcome(&voters, &limits(), ms(9_000)), Some(Outcome::Follow(id(1))));
}
