//! Governance: declarative rules a session is bound to at its start. A policy can only narrow what a mode allows.
//!
//! A descriptor becomes a [`Policy`] once, with every default filled in ([`Policy::read`]); from there on rules are
//! typed values. `validate` is what registration asks, `evaluate` what a Commitment is held to. A session keeps the
//! descriptor it was bound to in its first entry, so that nothing here ever needs a registry.

mod builtin;
mod denial;
pub mod evaluate;
mod find;
mod invalid;
mod json;
mod keys;
mod read;
mod validate;

use std::collections::{BTreeMap, BTreeSet};

use macp_wire::v1::PolicyDescriptor;
use smol_str::SmolStr;

pub use builtin::{DEFAULT_ID, STANDARD_PREFIX, builtins, default_policy};
pub use denial::{Denial, DenialCode, denied};
pub(crate) use find::find;
pub use invalid::InvalidPolicy;
pub use validate::{validate, validate_candidate};

/// The schema versions of rules that are understood.
pub const SCHEMA_VERSIONS: [u32; 3] = [1, 2, 3];

/// Longest text of the rules, in bytes. A descriptor is kept in memory and with every session it governs; weights for a
/// thousand participants of ordinary names fit in.
pub const RULES_BYTES_MAX: usize = 65_536;

/// Deepest nesting of the rules, notes included: the rules themselves need three levels.
pub const RULES_DEPTH_MAX: usize = 32;

/// Longest description, in bytes: a paragraph, not a document.
pub const DESCRIPTION_BYTES_MAX: usize = 4096;

/// A policy as it governs: its descriptor and the rules in it, typed and complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub descriptor: PolicyDescriptor,
    pub rules: Rules,
}

impl Policy {
    pub fn id(&self) -> &str {
        &self.descriptor.policy_id
    }

    pub fn schema_version(&self) -> u32 {
        self.descriptor.schema_version
    }

    /// Whether it may govern sessions of a mode.
    pub fn covers(&self, mode: &str) -> bool {
        self.descriptor.mode == "*" || self.descriptor.mode == mode
    }
}

/// Every rule of every mode, with its default where the descriptor says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    pub voting: Voting,
    pub objections: Objections,
    pub evaluations: Evaluations,
    pub commitment: Commitment,
    /// Of the proposal mode.
    pub criterion: Criterion,
    /// Most counter-proposals; 0 is no limit.
    pub counter_proposals_max: u64,
    pub terminal_on_any_reject: bool,
    pub allow_reassignment_on_reject: bool,
    pub require_output: bool,
    /// After how long an unanswered handoff counts as accepted; 0 is never.
    pub implicit_accept_timeout_ms: i64,
    /// Of the quorum mode; replaces what the request asks for.
    pub threshold: Option<Threshold>,
    pub abstention: Abstention,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Voting {
    pub algorithm: Algorithm,
    pub threshold: f64,
    pub quorum: VoteQuorum,
    pub weights: Option<Weights>,
}

/// How much the vote of each participant weighs; whoever is not in it weighs nothing.
pub type Weights = BTreeMap<SmolStr, f64>;

impl Default for Voting {
    fn default() -> Self {
        Voting { algorithm: Algorithm::None, threshold: 0.5, quorum: VoteQuorum::default(), weights: None }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Votes are advice.
    #[default]
    None,
    Majority,
    Supermajority,
    Unanimous,
    Weighted,
    Plurality,
}

/// How many participants must have voted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VoteQuorum {
    Count(f64),
    /// On a scale of 0 to 100.
    Percentage(f64),
}

impl Default for VoteQuorum {
    fn default() -> Self {
        VoteQuorum::Count(0.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objections {
    pub critical_severity_vetoes: bool,
    pub veto_threshold: u64,
    pub action: ObjectionAction,
}

impl Default for Objections {
    fn default() -> Self {
        Objections { critical_severity_vetoes: false, veto_threshold: 1, action: ObjectionAction::Deny }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectionAction {
    #[default]
    Deny,
    FinalizeDecline,
    Hold,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluations {
    pub required_before_voting: bool,
    pub minimum_confidence: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commitment {
    pub authority: Authority,
    pub designated_roles: BTreeSet<SmolStr>,
    pub require_vote_quorum: bool,
    pub allow_decline_over_approval: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    #[default]
    InitiatorOnly,
    AnyParticipant,
    DesignatedRole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Criterion {
    #[default]
    AllParties,
    Counterparty,
    Initiator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// That many approvals.
    Count(u64),
    /// That many in a hundred of the participants.
    Percentage(u64),
}

/// How abstentions are told of in reports; they decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abstention {
    pub counts_toward_quorum: bool,
    pub interpretation: Interpretation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpretation {
    #[default]
    Neutral,
    ImplicitReject,
    Ignored,
}
