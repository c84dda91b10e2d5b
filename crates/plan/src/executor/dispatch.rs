//! One call of a skill: guarded by a timer of our own, a panic caught, its answer fit for the journal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::limits;
use macp_plan_core::skill::Catalog;
use macp_wire::canonical;
use serde_json::{Map, Value};
use tokio::task::AbortHandle;
use tracing::Instrument;

use super::secrecy::{self, Noted};
use crate::memory::{self, Claim};
use crate::outbound::{Http, Open};
use crate::registry::Registry;
use crate::result::SECRET_WITHHELD;
use crate::secrets::{Allowed, Granted, REFERENCE, Secrets};
use crate::shares;
use crate::skill::{Call, Observation};
use crate::skills::{document, exchange};

/// How long after a skill's own timer ours goes off.
const GUARD: Duration = Duration::from_millis(limits::GUARD_MS);

/// Longest message and longest text of the details that are told of a call. Longer ones say nothing more to people.
const MESSAGE_BYTES_MAX: usize = 4 * 1_024;
const DETAILS_BYTES_MAX: usize = 16 * 1_024;

/// What is to be called, and with what.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    /// Whose run makes the call.
    pub(super) agent_id: Arc<str>,
    pub(super) skill_id: String,
    pub(super) skill_version: String,
    pub(super) parameters: Arc<Map<String, Value>>,
    pub(super) timeout: Duration,
    pub(super) effect_keys: Vec<String>,
    /// Names of the secrets that the plan itself mentions.
    pub(super) secrets_named: BTreeSet<String>,
    pub(super) random_seed: u64,
}

/// Ends a call that nobody waits for any more.
struct EndOnDrop(AbortHandle);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the call. It runs as a task of its own, so that a panic ends that task and nothing else, and one that keeps
/// its thread busy does not keep our timer from going off.
///
/// The memory of its answer is reserved under the claim, for as long as the observation is worked on.
pub(super) async fn call(
    dispatch: Dispatch,
    registry: &Registry,
    secrets: Arc<dyn Secrets>,
    claim: &Arc<Claim>,
) -> Observation {
    let Dispatch { agent_id, skill_id, skill_version, parameters, timeout, effect_keys, secrets_named, random_seed } =
        dispatch;
    let named = format!("{skill_id} {skill_version}");
    let Some(skill) = registry.callable(&skill_id, &skill_version) else {
        return Observation::new(Cause::SkillNotFound, format!("{named} is not registered"));
    };
    if !registry.skill(&skill_id, &skill_version).is_some_and(|registration| registration.enabled) {
        return Observation::new(Cause::SkillDisabled, format!("{named} is switched off"));
    }
    // A run can outlive the settings it was admitted under.
    if let Some(permission) = registry.withheld(skill.metadata()) {
        return Observation::new(Cause::NotAllowed, format!("{named} needs the permission `{permission}`"));
    }
    if let Some(name) = secrecy::named(&parameters).difference(&secrets_named).next() {
        let told = format!("an output mentions `{REFERENCE}{name}`; only a plan itself may name a secret");
        return Observation::new(Cause::InputInvalid, told).with_detail(SECRET_WITHHELD, name.as_str());
    }
    let client = registry.client_of(skill.metadata()).cloned();
    // A short secret can be found in what has nothing to do with it; what is left of that is not for others.
    if client.is_some()
        && let Some(name) = secrecy::marked(&parameters).first()
    {
        let told = format!("the secret `{name}` was taken out of an output that would be sent on");
        return Observation::new(Cause::InputInvalid, told).with_detail(SECRET_WITHHELD, name.as_str());
    }
    let (entrusted, bindings) = (registry.entrusted(&skill_id), registry.bindings());
    let work = async move {
        let secrets = Noted::new(&*secrets);
        let allowed = Allowed { named: &secrets_named, entrusted: &entrusted };
        let acted = AtomicBool::new(false);
        let open = client.as_ref().map(|client| Open { client, acted: &acted });
        let http = Http::new(open, &secrets, allowed, &effect_keys, timeout);
        let granted = Granted { secrets: &secrets, allowed, bindings: &bindings };
        let effect_keys = &effect_keys;
        let call = Call { parameters: &parameters, timeout, effect_keys, secrets: &granted, http, random_seed };
        let mut observation = skill.call(call).await;
        // What a skill reports is about the whole call: that its last request did nothing says nothing of the others.
        if acted.into_inner() && observation.cause.proves_no_effect() {
            observation.cause = observation.cause.unproven();
            observation.message.insert_str(0, "after a request that may have taken effect, ");
        }
        reserve(&observation).await;
        secrets.scrub(observation)
    };
    let work = memory::within(Arc::clone(claim), shares::in_name_of(agent_id, work));
    let mut task = tokio::spawn(work.in_current_span());
    let _end = EndOnDrop(task.abort_handle());
    let guard = timeout.saturating_add(GUARD);
    let observation = tokio::select! {
        biased;
        ended = &mut task => match ended {
            Ok(observation) => observation,
            // The panic was reported where it happened; its text may hold anything.
            Err(_panicked) => Observation::new(Cause::Internal, format!("{named} panicked")),
        },
        () = claim.elapsed(guard) => {
            Observation::new(Cause::GuardTimeout, format!("{named} did not answer within {guard:?}"))
        }
    };
    fit(checked(observation, registry, &skill_id, &skill_version))
}

