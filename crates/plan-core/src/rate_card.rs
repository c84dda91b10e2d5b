//! Rate cards: prices as data with an id and a digest. A change of price is a new card, never an edit.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cost::Price;
use crate::digest::{self, Digest};
use crate::limits;
use crate::plan::RateCardPin;
use crate::skill::Catalog;

/// A card, read and checked.
#[derive(Clone, Debug)]
pub struct RateCard {
    id: String,
    currency: String,
    skills: BTreeMap<String, SkillPrices>,
    value: Value,
    digest: Digest,
}

/// Why a value is no rate card.
#[derive(Debug, thiserror::Error)]
pub enum RateCardError {
    #[error("this is no rate card: {0}")]
    Shape(serde_json::Error),
    #[error("a rate card's id has 1 to 128 characters")]
    Id,
    #[error("the rate card has no canonical form: {0}")]
    Canonical(macp_wire::canonical::Error),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    id: String,
    #[serde(default = "default_currency")]
    currency: String,
    skills: BTreeMap<String, SkillPrices>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SkillPrices {
    base: u64,
    per_request: u64,
    per_kib: u64,
    models: BTreeMap<String, ModelPrices>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPrices {
    input: u64,
    output: u64,
}

fn default_currency() -> String {
    "USD".to_owned()
}

impl RateCard {
    pub fn from_value(value: Value) -> Result<Self, RateCardError> {
        let Document { id, currency, skills } = Document::deserialize(&value).map_err(RateCardError::Shape)?;
        if !(1..=limits::ID_MAX).contains(&id.chars().count()) {
            return Err(RateCardError::Id);
        }
        let digest = digest::of_value(digest::RATE_CARD_LABEL, &value).map_err(RateCardError::Canonical)?;
        Ok(Self { id, currency, skills, value, digest })
    }

    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A label; nothing is ever converted.
    #[must_use]
    pub fn currency(&self) -> &str {
        &self.currency
    }

    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The price under a key such as `llm_invoke@2.0.0`, for exactly this model.
    ///
    /// Nothing is guessed: an unknown key, an unknown model, a model where the card prices none and no model where it
    /// prices by model all have no price.
    #[must_use]
    pub fn price(&self, key: &str, model: Option<&str>) -> Option<Price> {
        let SkillPrices { base, per_request, per_kib, models } = self.skills.get(key)?;
        let tokens = match model {
            Some(model) => *models.get(model)?,
            None if models.is_empty() => ModelPrices { input: 0, output: 0 },
            None => return None,
        };
        Some(Price {
            base: *base,
            per_request: *per_request,
            per_kib: *per_kib,
            input: tokens.input,
            output: tokens.output,
        })
    }

    /// The models priced under a key, sorted, so that people can be told.
    #[must_use]
    pub fn models(&self, key: &str) -> Vec<&str> {
        self.skills.get(key).map(|skill| skill.models.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// Why the pinned card cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CardUnavailable {
    #[error("the rate card `{0}` is not known here")]
    Unknown(String),
    #[error("the rate card `{id}` is unusable")]
    Unusable {
        id: String,
        #[source]
        source: RateCardError,
    },
    #[error("the rate card `{id}` is not the pinned one: its digest is {found}")]
    Differs { id: String, found: Digest },
}

/// The card a plan is pinned to: the one it carries, else the catalog's; either must have the pinned id and digest.
pub fn pinned(pin: &RateCardPin, catalog: &dyn Catalog) -> Result<RateCard, CardUnavailable> {
    let value = match &pin.card {
        Some(card) => card.clone(),
        None => catalog.rate_card(&pin.id).ok_or_else(|| CardUnavailable::Unknown(pin.id.clone()))?,
    };
    let card =
        RateCard::from_value(value).map_err(|source| CardUnavailable::Unusable { id: pin.id.clone(), source })?;
    if card.id != pin.id || card.digest != pin.hash {
        return Err(CardUnavailable::Differs { id: pin.id.clone(), found: card.digest });
    }
    Ok(card)
}

/// Id of the card that comes with the runtime.
pub const BUILTIN_ID: &str = "builtin-2026-11";

/// The card that comes with the runtime, for the skills it ships.
#[must_use]
pub fn builtin() -> RateCard {
    let model = |input: u64, output: u64| json!({"input": input, "output": output});
    let value = json!({
        "id": BUILTIN_ID,
        "currency": "USD",
        "skills": {
            "http_call@1.2.0": {"base": 0},
            "json_transform@2.0.0": {"per_kib": 1000},
            "llm_invoke@2.0.0": {"models": {
                "claude-opus-4-20250514": model(1500, 7500),
                "claude-3-opus-20240229": model(1500, 7500),
                "claude-sonnet-4-20250514": model(300, 1500),
                "claude-3-5-sonnet-20241022": model(300, 1500),
                "claude-3-5-haiku-20241022": model(80, 400),
                "claude-3-haiku-20240307": model(25, 125),
                "gpt-4o": model(250, 1000),
                "gpt-4o-mini": model(15, 60),
                "stub": model(0, 0),
            }},
        },
    });
    RateCard::from_value(value).expect("the card that comes with the runtime is a card")
}
