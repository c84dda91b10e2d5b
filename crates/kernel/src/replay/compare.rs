//! Where a decision taken again differs from the recorded one: ordinal, field, expected, found.

use std::fmt;

use macp_wire::history::v1::Entry;

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
    divergence(recorded, "input.session_id", session_id, found)
}

/// Compares the entry made now with the recorded one, field by field.
pub(super) fn entries(recorded: &Entry, decided: &Entry) -> Option<Divergence> {
    macro_rules! same {
        ($($field:ident).+) => {
            if recorded.$($field).+ != decided.$($field).+ {
                let (expected, found) = (&recorded.$($field).+, &decided.$($field).+);
                return Some(divergence(recorded, stringify!($($field).+), expected, found));
            }
        };
    }
    same!(sequence);
    same!(ordinal);
    same!(accepted_at_unix_ms);
    same!(identity);
    same!(input);
    same!(signature);
    same!(binding);
    // The hash of what came before is the ledger's to fill in and `verify`'s to check.
    let ends =
        |entry: &Entry| entry.terminal.as_ref().map(|terminal| (terminal.state, terminal.resolution_sha256.clone()));
    let (expected, found) = (ends(recorded), ends(decided));
    if expected != found {
        return Some(divergence(recorded, "terminal", expected, found));
    }
    None
}

fn divergence(recorded: &Entry, field: &str, expected: impl fmt::Debug, found: impl fmt::Debug) -> Divergence {
    Divergence {
        sequence: recorded.sequence,
        ordinal: recorded.ordinal,
        field: field.to_owned(),
        expected: shorten(format!("{expected:?}")),
        found: shorten(format!("{found:?}")),
    }
}

/// A payload may be a megabyte long; a report is for people.
fn shorten(mut text: String) -> String {
    const CHARACTERS_MAX: usize = 400;
    if let Some((at, _)) = text.char_indices().nth(CHARACTERS_MAX) {
        text.truncate(at);
        text.push('…');
    }
    text
}
