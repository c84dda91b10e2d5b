//! Classes of causes: the rows of the mapping from what happened to a code.
//!
//! A cause falls into exactly one class, and every version of the taxonomy gives every class a code. Both are matches
//! over closed enums, so neither can have a hole.

use crate::cause::Cause;

macro_rules! classes {
    ($($class:ident $name:literal $code:literal $meaning:literal;)*) => {
        /// What causes have in common that the taxonomy treats alike.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Class {
            $($class,)*
        }

        impl Class {
            pub const ALL: &'static [Class] = &[$(Class::$class,)*];

            /// A stable name, part of a version's digest.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Class::$class => $name,)* }
            }

            /// For people.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Class::$class => $meaning,)* }
            }

            pub(super) fn code_1_0_0(self) -> &'static str {
                match self { $(Class::$class => $code,)* }
            }
        }
    };
}

classes! {
    Success "success" "OK" "the skill did what it was asked (skills may name a success code of their own)";
    Partial "partial" "OK" "the skill did a part of what it was asked";
    Http400 "http_400" "ERR_HTTP_400" "HTTP status 400";
    Http401 "http_401" "ERR_HTTP_401" "HTTP status 401";
    Http403 "http_403" "ERR_HTTP_403" "HTTP status 403";
    Http404 "http_404" "ERR_HTTP_404" "HTTP status 404";
    Http408 "http_408" "ERR_HTTP_TIMEOUT" "HTTP status 408";
    Http429 "http_429" "ERR_HTTP_429" "HTTP status 429";
    Http4xx "http_4xx" "ERR_HTTP_4XX" "any other HTTP status from 400 to 499";
    Http500 "http_500" "ERR_HTTP_500" "HTTP status 500";
    Http502 "http_502" "ERR_HTTP_502" "HTTP status 502";
    Http503 "http_503" "ERR_HTTP_503" "HTTP status 503";
    Http504 "http_504" "ERR_HTTP_504" "HTTP status 504";
    Http5xx "http_5xx" "ERR_HTTP_5XX" "any other HTTP status from 500 to 599";
    HttpMalformed "http_malformed" "ERR_UNKNOWN" "a response head that cannot be read, or a status outside 100 to 599";
    ClientTimeout "client_timeout" "ERR_HTTP_TIMEOUT" "the skill's own timer ran out while connecting or reading";
    GuardTimeout "guard_timeout" "ERR_TIMEOUT" "the executor's guard or a deadline ended the attempt";
    DnsFailure "dns_failure" "ERR_DNS_FAILURE" "the name of the host could not be resolved";
    Connection "connection" "ERR_CONNECTION_REFUSED" "the connection was refused, unreachable, reset or closed early";
    Tls "tls" "ERR_SSL_ERROR" "the TLS handshake, the certificate or the host name in it was not acceptable";
    TooManyRedirects "too_many_redirects" "ERR_HTTP_4XX" "too many redirects";
    AnswerTooLarge "answer_too_large" "ERR_VALIDATION_FAILED" "the answer was larger than the skill's limit";
    EgressForbidden "egress_forbidden" "ERR_POLICY_VIOLATION" "the host or scheme is forbidden by the egress policy";
    RateLimited "rate_limited" "ERR_RATE_LIMIT_INTERNAL" "this runtime's request-rate limiter refused the call";
    ConcurrencyLimited "concurrency_limited" "ERR_RATE_LIMIT_CONCURRENT" "this runtime's concurrency limiter refused the call";
    LlmThrottled "llm_throttled" "ERR_LLM_RATE_LIMIT" "the model provider throttled the call (429)";
    LlmFault "llm_fault" "ERR_LLM_API_ERROR" "the model provider is overloaded or failed (5xx)";
    LlmContextLength "llm_context_length" "ERR_LLM_CONTEXT_LENGTH" "the model provider found the prompt too long";
    LlmRejected "llm_rejected" "ERR_VALIDATION_FAILED" "the model provider rejected the request or does not know the model";
    LlmUnauthorized "llm_unauthorized" "ERR_HTTP_401" "the model provider answered 401";
    LlmForbidden "llm_forbidden" "ERR_HTTP_403" "the model provider answered 403";
    LlmTimeout "llm_timeout" "ERR_HTTP_TIMEOUT" "the model provider answered 408";
    LlmOther4xx "llm_other_4xx" "ERR_HTTP_4XX" "the model provider answered with another status from 400 to 499";
    LlmContentFilter "llm_content_filter" "ERR_LLM_CONTENT_FILTER" "the model provider blocked the content";
    LlmInvalidResponse "llm_invalid_response" "ERR_LLM_INVALID_RESPONSE" "the model's answer is not usable";
    LlmMalformed "llm_malformed" "ERR_UNKNOWN" "the model provider answered with a status outside 100 to 599";
    InputInvalid "input_invalid" "ERR_VALIDATION_FAILED" "the parameters do not fit the skill's input schema";
    ReferenceUnresolved "reference_unresolved" "ERR_VALIDATION_FAILED" "a reference to an earlier step's output leads nowhere";
    OutputMismatch "output_mismatch" "ERR_SCHEMA_MISMATCH" "the output does not fit the skill's output schema";
    SerializationFailed "serialization_failed" "ERR_SERIALIZATION_FAILED" "a request could not be written";
    DeserializationFailed "deserialization_failed" "ERR_DESERIALIZATION_FAILED" "a document could not be read";
    SkillNotFound "skill_not_found" "ERR_SKILL_NOT_FOUND" "the skill, or its pinned version, is not registered";
    SkillDisabled "skill_disabled" "ERR_SKILL_DISABLED" "the skill is registered but switched off";
    NotAllowed "not_allowed" "ERR_PERMISSION_DENIED" "the skill is not in allowed_skills, or a permission is missing";
    BudgetExceeded "budget_exceeded" "ERR_BUDGET_EXCEEDED" "the attempt would cost more than remains or than one step may";
    QuotaExceeded "quota_exceeded" "ERR_QUOTA_EXCEEDED" "a limit on the agent's spending, or a provider's quota, is used up";
    StorageQuotaExceeded "storage_quota_exceeded" "ERR_STORAGE_QUOTA_EXCEEDED" "the quota for bodies or journals is used up";
    SafetyRejected "safety_rejected" "ERR_SAFETY_REJECTED" "a safety checker refused";
    PromptInjection "prompt_injection" "ERR_PROMPT_INJECTION" "an injection into a prompt was detected";
    Internal "internal" "ERR_INTERNAL" "the skill panicked, or the executor failed around one step";
    Unclassified "unclassified" "ERR_UNKNOWN" "the skill had no better name for what happened";
    IdempotencyConflict "idempotency_conflict" "ERR_VALIDATION_FAILED" "the same effect key was used for another request";
    EffectInDoubt "effect_in_doubt" "ERR_UNKNOWN" "dispatched, answer lost, and not safe to repeat";
    Cancelled "cancelled" "ERR_POLICY_VIOLATION" "an operator or the session cancelled the run";
}

