//! The config file: TOML, every key known, nothing ignored.

use std::collections::BTreeMap;
use std::path::Path;

use macp_wire::v1::Root;
use serde::Deserialize;

use super::list::{SETTINGS, Setting};
use super::value::Value;

/// What a config file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) values: BTreeMap<&'static str, Value>,
    pub(crate) roots: Vec<Root>,
}

/// Key of the roots, which have no flag and no variable.
pub(crate) const ROOTS_KEY: &str = "roots";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RootTable {
    uri: String,
    #[serde(default)]
    name: String,
}

impl ConfigFile {
    /// Reads a file. All its problems are told at once, each with its key.
    pub(crate) fn read(path: &Path) -> Result<ConfigFile, Vec<String>> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| vec![format!("cannot read config file {}: {error}", path.display())])?;
        ConfigFile::parse(&text)
            .map_err(|problems| problems.into_iter().map(|it| format!("{}: {it}", path.display())).collect())
    }

    fn parse(text: &str) -> Result<ConfigFile, Vec<String>> {
        let table: toml::Table = toml::from_str(text).map_err(|error| vec![error.to_string().trim().to_owned()])?;
        let mut file = ConfigFile::default();
        let mut problems = Vec::new();
        for (key, value) in table {
            if key == ROOTS_KEY {
                match value.try_into::<Vec<RootTable>>() {
                    Ok(roots) => file.roots = roots.into_iter().map(Root::from).collect(),
                    Err(error) => problems.push(format!("roots: {}", error.to_string().trim())),
                }
                continue;
            }
            match SETTINGS.iter().find(|setting| setting.key == key) {
                None => problems.push(unknown(&key)),
                Some(setting) => match setting.kind.read(&value) {
                    Ok(value) => {
                        file.values.insert(setting.key, value);
                    }
                    Err(problem) => problems.push(format!("{key}: {problem}")),
                },
            }
        }
        if problems.is_empty() { Ok(file) } else { Err(problems) }
    }
}

impl From<RootTable> for Root {
    fn from(table: RootTable) -> Self {
        Root { uri: table.uri, name: table.name }
    }
}

fn unknown(key: &str) -> String {
    let alike = |setting: &&Setting| {
        let bare = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
        let name = bare(key);
        [setting.key, setting.flag, setting.env.trim_start_matches("MACP_")].iter().any(|it| bare(it) == name)
    };
    match SETTINGS.iter().find(alike) {
        Some(setting) => format!("unknown key {key:?}; did you mean {:?}?", setting.key),
        None => format!("unknown key {key:?}; `macp serve --help` lists the settings"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_told() {
        let problems = ConfigFile::parse("max-payload-bytes = 1\nfoo = 2\nmemory = \"yes\"\nshards = 0").unwrap_err();
        let text = problems.join("\n");
        assert_eq!(problems.len(), 4, "{text}");
        assert!(text.contains("did you mean \"max_payload_bytes\""), "{text}");
        assert!(text.contains("unknown key \"foo\""), "{text}");
        assert!(text.contains("memory: needs true or false, found string"), "{text}");
        assert!(text.contains("shards: 0 is outside 1 to 1024"), "{text}");
    }

    #[test]
    fn roots_are_read_and_checked() {
        let file = ConfigFile::parse("[[roots]]\nuri = \"file:///a\"\nname = \"A\"\n[[roots]]\nuri = \"b\"").unwrap();
        assert_eq!(file.roots.len(), 2);
        assert_eq!((file.roots[0].uri.as_str(), file.roots[0].name.as_str()), ("file:///a", "A"));
        assert!(ConfigFile::parse("[[roots]]\nname = \"A\"").is_err());
        assert!(ConfigFile::parse("[[roots]]\nuri = \"a\"\nurl = \"b\"").is_err());
    }
}
