//! Texts of plans, from files or stdin, and what whoever freezes them may decide.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use macp_plan_core::finding::Finding;
use macp_plan_core::freeze::{self, FreezeOptions, Freezing, Profile};
use macp_plan_core::plan::{FrozenPlan, PlanError};
use macp_plan_core::skill::Catalog;
use macp_wire::canonical;

use crate::time::{now_ms, stamp};

/// Reads a file, or stdin for `-`.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text).context("cannot read stdin")?;
        return Ok(text);
    }
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What to pin where the author left it open.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct PinArgs {
    /// Version of the error taxonomy to pin if the plan names none; the newest if not given
    #[arg(long, value_name = "VERSION")]
    taxonomy: Option<String>,
    /// Id of the rate card to pin if the plan names none; the built-in one if not given
    #[arg(long, value_name = "ID")]
    card: Option<String>,
    /// Pin which builds of the skills are here, so that a replay can tell a skill that was changed under its version
    #[arg(long)]
    pin_builds: bool,
    /// JSON file with the profile of the agent: allowed and denied skills, retries, budget, policies
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

impl PinArgs {
    pub(super) fn options(&self, embed_rate_card: bool) -> anyhow::Result<FreezeOptions> {
        Ok(FreezeOptions {
            plan_id: Some(uuid::Uuid::new_v4().to_string()),
            created_at: Some(format!("{}Z", stamp(now_ms()).replace(' ', "T"))),
            taxonomy_version: self.taxonomy.clone(),
            rate_card: self.card.clone(),
            embed_rate_card,
            pin_builds: self.pin_builds,
            profile: self.profile.as_deref().map(profile).transpose()?,
        })
    }

    pub(super) fn names_a_card(&self) -> bool {
        self.card.is_some()
    }

    /// Whether anything is asked for that a server decides by itself.
    pub(super) fn is_empty(&self) -> bool {
        self.taxonomy.is_none() && self.card.is_none() && !self.pin_builds && self.profile.is_none()
    }
}

fn profile(path: &Path) -> anyhow::Result<Profile> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no profile of an agent", path.display()))
}

/// Freezes the text of a plan; a text that is no JSON is one more thing to find.
pub(super) fn freeze(text: &[u8], catalog: &dyn Catalog, options: &FreezeOptions) -> Result<Freezing, Vec<Finding>> {
    match canonical::parse(text) {
        Ok(value) => freeze::freeze_with_notes(&value, catalog, options),
        // The same words whoever asks.
        Err(_) => Err(macp_plan_core::lint::lint(text, catalog, options)),
    }
}

/// The text of a frozen plan. What is not frozen is told here, in the words of whoever wrote it.
pub(crate) fn frozen_text(path: &Path) -> anyhow::Result<String> {
    let bytes = read(path)?;
    match FrozenPlan::parse(&bytes) {
        Ok(plan) => Ok(plan.text()),
        Err(PlanError::Findings(_)) if path == Path::new("-") => Err(anyhow!(
            "the text on stdin is no frozen plan; `macp plan freeze` makes one, `macp plan lint` says what is wrong"
        )),
        Err(PlanError::Findings(_)) => {
            let path = path.display();
            Err(anyhow!(
                "{path} is no frozen plan; freeze it first: macp plan freeze {path} -o PLAN (if it was frozen and has \
                 been changed since, `macp plan lint {path}` says what is wrong with it)"
            ))
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// A plan to look at: a frozen one as it is, an authored one as it would be frozen; else what is wrong with it.
pub(super) fn frozen(path: &Path, catalog: &dyn Catalog) -> anyhow::Result<Result<Viewed, Vec<Finding>>> {
    let text = read(path)?;
    if let Ok(plan) = FrozenPlan::parse(&text) {
        return Ok(Ok(Viewed { plan: Arc::new(plan), is_frozen: true }));
    }
    let options = PinArgs::default().options(false)?;
    let freezing = freeze(&text, catalog, &options);
    Ok(freezing.map(|freezing| Viewed { plan: Arc::new(freezing.plan), is_frozen: false }))
}

/// A plan to look at.
#[derive(Debug)]
pub(super) struct Viewed {
    pub(super) plan: Arc<FrozenPlan>,
    pub(super) is_frozen: bool,
}
