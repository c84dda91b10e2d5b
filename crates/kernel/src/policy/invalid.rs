//! Why a descriptor is no policy.

use super::{DESCRIPTION_BYTES_MAX, RULES_BYTES_MAX};
use crate::limits::ID_BYTES_MAX;

/// What is wrong with a descriptor, as one sentence; who shows it puts the code of the registry in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    #[error("policy_id is empty")]
    IdBlank,
    #[error("policy_id is {bytes} bytes long, at most {ID_BYTES_MAX} are allowed")]
    IdTooLong { bytes: usize },
    #[error("policy.default is built in and cannot be registered; choose another policy_id")]
    IdDefault,
    #[error("mode is empty; name the mode the policy governs, or * for all of them")]
    ModeBlank,
    #[error("mode is {bytes} bytes long, at most {ID_BYTES_MAX} are allowed")]
    ModeTooLong { bytes: usize },
    #[error("description is {bytes} bytes long, at most {DESCRIPTION_BYTES_MAX} are allowed")]
    DescriptionTooLong { bytes: usize },
    #[error("schema_version is missing; it must be 1, 2 or 3")]
    SchemaVersionMissing,
    #[error("schema_version {found} is not supported; it must be 1, 2 or 3")]
    SchemaVersionUnknown { found: u32 },
    #[error("rules is {bytes} bytes long, at most {RULES_BYTES_MAX} are allowed")]
    RulesTooLong { bytes: usize },
    #[error("rules cannot be read as JSON: {cause}")]
    RulesUnreadable { cause: String },
    #[error("rules must be a JSON object, not {found}")]
    RulesNotObject { found: &'static str },
    #[error("rules.{path} is no rule of {mode}; a note may be kept under a key that starts with _ or $")]
    UnknownKey { path: String, mode: String },
    #[error("rules.{key} is a vendor extension that this runtime does not implement")]
    VendorKey { key: String },
    #[error("rules.{path} must be {expected}, not {found}")]
    WrongType { path: String, expected: &'static str, found: &'static str },
    #[error("rules.{path} must be {demand}")]
    OutOfDomain { path: &'static str, demand: &'static str },
    #[error(
        "policy_id {policy_id} lies in the namespace policy.std., which only takes the definitions the standard \
         assigns; choose another policy_id"
    )]
    Reserved { policy_id: String },
}
