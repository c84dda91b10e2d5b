//! The messages of an execution session: Task Mode, with everything sent by the runtime's own identity.
//!
//! Task Mode lets an initiator take the task it asked itself for by name. So the executor is requester and assignee in
//! one, acting for the coordinator of the decision, who is named in the request. Everybody who took part in the decision
//! takes part here, and can thereby follow what becomes of it. Nobody but the executor can send anything into it that is
//! accepted: the task is not meant for them.
//!
//! Message ids follow from the run and the entries alone, so that a message sent twice is the same message.

use std::collections::BTreeSet;

use bytes::Bytes;
use macp_kernel::{
    Caller, Command, ID_BYTES_MAX, Input, PARTICIPANTS_MAX, PROTOCOL_VERSION, Registered, SESSION_START, SignatureCheck,
};
use macp_plan_core::digest;
use macp_plan_core::journal::{Body, RunFinished, RunStatus, Stop};
use macp_plan_core::taxonomy::Taxonomy;
use macp_wire::modes::task::v1::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRequestPayload, TaskUpdatePayload,
};
use macp_wire::v1::{CommitmentPayload, Envelope, SessionStartPayload};
use prost::Message;
use serde_json::{Value, json};

use super::notes::Report;
use crate::store::Sealed;

/// The mode of every execution session.
pub const MODE: &str = "macp.mode.task.v1";

/// The version of that mode its sessions are bound to.
const MODE_VERSION: &str = "1.0.0";

/// What a session of this kind is configured by: the form of its messages.
const CONFIGURATION_VERSION: &str = "aos-execution/1";

/// The status of an update whose entries settle nothing.
const AT_WORK: &str = "running";

/// The execution session of a run. It follows from the run's id, so that whoever looks for it after a restart finds it.
#[must_use]
pub fn session_id(run_id: &str) -> String {
    let hex = digest::hex_of("aos-execution-session/1", run_id.as_bytes());
    format!("aos-exec-{}", &hex[..32])
}

/// Writes the messages of one execution session.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    pub(super) report: &'a Report,
    pub(super) identity: &'a str,
}

/// Consecutive entries that go into one update.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    /// Chain hash up to and including the last entry.
    pub(super) head: String,
    /// JSON lines; none if a single entry is too long to be sent.
    pub(super) lines: Option<Vec<u8>>,
    /// How the last step or attempt in it ended.
    pub(super) status: Option<String>,
    pub(super) steps_finished: u32,
}

