//! How many sessions one sender may have open at once, where its credential says so.
//!
//! What a sender has open is remembered once it was read from the store, and looked at again at every start: sessions
//! end by themselves. Starts of one such sender are taken one after the other, so that two at once cannot both find
//! the last place.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use macp_kernel::State;
use macp_ledger::{Failure, Filter, Head, Store};
use macp_wire::v1::SessionMetadata;
use prost::Message;
use smol_str::SmolStr;
use tokio::sync::OwnedMutexGuard;

/// Heads read at once when a sender is first seen.
const HEADS_AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    senders: Mutex<HashMap<SmolStr, Arc<tokio::sync::Mutex<Option<Open>>>>>,
}

/// Sessions of one sender that have not ended, as far as is known.
type Open = BTreeSet<Arc<str>>;

/// The right to start one session: held while it is being started.
#[derive(Debug)]
pub(crate) struct Turn {
    open: OwnedMutexGuard<Option<Open>>,
    is_full: bool,
}

impl Quotas {
    /// Waits for the sender's turn and counts its open sessions.
    pub(crate) async fn turn(
        &self,
        store: &Arc<dyn Store>,
        sender: &str,
        open_max: u64,
        now_ms: i64,
    ) -> Result<Turn, Failure> {
        let sender: SmolStr = sender.into();
        let place = {
            let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(senders.entry(sender.clone()).or_default())
        };
        let mut open = place.lock_owned().await;
        let (store, known) = (Arc::clone(store), open.take());
        let counted = tokio::task::spawn_blocking(move || count(&*store, &sender, known, now_ms)).await;
        let (known, count) = counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        *open = Some(known);
        Ok(Turn { open, is_full: count >= open_max })
    }
}

impl Turn {
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The session was started.
    pub(crate) fn started(mut self, session_id: &str) {
        if let Some(open) = self.open.as_mut() {
            open.insert(session_id.into());
        }
    }
}

/// The sender's sessions that have not ended, and how many of them are open now: a suspended one does not count, nor
/// one whose deadline has passed.
fn count(store: &dyn Store, sender: &str, known: Option<Open>, now_ms: i64) -> Result<(Open, u64), Failure> {
    let heads = match known {
        Some(known) => {
            known.iter().map(|id| store.head(id)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
        }
        None => read(store, sender)?,
    };
    let unended: Vec<Head> = heads.into_iter().filter(|head| head.open).collect();
    let is_open = |head: &&Head| {
        State::from_wire(head.state) == Some(State::Open)
            && SessionMetadata::decode(head.summary.clone()).is_ok_and(|session| session.expires_at_unix_ms >= now_ms)
    };
    let open = unended.iter().filter(is_open).count() as u64;
    Ok((unended.into_iter().map(|head| head.session_id).collect(), open))
}

fn read(store: &dyn Store, sender: &str) -> Result<Vec<Head>, Failure> {
    let mut own = Vec::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let page = store.list(after.as_deref(), HEADS_AT_ONCE, Filter::Open)?;
        let Some(last) = page.last() else {
            return Ok(own);
        };
        after = Some(Arc::clone(&last.session_id));
        let is_own = |head: &Head| {
            SessionMetadata::decode(head.summary.clone()).is_ok_and(|session| session.initiator == sender)
        };
        own.extend(page.into_iter().filter(is_own));
    }
}
