//! Which skills and prices plans are looked at with where there is no server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use macp_plan::registry::{self, Registry};
use macp_plan::skills::SkillSettings;
use macp_plan_core::skill::Catalog;

use crate::settings::read_rate_card;

/// The variable of the setting.
const PERMISSIONS: &str = "MACP_SKILL_PERMISSIONS";

/// Rate cards to know beside the one that comes with the runtime.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CatalogArgs {
    /// JSON file with a rate card to know beside the built-in one; may be given again
    #[arg(long, value_name = "FILE", env = "MACP_RATE_CARDS", value_delimiter = ',')]
    rate_card: Vec<PathBuf>,
    /// Permission that skills may have, and no others; may be given again. Without it they have what they declare
    #[arg(long, value_name = "NAME", env = PERMISSIONS, value_delimiter = ',')]
    skill_permission: Option<Vec<String>>,
}

impl CatalogArgs {
    /// The skills of this program. None of them can reach anything.
    pub(crate) fn registry(&self) -> anyhow::Result<Registry> {
        let mut settings = SkillSettings::default();
        // Nothing is called, so nobody has to be believed, and a machine without certificates is good enough.
        settings.trust.system_roots = false;
        settings.rate_cards = self.rate_card.iter().map(|path| read_rate_card(path)).collect::<Result<_, _>>()?;
        settings.permissions = self.permissions();
        registry::standard(&settings).context("the skills cannot be set up")
    }

    /// The permissions that are listed, if there is a list. An empty flag is a list of none and an empty variable counts
    /// as absent, as they do to the server.
    fn permissions(&self) -> Option<Vec<String>> {
        let listed = self.skill_permission.as_ref()?.iter().map(|it| it.trim()).filter(|it| !it.is_empty());
        let listed: Vec<String> = listed.map(str::to_owned).collect();
        let is_absent = listed.is_empty() && std::env::var_os(PERMISSIONS).is_some_and(|text| text.is_empty());
        (!is_absent).then_some(listed)
    }

    pub(crate) fn catalog(&self) -> anyhow::Result<Arc<dyn Catalog>> {
        Ok(Arc::new(self.registry()?))
    }
}
