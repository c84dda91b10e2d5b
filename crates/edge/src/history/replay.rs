//! ReplaySession: every decision taken again, step by step, and the report last.

use std::sync::Arc;

use macp_archive::{Replay, Source};
use macp_kernel::replay::{self as kernel, Options, Report, Step, Versions};
use macp_ledger::{History, Store};
use macp_wire::history::v1::{
    Divergence, ReplayReport, ReplaySessionRequest, ReplaySessionResponse, ReplayStep, ReplayVerdict,
    replay_session_response::Event,
};
use tonic::Status;

use super::{failed, stream};
use crate::access::Access;
use crate::context::Context;
use crate::outbound::{BUFFER, BlockingSink, Outbound};
use crate::status;

pub(super) async fn replay(
    ctx: &Arc<Context>,
    access: &Access,
    request: ReplaySessionRequest,
) -> Result<Outbound<ReplaySessionResponse>, Status> {
    let given = |version: String| (!version.is_empty()).then_some(version);
    let options = Options {
        versions: Versions {
            mode_version: given(request.mode_version),
            configuration_version: given(request.configuration_version),
            policy_version: given(request.policy_version),
        },
        what_if: request.what_if,
        // Each mode is vouched for as far as its class grants, and the report says how far that is.
        semantic: false,
    };
    stream(ctx, access, request.session_id, BUFFER, move |store, session_id, sink| {
        run(store, session_id, options, sink)
    })
    .await
}

fn run(
    store: &dyn Store,
    session_id: &str,
    options: Options,
    sink: &BlockingSink<ReplaySessionResponse>,
) -> Result<(), Status> {
    let history = History::open(store, session_id).map_err(|failure| failed(&failure))?;
    let history = history.ok_or_else(|| status::session_not_found(session_id))?;
    let what_if = options.what_if;
    // The replay cannot be stopped half way; once nobody listens it just tells nobody.
    let mut listening = Ok(());
    let replay = macp_archive::replay(&mut Source::Store(history), options, &mut |step| {
        if listening.is_ok() {
            listening = sink.send(response(Event::Step(to_wire(step))));
        }
    });
    listening?;
    sink.send(response(Event::Report(report(replay, what_if)?)))
}

fn response(event: Event) -> ReplaySessionResponse {
    ReplaySessionResponse { event: Some(event) }
}

fn to_wire(step: &Step) -> ReplayStep {
    ReplayStep {
        sequence: step.sequence,
        ordinal: step.ordinal,
        accepted_at_unix_ms: step.accepted_at_ms,
        message_type: step.message_type.clone(),
        message_id: step.message_id.clone(),
        sender: step.sender.clone(),
        state: step.state.to_wire().into(),
    }
}

fn report(replay: Replay, what_if: bool) -> Result<ReplayReport, Status> {
    Ok(match replay {
        Replay::Match(found) => {
            let same = if what_if {
                "under the versions asked for, every decision comes out the same; this is a what-if"
            } else {
                "every decision comes out the same"
            };
            let message = std::iter::once(same).chain(found.notes.iter().map(String::as_str)).collect::<Vec<_>>();
            finding(ReplayVerdict::Match, message.join("; "), what_if, Some(found))
        }
        Replay::Diverged { divergence, report } => ReplayReport {
            divergence: Some(diverged(&divergence)),
            ..finding(ReplayVerdict::Diverged, divergence.to_string(), what_if, report)
        },
        Replay::Refused(reason) => finding(ReplayVerdict::Refused, reason, what_if, None),
        Replay::Failed(unreadable) => return Err(failed(&unreadable)),
    })
}

fn finding(verdict: ReplayVerdict, message: String, what_if: bool, report: Option<Report>) -> ReplayReport {
    let finding = ReplayReport { verdict: verdict.into(), message, what_if, ..ReplayReport::default() };
    match report {
        None => finding,
        Some(report) => ReplayReport {
            determinism_class: report.determinism.as_str().to_owned(),
            entries: report.entries,
            state: report.state.to_wire().into(),
            resolution: report.resolution.unwrap_or_default(),
            notes: report.notes,
            ..finding
        },
    }
}

fn diverged(divergence: &kernel::Divergence) -> Divergence {
    Divergence {
        sequence: divergence.sequence,
        ordinal: divergence.ordinal,
        field: divergence.field.clone(),
        expected: divergence.expected.clone(),
        found: divergence.found.clone(),
    }
}
