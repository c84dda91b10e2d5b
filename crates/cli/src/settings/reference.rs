//! The settings as a table for the documents.

use std::fmt::Write;

use super::file::{PROFILES_KEY, PROVIDERS_KEY, ROLES_KEY, ROOTS_KEY, SCOPES_KEY};
use super::list::{Default, settings};

/// The reference of all settings, as Markdown.
pub(crate) fn markdown() -> String {
    let mut table = String::from("| Flag | Variable | Config key | Default | Meaning |\n|---|---|---|---|---|\n");
    table.push_str(
        "| `--config` | `MACP_CONFIG` | | none | TOML file with the config keys below; read again on SIGHUP |\n",
    );
    for setting in settings() {
        let default = match setting.default {
            Default::Is(text) => format!("`{text}`"),
            Default::Unset(words) => words.to_owned(),
        };
        let flag = setting.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
        writeln!(table, "| {flag} | `{}` | `{}` | {default} | {} |", setting.env, setting.key, setting.help)
            .expect("a string takes any text");
    }
    let providers = "Endpoints `llm_invoke` asks, as `[[providers]]` tables with `name`, `kind` (`open_ai` or \
                     `anthropic`), `base_url`, and perhaps `api_key` (the name of a secret), `models` and \
                     `max_tokens_field`";
    writeln!(table, "| | | `{PROVIDERS_KEY}` | none | {providers} |").expect("a string takes any text");
    let scopes = "What a commitment's authority lets a plan do, as `[scopes.NAME]` tables with `agents` and `skills`, \
                  each `\"*\"` or an array; with none, every authority allows every skill and the agents of the session, \
                  with any, others allow nothing";
    writeln!(table, "| | | `{SCOPES_KEY}` | none | {scopes} |").expect("a string takes any text");
    let profiles = "What an agent may put into plans that are frozen here, as `[profiles.AGENT]` tables with \
                    `allowed_skills`, `denied_skills`, `max_retries_per_step`, a `budget` and `policies` \
                    (docs/PLANS.md), each optional; frozen plans are not judged by it";
    writeln!(table, "| | | `{PROFILES_KEY}` | none | {profiles} |").expect("a string takes any text");
    let roles = "What roles entitle to on sessions and runs of others, as `[roles.NAME]` tables with `cancel`, \
                 `suspend`, `observe` and `repeat`";
    writeln!(table, "| | | `{ROLES_KEY}` | none | {roles} |").expect("a string takes any text");
    let roots = "Roots for ListRoots, as `[[roots]]` tables with `uri` and `name`; read again on SIGHUP";
    writeln!(table, "| | | `{ROOTS_KEY}` | none | {roots} |").expect("a string takes any text");
    table
}