impl Class {
    /// Where 1.0.0 had to make do with a neighbour, 1.1.0 has a code; everything else is as it was.
    pub(super) fn code_1_1_0(self) -> &'static str {
        match self {
            Class::Partial => "OK_PARTIAL",
            Class::IdempotencyConflict => "ERR_IDEMPOTENCY_CONFLICT",
            Class::EffectInDoubt => "ERR_EFFECT_IN_DOUBT",
            Class::Cancelled => "ERR_CANCELLED",
            other => other.code_1_0_0(),
        }
    }

    /// The class of a cause.
    #[must_use]
    pub fn of(cause: &Cause) -> Class {
        match cause {
            Cause::Success => Class::Success,
            Cause::Partial => Class::Partial,
            Cause::HttpStatus { status, .. } => Class::of_http(*status),
            Cause::HttpMalformed => Class::HttpMalformed,
            Cause::ClientTimeout => Class::ClientTimeout,
            Cause::GuardTimeout => Class::GuardTimeout,
            Cause::DnsFailure => Class::DnsFailure,
            Cause::Connection { fault: _ } => Class::Connection,
            Cause::Tls => Class::Tls,
            Cause::TooManyRedirects => Class::TooManyRedirects,
            Cause::AnswerTooLarge => Class::AnswerTooLarge,
            Cause::EgressForbidden => Class::EgressForbidden,
            Cause::RateLimited => Class::RateLimited,
            Cause::ConcurrencyLimited => Class::ConcurrencyLimited,
            Cause::LlmStatus { status, context_length } => Class::of_llm(*status, *context_length),
            Cause::LlmContentFilter => Class::LlmContentFilter,
            Cause::LlmInvalidResponse => Class::LlmInvalidResponse,
            Cause::InputInvalid => Class::InputInvalid,
            Cause::ReferenceUnresolved => Class::ReferenceUnresolved,
            Cause::OutputMismatch => Class::OutputMismatch,
            Cause::SerializationFailed => Class::SerializationFailed,
            Cause::DeserializationFailed => Class::DeserializationFailed,
            Cause::SkillNotFound => Class::SkillNotFound,
            Cause::SkillDisabled => Class::SkillDisabled,
            Cause::NotAllowed => Class::NotAllowed,
            Cause::BudgetExceeded => Class::BudgetExceeded,
            Cause::QuotaExceeded => Class::QuotaExceeded,
            Cause::StorageQuotaExceeded => Class::StorageQuotaExceeded,
            Cause::SafetyRejected => Class::SafetyRejected,
            Cause::PromptInjection => Class::PromptInjection,
            Cause::Internal => Class::Internal,
            Cause::Unclassified => Class::Unclassified,
            Cause::IdempotencyConflict => Class::IdempotencyConflict,
            Cause::EffectInDoubt => Class::EffectInDoubt,
            Cause::Cancelled => Class::Cancelled,
        }
    }

    fn of_http(status: u16) -> Class {
        match status {
            100..=399 => Class::Success,
            400 => Class::Http400,
            401 => Class::Http401,
            403 => Class::Http403,
            404 => Class::Http404,
            408 => Class::Http408,
            429 => Class::Http429,
            402..=499 => Class::Http4xx,
            500 => Class::Http500,
            502 => Class::Http502,
            503 => Class::Http503,
            504 => Class::Http504,
            501..=599 => Class::Http5xx,
            _ => Class::HttpMalformed,
        }
    }

    /// Statuses below 400 are reported here only by a skill that could not use the answer.
    fn of_llm(status: u16, context_length: bool) -> Class {
        match status {
            100..=399 => Class::LlmInvalidResponse,
            400 | 413 | 422 if context_length => Class::LlmContextLength,
            400 | 404 | 422 => Class::LlmRejected,
            401 => Class::LlmUnauthorized,
            403 => Class::LlmForbidden,
            408 => Class::LlmTimeout,
            429 => Class::LlmThrottled,
            402..=499 => Class::LlmOther4xx,
            500..=599 => Class::LlmFault,
            _ => Class::LlmMalformed,
        }
    }
}
