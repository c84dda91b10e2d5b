//! Nothing leaves before what it depends on is durable. Asked at the very moment something leaves.

use macp_engine::{Answer, Lifecycle, LifecycleEvent, Reply, Snapshot};
use macp_kernel::{Settled, State};

use crate::oracle::{Asked, What};
use crate::properties::{Property, Violation};
use crate::truth::{ControlKind, Fact, Truth, view};

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
        Some(ended) if ended.is_terminal() => durable == Some(ended),
        // The history may have gone on since.
        Some(state) => truth.session(session_id).is_some_and(|course| course.first(state).is_some()),
    };
    Property::Durable.holds(state_is_durable, || {
        format!("session {session_id} was answered to be {:?}, durable is {durable:?}", reply.state)
    })?;
    match (&reply.settled, &asked.what) {
        (
            Settled::Accepted { accepted_at_ms } | Settled::Duplicate { accepted_at_ms },
            What::Message { message_id, .. },
        ) => {
            let fact = truth.message(session_id, message_id).map(|(_, fact)| fact);
            let stored = fact.map(|fact| fact.accepted_at_ms);
            // A wrong time in the answer to a duplicate is for another property to find.
            let accepted = matches!(reply.settled, Settled::Accepted { .. });
            let same = |fact: &Fact| fact.accepted_at_ms == *accepted_at_ms && Some(fact.state) == reply.state;
            let fits = fact.is_some_and(|fact| !accepted || same(fact));
            Property::Durable.holds(fits, || {
                format!("session {session_id}: {message_id} was answered {:?}, durable is {stored:?}", reply.settled)
            })
        }
        (Settled::Accepted { accepted_at_ms }, What::Control { kind, reason }) => {
            let same = |fact: &Fact| fact.accepted_at_ms == *accepted_at_ms && Some(fact.state) == reply.state;
            let mut stored = truth.session(session_id).into_iter().flat_map(|course| course.controls(*kind, reason));
            Property::Durable.holds(stored.any(|(_, fact)| same(fact)), || {
                format!("session {session_id}: {kind:?} was answered {reply:?} and is not durable like that")
            })
        }
        (Settled::Unchanged, What::Control { kind: ControlKind::Cancel, .. }) => Property::Durable
            .holds(durable.is_some_and(State::is_terminal), || {
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
        // How many of them are durable is for those who count announcements.
        LifecycleEvent::Resolved => durable == Some(State::Resolved),
        LifecycleEvent::Suspended | LifecycleEvent::Resumed => durable.is_some(),
        LifecycleEvent::Expired => durable == Some(State::Expired),
        LifecycleEvent::Cancelled => durable == Some(State::Cancelled),
    };
    Property::Durable
        .holds(fits, || format!("session {session_id} was announced as {:?}, durable is {durable:?}", lifecycle.event))
}
