//! What governance says when it refuses: every reason, for people and for programs.

use std::collections::BTreeSet;

use macp_wire::codes::Code;
use serde::{Serialize, Serializer};
use smol_str::SmolStr;

use crate::Rejection;

/// Why a policy refuses, in words programs know. Clients tolerate words they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenialCode {
    Veto,
    VetoHold,
    QuorumNotMet,
    ThresholdNotMet,
    ConfidenceBelowMinimum,
    EvaluationRequired,
    NoVotes,
    DeclineOverApproval,
    DeclineNotBacked,
    CriterionNotMet,
    OutputRequired,
    ReassignmentNotAllowed,
    UnsupportedSchemaVersion,
    InvalidRules,
    Unspecified,
}

impl DenialCode {
    pub const ALL: [DenialCode; 15] = [
        DenialCode::Veto,
        DenialCode::VetoHold,
        DenialCode::QuorumNotMet,
        DenialCode::ThresholdNotMet,
        DenialCode::ConfidenceBelowMinimum,
        DenialCode::EvaluationRequired,
        DenialCode::NoVotes,
        DenialCode::DeclineOverApproval,
        DenialCode::DeclineNotBacked,
        DenialCode::CriterionNotMet,
        DenialCode::OutputRequired,
        DenialCode::ReassignmentNotAllowed,
        DenialCode::UnsupportedSchemaVersion,
        DenialCode::InvalidRules,
        DenialCode::Unspecified,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            DenialCode::Veto => "veto",
            DenialCode::VetoHold => "veto_hold",
            DenialCode::QuorumNotMet => "quorum_not_met",
            DenialCode::ThresholdNotMet => "threshold_not_met",
            DenialCode::ConfidenceBelowMinimum => "confidence_below_minimum",
            DenialCode::EvaluationRequired => "evaluation_required",
            DenialCode::NoVotes => "no_votes",
            DenialCode::DeclineOverApproval => "decline_over_approval",
            DenialCode::DeclineNotBacked => "decline_not_backed",
            DenialCode::CriterionNotMet => "criterion_not_met",
            DenialCode::OutputRequired => "output_required",
            DenialCode::ReassignmentNotAllowed => "reassignment_not_allowed",
            DenialCode::UnsupportedSchemaVersion => "unsupported_schema_version",
            DenialCode::InvalidRules => "invalid_rules",
            DenialCode::Unspecified => "unspecified",
        }
    }
}

impl Serialize for DenialCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One reason. The members are those clients read (STD-POL-30).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    pub code: DenialCode,
    pub message: String,
    /// Those whose doing it is, where that helps to resolve it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub participants: BTreeSet<SmolStr>,
}

impl Denial {
    pub fn new(code: DenialCode, message: impl Into<String>) -> Self {
        Denial { code, message: message.into(), participants: BTreeSet::new() }
    }
}

#[derive(Serialize)]
struct Details<'a> {
    reasons: Vec<&'a str>,
    denials: &'a [Denial],
}

/// The refusal all reasons together make, in their order.
pub fn denied(denials: Vec<Denial>) -> Rejection {
    debug_assert!(!denials.is_empty(), "a refusal has a reason");
    let reasons: Vec<&str> = denials.iter().map(|denial| denial.message.as_str()).collect();
    let message = reasons.join("; ");
    let details = serde_json::to_vec(&Details { reasons, denials: &denials })
        .expect("words, lists and sets of words always have a JSON form");
    Rejection { details: details.into(), ..Rejection::new(Code::PolicyDenied, message) }
}
