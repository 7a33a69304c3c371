//! A test per check and side: `..._is_found` and what is close to it and right.

use tidemark_histcheck::history::{Check, Event};

use crate::story::{Story, at};

#[test]
fn the_story_is_right() {
    let story = Story::told();
    story.is_clean();
    let verdict = story.verdict();
    assert_eq!(
        (
            verdict.sends,
            verdict.commits,
            verdict.aborts,
            verdict.unknown
        ),
        (7, 3, 1, 0)
    );
    assert!(verdict.log_read);
}

// ------------------------------------------------------------------------------------- 1 version order

#[test]
fn two_records_at_one_offset_are_found() {
    let mut story = Story::told();
    story.poll("u", false, &[("a", 1, 2, 2)]);
    story.is_flagged(Check::InconsistentOffset);
}

#[test]
fn a_record_that_nobody_sent_is_found() {
    let mut story = Story::told();
    story.write("a", 1, 99, Some(50));
    story.is_flagged(Check::InconsistentOffset);
}

#[test]
fn one_record_read_many_times_at_its_offset_is_right() {
    let mut story = Story::told();
    story.assign("r");
    story.poll("r", true, &[("a", 0, 0, 1)]);
    story.assign("r");
    story.poll("r", true, &[("a", 0, 0, 1)]);
    story.is_clean();
}

// --------------------------------------------------------------------------- 2 duplicates, losses, reads

#[test]
fn a_record_at_two_offsets_is_found() {
    let mut story = Story::told();
    story.write("a", 1, 4, Some(50));
    story.is_flagged(Check::Duplicate);
}

#[test]
fn a_record_acknowledged_at_another_offset_is_found() {
    let mut story = Story::told();
    let sent = story.last(|event| matches!(event, Event::Sent { value: 4, .. }));
    if let Event::Sent { offset, .. } = sent {
        *offset = Some(7);
    }
    story.is_flagged(Check::Duplicate);
}

#[test]
fn an_acknowledged_record_that_is_gone_is_found() {
    let mut story = Story::told();
    story.records("a", 1).retain(|record| record.value != 4);
    story.is_flagged(Check::Lost);
}

#[test]
fn an_unanswered_record_may_be_gone_or_there() {
    for there in [true, false] {
        let mut story = Story::told();
        story.send("q", None, "a", 1, 8);
        story.not_sent(8, "TIMED_OUT");
        if there {
            story.write("a", 1, 8, Some(50));
        }
        story.is_clean();
    }
}

#[test]
fn a_committed_record_that_read_committed_does_not_get_is_found() {
    let mut story = Story::told();
    story.records("c", 0)[0].visible_at = None;
    story.records("c", 1)[0].visible_at = None;
    story.is_flagged(Check::Unseen);
}

#[test]
fn an_aborted_record_that_is_read_is_found() {
    let mut live = Story::told();
    live.assign("r");
    live.poll("r", true, &[("a", 0, 2, 3)]);
    live.is_flagged(Check::AbortedRead);

    let mut in_the_end = Story::told();
    in_the_end.records("a", 0)[1].visible_at = Some(50);
    in_the_end.is_flagged(Check::AbortedRead);
}

#[test]
fn an_aborted_record_may_be_read_uncommitted() {
    let mut story = Story::told();
    story.assign("u");
    story.poll("u", false, &[("a", 0, 2, 3)]);
    story.is_clean();
}

#[test]
fn a_record_that_was_refused_and_is_there_is_found() {
    let mut story = Story::told();
    story.send("q", None, "a", 1, 8);
    story.not_sent(8, "MESSAGE_TOO_LARGE");
    story.write("a", 1, 8, Some(50));
    story.is_flagged(Check::AbortedRead);
}

#[test]
fn a_record_read_before_its_commit_was_asked_for_is_found() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    story.poll("r", true, &[("a", 1, 3, 8)]);
    story.end("p1", 9, true, None);
    story.write("a", 1, 8, Some(50));
    story.is_flagged(Check::EarlyRead);
}

