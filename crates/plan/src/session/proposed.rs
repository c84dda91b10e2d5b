//! Finds a plan in the history of the session that decided on it, for readers who have nothing else.

use macp_plan_core::digest::Digest;
use macp_wire::history::v1::{Binding, Entry, entry};
use serde_json::Value;

use super::extract::{Candidate, candidate};

/// Looks for the plan with one digest, entry by entry. Whether the session committed to it is not asked: a digest names
/// one plan, whoever brings it.
#[derive(Debug)]
pub struct PlanSearch {
    digest: Digest,
    binding: Option<Box<Binding>>,
    found: Option<Value>,
}

impl PlanSearch {
    #[must_use]
    pub fn new(digest: Digest) -> Self {
        Self { digest, binding: None, found: None }
    }

    pub fn take(&mut self, recorded: &Entry) {
        if let Some(binding) = &recorded.binding {
            self.binding = Some(binding.clone());
        }
        if self.found.is_some() {
            return;
        }
        if let (Some(binding), Some(entry::Input::Envelope(envelope))) = (&self.binding, &recorded.input)
            && let Some(Candidate::Plan(plan)) = candidate(binding, envelope, &self.digest)
        {
            self.found = Some(plan);
        }
    }

    /// The plan, none if no entry had it; a reference to a plan is none.
    #[must_use]
    pub fn found(self) -> Option<Value> {
        self.found
    }
}
