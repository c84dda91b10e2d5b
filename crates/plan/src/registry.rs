//! The registry: which skills can be called, in exactly which versions, and what they cost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use macp_plan_core::digest::Digest;
use macp_plan_core::plan::{is_semver, is_skill_id};
use macp_plan_core::rate_card::{self, RateCard, RateCardError};
use macp_plan_core::skill::{Catalog, PureSkill, Registration, SkillMetadata};
use macp_plan_core::taxonomy::{DEFAULT_VERSION, Taxonomy};
use serde_json::Value;

use crate::egress::{Resolver, System};
use crate::outbound::{self, Client};
use crate::schema::{NotASchema, Schema};
use crate::secrets::Bindings;
use crate::skill::Skill;
use crate::skills::{self, BuiltIn, SetupError, SkillSettings, llm_invoke};

/// Skills by id and version, and rate cards by id.
#[derive(Debug, Default)]
pub struct Registry {
    skills: BTreeMap<String, BTreeMap<String, Entry>>,
    rate_cards: BTreeMap<String, RateCard>,
    /// Names of the secrets that skills are set up with, by the skill's id.
    entrusted: BTreeMap<String, Arc<BTreeSet<String>>>,
    /// The permissions skills may have; every one if there is no list.
    granted: Option<BTreeSet<String>>,
    /// What skills call out with; without one they reach nothing.
    client: Option<Client>,
}

#[derive(Debug)]
struct Entry {
    skill: Arc<dyn Skill>,
    output: Schema,
    enabled: bool,
    build: Option<Digest>,
}

