//! Replay: a recorded run, decided once more.
//!
//! A mock replay feeds the recorded inputs to the machine, which decides everything anew, and compares. It cannot call
//! anything: there is nothing here that could. The comparison of a live replay with its original also replays the
//! replay, to tell what the world changed from what the runtime did.

mod excuses;
mod full;
mod mock;
mod pins;
pub(crate) mod recording;
mod what_if;

use std::sync::Arc;

use serde_json::Value;

use crate::compare::{PinViolation, Report};
use crate::digest::Digest;
use crate::journal::RunMode;
use crate::machine::{Pinned, Rules};
use crate::plan::FrozenPlan;
use crate::rate_card::RateCardError;

pub use full::full_replay;
pub use mock::{Mock, mock_replay};
pub use what_if::WhatIf;

/// Gives outputs that are kept apart from the journal, by digest.
pub type Bodies<'a> = &'a dyn Fn(&Digest) -> Option<Value>;

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The id of the replay itself.
    pub replay_run_id: String,
    /// The pinned rules, except in tests of the comparison.
    pub rules: Arc<dyn Rules>,
    pub what_if: WhatIf,
    /// Whether to keep the entries of the replay.
    pub keep_entries: bool,
}

impl Options {
    /// A replay under the pinned rules.
    #[must_use]
    pub fn new(replay_run_id: impl Into<String>) -> Self {
        Self {
            replay_run_id: replay_run_id.into(),
            rules: Arc::new(Pinned),
            what_if: WhatIf::default(),
            keep_entries: false,
        }
    }
}

/// A replay that does not even begin.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("the plan is not the one that ran: the run names {recorded}, the plan is {found}")]
    PlanAltered { recorded: Digest, found: Digest },
    #[error("the rate card to put in cannot be used")]
    RateCard(#[from] RateCardError),
    #[error("there is no version {version:?} of the taxonomy to put in; there are {known}")]
    NoTaxonomy { version: String, known: String },
    #[error("the plan does not use the skill {skill_id:?}, so that no other version can be put in; it uses {used}")]
    SkillUnused { skill_id: String, used: String },
    #[error("the skill {skill_id:?} is not registered in version {version:?}; registered versions: {known}")]
    NoSkill { skill_id: String, version: String, known: String },
    #[error("the run has the pins that are to be put in already, so that there is nothing to try")]
    NothingExchanged,
}

impl Refused {
    /// Whether what was asked for does not exist, whatever run it was asked of.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Refused::PlanAltered { .. } => false,
            Refused::RateCard(_)
            | Refused::NoTaxonomy { .. }
            | Refused::SkillUnused { .. }
            | Refused::NoSkill { .. }
            | Refused::NothingExchanged => true,
        }
    }
}

/// The report about a journal that cannot be believed.
#[must_use]
pub fn broken(
    mode: RunMode,
    original_run_id: String,
    replay_run_id: String,
    plan_hash: Digest,
    seq: u64,
    why: String,
) -> Report {
    let mut report = Report::not_comparable(mode, original_run_id, replay_run_id, plan_hash);
    report.pin_violations.push(PinViolation { kind: "journal".to_owned(), subject: format!("entry {seq}"), why });
    report
}

fn check_plan(plan: &FrozenPlan, recorded: &Digest) -> Result<(), Refused> {
    if plan.hash == *recorded {
        return Ok(());
    }
    Err(Refused::PlanAltered { recorded: recorded.clone(), found: plan.hash.clone() })
}
