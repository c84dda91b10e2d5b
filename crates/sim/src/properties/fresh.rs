//! An answer knows everything that anyone was told before it was asked for: nobody sees a session go back in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_engine::{Answer, Reply};
use macp_kernel::{Settled, State};

use crate::oracle::{Asked, What};
use crate::properties::{Property, Violation};
use crate::truth::Truth;

/// What anyone outside knows of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// At least so many entries are there.
    pub(crate) sequence: u64,
    /// How it ended, once somebody knows.
    pub(crate) end: Option<State>,
}

/// What was told of every session.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    sessions: BTreeMap<Arc<str>, Told>,
}

impl Knowledge {
    pub(crate) fn of(&self, session_id: &str) -> Told {
        self.sessions.get(session_id).copied().unwrap_or_default()
    }

    pub(crate) fn learn(&mut self, session_id: &Arc<str>, sequence: u64, state: Option<State>) {
        let told = self.sessions.entry(Arc::clone(session_id)).or_default();
        told.sequence = told.sequence.max(sequence);
        if told.end.is_none() {
            told.end = state.filter(|state| state.is_terminal());
        }
    }

    /// Takes in what an answer tells; the answer has been found to be durable.
    pub(crate) fn learn_answer(&mut self, asked: &Asked, answer: &Answer, truth: &Truth) {
        let session_id = &asked.session_id;
        match answer {
            Answer::Read(None) => {}
            Answer::Read(Some(snapshot)) => {
                let state = State::from_wire(snapshot.metadata.state);
                self.learn(session_id, snapshot.sequence, state);
            }
            Answer::Verdict(Reply { settled, state, .. }) => {
                let message = match (&asked.what, settled) {
                    (What::Message { message_id, .. }, Settled::Accepted { .. } | Settled::Duplicate { .. }) => {
                        truth.message(session_id, message_id).map_or(0, |(sequence, _)| sequence)
                    }
                    (What::Control { kind, reason }, Settled::Accepted { .. }) => {
                        let course = truth.session(session_id);
                        let first = course.and_then(|course| course.controls(*kind, reason).next());
                        first.map_or(0, |(sequence, _)| sequence)
                    }
                    _ => 0,
                };
                let implied = match state {
                    None => 0,
                    // The end is the last entry.
                    Some(state) if state.is_terminal() => truth.sequence(session_id),
                    // At least as far as where it was so for the first time.
                    Some(state) => truth.session(session_id).and_then(|course| course.first(*state)).unwrap_or(1),
                };
                if state.is_some() {
                    self.learn(session_id, message.max(implied), *state);
                }
            }
        }
    }
}

pub(crate) fn check(asked: &Asked, answer: &Answer) -> Result<(), Violation> {
    let seen = match answer {
        Answer::Read(snapshot) => snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence),
        Answer::Verdict(Reply { state: None, .. }) => 0,
        // A verdict does not say how much the shard knew; the traces tell whether it was right.
        Answer::Verdict(_) => return Ok(()),
    };
    Property::Fresh.holds(seen >= asked.told.sequence, || {
        format!(
            "session {} was answered as of entry {seen} after entry {} had been told of",
            asked.session_id, asked.told.sequence
        )
    })
}
