//! Nothing leaves before what it depends on is durable. Asked at the very moment something leaves.

use macp_engine::{Answer, Lifecycle, LifecycleEvent, Reply, Snapshot};
use macp_kernel::{Settled, State};

use crate::oracle::{Asked, What};
use crate::properties::{Property, Violation};
use crate::truth::{Cause, Truth, view};

pub(crate) fn check_answer(asked: &Asked, answer: &Answer, truth: &Truth) -> Result<(), Violation> {
    match answer {
        Answer::Verdict(reply) => check_reply(asked, reply, truth),
        Answer::Read(None) => Ok(()),
        Answer::Read(Some(snapshot)) => check_read(asked, snapshot, truth),
    }
}

fn check_reply(asked: &Asked, reply: &Reply, truth: &Truth) -> Result<(), Violation> {
    let session_id = &asked.session_id;
    let durable = truth.state(session_id);
    let state_is_durable = match reply.state {
        None => true,
        Some(State::Open) => durable.is_some(),
        Some(ended) => durable == Some(ended),
    };
    Property::Durable.holds(state_is_durable, || {
        format!("session {session_id} was answered to be {:?}, durable is {durable:?}", reply.state)
    })?;
    match (&reply.settled, &asked.what) {
        (
            Settled::Accepted { accepted_at_ms } | Settled::Duplicate { accepted_at_ms },
            What::Message { message_id, .. },
        ) => {
            let stored = truth.message(session_id, message_id).map(|(_, fact)| fact.accepted_at_ms);
            // A wrong time in the answer to a duplicate is for another property to find.
            let accepted = matches!(reply.settled, Settled::Accepted { .. });
            let fits = stored.is_some() && (!accepted || stored == Some(*accepted_at_ms));
            Property::Durable.holds(fits, || {
                format!("session {session_id}: {message_id} was answered {:?}, durable is {stored:?}", reply.settled)
            })
        }
        (Settled::Accepted { .. }, What::Cancel { reason }) => {
            let last = truth.session(session_id).and_then(|course| course.facts.last());
            let stored = last.is_some_and(|fact| fact.cause == Cause::Cancel { reason: reason.clone() });
            Property::Durable.holds(stored, || {
                format!("session {session_id}: a cancellation was answered that is not what ended it durably")
            })
        }
        (Settled::Unchanged, What::Cancel { .. }) => Property::Durable
            .holds(durable.is_some_and(|state| !state.is_open()), || {
                format!("session {session_id} was answered to have ended already, durable is {durable:?}")
            }),
        (Settled::Rejected(_), _) => Ok(()),
        (settled, what) => {
            Err(Property::Durable.violated(format!("session {session_id}: {what:?} was answered {settled:?}")))
        }
    }
}

/// A read shows exactly what the durable history replays to at the read's sequence.
fn check_read(asked: &Asked, snapshot: &Snapshot, truth: &Truth) -> Result<(), Violation> {
    let session_id = &asked.session_id;
    let fact = truth.session(session_id).and_then(|course| course.at(snapshot.sequence));
    Property::Durable.holds(fact.is_some_and(|fact| fact.view == view(snapshot)), || {
        let durable = truth.sequence(session_id);
        format!("session {session_id} was read as {snapshot:?}, which is not durable (durable is {durable})")
    })
}

pub(crate) fn check_lifecycle(lifecycle: &Lifecycle, truth: &Truth) -> Result<(), Violation> {
    let session_id = &lifecycle.session.session_id;
    let durable = truth.state(session_id);
    let fits = match lifecycle.event {
        LifecycleEvent::Created => durable.is_some(),
        LifecycleEvent::Resolved => durable == Some(State::Resolved),
        LifecycleEvent::Expired => durable == Some(State::Expired),
    };
    Property::Durable
        .holds(fits, || format!("session {session_id} was announced as {:?}, durable is {durable:?}", lifecycle.event))
}
