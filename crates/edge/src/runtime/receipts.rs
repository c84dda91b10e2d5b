//! GetDecisionReceipt and GetReceiptKeys.
//!
//! A receipt is issued when it is first asked for and kept beside the histories; from then on the same bytes are
//! given out, whatever becomes of the keys.

use macp_archive::Source;
use macp_archive::receipt::{ReceiptRequest, issue};
use macp_kernel::Profile;
use macp_kernel::replay::{Options, Replayer};
use macp_ledger::{History, PutMode, PutOutcome, Store};
use macp_wire::codes::Code;
use macp_wire::v1::{GetDecisionReceiptResponse, GetReceiptKeysResponse, SessionState};
use tonic::Status;

use crate::access::Access;
use crate::context::Context;
use crate::history::{blocking, failed};
use crate::rate::Kind;
use crate::status;

const KIND: &str = "receipt";

pub(super) async fn receipt(
    ctx: &Context,
    access: &Access,
    session_id: String,
) -> Result<GetDecisionReceiptResponse, Status> {
    let session = super::sessions::readable(ctx, access, &session_id).await?;
    ctx.take_share(access, Kind::Message)?;
    if session.profile == Profile::Classic {
        return Err(unavailable("classic sessions have no receipt"));
    }
    if session.metadata.state() != SessionState::Resolved {
        return Err(unavailable("the session is not resolved, so there is nothing to give a receipt for"));
    }
    let turn = ctx.brief_readers.enter(access).await?;
    let receipts = std::sync::Arc::clone(&ctx.receipts);
    let issuer = ctx.settings.runtime_id.clone();
    let now = ctx.engine.now_ms();
    let receipt_json = blocking(ctx, move |store| {
        let _turn = turn;
        if let Some(kept) = store.document(KIND, &session_id).map_err(|failure| failed(&failure))? {
            return text(&kept);
        }
        let resolved = resolved(store, &session_id)?;
        let request = ReceiptRequest {
            session_id: &session_id,
            mode: &resolved.mode,
            resolution: &resolved.resolution,
            semantics_revision: resolved.semantics_revision,
            runtime_id: &issuer,
            issued_at_ms: now,
        };
        let issued = issue(&request, receipts.signing_key.as_ref())
            .map_err(|error| if error.is_for_good() { unavailable(error.to_string()) } else { failed(&error) })?;
        match store.put_document(KIND, &session_id, issued.as_bytes(), PutMode::IfAbsent) {
            Ok(PutOutcome::Stored) => Ok(issued),
            // Someone else was first.
            Ok(PutOutcome::Kept(kept)) => text(&kept),
            Err(failure) => Err(failed(&failure)),
        }
    })
    .await?;
    Ok(GetDecisionReceiptResponse { receipt_json })
}

pub(super) fn keys(ctx: &Context) -> GetReceiptKeysResponse {
    GetReceiptKeysResponse { jwks_json: ctx.receipts.public_keys.to_jwks() }
}

struct Resolved {
    mode: String,
    resolution: bytes::Bytes,
    semantics_revision: u32,
}

/// What a session decided, read out of its history.
fn resolved(store: &dyn Store, session_id: &str) -> Result<Resolved, Status> {
    let history = History::open(store, session_id).map_err(|failure| failed(&failure))?;
    let mut source = Source::Store(history.ok_or_else(|| status::session_not_found(session_id))?);
    let mut replayer = Replayer::new(Options::default());
    let mut semantics_revision = None;
    loop {
        let page = source.next_page().map_err(|error| failed(&error))?;
        if page.is_empty() {
            break;
        }
        for (_, entry) in &page {
            semantics_revision =
                entry.binding.as_ref().map(|binding| binding.semantics_revision).or(semantics_revision);
            replayer.feed(entry).map_err(|stop| status::internal(stop.to_string()))?;
        }
    }
    let session = replayer.into_session().ok_or_else(|| status::session_not_found(session_id))?;
    let resolution = session
        .resolution()
        .cloned()
        .ok_or_else(|| unavailable("the session is not resolved, so there is nothing to give a receipt for"))?;
    Ok(Resolved {
        mode: session.binding().mode_name().to_owned(),
        resolution,
        semantics_revision: semantics_revision.unwrap_or_default(),
    })
}

fn unavailable(message: impl Into<String>) -> Status {
    status::coded(Code::ReceiptUnavailable, message)
}

fn text(kept: &[u8]) -> Result<String, Status> {
    String::from_utf8(kept.to_vec()).map_err(|error| failed(&error))
}
