//! `llm_invoke`: one question to a language model, whose text is the output.
//!
//! Which host answers is the operator's configuration and not a plan's; a plan names a model, and a provider if it
//! matters. Effects therefore name the provider or the model: they must follow from the parameters alone, wherever the
//! run is replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::{self, Usage};
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use url::Url;

use super::exchange::{Answer, Exchange, Trust};
use super::llm_protocol::{self, NoReply, Reply};
use super::{answer, document, metadata};
use crate::egress::{Egress, Resolver};
use crate::schema::Schema;
use crate::secrets::Secrets;
use crate::skill::{Call, Calling, Observation, Skill};

pub const ID: &str = "llm_invoke";
pub const VERSION: &str = "2.0.0";

/// What a model may write at most where the plan does not say.
pub const MAX_TOKENS_DEFAULT: u64 = 1024;

/// An endpoint that serves models. Naming it here allows reaching its host, wherever that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlmProvider {
    pub name: String,
    pub kind: LlmKind,
    /// For `open_ai` what `/chat/completions` is appended to, for `anthropic` what `/v1/messages` is.
    pub base_url: String,
    /// Name of the secret that holds the key; endpoints of one's own may need none.
    #[serde(default)]
    pub api_key: Option<String>,
    /// The models it serves; none given means any.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// What the limit of the answer is called in requests, for `open_ai` endpoints that no longer take `max_tokens`.
    #[serde(default)]
    pub max_tokens_field: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmKind {
    OpenAi,
    Anthropic,
}

/// A provider that cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the provider `{0}` is configured twice")]
    Twice(String),
    #[error("the provider `{name}`: base_url must be an https or http URL without user, query and fragment")]
    BaseUrl { name: String },
    #[error("the provider `{name}`: the client cannot be set up")]
    Client { name: String, source: reqwest::Error },
}

#[derive(Debug)]
pub struct LlmInvoke {
    metadata: SkillMetadata,
    input: Schema,
    providers: Vec<Provider>,
}

#[derive(Debug)]
struct Provider {
    settings: LlmProvider,
    endpoint: Url,
    exchange: Exchange,
}

impl LlmInvoke {
    pub(crate) fn new(
        providers: &[LlmProvider],
        resolver: &Arc<dyn Resolver>,
        trust: &Trust,
        answer_bytes_max: usize,
    ) -> Result<Self, ProviderError> {
        let mut built: BTreeMap<&str, ()> = BTreeMap::new();
        let mut ready = Vec::new();
        for settings in providers {
            if built.insert(&settings.name, ()).is_some() {
                return Err(ProviderError::Twice(settings.name.clone()));
            }
            let endpoint = endpoint(settings)?;
            let exchange = Exchange::new(Egress::only(&endpoint), Arc::clone(resolver), trust, answer_bytes_max)
                .map_err(|source| ProviderError::Client { name: settings.name.clone(), source })?;
            ready.push(Provider { settings: settings.clone(), endpoint, exchange });
        }
        let metadata = metadata::llm_invoke();
        let input = Schema::compile(&metadata.input_schema).expect("the skill's own schema compiles");
        Ok(Self { metadata, input, providers: ready })
    }

    async fn dispatch(&self, call: Call<'_>) -> Observation {
        let model = text(call.parameters, "model").unwrap_or_default();
        let provider = match self.provider(text(call.parameters, "provider"), model) {
            Ok(provider) => provider,
            Err(problem) => return Observation::new(Cause::InputInvalid, problem),
        };
        let LlmProvider { kind, name, .. } = &provider.settings;
        let headers = match provider.headers(call.secrets) {
            Ok(headers) => headers,
            Err(problem) => {
                return Observation::new(Cause::InputInvalid, problem).with_detail("provider", name.as_str());
            }
        };
        let limit = provider.settings.max_tokens_field.as_deref();
        let request =
            llm_protocol::request(*kind, provider.endpoint.clone(), headers, &question(call.parameters), limit);
        let observation = match provider.exchange.run(request, call.timeout).await {
            Ok(answer) => {
                if let Ok(body) = &answer.body {
                    answer::reserve_json(body).await;
                }
                observed(*kind, name, model, answer)
            }
            Err(fault) => Observation::new(fault.cause, fault.message),
        };
        observation.with_detail("provider", name.as_str())
    }

