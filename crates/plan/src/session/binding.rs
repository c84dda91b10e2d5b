//! Decides from a session's accepted history alone whether the plan it committed to may run (AOS-106, 107).
//!
//! ```text
//!  history ──▶ last entry: RESOLVED by a positive Commitment that names one digest
//!          ──▶ some entry: the plan with that digest, or a reference to it
//!          ──▶ settings: its agent and skills are within the commitment's authority_scope, or, without scopes, its
//!              agent takes part in the session
//! ```

use macp_ledger::{Failure, History, ReadError, Store, record};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::SessionLink;
use macp_plan_core::plan::FrozenPlan;
use macp_wire::history::v1::{Binding, Entry, entry};
use macp_wire::v1::{CommitmentPayload, CommitmentRef, Envelope, SessionState};
use serde_json::Value;

use super::extract::{self, Candidate, Committed};
use super::refusal::{Error, Reason, Refusal};
use super::settings::SessionSettings;
use crate::store::plans;

/// A plan that a session committed to, with everything a run is bound to by it.
#[derive(Clone, Debug)]
pub struct Bound {
    pub plan: FrozenPlan,
    pub link: SessionLink,
    /// Who started the session.
    pub coordinator: String,
    /// Who sent the Commitment.
    pub committer: String,
    pub participants: Vec<String>,
    pub commitment: CommitmentPayload,
}

/// The end of a resolved session, read without the rest of it.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) session_id: String,
    pub(super) coordinator: String,
    pub(super) committer: String,
    pub(super) commitment_hash: String,
    pub(super) names_a_plan: bool,
    pub(super) supersedes: Option<CommitmentRef>,
}

/// A plan that a session committed to, and everything that keeps it from running.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) bound: Bound,
    pub(super) refusals: Vec<Refusal>,
}

impl Judged {
    /// The plan, if nothing keeps it from running.
    pub(super) fn allowed(self) -> Result<Bound, Error> {
        if self.refusals.is_empty() { Ok(self.bound) } else { Err(Error::Refused(self.refusals)) }
    }
}

/// Binds the plan of a session, or says why it may not run. Blocks: `sessions` and `runs` are read.
pub fn bind(
    sessions: &dyn Store,
    runs: &dyn Store,
    session_id: &str,
    settings: &SessionSettings,
) -> Result<Bound, Error> {
    judge(sessions, runs, session_id, settings)?.allowed()
}

/// Finds the plan of a session and everything that keeps it from running. Where there is none to be found, or it is not
/// clear which, that is the error.
pub(super) fn judge(
    sessions: &dyn Store,
    runs: &dyn Store,
    session_id: &str,
    settings: &SessionSettings,
) -> Result<Judged, Error> {
    let Some(mut history) = History::open(sessions, session_id)? else {
        return Err(Error::refused(Reason::SessionNotFound, format!("there is no session {session_id:?}")));
    };
    if history.head().state != i32::from(SessionState::Resolved) {
        return Err(not_resolved(history.head().state));
    }
    let last = entry_at(sessions, session_id, history.head().sequence)?;
    let first = entry_at(sessions, session_id, 1)?;
    let (Some(last), Some(binding)) = (last, first.and_then(|first| first.binding)) else {
        // The history says what is wrong with it when it is read as a whole.
        return Err(drain(&mut history)?);
    };
    let (envelope, committed) = terminal_commitment(&binding, &last)?;
    let plan = extract::named(&committed.payload).map_err(refused).and_then(|digest| {
        let found = find(&mut history, session_id, &binding, &digest)?;
        resolve(found, &digest, runs)
    });
    let plan = match plan {
        // What was decided against is not looked for any further.
        Err(Error::Refused(_)) if !committed.positive => return Err(refused(not_positive())),
        plan => plan?,
    };
    let refusals = match committed.positive {
        true if settings.scopes.is_empty() => outside_session(&plan, &binding, settings),
        true => outside_scope(&plan, &committed.payload.authority_scope, settings),
        false => vec![not_positive()],
    };
    let bound = Bound {
        plan,
        link: SessionLink {
            session_id: session_id.to_owned(),
            commitment_hash: committed.hash,
            position: last.ordinal,
            mode_version: binding.mode_version,
            configuration_version: binding.configuration_version,
            policy_version: binding.policy_version,
        },
        coordinator: binding.initiator,
        committer: envelope.sender.clone(),
        participants: binding.participants,
        commitment: committed.payload,
    };
    Ok(Judged { bound, refusals })
}

