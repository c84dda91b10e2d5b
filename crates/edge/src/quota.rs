//! How many sessions one sender may have open at once, where its credential says so.
//!
//! A start first claims a place. What a sender has open is remembered once it was read from the store, and looked at
//! again at every claim: sessions end by themselves. Claims of one sender are taken one after the other, so that two at
//! once cannot both get the last place. A claim whose start was never heard of again is void after a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use macp_kernel::State;
use macp_ledger::{Failure, Filter, Head, Store};
use macp_wire::v1::SessionMetadata;
use prost::Message;
use smol_str::SmolStr;

/// Heads read at once when a sender is first seen.
const HEADS_AT_ONCE: usize = 256;

/// Senders remembered. What is forgotten is read again, so only those being looked at must stay.
const SENDERS_MAX: usize = 10_000;

/// How long a claim holds without a session: longer than a start can be under way.
const CLAIM_MS: i64 = 120_000;

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    senders: Mutex<HashMap<SmolStr, Arc<tokio::sync::Mutex<Option<Claims>>>>>,
}

/// Sessions of one sender that have not ended as far as is known, and when each was claimed.
type Claims = BTreeMap<Arc<str>, i64>;

impl Quotas {
    /// Claims a place for a session; false when the sender has none left.
    pub(crate) async fn claim(
        &self,
        store: &Arc<dyn Store>,
        sender: &str,
        open_max: u64,
        session_id: &str,
        now_ms: i64,
    ) -> Result<bool, Failure> {
        let sender: SmolStr = sender.into();
        let place = self.place(&sender);
        let mut known = place.lock_owned().await;
        let store = Arc::clone(store);
        let before = known.take();
        let counted = tokio::task::spawn_blocking(move || count(&*store, &sender, before, now_ms)).await;
        let (mut claims, open) = counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        // A start that is sent again has its place already.
        let granted = open < open_max || claims.contains_key(session_id);
        if granted {
            claims.entry(session_id.into()).or_insert(now_ms);
        }
        *known = Some(claims);
        Ok(granted)
    }

    /// The start was refused: its place is free again.
    pub(crate) async fn release(&self, sender: &str, session_id: &str) {
        let place = self.place(&sender.into());
        if let Some(claims) = place.lock_owned().await.as_mut() {
            claims.remove(session_id);
        }
    }

    fn place(&self, sender: &SmolStr) -> Arc<tokio::sync::Mutex<Option<Claims>>> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= SENDERS_MAX && !senders.contains_key(sender) {
            senders.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(senders.entry(sender.clone()).or_default())
    }
}

/// The sender's claims that still hold, and how many of them count: a suspended session does not, nor one whose
/// deadline has passed.
fn count(store: &dyn Store, sender: &str, known: Option<Claims>, now_ms: i64) -> Result<(Claims, u64), Failure> {
    let Some(known) = known else {
        let own = read(store, sender, now_ms)?;
        let open = own.iter().filter(|(_, is_open)| *is_open).count() as u64;
        return Ok((own.into_iter().map(|(id, _)| (id, now_ms)).collect(), open));
    };
    let mut claims = Claims::new();
    let mut open = 0;
    for (id, claimed_at_ms) in known {
        let counts = match store.head(&id)? {
            Some(head) => match own_session(&head, sender) {
                Some(session) => is_open(&head, &session, now_ms),
                // Ended, or someone else's.
                None => continue,
            },
            None if now_ms.saturating_sub(claimed_at_ms) < CLAIM_MS => true,
            None => continue,
        };
        open += u64::from(counts);
        claims.insert(id, claimed_at_ms);
    }
    Ok((claims, open))
}

/// The sender's sessions that have not ended, and whether each is open now.
fn read(store: &dyn Store, sender: &str, now_ms: i64) -> Result<Vec<(Arc<str>, bool)>, Failure> {
    let mut own = Vec::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let page = store.list(after.as_deref(), HEADS_AT_ONCE, Filter::Open)?;
        let Some(last) = page.last() else {
            return Ok(own);
        };
        after = Some(Arc::clone(&last.session_id));
        for head in &page {
            if let Some(session) = own_session(head, sender) {
                let is_open = is_open(head, &session, now_ms);
                own.push((Arc::clone(&head.session_id), is_open));
            }
        }
    }
}

/// What the index tells of a session that has not ended and was started by the sender.
fn own_session(head: &Head, sender: &str) -> Option<SessionMetadata> {
    let session = head.open.then(|| SessionMetadata::decode(head.summary.clone()).ok()).flatten()?;
    (session.initiator == sender).then_some(session)
}

fn is_open(head: &Head, session: &SessionMetadata, now_ms: i64) -> bool {
    State::from_wire(head.state) == Some(State::Open) && session.expires_at_unix_ms >= now_ms
}