impl Messages<'_> {
    pub(super) fn session_id(&self) -> String {
        session_id(&self.report.run_id)
    }

    /// A command that the runtime's identity gives.
    pub(super) fn command(&self, envelope: Envelope) -> Command {
        let (signature, registered) = (SignatureCheck::Absent, Registered::default());
        Command {
            caller: Caller::identified(self.identity),
            input: Input::Envelope { envelope, signature, registered },
        }
    }

    pub(super) fn start(&self) -> Envelope {
        let payload = SessionStartPayload {
            intent: format!("report the run of plan {}", self.report.plan_hash),
            participants: self.participants(),
            mode_version: MODE_VERSION.to_owned(),
            configuration_version: CONFIGURATION_VERSION.to_owned(),
            ttl_ms: self.report.ttl_ms,
            context_id: self.report.run_id.clone(),
            ..SessionStartPayload::default()
        };
        self.envelope(SESSION_START, "start", &payload)
    }

    pub(super) fn request(&self) -> Envelope {
        let report = self.report;
        let mut input = json!({
            "session_id": report.session_id,
            "commitment_hash": report.commitment_hash,
            "plan_hash": report.plan_hash,
            "epoch": report.epoch,
            "run_id": report.run_id,
            "coordinator": report.coordinator,
        });
        if !report.by.is_empty() {
            input["requested_by"] = Value::from(report.by.as_str());
        }
        if let Some(reason) = &report.epoch_reason {
            input["epoch_reason"] = Value::from(reason.as_str());
        }
        let payload = TaskRequestPayload {
            task_id: self.task_id(),
            title: format!("run {}", report.run_id),
            instructions: "Execute the plan that was committed to.".to_owned(),
            requested_assignee: self.identity.to_owned(),
            input: input.to_string().into_bytes().into(),
            deadline_unix_ms: 0,
        };
        self.envelope("TaskRequest", "request", &payload)
    }

    pub(super) fn accept(&self) -> Envelope {
        let payload = TaskAcceptPayload {
            task_id: self.task_id(),
            assignee: self.identity.to_owned(),
            reason: "the binding is verified and the run is admitted".to_owned(),
        };
        self.envelope("TaskAccept", "accept", &payload)
    }

    /// `finished` counts the steps up to the end of the batch.
    pub(super) fn update(&self, batch: &Batch, finished: u32, total: u32) -> Envelope {
        let by_digest = || json!({"from_seq": batch.first_seq, "to_seq": batch.last_seq, "head": batch.head});
        let lines = batch.lines.clone();
        let payload = TaskUpdatePayload {
            task_id: self.task_id(),
            status: batch.status.clone().unwrap_or_else(|| AT_WORK.to_owned()),
            progress: if total == 0 { 1.0 } else { f64::from(finished) / f64::from(total) },
            message: format!("entries {} to {}, head {}", batch.first_seq, batch.last_seq, batch.head),
            partial_output: lines.unwrap_or_else(|| json!({"by_digest": by_digest()}).to_string().into_bytes()).into(),
        };
        self.envelope("TaskUpdate", &batch.first_seq.to_string(), &payload)
    }

    /// How the run ended: completed with its result, or failed.
    pub(super) fn outcome(&self, finished: &RunFinished, result: Bytes, taxonomy_version: &str) -> Envelope {
        let summary = summary(finished);
        if finished.status == RunStatus::Succeeded {
            let payload = TaskCompletePayload {
                task_id: self.task_id(),
                assignee: self.identity.to_owned(),
                output: result,
                summary,
            };
            return self.envelope("TaskComplete", "outcome", &payload);
        }
        let taxonomy = Taxonomy::version(taxonomy_version);
        let payload = TaskFailPayload {
            task_id: self.task_id(),
            assignee: self.identity.to_owned(),
            error_code: finished.final_code.clone(),
            reason: finished.stop.as_ref().map_or(summary, stop_text),
            retryable: taxonomy.is_some_and(|taxonomy| taxonomy.retryable(&finished.final_code)),
        };
        self.envelope("TaskFail", "outcome", &payload)
    }

    pub(super) fn commitment(&self, finished: &RunFinished) -> Envelope {
        let completed = finished.status == RunStatus::Succeeded;
        let scope = self.report.authority_scope.trim();
        let payload = CommitmentPayload {
            commitment_id: format!("aos-run:{}", self.report.run_id),
            action: if completed { "task.completed" } else { "task.failed" }.to_owned(),
            authority_scope: if scope.is_empty() { "execution" } else { scope }.to_owned(),
            reason: summary(finished),
            mode_version: MODE_VERSION.to_owned(),
            configuration_version: CONFIGURATION_VERSION.to_owned(),
            outcome_positive: completed,
            ..CommitmentPayload::default()
        };
        self.envelope("Commitment", "commitment", &payload)
    }

    /// A plan's id may have more bytes than an identifier of a session; its digest never has.
    fn task_id(&self) -> String {
        let plan_id = &self.report.plan_id;
        if plan_id.len() <= ID_BYTES_MAX { plan_id.clone() } else { self.report.plan_hash.to_string() }
    }

    /// The executor, the coordinator, and who else decided. Names that a strict session does not take are left out, and
    /// those beyond the most it takes.
    fn participants(&self) -> Vec<String> {
        let coordinator = self.coordinator();
        let mut distinct: BTreeSet<&str> = [self.identity.trim(), coordinator.trim()].into();
        let others = self.report.participants.iter().filter(|name| {
            let is_fit = !name.trim().is_empty() && name.len() <= ID_BYTES_MAX;
            is_fit && distinct.insert(name.trim())
        });
        let others: Vec<String> = others.take(PARTICIPANTS_MAX - 2).cloned().collect();
        [self.identity.to_owned(), coordinator.clone()].into_iter().chain(others).collect()
    }

    /// A participant must have a name of its own that is not blank; classic sessions are not so strict.
    fn coordinator(&self) -> String {
        match self.report.coordinator.trim() {
            "" => format!("{}/coordinator", self.identity),
            name if name == self.identity.trim() => format!("{}/coordinator", self.identity),
            _ => self.report.coordinator.clone(),
        }
    }

    fn envelope(&self, message_type: &str, suffix: &str, payload: &impl Message) -> Envelope {
        Envelope {
            macp_version: PROTOCOL_VERSION.to_owned(),
            mode: MODE.to_owned(),
            message_type: message_type.to_owned(),
            message_id: format!("aos:{}:{suffix}", self.report.run_id),
            session_id: self.session_id(),
            sender: self.identity.to_owned(),
            payload: payload.encode_to_vec().into(),
            ..Envelope::default()
        }
    }
}

/// Divides entries, which follow one another, into updates of at most so many bytes of lines.
pub(super) fn batches(entries: &[Sealed], bytes_max: usize) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for entry in entries {
        let fits = entry.text.len() < bytes_max;
        let open = batches.last_mut().filter(|batch| {
            fits && batch.lines.as_ref().is_some_and(|lines| lines.len() + entry.text.len() < bytes_max)
        });
        match open {
            Some(batch) => batch.push(entry),
            None => {
                let mut batch = Batch {
                    first_seq: entry.seq(),
                    last_seq: entry.seq(),
                    head: String::new(),
                    lines: fits.then(Vec::new),
                    status: None,
                    steps_finished: 0,
                };
                batch.push(entry);
                batches.push(batch);
            }
        }
    }
    batches
}

impl Batch {
    fn push(&mut self, entry: &Sealed) {
        self.last_seq = entry.seq();
        self.head = entry.hash.to_string();
        if let Some(lines) = &mut self.lines {
            lines.extend_from_slice(&entry.text);
            lines.push(b'\n');
        }
        match entry.body() {
            Body::AttemptJudged { code, .. } => self.status = Some(code.clone()),
            Body::StepFinished(step) => {
                self.status = Some(step.code.clone());
                self.steps_finished += 1;
            }
            Body::RunFinished(run) => self.status = Some(run.final_code.clone()),
            _ => {}
        }
    }
}

fn summary(finished: &RunFinished) -> String {
    let status = serde_json::to_value(finished.status).ok();
    let status = status.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    format!("the run ended {status} with {}, at {} microcents", finished.final_code, finished.total_cost_microcents)
}

fn stop_text(stop: &Stop) -> String {
    serde_json::to_string(stop).unwrap_or_else(|_never| stop.code.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_a_long_word_that_follows_from_the_run() {
        let id = session_id("r1");
        assert_eq!(id, session_id("r1"));
        assert_ne!(id, session_id("r2"));
        assert!(id.len() >= 22 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    }
}
