//! The config file: TOML, every key known, nothing ignored.

use std::collections::BTreeMap;
use std::path::Path;

use macp_auth::RoleRights;
use macp_plan::session::Scope;
use macp_plan::skills::llm_invoke::LlmProvider;
use macp_plan_core::freeze::Profile;
use macp_wire::v1::Root;
use serde::Deserialize;

use super::list::{Setting, settings};
use super::value::Value;
use super::{plans, roles};

/// What a config file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) values: BTreeMap<&'static str, Value>,
    pub(crate) roots: Vec<Root>,
    pub(crate) roles: BTreeMap<String, RoleRights>,
    pub(crate) providers: Vec<LlmProvider>,
    pub(crate) scopes: Scopes,
    pub(crate) profiles: Profiles,
}

/// What authorities let plans do, by name.
pub(crate) type Scopes = BTreeMap<String, Scope>;

/// What agents' profiles contribute when plans are frozen, by agent.
pub(crate) type Profiles = BTreeMap<String, Profile>;

/// Key of the roots, which have no flag and no variable.
pub(crate) const ROOTS_KEY: &str = "roots";

/// Key of the rights of roles; a variable can give them as JSON.
pub(crate) const ROLES_KEY: &str = "roles";

/// Key of the endpoints that `llm_invoke` asks, which have no flag and no variable.
pub(crate) const PROVIDERS_KEY: &str = "providers";

/// Key of what authorities let plans do, which has no flag and no variable.
pub(crate) const SCOPES_KEY: &str = "scopes";

/// Key of the profiles of agents, which have no flag and no variable.
pub(crate) const PROFILES_KEY: &str = "profiles";

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
        let table: toml::Table = toml::from_str(text).map_err(|error| vec![unreadable(text, &error)])?;
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
            if key == ROLES_KEY {
                match roles::from_toml(value) {
                    Ok(roles) => file.roles = roles,
                    Err(problem) => problems.push(problem),
                }
                continue;
            }
            if key == PROVIDERS_KEY {
                match plans::providers(value) {
                    Ok(providers) => file.providers = providers,
                    Err(problem) => problems.push(problem),
                }
                continue;
            }
            if key == SCOPES_KEY {
                match plans::scopes(value) {
                    Ok(scopes) => file.scopes = scopes,
                    Err(problem) => problems.push(problem),
                }
                continue;
            }
            if key == PROFILES_KEY {
                match plans::profiles(value) {
                    Ok(profiles) => file.profiles = profiles,
                    Err(problem) => problems.push(problem),
                }
                continue;
            }
            match settings().find(|setting| setting.key == key) {
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

/// What is wrong with the text and where, without the line itself: it may hold a secret.
fn unreadable(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: {}", before.matches('\n').count() + 1, error.message().trim())
}

fn unknown(key: &str) -> String {
    let alike = |setting: &&Setting| {
        let bare = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
        let name = bare(key);
        let flag = setting.flag.unwrap_or_default();
        [setting.key, flag, setting.env.trim_start_matches("MACP_")].iter().any(|it| bare(it) == name)
    };
    match settings().find(alike) {
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
    fn a_secret_is_in_no_message() {
        for text in ["a = 1\nauth_tokens_json = 'hunter2", "a = 1\nauth_tokens_json = hunter2 hunter2"] {
            let problem = ConfigFile::parse(text).unwrap_err().join("\n");
            assert!(problem.starts_with("line 2: ") && !problem.contains("hunter2"), "{problem}");
        }
        let problem = ConfigFile::parse("auth_tokens_json = [\"hunter2\"]").unwrap_err().join("\n");
        assert_eq!(problem, "auth_tokens_json: needs a string, found array");
        let file = ConfigFile::parse("auth_tokens_json = 'hunter2'").unwrap();
        assert!(!format!("{file:?}").contains("hunter2"));
    }

    #[test]
    fn roles_are_read_and_checked() {
        let file = ConfigFile::parse("[roles.operator]\ncancel = true\nsuspend = true\n[roles.auditor]").unwrap();
        assert_eq!(file.roles["operator"], RoleRights { cancel: true, suspend: true, ..RoleRights::default() });
        assert_eq!(file.roles["auditor"], RoleRights::default());
        for bad in ["[roles.a]\nstart = true", "[roles.a]\ncancel = 1", "roles = 1", "[[roles]]\ncancel = true"] {
            let problem = ConfigFile::parse(bad).unwrap_err().join("\n");
            assert!(problem.starts_with("roles"), "{bad}: {problem}");
        }
    }

    #[test]
    fn providers_and_scopes_are_read_and_checked() {
        let text = "[[providers]]\nname = \"local\"\nkind = \"open_ai\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                    [scopes.release-team]\nagents = \"*\"\nskills = [\"http_call\"]";
        let file = ConfigFile::parse(text).unwrap();
        assert_eq!(file.providers[0].name, "local");
        assert!(file.scopes["release-team"].agents.allow("anyone"));
        assert!(!file.scopes["release-team"].skills.allow("llm_invoke"));
        for bad in ["providers = 1", "[[providers]]\nname = \"a\"", "[scopes.a]\nagents = \"*\"", "scopes = 1"] {
            let problem = ConfigFile::parse(bad).unwrap_err().join("\n");
            assert!(problem.starts_with("providers") || problem.starts_with("scopes"), "{bad}: {problem}");
        }
    }

    #[test]
    fn profiles_are_read_and_checked() {
        let text = "[profiles.reporter]\nallowed_skills = [\"http_call\"]\nmax_retries_per_step = 1";
        let file = ConfigFile::parse(text).unwrap();
        assert_eq!(file.profiles["reporter"].allowed_skills, Some(vec!["http_call".to_owned()]));
        assert_eq!(file.profiles["reporter"].max_retries_per_step, Some(1));
        for bad in ["profiles = 1", "[profiles.a]\nskills = []", "[profiles.a]\nmax_retries_per_step = \"1\""] {
            let problem = ConfigFile::parse(bad).unwrap_err().join("\n");
            assert!(problem.starts_with("profiles"), "{bad}: {problem}");
        }
    }

    #[test]
    fn the_example_in_the_document_is_read() {
        let document = include_str!("../../../../docs/PLANS.md");
        let (_, example) = document.split_once("```toml\n").expect("the document has an example");
        let (example, _) = example.split_once("```").expect("the example ends");
        let file = ConfigFile::parse(example).unwrap();
        assert_eq!((file.providers.len(), file.scopes.len(), file.roles.len()), (1, 1, 1));
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
