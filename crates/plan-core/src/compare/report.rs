//! The report of a comparison, as people and programs read it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Aspect, Comparison, InputChanged};
use crate::digest::Digest;
use crate::journal::RunMode;

/// What a replay, or the comparison of two runs, found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub replay_mode: RunMode,
    pub original_run_id: String,
    pub replay_run_id: String,
    pub plan_hash: Digest,
    pub verdict: Verdict,
    pub what_if: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub substitutions: Vec<Substitution>,
    /// True for equal, false for at least one difference, null for not evaluated.
    pub behavior_match: BTreeMap<Aspect, Option<bool>>,
    pub behavior_digest: BehaviorDigests,
    pub first_divergence: Option<FirstDivergence>,
    pub mismatches: Vec<Mismatch>,
    pub pin_violations: Vec<PinViolation>,
    pub inputs_changed: Vec<InputChanged>,
    pub evaluated: Evaluated,
    pub skipped: Vec<Skipped>,
    /// For two live runs: whether every decision of the replay follows from its own inputs; none if that could not be
    /// found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conformance: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Match,
    /// It differs, and the world is why.
    Explained,
    Diverged,
    NotComparable,
    /// Nothing was compared.
    Estimate,
}

impl Verdict {
    /// What a command ends with.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Match | Verdict::Estimate => 0,
            Verdict::Diverged => 10,
            Verdict::Explained => 11,
            Verdict::NotComparable => 12,
        }
    }
}

/// Whose doing a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The executor decided differently on the same facts.
    Runtime,
    /// The world answered differently.
    External,
    /// Something the plan pins is not what it was.
    Pin,
    /// The recording does not say.
    Recording,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    pub aspect: Aspect,
    pub step_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Place in the original's journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub field: String,
    pub original: Value,
    pub replay: Value,
    pub cause: Origin,
    /// The facts and the rule that decides them.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDivergence {
    pub step_id: Option<String>,
    pub attempt: Option<u32>,
    pub seq: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BehaviorDigests {
    pub original: Option<Digest>,
    pub replay: Option<Digest>,
}

/// A pin that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinViolation {
    /// One of `skill_missing`, `skill_disabled`, `skill_build_changed`, `taxonomy`, `rate_card`, `jitter`,
    /// `token_estimator`, `spec`, `revision`, `journal`.
    pub kind: String,
    /// What is pinned.
    pub subject: String,
    pub why: String,
}

/// What stood in for a pin on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Substitution {
    pub pin: String,
    pub original: String,
    pub replay: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    pub steps: usize,
    pub attempts: usize,
}

/// Something that could not be evaluated, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub step_id: Option<String>,
    pub aspect: Option<Aspect>,
    pub why: String,
}

impl Report {
    /// A report about two runs of which nothing has been compared.
    #[must_use]
    pub fn not_comparable(mode: RunMode, original_run_id: String, replay_run_id: String, plan_hash: Digest) -> Self {
        Self {
            replay_mode: mode,
            original_run_id,
            replay_run_id,
            plan_hash,
            verdict: Verdict::NotComparable,
            what_if: false,
            substitutions: Vec::new(),
            behavior_match: Aspect::ALL.into_iter().map(|aspect| (aspect, None)).collect(),
            behavior_digest: BehaviorDigests::default(),
            first_divergence: None,
            mismatches: Vec::new(),
            pin_violations: Vec::new(),
            inputs_changed: Vec::new(),
            evaluated: Evaluated::default(),
            skipped: Vec::new(),
            conformance: None,
        }
    }

    /// Takes in a comparison: the match of every aspect, the first divergence, and the verdict.
    pub(crate) fn conclude(&mut self, comparison: Comparison) {
        let Comparison { mut mismatches, looked_at, skipped, evaluated } = comparison;
        mismatches.sort_by_key(|mismatch| mismatch.seq.unwrap_or(u64::MAX));
        self.skipped.extend(skipped);
        let unknown: BTreeSet<Aspect> = self.skipped.iter().filter_map(|skipped| skipped.aspect).collect();
        for aspect in Aspect::ALL {
            let mut of_it = mismatches.iter().filter(|mismatch| mismatch.aspect == aspect).peekable();
            let differs = of_it.peek().is_some();
            // A recording that does not say proves nothing either way.
            let matches = if of_it.any(|mismatch| mismatch.cause != Origin::Recording) {
                Some(false)
            } else if differs || unknown.contains(&aspect) || !looked_at.contains(&aspect) {
                None
            } else {
                Some(true)
            };
            self.behavior_match.insert(aspect, matches);
        }
        let first = mismatches.iter().find_map(|mismatch| Some((mismatch, mismatch.seq?)));
        self.first_divergence = first.map(|(mismatch, seq)| FirstDivergence {
            step_id: mismatch.step_id.clone(),
            attempt: mismatch.attempt,
            seq,
        });
        self.mismatches = mismatches;
        self.evaluated = evaluated;
        self.verdict = self.judge();
    }

    fn judge(&self) -> Verdict {
        let caused_by = |origin| self.mismatches.iter().any(|mismatch| mismatch.cause == origin);
        let skill_missing = self.pin_violations.iter().any(|violation| violation.kind == "skill_missing");
        if caused_by(Origin::Runtime) || self.conformance == Some(false) {
            return Verdict::Diverged;
        }
        if caused_by(Origin::Pin) {
            return if skill_missing { Verdict::NotComparable } else { Verdict::Diverged };
        }
        if self.replay_mode == RunMode::FullReplay && self.conformance.is_none() {
            return Verdict::NotComparable;
        }
        if caused_by(Origin::External) {
            return Verdict::Explained;
        }
        let complete = self.behavior_match.values().all(|matches| *matches == Some(true));
        if complete && !self.what_if && !skill_missing && self.mismatches.is_empty() {
            Verdict::Match
        } else {
            Verdict::NotComparable
        }
    }
}
