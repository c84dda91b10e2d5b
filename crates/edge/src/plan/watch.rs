//! WatchRun: the journal of a run from an entry on, and then as it grows. Entries are read from the store when there is
//! room for them in the caller's memory, so that a client that reads slowly delays only itself.

use macp_plan::store::{Sealed, WATCH_PAGE_BYTES_MAX as PAGE_BYTES_MAX};
use macp_wire::plan::v1::{JournalEntry, WatchRunRequest, WatchRunResponse};
use prost::Message as _;
use tonic::Status;

use super::{Plans, refusal};
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{Outbound, produce_buffered};
use crate::status;

/// Messages made and not yet taken by the transport.
const MESSAGES_BUFFERED: usize = 4;

/// Bytes of entries in one message, one entry at least: clients take no message above 4 MiB unless told to.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

pub(super) async fn watch(
    ctx: &Context,
    plans: &Plans,
    access: &Access,
    request: WatchRunRequest,
) -> Result<Outbound<WatchRunResponse>, Status> {
    let WatchRunRequest { run_id, from_seq } = request;
    let watch = plans.runs().watch(&run_id, from_seq).await.map_err(|error| refusal::of_store(&error))?;
    let mut watch = watch.ok_or_else(|| refusal::run_not_found(&run_id))?;
    let drain = ctx.drain.clone();
    Ok(produce_buffered(MESSAGES_BUFFERED, &access.memory.queued, |sink| async move {
        let telling = async {
            while watch.ready().await.map_err(|error| refusal::of_store(&error))? {
                let mut reserved = sink.reserve(PAGE_BYTES_MAX).await;
                let Some(page) = watch.next().await.map_err(|error| refusal::of_store(&error))? else { break };
                let messages = messages(page);
                reserved.set(messages.iter().map(WatchRunResponse::encoded_len).sum());
                for message in messages {
                    sink.send_from(&mut reserved, message).await?;
                }
            }
            Ok(())
        };
        tokio::select! {
            told = telling => told,
            () = drain.begun() => Err(status::shutting_down()),
        }
    }))
}

fn messages(page: Vec<Sealed>) -> Vec<WatchRunResponse> {
    let mut messages = Vec::new();
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for sealed in page {
        if bytes + sealed.text.len() > MESSAGE_BYTES_MAX && !entries.is_empty() {
            messages.push(WatchRunResponse { entries: std::mem::take(&mut entries) });
            bytes = 0;
        }
        bytes += sealed.text.len();
        entries.push(JournalEntry {
            seq: sealed.seq(),
            // What is stored was checked to be JSON, so it is text.
            entry_json: String::from_utf8_lossy(&sealed.text).into_owned(),
            hash: sealed.hash.to_string(),
        });
    }
    if !entries.is_empty() {
        messages.push(WatchRunResponse { entries });
    }
    messages
}