#[test]
fn a_record_read_while_its_commit_is_not_answered_is_right() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    let asked = story.now;
    story.poll("r", true, &[("a", 1, 3, 8)]);
    story.end("p1", 9, true, None);
    if let Event::End { from, .. } = story.last(|event| matches!(event, Event::End { txn: 9, .. }))
    {
        *from = asked;
    }
    story.write("a", 1, 8, Some(50));
    story.is_clean();
}

#[test]
fn a_record_that_a_reader_had_and_is_gone_is_found() {
    let mut story = Story::told();
    story.send("q", None, "a", 1, 8);
    story.not_sent(8, "TIMED_OUT");
    story.poll("u", false, &[("a", 1, 3, 8)]);
    story.is_flagged(Check::VanishedRead);
}

// ------------------------------------------------------------------------------------ 3 whole or not at all

#[test]
fn half_a_transaction_is_found() {
    let mut story = Story::told();
    let end = story.last(|event| matches!(event, Event::End { txn: 4, .. }));
    if let Event::End { error, .. } = end {
        *error = Some("TIMED_OUT".into());
    }
    story.records("c", 1)[0].visible_at = None;
    story.is_flagged(Check::Torn);
}

#[test]
fn an_unknown_transaction_may_be_there_or_not() {
    for there in [true, false] {
        let mut story = Story::told();
        story.begin("p1", 9);
        story.paid("p1", 9, 0, 8, 3);
        story.paid("p1", 9, 1, 9, -3);
        story.end("p1", 9, true, Some("TIMED_OUT"));
        let visible = there.then_some(60);
        story.write("c", 0, 8, visible);
        story.write("c", 1, 9, visible);
        story.is_clean();
        assert_eq!(story.verdict().unknown, u64::from(!there));
    }
}

#[test]
fn records_without_their_offsets_are_found_and_offsets_without_their_records() {
    let mut story = Story::told();
    story.group_offset = -1;
    story.is_flagged(Check::Torn);

    let mut story = Story::told();
    story.begin("m1", 9);
    story.moved("m1", 9, 3, 8);
    story.offsets("m1", 9, 3);
    story.end("m1", 9, false, None);
    story.write("b", 0, 8, None);
    story.group_offset = 3;
    story.is_flagged(Check::Torn);
}

#[test]
fn offsets_of_a_transaction_without_records_may_count_if_nothing_tells() {
    for (error, group_offset) in [(None, 4), (Some("TIMED_OUT"), 4), (Some("TIMED_OUT"), 1)] {
        let mut story = Story::told();
        story.begin("m1", 9);
        story.offsets("m1", 9, 4);
        story.end("m1", 9, true, error);
        story.group_offset = group_offset;
        story.is_clean();
    }
}

#[test]
fn parts_of_a_transaction_that_settle_at_two_ticks_are_found() {
    let mut story = Story::told();
    story.records("c", 1)[0].visible_at = Some(41);
    story.is_flagged(Check::Torn);
}

// ----------------------------------------------------------------------------------------------- 4 order

#[test]
fn records_of_a_producer_in_another_order_are_found() {
    let mut story = Story::told();
    story.send("q", None, "a", 1, 8);
    story.not_sent(8, "TIMED_OUT");
    story.send("q", None, "a", 1, 9);
    story.not_sent(9, "TIMED_OUT");
    story.write("a", 1, 9, Some(50));
    story.write("a", 1, 8, Some(51));
    story.is_flagged(Check::Order);
}

#[test]
fn records_of_two_producers_may_stand_in_any_order() {
    let mut story = Story::told();
    story.client("q2", None);
    story.send("q", None, "a", 1, 8);
    story.send("q2", None, "a", 1, 9);
    story.write("a", 1, 9, Some(50));
    story.write("a", 1, 8, Some(51));
    story.sent(9, 3);
    story.sent(8, 4);
    story.is_clean();
}

#[test]
fn a_reader_that_goes_back_is_found() {
    let mut story = Story::told();
    story.poll("r", true, &[("a", 1, 0, 2)]);
    story.is_flagged(Check::BackwardRead);
}

