//! A store around another, for tests: it does what the one inside does, but for what it says otherwise.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Append, AppendError, Document, Failure, Filter, Head, PutMode, PutOutcome, Record, Store};

/// A [`Store`] for whoever says what is different about it.
pub trait Around: Send + Sync + Debug + 'static {
    fn inner(&self) -> &dyn Store;

    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        self.inner().append(batch)
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        self.inner().head(session_id)
    }

    fn read(&self, session_id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        self.inner().read(session_id, after, limit, bytes_max)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        self.inner().list(after, limit, filter)
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        self.inner().open_sessions()
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        self.inner().put_document(kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        self.inner().delete_document(kind, key)
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        self.inner().move_document(kind, key, new_key, bytes)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        self.inner().document(kind, key)
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        self.inner().documents(kind, after_key, limit)
    }

    fn probe(&self) -> Result<(), Failure> {
        self.inner().probe()
    }
}

impl<A: Around> Store for A {
    fn append(&self, batch: &[Append]) -> Vec<Result<(), AppendError>> {
        Around::append(self, batch)
    }

    fn head(&self, session_id: &str) -> Result<Option<Head>, Failure> {
        Around::head(self, session_id)
    }

    fn read(&self, session_id: &str, after: u64, limit: usize, bytes_max: usize) -> Result<Vec<Record>, Failure> {
        Around::read(self, session_id, after, limit, bytes_max)
    }

    fn list(&self, after: Option<&str>, limit: usize, filter: Filter) -> Result<Vec<Head>, Failure> {
        Around::list(self, after, limit, filter)
    }

    fn created(&self, after: Option<&str>, limit: usize) -> Result<Vec<Head>, Failure> {
        self.inner().created(after, limit)
    }

    fn ended_up_to(&self) -> Result<Option<Arc<str>>, Failure> {
        self.inner().ended_up_to()
    }

    fn due(&self, now_ms: i64, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
        self.inner().due(now_ms, limit)
    }

    fn next_deadline(&self) -> Result<Option<i64>, Failure> {
        self.inner().next_deadline()
    }

    fn open_sessions(&self) -> Result<u64, Failure> {
        Around::open_sessions(self)
    }

    fn put_document(&self, kind: &str, key: &str, bytes: &[u8], mode: PutMode) -> Result<PutOutcome, Failure> {
        Around::put_document(self, kind, key, bytes, mode)
    }

    fn delete_document(&self, kind: &str, key: &str) -> Result<bool, Failure> {
        Around::delete_document(self, kind, key)
    }

    fn move_document(&self, kind: &str, key: &str, new_key: &str, bytes: &[u8]) -> Result<bool, Failure> {
        Around::move_document(self, kind, key, new_key, bytes)
    }

    fn document(&self, kind: &str, key: &str) -> Result<Option<Bytes>, Failure> {
        Around::document(self, kind, key)
    }

    fn documents(&self, kind: &str, after_key: Option<&str>, limit: usize) -> Result<Vec<Document>, Failure> {
        Around::documents(self, kind, after_key, limit)
    }

    fn probe(&self) -> Result<(), Failure> {
        Around::probe(self)
    }
}
