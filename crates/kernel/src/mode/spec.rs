//! What a mode says about itself.

use macp_wire::v1::ModeDescriptor;

use crate::Profile;

/// How much of a session replay reproduces (RFC-MACP-0003, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Lifecycle and accept/reject decisions.
    StructuralOnly,
    /// And the outcome.
    SemanticDeterministic,
    /// And the outcome, given the context bound at the start.
    ContextFrozen,
    /// Lifecycle and accept/reject decisions; a replay of the meaning is refused.
    NonDeterministic,
}

impl Determinism {
    pub fn as_str(self) -> &'static str {
        match self {
            Determinism::StructuralOnly => "structural-only",
            Determinism::SemanticDeterministic => "semantic-deterministic",
            Determinism::ContextFrozen => "context-frozen",
            Determinism::NonDeterministic => "non-deterministic",
        }
    }

    /// Whether replay vouches for the outcome and not for the course alone.
    pub fn covers_outcome(self) -> bool {
        matches!(self, Determinism::SemanticDeterministic | Determinism::ContextFrozen)
    }
}

/// A mode's description of itself.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub profile: Profile,
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub version: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub determinism: Determinism,
    pub participant_model: &'static str,
    pub message_types: &'static [&'static str],
    pub terminal_message_types: &'static [&'static str],
    /// Whether the session's policy says who may commit, and with that who may end or pause the session. Otherwise it is
    /// the initiator, whatever the policy says.
    pub commits_by_policy: bool,
}

impl Spec {
    pub fn descriptor(&self) -> ModeDescriptor {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        ModeDescriptor {
            mode: self.name.to_owned(),
            mode_version: self.version.to_owned(),
            title: self.title.to_owned(),
            description: self.description.to_owned(),
            determinism_class: self.determinism.as_str().to_owned(),
            participant_model: self.participant_model.to_owned(),
            message_types: words(self.message_types),
            terminal_message_types: words(self.terminal_message_types),
            schema_uris: [("protobuf".to_owned(), "macp.v1".to_owned())].into(),
        }
    }
}
