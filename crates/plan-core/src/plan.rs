//! The model of a frozen plan: what it says, typed.
//!
//! A frozen plan needs nothing but itself: policies, versions and prices are written into it or pinned by digest.

mod frozen;
pub(crate) mod limits;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::Digest;

pub use frozen::{FrozenPlan, PlanError, covered, plan_hash};
pub use limits::{is_semver, is_skill_id};

/// One cent, in the unit of account.
pub const MICROCENTS_PER_CENT: u64 = 1_000_000;

pub const SPEC: &str = "aos/1";
pub const JITTER: &str = "sha256-be64-mod100/1";
pub const TOKEN_ESTIMATOR: &str = "bytes4-ceil/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub plan_id: String,
    /// Told to people, never used: outside the plan's digest.
    pub created_at: String,
    pub agent_id: String,
    pub goal: String,
    pub steps: Vec<Step>,
    pub context: Context,
    pub pins: Pins,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub step_id: String,
    pub skill_id: String,
    pub skill_version: String,
    /// Templates: references to earlier outputs are resolved when the step is reached.
    pub parameters: Map<String, Value>,
    pub retry_policy: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub on_error: OnError,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_cents: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_if: Option<RunIf>,
    /// The name references use; the step id unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Plan {
    /// How the author wrote the codes of steps where the taxonomy has another word: by step, spelling to code. What a
    /// condition says of codes is about the step it looks at.
    #[must_use]
    pub fn aliases(&self) -> Aliases {
        let mut aliases = Aliases::new();
        for step in &self.steps {
            let condition = step.run_if.as_ref().map(|condition| (&condition.step_id, &condition.aliases));
            for (step_id, spelt) in [(&step.step_id, &step.retry_policy.aliases)].into_iter().chain(condition) {
                if !spelt.is_empty() {
                    aliases.entry(step_id.clone()).or_default().extend(spelt.clone());
                }
            }
        }
        aliases
    }
}

/// Spellings of codes, by step: spelling to code.
pub type Aliases = BTreeMap<String, BTreeMap<String, String>>;

impl Step {
    /// The name under which later steps refer to this one's output.
    #[must_use]
    pub fn name(&self) -> &str {
        self.output_key.as_deref().unwrap_or(&self.step_id)
    }

    /// Under which key pins and cards know this step's skill.
    #[must_use]
    pub fn skill_key(&self) -> String {
        format!("{}@{}", self.skill_id, self.skill_version)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    #[default]
    Abort,
    Continue,
}

/// Looks at how an earlier step ended, never at what it returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunIf {
    pub step_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_in: Option<Vec<StepStatus>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_in: Option<Vec<String>>,
    /// Other spellings under which the author listed codes, kept for display: spelling to code.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, String>,
}

impl RunIf {
    /// Whether the condition holds for how that step ended. Where both lists are given, both must hold it.
    #[must_use]
    pub fn holds(&self, status: StepStatus, code: &str) -> bool {
        self.status_in.as_ref().is_none_or(|listed| listed.contains(&status))
            && self.code_in.as_ref().is_none_or(|listed| listed.iter().any(|one| one == code))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    Success,
    Failure,
    Partial,
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Retries, not attempts.
    pub max_retries: u32,
    pub backoff_base_ms: u64,
    pub backoff_multiplier: Thousandths,
    /// Sorted, each once.
    pub retryable_codes: Vec<String>,
    pub jitter_enabled: bool,
    pub jitter_max_ms: u64,
    /// Caps the exponential part of a wait, and how long a target's `Retry-After` is obeyed.
    pub max_delay_ms: u64,
    /// Other spellings under which the author listed codes, kept for display: spelling to code.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, String>,
}

/// A number with at most three decimals, kept as an integer so that nothing is ever rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Number", into = "serde_json::Number")]
pub struct Thousandths(pub u32);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub budget_cents: u64,
    pub allowed_skills: Vec<String>,
    pub budget_policy: BudgetPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetPolicy {
    pub hard_limit: bool,
    pub per_step_max_cents: Option<u64>,
    pub alert_threshold_percent: u32,
    pub admission: Option<AdmissionLimits>,
    pub policy_version: String,
}

/// Limits that depend on the agent's other runs, looked at once when a run is admitted. The operator may set smaller
/// ones; never larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionLimits {
    pub per_run_max_cents: Option<u64>,
    pub per_day_max_cents: Option<u64>,
    pub per_month_max_cents: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    pub spec: String,
    pub taxonomy_version: String,
    pub jitter: String,
    pub token_estimator: String,
    pub rate_card: RateCardPin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill_builds: Option<BTreeMap<String, Digest>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateCardPin {
    pub id: String,
    pub hash: Digest,
    /// The card itself, in plans that carry their prices with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Value>,
}

/// A multiplier with more than three decimals, or outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a multiplier is a number from 1 to 10 with at most three decimals, found {0}")]
pub struct NotThousandths(String);

impl TryFrom<serde_json::Number> for Thousandths {
    type Error = NotThousandths;

    fn try_from(number: serde_json::Number) -> Result<Self, NotThousandths> {
        thousandths(&number)
            .and_then(|thousandths| u32::try_from(thousandths).ok())
            .filter(|thousandths| (1_000..=10_000).contains(thousandths))
            .map(Self)
            .ok_or_else(|| NotThousandths(number.to_string()))
    }
}

/// A number that is not negative in thousandths, if it has at most three decimals. Reads the digits rather than a
/// float, so that 1.1 is exactly 1100 thousandths.
pub(crate) fn thousandths(number: &serde_json::Number) -> Option<u64> {
    let text = number.to_string();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let decimals = decimals.trim_end_matches('0');
    let plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if decimals.len() > 3 || !plain(whole) || !plain(decimals) {
        return None;
    }
    let part: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

impl From<Thousandths> for serde_json::Number {
    fn from(Thousandths(thousandths): Thousandths) -> Self {
        let (whole, part) = (thousandths / 1000, thousandths % 1000);
        if part == 0 {
            return whole.into();
        }
        let text = format!("{whole}.{part:03}");
        text.trim_end_matches('0').parse().expect("digits and a point are a number")
    }
}
