//! A repeated message is answered as the duplicate it is, with the time of its original acceptance; it is never
//! accepted twice, and never refused once it was accepted.

use macp_engine::Reply;
use macp_kernel::Settled;

use crate::oracle::{Asked, Story, What};
use crate::properties::{Property, Violation};
use crate::truth::Truth;

pub(crate) fn check(asked: &Asked, reply: &Reply, story: &Story, truth: &Truth) -> Result<(), Violation> {
    let What::Message { message_id, repeats, .. } = &asked.what else {
        return Ok(());
    };
    let session_id = &asked.session_id;
    match &reply.settled {
        Settled::Accepted { .. } => Property::Duplicates.holds(story.acked.is_none(), || {
            format!("session {session_id}: message {message_id} was accepted a second time")
        }),
        Settled::Duplicate { accepted_at_ms } => {
            let original = truth.message(session_id, message_id).map(|(_, fact)| fact.accepted_at_ms);
            let told = story.acked.as_ref().map(|acked| acked.accepted_at_ms);
            let fits = original == Some(*accepted_at_ms) && told.is_none_or(|told| told == *accepted_at_ms);
            Property::Duplicates.holds(fits, || {
                format!(
                    "session {session_id}: duplicate {message_id} was answered {accepted_at_ms}, \
                     stored is {original:?}, told before {told:?}"
                )
            })
        }
        settled => Property::Duplicates.holds(!repeats, || {
            format!("session {session_id}: the accepted message {message_id} was sent again and answered {settled:?}")
        }),
    }
}
