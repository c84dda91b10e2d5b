//! A session ends once and for good: one terminal entry, the last; the index says what replay says; watchers hear of
//! it once; nobody who was told of the end hears of anything else later.

use std::collections::BTreeSet;

use macp_engine::{Lifecycle, LifecycleEvent, Reply};
use macp_kernel::Session;
use macp_ledger::{Hash, Head};

use crate::oracle::Asked;
use crate::properties::{Property, Violation};
use crate::truth::Course;

/// Every entry but the last leaves the session open.
pub(crate) fn check_course(session_id: &str, course: &Course) -> Result<(), Violation> {
    let before_last = course.facts.len().saturating_sub(1);
    let ends_early = course.facts[..before_last].iter().position(|fact| !fact.state.is_open());
    Property::Terminal.holds(ends_early.is_none(), || {
        format!("session {session_id} goes on after it ended with entry {:?}", ends_early.map(|at| at + 1))
    })
}

/// The index row is what the history replays to.
pub(crate) fn check_index(
    session_id: &str,
    head: Option<&Head>,
    replayed: &Session,
    hash: Option<Hash>,
) -> Result<(), Violation> {
    let position = replayed.position();
    let fits = head.is_some_and(|head| {
        head.sequence == position.sequence
            && Some(head.hash) == hash
            && head.deadline_ms == position.deadline_ms
            && head.state == i32::from(position.state.to_wire())
            && head.open == position.state.is_open()
    });
    Property::Terminal
        .holds(fits, || format!("session {session_id}: the index says {head:?}, the history replays to {position:?}"))
}

/// Who knew of the end before asking is told of the same end.
pub(crate) fn check_reply(asked: &Asked, reply: &Reply) -> Result<(), Violation> {
    Property::Terminal.holds(asked.told.end.is_none() || reply.state == asked.told.end, || {
        format!(
            "session {} was answered to be {:?} after it had been told to be {:?}",
            asked.session_id, reply.state, asked.told.end
        )
    })
}

/// What watchers heard.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    created: BTreeSet<String>,
    ended: BTreeSet<String>,
}

impl Announced {
    pub(crate) fn check(&mut self, lifecycle: &Lifecycle) -> Result<(), Violation> {
        let heard = match lifecycle.event {
            LifecycleEvent::Created => &mut self.created,
            LifecycleEvent::Resolved | LifecycleEvent::Expired => &mut self.ended,
        };
        Property::Terminal.holds(heard.insert(lifecycle.session.session_id.clone()), || {
            format!("session {} was announced again as {:?}", lifecycle.session.session_id, lifecycle.event)
        })
    }
}
