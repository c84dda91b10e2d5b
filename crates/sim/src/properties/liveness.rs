//! Once faults end, every request is answered, exactly once and without an error, and every session past its deadline
//! has ended.

use std::collections::BTreeMap;

use macp_engine::Error;

use crate::oracle::Asked;
use crate::properties::{Property, Violation};
use crate::truth::Truth;

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

/// Everything is past its deadline and the sweeper found nothing more to do.
pub(crate) fn check_ended(truth: &Truth) -> Result<(), Violation> {
    let open = truth.sessions.iter().find(|(_, course)| course.state().is_some_and(|state| state.is_open()));
    Property::Liveness.holds(open.is_none(), || {
        let id = open.map(|(id, _)| id);
        format!("session {id:?} is past its deadline and still open")
    })
}
