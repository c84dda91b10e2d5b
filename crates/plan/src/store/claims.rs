//! Claims on effects (AOS-78): who may dispatch the effect behind a key. Exactly one run may at a time, and none again
//! once it is done.
//!
//! ```text
//!  (no claim) ──claim──▶ claimed ──finish──▶ finished    the result is used again
//!                 ▲         └──────fail────▶ failed ──┐
//!                 └───────── next generation ─────────┘  another run may try
//! ```
//!
//! A claim under which nothing was sent and nothing will be is as good as failed.
//!
//! A document can only be created by one writer, but replaced by any. So a claim is replaced by its owner alone, and
//! taking over a failed one creates a document of the next generation. A claim that cannot be written or read is an
//! error: nothing is dispatched.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Output, Reused};
use serde::{Deserialize, Serialize};

use super::blocking;
use super::documents::{CLAIMS, damaged, decode, key, put_if_absent, replace};
use super::error::StoreError;
use super::holder::{self, Holder};

/// Generations count down in keys, so that the latest is the first a store lists.
const GENERATION_FIRST: u32 = u32::MAX;

/// The claims of a store.
#[derive(Clone, Debug)]
pub struct Claims {
    pub(super) store: Arc<dyn Store>,
}

/// What a run wants to dispatch.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    pub effect_key: String,
    pub request_digest: Digest,
    pub run_id: String,
    pub step_id: String,
    pub scope: Scope,
}

/// Among which runs a claim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    /// Only within the run itself: a full replay calls out although the original has done so (AOS-89).
    Run,
}

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Claim {
    /// The run may dispatch.
    New,
    /// The run claimed this before, and has not said what came of it: it is recovering.
    Held,
    /// It was done; this is the result to use.
    Duplicate { run_id: String, done: Done },
    /// The key was claimed for another request. Nothing may be dispatched under it.
    Conflict { run_id: String },
    /// Another run claimed it, and what came of it is not known: that run is still under way, or in doubt.
    Unfinished { run_id: String },
}

/// What became of an effect that took place.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// How the step ended; none if only an operator knows that it was done.
    #[serde(flatten)]
    pub ended: Option<Reused>,
    #[serde(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Claimed,
    Finished,
    Failed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) effect_key: String,
    pub(super) run_id: String,
    pub(super) step_id: String,
    pub(super) request_digest: Digest,
    pub(super) state: State,
    #[serde(flatten)]
    pub(super) done: Done,
}

impl Claims {
    /// Claims an effect. Of any number of runs that claim one at the same time, one gets [`Claim::New`].
    pub async fn claim(&self, request: ClaimRequest) -> Result<Claim, StoreError> {
        blocking(&self.store, move |store| claim(store, &request)).await
    }

    /// The claimed effect took place. Only after the journal has its result, since the journal is what is believed.
    pub async fn finish(&self, request: ClaimRequest, done: Done) -> Result<(), StoreError> {
        blocking(&self.store, move |store| end(store, &request, State::Finished, done)).await
    }

    /// The claimed effect did not come about, and another run may try. Only after the journal says so.
    pub async fn fail(&self, request: ClaimRequest) -> Result<(), StoreError> {
        blocking(&self.store, move |store| end(store, &request, State::Failed, Done::default())).await
    }
}

fn claim(store: &dyn Store, request: &ClaimRequest) -> Result<Claim, StoreError> {
    let prefix = prefix(request);
    let wanted = Document {
        effect_key: request.effect_key.clone(),
        run_id: request.run_id.clone(),
        step_id: request.step_id.clone(),
        request_digest: request.request_digest.clone(),
        state: State::Claimed,
        done: Done::default(),
    };
    let (mut generation, mut found) = match latest(store, &prefix)? {
        Some((generation, found)) => (generation, Some(found)),
        None => (GENERATION_FIRST, None),
    };
    // Each turn but the last met a failed claim, so this ends with the failed claims.
    loop {
        if let Some(found) = &found {
            if let Some(answer) = judge(store, request, found)? {
                return Ok(answer);
            }
            let exhausted = || damaged(CLAIMS, &prefix, "it failed more often than can be counted".to_owned());
            generation = generation.checked_sub(1).ok_or_else(exhausted)?;
        }
        found = put_if_absent(store, CLAIMS, &format!("{prefix}{generation:010}"), &wanted)?;
        if found.is_none() {
            return Ok(Claim::New);
        }
    }
}

/// What a claim that is there means to a request; none if it may be taken over.
fn judge(store: &dyn Store, request: &ClaimRequest, found: &Document) -> Result<Option<Claim>, StoreError> {
    let run_id = found.run_id.clone();
    if found.request_digest != request.request_digest {
        // A claim is durable before the journal says what led to it. A run that went down between the two asks the
        // world again, and may come back with another request although nothing was sent under its first one.
        let unsent = found.state == State::Claimed && holder::never_sent(store, &request.run_id, found)?;
        return Ok(if unsent { None } else { Some(Claim::Conflict { run_id }) });
    }
    Ok(match found.state {
        State::Finished => Some(Claim::Duplicate { run_id, done: found.done.clone() }),
        State::Failed => None,
        State::Claimed if run_id == request.run_id => Some(Claim::Held),
        State::Claimed => match holder::look(store, &run_id, &found.step_id)? {
            Holder::Done(done) => Some(Claim::Duplicate { run_id, done }),
            Holder::NotDone => None,
            Holder::Unknown => Some(Claim::Unfinished { run_id }),
        },
    })
}

fn end(store: &dyn Store, request: &ClaimRequest, state: State, done: Done) -> Result<(), StoreError> {
    let prefix = prefix(request);
    let not_held = || StoreError::NotHeld { effect_key: request.effect_key.clone(), run_id: request.run_id.clone() };
    let (generation, found) = latest(store, &prefix)?.ok_or_else(not_held)?;
    if found.run_id != request.run_id {
        return Err(not_held());
    }
    let ended = Document { state, done, ..found };
    replace(store, CLAIMS, &format!("{prefix}{generation:010}"), &ended)
}

fn prefix(request: &ClaimRequest) -> String {
    let scope = match request.scope {
        Scope::All => "",
        Scope::Run => &request.run_id,
    };
    format!("{}/", key(&[scope, &request.effect_key]))
}

fn latest(store: &dyn Store, prefix: &str) -> Result<Option<(u32, Document)>, StoreError> {
    let first = store.documents(CLAIMS, Some(prefix), 1)?.pop();
    let Some(document) = first.filter(|document| document.key.starts_with(prefix)) else {
        return Ok(None);
    };
    let generation = document.key[prefix.len()..].parse();
    let generation = generation.map_err(|error: std::num::ParseIntError| {
        damaged(CLAIMS, &document.key, format!("its generation is unreadable: {error}"))
    })?;
    Ok(Some((generation, decode(CLAIMS, &document.key, &document.bytes)?)))
}
