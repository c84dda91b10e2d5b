//! Where a run comes from: a server, a data directory beside it, an exported file, or the session it was reported in.
//!
//! Whatever the source, the run arrives as an export and is checked from its first byte to its last before anything is
//! made of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use macp_client::{Client, Error, RunReplayed};
use macp_ledger::SqliteStore;
use macp_plan::export::{self, ExportedRun, Exporter, ReadError};
use macp_plan::result::RunResult;
use macp_plan_core::compare::Report;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Entry, Journal};
use macp_plan_core::plan::FrozenPlan;
use macp_wire::plan::v1::{ReplayMode, ReplayRequest};
use serde_json::Value;

use super::reported::{ReportPlace, SessionArgs};
use crate::databases;
use crate::output::causes;
use crate::progress;
use crate::remote::ServerArgs;
use crate::source as history;

/// The directory of runs in a data directory.
pub(crate) const RUNS_DIRECTORY: &str = "plans";

/// How an entry begins in a line of an export, and how far from the line's start at most: its check stands before it.
const ENTRY_MARK: &[u8] = b"\"entry\":{";
const MARK_WITHIN: usize = 128;

/// Which run, and where it is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Run id, or the path of an exported file
    run: String,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Where runs are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Read this data directory, without touching it; a server may be running on it
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Where one run is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(PathBuf),
    Directory {
        directory: PathBuf,
        run_id: String,
    },
    Server {
        server: ServerArgs,
        run_id: String,
    },
    /// What its execution session tells of it.
    Session(ReportPlace),
}

impl RunArgs {
    pub(crate) fn place(self) -> Place {
        match self.session.of(&self.run, &self.place) {
            Some(reported) => Place::Session(reported),
            None => self.place.of(&self.run),
        }
    }
}

impl PlaceArgs {
    pub(crate) fn of(&self, run: &str) -> Place {
        if let Some(directory) = &self.data {
            return Place::Directory { directory: directory.clone(), run_id: run.to_owned() };
        }
        // No run has such a name: whoever says it means a file, and hears that there is none.
        let path = Path::new(run);
        if path.is_file() || run.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some_and(|it| it == "jsonl")
        {
            return Place::File(run.into());
        }
        Place::Server { server: self.server.clone(), run_id: run.to_owned() }
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// Where the sessions are that belong to these runs.
    pub(crate) fn history(&self, target: &str) -> history::Place {
        let target = target.to_owned();
        match &self.data {
            Some(directory) => history::Place::Directory { directory: directory.clone(), session_id: target },
            None if Path::new(&target).is_file() => history::Place::File(target.into()),
            None => history::Place::Server { server: self.server.clone(), session_id: target },
        }
    }
}

/// A run, whole and checked, with everything that came with it.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) exported: ExportedRun,
    pub(crate) plan: Arc<FrozenPlan>,
    pub(crate) journal: Journal,
}

impl Recorded {
    fn new(exported: ExportedRun) -> anyhow::Result<Recorded> {
        let plan = FrozenPlan::from_value(exported.plan.clone()).context("the plan of the run cannot be read")?;
        let entries = exported.run.entries.iter().map(|sealed| (sealed.text.clone(), sealed.hash.to_string()));
        let journal = Journal::read(entries)?;
        Ok(Recorded { exported, plan: Arc::new(plan), journal })
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.exported.run.run_id
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        self.journal.entries()
    }

    /// An output that is kept apart from the journal.
    pub(crate) fn body(&self, digest: &Digest) -> Option<Value> {
        self.exported.body(digest)
    }

    /// As a server tells it: large outputs are named.
    pub(crate) fn result(&self) -> RunResult {
        RunResult::of_journal(&self.exported.run, &self.plan)
    }

    /// With every output.
    pub(crate) fn whole_result(&self) -> RunResult {
        RunResult::of(&self.exported.run, &self.plan, &|digest| self.body(digest))
    }
}

/// Why a run could not be read, told apart by whether the run or the reading is at fault.
#[derive(Debug)]
pub(crate) enum Unreadable {
    Damaged(Damage),
    Failed(anyhow::Error),
}

/// What is wrong with a run, and where first.
#[derive(Debug)]
pub(crate) struct Damage {
    /// The first bad entry of the journal; none if something else than an entry is bad.
    pub(crate) seq: Option<u64>,
    pub(crate) problem: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "at entry {seq}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl From<anyhow::Error> for Unreadable {
    fn from(error: anyhow::Error) -> Self {
        Unreadable::Failed(error)
    }
}

impl From<Unreadable> for anyhow::Error {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Damaged(damage) => anyhow::anyhow!("the run is damaged: {damage}"),
            Unreadable::Failed(error) => error,
        }
    }
}

impl Place {
    /// Whether the database of runs has everything that was acknowledged. Runs from elsewhere are not checked.
    pub(crate) fn is_whole(&self) -> anyhow::Result<bool> {
        match self {
            Place::Directory { directory, .. } => Ok(databases::missing_runs(directory)?.is_none()),
            _ => Ok(true),
        }
    }

    /// The run, whole and checked.
    pub(crate) async fn load(&self) -> Result<Recorded, Unreadable> {
        match self {
            // Outputs that were kept apart may be missing, so that there is no file to be made of it.
            Place::Session(reported) => Ok(Recorded::new(reported.load().await?)?),
            place => recorded(&place.bytes().await?),
        }
    }

