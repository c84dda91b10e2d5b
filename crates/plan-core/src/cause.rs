//! Causes: what a skill reports when an attempt did not simply succeed. A closed list, so that every failure has a code.

use serde::{Deserialize, Serialize};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionFault {
    Refused,
    Unreachable,
    Reset,
    BrokenPipe,
    ClosedEarly,
}
