//! The simulation proves its worth: every planted bug is found, by the properties that are there to find it, and the
//! seeds that find it pass without it.

use macp_sim::{Bug, Property, Settings, run};

/// Seeds within which a bug must be found by each of its properties.
const SEEDS_MAX: u64 = 150;

/// Runs seeds until each of the properties has found the bug.
#[track_caller]
fn check(bug: Bug, properties: &[Property]) {
    let mut missing = properties.to_vec();
    for seed in 0..SEEDS_MAX {
        let Err(failure) = run(seed, Settings { bug: Some(bug), ..Settings::default() }) else {
            continue;
        };
        let Some(found) = missing.iter().position(|property| *property == failure.violation.property) else {
            continue;
        };
        missing.swap_remove(found);
        println!("{bug} was found by {}", failure.violation);
        if let Err(failure) = run(seed, Settings::default()) {
            panic!("the seed fails without the bug as well: {failure}");
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("{bug} was not found by {missing:?} within {SEEDS_MAX} seeds");
}

/// By the answer, which leaves before the subscribers hear of anything.
#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    check(Bug::AckBeforeSync, &[Property::Durable]);
}

/// By the answer too.
#[test]
fn a_failed_append_reported_as_stored_is_found() {
    check(Bug::LostFlight, &[Property::Durable]);
}

#[test]
fn an_append_dropped_from_its_batch_is_found() {
    check(Bug::DroppedAppend, &[Property::Durable, Property::Published]);
}

#[test]
fn an_append_that_ignores_a_conflict_is_found() {
    check(Bug::IgnoredConflict, &[Property::Replayable]);
}

#[test]
fn records_published_before_they_are_durable_are_found() {
    check(Bug::EarlyPublish, &[Property::Published]);
}

#[test]
fn a_session_loaded_as_it_was_before_is_found() {
    check(Bug::StaleReload, &[Property::Fresh, Property::Traced, Property::Terminal]);
}

#[test]
fn an_append_nobody_hears_of_is_found() {
    check(Bug::LostReport, &[Property::Liveness]);
}

#[test]
fn a_deadline_nobody_looks_for_is_found() {
    check(Bug::SleepingSweeper, &[Property::Liveness]);
}

#[test]
fn a_duplicate_with_the_wrong_time_is_found() {
    check(Bug::RewrittenDuplicate, &[Property::Duplicates]);
}

#[test]
fn an_unknown_outcome_answered_as_a_refusal_is_found() {
    check(Bug::ErrorAsRefusal, &[Property::Refused, Property::Duplicates]);
}

#[test]
fn an_index_that_misses_the_end_of_a_session_is_found() {
    check(Bug::StaleIndex, &[Property::Terminal]);
}

#[test]
fn a_restart_that_forgets_is_found() {
    check(Bug::ForgetfulRestart, &[Property::Acknowledged]);
}

#[test]
fn sessions_that_never_leave_memory_are_found() {
    check(Bug::LostTicks, &[Property::Bounded]);
}

#[test]
fn a_sweeper_that_knows_of_deadlines_only_is_found() {
    check(Bug::DeafSweeper, &[Property::Liveness]);
}

#[test]
fn an_accept_by_silence_written_twice_is_found() {
    check(Bug::RepeatedAccept, &[Property::Replayable]);
}

/// Who looks at the index is told; and a session that ends without being loaded ends by the wrong deadline.
#[test]
fn a_deadline_that_a_pause_does_not_move_is_found() {
    check(Bug::UnmovedDeadline, &[Property::Terminal]);
}

#[test]
fn every_bug_has_a_name_of_its_own() {
    for bug in Bug::ALL {
        assert_eq!(bug.name().parse(), Ok(bug));
    }
    assert!("no-such-bug".parse::<Bug>().is_err());
}
