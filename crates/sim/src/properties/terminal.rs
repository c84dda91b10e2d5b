//! A session ends once and for good: one terminal entry, the last; the index says what replay says; watchers hear of
//! it once; nobody who was told of the end hears of anything else later.

use std::collections::{BTreeMap, BTreeSet};

use macp_engine::{Lifecycle, LifecycleEvent, Reply};
use macp_kernel::Session;
use macp_ledger::{Hash, Head};
use macp_wire::v1::SessionMetadata;
use prost::Message;

use crate::oracle::Asked;
use crate::properties::{Property, Violation};
use crate::truth::{Cause, ControlKind, Course, Fact, Truth};

/// No entry but the last ends the session.
pub(crate) fn check_course(session_id: &str, course: &Course) -> Result<(), Violation> {
    let before_last = course.facts.len().saturating_sub(1);
    let ends_early = course.facts[..before_last].iter().position(|fact| fact.state.is_terminal());
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
            && head.state == i32::from(position.state.to_wire())
            && head.open != position.state.is_terminal()
            // Nobody asks when time acts on what has ended.
            && (position.state.is_terminal()
                || (head.deadline_ms == position.quiet_until_ms && summary_fits(head, replayed)))
    });
    Property::Terminal
        .holds(fits, || format!("session {session_id}: the index says {head:?}, the history replays to {position:?}"))
}

/// What the index says for those who do not load the session: the summary of it, whatever its state.
fn summary_fits(head: &Head, replayed: &Session) -> bool {
    SessionMetadata::decode(head.summary.clone()).is_ok_and(|summary| {
        SessionMetadata { state: 0, ..summary } == SessionMetadata { state: 0, ..replayed.summary() }
    })
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
    /// How often each was suspended and resumed.
    pauses: BTreeMap<(String, ControlKind), u64>,
}

impl Announced {
    pub(crate) fn check(&mut self, lifecycle: &Lifecycle, truth: &Truth) -> Result<(), Violation> {
        let heard = match lifecycle.event {
            LifecycleEvent::Created => &mut self.created,
            LifecycleEvent::Suspended => return self.check_pause(lifecycle, ControlKind::Suspend, truth),
            LifecycleEvent::Resumed => return self.check_pause(lifecycle, ControlKind::Resume, truth),
            LifecycleEvent::Resolved | LifecycleEvent::Expired | LifecycleEvent::Cancelled => &mut self.ended,
        };
        Property::Terminal.holds(heard.insert(lifecycle.session.session_id.clone()), || {
            format!("session {} was announced again as {:?}", lifecycle.session.session_id, lifecycle.event)
        })
    }
    /// Announced at most as often as it durably happened.
    fn check_pause(&mut self, lifecycle: &Lifecycle, kind: ControlKind, truth: &Truth) -> Result<(), Violation> {
        let session_id = &lifecycle.session.session_id;
        let told = self.pauses.entry((session_id.clone(), kind)).or_default();
        *told += 1;
        let is_kind = |fact: &&Fact| matches!(fact.cause, Cause::Control { kind: found, .. } if found == kind);
        let facts = truth.session(session_id).map_or(&[][..], |course| &course.facts);
        let happened = facts.iter().filter(is_kind).count() as u64;
        Property::Durable.holds(*told <= happened, || {
            format!("session {session_id}: {told} times {kind:?} were announced, durable are {happened}")
        })
    }
}
