//! How many sessions one sender may have open at once, where its credential says so.
//!
//! A start first claims a place. What a sender has open is remembered once it was read from the store, and looked at
//! again at every claim: sessions end by themselves. Claims of one sender are taken one after the other, so that two at
//! once cannot both get the last place. Several starts of one session share a place, and it is free again only when the
//! last of them was refused and none was accepted. A claim whose start was never heard of again is void after a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use macp_kernel::State;
use macp_ledger::{Failure, Filter, Head, Store};
use macp_wire::v1::SessionMetadata;
use prost::Message;
use smol_str::SmolStr;

/// Heads read at once when a sender is first seen.
const HEADS_AT_ONCE: usize = 256;

/// Senders remembered. What is forgotten is read again, so only those being looked at, and those with a start under
/// way, must stay: of these there are no more than requests in flight.
const SENDERS_MAX: usize = 10_000;

/// How long a claim holds without a session: longer than a start can be under way.
const CLAIM_MS: i64 = 120_000;

#[derive(Debug)]
pub(crate) struct Quotas {
    senders: Mutex<HashMap<SmolStr, Known>>,
    senders_max: usize,
}

/// What is known of a sender; none until it was read.
type Known = Arc<tokio::sync::Mutex<Option<Claims>>>;

/// Sessions of one sender that have not ended as far as is known.
type Claims = BTreeMap<Arc<str>, Claim>;

/// The place of one session.
#[derive(Clone, Copy, Debug)]
struct Claim {
    claimed_at_ms: i64,
    /// Starts of the session that have a place and no answer yet.
    starts: u32,
    /// There is such a session, or there may be.
    holds: bool,
}

/// What became of a start that had a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    /// Accepted, or perhaps accepted: a write that failed may be stored after all.
    MayStand,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas { senders: Mutex::default(), senders_max: SENDERS_MAX }
    }
}

