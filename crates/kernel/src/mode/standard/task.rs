//! Task: the initiator hands out one task, someone accepts it and reports how it went.
//!
//! ```text
//!              TaskRequest          TaskAccept            TaskComplete, TaskFail         Commitment
//!  no task ───────────────▶ open ───────────────▶ assigned ─────────────────────▶ reported ──────▶ resolved
//!                            ▲  TaskReject of the  │
//!                            └──── assignee ◀──────┘ (if the policy allows another one)
//! ```
//!
//! Declining an open task concerns the decliner alone. If it was asked for by name, a negative Commitment may follow.
//!
//! Structural-only: replay vouches for who was asked, who took it and that a report was made, not for the work. Inside
//! the determinism boundary: the roster, the bound policy, the accepted envelopes, their order, senders and payloads.
//! Outside: time, also the deadline a request states, and how the work was done.

#[cfg(test)]
mod tests;

use macp_wire::modes::task::v1::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload, TaskUpdatePayload,
};
use macp_wire::v1::Envelope;
use serde_json::json;
use smol_str::SmolStr;

use super::{
    COMMITMENT, Place, authorize_initiator, authorize_participant, check_not_empty, check_own_name, commitment, decode,
    find_place, names, sender_place, unknown_type,
};
use crate::mode::{Determinism, Mode, Response, Spec, Start, View};
use crate::policy::evaluate;
use crate::{Profile, Rejection, SESSION_START};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    request: Option<Request>,
    assignee: Option<Place>,
    /// How each participant rejected the task, if it did; nobody does so twice.
    rejected: Box<[Option<Rejected>]>,
    /// Who rejected, in order.
    rejections: Vec<Place>,
    /// Whether someone gave the task up after accepting it.
    given_up: bool,
    updates: Vec<Update>,
    report: Option<Report>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    task_id: SmolStr,
    requested_assignee: Option<Place>,
    deadline_unix_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejected {
    Unassigned,
    WhileAssigned,
}

/// Progress is kept if it is a number; nothing depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    sender: Place,
    progress: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    assignee: Place,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Complete { has_output: bool },
    Fail { retryable: bool },
}

#[derive(Debug)]
pub enum Change {
    Requested(Request),
    Accepted { assignee: Place },
    Rejected { sender: Place },
    Updated(Update),
    Reported(Report),
}

#[derive(Debug)]
pub enum Task {}

impl Mode for Task {
    type State = State;
    type Change = Change;

    const SPEC: Spec = Spec {
        profile: Profile::Standard,
        name: "macp.mode.task.v1",
        aliases: &[],
        version: "1.0.0",
        title: "Task Mode",
        description: "One task is handed out, accepted and reported on; one commitment binds the outcome.",
        determinism: Determinism::StructuralOnly,
        participant_model: "orchestrated",
        message_types: &[
            SESSION_START,
            "TaskRequest",
            "TaskAccept",
            "TaskReject",
            "TaskUpdate",
            "TaskComplete",
            "TaskFail",
            COMMITMENT,
        ],
        terminal_message_types: &[COMMITMENT],
        commits_by_policy: true,
    };

    fn start(start: &Start<'_>) -> Result<State, Rejection> {
        if !start.roster.iter().any(|name| name != start.initiator) {
            return Err(Rejection::invalid("a task session needs a participant other than its initiator"));
        }
        Ok(State { rejected: vec![None; start.roster.len()].into_boxed_slice(), ..State::default() })
    }

    fn authorize(view: &View<'_>, _state: &State, envelope: &Envelope) -> Result<(), Rejection> {
        match envelope.message_type.as_str() {
            COMMITMENT => commitment::authorize(view, envelope),
            "TaskRequest" => authorize_initiator(view, envelope),
            _ => authorize_participant(view, envelope),
        }
    }

    fn judge(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
        match envelope.message_type.as_str() {
            "TaskRequest" => judge_request(view, state, envelope),
            "TaskAccept" => judge_accept(view, state, envelope),
            "TaskReject" => judge_reject(view, state, envelope),
            "TaskUpdate" => judge_update(view, state, envelope),
            "TaskComplete" => judge_complete(view, state, envelope),
            "TaskFail" => judge_fail(view, state, envelope),
            COMMITMENT => judge_commitment(view, state, envelope),
            _ => Err(unknown_type("task", envelope)),
        }
    }

