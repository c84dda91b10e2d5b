//! VerifySession: hash chain, index row and signatures of one session.

use bytes::Bytes;
use macp_archive::{Bad, Source};
use macp_ledger::History;
use macp_wire::history::v1::{VerifySessionRequest, VerifySessionResponse};
use tonic::Status;

use super::{blocking, failed};
use crate::access::Access;
use crate::context::Context;
use crate::status;

pub(super) async fn verify(
    ctx: &Context,
    access: &Access,
    request: VerifySessionRequest,
) -> Result<VerifySessionResponse, Status> {
    let turn = ctx.history_readers.enter(access).await?;
    let keys = ctx.keys();
    blocking(ctx, move |store| {
        let _turn = turn;
        let history = History::open(store, &request.session_id).map_err(|failure| failed(&failure))?;
        let history = history.ok_or_else(|| status::session_not_found(&request.session_id))?;
        let found = macp_archive::verify(&mut Source::Store(history), &keys, &mut |_| ());
        let found = found.map_err(|unreadable| failed(&unreadable))?;
        let ok = found.ok();
        let (bad_sequence, message) = match found.bad {
            None => (0, "the history is whole".to_owned()),
            Some(Bad { sequence, message }) => (sequence, message),
        };
        Ok(VerifySessionResponse {
            ok,
            entries: found.entries,
            head_hash: found.head.map_or_else(Bytes::new, |hash| Bytes::copy_from_slice(hash.as_bytes())),
            sealed: found.sealed,
            signatures_verified: found.signatures_verified,
            signatures_unchecked: found.signatures_unchecked,
            bad_sequence,
            message,
        })
    })
    .await
}