#[test]
fn a_reader_that_leaves_something_out_is_found() {
    let mut story = Story::told();
    story.send("q", None, "a", 1, 8);
    story.sent(8, 3);
    story.send("q", None, "a", 1, 9);
    story.sent(9, 4);
    story.write("a", 1, 8, Some(50));
    story.write("a", 1, 9, Some(51));
    story.poll("r", true, &[("a", 1, 4, 9)]);
    story.is_flagged(Check::SkippedRead);
}

#[test]
fn a_reader_may_go_anywhere_when_its_position_was_set_and_passes_over_what_was_aborted() {
    let mut story = Story::told();
    story.send("q", None, "a", 0, 8);
    story.sent(8, 4);
    story.write("a", 0, 8, Some(50));
    // Offset 2 is the aborted record 3; 1 and 3 are markers.
    story.poll("r", true, &[("a", 0, 4, 8)]);
    story.assign("r");
    story.poll("r", true, &[("a", 1, 2, 4)]);
    story.is_clean();
}

// ---------------------------------------------------------------------------------------------- 5 cycles

#[test]
fn information_from_what_began_later_is_found() {
    let mut story = Story::told();
    story.poll("r", true, &[("a", 1, 3, 8)]);
    story.send("q", None, "a", 1, 8);
    story.sent(8, 3);
    story.write("a", 1, 8, Some(50));
    story.is_flagged(Check::Cycle);
}

#[test]
fn two_transactions_that_read_from_each_other_are_found() {
    // Each mover's transaction is made from what the other's has written: both read before they wrote.
    let mut story = Story::told();
    story.client("m2", Some("m-2"));
    story.init("m2");
    story.poll("m1", true, &[("a", 1, 3, 9)]);
    story.begin("m1", 11);
    story.send("m1", Some(11), "a", 1, 8);
    story.end("m1", 11, true, Some("TIMED_OUT"));
    story.poll("m2", true, &[("a", 1, 4, 8)]);
    story.begin("m2", 12);
    story.send("m2", Some(12), "a", 1, 9);
    story.end("m2", 12, true, Some("TIMED_OUT"));
    story.write("a", 1, 9, Some(50));
    story.write("a", 1, 8, Some(51));
    story.is_flagged(Check::Cycle);
}

#[test]
fn a_poll_that_lasts_while_something_is_written_may_get_it() {
    let mut story = Story::told();
    story.send("q", None, "a", 1, 8);
    story.sent(8, 3);
    story.poll("r", true, &[("a", 1, 3, 8)]);
    if let Event::Poll { from, .. } = story.last(|event| matches!(event, Event::Poll { .. })) {
        *from -= 40;
    }
    story.write("a", 1, 8, Some(50));
    story.is_clean();
}

// ------------------------------------------------------------------------------- 6 open transactions

/// Transaction 9 is open from offset 3 of a-1 on; q's record stands behind it at 4.
fn with_an_open_transaction(read: impl Fn(&mut Story)) -> Story {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    story.send("q", None, "a", 1, 9);
    story.sent(9, 4);
    read(&mut story);
    story.end("p1", 9, true, None);
    story.write("a", 1, 8, Some(50));
    story.write("a", 1, 9, Some(49));
    story
}

#[test]
fn a_read_beyond_an_open_transaction_is_found() {
    let story = with_an_open_transaction(|story| {
        story.assign("r");
        story.poll("r", true, &[("a", 1, 4, 9)]);
    });
    story.is_flagged(Check::Snapshot);
}

#[test]
fn a_read_before_an_open_transaction_or_uncommitted_is_right() {
    let story = with_an_open_transaction(|story| {
        story.assign("r");
        story.poll("r", true, &[("a", 1, 2, 4)]);
        story.poll("u", false, &[("a", 1, 3, 8), ("a", 1, 4, 9)]);
    });
    story.is_clean();
}

