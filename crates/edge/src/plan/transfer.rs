//! ExportRun and ImportRun: a run as one self-contained file, out and in.

use std::sync::Arc;

use bytes::Bytes;
use macp_plan::export::{self, ExportedRun, Exporter, Imported};
use macp_plan_core::skill::Catalog;
use macp_wire::codes::Code;
use macp_wire::plan::v1::{ExportRunResponse, ImportRunRequest, ImportRunResponse};
use tokio_stream::StreamExt;
use tonic::{Status, Streaming};

use super::{Plan, refusal};
use crate::access::Access;
use crate::outbound::{BlockingSink, Outbound, produce_buffered};
use crate::status;

/// Chunks made and not yet taken by the transport.
const CHUNKS_BUFFERED: usize = 4;

/// Bytes of one message: a line of the file may be longer, and clients take no message above 4 MiB unless told to.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;

pub(super) async fn export(
    service: &Plan,
    access: &Access,
    run_id: String,
) -> Result<Outbound<ExportRunResponse>, Status> {
    let turn = service.reader(access).await?;
    let store = Arc::clone(service.plans.runs().ledger());
    let ctx = Arc::clone(&service.ctx);
    Ok(produce_buffered(CHUNKS_BUFFERED, &access.memory.queued, |sink| async move {
        let sink = sink.blocking(ctx.drain.clone(), ctx.settings.stalled_reader_timeout);
        let exporting = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let exporter = Exporter::open(&*store, &run_id).map_err(|error| refusal::of_store(&error))?;
            write(exporter.ok_or_else(|| refusal::run_not_found(&run_id))?, &sink)
        });
        exporting.await.unwrap_or_else(|panic| Err(status::internal(panic.to_string())))
    }))
}

fn write(mut exporter: Exporter<'_>, sink: &BlockingSink<ExportRunResponse>) -> Result<(), Status> {
    while let Some(chunk) = exporter.next_chunk().map_err(|error| refusal::of_store(&error))? {
        let mut chunk = Bytes::from(chunk);
        while !chunk.is_empty() {
            let part = chunk.split_to(chunk.len().min(CHUNK_BYTES_MAX));
            sink.send(ExportRunResponse { chunk: part })?;
        }
    }
    Ok(())
}

/// Takes over a run. The file is read to its end, checked as a whole and replayed before anything is stored.
pub(super) async fn import(
    service: &Plan,
    access: &Access,
    mut chunks: Streaming<ImportRunRequest>,
) -> Result<ImportRunResponse, Status> {
    let (ctx, plans) = (&service.ctx, &service.plans);
    let _turn = plans.imports.enter(access).await?;
    let mut file = Vec::new();
    loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            () = ctx.drain.begun() => return Err(status::shutting_down()),
        };
        let Some(chunk) = chunk.transpose()? else { break };
        if file.len() + chunk.chunk.len() > plans.import_bytes_max {
            let message = format!("the export is longer than {} bytes, which is the most", plans.import_bytes_max);
            return Err(refusal::refused(Code::PayloadTooLarge, message));
        }
        file.extend_from_slice(&chunk.chunk);
    }
    let catalog = Arc::clone(plans.executor.registry()) as Arc<dyn Catalog>;
    let reading = tokio::task::spawn_blocking(move || checked(&file, &catalog));
    let (exported, not_compared) = reading.await.map_err(|panic| status::internal(panic.to_string()))??;
    let imported = plans.runs().import(exported).await.map_err(|error| refusal::of_import(&error))?;
    Ok(match imported {
        Imported::New { run_id, .. } => ImportRunResponse { run_id: run_id.to_string(), existing: false, not_compared },
        Imported::AlreadyThere { run_id } => {
            ImportRunResponse { run_id: run_id.to_string(), existing: true, not_compared }
        }
    })
}

/// Reads a file and takes every decision in it again.
fn checked(file: &[u8], catalog: &Arc<dyn Catalog>) -> Result<(ExportedRun, Vec<String>), Status> {
    let unreadable = |error| refusal::refused(Code::InvalidRequest, status::with_causes(&error));
    let exported = export::read(file).map_err(unreadable)?;
    let not_compared = export::replayed(&exported, catalog).map_err(|error| refusal::of_replayed(&error))?;
    Ok((exported, not_compared))
}
