//! GetSessionLog: a page of typed entries, each checked against the one before it.

use bytes::Bytes;
use macp_ledger::chain::{self, HISTORY_LABEL};
use macp_ledger::{Hash, Record, Store, record};
use macp_wire::history::v1::{GetSessionLogRequest, GetSessionLogResponse, LogEntry};
use tonic::Status;

use super::{blocking, failed};
use crate::access::Access;
use crate::context::Context;
use crate::runtime::page_size;
use crate::status;

/// Bytes of one page: clients take no message above 4 MiB unless told to.
const PAGE_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(super) async fn page(
    ctx: &Context,
    access: &Access,
    request: GetSessionLogRequest,
) -> Result<GetSessionLogResponse, Status> {
    let limit = page_size(ctx, request.page_size)?;
    let turn = ctx.brief_readers.enter(access).await?;
    let GetSessionLogRequest { session_id, after_sequence, .. } = request;
    blocking(ctx, move |store| {
        let _turn = turn;
        read(store, &session_id, after_sequence, limit)
    })
    .await
}

fn read(
    store: &dyn Store,
    session_id: &str,
    after_sequence: u64,
    limit: usize,
) -> Result<GetSessionLogResponse, Status> {
    let head = store.head(session_id).map_err(|failure| failed(&failure))?;
    let head = head.ok_or_else(|| status::session_not_found(session_id))?;
    if after_sequence >= head.sequence {
        return Ok(GetSessionLogResponse::default());
    }
    let mut previous = match after_sequence.checked_sub(1) {
        None => None,
        Some(before) => {
            let found = store.read(session_id, before, 1, 0).map_err(|failure| failed(&failure))?;
            let found = found.into_iter().find(|record| record.sequence == after_sequence);
            Some(found.ok_or_else(|| missing(after_sequence))?.hash)
        }
    };
    let records = store.read(session_id, after_sequence, limit, PAGE_BYTES_MAX).map_err(|failure| failed(&failure))?;
    let mut entries = Vec::with_capacity(records.len());
    for (record, sequence) in records.iter().zip(after_sequence + 1..) {
        entries.push(checked(record, sequence, previous.as_ref())?);
        previous = Some(record.hash);
    }
    let last = after_sequence + entries.len() as u64;
    if entries.is_empty() {
        return Err(missing(last + 1));
    }
    let next_after_sequence = if last < head.sequence { last } else { 0 };
    Ok(GetSessionLogResponse { entries, next_after_sequence })
}

/// A damaged entry is never passed off as history.
fn checked(record: &Record, sequence: u64, previous: Option<&Hash>) -> Result<LogEntry, Status> {
    if record.sequence != sequence {
        return Err(missing(sequence));
    }
    if chain::link(HISTORY_LABEL, previous, &record.bytes) != record.hash {
        return Err(status::internal(format!("entry {sequence} was changed after it was written")));
    }
    let entry = record::open(&record.bytes)
        .map_err(|error| status::internal(format!("entry {sequence}: {}", status::with_causes(&error))))?;
    Ok(LogEntry { entry: Some(entry), hash: Bytes::copy_from_slice(record.hash.as_bytes()) })
}

fn missing(sequence: u64) -> Status {
    status::internal(format!("entry {sequence} is missing from the history"))
}
