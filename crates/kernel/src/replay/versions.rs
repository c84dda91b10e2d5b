//! Replay under the versions a session was born under, and the refusal to pass anything else off as history.

use macp_wire::history::v1::{Binding, Profile};

use super::{Options, Stop};
use crate::{PROTOCOL_VERSION, SCHEMA_MAJOR, SEMANTICS_REVISION, mode};

/// Versions to replay under; none means the bound one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub mode_version: Option<String>,
    pub configuration_version: Option<String>,
    pub policy_version: Option<String>,
}

/// Refuses a history this implementation cannot decide again, and versions other than the bound ones unless they were
/// asked for as a what-if.
pub(super) fn check(binding: &Binding, options: &Options) -> Result<(), Stop> {
    if binding.profile() == Profile::Unspecified {
        return Err(unknown("profile", binding.profile.to_string(), "classic or standard".into()));
    }
    if binding.protocol_version != PROTOCOL_VERSION {
        return Err(unknown("protocol version", binding.protocol_version.clone(), PROTOCOL_VERSION.into()));
    }
    if binding.schema_major != SCHEMA_MAJOR {
        return Err(unknown("schema version", binding.schema_major.to_string(), SCHEMA_MAJOR.to_string()));
    }
    if binding.semantics_revision != SEMANTICS_REVISION {
        let found = binding.semantics_revision.to_string();
        return Err(unknown("semantics revision", found, SEMANTICS_REVISION.to_string()));
    }
    let kind = match binding.profile() {
        Profile::Standard if binding.extension_mode.is_some() => Some(mode::Kind::Extension),
        Profile::Standard => mode::find_standard(&binding.mode),
        Profile::Classic | Profile::Unspecified => mode::find_classic(&binding.mode),
    };
    let kind = kind.ok_or_else(|| Stop::Refused(format!("mode {:?} is not known here", binding.mode)))?;
    let spec = kind.spec();
    let version = binding.extension_mode.as_ref().map_or(spec.version, |extension| &extension.mode_version);
    if options.semantic && !spec.determinism.covers_outcome() {
        return Err(Stop::Refused(format!(
            "mode {:?} is {}: replay covers its course, not its outcome",
            spec.name,
            spec.determinism.as_str()
        )));
    }
    check_requested(binding, options)?;
    let wanted = options.versions.mode_version.as_ref().unwrap_or(&binding.mode_version);
    if wanted != version {
        return Err(unknown("mode version", wanted.clone(), version.into()));
    }
    Ok(())
}

fn check_requested(binding: &Binding, options: &Options) -> Result<(), Stop> {
    // A name alone says nothing of the rules behind it, so nothing could be tried under them. Modes are known here, and
    // in classic sessions the other two decide nothing.
    let is_standard = binding.profile() == Profile::Standard;
    let requested = [
        ("mode version", &options.versions.mode_version, &binding.mode_version, false),
        ("configuration version", &options.versions.configuration_version, &binding.configuration_version, is_standard),
        ("policy version", &options.versions.policy_version, &binding.policy_version, is_standard),
    ];
    for (name, requested, bound, is_name_alone) in requested {
        let Some(requested) = requested.as_ref().filter(|requested| *requested != bound) else {
            continue;
        };
        if !options.what_if {
            return Err(Stop::Refused(format!(
                "{name} {requested:?} is not the bound {bound:?}: not historical reconstruction; ask for a what-if"
            )));
        }
        if is_name_alone {
            return Err(Stop::Refused(format!(
                "what {name} {requested:?} stands for is not in the history, so nothing can be tried under it; to try \
                 another policy give its text, to WhatIfReplay or `macp replay --what-if-policy FILE`"
            )));
        }
    }
    Ok(())
}

fn unknown(name: &str, found: String, known: String) -> Stop {
    Stop::Refused(format!("{name} {found:?} is not known here ({known:?} is): not historical reconstruction"))
}