    /// The provider a plan names; else the first that lists the model, else the first that takes any.
    fn provider(&self, named: Option<&str>, model: &str) -> Result<&Provider, String> {
        if let Some(named) = named {
            let found = self.providers.iter().find(|provider| provider.settings.name == named);
            let provider = found.ok_or_else(|| format!("at /provider: no provider `{named}` is configured"))?;
            return match provider.lists(model) {
                Some(false) => Err(format!("at /model: the provider `{named}` is not configured for `{model}`")),
                Some(true) | None => Ok(provider),
            };
        }
        let lists = |wanted: Option<bool>| self.providers.iter().find(|provider| provider.lists(model) == wanted);
        lists(Some(true))
            .or_else(|| lists(None))
            .ok_or_else(|| format!("at /model: no configured provider serves `{model}`"))
    }
}

impl Provider {
    /// Whether the model is among those listed, if any are.
    fn lists(&self, model: &str) -> Option<bool> {
        self.settings.models.as_ref().map(|models| models.iter().any(|listed| listed == model))
    }

    fn headers(&self, secrets: &dyn Secrets) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let Some(name) = &self.settings.api_key else { return Ok(headers) };
        let unusable = || {
            format!("the key of the provider `{}` cannot be used; the server's log has the reason", self.settings.name)
        };
        // The error names a secret that is not the plan's.
        let key = secrets.secret(name).map_err(|_logged| unusable())?;
        let (header, value) = match self.settings.kind {
            LlmKind::OpenAi => ("authorization", zeroize::Zeroizing::new(format!("Bearer {}", *key))),
            LlmKind::Anthropic => ("x-api-key", key),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_would_quote_it| {
            tracing::warn!(secret = name, "the key of a provider has characters that a header cannot carry");
            unusable()
        })?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(header), value);
        Ok(headers)
    }
}

impl PureSkill for LlmInvoke {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    /// Asking leaves nothing behind, so asking again is harmless.
    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        let target = text(parameters, "provider").or_else(|| text(parameters, "model")).unwrap_or("unknown").to_owned();
        vec![Effect { kind: "llm_request".to_owned(), target, idempotency: Idempotency::Natural }]
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        let question = question(parameters);
        let input_tokens = cost::estimated_tokens(question.texts());
        Usage { requests: 1, bytes: 0, input_tokens, output_tokens: question.max_tokens }
    }

    fn model<'a>(&self, parameters: &'a Map<String, Value>) -> Option<&'a str> {
        text(parameters, "model")
    }

    fn success_code(&self) -> &'static str {
        "OK_LLM_INVOKE"
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.input.check(&Value::Object(parameters.clone()))
    }
}

impl Skill for LlmInvoke {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.dispatch(call))
    }
}

/// What is asked, independent of how a provider wants it put.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) model: &'a str,
    pub(super) system: Option<&'a str>,
    /// Role and content.
    pub(super) messages: Vec<(&'a str, &'a str)>,
    pub(super) max_tokens: u64,
    pub(super) temperature: Option<&'a Value>,
}

impl<'a> Question<'a> {
    fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.system.into_iter().chain(self.messages.iter().map(|(_, content)| *content))
    }
}

fn question(parameters: &Map<String, Value>) -> Question<'_> {
    let listed = parameters.get("messages").and_then(Value::as_array).into_iter().flatten();
    let listed = listed.filter_map(|message| Some((message.get("role")?.as_str()?, message.get("content")?.as_str()?)));
    Question {
        model: text(parameters, "model").unwrap_or_default(),
        system: text(parameters, "system"),
        messages: text(parameters, "prompt").map(|prompt| ("user", prompt)).into_iter().chain(listed).collect(),
        max_tokens: parameters.get("max_tokens").and_then(Value::as_u64).unwrap_or(MAX_TOKENS_DEFAULT),
        temperature: parameters.get("temperature"),
    }
}

fn text<'a>(parameters: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    parameters.get(name).and_then(Value::as_str)
}

