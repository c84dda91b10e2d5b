//! `macp replay --what-if-policy`: a recorded session under a policy it was not bound to.

use std::path::Path;

use anyhow::{Context, bail};
use macp_archive::{Source, what_if};
use macp_kernel::policy::{Policy, validate_candidate};
use macp_wire::v1::what_if_entry_outcome::Kind;
use macp_wire::v1::{PolicyDescriptor, WhatIfEntry, WhatIfEntryOutcome, WhatIfOutcome, WhatIfReplayResponse};
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::settings::read_policy;
use crate::source::{self, Place};
use crate::text::clean;
use crate::view::{state_name, text_or_base64};

pub(super) async fn run(place: Place, policy: &Path, output: &Output) -> anyhow::Result<Finding> {
    let candidate = read_policy(policy)?;
    let response = match place {
        Place::Server { server, session_id } => {
            source::connect(&server, &session_id).await?.what_if(&session_id, candidate).await?
        }
        Place::Directory { directory, session_id } => {
            let store = source::open_store(&directory)?;
            local(&candidate, || Ok(Source::Store(source::open_history(&store, &session_id)?)))?
        }
        Place::File(path) => local(&candidate, || Ok(source::open_file(&path)?))?,
    };
    report(&response, output)?;
    Ok(Finding::from_ok(response.first_divergence.is_none()))
}

/// The same answer without a server.
fn local<'a>(
    candidate: &PolicyDescriptor,
    open: impl Fn() -> anyhow::Result<Source<'a>>,
) -> anyhow::Result<WhatIfReplayResponse> {
    let policy: Policy = validate_candidate(candidate).context("the policy cannot be used")?;
    let first = open()?.next_page()?.into_iter().next().context("the history is empty")?;
    let mode = first.1.binding.map(|binding| binding.mode).unwrap_or_default();
    if !policy.covers(&mode) {
        bail!("the policy is for mode {:?}, the session's is {mode:?}", candidate.mode);
    }
    // Of one's own file, on one's own machine: as long as it is.
    Ok(what_if(&mut open()?, policy, usize::MAX)?)
}

fn report(response: &WhatIfReplayResponse, output: &Output) -> anyhow::Result<()> {
    let WhatIfReplayResponse { candidate_policy_id, recorded_policy_id, recorded, candidate, .. } = response;
    let differing = || response.entries.iter().filter(|entry| entry.recorded != entry.candidate);
    if output.is_json() {
        output.value(&json!({ "what_if": {
            "recorded_policy": recorded_policy_id,
            "candidate_policy": candidate_policy_id,
            "first_divergence": response.first_divergence,
            "recorded": recorded.as_ref().map(outcome_json),
            "candidate": candidate.as_ref().map(outcome_json),
            "denials": response.denials.iter().map(|it| json!({
                "index": it.history_index,
                "message_id": it.message_id,
                "details": text_or_base64(&it.details),
            })).collect::<Vec<_>>(),
            "differing": differing().map(entry_json).collect::<Vec<_>>(),
        }}))?;
        return Ok(());
    }
    let verdict = match response.first_divergence {
        None => format!("{}: every message would have ended the same", output.paint(Paint::Good, "SAME")),
        Some(index) => format!("{} from ordinal {} on", output.paint(Paint::Bad, "DIFFERENT"), index + 1),
    };
    output.line(verdict)?;
    for entry in differing() {
        let (id, kind) = (clean(&entry.message_id), clean(&entry.message_type));
        let [recorded, candidate] =
            [&entry.recorded, &entry.candidate].map(|outcome| outcome.as_ref().map(words).unwrap_or_default());
        let ordinal = entry.history_index + 1;
        output.line(format!("  ordinal {ordinal} {kind} {id}: was {recorded}, would be {candidate}"))?;
    }
    for denial in &response.denials {
        let details = clean(&String::from_utf8_lossy(&denial.details));
        output.line(format!("  denied {}: {details}", clean(&denial.message_id)))?;
    }
    for (name, policy, outcome) in
        [("recorded", recorded_policy_id, recorded), ("candidate", candidate_policy_id, candidate)]
    {
        let name = output.paint(Paint::Faint, format!("{name:<10}"));
        let outcome = outcome.clone().unwrap_or_default();
        let state = output.paint(Paint::Bold, state_name(outcome.state()));
        let by = match outcome.resolved_by_message_id.as_str() {
            "" => String::new(),
            id => format!(" by {} {}", clean(&outcome.resolved_by_message_type), clean(id)),
        };
        output.line(format!("{name} {state}{by}, under {}", clean(policy)))?;
    }
    Ok(())
}

fn outcome_json(outcome: &WhatIfOutcome) -> Value {
    let resolved = !outcome.resolved_by_message_id.is_empty();
    json!({
        "state": state_name(outcome.state()),
        "resolved_by": resolved.then(|| json!({
            "index": outcome.resolved_by_history_index,
            "message_id": outcome.resolved_by_message_id,
            "type": outcome.resolved_by_message_type,
        })),
    })
}

fn entry_json(entry: &WhatIfEntry) -> Value {
    json!({
        "index": entry.history_index,
        "message_id": entry.message_id,
        "type": entry.message_type,
        "recorded": entry.recorded.as_ref().map(words),
        "candidate": entry.candidate.as_ref().map(words),
    })
}

fn words(outcome: &WhatIfEntryOutcome) -> String {
    match outcome.kind() {
        Kind::Applied => format!("accepted ({})", state_name(outcome.state())),
        Kind::NotOpen => "too late".to_owned(),
        Kind::Refused => format!("refused {}", clean(&outcome.error_code)),
        Kind::NoSession => "without a session".to_owned(),
        Kind::Unspecified => "unknown".to_owned(),
    }
}
