//! Brings sessions back from their histories, off the shards: a long history stalls no other session.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

use macp_kernel::{Session, replay};
use macp_ledger::{Hash, History, Store};

use crate::Error;
use crate::panic::contain;

/// A session to be brought back. Numbered, so that what comes of it is told from what an earlier one still brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub session_id: Arc<str>,
    pub number: u64,
}

/// A session as its history left it.
#[derive(Debug)]
pub struct Loaded {
    pub session: Session,
    /// Chain hash of the last entry.
    pub hash: Hash,
}

/// A loaded session; none if there is no such session.
pub type LoadResult = Result<Option<Box<Loaded>>, Error>;

/// Loads a session: checks its chain and takes its decisions again. None if there is no such session.
pub fn load(store: &dyn Store, session_id: &str) -> LoadResult {
    let Some(mut history) = History::open(store, session_id)? else {
        return Ok(None);
    };
    let hash = history.head().hash;
    let mut replayer = replay::Replayer::default();
    loop {
        let page = history.next_page()?;
        if page.is_empty() {
            break;
        }
        for (_, entry) in &page {
            replayer.feed(entry)?;
        }
    }
    let Some(session) = replayer.into_session() else {
        return Ok(None);
    };
    if &**session.id() != session_id {
        return Err(Error::Foreign { expected: session_id.to_owned(), found: session.id().to_string() });
    }
    Ok(Some(Box::new(Loaded { session, hash })))
}

/// One loader thread: takes loads from the shared queue until it closes.
pub(crate) fn run(store: Arc<dyn Store>, queue: Arc<Mutex<Receiver<Load>>>, deliver: impl Fn(Load, LoadResult)) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else {
            return;
        };
        let session_id = &next.session_id;
        let loaded = contain("a load", Some(session_id), || load(&*store, session_id)).and_then(|result| result);
        deliver(next, loaded);
    }
}
