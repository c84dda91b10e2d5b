//! The session up to which, in the order of creation, all sessions have ended and the watcher has dealt with them. It need
//! not go through those again: without it, every start would read the index rows of all sessions there ever were.
//!
//! That all of them have ended is seen before everyone has been told so. Hence what is seen is written down only after
//! a while in which nothing was left undone, as long as the one by which the checkpoint stays behind the clock.

use std::sync::Arc;

use macp_ledger::Store;
use serde::{Deserialize, Serialize};

use super::blocking;
use crate::store::StoreError;
use crate::store::documents::{get, replace};

/// Beside the checkpoint.
const KIND: &str = "aos.watched";
const KEY: &str = "ended";

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    session_id: String,
}

#[derive(Debug)]
pub(super) struct Mark {
    runs: Arc<dyn Store>,
    /// What was seen in the index last, and when.
    seen: Option<(i64, Arc<str>)>,
}

impl Mark {
    pub(super) fn new(runs: Arc<dyn Store>) -> Self {
        Self { runs, seen: None }
    }

    /// As it was last written down.
    pub(super) async fn session_id(&self) -> Result<Option<String>, StoreError> {
        let kept: Option<Kept> = blocking(&self.runs, |runs| get(runs, KIND, KEY)).await?;
        Ok(kept.map(|kept| kept.session_id))
    }

    /// Writes down what was seen at least `lag_ms` ago, and looks again. To be called when everything that was told
    /// before `now_ms` is dealt with.
    pub(super) async fn keep(&mut self, sessions: &Arc<dyn Store>, now_ms: i64, lag_ms: i64) -> Result<(), StoreError> {
        if let Some((seen_ms, session_id)) = &self.seen {
            if now_ms.saturating_sub(*seen_ms) < lag_ms {
                return Ok(());
            }
            let kept = Kept { session_id: session_id.to_string() };
            blocking(&self.runs, move |runs| replace(runs, KIND, KEY, &kept)).await?;
        }
        let seen = blocking(sessions, |sessions| sessions.ended_up_to().map_err(StoreError::from)).await?;
        self.seen = seen.map(|session_id| (now_ms, session_id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use macp_ledger::{Append, IndexUpdate, MemoryStore, record};
    use macp_wire::history::v1::Entry;

    use super::*;

    fn created(store: &dyn Store, id: &str, open: bool) {
        let records = vec![record::seal(None, &Entry { sequence: 1, ..Entry::default() })];
        let index = IndexUpdate { open, deadline_ms: 1, state: 1, summary: None };
        let append = Append { session_id: id.into(), expected_sequence: 0, expected_hash: None, records, index };
        store.append(&[append]).remove(0).unwrap();
    }

    #[tokio::test]
    async fn what_has_just_ended_is_not_passed_over_yet() {
        let sessions: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut mark = Mark::new(Arc::new(MemoryStore::new()));
        created(&*sessions, "b", false);
        mark.keep(&sessions, 1_000, 60).await.unwrap();
        assert_eq!(mark.session_id().await.unwrap(), None);
        created(&*sessions, "a", false);
        mark.keep(&sessions, 1_059, 60).await.unwrap();
        assert_eq!(mark.session_id().await.unwrap(), None);
        mark.keep(&sessions, 1_060, 60).await.unwrap();
        assert_eq!(mark.session_id().await.unwrap().as_deref(), Some("b"), "as it was seen, not as it is");
        mark.keep(&sessions, 1_120, 60).await.unwrap();
        assert_eq!(mark.session_id().await.unwrap().as_deref(), Some("a"));
    }

    #[tokio::test]
    async fn an_open_session_holds_it() {
        let sessions: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut mark = Mark::new(Arc::new(MemoryStore::new()));
        created(&*sessions, "b", false);
        created(&*sessions, "c", true);
        created(&*sessions, "a", false);
        mark.keep(&sessions, 0, 60).await.unwrap();
        mark.keep(&sessions, 60, 60).await.unwrap();
        assert_eq!(mark.session_id().await.unwrap().as_deref(), Some("b"));
    }
}
