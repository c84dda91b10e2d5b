//! What a descriptor must be to enter the registry, in the order of STD-POL-6; the first failure is the answer.

use macp_wire::v1::PolicyDescriptor;

use super::read::Draft;
use super::{DEFAULT_ID, DESCRIPTION_BYTES_MAX, InvalidPolicy, Policy, STANDARD_PREFIX, builtins};
use crate::limits::ID_BYTES_MAX;

/// Everything registration asks, except whether the id is still free: only a registry knows that.
pub fn validate(descriptor: &PolicyDescriptor) -> Result<Policy, InvalidPolicy> {
    check_names(descriptor)?;
    let draft = Draft::parse(descriptor)?;
    check_namespace(descriptor, &draft)?;
    let rules = draft.rules()?;
    Ok(Policy { descriptor: descriptor.clone(), rules })
}

/// What a candidate of a what-if replay must be: it enters no registry, so its id may be any, even an assigned one.
pub fn validate_candidate(descriptor: &PolicyDescriptor) -> Result<Policy, InvalidPolicy> {
    Policy::read(descriptor.clone())
}

fn check_names(descriptor: &PolicyDescriptor) -> Result<(), InvalidPolicy> {
    let PolicyDescriptor { policy_id, mode, description, .. } = descriptor;
    if policy_id.trim().is_empty() {
        return Err(InvalidPolicy::IdBlank);
    }
    if policy_id.len() > ID_BYTES_MAX {
        return Err(InvalidPolicy::IdTooLong { bytes: policy_id.len() });
    }
    if policy_id == DEFAULT_ID {
        return Err(InvalidPolicy::IdDefault);
    }
    if mode.trim().is_empty() {
        return Err(InvalidPolicy::ModeBlank);
    }
    if mode.len() > ID_BYTES_MAX {
        return Err(InvalidPolicy::ModeTooLong { bytes: mode.len() });
    }
    if description.len() > DESCRIPTION_BYTES_MAX {
        return Err(InvalidPolicy::DescriptionTooLong { bytes: description.len() });
    }
    Ok(())
}

/// An id the standard assigns means the same everywhere: it takes the definition assigned to it, however it is spelled
/// (STD-POL-11), and no other.
fn check_namespace(descriptor: &PolicyDescriptor, draft: &Draft) -> Result<(), InvalidPolicy> {
    let PolicyDescriptor { policy_id, mode, schema_version, .. } = descriptor;
    if !policy_id.starts_with(STANDARD_PREFIX) {
        return Ok(());
    }
    let assigned = builtins().iter().find(|policy| policy.id() == policy_id);
    let same = assigned.is_some_and(|assigned| {
        assigned.descriptor.mode == *mode
            && assigned.schema_version() == *schema_version
            && draft.rules().is_ok_and(|rules| rules == assigned.rules)
    });
    if same { Ok(()) } else { Err(InvalidPolicy::Reserved { policy_id: policy_id.clone() }) }
}
