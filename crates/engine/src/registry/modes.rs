//! The registry of extension modes.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_kernel::ID_BYTES_MAX;
use macp_kernel::mode::{self, Extension};
use macp_ledger::{PutMode, Store};
use macp_wire::history::v1::RegisteredMode;
use macp_wire::v1::ModeDescriptor;
use prost::Message;

use super::{Registry, RegistryError, documents};

const KIND: &str = "mode";

/// Names of this form belong to the standard's own registry.
const RESERVED_PREFIX: &str = "macp.mode.";

/// The one message type that ends a session, whatever its mode.
const TERMINAL: &str = "Commitment";

/// Modes kept at once, and message types of one: all of them are held in memory and listed in one answer.
const MODES_MAX: usize = 1_000;
const MESSAGE_TYPES_MAX: usize = 256;

/// Bytes of one descriptor: it is copied into the first entry of every session of the mode.
const DESCRIPTOR_BYTES_MAX: usize = 16 * 1024;

/// Bytes of all descriptors together: they are listed in one answer, and clients take no message above 4 MiB unless
/// told to.
const DESCRIPTORS_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) fn load(store: &dyn Store) -> Result<BTreeMap<String, Arc<Extension>>, RegistryError> {
    let mut modes = BTreeMap::new();
    for document in documents(store, KIND)? {
        let unreadable =
            |reason: String| RegistryError::Unreadable { kind: KIND, key: document.key.to_string(), reason };
        let stored = RegisteredMode::decode(&document.bytes[..]).map_err(|error| unreadable(error.to_string()))?;
        let descriptor = stored.descriptor.ok_or_else(|| unreadable("it has no descriptor".to_owned()))?;
        modes.insert(document.key.to_string(), Arc::new(Extension { descriptor, promoted: stored.promoted }));
    }
    Ok(modes)
}

impl Registry {
    /// Registers an extension mode, durable when it returns. Blocks.
    pub fn register_mode(&self, descriptor: &ModeDescriptor, now_ms: i64) -> Result<(), RegistryError> {
        check(descriptor)?;
        let _change = self.change();
        let mut snapshot = (*self.snapshot()).clone();
        check_free(&descriptor.mode, &snapshot.modes)?;
        if snapshot.modes.len() >= MODES_MAX {
            return Err(RegistryError::Refused(format!("there are {MODES_MAX} modes, the most there may be")));
        }
        let registered: usize = snapshot.modes.values().map(|known| known.descriptor.encoded_len()).sum();
        if registered + descriptor.encoded_len() > DESCRIPTORS_BYTES_MAX {
            return refused(format!("all modes together are described in at most {DESCRIPTORS_BYTES_MAX} bytes"));
        }
        let extension = Extension { descriptor: descriptor.clone(), promoted: false };
        self.keep(&extension)?;
        snapshot.modes.insert(descriptor.mode.clone(), Arc::new(extension));
        self.publish(snapshot);
        let _nobody_watches = self.mode_changes.send(now_ms);
        Ok(())
    }

    /// Forgets an extension mode; its open sessions take no more messages. Blocks.
    pub fn unregister_mode(&self, name: &str, now_ms: i64) -> Result<(), RegistryError> {
        let _change = self.change();
        let mut snapshot = (*self.snapshot()).clone();
        let extension = find(name, &snapshot.modes)?;
        if extension.promoted {
            return refused(format!("mode {name:?} is standards-track and cannot be unregistered"));
        }
        snapshot.modes.remove(name);
        self.store.delete_document(KIND, name)?;
        self.publish(snapshot);
        let _nobody_watches = self.mode_changes.send(now_ms);
        Ok(())
    }

