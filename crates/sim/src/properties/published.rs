//! Subscribers get every record of a session once, in order, as stored, after it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_ledger::Record;

use crate::properties::{Property, Violation};
use crate::truth::Truth;

/// The last sequence published of every session.
#[derive(Debug, Default)]
pub(crate) struct Published {
    sessions: BTreeMap<Arc<str>, u64>,
}

impl Published {
    pub(crate) fn check(&mut self, session_id: &Arc<str>, records: &[Record], truth: &Truth) -> Result<(), Violation> {
        let last = self.sessions.entry(Arc::clone(session_id)).or_default();
        for record in records {
            Property::Published.holds(record.sequence == *last + 1, || {
                format!("session {session_id}: record {} was published after {last}", record.sequence)
            })?;
            let stored = truth.session(session_id).and_then(|course| course.at(record.sequence));
            Property::Published.holds(stored.is_some_and(|fact| fact.hash == record.hash), || {
                format!("session {session_id}: record {} was published and is not durable", record.sequence)
            })?;
            *last = record.sequence;
        }
        Ok(())
    }

    /// Subscribers of a process that is gone resume from history, so everything durable counts as delivered.
    pub(crate) fn restart(&mut self, truth: &Truth) {
        self.sessions = truth.sessions.iter().map(|(id, course)| (Arc::clone(id), course.sequence())).collect();
    }

    /// Nothing durable was kept back.
    pub(crate) fn check_complete(&self, truth: &Truth) -> Result<(), Violation> {
        for (session_id, course) in &truth.sessions {
            let published = self.sessions.get(session_id).copied().unwrap_or_default();
            Property::Published.holds(published == course.sequence(), || {
                format!("session {session_id}: {published} of {} durable records were published", course.sequence())
            })?;
        }
        Ok(())
    }
}
