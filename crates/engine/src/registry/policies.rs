//! The policy registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_kernel::policy::{DEFAULT_ID, Policy, STANDARD_PREFIX, builtins, validate};
use macp_ledger::{PutMode, Store};
use macp_wire::v1::PolicyDescriptor;
use prost::Message;

use super::{Registry, RegistryError, documents};

const KIND: &str = "policy";

/// Policies kept at once: each is held in memory, and watchers are told all of them at every change.
const POLICIES_MAX: usize = 10_000;

/// Bytes of all of them: they are listed in one answer, and clients take none above 4 MiB unless told to.
const POLICIES_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) fn load(store: &dyn Store) -> Result<BTreeMap<String, Arc<Policy>>, RegistryError> {
    let mut policies = BTreeMap::new();
    for document in documents(store, KIND)? {
        let unreadable =
            |reason: String| RegistryError::Unreadable { kind: KIND, key: document.key.to_string(), reason };
        let descriptor =
            PolicyDescriptor::decode(&document.bytes[..]).map_err(|error| unreadable(error.to_string()))?;
        let policy = Policy::read(descriptor).map_err(|error| unreadable(error.to_string()))?;
        policies.insert(document.key.to_string(), Arc::new(policy));
    }
    Ok(policies)
}

impl Registry {
    /// Registers a policy, durable when it returns. Blocks.
    pub fn register_policy(&self, descriptor: &PolicyDescriptor, now_ms: i64) -> Result<(), RegistryError> {
        let mut policy = validate(descriptor)
            .map_err(|error| RegistryError::Refused(format!("INVALID_POLICY_DEFINITION: {error}")))?;
        policy.descriptor.registered_at_unix_ms = now_ms;
        let id = policy.id().to_owned();
        let _change = self.change();
        let mut snapshot = (*self.snapshot()).clone();
        if builtins().iter().any(|builtin| builtin.id() == id) || snapshot.policies.contains_key(&id) {
            return Err(RegistryError::Refused(format!("policy {id:?} is already registered")));
        }
        if snapshot.policies.len() >= POLICIES_MAX {
            return Err(RegistryError::Refused(format!("there are {POLICIES_MAX} policies, the most there may be")));
        }
        let kept: usize = snapshot.policies.values().map(|policy| policy.descriptor.encoded_len()).sum();
        if kept + policy.descriptor.encoded_len() > POLICIES_BYTES_MAX {
            return Err(RegistryError::Refused(format!(
                "all policies together may take {POLICIES_BYTES_MAX} bytes; unregister some first"
            )));
        }
        self.store.put_document(KIND, &id, &policy.descriptor.encode_to_vec(), PutMode::Replace)?;
        snapshot.policies.insert(id, Arc::new(policy));
        self.publish(snapshot);
        let _nobody_watches = self.policy_changes.send(now_ms);
        Ok(())
    }

    /// Forgets a policy; sessions that were started under it keep it. Blocks.
    pub fn unregister_policy(&self, id: &str, now_ms: i64) -> Result<(), RegistryError> {
        if id == DEFAULT_ID || id.starts_with(STANDARD_PREFIX) {
            return Err(RegistryError::Refused(format!("policy {id:?} is built in and cannot be unregistered")));
        }
        let _change = self.change();
        let mut snapshot = (*self.snapshot()).clone();
        if snapshot.policies.remove(id).is_none() {
            return Err(RegistryError::Refused(format!("there is no policy {id:?}")));
        }
        self.store.delete_document(KIND, id)?;
        self.publish(snapshot);
        let _nobody_watches = self.policy_changes.send(now_ms);
        Ok(())
    }

    pub fn policy(&self, id: &str) -> Option<Arc<Policy>> {
        let builtin = builtins().iter().find(|policy| policy.id() == id).map(Arc::clone);
        builtin.or_else(|| self.snapshot().policies.get(id).map(Arc::clone))
    }

    /// Those that may govern a mode, or all of them when none is named; by id.
    pub fn policies(&self, mode: &str) -> Vec<PolicyDescriptor> {
        let snapshot = self.snapshot();
        let mut all: Vec<_> = builtins()
            .iter()
            .chain(snapshot.policies.values())
            .filter(|policy| mode.is_empty() || policy.covers(mode))
            .map(|policy| policy.descriptor.clone())
            .collect();
        all.sort_by(|a, b| a.policy_id.cmp(&b.policy_id));
        all
    }
}
