//! The mode registry's calls.

use macp_engine::RegistryError;
use macp_wire::v1::{
    PromoteModeRequest, PromoteModeResponse, RegisterExtModeRequest, RegisterExtModeResponse, RegistryChanged,
    UnregisterExtModeResponse, WatchModeRegistryResponse,
};
use tonic::Status;

use super::policies::{answered, changed};
use super::watches::next;
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{Outbound, produce_until_drained};
use crate::status;

pub(super) async fn register(
    ctx: &Context,
    request: RegisterExtModeRequest,
) -> Result<RegisterExtModeResponse, Status> {
    let descriptor =
        request.mode_descriptor.ok_or_else(|| status::invalid_request("the request holds no mode_descriptor"))?;
    let now = ctx.engine.now_ms();
    let (ok, error) = answered(changed(ctx, move |registry| registry.register_mode(&descriptor, now)).await)?;
    Ok(RegisterExtModeResponse { ok, error })
}

pub(super) async fn unregister(ctx: &Context, mode: String) -> Result<UnregisterExtModeResponse, Status> {
    let now = ctx.engine.now_ms();
    let (ok, error) = answered(changed(ctx, move |registry| registry.unregister_mode(&mode, now)).await)?;
    Ok(UnregisterExtModeResponse { ok, error })
}

pub(super) async fn promote(ctx: &Context, request: PromoteModeRequest) -> Result<PromoteModeResponse, Status> {
    let PromoteModeRequest { mode, promoted_mode_name } = request;
    let now = ctx.engine.now_ms();
    match changed(ctx, move |registry| registry.promote_mode(&mode, &promoted_mode_name, now)).await {
        Ok(mode) => Ok(PromoteModeResponse { ok: true, error: String::new(), mode }),
        Err(RegistryError::Refused(error)) => Ok(PromoteModeResponse { ok: false, error, mode: String::new() }),
        Err(error) => Err(status::internal(status::with_causes(&error))),
    }
}

/// One event now, and one after every change.
pub(super) fn watch(ctx: &Context, access: &Access) -> Outbound<WatchModeRegistryResponse> {
    let mut changes = ctx.registry.watch_modes();
    let now = ctx.engine.now_ms();
    produce_until_drained(&ctx.drain, &access.memory.queued, |sink| async move {
        let mut observed_at_unix_ms = now;
        loop {
            let change = RegistryChanged { registry: "modes".to_owned(), observed_at_unix_ms };
            sink.send(WatchModeRegistryResponse { change: Some(change) }).await?;
            observed_at_unix_ms = next(&mut changes).await?;
        }
    })
}
