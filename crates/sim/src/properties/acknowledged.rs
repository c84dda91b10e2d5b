//! Nothing acknowledged is ever lost: its message is in the stored history, once, where and as it was.
//!
//! That a message is stored once is checked as the truth grows. Here stands the rest, asked after every crash and at
//! the end: every acknowledged message is in it, and history only ever grew.

use crate::oracle::Stories;
use crate::properties::{Property, Violation};
use crate::truth::Truth;

/// `found` is what the disk has now, `before` what it had when it was last looked at.
pub(crate) fn check(before: &Truth, found: &Truth, stories: &Stories) -> Result<(), Violation> {
    for ((session_id, message_id), story) in stories {
        let Some(acked) = &story.acked else {
            continue;
        };
        let stored = found.message(session_id, message_id).map(|(_, fact)| fact.accepted_at_ms);
        Property::Acknowledged.holds(stored == Some(acked.accepted_at_ms), || {
            format!(
                "session {session_id}: message {message_id} was acknowledged as accepted at {}, stored is {stored:?}",
                acked.accepted_at_ms
            )
        })?;
    }
    for (session_id, course) in &before.sessions {
        for (sequence, fact) in (1..).zip(&course.facts) {
            let kept = found.session(session_id).and_then(|course| course.at(sequence));
            Property::Acknowledged.holds(kept.is_some_and(|kept| kept.hash == fact.hash), || {
                format!("session {session_id}: the durable entry {sequence} is gone or changed")
            })?;
        }
    }
    Ok(())
}
