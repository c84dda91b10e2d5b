//! Once faults end, every request is answered, exactly once and without an error, and whatever time makes due has
//! happened: an accept by silence, the end of a pause that took too long, the end at the deadline.

use std::collections::BTreeMap;

use macp_engine::Error;

use crate::oracle::Asked;
use crate::properties::{Property, Violation};
use crate::truth::{Course, Truth};

pub(crate) fn check_known(number: u64, asked: Option<Asked>) -> Result<Asked, Violation> {
    asked.ok_or_else(|| Property::Liveness.violated(format!("request {number} was answered twice")))
}

/// Faults and their aftermath excuse errors.
pub(crate) fn check_error(asked: &Asked, error: &Error, excused: bool) -> Result<(), Violation> {
    Property::Liveness.holds(excused, || {
        format!("session {}: {:?} failed although nothing is broken: {error}", asked.session_id, asked.what)
    })
}

pub(crate) fn check_answered(asked: &BTreeMap<u64, Asked>) -> Result<(), Violation> {
    match asked.first_key_value() {
        None => Ok(()),
        Some((number, request)) => Err(Property::Liveness
            .violated(format!("{} requests were never answered, the first is {number}: {request:?}", asked.len()))),
    }
}

/// The sweeper found nothing more to do: nothing is left that time should have done.
pub(crate) fn check_due(truth: &Truth, now: i64) -> Result<(), Violation> {
    let is_due = |course: &Course| course.quiet_until_ms().is_some_and(|until_ms| until_ms < now);
    let due = truth.sessions.iter().find(|(_, course)| is_due(course));
    Property::Liveness.holds(due.is_none(), || {
        let due = due.map(|(id, course)| (id, course.state(), course.quiet_until_ms()));
        format!("at {now} time has something to do in {due:?} and nobody does it")
    })
}
