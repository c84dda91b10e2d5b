//! One subscriber's view of a session: its history, then what happens live, without gap or repetition.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use macp_ledger::{Failure, FrameError, Store, record};

use crate::feed::{Delivery, Feed, Live};
use crate::{Error, Lagged};

/// Records read at once while catching up.
const PAGE_RECORDS: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// Why a subscription ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubscriptionError {
    #[error(transparent)]
    Lagged(#[from] Lagged),
    #[error(transparent)]
    Read(#[from] Failure),
    #[error("entry {sequence} is unreadable: {source}")]
    Frame { sequence: u64, source: FrameError },
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Reads up to the end of the history, joins the live feed, reads what was written in between, then goes live. The
/// sequence of the last entry taken from the history tells which live ones it has already seen.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    store: Arc<dyn Store>,
    session_id: Arc<str>,
    after_ordinal: u64,
    buffer: usize,
    /// Of the last entry read from the history.
    sequence: u64,
    ready: VecDeque<Delivery>,
    live: Option<Live>,
    caught_up: bool,
}

impl Subscription {
    pub(crate) fn new(
        feed: Arc<Feed>,
        store: Arc<dyn Store>,
        session_id: Arc<str>,
        after_ordinal: u64,
        buffer: usize,
    ) -> Self {
        Subscription {
            feed,
            store,
            session_id,
            after_ordinal,
            buffer,
            // An ordinal never exceeds its sequence, so nothing wanted lies at or before it.
            sequence: after_ordinal,
            ready: VecDeque::new(),
            live: None,
            caught_up: false,
        }
    }

    /// The next envelope. Waits while the session is quiet; ends only by an error.
    pub async fn next(&mut self) -> Result<Delivery, SubscriptionError> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(delivery);
            }
            if !self.caught_up {
                self.catch_up().await?;
                continue;
            }
            let live = self.live.as_mut().expect("joined before the history was read to its end");
            match live.receiver.recv().await {
                Some(delivery) if self.wants(&delivery) => return Ok(delivery),
                Some(_) => {}
                None if self.live.as_ref().is_some_and(|live| live.lagged.load(Ordering::Acquire)) => {
                    return Err(Lagged.into());
                }
                None => return Err(Error::ShuttingDown.into()),
            }
        }
    }

    fn wants(&self, delivery: &Delivery) -> bool {
        delivery.sequence > self.sequence && delivery.ordinal > self.after_ordinal
    }

    /// Reads one page. At the end of the history it joins the live feed and reads once more, to close the gap.
    async fn catch_up(&mut self) -> Result<(), SubscriptionError> {
        let (store, session_id, after) = (Arc::clone(&self.store), Arc::clone(&self.session_id), self.sequence);
        let read = move || store.read(&session_id, after, PAGE_RECORDS, PAGE_BYTES);
        let page = tokio::task::spawn_blocking(read).await.map_err(|_| Error::ShuttingDown)??;
        if page.is_empty() {
            if self.live.is_some() {
                self.caught_up = true;
            } else {
                self.rewind().await?;
                self.live = Some(self.feed.join(&self.session_id, self.buffer));
            }
        }
        for record in page {
            let entry = record::open(&record.bytes)
                .map_err(|source| SubscriptionError::Frame { sequence: record.sequence, source })?;
            self.sequence = entry.sequence;
            let wanted = Delivery::from_entry(entry).filter(|delivery| delivery.ordinal > self.after_ordinal);
            self.ready.extend(wanted);
        }
        Ok(())
    }

    /// Who asks for what lies beyond the end gets whatever comes next.
    async fn rewind(&mut self) -> Result<(), SubscriptionError> {
        let (store, session_id) = (Arc::clone(&self.store), Arc::clone(&self.session_id));
        let head = tokio::task::spawn_blocking(move || store.head(&session_id));
        let end = head.await.map_err(|_| Error::ShuttingDown)??.map_or(0, |head| head.sequence);
        if end < self.sequence {
            self.sequence = end;
            self.after_ordinal = 0;
        }
        Ok(())
    }
}
