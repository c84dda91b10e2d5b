//! How providers want a question put and how they answer: two protocols, read without looking at prose.
//!
//! Whether a prompt was too long is taken only from an error's `code`. Anthropic-style endpoints have no such field and
//! say it in a sentence, so there a prompt that is too long is an invalid request like any other.

use bytes::Bytes;
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_wire::canonical::INTEGER_MAX;
use reqwest::Method;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use super::document;
use super::exchange::Request;
use super::llm_invoke::{LlmKind, Question};

const ANTHROPIC_VERSION: &str = "2023-06-01";

/// An answer, whichever protocol it came by.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) text: Option<String>,
    pub(super) model: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
    /// The provider withheld it.
    pub(super) blocked: bool,
}

pub(super) fn request(
    kind: LlmKind,
    url: Url,
    mut headers: HeaderMap,
    question: &Question<'_>,
    max_tokens_field: Option<&str>,
) -> Request {
    let body = match kind {
        LlmKind::OpenAi => open_ai_body(question, max_tokens_field.unwrap_or("max_tokens")),
        LlmKind::Anthropic => {
            headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static(ANTHROPIC_VERSION));
            anthropic_body(question)
        }
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let body = Some(Bytes::from(body.to_string()));
    // A provider does not move while it is asked: a redirect is an answer, and not a usable one.
    Request { method: Method::POST, url, headers, confidential: Vec::new(), body, redirects_max: None }
}

fn open_ai_body(question: &Question<'_>, max_tokens_field: &str) -> Value {
    let system = question.system.map(|system| ("system", system));
    let messages: Vec<Value> = system.into_iter().chain(question.messages.iter().copied()).map(message).collect();
    let mut body = json!({"model": question.model, "messages": messages});
    body[max_tokens_field] = Value::from(question.max_tokens);
    if let Some(temperature) = question.temperature {
        body["temperature"] = temperature.clone();
    }
    body
}

/// Instructions are not messages in this protocol; several are put together in their order.
fn anthropic_body(question: &Question<'_>) -> Value {
    let is_system = |(role, _): &&(&str, &str)| *role == "system";
    let instructions: Vec<&str> =
        question.system.into_iter().chain(question.messages.iter().filter(is_system).map(|(_, text)| *text)).collect();
    let messages: Vec<Value> =
        question.messages.iter().filter(|message| !is_system(message)).copied().map(message).collect();
    let mut body = json!({"model": question.model, "messages": messages, "max_tokens": question.max_tokens});
    if !instructions.is_empty() {
        body["system"] = Value::from(instructions.join("\n\n"));
    }
    if let Some(temperature) = question.temperature {
        body["temperature"] = temperature.clone();
    }
    body
}

fn message((role, content): (&str, &str)) -> Value {
    json!({"role": role, "content": content})
}

/// What a status of 400 or more means.
pub(super) fn refusal(status: u16, body: &Value) -> Cause {
    let code = body.pointer("/error/code").and_then(Value::as_str);
    match code {
        Some("content_filter" | "content_policy_violation") => Cause::LlmContentFilter,
        Some("insufficient_quota") => Cause::QuotaExceeded,
        _ => Cause::LlmStatus { status, context_length: code == Some("context_length_exceeded") },
    }
}

/// What a refusal says to people. Nothing is decided by it.
pub(super) fn refusal_reason(body: &Value) -> Option<String> {
    owned(body.pointer("/error/message"))
}

/// What a refusal says was used, if it says so.
pub(super) fn refusal_usage(kind: LlmKind, body: &Value) -> Option<Usage> {
    match kind {
        LlmKind::OpenAi => usage(body, "prompt_tokens", "completion_tokens"),
        LlmKind::Anthropic => usage(body, "input_tokens", "output_tokens"),
    }
}

/// Reads an answer; the error says what keeps it from being one.
pub(super) fn reply(kind: LlmKind, body: &[u8]) -> Result<Reply, &'static str> {
    // The parser's error would quote the answer.
    let body: Value = document::parse(body).map_err(|_| "it is not JSON that can be read")?;
    match kind {
        LlmKind::OpenAi => open_ai_reply(&body),
        LlmKind::Anthropic => anthropic_reply(&body),
    }
}

fn open_ai_reply(body: &Value) -> Result<Reply, &'static str> {
    let choice = body.pointer("/choices/0").ok_or("it has no choices")?;
    let message = choice.get("message").filter(|message| message.is_object()).ok_or("its choice has no message")?;
    let finish_reason = owned(choice.get("finish_reason"));
    let refused = message.get("refusal").is_some_and(Value::is_string);
    Ok(Reply {
        text: owned(message.get("content")),
        model: owned(body.get("model")),
        blocked: refused || finish_reason.as_deref() == Some("content_filter"),
        finish_reason,
        usage: usage(body, "prompt_tokens", "completion_tokens"),
    })
}

fn anthropic_reply(body: &Value) -> Result<Reply, &'static str> {
    let blocks = body.get("content").and_then(Value::as_array).ok_or("it has no content")?;
    let texts: Vec<&str> = blocks
        .iter()
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
        .filter_map(|block| block.get("text").and_then(Value::as_str))
        .collect();
    let finish_reason = owned(body.get("stop_reason"));
    // No block at all is an empty answer; blocks of which none is text are not an answer this skill knows.
    let readable = blocks.is_empty() || !texts.is_empty();
    Ok(Reply {
        text: readable.then(|| texts.concat()),
        model: owned(body.get("model")),
        blocked: finish_reason.as_deref() == Some("refusal"),
        finish_reason,
        usage: usage(body, "input_tokens", "output_tokens"),
    })
}

fn owned(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// What the provider says was used.
fn usage(body: &Value, input: &str, output: &str) -> Option<Usage> {
    let usage = body.get("usage")?;
    let tokens = |name: &str| usage.get(name).and_then(tokens);
    Some(Usage { requests: 1, bytes: 0, input_tokens: tokens(input)?, output_tokens: tokens(output)? })
}

/// A number of tokens. What is beyond the largest number a journal carries counts as that one: at any price it costs
/// more than every budget, which is what was said (AOS-60). A number that is no number of things says nothing.
fn tokens(value: &Value) -> Option<u64> {
    const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;
    let number = value.as_number()?;
    let beyond = || number.as_f64().filter(|number| *number >= INTEGERS_END).map(|_| u64::MAX);
    Some(number.as_u64().or_else(beyond)?.min(INTEGER_MAX))
}
