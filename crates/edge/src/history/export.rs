//! ExportSession: the session as one self-contained JSON-lines file, in chunks.

use std::sync::Arc;

use macp_archive::Exporter;
use macp_wire::history::v1::{ExportSessionRequest, ExportSessionResponse};
use tonic::Status;

use super::{failed, stream};
use crate::access::Access;
use crate::context::Context;
use crate::outbound::Outbound;
use crate::status;

/// Chunks made and not yet taken by the transport. One holds at least one record, which may be over a megabyte long.
const CHUNKS_BUFFERED: usize = 4;

pub(super) async fn export(
    ctx: &Arc<Context>,
    access: &Access,
    request: ExportSessionRequest,
) -> Result<Outbound<ExportSessionResponse>, Status> {
    stream(ctx, access, request.session_id, CHUNKS_BUFFERED, |store, session_id, sink| {
        let exporter = Exporter::open(store, session_id).map_err(|failure| failed(&failure))?;
        let mut exporter = exporter.ok_or_else(|| status::session_not_found(session_id))?;
        while let Some(chunk) = exporter.next_chunk().map_err(|error| failed(&error))? {
            sink.send(ExportSessionResponse { data: chunk.into() })?;
        }
        Ok(())
    })
    .await
}