#[test]
fn a_transaction_holds_nobody_once_its_time_is_over_or_its_successor_begins() {
    let read = |story: &mut Story| {
        story.assign("r");
        story.poll("r", true, &[("a", 1, 4, 9)]);
    };
    let aborted = |mut story: Story| {
        // It was left open, and the broker ended it.
        story
            .events
            .retain(|event| !matches!(event, Event::End { txn: 9, .. }));
        story.records("a", 1)[2].visible_at = None;
        story.is_clean();
    };
    aborted(with_an_open_transaction(|story| {
        story.now += 60_000_000_000;
        read(story);
    }));
    aborted(with_an_open_transaction(|story| {
        story.client("p2", Some("p"));
        story.init("p2");
        read(story);
    }));
    aborted(with_an_open_transaction(|story| {
        // After a restart the time is counted by the wall clock, which was stepped.
        story.fault("clock");
        story.fault("kill");
        read(story);
    }));
}

// -------------------------------------------------------------------------------------- 7 watermarks

#[test]
fn a_last_stable_offset_beyond_an_open_transaction_is_found() {
    let story = with_an_open_transaction(|story| story.watermarks("w", true, "a", 1, 4));
    story.is_flagged(Check::Watermark);
}

#[test]
fn a_last_stable_offset_at_the_begin_of_an_open_transaction_is_right() {
    let story = with_an_open_transaction(|story| {
        story.watermarks("w", true, "a", 1, 3);
        story.watermarks("w", false, "a", 1, 5);
    });
    story.is_clean();
}

#[test]
fn a_high_watermark_short_of_an_acknowledged_record_is_found() {
    let story = with_an_open_transaction(|story| story.watermarks("w", false, "a", 1, 4));
    story.is_flagged(Check::Watermark);
}

#[test]
fn watermarks_that_go_back_are_found() {
    for read_committed in [true, false] {
        let mut story = Story::told();
        story.watermarks("w", read_committed, "a", 0, 3);
        story.is_flagged(Check::Watermark);
    }
    let mut story = Story::told();
    for log_start in [1, 0] {
        story.watermarks("w", true, "a", 0, 4);
        if let Event::Watermarks { start, .. } =
            story.last(|event| matches!(event, Event::Watermarks { .. }))
        {
            *start = log_start;
        }
    }
    story.is_flagged(Check::Watermark);
}

#[test]
fn another_client_may_be_told_of_an_earlier_watermark() {
    let mut story = Story::told();
    story.client("w2", None);
    story.watermarks("w2", true, "a", 0, 3);
    story.is_clean();
}

#[test]
fn a_last_stable_offset_that_stays_behind_is_found() {
    let mut story = Story::told();
    story.partition("a", 1).last_stable_offset = 2;
    story.is_flagged(Check::Watermark);
}

// ------------------------------------------------------------------------------------------ 8 ledger

#[test]
fn a_record_moved_twice_or_not_at_all_is_found() {
    let mut twice = Story::told();
    twice.begin("m1", 9);
    twice.moved("m1", 9, 1, 8);
    twice.sent(8, 2);
    twice.end("m1", 9, true, None);
    twice.write("b", 0, 8, Some(50));
    twice.is_flagged(Check::Ledger);

    let mut never = Story::told();
    never.send("q", None, "a", 0, 8);
    never.sent(8, 4);
    never.write("a", 0, 8, Some(50));
    never.begin("m1", 9);
    never.offsets("m1", 9, 5);
    never.end("m1", 9, true, None);
    never.group_offset = 5;
    never.is_flagged(Check::Ledger);
}

#[test]
fn a_record_moved_from_what_was_aborted_is_found() {
    let mut story = Story::told();
    story.begin("m1", 9);
    story.moved("m1", 9, 3, 8);
    story.sent(8, 2);
    story.end("m1", 9, true, None);
    story.write("b", 0, 8, Some(50));
    story.is_flagged(Check::Ledger);
}