fn endpoint(settings: &LlmProvider) -> Result<Url, ProviderError> {
    let unusable = || ProviderError::BaseUrl { name: settings.name.clone() };
    // The parser's error is left out: what it is about may hold a password.
    let base = Url::parse(&settings.base_url).map_err(|_| unusable())?;
    let plain = base.username().is_empty() && base.password().is_none() && base.query().is_none();
    if !plain || base.fragment().is_some() || base.host().is_none() || !matches!(base.scheme(), "https" | "http") {
        return Err(unusable());
    }
    let path = match settings.kind {
        LlmKind::OpenAi => "chat/completions",
        LlmKind::Anthropic => "v1/messages",
    };
    let mut endpoint = base.clone();
    endpoint.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    Ok(endpoint)
}

fn observed(kind: LlmKind, provider: &str, model: &str, answer: Answer) -> Observation {
    let Answer { status, body, retry_after_ms, .. } = answer;
    let observation = match (status, body) {
        (400.., body) => refused(kind, provider, status, body.ok().as_deref()),
        (_, Err(fault)) => Observation::new(fault.cause, fault.message),
        (200..300, Ok(body)) => {
            let observation = replied(provider, model, llm_protocol::reply(kind, &body));
            // As with refusals, what was withheld is not kept.
            match observation.cause {
                Cause::LlmInvalidResponse => observation.with_output(kept(status, &body)),
                _ => observation,
            }
        }
        (_, Ok(body)) => {
            let told = format!("the provider {provider} answered {status}, which is no answer to a question");
            Observation::new(Cause::LlmInvalidResponse, told).with_output(kept(status, &body))
        }
    };
    observation.with_retry_after_ms(retry_after_ms).with_detail("upstream_status", status)
}

/// The status decides; a body that was lost behind it only leaves the refusal less precise.
fn refused(kind: LlmKind, provider: &str, status: u16, body: Option<&[u8]>) -> Observation {
    let read: Value = body.and_then(|body| document::parse(body).ok()).unwrap_or_default();
    let cause = llm_protocol::refusal(status, &read);
    let told = format!("the provider {provider} answered {status}");
    let Some(body) = body else { return Observation::new(cause, told) };
    // A refusal that was read to its end and names no usage used nothing.
    let usage = llm_protocol::reported(kind, &read).unwrap_or_default();
    // What a provider withheld is not for us to keep, nor what it says of it.
    if cause == Cause::LlmContentFilter {
        return Observation::new(cause, told).with_usage(usage);
    }
    let reason = llm_protocol::refusal_reason(&read).map(|reason| format!(": {reason}")).unwrap_or_default();
    // It is read once more to be kept, and there must not be two of it.
    drop(read);
    Observation::new(cause, format!("{told}{reason}")).with_usage(usage).with_output(kept(status, body))
}

/// What is kept of an answer that cannot be used, so that people can see why.
fn kept(status: u16, body: &[u8]) -> Value {
    let mut kept = json!({"status_code": status});
    match document::read(body) {
        Ok(value) => kept["body"] = value,
        Err(_unfit) => document::put_text(&mut kept, body),
    }
    kept
}

fn replied(provider: &str, asked: &str, reply: Result<Reply, NoReply>) -> Observation {
    let Reply { text, model, finish_reason, usage, blocked } = match reply {
        Ok(reply) => reply,
        Err(NoReply { problem, usage }) => {
            let told = format!("the answer of the provider {provider} cannot be used: {problem}");
            return metered(Observation::new(Cause::LlmInvalidResponse, told), usage);
        }
    };
    let observation = match (blocked, text) {
        (true, _) => {
            let told =
                format!("the provider {provider} withheld the answer for what the question or the answer is about");
            Observation::new(Cause::LlmContentFilter, told)
        }
        (false, None) => {
            let told = format!("the answer of the provider {provider} cannot be used: it has no text");
            Observation::new(Cause::LlmInvalidResponse, told)
        }
        (false, Some(text)) => {
            let spent =
                usage.map(|usage| json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}));
            let model = model.unwrap_or_else(|| asked.to_owned());
            let told = format!("{model} answered");
            let output = json!({"text": text, "model": model, "finish_reason": finish_reason, "usage": spent});
            Observation::success(output, told)
        }
    };
    metered(observation, usage)
}

/// Where no usage is reported, the executor charges what it reserved.
fn metered(observation: Observation, usage: Option<Usage>) -> Observation {
    match usage {
        Some(usage) => observation.with_usage(usage),
        None => observation,
    }
}
