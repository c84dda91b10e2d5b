//! What roles entitle to, as the config file or a variable says it.

use std::collections::BTreeMap;

use macp_auth::RoleRights;
use macp_wire::canonical;
use serde::Deserialize;

/// The rights of one role; what is not said is not granted.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RoleTable {
    cancel: bool,
    suspend: bool,
    observe: bool,
    repeat: bool,
}

type Roles = BTreeMap<String, RoleRights>;

/// `{"operator": {"cancel": true, "suspend": true}}`
pub(super) fn from_json(text: &str) -> Result<Roles, String> {
    // A role given twice would leave open which of the two counts.
    let value = canonical::parse(text.as_bytes()).map_err(|error| format!("no valid JSON: {error}"))?;
    let tables: BTreeMap<String, RoleTable> = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(rights(tables))
}

/// `[roles.operator]` with `cancel`, `suspend`, `observe` and `repeat`.
pub(super) fn from_toml(value: toml::Value) -> Result<Roles, String> {
    let tables: toml::Table =
        value.try_into().map_err(|_| "roles: needs tables such as [roles.operator]".to_owned())?;
    let mut roles = BTreeMap::new();
    for (name, table) in tables {
        let table = table.try_into().map_err(|error| format!("roles.{name}: {}", error.message().trim()))?;
        roles.insert(name, table);
    }
    Ok(rights(roles))
}

fn rights(tables: BTreeMap<String, RoleTable>) -> Roles {
    let rights = |RoleTable { cancel, suspend, observe, repeat }| RoleRights { cancel, suspend, observe, repeat };
    tables.into_iter().map(|(name, table)| (name, rights(table))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_and_nothing_is_guessed() {
        let roles = from_json(r#"{"operator":{"cancel":true},"auditor":{"observe":true}}"#).unwrap();
        assert_eq!(roles["operator"], RoleRights { cancel: true, ..RoleRights::default() });
        assert_eq!(roles["auditor"], RoleRights { observe: true, ..RoleRights::default() });
        for bad in ["", "[]", r#"{"a":true}"#, r#"{"a":{"start":true}}"#, r#"{"a":{"cancel":1}}"#, r#"{"a":{},"a":{}}"#]
        {
            assert!(from_json(bad).is_err(), "{bad}");
        }
    }
}