#[test]
fn records_beyond_the_groups_offset_need_not_be_moved_and_an_aborted_move_may_be_repeated() {
    let mut story = Story::told();
    story.send("q", None, "a", 0, 8);
    story.sent(8, 4);
    story.write("a", 0, 8, Some(50));
    story.is_clean();
    story.begin("m1", 9);
    story.moved("m1", 9, 8, 9);
    story.end("m1", 9, false, None);
    story.write("b", 0, 9, None);
    story.begin("m1", 10);
    story.moved("m1", 10, 8, 10);
    story.offsets("m1", 10, 5);
    story.end("m1", 10, true, None);
    story.write("b", 0, 10, Some(60));
    story.group_offset = 5;
    story.is_clean();
}

// -------------------------------------------------------------------------------------------- 9 bank

#[test]
fn money_that_is_made_or_lost_is_found() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.paid("p1", 9, 0, 8, 3);
    story.sent(8, 2);
    story.end("p1", 9, true, None);
    story.write("c", 0, 8, Some(60));
    story.is_flagged(Check::Bank);
}

#[test]
fn money_that_is_missing_for_a_moment_is_found() {
    let mut story = Story::told();
    story.records("c", 1)[0].visible_at = Some(45);
    story.is_flagged(Check::Bank);
}

#[test]
fn transfers_may_overlap_and_abort() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.paid("p1", 9, 0, 8, 3);
    story.end("p1", 9, false, None);
    story.write("c", 0, 8, None);
    story.begin("m1", 10);
    story.paid("m1", 10, 0, 9, 2);
    story.paid("m1", 10, 1, 10, -2);
    story.end("m1", 10, true, None);
    story.write("c", 0, 9, Some(70));
    story.write("c", 1, 10, Some(70));
    story.is_clean();
}

// ------------------------------------------------------------------------------------------ 10 replay

#[test]
fn a_log_that_is_not_what_was_served_is_found() {
    let bends: [fn(&mut Story); 6] = [
        |story| drop(story.log.as_mut().map(|log| log.remove(&at("b", 0)))),
        |story| log_of(story, |log| log.end += 1),
        |story| log_of(story, |log| log.last_stable_offset -= 1),
        |story| log_of(story, |log| log.records[0].value = 99),
        |story| log_of(story, |log| log.records.truncate(0)),
        |story| log_of(story, |log| log.records[0].visible_at = None),
    ];
    for (number, bend) in bends.iter().enumerate() {
        let mut story = Story::told();
        story.log = Some(story.served.clone());
        bend(&mut story);
        let verdict = story.verdict();
        assert!(verdict.count(Check::Replay) > 0, "{number}: {verdict:?}");
    }
}

fn log_of(story: &mut Story, bend: impl Fn(&mut tidemark_histcheck::history::LogPartition)) {
    let log = story.log.as_mut().and_then(|log| log.get_mut(&at("b", 0)));
    bend(log.expect("a partition of the story"));
}

#[test]
fn group_offsets_and_open_transactions_that_were_not_served_are_found() {
    let mut story = Story::told();
    story.log_group_offset = Some(0);
    story.is_flagged(Check::Replay);
    let mut story = Story::told();
    story.ongoing.push("p".into());
    story.is_flagged(Check::Replay);
}

#[test]
fn a_transaction_of_others_may_be_open_in_the_log() {
    let mut story = Story::told();
    story.ongoing.push("of somebody else".into());
    story.is_clean();
}

// ------------------------------------------------------------------------------------------- fencing

#[test]
fn an_earlier_instance_that_commits_or_writes_is_found() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    story.client("p2", Some("p"));
    story.init("p2");
    story.end("p1", 9, true, None);
    story.write("a", 1, 8, Some(50));
    story.is_flagged(Check::Fencing);

    let mut story = Story::told();
    story.begin("p1", 9);
    story.client("p2", Some("p"));
    story.init("p2");
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    story.write("a", 1, 8, None);
    story.is_flagged(Check::Fencing);
}

#[test]
fn an_earlier_instance_that_is_refused_is_right() {
    let mut story = Story::told();
    story.begin("p1", 9);
    story.send("p1", Some(9), "a", 1, 8);
    story.sent(8, 3);
    story.client("p2", Some("p"));
    story.init("p2");
    story.end("p1", 9, true, Some("PRODUCER_FENCED"));
    story.write("a", 1, 8, None);
    story.is_clean();
}
