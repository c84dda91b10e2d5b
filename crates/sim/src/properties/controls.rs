//! Cancellations, suspensions and resumptions: what was granted is stored, what was refused is not, and nothing is
//! stored that nobody asked for.
//!
//! They have no message id, so repeating one asks for it once more. Their reasons tell them apart; of one reason there
//! are at least as many in history as were granted, and at most as many as were granted or may have been.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_engine::{Answer, Error};
use macp_kernel::Settled;

use crate::oracle::{Asked, What};
use crate::properties::{Property, Violation};
use crate::truth::{ControlKind, Truth};

/// What was asked of sessions, by session, kind and reason.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    told: BTreeMap<(Arc<str>, ControlKind, String), Told>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    under_way: u64,
    granted: u64,
    /// Ended in an error or a crash.
    unknown: u64,
}

impl Controls {
    pub(crate) fn asked(&mut self, session_id: &Arc<str>, what: &What) {
        if let Some(told) = self.of(session_id, what) {
            told.under_way += 1;
        }
    }

    pub(crate) fn answered(&mut self, asked: &Asked, result: &Result<Answer, Error>) {
        let Some(told) = self.of(&asked.session_id, &asked.what) else {
            return;
        };
        told.under_way -= 1;
        match result {
            Err(_) => told.unknown += 1,
            Ok(Answer::Verdict(reply)) if matches!(reply.settled, Settled::Accepted { .. }) => told.granted += 1,
            Ok(_) => {}
        }
    }

    /// The process died before there was an answer.
    pub(crate) fn lost(&mut self, asked: &Asked) {
        if let Some(told) = self.of(&asked.session_id, &asked.what) {
            told.under_way -= 1;
            told.unknown += 1;
        }
    }

    fn of(&mut self, session_id: &Arc<str>, what: &What) -> Option<&mut Told> {
        let What::Control { kind, reason } = what else {
            return None;
        };
        Some(self.told.entry((Arc::clone(session_id), *kind, reason.clone())).or_default())
    }

    pub(crate) fn check(&self, truth: &Truth) -> Result<(), Violation> {
        for ((session_id, kind, reason), told) in &self.told {
            let course = truth.session(session_id);
            let stored = course.map_or(0, |course| course.controls(*kind, reason).count() as u64);
            Property::Acknowledged.holds(told.granted <= stored, || {
                format!("session {session_id}: {kind:?} {reason:?} is stored {stored} times, {told:?}")
            })?;
            Property::Refused.holds(stored <= told.granted + told.unknown + told.under_way, || {
                format!("session {session_id}: {kind:?} {reason:?} is stored {stored} times, {told:?}")
            })?;
        }
        Ok(())
    }
}
