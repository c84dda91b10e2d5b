//! Variables of the environment that look like ours and are no settings: which of them are refused, and which are told.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::list::settings;

/// The variable that names the config file.
pub(super) const CONFIG: &str = "MACP_CONFIG";

/// Variables of this program that are no settings of a server.
const OTHER_VARIABLES: [&str; 7] =
    [CONFIG, "MACP_SERVER", "MACP_TOKEN", "MACP_CA", "MACP_CLIENT_CERT", "MACP_CLIENT_KEY", "MACP_CONFORMANCE_DIR"];

/// Variables with the secrets that plans name; they belong to whoever resolves them.
const SECRET_PREFIX: &str = "MACP_SECRET_";

/// Variables that promise protection. Ignoring one whose name was mistyped would leave a server open that its operator
/// believes closed.
const PROTECTING_PREFIXES: [&str; 2] = ["MACP_TLS_", "MACP_AUTH_"];

/// Variables of the public runtime that mean nothing here, and why.
const WITHOUT_EFFECT: [(&str, &str); 9] = [
    ("MACP_CLEANUP_INTERVAL_SECS", "sessions leave the memory by themselves (MACP_SESSION_IDLE_SECS)"),
    ("MACP_SESSION_RETENTION_SECS", "histories are kept, and sessions leave the memory (MACP_SESSION_IDLE_SECS)"),
    ("MACP_SESSION_DISK_RETENTION_SECS", "histories are kept"),
    ("MACP_COMPACT_TERMINAL_LOGS", "histories are kept whole"),
    ("MACP_CHECKPOINT_INTERVAL", "no checkpoint is needed"),
    ("MACP_STORAGE_BACKEND", "histories are in a directory (MACP_DATA_DIR) or in memory (MACP_MEMORY_ONLY)"),
    ("MACP_STRICT_RECOVERY", "a damaged history always stops its session, and only that"),
    ("MACP_METRICS_ADDR", "metrics are served at /metrics on MACP_BIND_ADDR"),
    ("MACP_HTTP_", "this version does not serve the protocol as JSON over HTTP"),
];

/// What must not be ignored.
pub(super) fn refused(environment: &BTreeMap<OsString, OsString>) -> Vec<String> {
    let unknown = unknown(environment).filter(|name| protects(OsStr::new(name))).map(|name| {
        format!("{name} is set, but there is no such setting, so it would protect nothing; check its name")
    });
    // A secret that did not arrive where it should leaves a variable without a value.
    let empty = environment.iter().filter(|(name, value)| value.is_empty() && protects(name)).map(|(name, _)| {
        let name = name.to_string_lossy();
        format!("{name} is set, but has no value, so it would protect nothing; give it one, or leave it out")
    });
    unknown.chain(empty).collect()
}

/// Whether a variable promises protection.
pub(super) fn protects(name: &OsStr) -> bool {
    PROTECTING_PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

/// What is ignored, and why.
pub(super) fn warnings(environment: &BTreeMap<OsString, OsString>) -> Vec<String> {
    let warning = |name: &str| match WITHOUT_EFFECT.iter().find(|(known, _)| name.starts_with(known)) {
        Some((_, why)) => format!("the environment variable {name} has no effect here: {why}"),
        None => format!("the environment variable {name} is no setting and is ignored"),
    };
    unknown(environment).map(warning).collect()
}

fn unknown(environment: &BTreeMap<OsString, OsString>) -> impl Iterator<Item = &str> {
    let known = |name: &str| {
        OTHER_VARIABLES.contains(&name)
            || name.starts_with(SECRET_PREFIX)
            || settings().any(|setting| setting.env == name)
    };
    let names = environment.keys().filter_map(|name| name.to_str());
    names.filter(move |name| name.starts_with("MACP_") && !known(name))
}
