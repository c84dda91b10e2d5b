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

/// What an answer or a refusal says was used, if it says so.
pub(super) fn reported(kind: LlmKind, body: &Value) -> Option<Usage> {
    let usage = body.get("usage")?;
    let reported = |name: &str| usage.get(name).and_then(tokens);
    let (input_tokens, output_tokens) = match kind {
        LlmKind::OpenAi => (reported("prompt_tokens")?, reported("completion_tokens")?),
        LlmKind::Anthropic => (anthropic_input(usage)?, reported("output_tokens")?),
    };
    Some(Usage { requests: 1, bytes: 0, input_tokens, output_tokens })
}

/// What a question took, with what of it was read from a cache and what was put there: this protocol tells those apart,
/// and leaves them out where there is no cache.
fn anthropic_input(usage: &Value) -> Option<u64> {
    let fresh = usage.get("input_tokens").and_then(tokens)?;
    let cached = |name: &str| match usage.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(number) => tokens(number),
    };
    let sum =
        fresh.saturating_add(cached("cache_read_input_tokens")?).saturating_add(cached("cache_creation_input_tokens")?);
    Some(sum.min(INTEGER_MAX))
}

/// Why an answer is none, and what it says was used all the same.
#[derive(Debug, PartialEq)]
pub(super) struct NoReply {
    pub(super) problem: &'static str,
    pub(super) usage: Option<Usage>,
}

/// Reads an answer.
pub(super) fn reply(kind: LlmKind, body: &[u8]) -> Result<Reply, NoReply> {
    // The parser's error would quote the answer.
    let unreadable = |_| NoReply { problem: "it is not JSON that can be read", usage: None };
    let body = document::parse(body).map_err(unreadable)?;
    let usage = reported(kind, &body);
    let read = match kind {
        LlmKind::OpenAi => open_ai_reply(&body, usage),
        LlmKind::Anthropic => anthropic_reply(&body, usage),
    };
    read.map_err(|problem| NoReply { problem, usage })
}

fn open_ai_reply(body: &Value, usage: Option<Usage>) -> Result<Reply, &'static str> {
    let choice = body.pointer("/choices/0").ok_or("it has no choices")?;
    let message = choice.get("message").filter(|message| message.is_object());
    let finish_reason = owned(choice.get("finish_reason"));
    let refusal = message.and_then(|message| message.get("refusal")).and_then(Value::as_str);
    let refused = refusal.is_some_and(|refusal| !refusal.is_empty());
    let blocked = refused || finish_reason.as_deref() == Some("content_filter");
    // What was withheld may be left out altogether.
    if message.is_none() && !blocked {
        return Err("its choice has no message");
    }
    let text = owned(message.and_then(|message| message.get("content")));
    Ok(Reply { text, model: owned(body.get("model")), finish_reason, usage, blocked })
}

fn anthropic_reply(body: &Value, usage: Option<Usage>) -> Result<Reply, &'static str> {
    let finish_reason = owned(body.get("stop_reason"));
    let blocked = finish_reason.as_deref() == Some("refusal");
    let blocks = match body.get("content").and_then(Value::as_array) {
        Some(blocks) => blocks.as_slice(),
        None if blocked => &[],
        None => return Err("it has no content"),
    };
    let texts: Vec<&str> = blocks
        .iter()
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
        .filter_map(|block| block.get("text").and_then(Value::as_str))
        .collect();
    // No block at all is an empty answer; blocks of which none is text are not an answer this skill knows.
    let readable = blocks.is_empty() || !texts.is_empty();
    let text = readable.then(|| texts.concat());
    Ok(Reply { text, model: owned(body.get("model")), finish_reason, usage, blocked })
}

fn owned(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::to_owned)
}

/// A number of tokens. What is beyond the largest number a journal carries counts as that one: at any price it costs
/// more than every budget, which is what was said (AOS-60). A number that is no number of things says nothing.
fn tokens(value: &Value) -> Option<u64> {
    const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;
    let number = value.as_number()?;
    let beyond = || number.as_f64().filter(|number| *number >= INTEGERS_END).map(|_| u64::MAX);
    Some(number.as_u64().or_else(beyond)?.min(INTEGER_MAX))
}
