//! Where a decision taken again differs from the recorded one: ordinal, field, expected, found.

use std::fmt;

use macp_wire::history::v1::Entry;

use super::fields;
use super::shown::excerpts;
use crate::decide::Verdict;

/// The first difference between a recorded decision and the same decision taken again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub sequence: u64,
    pub ordinal: u64,
    pub field: String,
    /// As recorded.
    pub expected: String,
    /// As decided again.
    pub found: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "diverged at entry {} (ordinal {}), {}: expected {}, found {}",
            self.sequence, self.ordinal, self.field, self.expected, self.found
        )
    }
}

/// The input was accepted then and is not now.
pub(super) fn decision(recorded: &Entry, verdict: &Verdict) -> Divergence {
    let found = match verdict {
        Verdict::Accept(_) => "accepted".to_owned(),
        Verdict::Duplicate { .. } => "duplicate".to_owned(),
        Verdict::Unchanged => "nothing to do".to_owned(),
        Verdict::Due(_) => "the deadline passed before it".to_owned(),
        Verdict::Reject(rejection) => format!("rejected, {rejection}"),
    };
    divergence(recorded, "decision", "accepted", &found)
}

/// The envelope belongs to another session than the history it stands in.
pub(super) fn foreign(recorded: &Entry, session_id: &str, found: &str) -> Divergence {
    divergence(recorded, "input.session_id", &format!("{session_id:?}"), &format!("{found:?}"))
}

/// Compares the entry made now with the recorded one, field by field.
pub(super) fn entries(recorded: &Entry, decided: &Entry) -> Option<Divergence> {
    let (field, (expected, found)) = fields::difference(recorded, decided)?;
    Some(Divergence {
        sequence: recorded.sequence,
        ordinal: recorded.ordinal,
        field: field.to_owned(),
        expected,
        found,
    })
}

fn divergence(recorded: &Entry, field: &str, expected: &str, found: &str) -> Divergence {
    let (expected, found) = excerpts(expected, found);
    Divergence { sequence: recorded.sequence, ordinal: recorded.ordinal, field: field.to_owned(), expected, found }
}