impl Quotas {
    /// Claims a place for a start; false when the sender has none left. A place that was given is settled afterwards.
    pub(crate) async fn claim(
        &self,
        store: &Arc<dyn Store>,
        sender: &str,
        open_max: u64,
        session_id: &str,
        now_ms: i64,
    ) -> Result<bool, Failure> {
        let sender: SmolStr = sender.into();
        let mut known = self.place(&sender, now_ms).lock_owned().await;
        let (store, session_id) = (Arc::clone(store), Arc::<str>::from(session_id));
        // Done to its end even if the request is given up meanwhile, so that no claim of another start is lost.
        let claiming = tokio::task::spawn_blocking(move || {
            let open = count(&*store, &sender, &mut known, now_ms)?;
            let claims = known.get_or_insert_default();
            // A start that is sent again has its place already.
            let granted = open < open_max || claims.contains_key(&session_id);
            if granted {
                let claim = claims.entry(session_id).or_insert(Claim { claimed_at_ms: 0, starts: 0, holds: false });
                claim.claimed_at_ms = now_ms;
                claim.starts = claim.starts.saturating_add(1);
            }
            Ok(granted)
        });
        claiming.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// A start that had a place is answered.
    pub(crate) async fn settle(&self, sender: &str, session_id: &str, outcome: Outcome) {
        let known = self.senders.lock().unwrap_or_else(PoisonError::into_inner).get(sender).cloned();
        let Some(known) = known else {
            return;
        };
        let mut known = known.lock_owned().await;
        let Some(claims) = known.as_mut() else {
            return;
        };
        let Some(claim) = claims.get_mut(session_id) else {
            return;
        };
        claim.starts = claim.starts.saturating_sub(1);
        claim.holds |= outcome == Outcome::MayStand;
        if claim.starts == 0 && !claim.holds {
            claims.remove(session_id);
        }
    }

    fn place(&self, sender: &SmolStr, now_ms: i64) -> Known {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= self.senders_max && !senders.contains_key(sender) {
            senders.retain(|_, known| Arc::strong_count(known) > 1 || has_start_under_way(known, now_ms));
        }
        Arc::clone(senders.entry(sender.clone()).or_default())
    }
}

/// Whether a claim is not yet in the store, where it could be read again.
fn has_start_under_way(known: &Known, now_ms: i64) -> bool {
    let Ok(known) = known.try_lock() else {
        return true;
    };
    known.iter().flat_map(BTreeMap::values).any(|claim| claim.starts > 0 && is_recent(claim, now_ms))
}

fn is_recent(claim: &Claim, now_ms: i64) -> bool {
    now_ms.saturating_sub(claim.claimed_at_ms) < CLAIM_MS
}

/// Drops the sender's claims that hold no longer, and says how many of the rest count: a suspended session does not,
/// nor one whose deadline has passed.
fn count(store: &dyn Store, sender: &str, known: &mut Option<Claims>, now_ms: i64) -> Result<u64, Failure> {
    let Some(claims) = known else {
        let own = read(store, sender, now_ms)?;
        let open = own.iter().filter(|(_, is_open)| *is_open).count() as u64;
        let claim = Claim { claimed_at_ms: now_ms, starts: 0, holds: true };
        *known = Some(own.into_iter().map(|(id, _)| (id, claim)).collect());
        return Ok(open);
    };
    let mut open = 0;
    let mut void = Vec::new();
    for (id, claim) in claims.iter() {
        match store.head(id)? {
            Some(head) => match own_session(&head, sender) {
                Some(session) => open += u64::from(is_open(&head, &session, now_ms)),
                // Ended, or someone else's.
                None => void.push(Arc::clone(id)),
            },
            None if is_recent(claim, now_ms) => open += 1,
            None => void.push(Arc::clone(id)),
        }
    }
    for id in void {
        claims.remove(&id);
    }
    Ok(open)
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

#[cfg(test)]
mod tests {
    use macp_ledger::MemoryStore;

    use super::*;

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    /// Claims one of one place at second zero.
    async fn claim(quotas: &Quotas, sender: &str, session_id: &str) -> bool {
        quotas.claim(&store(), sender, 1, session_id, 0).await.expect("a store that reads")
    }

    #[tokio::test]
    async fn std_sec_11_starts_of_one_session_share_a_place_until_the_last_was_refused() {
        let quotas = Quotas::default();
        assert!(claim(&quotas, "alice", "x").await);
        assert!(claim(&quotas, "alice", "x").await, "it has its place already");
        quotas.settle("alice", "x", Outcome::Refused).await;
        assert!(!claim(&quotas, "alice", "y").await, "the other start is still under way");
        quotas.settle("alice", "x", Outcome::Refused).await;
        assert!(claim(&quotas, "alice", "y").await);
    }

    #[tokio::test]
    async fn std_sec_11_a_refusal_does_not_take_the_place_of_a_start_that_was_accepted() {
        for refused_first in [true, false] {
            let quotas = Quotas::default();
            assert!(claim(&quotas, "alice", "x").await && claim(&quotas, "alice", "x").await);
            let mut outcomes = [Outcome::Refused, Outcome::MayStand];
            if !refused_first {
                outcomes.reverse();
            }
            for outcome in outcomes {
                quotas.settle("alice", "x", outcome).await;
            }
            assert!(!claim(&quotas, "alice", "y").await, "refused first: {refused_first}");
        }
    }

    #[tokio::test]
    async fn std_sec_11_a_crowd_of_senders_does_not_make_a_start_under_way_forgotten() {
        let quotas = Quotas { senders_max: 2, ..Quotas::default() };
        assert!(claim(&quotas, "alice", "x").await);
        for (number, sender) in ["bob", "carol", "dora"].into_iter().enumerate() {
            let session_id = number.to_string();
            assert!(claim(&quotas, sender, &session_id).await);
            quotas.settle(sender, &session_id, Outcome::Refused).await;
        }
        assert!(!claim(&quotas, "alice", "y").await, "x may be stored any moment");
        let known = quotas.senders.lock().expect("not poisoned").len();
        assert!(known <= 3, "those who wait for nothing are forgotten: {known}");
    }

    #[tokio::test]
    async fn std_sec_11_a_claim_that_was_given_up_half_way_stays_until_it_is_void() {
        let quotas = Quotas::default();
        assert!(claim(&quotas, "alice", "x").await);
        {
            let store = store();
            let mut given_up = Box::pin(quotas.claim(&store, "alice", 1, "y", 0));
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx))).await;
            drop((polled, given_up));
        }
        assert!(!claim(&quotas, "alice", "z").await, "x is still under way");
        let later = quotas.claim(&store(), "alice", 1, "z", CLAIM_MS).await;
        assert!(later.expect("a store that reads"));
    }
}