    fn apply(state: &mut State, change: Change) {
        match change {
            Change::Requested(request) => state.request = Some(request),
            Change::Accepted { assignee } => state.assignee = Some(assignee),
            Change::Rejected { sender } => {
                // Whoever rejects while there is an assignee is the assignee.
                let rejected = match state.assignee.take() {
                    Some(_) => Rejected::WhileAssigned,
                    None => Rejected::Unassigned,
                };
                state.given_up |= rejected == Rejected::WhileAssigned;
                state.rejected[usize::from(sender)] = Some(rejected);
                state.rejections.push(sender);
            }
            Change::Updated(update) => state.updates.push(update),
            Change::Reported(report) => state.report = Some(report),
        }
    }

    fn describe(view: &View<'_>, state: &State) -> serde_json::Value {
        let names = names(view);
        let name = |place: Place| names[usize::from(place)];
        let task_id = state.request.as_ref().map(|request| request.task_id.as_str());
        let task = state.request.as_ref().map(|request| {
            json!({
                "task_id": task_id,
                "requested_assignee": request.requested_assignee.map_or("", name),
                "deadline_unix_ms": request.deadline_unix_ms,
                "requester": view.initiator,
            })
        });
        let rejections = state.rejections.iter().map(|place| {
            let while_assigned = state.rejected[usize::from(*place)] == Some(Rejected::WhileAssigned);
            json!({"task_id": task_id, "assignee": name(*place), "while_assigned": while_assigned})
        });
        let updates = state
            .updates
            .iter()
            .map(|update| json!({"task_id": task_id, "progress": update.progress, "sender": name(update.sender)}));
        let report = state.report.as_ref().map(|report| {
            let assignee = name(report.assignee);
            match report.outcome {
                Outcome::Complete { .. } => json!({"Complete": {"task_id": task_id, "assignee": assignee}}),
                Outcome::Fail { retryable } => {
                    json!({"Fail": {"task_id": task_id, "assignee": assignee, "retryable": retryable}})
                }
            }
        });
        json!({
            "task": task,
            "active_assignee": state.assignee.map(name),
            "rejections": rejections.collect::<Vec<_>>(),
            "updates": updates.collect::<Vec<_>>(),
            "terminal_report": report,
        })
    }
}

fn judge_request(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskRequestPayload = decode(envelope)?;
    if state.request.is_some() {
        return Err(Rejection::invalid("a task session has one TaskRequest, and this one has had it"));
    }
    check_not_empty("task_id", &payload.task_id)?;
    let requested_assignee = match payload.requested_assignee.as_str() {
        "" => None,
        name => Some(
            find_place(view.roster, name)
                .ok_or_else(|| Rejection::invalid("requested_assignee is neither empty nor a participant"))?,
        ),
    };
    Ok(Response::Persist(Change::Requested(Request {
        task_id: payload.task_id.into(),
        requested_assignee,
        deadline_unix_ms: payload.deadline_unix_ms,
    })))
}

fn judge_accept(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskAcceptPayload = decode(envelope)?;
    let request = state.find(&payload.task_id)?;
    if state.assignee.is_some() {
        return Err(Rejection::invalid("the task is assigned already"));
    }
    let sender = sender_place(view, envelope)?;
    state.check_never_rejected(sender)?;
    if state.given_up && !view.policy.rules.allow_reassignment_on_reject {
        return Err(evaluate::reassignment_denied());
    }
    check_own_name("assignee", &payload.assignee, envelope)?;
    request.check_eligible(view, sender)?;
    Ok(Response::Persist(Change::Accepted { assignee: sender }))
}

fn judge_reject(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskRejectPayload = decode(envelope)?;
    let request = state.find(&payload.task_id)?;
    let sender = sender_place(view, envelope)?;
    match state.assignee {
        Some(assignee) if assignee != sender => {
            return Err(Rejection::invalid("the task is assigned, so only its assignee may reject it"));
        }
        Some(_) if !view.policy.rules.allow_reassignment_on_reject => return Err(evaluate::reassignment_denied()),
        Some(_) | None => {}
    }
    check_own_name("assignee", &payload.assignee, envelope)?;
    if state.assignee.is_none() {
        request.check_eligible(view, sender)?;
    }
    state.check_never_rejected(sender)?;
    Ok(Response::Persist(Change::Rejected { sender }))
}

