//! Other spellings of codes, as older plans and records have them. Accepted where plans are authored, never produced.

/// The code that another spelling stands for; none if the spelling is unknown or is a code itself.
#[must_use]
pub fn alias(spelling: &str) -> Option<&'static str> {
    let code = match spelling {
        "ERR_RATE_LIMITED" => "ERR_RATE_LIMIT_INTERNAL",
        "ERR_LLM_RATE_LIMITED" => "ERR_LLM_RATE_LIMIT",
        "ERR_LLM_OVERLOADED" | "ERR_LLM_UNKNOWN" => "ERR_LLM_API_ERROR",
        "ERR_LLM_TIMEOUT" => "ERR_TIMEOUT",
        "ERR_LLM_CONTEXT_TOO_LONG" => "ERR_LLM_CONTEXT_LENGTH",
        "ERR_LLM_CONTENT_BLOCKED" => "ERR_LLM_CONTENT_FILTER",
        "ERR_LLM_AUTH_FAILED" | "ERR_LLM_AUTH_FAILURE" => "ERR_HTTP_401",
        "ERR_LLM_INVALID_PROMPT"
        | "ERR_LLM_INVALID_MODEL"
        | "ERR_LLM_ADAPTER_NOT_FOUND"
        | "ERR_MISSING_IDEMPOTENCY_KEY"
        | "ERR_JSON_PATH_INVALID"
        | "ERR_JSON_PATH_NOT_FOUND"
        | "ERR_JSON_OPERATION_INVALID"
        | "ERR_JSON_DEPTH_EXCEEDED"
        | "ERR_JSON_SIZE_EXCEEDED" => "ERR_VALIDATION_FAILED",
        "ERR_JSON_INVALID" => "ERR_DESERIALIZATION_FAILED",
        "ERR_JSON_SCHEMA_MISMATCH" => "ERR_SCHEMA_MISMATCH",
        "ERR_JSON_TRANSFORM_FAILED" => "ERR_UNKNOWN",
        "ERR_RUNTIME_EXCEPTION" => "ERR_INTERNAL",
        "ERR_BLOCKED_HOST" => "ERR_POLICY_VIOLATION",
        "ERR_NETWORK_ERROR" | "ERR_SOCKET_ERROR" | "ERR_CONNECTION" => "ERR_CONNECTION_REFUSED",
        "ERR_DNS" => "ERR_DNS_FAILURE",
        _ => return status_with_words(spelling),
    };
    Some(code)
}

/// `ERR_HTTP_<status>_<WORDS>`, such as `ERR_HTTP_503_UNAVAILABLE`: the row of the status.
fn status_with_words(spelling: &str) -> Option<&'static str> {
    let (status, words) = spelling.strip_prefix("ERR_HTTP_")?.split_once('_')?;
    let digits = status.len() == 3 && status.bytes().all(|digit| digit.is_ascii_digit());
    let upper = !words.is_empty() && words.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    if !digits || !upper {
        return None;
    }
    let status: u16 = status.parse().ok()?;
    let cause = crate::cause::Cause::http(status);
    (400..600).contains(&status).then(|| super::Class::of(&cause).code_1_0_0())
}