    /// The run as one export, not looked at yet.
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, Unreadable> {
        match self {
            Place::File(path) => {
                let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
                Ok(bytes?)
            }
            Place::Directory { directory, run_id } => read_directory(directory, run_id),
            Place::Server { server, run_id } => {
                let client = server.connect().await?;
                match fetch(&client, run_id).await {
                    Ok(bytes) => Ok(bytes),
                    Err(error) => Err(explain(&client, run_id, error).await),
                }
            }
            Place::Session(reported) => {
                let bytes = reported.load().await?.to_bytes();
                Ok(bytes.context("the session does not have the whole run")?)
            }
        }
    }
}

/// An export, checked from its first byte to its last.
pub(crate) fn recorded(bytes: &[u8]) -> Result<Recorded, Unreadable> {
    let exported = export::read(bytes).map_err(|error| judge(error, bytes))?;
    Ok(Recorded::new(exported)?)
}

/// Reads a run out of a data directory as if it were exported.
fn read_directory(directory: &Path, run_id: &str) -> Result<Vec<u8>, Unreadable> {
    let store = open_store(directory)?;
    let mut exporter = match Exporter::open(&store, run_id) {
        Ok(Some(exporter)) => exporter,
        Ok(None) => return Err(Unreadable::Failed(anyhow::anyhow!("there is no run {run_id:?}"))),
        Err(error) => return Err(damage(error)),
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = exporter.next_chunk().map_err(damage)? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn judge(error: ReadError, bytes: &[u8]) -> Unreadable {
    match error.bad_line() {
        Some(line) => Unreadable::Damaged(Damage { seq: entry_of(line, bytes), problem: causes(&error.into()) }),
        None => Unreadable::Failed(error.into()),
    }
}

/// The entry that a line of an export holds. Lines before the first entry and the last line hold none.
fn entry_of(line: u64, bytes: &[u8]) -> Option<u64> {
    let is_entry = |line: &[u8]| line.windows(ENTRY_MARK.len()).take(MARK_WITHIN).any(|window| window == ENTRY_MARK);
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.by_ref().position(is_entry)?;
    let seq = usize::try_from(line).ok()?.checked_sub(first + 1)?;
    let holds = seq == 0 || lines.nth(seq - 1).is_some_and(is_entry);
    holds.then_some(seq as u64)
}

/// A store that says its content is wrong, told apart from one that cannot be read.
pub(crate) fn damage(error: macp_plan::store::StoreError) -> Unreadable {
    use macp_plan::store::StoreError;
    match error {
        StoreError::Corruption(corruption) => {
            Unreadable::Damaged(Damage { seq: Some(corruption.seq), problem: corruption.kind.to_string() })
        }
        StoreError::Damaged { .. } => Unreadable::Damaged(Damage { seq: None, problem: causes(&error.into()) }),
        error => Unreadable::Failed(error.into()),
    }
}

/// The runs of a data directory, for reading.
pub(crate) fn open_store(directory: &Path) -> anyhow::Result<SqliteStore> {
    let runs = directory.join(RUNS_DIRECTORY);
    if !runs.is_dir() {
        bail!("{} holds no runs: it has no directory {RUNS_DIRECTORY:?}", directory.display());
    }
    Ok(databases::open(&runs)?)
}

/// A server says only that it failed. Whether the run is damaged is told by its replay, which calls nothing.
async fn explain(client: &Client, run_id: &str, error: Error) -> Unreadable {
    if error.code() != Some("INTERNAL_ERROR") || error.is_disconnected() {
        return Unreadable::Failed(error.into());
    }
    match broken(client, run_id).await {
        Ok(Some(damage)) => Unreadable::Damaged(damage),
        // Nothing is wrong with the run, or nobody can say: then the failure of the export is what there is.
        Ok(None) | Err(_) => Unreadable::Failed(error.into()),
    }
}

/// Where the journal of a run is broken, if it is.
async fn broken(client: &Client, run_id: &str) -> anyhow::Result<Option<Damage>> {
    let mode = ReplayMode::Mock.into();
    let request = ReplayRequest { run_id: run_id.to_owned(), mode, ..ReplayRequest::default() };
    let mut events = client.replay_run(request).await?;
    while let Some(event) = events.next().await? {
        if let RunReplayed::Report(text) = event {
            let report: Report = serde_json::from_str(&text)?;
            let violation = report.pin_violations.into_iter().find(|violation| violation.kind == "journal");
            return Ok(violation.map(|violation| Damage {
                seq: violation.subject.strip_prefix("entry ").and_then(|seq| seq.parse().ok()),
                problem: violation.why,
            }));
        }
    }
    Ok(None)
}

/// Everything a server exports of a run.
async fn fetch(client: &Client, run_id: &str) -> Result<Vec<u8>, Error> {
    let mut chunks = client.export_run(run_id).await?;
    let bar = progress::bytes(None, "fetching");
    let mut bytes = Vec::new();
    let ended = loop {
        match chunks.next().await {
            Ok(Some(chunk)) => {
                bar.inc(chunk.len() as u64);
                bytes.extend_from_slice(&chunk);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    ended?;
    Ok(bytes)
}

/// The result of a run as a server tells it.
pub(crate) fn read_result(text: &str) -> anyhow::Result<RunResult> {
    serde_json::from_str(text).context("the server's result of the run cannot be read; is it of another version?")
}
