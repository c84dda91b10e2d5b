//! Sessions that run out of time without being in memory: the index knows enough to end them.

use macp_kernel::{Position, State, expire as expiry};
use macp_ledger::{Head, IndexUpdate};
use macp_wire::v1::SessionMetadata;
use prost::Message;

use super::Outgoing;
use super::slot::{Pending, seal};
use crate::{Lifecycle, LifecycleEvent};

/// The end of a session, from its index row alone; none when time has not run out, or the row cannot be read or says
/// nothing of the state. Whoever found the row has compared its deadline with the history.
pub(super) fn expire<R>(head: &Head, now: i64) -> Option<Pending<R>> {
    let session = SessionMetadata::decode(head.summary.clone())
        .inspect_err(|error| tracing::error!(session = &*head.session_id, %error, "index summary is unreadable"))
        .ok()?;
    let position = Position {
        state: State::from_wire(head.state)?,
        deadline_ms: session.expires_at_unix_ms,
        quiet_until_ms: head.deadline_ms,
        sequence: head.sequence,
        // A row does not hold the time of the last entry, and need not. Later entries lie at or before the deadline and
        // the beginning of a pause, one of which has passed here; a start may lie after the deadline it states.
        latest_ms: session.started_at_unix_ms,
    };
    let record = seal(Some(&head.hash), expiry(&position, now)?);
    let state = State::Expired.to_wire().into();
    let index = IndexUpdate { open: false, deadline_ms: head.deadline_ms, state, summary: None };
    let lifecycle = Lifecycle {
        event: LifecycleEvent::Expired,
        session: SessionMetadata { state, ..session },
        observed_at_ms: position.clamped(now),
        resolved_by: None,
    };
    Some(Pending {
        expected_sequence: head.sequence,
        expected_hash: Some(head.hash),
        records: vec![record],
        index: Some(index),
        outgoing: vec![Outgoing::lifecycle(lifecycle)],
    })
}

#[cfg(test)]
mod tests {
    use macp_ledger::{Hash, record};

    use super::*;

    /// A start may be accepted after the deadline it states, and the clock be set back to between the two.
    #[test]
    fn std_core_25_an_unloaded_session_does_not_expire_before_it_was_started() {
        let summary = SessionMetadata { started_at_unix_ms: 100, expires_at_unix_ms: 90, ..SessionMetadata::default() };
        let head = Head {
            session_id: "late".into(),
            sequence: 1,
            hash: Hash::from_bytes([0; 32]),
            open: true,
            deadline_ms: 90,
            state: State::Open.to_wire().into(),
            summary: summary.encode_to_vec().into(),
        };
        for (now, expected) in [(95, 100), (101, 101)] {
            let pending = expire::<()>(&head, now).expect("it is due");
            let entry = record::open(&pending.records[0].bytes).expect("an entry");
            assert_eq!(entry.accepted_at_unix_ms, expected);
            let Some(Outgoing::Lifecycle(lifecycle)) = pending.outgoing.first() else { panic!("it is not announced") };
            assert_eq!(lifecycle.observed_at_ms, expected);
        }
    }
}