/// Reserves memory for an output that its skill made without doing so.
async fn reserve(observation: &Observation) {
    let Some(claim) = memory::current().filter(|claim| !claim.has_work()) else { return };
    let bytes = observation.output.as_ref().map(document::bytes_of).unwrap_or_default();
    if bytes > exchange::memory_of(0) {
        claim.work(bytes).await;
    }
}

/// A success must have the shape the skill promises, and everything a shape the journal can hold.
fn checked(mut observation: Observation, registry: &Registry, skill_id: &str, skill_version: &str) -> Observation {
    let success = observation.cause.is_success();
    let Some(output) = observation.output.take() else { return observation };
    let problem = match document::settle(output) {
        Err(unfit) => unfit.to_string(),
        Ok(output) => match registry.check_output(skill_id, skill_version, &output) {
            Err(place) if success => place,
            _ => {
                observation.output = Some(output);
                return observation;
            }
        },
    };
    // Where a call failed anyway, its failure says more than that what came with it cannot be kept.
    if success {
        observation.cause = Cause::OutputMismatch;
        observation.message = format!("the output of {skill_id} is not as it promises: {problem}");
    }
    observation
}

/// Cuts what stands beside the output to what the journal can hold.
fn fit(mut observation: Observation) -> Observation {
    observation.usage = observation.usage.map(Usage::exact);
    observation.retry_after_ms = observation.retry_after_ms.map(|hint| hint.min(canonical::INTEGER_MAX));
    if observation.message.len() > MESSAGE_BYTES_MAX {
        let end = observation.message.floor_char_boundary(MESSAGE_BYTES_MAX);
        observation.message.truncate(end);
        observation.message.push('…');
    }
    let mut room = DETAILS_BYTES_MAX;
    observation.details.retain(|name, value| match document::size(value) {
        Ok(bytes) if bytes + name.len() <= room => {
            room -= bytes + name.len();
            true
        }
        _ => false,
    });
    observation
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_journal_cannot_hold_is_cut() {
        let usage = Usage { requests: u64::MAX, ..Usage::default() };
        let observation = Observation::new(Cause::Success, "é".repeat(10_000))
            .with_usage(usage)
            .with_retry_after_ms(Some(u64::MAX))
            .with_detail("fine", 1)
            .with_detail("huge", "x".repeat(DETAILS_BYTES_MAX + 1))
            .with_detail("inexact", u64::MAX);
        let fitted = fit(observation);
        assert_eq!(fitted.usage.unwrap().requests, canonical::INTEGER_MAX);
        assert_eq!(fitted.retry_after_ms, Some(canonical::INTEGER_MAX));
        assert_eq!(fitted.details, *json!({"fine": 1}).as_object().unwrap());
        assert!(fitted.message.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8() && fitted.message.ends_with('…'));
    }
}