/// What the end of a session says, if it was resolved by a Commitment that can be read. Two short reads: enough to
/// find out whether there is anything to do, and never enough to run a plan.
pub(super) fn look(sessions: &dyn Store, session_id: &str) -> Result<Option<Resolved>, Failure> {
    let Some(head) = sessions.head(session_id)?.filter(|head| head.state == i32::from(SessionState::Resolved)) else {
        return Ok(None);
    };
    let Some(last) = entry_at(sessions, session_id, head.sequence)? else {
        return Ok(None);
    };
    let Some(entry::Input::Envelope(envelope)) = last.input.filter(is_commitment) else {
        return Ok(None);
    };
    let Some(binding) = entry_at(sessions, session_id, 1)?.and_then(|first| first.binding) else {
        return Ok(None);
    };
    Ok(extract::commitment(binding.profile(), &envelope.payload).ok().map(|committed| Resolved {
        session_id: session_id.to_owned(),
        coordinator: binding.initiator,
        committer: envelope.sender,
        commitment_hash: committed.hash,
        names_a_plan: extract::names_a_plan(&committed.payload),
        supersedes: committed.payload.supersedes,
    }))
}

fn is_commitment(input: &entry::Input) -> bool {
    matches!(input, entry::Input::Envelope(envelope) if envelope.message_type == "Commitment")
}

/// One entry, unchecked; none where there is none that can be read.
fn entry_at(sessions: &dyn Store, session_id: &str, sequence: u64) -> Result<Option<Entry>, Failure> {
    let records = sessions.read(session_id, sequence.saturating_sub(1), 1, usize::MAX)?;
    let record = records.into_iter().find(|record| record.sequence == sequence);
    Ok(record.and_then(|record| record::open(&record.bytes).ok()))
}

fn terminal_commitment<'a>(binding: &Binding, last: &'a Entry) -> Result<(&'a Envelope, Committed), Error> {
    let resolved = last.terminal.as_ref().is_some_and(|terminal| terminal.state() == SessionState::Resolved);
    match &last.input {
        Some(entry::Input::Envelope(envelope)) if resolved && envelope.message_type == "Commitment" => {
            let committed = extract::commitment(binding.profile(), &envelope.payload).map_err(refused)?;
            Ok((envelope, committed))
        }
        Some(entry::Input::Envelope(envelope)) => {
            let message = format!("the session was ended by {:?} and not by a Commitment", envelope.message_type);
            Err(Error::refused(Reason::NotACommitment, message))
        }
        _ => Err(Error::refused(Reason::NotACommitment, "the session was not ended by a Commitment")),
    }
}

/// Reads the whole history, checked, and takes the first thing in it that has the digest; a plan rather than a word
/// about one.
fn find(
    history: &mut History<'_>,
    session_id: &str,
    binding: &Binding,
    digest: &Digest,
) -> Result<Option<Candidate>, Error> {
    let mut found = None;
    loop {
        let page = history.next_page()?;
        if page.is_empty() {
            return Ok(found);
        }
        for (_, entry) in &page {
            let Some(entry::Input::Envelope(envelope)) = &entry.input else { continue };
            if entry.sequence == 1 && envelope.session_id != session_id {
                let message = format!("the history kept for the session is that of session {:?}", envelope.session_id);
                return Err(Error::refused(Reason::SessionNotFound, message));
            }
            if matches!(found, Some(Candidate::Plan(_))) {
                continue;
            }
            if let Some(candidate) = extract::candidate(binding, envelope, digest)
                && (found.is_none() || matches!(candidate, Candidate::Plan(_)))
            {
                found = Some(candidate);
            }
        }
    }
}

