//! A run as its execution session tells it (AOS-113), in the shape an export has: whoever lost the store it ran in can
//! show, verify, replay and import it all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_ledger::{Hash, Record};
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Body, RunStart};
use serde_json::Value;

use super::line::Lines;
use super::read::check_inline;
use super::{ExportedRun, LineError};
use crate::session::Reported;
use crate::store::sealed::Checker;
use crate::store::summary::PlanFacts;
use crate::store::{Corruption, Run, Sealed, StoreError, Summary, bodies, plans};

/// Why the report of a run is not enough to tell the run.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("the session reports no entry of the run yet")]
    Empty,
    #[error("an entry of the run was too long for a message, so that the session has its hash alone")]
    ByDigest,
    #[error("the session's entries are not the journal of the run it says: {0}")]
    Journal(#[from] Corruption),
    #[error("an output in an entry is not the one it says: {0}")]
    Output(LineError),
    #[error("the session asks for {field} {requested}, the run it reports has {found}")]
    Request { field: &'static str, requested: String, found: String },
    #[error("the plan has the digest {found}, the run is of plan {expected}")]
    OtherPlan { expected: Digest, found: Digest },
    #[error("the plan cannot be used: {0}")]
    Plan(#[from] StoreError),
    #[error("the plan cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// An output that is named and not there.
#[derive(Debug, thiserror::Error)]
#[error("the output {0} was kept apart from the journal, and the session has its digest alone")]
pub struct OutputMissing(pub Digest);

impl ExportedRun {
    /// The run of a report. Outputs that were kept apart are missing, except what their digests give away; the times are
    /// those of the session.
    pub fn of_report(reported: Reported, plan: Value) -> Result<Self, ReportError> {
        let entries = sealed(&reported)?;
        let Some(Body::RunStarted(start)) = entries.first().map(Sealed::body) else { return Err(ReportError::Empty) };
        check_request(start, &reported.request)?;
        let (expected, found) = (start.plan_hash.clone(), plans::hash_of(&plan)?);
        if found != expected {
            return Err(ReportError::OtherPlan { expected, found });
        }
        let plan_text = plans::text_of(&plan)?;
        let facts: PlanFacts = serde_json::from_str(&plan_text)?;
        let (started_at_ms, finished_at_ms) = reported.times_ms;
        let mut summary = Summary::begin(start, &facts, started_at_ms);
        for entry in &entries {
            summary.take(entry.body(), finished_at_ms);
        }
        let run = Run { run_id: Arc::from(reported.run_id), entries, summary };
        let apart = run.bodies().filter_map(Body::output_apart);
        let known = apart.filter_map(|digest| Some((digest.clone(), bodies::without_text(digest)?.to_string())));
        let bodies = known.collect::<BTreeMap<_, _>>();
        Ok(Self { run, plan, bodies, plan_text })
    }

    /// The run as the file an exporter would write, if everything that belongs into it is there.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OutputMissing> {
        let mut apart = self.run.bodies().filter_map(Body::output_apart);
        if let Some(digest) = apart.find(|digest| !self.bodies.contains_key(*digest)) {
            return Err(OutputMissing(digest.clone()));
        }
        let (mut lines, mut file) = (Lines::default(), Vec::new());
        lines.header(&mut file, self.run.summary.clone());
        lines.plan(&mut file, &self.plan_text);
        self.bodies.values().for_each(|text| lines.body(&mut file, text));
        self.run.entries.iter().for_each(|sealed| lines.entry(&mut file, sealed));
        lines.footer(&mut file, &self.run, self.bodies.len());
        Ok(file)
    }
}

/// The entries of a report, checked like those of a store.
fn sealed(reported: &Reported) -> Result<Vec<Sealed>, ReportError> {
    let entries = reported.entries.as_ref().ok_or(ReportError::ByDigest)?;
    let mut checker = Checker::new(&reported.run_id);
    let mut sealed = Vec::with_capacity(entries.len());
    for (text, hash, entry) in entries {
        let hash: Hash = hash.parse().map_err(|_not_hex| ReportError::Output(LineError::Shape))?;
        let record = Record { sequence: entry.seq.saturating_add(1), bytes: text.clone().into(), hash };
        let entry = checker.check(record)?;
        check_inline(entry.body()).map_err(ReportError::Output)?;
        sealed.push(entry);
    }
    Ok(sealed)
}

/// What the session was opened for must be what it reports: the two are written by different messages.
fn check_request(start: &RunStart, request: &Value) -> Result<(), ReportError> {
    let session = start.session.as_ref();
    let fields = [
        ("run_id", Value::from(start.run_id.as_str())),
        ("plan_hash", Value::from(start.plan_hash.as_str())),
        ("session_id", session.map(|session| session.session_id.as_str()).into()),
        ("commitment_hash", session.map(|session| session.commitment_hash.as_str()).into()),
        ("epoch", Value::from(start.epoch)),
    ];
    for (field, found) in fields {
        let requested = request.get(field).unwrap_or(&Value::Null);
        if *requested != found {
            return Err(ReportError::Request { field, requested: shown(requested), found: shown(&found) });
        }
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
