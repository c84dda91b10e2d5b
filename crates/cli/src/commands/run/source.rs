//! Where a run comes from: a server, a data directory beside it, or an exported file.
//!
//! Whatever the source, the run arrives as an export and is checked from its first byte to its last before anything is
//! made of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use macp_client::Client;
use macp_ledger::SqliteStore;
use macp_plan::export::{self, ExportedRun, Exporter, ReadError};
use macp_plan::result::RunResult;
use macp_plan_core::digest::Digest;
use macp_plan_core::journal::{Entry, Journal};
use macp_plan_core::plan::FrozenPlan;
use serde_json::Value;

use crate::progress;
use crate::remote::ServerArgs;

/// The directory of runs in a data directory.
pub(crate) const RUNS_DIRECTORY: &str = "plans";

/// Which run, and where it is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Run id, or the path of an exported file
    run: String,
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
    Directory { directory: PathBuf, run_id: String },
    Server { server: ServerArgs, run_id: String },
}

impl RunArgs {
    pub(crate) fn place(self) -> Place {
        self.place.of(&self.run)
    }
}

impl PlaceArgs {
    pub(crate) fn of(&self, run: &str) -> Place {
        if let Some(directory) = &self.data {
            return Place::Directory { directory: directory.clone(), run_id: run.to_owned() };
        }
        if Path::new(run).is_file() {
            return Place::File(run.into());
        }
        Place::Server { server: self.server.clone(), run_id: run.to_owned() }
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
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

    pub(crate) fn result(&self) -> RunResult {
        RunResult::of(&self.exported.run, &self.plan, &|digest| self.body(digest))
    }
}

/// Why a run could not be read, told apart by whether the run or the reading is at fault.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The run is damaged; the words say where.
    Damaged(String),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Unreadable {
    fn from(error: anyhow::Error) -> Self {
        Unreadable::Failed(error)
    }
}

impl From<Unreadable> for anyhow::Error {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Damaged(problem) => anyhow::anyhow!("the run is damaged: {problem}"),
            Unreadable::Failed(error) => error,
        }
    }
}

impl Place {
    /// The run, whole and checked.
    pub(crate) async fn load(&self) -> Result<Recorded, Unreadable> {
        recorded(&self.bytes().await?)
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
                Ok(fetch(&client, run_id).await?)
            }
        }
    }
}

/// An export, checked from its first byte to its last.
pub(crate) fn recorded(bytes: &[u8]) -> Result<Recorded, Unreadable> {
    let exported = export::read(bytes).map_err(judge)?;
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

fn judge(error: ReadError) -> Unreadable {
    match error.bad_line() {
        Some(_) => Unreadable::Damaged(crate::output::causes(&error.into())),
        None => Unreadable::Failed(error.into()),
    }
}

/// A store that says its content is wrong, told apart from one that cannot be read.
pub(crate) fn damage(error: macp_plan::store::StoreError) -> Unreadable {
    use macp_plan::store::StoreError;
    match error {
        StoreError::Corruption(_) | StoreError::Damaged { .. } => {
            Unreadable::Damaged(crate::output::causes(&error.into()))
        }
        error => Unreadable::Failed(error.into()),
    }
}

/// The runs of a data directory, for reading.
pub(crate) fn open_store(directory: &Path) -> anyhow::Result<SqliteStore> {
    let runs = directory.join(RUNS_DIRECTORY);
    if !runs.is_dir() {
        bail!("{} holds no runs: it has no directory {RUNS_DIRECTORY:?}", directory.display());
    }
    Ok(SqliteStore::open_read_only(&runs)?)
}

/// Everything a server exports of a run.
pub(crate) async fn fetch(client: &Client, run_id: &str) -> anyhow::Result<Vec<u8>> {
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
