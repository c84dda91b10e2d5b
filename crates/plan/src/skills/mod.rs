//! The skills that come with the runtime, and how an operator configures them.

mod answer;
mod build;
pub(crate) mod document;
mod evaluation;
pub(crate) mod exchange;
mod expression;
pub(crate) mod fault;
pub(crate) mod headers;
pub mod http_call;
pub mod json_transform;
pub mod llm_invoke;
mod llm_protocol;
mod metadata;
mod written;

use std::collections::BTreeSet;
use std::sync::Arc;

use macp_plan_core::digest::Digest;
use reqwest::Certificate;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::egress::{self, Egress, Resolver};
use crate::outbound::Client;
use crate::secrets::{self, Bindings};
use crate::skill::Skill;
use exchange::{Exchange, Trust};
use http_call::HttpCall;
use json_transform::JsonTransform;
use llm_invoke::{LlmInvoke, LlmProvider, ProviderError};

/// Everything an operator decides about skills.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillSettings {
    /// What `http_call` may reach. Nothing, unless something is allowed.
    pub egress: egress::Settings,
    /// Which endpoints `llm_invoke` asks.
    pub providers: Vec<LlmProvider>,
    pub secrets: secrets::Settings,
    pub limits: Limits,
    pub trust: TrustSettings,
    /// Rate cards beside the one that comes with the runtime.
    pub rate_cards: Vec<Value>,
    /// Skills that are switched off, as `http_call` or `http_call@1.2.0`.
    pub disabled: Vec<String>,
    /// The permissions that skills may have, such as `network:outbound`; every one if there is no list.
    pub permissions: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest answer that is read, in bytes; at most [`http_call::ANSWER_BYTES_MAX`].
    pub answer_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer_bytes_max: http_call::ANSWER_BYTES_MAX }
    }
}

/// Which servers are believed to be who they say they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustSettings {
    /// The certificates of the operating system count.
    pub system_roots: bool,
    /// Further root certificates, in PEM.
    pub roots_pem: Vec<String>,
}

impl Default for TrustSettings {
    fn default() -> Self {
        Self { system_roots: true, roots_pem: Vec::new() }
    }
}

/// Why skills cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Egress(#[from] egress::SettingsError),
    #[error(transparent)]
    Secret(#[from] secrets::NotABinding),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    #[error("egress_max_answer_bytes: {0} is more than the {max} bytes that a call reads", max = http_call::ANSWER_BYTES_MAX)]
    AnswerBytes(usize),
    #[error("egress_ca_path: the file is not a list of certificates in PEM")]
    Roots(#[source] reqwest::Error),
    #[error(
        "the HTTP client cannot be set up; if the system has no root certificates, set egress_system_roots to false and \
         name a file of those to believe as egress_ca_path"
    )]
    Client(#[source] reqwest::Error),
}

/// The skills that come with the runtime, and what those that authors add call out with.
pub(crate) struct BuiltIn {
    pub(crate) skills: Vec<(Arc<dyn Skill>, Digest)>,
    pub(crate) client: Client,
    /// The secrets that `llm_invoke` is set up with.
    pub(crate) provider_keys: BTreeSet<String>,
}

/// The skills that come with the runtime, set up, and which builds of them they are.
pub(crate) fn built_in(settings: &SkillSettings, resolver: Arc<dyn Resolver>) -> Result<BuiltIn, SetupError> {
    let mut roots = Vec::new();
    for pem in &settings.trust.roots_pem {
        roots.extend(Certificate::from_pem_bundle(pem.as_bytes()).map_err(SetupError::Roots)?);
    }
    let trust = Trust { system_roots: settings.trust.system_roots, roots };
    let most = settings.limits.answer_bytes_max;
    if most > http_call::ANSWER_BYTES_MAX {
        return Err(SetupError::AnswerBytes(most));
    }
    let egress = Egress::new(&settings.egress)?;
    let exchange = Exchange::new(egress, Arc::clone(&resolver), &trust, most).map_err(SetupError::Client)?;
    let provider_keys = settings.providers.iter().filter_map(|provider| provider.api_key.clone()).collect();
    let bindings = Bindings::new(&settings.secrets.hosts, &provider_keys)?;
    let models = LlmInvoke::new(&settings.providers, &resolver, &trust, most)?;
    let client = Client { exchange: exchange.clone(), bindings: bindings.clone() };
    let skills: Vec<(Arc<dyn Skill>, Digest)> = vec![
        (Arc::new(HttpCall::new(exchange, bindings)), build::http_call()),
        (Arc::new(models), build::llm_invoke()),
        (Arc::new(JsonTransform::new()), build::json_transform()),
    ];
    Ok(BuiltIn { skills, client, provider_keys })
}

/// Whether a text holds a reference that is still to be resolved; such a text is checked once it is.
fn has_reference(text: &str) -> bool {
    text.contains("{{")
}
