//! The one list of settings, in parts that belong together.

mod access;
mod governance;
mod limits;
mod plans;
mod records;

use super::draft::Draft;
use super::value::{Kind, Value};

/// One setting, with every name it has.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in the config file.
    pub(crate) key: &'static str,
    /// Its flag, without the dashes. Secrets have none: a command line can be read by everyone on the machine.
    pub(crate) flag: Option<&'static str>,
    /// Its environment variable.
    pub(crate) env: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    /// One line for people.
    pub(crate) help: &'static str,
    /// Puts a value in its place.
    pub(crate) apply: fn(&mut Draft, &Value) -> Result<(), String>,
}

/// What holds when nobody says anything.
#[derive(Debug)]
pub(crate) enum Default {
    /// This text, read like a flag's.
    Is(&'static str),
    /// Nothing is applied; the words say what that means.
    Unset(&'static str),
}

/// Bounds of a number that only has to be there.
const POSITIVE: Kind = Kind::Number { min: 1, max: u32::MAX as u64 };
/// Bounds of a rate, where 0 means none.
const RATE: Kind = Kind::Number { min: 0, max: u32::MAX as u64 };
/// Bounds of a size in bytes: up to what one record may hold.
const RECORD_BYTES: Kind = Kind::Number { min: 1, max: 128 * 1024 * 1024 };
/// Bounds of a total in bytes.
const BYTES: Kind = Kind::Number { min: 1, max: i64::MAX as u64 };
/// Bounds of the memory of all replies: enough for a page of a listing on each of several connections.
const REPLY_BYTES: Kind = Kind::Number { min: 16 * 1024 * 1024, max: i64::MAX as u64 };
/// Bounds of a time in seconds: up to a day.
const SECONDS: Kind = Kind::Number { min: 1, max: 86_400 };

const fn setting(
    names: (&'static str, &'static str, &'static str),
    kind: Kind,
    default: Default,
    help: &'static str,
    apply: fn(&mut Draft, &Value) -> Result<(), String>,
) -> Setting {
    let (key, flag, env) = names;
    Setting { key, flag: Some(flag), env, kind, default, help, apply }
}

/// A setting whose value nobody else should see.
const fn secret(
    (key, env): (&'static str, &'static str),
    default: &'static str,
    help: &'static str,
    apply: fn(&mut Draft, &Value) -> Result<(), String>,
) -> Setting {
    Setting { key, flag: None, env, kind: Kind::Secret, default: Default::Unset(default), help, apply }
}

/// A table row that cannot fail.
macro_rules! set {
    (|$draft:ident, $value:ident| $body:expr) => {
        |$draft: &mut $crate::settings::draft::Draft, $value: &$crate::settings::value::Value| {
            $body;
            Ok(())
        }
    };
}
use set;

/// Every setting, in the order of the reference.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    [access::SETTINGS, governance::SETTINGS, limits::SETTINGS, plans::SETTINGS, records::SETTINGS].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_one_style() {
        let mut seen = std::collections::BTreeSet::new();
        for setting in settings() {
            assert!(seen.insert(setting.key) && seen.insert(setting.env), "{}", setting.key);
            assert!(setting.env.starts_with("MACP_"), "{}", setting.env);
            let flag = setting.flag.unwrap_or_default();
            assert!(flag.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{flag}");
            assert!(!setting.help.ends_with('.'), "{}", setting.key);
        }
    }

    /// The texts in the reference are the values the server's own defaults have.
    #[test]
    fn defaults_are_those_of_the_server() {
        let mut draft = Draft::new();
        for setting in settings() {
            if let Default::Is(text) = setting.default {
                let value = setting.kind.parse(text).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
                (setting.apply)(&mut draft, &value).unwrap_or_else(|error| panic!("{}: {error}", setting.key));
            }
        }
        assert_eq!(format!("{:?}", draft.server), format!("{:?}", macp_edge::Settings::default()));
        let crate::settings::plans::Plans { skills, executor, sessions, import_bytes_max, .. } = draft.plans;
        let default = macp_edge::PlanSettings::new(std::sync::Arc::new(macp_ledger::MemoryStore::new()));
        assert_eq!(skills, default.skills);
        assert_eq!(format!("{executor:?}"), format!("{:?}", default.executor));
        assert_eq!(sessions, default.sessions);
        assert_eq!(import_bytes_max, default.import_bytes_max);
    }
}
