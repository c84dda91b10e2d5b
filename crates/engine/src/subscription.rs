//! One subscriber's view of a session: its history, then what happens live, without gap or repetition.
//!
//! What comes from the history is checked along its chain, from the record before the first one wanted.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use macp_ledger::{Checker, Corruption, CorruptionKind, Failure, Head, Record, Store};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::feed::{Delivery, Feed};
use crate::live::Live;
use crate::{Error, Lagged};

/// Records read at once while catching up.
const PAGE_RECORDS: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// Pages read at once for all subscribers together. A thousand who come back at the same time share these few threads
/// and connections to the store, instead of having one made for each.
pub(crate) const READS_MAX: usize = 4;

/// Where the pages of histories count that subscribers catch up with.
pub trait PageMemory: fmt::Debug + Send + Sync {
    /// Waits until there is room for a page. It counts until the result is dropped.
    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;
}

/// Why a subscription ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SubscriptionError {
    #[error(transparent)]
    Lagged(#[from] Lagged),
    #[error(transparent)]
    Read(#[from] Failure),
    /// A stored record is not what was written.
    #[error(transparent)]
    Frame(#[from] Corruption),
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Reads the history page by page, and is in the live feed before each: with the page that reaches the end there is no
/// gap between the two, however much is written meanwhile. What has come live before a page is read is in the page, or
/// in one after it. The sequence of the last entry taken from the history tells which live ones it has already seen.
pub struct Subscription {
    feed: Arc<Feed>,
    store: Arc<dyn Store>,
    reads: Arc<Semaphore>,
    session_id: Arc<str>,
    after_ordinal: u64,
    buffer: usize,
    /// Who it shares its way out with.
    neighbourhood: u64,
    /// Stands at the last entry read from the history; none until the one to start after was found.
    checker: Option<Checker>,
    ready: VecDeque<Delivery>,
    memory: Option<Arc<dyn PageMemory>>,
    /// What counts for the deliveries that are ready.
    page: Option<Box<dyn Send>>,
    live: Option<Live>,
    caught_up: bool,
    /// A page of the history being read.
    reading: Option<Reading<Page>>,
}

/// What was read of the history at once.
struct Page {
    records: Vec<Record>,
    /// The end of the history as it was before the page was read.
    head: Option<Head>,
    /// What counts for the page.
    counted: Option<Box<dyn Send>>,
}

/// A read of the store that keeps its place in the line, whoever waits for it.
type Reading<T> = Pin<Box<dyn Future<Output = Result<T, SubscriptionError>> + Send>>;

impl Subscription {
    pub(crate) fn new(
        feed: Arc<Feed>,
        store: Arc<dyn Store>,
        reads: Arc<Semaphore>,
        session_id: Arc<str>,
        after_ordinal: u64,
        buffer: usize,
    ) -> Self {
        Subscription {
            feed,
            store,
            reads,
            session_id,
            after_ordinal,
            buffer,
            neighbourhood: 0,
            checker: (after_ordinal == 0).then(Checker::new),
            ready: VecDeque::new(),
            memory: None,
            page: None,
            live: None,
            caught_up: false,
            reading: None,
        }
    }

    /// Subscribers of one neighbourhood hear of a commit one right after the other. For those who share something on
    /// their way out, such as a connection.
    #[must_use]
    pub fn beside(self, neighbourhood: u64) -> Self {
        Subscription { neighbourhood, ..self }
    }

    /// Counts the pages it reads, and reads none while there is no room for one.
    #[must_use]
    pub fn counted(self, memory: Arc<dyn PageMemory>) -> Self {
        Subscription { memory: Some(memory), ..self }
    }

    /// The next envelope. Waits while the session is quiet; ends only by an error.
    pub async fn next(&mut self) -> Result<Delivery, SubscriptionError> {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                if self.ready.is_empty() {
                    self.page = None;
                }
                return Ok(delivery);
            }
            if !self.caught_up {
                self.catch_up().await?;
                continue;
            }
            let live = self.live.as_mut().expect("joined before the history was read to its end");
            match live.next().await {
                Some(delivery) => {
                    if self.wants(&delivery) {
                        return Ok(delivery);
                    }
                }
                None if live.has_lagged() => return Err(Lagged.into()),
                None => return Err(Error::ShuttingDown.into()),
            }
        }
    }

    fn wants(&self, delivery: &Delivery) -> bool {
        let read = self.checker.as_ref().map_or(0, Checker::sequence);
        delivery.sequence > read && delivery.ordinal > self.after_ordinal
    }

    /// Reads one page.
    async fn catch_up(&mut self) -> Result<(), SubscriptionError> {
        // An ordinal never exceeds its sequence, so nothing wanted lies at or before the entry with that sequence.
        let after = self.checker.as_ref().map_or(self.after_ordinal.saturating_sub(1), Checker::sequence);
        let Page { records, head, counted } = self.next_page(after).await?;
        let end = head.as_ref().map_or(0, |head| head.sequence);
        if records.is_empty() && end > after {
            return Err(Corruption { sequence: after + 1, kind: CorruptionKind::Truncated { indexed: end } }.into());
        }
        let mut records = records.into_iter();
        let checker = match &mut self.checker {
            Some(checker) => checker,
            none => match records.next() {
                Some(before) => none.insert(Checker::resume(before.sequence, before.hash)),
                // Who asks for what lies beyond the end gets whatever comes next.
                None => {
                    self.after_ordinal = 0;
                    none.insert(head.map_or_else(Checker::new, |head| Checker::resume(head.sequence, head.hash)))
                }
            },
        };
        for record in records {
            let entry = checker.check(&record)?;
            let wanted =
                Delivery::from_entry(entry, Bytes::from).filter(|delivery| delivery.ordinal > self.after_ordinal);
            self.ready.extend(wanted);
        }
        self.page = counted.filter(|_| !self.ready.is_empty());
        // One that could not keep up with what came while it read this page has a gap, and reads on.
        let has_lagged = self.live.as_ref().is_none_or(Live::has_lagged);
        self.caught_up = checker.sequence() >= end && !has_lagged;
        Ok(())
    }

    /// The next page of the history. Reading it goes on when the caller stops waiting: whoever publishes on the stream
    /// that subscribes is called away all the time, and must not begin anew each time.
    async fn next_page(&mut self, after: u64) -> Result<Page, SubscriptionError> {
        if self.reading.is_none() {
            self.join();
            self.reading = Some(self.read(after));
        }
        let page = self.reading.as_mut().expect("begun above").await;
        self.reading = None;
        page
    }

    /// Is in the live feed from here on.
    fn join(&mut self) {
        match &mut self.live {
            Some(live) if !live.has_lagged() => live.forget(),
            live => *live = Some(self.feed.join(&self.session_id, self.buffer, self.neighbourhood)),
        }
    }

    /// Reads a page off the runtime's threads, when there is room for it and it is this subscriber's turn.
    fn read(&self, after: u64) -> Reading<Page> {
        let (store, session_id) = (Arc::clone(&self.store), Arc::clone(&self.session_id));
        let (reads, memory) = (Arc::clone(&self.reads), self.memory.clone());
        Box::pin(async move {
            let counted = match memory {
                Some(memory) => Some(memory.reserve(PAGE_BYTES).await),
                None => None,
            };
            let turn = reads.acquire_owned().await.map_err(|_closed| Error::ShuttingDown)?;
            let read = tokio::task::spawn_blocking(move || {
                let head = store.head(&session_id)?;
                let records = store.read(&session_id, after, PAGE_RECORDS, PAGE_BYTES)?;
                drop(turn);
                Ok::<_, Failure>(Page { records, head, counted })
            });
            Ok(read.await.map_err(ended)??)
        })
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("session_id", &self.session_id)
            .field("after_ordinal", &self.after_ordinal)
            .field("caught_up", &self.caught_up)
            .finish_non_exhaustive()
    }
}

/// Why a page was not read to its end.
fn ended(error: JoinError) -> Error {
    if error.is_panic() { Error::Internal } else { Error::ShuttingDown }
}
