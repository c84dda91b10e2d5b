//! How plans are executed, as the settings say it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use macp_edge::PlanSettings;
use macp_ledger::Store;
use macp_plan::egress::{self, Egress};
use macp_plan::executor::ExecutorSettings;
use macp_plan::session::SessionSettings;
use macp_plan::skills::SkillSettings;
use macp_plan::skills::llm_invoke::LlmProvider;
use macp_wire::canonical;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::{Pem, read_pem};

/// Settings of plans, before their files are read.
#[derive(Clone, Debug)]
pub(crate) struct Plans {
    pub(crate) enabled: bool,
    pub(crate) skills: SkillSettings,
    pub(crate) executor: ExecutorSettings,
    pub(crate) sessions: SessionSettings,
    pub(crate) import_bytes_max: usize,
    /// What agents' profiles contribute when plans are frozen here.
    pub(crate) profiles: super::file::Profiles,
    /// Files with rate cards beside the one that comes with the runtime.
    pub(crate) rate_cards: Vec<PathBuf>,
    /// PEM file with authorities to believe beside those of the system.
    pub(crate) authorities: Option<PathBuf>,
}

impl Plans {
    pub(super) fn new() -> Plans {
        Plans {
            enabled: true,
            skills: SkillSettings::default(),
            executor: ExecutorSettings::default(),
            sessions: SessionSettings::default(),
            import_bytes_max: 0,
            profiles: super::file::Profiles::new(),
            rate_cards: Vec::new(),
            authorities: None,
        }
    }

    /// Reads the files; none if no plans are to be executed.
    pub(crate) fn load(
        &self,
        store: impl FnOnce() -> anyhow::Result<Arc<dyn Store>>,
    ) -> anyhow::Result<Option<PlanSettings>> {
        if !self.enabled {
            return Ok(None);
        }
        let mut skills = self.skills.clone();
        skills.rate_cards = self.rate_cards.iter().map(|path| read_rate_card(path)).collect::<Result<_, _>>()?;
        if let Some(path) = &self.authorities {
            let pem = read_pem(path, Pem::Certificates)?;
            skills
                .trust
                .roots_pem
                .push(String::from_utf8(pem).with_context(|| format!("{} is no text", path.display()))?);
        }
        Ok(Some(PlanSettings {
            skills,
            executor: self.executor.clone(),
            sessions: self.sessions.clone(),
            import_bytes_max: self.import_bytes_max,
            profiles: self.profiles.clone(),
            ..PlanSettings::new(store()?)
        }))
    }
}

/// A rate card as data; whether it is one is for the registry to say.
pub(crate) fn read_rate_card(path: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the rate card {}", path.display()))?;
    canonical::parse(&bytes).with_context(|| format!("the rate card {} is no valid JSON", path.display()))
}

/// Puts a rule about outbound calls in its place if it can be read.
pub(super) fn set_egress(plans: &mut Plans, set: impl FnOnce(&mut egress::Settings)) -> Result<(), String> {
    let mut alone = egress::Settings::default();
    set(&mut alone);
    Egress::new(&alone).map_err(|error| after_name(&error.to_string()))?;
    let egress::Settings { allow_hosts, allow_private_hosts, allow_networks, .. } = alone;
    let target = &mut plans.skills.egress;
    target.allow_hosts.extend(allow_hosts);
    target.allow_private_hosts.extend(allow_private_hosts);
    target.allow_networks.extend(allow_networks);
    Ok(())
}

/// A problem without the setting it begins with, which is named by whoever tells it.
pub(super) fn after_name(text: &str) -> String {
    text.split_once(": ").map_or(text, |(_, problem)| problem).to_owned()
}

/// `[[providers]]` of the config file.
pub(super) fn providers(value: toml::Value) -> Result<Vec<LlmProvider>, String> {
    value.try_into().map_err(|error: toml::de::Error| format!("providers: {}", error.message().trim()))
}

/// `[scopes.NAME]` of the config file.
pub(super) fn scopes(value: toml::Value) -> Result<super::file::Scopes, String> {
    tables("scopes", "release-team", value)
}

/// `[profiles.AGENT]` of the config file.
pub(super) fn profiles(value: toml::Value) -> Result<super::file::Profiles, String> {
    tables("profiles", "reporter", value)
}

/// Tables by name, every one of them of a kind.
fn tables<T: DeserializeOwned>(key: &str, example: &str, value: toml::Value) -> Result<BTreeMap<String, T>, String> {
    let tables: toml::Table = value.try_into().map_err(|_| format!("{key}: needs tables such as [{key}.{example}]"))?;
    let mut read = BTreeMap::new();
    for (name, table) in tables {
        let one =
            table.try_into().map_err(|error: toml::de::Error| format!("{key}.{name}: {}", error.message().trim()))?;
        read.insert(name, one);
    }
    Ok(read)
}
