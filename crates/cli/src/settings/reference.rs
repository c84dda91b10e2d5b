//! The settings as a table for the documents.

use std::fmt::Write;

use super::file::ROOTS_KEY;
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
        writeln!(
            table,
            "| `--{}` | `{}` | `{}` | {default} | {} |",
            setting.flag, setting.env, setting.key, setting.help
        )
        .expect("a string takes any text");
    }
    let roots = "Roots for ListRoots, as `[[roots]]` tables with `uri` and `name`; read again on SIGHUP";
    writeln!(table, "| | | `{ROOTS_KEY}` | none | {roots} |").expect("a string takes any text");
    table
}
