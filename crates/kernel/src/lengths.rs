//! How long the words and texts of payloads may be: one table for all of them, held to wherever a payload is read.
//!
//! A name or an id is shown to people and often kept in memory; a text is in the history alone. Attached bytes are free:
//! the limit of the payload bounds them. Every message is taken apart in full, so that a new field is not forgotten.

use macp_wire::modes::{decision, handoff, multi_round, proposal, quorum, task};
use macp_wire::{classic, v1};

use crate::limits::check_length;
use crate::{
    CONTRIBUTION_BYTES_MAX, HANDOFF_ID_BYTES_MAX, ID_BYTES_MAX, Rejection, STANDARD_MESSAGE_ID_BYTES_MAX,
    TEXT_BYTES_MAX,
};

/// A payload whose fields have lengths to keep.
pub(crate) trait Bounded {
    fn check_lengths(&self) -> Result<(), Rejection>;
}

/// The table: of each payload, the fields by their bound.
macro_rules! bounds {
    ($($payload:ty { $($bound:ident: $($field:ident),+;)+ })+) => {
        $(impl Bounded for $payload {
            fn check_lengths(&self) -> Result<(), Rejection> {
                let Self { $($($field,)+)+ } = self;
                $($(self::$bound(stringify!($field), $field)?;)+)+
                Ok(())
            }
        })+
    };
}

bounds! {
    v1::SessionStartPayload {
        names: participants;
        name: mode_version, configuration_version;
        free: intent, roots, policy_version, ttl_ms, context_id, extensions, max_suspend_ms;
    }
    classic::v1::SessionStartPayload {
        text: intent;
        names: participants;
        name: mode_version, configuration_version, policy_version;
        roots: roots;
        free: ttl_ms, context;
    }
    v1::CommitmentPayload {
        name: commitment_id, authority_scope, mode_version, policy_version, configuration_version;
        text: action, reason;
        superseded: supersedes;
        free: outcome_positive;
    }
    v1::SignalPayload { name: signal_type, correlation_session_id; free: data, confidence; }
    v1::ProgressPayload { name: progress_token; text: message; message_id: target_message_id; free: progress, total; }
    decision::v1::ProposalPayload { name: proposal_id; text: option, rationale; free: supporting_data; }
    decision::v1::EvaluationPayload { name: proposal_id, recommendation; text: reason; free: confidence; }
    decision::v1::ObjectionPayload { name: proposal_id, severity; text: reason; }
    decision::v1::VotePayload { name: proposal_id, vote; text: reason; }
    proposal::v1::ProposalPayload { name: proposal_id; text: title, summary; names: tags; free: details; }
    proposal::v1::CounterProposalPayload {
        name: proposal_id, supersedes_proposal_id;
        text: title, summary;
        free: details;
    }
    proposal::v1::AcceptPayload { name: proposal_id; text: reason; }
    proposal::v1::RejectPayload { name: proposal_id; text: reason; free: terminal; }
    proposal::v1::WithdrawPayload { name: proposal_id; text: reason; }
    task::v1::TaskRequestPayload {
        name: task_id, requested_assignee;
        text: title, instructions;
        free: input, deadline_unix_ms;
    }
    task::v1::TaskAcceptPayload { name: task_id, assignee; text: reason; }
    task::v1::TaskRejectPayload { name: task_id, assignee; text: reason; }
    task::v1::TaskUpdatePayload { name: task_id, status; text: message; free: progress, partial_output; }
    task::v1::TaskCompletePayload { name: task_id, assignee; text: summary; free: output; }
    task::v1::TaskFailPayload { name: task_id, assignee, error_code; text: reason; free: retryable; }
    handoff::v1::HandoffOfferPayload { handoff_id: handoff_id; name: target_participant; text: scope, reason; }
    handoff::v1::HandoffContextPayload { handoff_id: handoff_id; name: content_type; free: context; }
    handoff::v1::HandoffAcceptPayload { handoff_id: handoff_id; name: accepted_by; text: reason; free: implicit; }
    handoff::v1::HandoffDeclinePayload { handoff_id: handoff_id; name: declined_by; text: reason; }
    quorum::v1::ApprovalRequestPayload {
        name: request_id;
        text: action, summary;
        free: details, required_approvals;
    }
    quorum::v1::ApprovePayload { name: request_id; text: reason; }
    quorum::v1::RejectPayload { name: request_id; text: reason; }
    quorum::v1::AbstainPayload { name: request_id; text: reason; }
    multi_round::v1::ContributePayload { contribution: value; }
}

fn name(field: &str, word: &str) -> Result<(), Rejection> {
    check_length(field, word, ID_BYTES_MAX)
}

fn names(field: &str, words: &[String]) -> Result<(), Rejection> {
    words.iter().try_for_each(|word| name(field, word))
}

fn text(field: &str, text: &str) -> Result<(), Rejection> {
    check_length(field, text, TEXT_BYTES_MAX)
}

/// Of a message in any session, so as long as the standard lets them be.
fn message_id(field: &str, id: &str) -> Result<(), Rejection> {
    check_length(field, id, STANDARD_MESSAGE_ID_BYTES_MAX)
}

fn handoff_id(field: &str, id: &str) -> Result<(), Rejection> {
    check_length(field, id, HANDOFF_ID_BYTES_MAX)
}

fn contribution(field: &str, value: &str) -> Result<(), Rejection> {
    check_length(field, value, CONTRIBUTION_BYTES_MAX)
}

fn roots(_field: &str, roots: &[v1::Root]) -> Result<(), Rejection> {
    roots.iter().try_for_each(|v1::Root { uri, name: called }| {
        text("a root's uri", uri)?;
        name("a root's name", called)
    })
}

fn superseded(_field: &str, reference: &Option<v1::CommitmentRef>) -> Result<(), Rejection> {
    let Some(v1::CommitmentRef { session_id, commitment_hash }) = reference else {
        return Ok(());
    };
    name("supersedes.session_id", session_id)?;
    name("supersedes.commitment_hash", commitment_hash)
}

/// Numbers and attached bytes; what a standard start is never refused for; and the policy it names, which must be one that
/// is registered and so has a short name.
fn free<T>(_field: &str, _value: &T) -> Result<(), Rejection> {
    Ok(())
}

#[cfg(test)]
mod tests;
