//! Policies and extension modes that were registered at run time.
//!
//! Kept as documents of the store, so that they outlive a restart, and as one immutable snapshot in memory, so that an
//! envelope looks them up without waiting for anybody. Changes are made one at a time: first durable, then visible,
//! then announced. A session keeps what it started under in its own history and never comes back here for it.

mod modes;
mod policies;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use macp_kernel::mode::{self, Extension};
use macp_kernel::policy::Policy;
use macp_kernel::{Registered, SESSION_START};
use macp_ledger::{Failure, Store};
use macp_wire::v1::Envelope;
use prost::Message;
use tokio::sync::broadcast;

/// Changes a watcher may fall behind.
const CHANGES_BUFFER: usize = 64;

/// Documents read at once at start-up.
const DOCUMENTS_PER_PAGE: usize = 256;

/// The registries of one node.
#[derive(Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    snapshot: RwLock<Arc<Snapshot>>,
    changing: Mutex<()>,
    policy_changes: broadcast::Sender<i64>,
    mode_changes: broadcast::Sender<i64>,
}

/// Everything registered at one moment.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    policies: BTreeMap<String, Arc<Policy>>,
    modes: BTreeMap<String, Arc<Extension>>,
}

/// Why a registry did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The request cannot be granted; the text says why.
    #[error("{0}")]
    Refused(String),
    #[error("the registry could not be stored")]
    Store(#[from] Failure),
    #[error("the change was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
    #[error("{kind} {key:?} in the store is unreadable: {reason}")]
    Unreadable { kind: &'static str, key: String, reason: String },
}

/// The field of a SessionStartPayload that names a policy.
#[derive(Clone, PartialEq, Message)]
struct PolicyName {
    #[prost(string, tag = "5")]
    policy_version: String,
}

impl Registry {
    /// Reads what is stored.
    pub fn open(store: Arc<dyn Store>) -> Result<Self, RegistryError> {
        let snapshot = Snapshot { policies: policies::load(&*store)?, modes: modes::load(&*store)? };
        Ok(Registry {
            store,
            snapshot: RwLock::new(Arc::new(snapshot)),
            changing: Mutex::default(),
            policy_changes: broadcast::Sender::new(CHANGES_BUFFER),
            mode_changes: broadcast::Sender::new(CHANGES_BUFFER),
        })
    }

    /// What is registered of the things an envelope names. Free of cost for whatever names only what is built in.
    pub fn look_up(&self, envelope: &Envelope) -> Registered {
        let extension = match mode::is_builtin(&envelope.mode) {
            true => None,
            false => self.snapshot().modes.get(&envelope.mode).map(Arc::clone),
        };
        let policy = (envelope.message_type == SESSION_START)
            .then(|| PolicyName::decode(envelope.payload.clone()).ok())
            .flatten()
            .filter(|named| !named.policy_version.is_empty())
            .and_then(|named| self.policy(&named.policy_version));
        Registered { policy, extension }
    }

    /// Times at which policies changed, from now on.
    pub fn watch_policies(&self) -> broadcast::Receiver<i64> {
        self.policy_changes.subscribe()
    }

    /// Times at which modes changed, from now on.
    pub fn watch_modes(&self) -> broadcast::Receiver<i64> {
        self.mode_changes.subscribe()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The right to change something; held until the change is visible.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a stored change visible.
    fn publish(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// Every document of a kind, page by page.
fn documents(store: &dyn Store, kind: &'static str) -> Result<Vec<macp_ledger::Document>, Failure> {
    let mut all = Vec::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let page = store.documents(kind, after.as_deref(), DOCUMENTS_PER_PAGE)?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = Some(Arc::clone(&last.key));
        all.extend(page);
    }
}