    /// Makes an extension mode standards-track, under another name if one is given; returns the name. Blocks.
    pub fn promote_mode(&self, name: &str, promoted_name: &str, now_ms: i64) -> Result<String, RegistryError> {
        let _change = self.change();
        let mut snapshot = (*self.snapshot()).clone();
        let extension = find(name, &snapshot.modes)?;
        if extension.promoted {
            return refused(format!("mode {name:?} is standards-track already"));
        }
        let mut promoted = Extension { promoted: true, ..Extension::clone(&extension) };
        if !promoted_name.is_empty() {
            check_name(promoted_name)?;
            if promoted_name != name {
                check_free(promoted_name, &snapshot.modes)?;
            }
            promoted.descriptor.mode = promoted_name.to_owned();
        }
        let new_name = promoted.descriptor.mode.clone();
        if new_name == name {
            self.keep(&promoted)?;
        } else {
            // One step: a restart in between must find one of the two, not both.
            self.store.move_document(KIND, name, &new_name, &document(&promoted))?;
            snapshot.modes.remove(name);
        }
        snapshot.modes.insert(new_name.clone(), Arc::new(promoted));
        self.publish(snapshot);
        let _nobody_watches = self.mode_changes.send(now_ms);
        Ok(new_name)
    }

    /// Registered modes by name: the promoted ones, or the others.
    pub fn modes(&self, promoted: bool) -> Vec<ModeDescriptor> {
        let snapshot = self.snapshot();
        let wanted = snapshot.modes.values().filter(|extension| extension.promoted == promoted);
        wanted.map(|extension| extension.descriptor.clone()).collect()
    }

    fn keep(&self, extension: &Extension) -> Result<(), RegistryError> {
        self.store.put_document(KIND, &extension.descriptor.mode, &document(extension), PutMode::Replace)?;
        Ok(())
    }
}

/// A mode as it is stored.
fn document(extension: &Extension) -> Vec<u8> {
    let Extension { descriptor, promoted } = extension.clone();
    RegisteredMode { descriptor: Some(descriptor), promoted }.encode_to_vec()
}

fn find(name: &str, modes: &BTreeMap<String, Arc<Extension>>) -> Result<Arc<Extension>, RegistryError> {
    match modes.get(name) {
        Some(extension) => Ok(Arc::clone(extension)),
        None if mode::is_builtin(name) => refused(format!("mode {name:?} is built in")),
        None => refused(format!("there is no mode {name:?}")),
    }
}

fn check(descriptor: &ModeDescriptor) -> Result<(), RegistryError> {
    check_name(&descriptor.mode)?;
    if descriptor.message_types.is_empty() {
        return refused("a mode needs message types");
    }
    if descriptor.message_types.len() > MESSAGE_TYPES_MAX {
        return refused(format!("a mode has at most {MESSAGE_TYPES_MAX} message types"));
    }
    if descriptor.mode_version.trim().is_empty() {
        return refused("mode_version is empty");
    }
    if descriptor.terminal_message_types.is_empty() {
        return refused("a mode needs a terminal message type");
    }
    for terminal in &descriptor.terminal_message_types {
        if terminal != TERMINAL {
            return refused(format!("terminal message type {terminal:?}: only {TERMINAL:?} ends a session"));
        }
        if !descriptor.message_types.contains(terminal) {
            return refused(format!("terminal message type {terminal:?} is not among the message types"));
        }
    }
    if descriptor.encoded_len() > DESCRIPTOR_BYTES_MAX {
        return refused(format!("a mode's descriptor is at most {DESCRIPTOR_BYTES_MAX} bytes long"));
    }
    let words = descriptor.message_types.iter().chain([&descriptor.mode_version]);
    if words.into_iter().any(|word| word.len() > ID_BYTES_MAX) {
        return refused(format!("versions and message types are at most {ID_BYTES_MAX} bytes long"));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), RegistryError> {
    if name.trim().is_empty() {
        return refused("the mode's name is empty");
    }
    if name.starts_with(RESERVED_PREFIX) {
        return refused(format!("names that begin with {RESERVED_PREFIX:?} are reserved for the standard"));
    }
    if name.len() > ID_BYTES_MAX {
        return refused(format!("a mode's name is at most {ID_BYTES_MAX} bytes long"));
    }
    Ok(())
}

fn check_free(name: &str, modes: &BTreeMap<String, Arc<Extension>>) -> Result<(), RegistryError> {
    if modes.contains_key(name) || mode::is_builtin(name) {
        return refused(format!("mode {name:?} is already registered"));
    }
    Ok(())
}

fn refused<T>(message: impl Into<String>) -> Result<T, RegistryError> {
    Err(RegistryError::Refused(message.into()))
}
