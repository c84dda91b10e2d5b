//! The taxonomy of outcomes: versioned tables of codes, and the total mapping from a cause to a code.
//!
//! Versions are compiled in and never edited: a change is a new version, and old ones stay for the runs pinned to them.

mod aliases;
mod classes;
mod codes;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cause::Cause;
use crate::digest::{self, Digest};
use crate::skill::PureSkill;

pub use aliases::alias;
pub use classes::Class;
pub use codes::{Category, CodeInfo, Severity};

/// The version a plan is frozen with unless its author names another.
pub const DEFAULT_VERSION: &str = "1.1.0";

/// One version of the taxonomy.
#[derive(Debug)]
pub struct Taxonomy {
    version: &'static str,
    /// A later version is an earlier one and what it adds.
    tables: &'static [&'static [CodeInfo]],
    code_of: fn(Class) -> &'static str,
}

const V1_0_0: Taxonomy = Taxonomy { version: "1.0.0", tables: &[codes::CODES_1_0_0], code_of: Class::code_1_0_0 };
const V1_1_0: Taxonomy =
    Taxonomy { version: "1.1.0", tables: &[codes::CODES_1_0_0, codes::ADDED_IN_1_1_0], code_of: Class::code_1_1_0 };

/// Every version that is kept, oldest first.
pub static VERSIONS: &[Taxonomy] = &[V1_0_0, V1_1_0];

impl Taxonomy {
    /// A kept version, by its exact number.
    #[must_use]
    pub fn version(version: &str) -> Option<&'static Taxonomy> {
        VERSIONS.iter().find(|taxonomy| taxonomy.version == version)
    }

    #[must_use]
    pub fn number(&self) -> &'static str {
        self.version
    }

    /// The rows, in the order of the published table.
    pub fn codes(&self) -> impl Iterator<Item = &'static CodeInfo> + use<> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    #[must_use]
    pub fn code(&self, code: &str) -> Option<&'static CodeInfo> {
        self.codes().find(|info| info.code == code)
    }

    /// Whether a failure with this code may be worth another attempt. A function of the code alone: it does not change
    /// when retries are used up, and no success is retryable.
    #[must_use]
    pub fn retryable(&self, code: &str) -> bool {
        self.code(code).is_some_and(|info| info.retryable)
    }

    /// The code of a cause. A skill may be more precise about its own failures, within what it declares and this
    /// version knows; a skill can turn neither a success into a failure nor the reverse, and has no say in what the
    /// executor itself decides: whether a run stops goes by the code.
    #[must_use]
    pub fn resolve(&self, cause: &Cause, skill: &dyn PureSkill) -> &'static str {
        let class = Class::of(cause);
        if class == Class::Success {
            let named = skill.success_code();
            let known = self.code(named).is_some_and(|info| info.category == Category::Success);
            return if known { named } else { "OK" };
        }
        if class != Class::Partial
            && !cause.is_executors()
            && let Some(named) = skill.classify(cause)
            && self.code(named).is_some_and(|info| info.category != Category::Success)
            && skill.metadata().failure_modes.iter().any(|mode| mode == named)
        {
            return named;
        }
        (self.code_of)(class)
    }

    /// The code of a class of causes; for causes that no skill reports.
    #[must_use]
    pub fn code_of(&self, class: Class) -> &'static str {
        (self.code_of)(class)
    }

    /// A code of the newest version as this version says it: itself if it is known here, else its substitute.
    ///
    /// `OK_DRY_RUN` stays, because it stands only in simulated results and never in the record of a run.
    #[must_use]
    pub fn or_substitute(&self, code: &'static str) -> &'static str {
        if self.code(code).is_some() {
            return code;
        }
        match code {
            "OK_PARTIAL" | "OK_SKIP_DUPLICATE" | "OK_SKIP_CONDITION" => "OK",
            "OK_DRY_RUN" => code,
            "ERR_IDEMPOTENCY_CONFLICT" => "ERR_VALIDATION_FAILED",
            "ERR_CANCELLED" => "ERR_POLICY_VIOLATION",
            _ => "ERR_UNKNOWN",
        }
    }

    /// Everything that makes this version what it is, as data: what its digest covers.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let codes: Vec<Value> = self
            .codes()
            .map(|info| {
                json!({
                    "code": info.code,
                    "category": info.category,
                    "retryable": info.retryable,
                    "severity": info.severity,
                    "always_stops": stops_always(info.code),
                })
            })
            .collect();
        let causes: Vec<Value> =
            Class::ALL.iter().map(|class| json!({"cause": class.name(), "code": self.code_of(*class)})).collect();
        json!({"version": self.version, "codes": codes, "causes": causes})
    }

    /// What identifies this version besides its number.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest::of_value(digest::TAXONOMY_LABEL, &self.to_value()).expect("tables of words have a canonical form")
    }
}

/// Codes that end a run even where the step says `continue`.
#[must_use]
pub fn stops_always(code: &str) -> bool {
    matches!(
        code,
        "ERR_BUDGET_EXCEEDED"
            | "ERR_QUOTA_EXCEEDED"
            | "ERR_POLICY_VIOLATION"
            | "ERR_SAFETY_REJECTED"
            | "ERR_PROMPT_INJECTION"
    )
}

/// What people are told about a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub code: &'static str,
    pub category: Category,
    pub severity: Severity,
    pub retryable: bool,
    pub always_stops: bool,
    /// Versions that have the code, oldest first.
    pub versions: Vec<&'static str>,
    pub meaning: &'static str,
    pub action: &'static str,
    /// The causes that lead to it under the newest version.
    pub causes: Vec<&'static str>,
    /// The spelling that was asked for, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}

/// Explains a code or another spelling of one.
#[must_use]
pub fn explain(asked: &str) -> Option<Explanation> {
    let newest = VERSIONS.last()?;
    let (info, alias) = match newest.code(asked) {
        Some(info) => (info, None),
        None => (newest.code(alias(asked)?)?, Some(asked.to_owned())),
    };
    let leads_here = |class: &&Class| newest.code_of(**class) == info.code;
    Some(Explanation {
        code: info.code,
        category: info.category,
        severity: info.severity,
        retryable: info.retryable,
        always_stops: stops_always(info.code),
        versions: VERSIONS.iter().filter(|version| version.code(info.code).is_some()).map(Taxonomy::number).collect(),
        meaning: info.meaning,
        action: info.action,
        causes: Class::ALL.iter().filter(leads_here).map(|class| class.meaning()).collect(),
        alias,
    })
}
