//! Causes: what a skill reports when an attempt did not simply succeed. A closed list, so that every failure has a code.

use serde::{Deserialize, Serialize};

const TOO_MANY_REQUESTS: u16 = 429;

/// Why an attempt ended the way it did. Journalled as an input; the code is computed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Cause {
    /// The skill did what it was asked.
    Success,
    /// The skill did a part of it.
    Partial,
    /// An answer with a status; statuses below 400 are a success.
    HttpStatus {
        status: u16,
        /// It answers another request than the one that counts, and proves nothing about that one: a GET that took its
        /// place behind a redirect, or a later request of the same call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redirected: bool,
    },
    /// A response head that cannot be read.
    HttpMalformed,
    /// The skill's own timer ran out.
    ClientTimeout,
    /// The executor's guard or the step's deadline.
    GuardTimeout,
    DnsFailure,
    Connection {
        fault: ConnectionFault,
    },
    Tls,
    TooManyRedirects,
    AnswerTooLarge,
    EgressForbidden,
    RateLimited,
    ConcurrencyLimited,
    /// An answer of a model provider that is not a success.
    LlmStatus {
        status: u16,
        /// The provider said that the prompt is too long.
        #[serde(default)]
        context_length: bool,
    },
    LlmContentFilter,
    LlmInvalidResponse,
    InputInvalid,
    ReferenceUnresolved,
    OutputMismatch,
    SerializationFailed,
    DeserializationFailed,
    SkillNotFound,
    SkillDisabled,
    NotAllowed,
    BudgetExceeded,
    QuotaExceeded,
    StorageQuotaExceeded,
    SafetyRejected,
    PromptInjection,
    /// The skill panicked, or the executor failed around one step.
    Internal,
    /// The skill had no better name for it.
    Unclassified,
    IdempotencyConflict,
    EffectInDoubt,
    Cancelled,
}

impl Cause {
    /// An answer with a status.
    #[must_use]
    pub const fn http(status: u16) -> Self {
        Cause::HttpStatus { status, redirected: false }
    }

    /// Whether the executor says so of a step, and never the skill it calls.
    #[must_use]
    pub fn is_executors(&self) -> bool {
        matches!(
            self,
            Cause::GuardTimeout
                | Cause::RateLimited
                | Cause::ConcurrencyLimited
                | Cause::BudgetExceeded
                | Cause::StorageQuotaExceeded
                | Cause::IdempotencyConflict
                | Cause::EffectInDoubt
                | Cause::Cancelled
        )
    }

    /// Whether the call did what it was asked, at least in part.
    #[must_use]
    pub fn is_success(&self) -> bool {
        match self {
            Cause::Success | Cause::Partial => true,
            Cause::HttpStatus { status, .. } => (100..400).contains(status),
            _ => false,
        }
    }

    /// Whether it proves that the other side consumed nothing: the request did not get that far, or was never sent.
    #[must_use]
    pub fn consumes_nothing(&self) -> bool {
        matches!(
            self,
            Cause::DnsFailure
                | Cause::Connection { fault: ConnectionFault::Refused | ConnectionFault::Unreachable }
                | Cause::Tls
                | Cause::EgressForbidden
                | Cause::RateLimited
                | Cause::ConcurrencyLimited
                | Cause::InputInvalid
                | Cause::ReferenceUnresolved
                | Cause::SerializationFailed
                | Cause::SkillNotFound
                | Cause::SkillDisabled
                | Cause::NotAllowed
                | Cause::BudgetExceeded
                | Cause::IdempotencyConflict
                | Cause::Cancelled
        )
    }

    /// Whether it proves that a call had no effect: nothing was sent, or the other side refused it. Everything else
    /// leaves that open (AOS-42): who is too slow may have acted, and so may who broke down or answers unreadably.
    #[must_use]
    pub fn proves_no_effect(&self) -> bool {
        match self {
            // Whoever was asked first may have acted, whatever became of asking elsewhere.
            Cause::HttpStatus { redirected: true, .. } => false,
            // The other side tells that it gave up waiting, not what it did before.
            Cause::HttpStatus { status: 408, .. } | Cause::LlmStatus { status: 408, .. } => false,
            Cause::HttpStatus { status, .. } | Cause::LlmStatus { status, .. } => (400..500).contains(status),
            Cause::SafetyRejected | Cause::PromptInjection => true,
            // A call that was broken off may have been heard.
            Cause::Cancelled => false,
            cause => cause.consumes_nothing(),
        }
    }

    /// The same failure where it proves nothing, because an earlier request may have had an effect.
    #[must_use]
    pub fn unproven(self) -> Self {
        match self {
            cause if !cause.proves_no_effect() => cause,
            // Policies take this code for a reason to send the request again, and it may have been heard.
            Cause::HttpStatus { status: TOO_MANY_REQUESTS, .. } => Cause::Unclassified,
            Cause::HttpStatus { status, .. } => Cause::HttpStatus { status, redirected: true },
            _ => Cause::Unclassified,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionFault {
    Refused,
    Unreachable,
    Reset,
    BrokenPipe,
    ClosedEarly,
}
