//! What another policy would have changed: nothing when it is the session's own, and never an error.

use macp_kernel::Profile;
use macp_kernel::policy::Policy;
use macp_kernel::replay::WhatIf;
use macp_wire::history::v1::entry;
use macp_wire::v1::WhatIfReplayResponse;

use super::reader::Reader;
use super::{Course, policies};

/// Asks both questions of a standard session; true when the candidate would have changed something.
pub(super) fn check(course: &Course, candidate: &[u8]) -> bool {
    let Some(session) = course.slot.as_ref().filter(|session| session.binding().profile == Profile::Standard) else {
        return false;
    };
    let binding = session.binding();
    let same = replayed(course, Policy::clone(&binding.policy));
    assert_eq!(same.first_divergence, None, "the session's own policy: {same:?}");
    assert_eq!(same.recorded, same.candidate);
    assert!(same.denials.is_empty(), "{same:?}");

    let candidate = policies::registered(binding.mode_name(), "policy.candidate", &mut Reader(candidate));
    let other = replayed(course, candidate);
    assert_eq!(other.recorded, same.recorded, "what was recorded does not depend on the candidate");
    let refused =
        |response: &WhatIfReplayResponse| response.entries.iter().any(|entry| entry.recorded != entry.candidate);
    assert_eq!(other.first_divergence.is_some(), refused(&other));
    assert!(other.denials.is_empty() || other.first_divergence.is_some());
    other.first_divergence.is_some()
}

fn replayed(course: &Course, candidate: Policy) -> WhatIfReplayResponse {
    let mut what_if = WhatIf::new(candidate);
    for entry in &course.entries {
        what_if.feed(entry).unwrap_or_else(|stop| panic!("{stop} at {entry:?}"));
    }
    let response = what_if.finish().expect("the history is not empty");
    let messages = course.entries.iter().filter(|entry| matches!(entry.input, Some(entry::Input::Envelope(_))));
    assert_eq!(response.entries.len(), messages.count(), "every message is told of");
    let live = course.slot.as_ref().expect("the course has a session");
    let recorded = response.recorded.as_ref().expect("there is an outcome");
    assert_eq!(recorded.state, i32::from(live.state().to_wire()));
    assert_eq!(recorded.resolution, live.resolution().cloned().unwrap_or_default());
    response
}
