//! A directory of policies, registered when the server starts (STD-POL-12).

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, bail};
use macp_edge::OperatorPolicy;
use macp_wire::canonical;
use macp_wire::v1::PolicyDescriptor;
use serde::Deserialize;
use serde_json::Value;

/// A descriptor as a file holds it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(alias = "policyId")]
    policy_id: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    description: String,
    #[serde(alias = "schemaVersion")]
    schema_version: u32,
    /// The rules themselves, or their text.
    #[serde(default)]
    rules: Value,
    /// Taken, so that what a registry printed can be a file; the registry sets its own.
    #[serde(default, alias = "registeredAtUnixMs", rename = "registered_at_unix_ms")]
    _registered_at_unix_ms: Value,
}

/// Every `*.json` file of the directory, by name.
pub(super) fn read(directory: &Path) -> anyhow::Result<Vec<OperatorPolicy>> {
    let failed = || format!("cannot read the policies directory {}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.extension() == Some(OsStr::new("json")) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(|path| Ok(OperatorPolicy { descriptor: read_policy(&path)?, origin: shown(&path) })).collect()
}

/// One policy. Whether its rules make sense is for the registry to say.
pub(crate) fn read_policy(path: &Path) -> anyhow::Result<PolicyDescriptor> {
    let text = std::fs::read(path).with_context(|| format!("cannot read the policy {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no policy", path.display()))
}

fn parse(text: &[u8]) -> anyhow::Result<PolicyDescriptor> {
    let value = canonical::parse(text).context("no valid JSON")?;
    let file: PolicyFile = serde_json::from_value(value)?;
    let rules = match file.rules {
        Value::Null => String::new(),
        Value::String(text) => text,
        rules @ Value::Object(_) => rules.to_string(),
        _ => bail!("`rules` must be an object, or the text of one"),
    };
    Ok(PolicyDescriptor {
        policy_id: file.policy_id,
        mode: file.mode,
        description: file.description,
        rules,
        schema_version: file.schema_version,
        registered_at_unix_ms: 0,
    })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_an_object_or_its_text() {
        let inline = parse(br#"{"policy_id":"p","mode":"*","schema_version":1,"rules":{"commitment":{}}}"#).unwrap();
        let text = parse(br#"{"policyId":"p","mode":"*","schemaVersion":1,"rules":"{\"commitment\":{}}"}"#).unwrap();
        assert_eq!(inline, text);
        assert_eq!(inline.rules, r#"{"commitment":{}}"#);
    }

    #[test]
    fn what_is_no_policy_is_told() {
        let check = |text: &str, expected: &str| {
            let problem = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(problem.contains(expected), "{text}: {problem}");
        };
        check("{", "no valid JSON");
        check("[]", "expected struct");
        check(r#"{"policy_id":"p","policy_id":"q","schema_version":1}"#, "given twice");
        check(r#"{"policy_id":"p"}"#, "schema_version");
        check(r#"{"policy_id":"p","schema_version":1,"rule":{}}"#, "unknown field `rule`");
        check(r#"{"policy_id":"p","schema_version":1,"rules":[]}"#, "must be an object");
    }
}
