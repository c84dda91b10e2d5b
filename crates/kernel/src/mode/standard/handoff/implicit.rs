//! Silence as consent: if the policy says so, the runtime accepts an unanswered offer in the target's name. The accept
//! is an ordinary entry of history, dated to the moment time was up and not to the moment someone noticed.

use macp_wire::modes::handoff::v1::HandoffAcceptPayload;
use macp_wire::v1::Envelope;
use prost::Message;

use super::super::decode;
use super::Offer;
use crate::Rejection;
use crate::mode::{Scheduled, View};

pub(super) const MESSAGE_TYPE: &str = "HandoffAccept";

/// Starts the message id of every accept the runtime writes, and of nothing else.
pub(crate) const ID_PREFIX: &str = "implicit-accept:";

const REASON: &str = "implicit accept (timeout)";

/// Refuses what only the runtime may say: the reserved ids, on whatever message, and an accept that calls itself
/// implicit.
pub(super) fn check_client(envelope: &Envelope) -> Result<(), Rejection> {
    if envelope.message_id.starts_with(ID_PREFIX) {
        return Err(Rejection::invalid(format!("message ids that start with {ID_PREFIX:?} are the runtime's")));
    }
    // What does not decode claims nothing here, and is refused when it is judged.
    let claims_to_be_implicit = || decode::<HandoffAcceptPayload>(envelope).is_ok_and(|payload| payload.implicit);
    if envelope.message_type == MESSAGE_TYPE && claims_to_be_implicit() {
        return Err(Rejection::invalid("only the runtime accepts an offer implicitly"));
    }
    Ok(())
}

/// The accept of an open offer, under a policy that knows such a thing.
pub(super) fn scheduled(view: &View<'_>, offer: &Offer) -> Option<Scheduled> {
    let timeout_ms = view.policy.rules.implicit_accept_timeout_ms;
    if timeout_ms <= 0 || offer.offered_at_ms <= 0 {
        return None;
    }
    let payload = HandoffAcceptPayload {
        handoff_id: offer.handoff_id.to_string(),
        accepted_by: offer.target.to_string(),
        reason: REASON.to_owned(),
        implicit: true,
    };
    Some(Scheduled {
        at_ms: deadline_ms(offer.offered_at_ms, timeout_ms, &view.suspension.intervals),
        message_type: MESSAGE_TYPE,
        message_id: message_id(offer),
        sender: offer.target.to_string(),
        payload: payload.encode_to_vec().into(),
    })
}

/// Holds an implicit accept to its offer. Its time is not judged: pauses that came after the moment it is dated to, but
/// before it was written, would make it look early.
pub(super) fn check_recorded(
    offer: &Offer,
    payload: &HandoffAcceptPayload,
    envelope: &Envelope,
) -> Result<(), Rejection> {
    if offer.target != payload.accepted_by {
        return Err(Rejection::invalid("accepted_by of an implicit accept is not the target of the offer"));
    }
    if envelope.message_id != message_id(offer) {
        return Err(Rejection::invalid("the message id of an implicit accept does not follow from its offer"));
    }
    Ok(())
}

fn message_id(offer: &Offer) -> String {
    format!("{ID_PREFIX}{}", offer.handoff_id)
}

/// When an offer has been open for the timeout, pauses not counted. A pause that begins later does not move it.
fn deadline_ms(offered_at_ms: i64, timeout_ms: i64, pauses: &[(i64, i64)]) -> i64 {
    let mut running_from = offered_at_ms;
    let mut left_ms = timeout_ms;
    for (from, to) in pauses.iter().filter(|(from, _)| *from >= offered_at_ms) {
        let ran_ms = from.saturating_sub(running_from).max(0);
        if ran_ms >= left_ms {
            break;
        }
        left_ms -= ran_ms;
        running_from = running_from.max(*from).max(*to);
    }
    running_from.saturating_add(left_ms)
}