/// Why a skill or a card is not taken in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is not a skill id: lower-case letters, digits, `_`, `.` and `-`, at most 128 of them")]
    SkillId(String),
    #[error("{skill}: `{version}` is not a version: write MAJOR.MINOR.PATCH, and a pre-release after `-` if it is one")]
    Version { skill: String, version: String },
    #[error("{0} is registered already; a changed skill needs a new version")]
    Twice(String),
    #[error("{skill}: {which} is unusable")]
    Schema { skill: String, which: &'static str, source: NotASchema },
    #[error("{skill}: the failure mode `{code}` is not a code of taxonomy {DEFAULT_VERSION}")]
    FailureMode { skill: String, code: String },
    #[error("{skill}: the success code `{code}` is not one of taxonomy {DEFAULT_VERSION}")]
    SuccessCode { skill: String, code: &'static str },
    #[error("{skill}: it is not deterministic, and `nondeterminism` does not say what varies and why")]
    Nondeterminism { skill: String },
    #[error("{skill}: the default retry policy lists `{code}`, which is not a failure mode that may be retried")]
    RetryableCode { skill: String, code: String },
    #[error("{skill}: {problem}")]
    Metadata { skill: String, problem: &'static str },
    #[error("disabled: no skill `{0}` is registered")]
    Unknown(String),
    #[error("secrets: no skill `{0}` is registered")]
    Entrusted(String),
    #[error("a rate card cannot be used")]
    RateCard(#[from] RateCardError),
    #[error("two different rate cards have the id `{0}`; a changed price needs a new id")]
    RateCardTwice(String),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// The skills that come with the runtime, and the operator's rate cards beside the runtime's own.
pub fn standard(settings: &SkillSettings) -> Result<Registry, Error> {
    standard_with(settings, Arc::new(System))
}

/// The same, with another resolver of names than the system's.
pub fn standard_with(settings: &SkillSettings, resolver: Arc<dyn Resolver>) -> Result<Registry, Error> {
    let mut registry = Registry::new();
    let BuiltIn { skills, client, provider_keys } = skills::built_in(settings, resolver)?;
    registry.client = Some(client);
    for (skill, build) in skills {
        registry.register(skill, Some(build))?;
    }
    registry.entrust(llm_invoke::ID, provider_keys)?;
    for card in &settings.rate_cards {
        registry.add_rate_card(card.clone())?;
    }
    registry.disable(&settings.disabled)?;
    registry.grant(settings.permissions.clone());
    Ok(registry)
}

impl Registry {
    /// No skills, and the rate card that comes with the runtime.
    #[must_use]
    pub fn new() -> Self {
        let card = rate_card::builtin();
        Self { rate_cards: BTreeMap::from([(card.id().to_owned(), card)]), ..Self::default() }
    }

    /// Takes in a skill version. `build` is the digest of its artefact or source, for plans that pin it.
    pub fn register(&mut self, skill: Arc<dyn Skill>, build: Option<Digest>) -> Result<(), Error> {
        check(skill.as_ref())?;
        let metadata = skill.metadata();
        let (skill_id, version, named) = (metadata.skill_id.clone(), metadata.version.clone(), named(metadata));
        let compile = |which, schema| {
            Schema::compile(schema).map_err(|source| Error::Schema { skill: named.clone(), which, source })
        };
        compile("input_schema", &metadata.input_schema)?;
        let output = compile("output_schema", &metadata.output_schema)?;
        let versions = self.skills.entry(skill_id).or_default();
        if versions.contains_key(&version) {
            return Err(Error::Twice(named));
        }
        versions.insert(version, Entry { skill, output, enabled: true, build });
        Ok(())
    }

    /// Lets every version of a skill, those to come as well, read secrets of the operator's choice, whatever its steps
    /// name: what it is set up with, such as a key of its own. What it was entrusted with before it keeps; all other
    /// secrets it gets only by the word of a step.
    pub fn entrust(&mut self, skill_id: &str, secrets: BTreeSet<String>) -> Result<(), Error> {
        if !self.skills.contains_key(skill_id) {
            return Err(Error::Entrusted(skill_id.to_owned()));
        }
        Arc::make_mut(self.entrusted.entry(skill_id.to_owned()).or_default()).extend(secrets);
        Ok(())
    }

    /// Switches skills off, given as `id` for every version or as `id@version`.
    pub fn disable(&mut self, listed: &[String]) -> Result<(), Error> {
        for text in listed {
            let (skill_id, version) = match text.split_once('@') {
                Some((skill_id, version)) => (skill_id, Some(version)),
                None => (text.as_str(), None),
            };
            let versions = self.skills.get_mut(skill_id).into_iter().flatten();
            let meant: Vec<&mut Entry> = versions
                .filter(|(found, _)| version.is_none_or(|version| version == *found))
                .map(|(_, entry)| entry)
                .collect();
            if meant.is_empty() {
                return Err(Error::Unknown(text.clone()));
            }
            for entry in meant {
                entry.enabled = false;
            }
        }
        Ok(())
    }

    /// Says which permissions skills may have, and no others (AOS-68); without a list, whatever they declare.
    pub fn grant(&mut self, permissions: Option<Vec<String>>) {
        self.granted = permissions.map(|listed| listed.into_iter().collect());
    }

    /// A permission that a skill declares and does not have.
    pub(crate) fn withheld<'m>(&self, metadata: &'m SkillMetadata) -> Option<&'m str> {
        metadata.permissions.iter().map(String::as_str).find(|permission| !self.grants(permission))
    }

    /// Takes in a rate card. The same card twice is one card.
    pub fn add_rate_card(&mut self, card: Value) -> Result<(), Error> {
        let card = RateCard::from_value(card)?;
        match self.rate_cards.get(card.id()) {
            Some(known) if known.digest() != card.digest() => Err(Error::RateCardTwice(card.id().to_owned())),
            Some(_) => Ok(()),
            None => {
                self.rate_cards.insert(card.id().to_owned(), card);
                Ok(())
            }
        }
    }

    /// A skill to call. Whether it is enabled is asked of the catalog, before and for every dispatch.
    #[must_use]
    pub fn callable(&self, skill_id: &str, version: &str) -> Option<Arc<dyn Skill>> {
        self.entry(skill_id, version).map(|entry| Arc::clone(&entry.skill))
    }

    /// What a skill calls out with. One that does not declare the permission passes every check of permissions, so that
    /// it must not reach anything.
    pub(crate) fn client_of(&self, metadata: &SkillMetadata) -> Option<&Client> {
        let declared = metadata.permissions.iter().any(|permission| permission == outbound::PERMISSION);
        self.client.as_ref().filter(|_| declared)
    }

    /// Returns what a call of a skill takes until its response is read, in bytes of memory, without its parameters.
    pub(crate) fn call_memory(&self, skill_id: &str, version: &str) -> usize {
        let Some(entry) = self.entry(skill_id, version) else { return 0 };
        match self.client_of(entry.skill.metadata()) {
            Some(client) => client.exchange.memory(),
            None => skills::exchange::memory_of(0),
        }
    }

    /// The secrets that a skill may read whatever its step names.
    pub(crate) fn entrusted(&self, skill_id: &str) -> Arc<BTreeSet<String>> {
        self.entrusted.get(skill_id).map(Arc::clone).unwrap_or_default()
    }

    /// Where secrets may be sent, for every skill.
    pub(crate) fn bindings(&self) -> Bindings {
        self.client.as_ref().map(|client| client.bindings.clone()).unwrap_or_default()
    }

    /// Checks an output against the skill's schema; the error names the first place that does not fit.
    pub fn check_output(&self, skill_id: &str, version: &str, output: &Value) -> Result<(), String> {
        match self.entry(skill_id, version) {
            Some(entry) => entry.output.check(output),
            None => Err(format!("{skill_id}@{version} is not registered")),
        }
    }

    /// Every registered version, by id and version.
    pub fn registrations(&self) -> impl Iterator<Item = Registration> {
        self.skills.values().flat_map(BTreeMap::values).map(Entry::registration)
    }

    /// Every rate card, by id.
    pub fn rate_cards(&self) -> impl Iterator<Item = &RateCard> {
        self.rate_cards.values()
    }

    fn entry(&self, skill_id: &str, version: &str) -> Option<&Entry> {
        self.skills.get(skill_id)?.get(version)
    }
}

impl Entry {
    fn registration(&self) -> Registration {
        let skill: Arc<dyn PureSkill> = Arc::clone(&self.skill) as Arc<dyn PureSkill>;
        Registration { skill, enabled: self.enabled, build: self.build.clone() }
    }
}

impl Catalog for Registry {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration> {
        self.entry(skill_id, version).map(Entry::registration)
    }

    fn versions(&self, skill_id: &str) -> Vec<String> {
        self.skills.get(skill_id).map(|versions| versions.keys().cloned().collect()).unwrap_or_default()
    }

    fn rate_card(&self, id: &str) -> Option<Value> {
        self.rate_cards.get(id).map(|card| card.value().clone())
    }

    fn grants(&self, permission: &str) -> bool {
        self.granted.as_ref().is_none_or(|granted| granted.contains(permission))
    }
}

fn named(metadata: &SkillMetadata) -> String {
    format!("{}@{}", metadata.skill_id, metadata.version)
}

/// Checks what a skill declares about itself, all but its schemas.
pub(crate) fn check(skill: &dyn PureSkill) -> Result<(), Error> {
    let metadata = skill.metadata();
    let named = named(metadata);
    if !is_skill_id(&metadata.skill_id) {
        return Err(Error::SkillId(metadata.skill_id.clone()));
    }
    if !is_semver(&metadata.version) {
        return Err(Error::Version { skill: metadata.skill_id.clone(), version: metadata.version.clone() });
    }
    let taxonomy = Taxonomy::version(DEFAULT_VERSION).expect("the default version of the taxonomy is kept");
    for code in &metadata.failure_modes {
        if !taxonomy.code(code).is_some_and(|_| code.starts_with("ERR_")) {
            return Err(Error::FailureMode { skill: named, code: code.clone() });
        }
    }
    let code = skill.success_code();
    if !taxonomy.code(code).is_some_and(|_| code.starts_with("OK")) {
        return Err(Error::SuccessCode { skill: named, code });
    }
    if !metadata.deterministic && metadata.nondeterminism.as_deref().is_none_or(|text| text.trim().is_empty()) {
        return Err(Error::Nondeterminism { skill: named });
    }
    for code in metadata.retry.iter().flat_map(|retry| &retry.retryable_codes) {
        if !metadata.failure_modes.contains(code) || !taxonomy.retryable(code) {
            return Err(Error::RetryableCode { skill: named, code: code.clone() });
        }
    }
    let problem = if metadata.name.trim().is_empty() {
        "it has no name"
    } else if metadata.timeout_ms == 0 {
        "its timeout is 0, so no call could ever succeed"
    } else if metadata.cost_model.rate_card_key.is_empty() {
        "its cost model names no key of a rate card"
    } else {
        return Ok(());
    };
    Err(Error::Metadata { skill: named, problem })
}
