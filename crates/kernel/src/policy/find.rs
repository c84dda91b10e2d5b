//! Which policy a name means.

use std::sync::Arc;

use super::{Policy, builtins};
use crate::Registered;

/// The policy of a name: the one that was looked up, else a built-in one. The looked-up one comes first, so that a
/// replay is governed by what the history holds and by nothing else.
pub(crate) fn find<'a>(name: &str, registered: &'a Registered) -> Option<&'a Arc<Policy>> {
    let registered = registered.policy.as_ref().filter(|policy| policy.id() == name);
    registered.or_else(|| builtins().iter().find(|policy| policy.id() == name))
}