fn judge_update(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskUpdatePayload = decode(envelope)?;
    let sender = state.check_at_work(view, envelope, &payload.task_id)?;
    let progress = Some(payload.progress).filter(|progress| progress.is_finite());
    Ok(Response::Persist(Change::Updated(Update { sender, progress })))
}

fn judge_complete(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskCompletePayload = decode(envelope)?;
    let assignee = state.check_at_work(view, envelope, &payload.task_id)?;
    check_own_name("assignee", &payload.assignee, envelope)?;
    let outcome = Outcome::Complete { has_output: !payload.output.is_empty() };
    Ok(Response::Persist(Change::Reported(Report { assignee, outcome })))
}

fn judge_fail(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload: TaskFailPayload = decode(envelope)?;
    let assignee = state.check_at_work(view, envelope, &payload.task_id)?;
    check_own_name("assignee", &payload.assignee, envelope)?;
    let outcome = Outcome::Fail { retryable: payload.retryable };
    Ok(Response::Persist(Change::Reported(Report { assignee, outcome })))
}

fn judge_commitment(view: &View<'_>, state: &State, envelope: &Envelope) -> Result<Response<Change>, Rejection> {
    let payload = commitment::read(view, envelope)?;
    let declined_by_name = !payload.outcome_positive && state.is_declined_by_requested();
    if state.report.is_none() && !declined_by_name {
        return Err(Rejection::invalid(
            "a Commitment needs a TaskComplete or TaskFail before it, or must be negative after the requested assignee \
             declined",
        ));
    }
    let has_output =
        state.report.as_ref().is_some_and(|report| report.outcome == Outcome::Complete { has_output: true });
    evaluate::task(view.policy, has_output, payload.outcome_positive)?;
    Ok(Response::Resolve(envelope.payload.clone()))
}

impl Request {
    fn check_eligible(&self, view: &View<'_>, sender: Place) -> Result<(), Rejection> {
        match self.requested_assignee {
            Some(requested) if requested == sender => Ok(()),
            Some(_) => Err(Rejection::forbidden("the task is meant for another participant")),
            None if find_place(view.roster, view.initiator) == Some(sender) => {
                Err(Rejection::forbidden("the initiator may take its own task only if it asked for itself by name"))
            }
            None => Ok(()),
        }
    }
}

impl State {
    /// The task, if it is the one meant.
    fn find(&self, task_id: &str) -> Result<&Request, Rejection> {
        check_not_empty("task_id", task_id)?;
        let request = self.request.as_ref().ok_or_else(|| Rejection::invalid("there is no task yet"))?;
        if request.task_id != task_id {
            return Err(Rejection::invalid(format!("the task of this session is {:?}", request.task_id)));
        }
        Ok(request)
    }

    fn check_never_rejected(&self, sender: Place) -> Result<(), Rejection> {
        if self.rejected[usize::from(sender)].is_some() {
            return Err(Rejection::invalid("the sender has rejected the task, which is final"));
        }
        Ok(())
    }

    /// The sender's place, if it is the one at work on the task.
    fn check_at_work(&self, view: &View<'_>, envelope: &Envelope, task_id: &str) -> Result<Place, Rejection> {
        self.find(task_id)?;
        if self.report.is_some() {
            return Err(Rejection::forbidden("the final report on the task has been made"));
        }
        let sender = sender_place(view, envelope)?;
        if self.assignee != Some(sender) {
            return Err(Rejection::forbidden("the sender is not assigned to the task"));
        }
        Ok(sender)
    }

    /// Whether the one asked for by name declined before anyone was assigned. Nobody else could be, then.
    fn is_declined_by_requested(&self) -> bool {
        let requested = self.request.as_ref().and_then(|request| request.requested_assignee);
        self.assignee.is_none()
            && requested.is_some_and(|place| self.rejected[usize::from(place)] == Some(Rejected::Unassigned))
    }
}
