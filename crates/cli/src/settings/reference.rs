//! The settings as a table for the documents.

use std::fmt::Write;

use super::file::{ROLES_KEY, ROOTS_KEY};
use super::list::{Default, SETTINGS};

/// The reference of all settings, as Markdown.
pub(crate) fn markdown() -> String {
    let mut table = String::from("| Flag | Variable | Config key | Default | Meaning |\n|---|---|---|---|---|\n");
    table.push_str(
        "| `--config` | `MACP_CONFIG` | | none | TOML file with the config keys below; read again on SIGHUP |\n",
    );
    for setting in SETTINGS {
        let default = match setting.default {
            Default::Is(text) => format!("`{text}`"),
            Default::Unset(words) => words.to_owned(),
        };
        let flag = setting.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
        writeln!(table, "| {flag} | `{}` | `{}` | {default} | {} |", setting.env, setting.key, setting.help)
            .expect("a string takes any text");
    }
    let roles = "What roles entitle to on sessions of others, as `[roles.NAME]` tables with `cancel`, `suspend` and \
                 `observe`";
    writeln!(table, "| | | `{ROLES_KEY}` | none | {roles} |").expect("a string takes any text");
    let roots = "Roots for ListRoots, as `[[roots]]` tables with `uri` and `name`; read again on SIGHUP";
    writeln!(table, "| | | `{ROOTS_KEY}` | none | {roots} |").expect("a string takes any text");
    table
}
