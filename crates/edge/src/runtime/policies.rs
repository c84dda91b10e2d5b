//! The policy registry's calls.

use std::sync::Arc;

use macp_engine::RegistryError;
use macp_wire::codes::Code;
use macp_wire::v1::{
    GetPolicyResponse, ListPoliciesResponse, RegisterPolicyRequest, RegisterPolicyResponse, UnregisterPolicyResponse,
    WatchPoliciesResponse,
};
use prost::Message as _;
use tonic::Status;

use super::watches::next;
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{Outbound, produce_buffered_until_drained};
use crate::status;

/// Lists made and not yet taken by a watcher: each may be megabytes long.
const LISTS_AHEAD: usize = 1;

/// Reserved before a list is made: more than nearly all registries have.
const LIST_BYTES: usize = 1024 * 1024;

pub(super) async fn register(ctx: &Context, request: RegisterPolicyRequest) -> Result<RegisterPolicyResponse, Status> {
    check_writable(ctx)?;
    let descriptor =
        request.policy_descriptor.ok_or_else(|| status::invalid_request("the request holds no policy_descriptor"))?;
    let now = ctx.engine.now_ms();
    let (ok, error) = answered(changed(ctx, move |registry| registry.register_policy(&descriptor, now)).await)?;
    Ok(RegisterPolicyResponse { ok, error })
}

pub(super) async fn unregister(ctx: &Context, policy_id: String) -> Result<UnregisterPolicyResponse, Status> {
    check_writable(ctx)?;
    let now = ctx.engine.now_ms();
    let (ok, error) = answered(changed(ctx, move |registry| registry.unregister_policy(&policy_id, now)).await)?;
    Ok(UnregisterPolicyResponse { ok, error })
}

pub(super) fn get(ctx: &Context, policy_id: &str) -> Result<GetPolicyResponse, Status> {
    let policy = ctx.registry.policy(policy_id);
    let policy = policy.ok_or_else(|| {
        status::coded(Code::UnknownPolicyVersion, format!("no policy {:?} is registered", status::shown(policy_id)))
    })?;
    Ok(GetPolicyResponse { policy_descriptor: Some(policy.descriptor.clone()) })
}

pub(super) fn list(ctx: &Context, mode: &str) -> ListPoliciesResponse {
    ListPoliciesResponse { descriptors: ctx.registry.policies(mode) }
}

/// All policies now, and again after every change.
pub(super) fn watch(ctx: &Context, access: &Access) -> Outbound<WatchPoliciesResponse> {
    let mut changes = ctx.registry.watch_policies();
    let registry = Arc::clone(&ctx.registry);
    let now = ctx.engine.now_ms();
    produce_buffered_until_drained(LISTS_AHEAD, &ctx.drain, &access.memory.queued, |sink| async move {
        let mut observed_at_unix_ms = now;
        loop {
            let mut reserved = sink.reserve(LIST_BYTES).await;
            let list = WatchPoliciesResponse { descriptors: registry.policies(""), observed_at_unix_ms };
            reserved.set(list.encoded_len());
            sink.send_from(&mut reserved, list).await?;
            observed_at_unix_ms = next(&mut changes).await?;
        }
    })
}

/// Makes a change of the registries, off the threads that serve.
pub(super) async fn changed<T: Send + 'static>(
    ctx: &Context,
    change: impl FnOnce(&macp_engine::Registry) -> Result<T, RegistryError> + Send + 'static,
) -> Result<T, RegistryError> {
    let registry = Arc::clone(&ctx.registry);
    let changing = tokio::task::spawn_blocking(move || change(&registry)).await;
    changing.unwrap_or_else(|error| Err(RegistryError::Interrupted(error)))
}

/// What cannot be granted is told in the answer; only a failure of ours is a status.
pub(super) fn answered(result: Result<(), RegistryError>) -> Result<(bool, String), Status> {
    match result {
        Ok(()) => Ok((true, String::new())),
        Err(RegistryError::Refused(reason)) => Ok((false, reason)),
        Err(error) => Err(status::internal(status::with_causes(&error))),
    }
}

fn check_writable(ctx: &Context) -> Result<(), Status> {
    if ctx.settings.policies_read_only {
        return Err(status::coded(Code::RegistryReadOnly, "the policies of this server are set by its operator"));
    }
    Ok(())
}