fn resolve(found: Option<Candidate>, digest: &Digest, runs: &dyn Store) -> Result<FrozenPlan, Error> {
    let value: Value = match found {
        Some(Candidate::Plan(value)) => value,
        Some(Candidate::Reference { uri }) => match plans::text(runs, digest)? {
            Some((_, plan)) => plan,
            None => {
                let message = format!(
                    "the plan {digest} is in the session by reference only ({uri:?}), and it is not kept here; have it \
                     kept first, with `macp plan keep`"
                );
                return Err(Error::refused(Reason::PlanNotResolvable, message));
            }
        },
        None => {
            let message = format!(
                "no accepted message of the session has the plan {digest}: it belongs into the supporting_data of a \
                 Proposal or, as `{}`, into the SessionStart",
                extract::EXTENSION
            );
            return Err(Error::refused(Reason::PlanNotInHistory, message));
        }
    };
    let plan = FrozenPlan::from_value(value).map_err(|error| {
        Error::refused(Reason::PlanInvalid, format!("{digest} is what was committed to, and {error}"))
    })?;
    if plan.hash != *digest {
        let message = format!("the plan read as {digest} has the digest {}", plan.hash);
        return Err(Error::refused(Reason::PlanInvalid, message));
    }
    Ok(plan)
}

/// Refuses an agent that has no part in the session, because no scopes say whose plans it may commit to: limits and
/// budgets count by agent, so an invented name would escape them and a foreign one would use up another's. In local
/// development every name is taken as given.
fn outside_session(plan: &FrozenPlan, binding: &Binding, settings: &SessionSettings) -> Vec<Refusal> {
    let agent = &plan.plan.agent_id;
    if !settings.authenticated || *agent == binding.initiator || binding.participants.contains(agent) {
        return Vec::new();
    }
    let message = format!(
        "the plan's agent {agent:?} is neither the initiator nor a listed participant of the session; start the session \
         as that agent, list it as a participant, or configure [scopes]"
    );
    vec![Refusal::new(Reason::AgentNotInSession, message)]
}

/// Every way in which a plan goes beyond what the operator lets its authority do.
fn outside_scope(plan: &FrozenPlan, authority_scope: &str, settings: &SessionSettings) -> Vec<Refusal> {
    let Some(scope) = settings.scopes.get(authority_scope) else {
        let message = format!("the authority_scope {authority_scope:?} is not among the configured ones");
        return vec![Refusal::new(Reason::ScopeUnknown, message)];
    };
    let mut refusals = Vec::new();
    let agent = &plan.plan.agent_id;
    if !scope.agents.allow(agent) {
        let message = format!("the plan's agent {agent:?} has no right under the authority_scope {authority_scope:?}");
        refusals.push(Refusal::new(Reason::AgentOutsideScope, message));
    }
    let outside = plan.plan.context.allowed_skills.iter().filter(|skill| !scope.skills.allow(skill));
    let outside: Vec<&str> = outside.map(String::as_str).collect();
    if !outside.is_empty() {
        let listed = outside.join(", ");
        let message =
            format!("the plan may use {listed}, which the authority_scope {authority_scope:?} does not allow");
        refusals.push(Refusal::new(Reason::SkillOutsideScope, message));
    }
    refusals
}

fn not_resolved(state: i32) -> Error {
    let state = SessionState::try_from(state).unwrap_or(SessionState::Unspecified).as_str_name();
    let state = state.trim_start_matches("SESSION_STATE_");
    Error::refused(
        Reason::SessionNotResolved,
        format!("the session is {state}, and only a RESOLVED one commits to a plan"),
    )
}

fn not_positive() -> Refusal {
    let message = "the Commitment's outcome is not positive; outcome_positive must be true for a plan to run";
    Refusal::new(Reason::OutcomeNotPositive, message)
}

fn refused(refusal: Refusal) -> Error {
    Error::Refused(vec![refusal])
}

/// The damage of a history whose ends cannot be read.
fn drain(history: &mut History<'_>) -> Result<Error, ReadError> {
    while !history.next_page()?.is_empty() {}
    Ok(Error::refused(Reason::SessionNotFound, "the session's first entry does not say what it is bound to"))
}
