//! Nothing refused leaves a trace: a message id that was refused each time it was tried is not in history.
//!
//! An attempt that is still under way, or whose outcome nobody knows, may have been accepted; such ids are left out.

use crate::oracle::{Stories, Story};
use crate::properties::{Property, Violation};
use crate::truth::{Cause, Fact, Truth};

/// Right after a refusal.
pub(crate) fn check_one(session_id: &str, message_id: &str, story: &Story, truth: &Truth) -> Result<(), Violation> {
    let only_refused = story.refused && story.acked.is_none() && !story.unknown && story.under_way == 0;
    // What a mode said by itself was nobody's to refuse, even if somebody tried to say it before.
    let sent = |fact: &&Fact| fact.cause == Cause::Message { synthetic: false };
    let stored = truth.message(session_id, message_id).map(|(_, fact)| fact).filter(sent);
    Property::Refused.holds(!only_refused || stored.is_none(), || {
        format!("session {session_id}: message {message_id} was refused and is stored all the same")
    })
}

/// After a crash and at the end.
pub(crate) fn check(stories: &Stories, truth: &Truth) -> Result<(), Violation> {
    stories.iter().try_for_each(|((session_id, message_id), story)| check_one(session_id, message_id, story, truth))
}
