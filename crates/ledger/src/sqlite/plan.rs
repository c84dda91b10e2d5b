//! Works out, before anything is written, what a batch does to each session.
//!
//! Conflicts and misshapen appends are sorted out here; what is left is grouped by session, so that each index row is
//! written once however many appends the batch has for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;

use crate::chain::Hash;
use crate::failure::{Failure, FailureKind};
use crate::record::Record;
use crate::store::{Append, AppendError};

/// What the writer knows of a stored session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) key: i64,
    pub(super) sequence: u64,
    pub(super) hash: Hash,
    pub(super) open: bool,
    pub(super) deadline_ms: i64,
}

/// What a batch does to one session.
#[derive(Debug)]
pub(super) struct SessionPlan<'a> {
    pub(super) stored: Option<Stored>,
    /// In order, never empty once planning is over.
    pub(super) appends: Vec<&'a Append>,
    /// The last summary given.
    pub(super) summary: Option<&'a Bytes>,
}

impl<'a> SessionPlan<'a> {
    pub(super) fn last(&self) -> (&'a Append, &'a Record) {
        let append = *self.appends.last().expect("a planned session has an append");
        (append, append.records.last().expect("a planned append has a record"))
    }

    /// Where the session ends with what is planned so far.
    fn end(&self) -> Option<(u64, Hash)> {
        if self.appends.is_empty() {
            return self.stored.map(|stored| (stored.sequence, stored.hash));
        }
        let (_, record) = self.last();
        Some((record.sequence, record.hash))
    }
}

/// A batch, planned.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// In the order of their first append; only those with something to write.
    pub(super) sessions: Vec<SessionPlan<'a>>,
    /// One per append: the session it belongs to, or why it will not be written.
    pub(super) verdicts: Vec<Result<Arc<str>, AppendError>>,
}

impl<'a> Plan<'a> {
    /// `lookup` finds a stored session by id.
    pub(super) fn new<E>(
        batch: &'a [Append],
        mut lookup: impl FnMut(&Arc<str>) -> Result<Option<Stored>, E>,
    ) -> Result<Self, E> {
        let mut sessions: Vec<SessionPlan<'a>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(batch.len());
        let mut verdicts = Vec::with_capacity(batch.len());
        for append in batch {
            if let Err(failure) = validate(append) {
                verdicts.push(Err(AppendError::Failed(failure)));
                continue;
            }
            let place = match places.entry(&*append.session_id) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(place) => {
                    let stored = lookup(&append.session_id)?;
                    sessions.push(SessionPlan { stored, appends: Vec::with_capacity(1), summary: None });
                    *place.insert(sessions.len() - 1)
                }
            };
            let session = &mut sessions[place];
            if let Err(conflict) = append.check_end(session.end()) {
                verdicts.push(Err(conflict));
                continue;
            }
            session.appends.push(append);
            session.summary = append.index.summary.as_ref().or(session.summary);
            verdicts.push(Ok(Arc::clone(&append.session_id)));
        }
        sessions.retain(|session| !session.appends.is_empty());
        Ok(Self { sessions, verdicts })
    }

    /// The answers once everything planned is stored.
    pub(super) fn stored(self) -> Vec<Result<(), AppendError>> {
        self.verdicts.into_iter().map(|verdict| verdict.map(|_| ())).collect()
    }
}

fn validate(append: &Append) -> Result<(), Failure> {
    let last = append.validate()?;
    // SQLite's integers are signed.
    if i64::try_from(last.sequence).is_err() {
        let context = format!("append to session {:?}: sequence {}", append.session_id, last.sequence);
        return Err(Failure::new(FailureKind::Invalid, context));
    }
    Ok(())
}
