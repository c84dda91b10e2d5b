//! What an operator may set about plans that sessions commit to.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Settings of the binding between sessions and runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// Whether a committed plan starts by itself.
    pub start: StartPolicy,
    /// What becomes of a run whose commitment is superseded while it runs.
    pub superseded: SupersededPolicy,
    /// What a commitment's `authority_scope` lets a plan do. While nothing is configured, every scope allows every
    /// skill, and the agents that [`SessionSettings::authenticated`] leaves; as soon as one scope is configured, a
    /// commitment under any other is refused.
    pub scopes: BTreeMap<String, Scope>,
    /// Whether callers are authenticated. If they are and no scopes are configured, the agent of a committed plan must
    /// be the session's initiator or a listed participant. Follows from how the server authenticates, so it is
    /// not read from a file.
    #[serde(skip)]
    pub authenticated: bool,
    pub execution: ExecutionSettings,
}

/// Whether a committed plan starts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartPolicy {
    /// An operator starts it.
    #[default]
    Manual,
    /// It starts as soon as its session is resolved.
    Auto,
}

/// What becomes of a run whose commitment is superseded while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupersededPolicy {
    /// It is cancelled at the next boundary.
    #[default]
    Cancel,
    /// It goes on to its end.
    Finish,
}

/// What plans committed under one authority may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    pub agents: Names,
    pub skills: Names,
}

/// `"*"`, or a list of names. The default is the empty list, which allows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    Any,
    Only(BTreeSet<String>),
}

/// The execution sessions in which runs are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionSettings {
    /// Whether runs are reported in sessions of their own.
    pub enabled: bool,
    /// Who sends the messages of execution sessions. No agent may have a credential of this name.
    pub identity: String,
    /// Execution sessions under way at once; the reports of further runs wait for their turn.
    pub sessions_max: usize,
    /// Entries of a journal in one message, in bytes; never more than the engine's own limit on payloads.
    pub update_bytes_max: usize,
    /// What an execution session lives longer than its plan can take: time for a restart, and to report.
    pub ttl_margin_ms: u64,
}

impl Default for ExecutionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            identity: "macp-executor".to_owned(),
            sessions_max: 1_024,
            update_bytes_max: 256 * 1024,
            ttl_margin_ms: 600_000,
        }
    }
}

impl Names {
    #[must_use]
    pub fn allow(&self, name: &str) -> bool {
        match self {
            Names::Any => true,
            Names::Only(names) => names.contains(name),
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Names::Only(BTreeSet::new())
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Names::Any => serializer.serialize_str("*"),
            Names::Only(names) => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            List(BTreeSet<String>),
        }
        match Written::deserialize(deserializer)? {
            Written::Word(word) if word == "*" => Ok(Names::Any),
            Written::Word(word) => {
                Err(serde::de::Error::custom(format!("{word:?} is neither \"*\" nor a list of names")))
            }
            Written::List(names) => Ok(Names::Only(names)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_a_list_or_everything() {
        let scope: Scope = serde_json::from_value(json!({"agents": "*", "skills": ["http_call"]})).unwrap();
        assert!(scope.agents.allow("anyone"));
        assert!(scope.skills.allow("http_call"));
        assert!(!scope.skills.allow("llm_invoke"));
        assert!(!Names::default().allow("anyone"));
        for wrong in
            [json!({"agents": "all", "skills": "*"}), json!({"agents": "*"}), json!({"agents": 7, "skills": []})]
        {
            assert!(serde_json::from_value::<Scope>(wrong.clone()).is_err(), "{wrong}");
        }
        let settings = SessionSettings { scopes: [("ops".to_owned(), scope)].into(), ..SessionSettings::default() };
        let written = serde_json::to_value(&settings).unwrap();
        assert_eq!(serde_json::from_value::<SessionSettings>(written).unwrap(), settings);
    }
}
