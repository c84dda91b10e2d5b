//! Reads a run from its execution session (AOS-113): its journal from there, its plan from the session that decided on
//! it or from a file. The store it ran in is not asked.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use macp_archive::{FileError, ReadError, Source};
use macp_plan::export::{ExportedRun, ReportError};
use macp_plan::session::{NotAReport, PlanSearch, ReportReading, Reported, execution_session_id};
use macp_plan_core::digest::Digest;
use macp_wire::canonical;
use macp_wire::history::v1::Entry;
use serde_json::Value;

use super::source::{Damage, PlaceArgs, Unreadable};
use crate::output::causes;
use crate::source::{Place as History, fetch, open_file, open_history, open_store};

/// How every execution session is named.
const SESSION_PREFIX: &str = "aos-exec-";

/// Whether to read the run's store or its session.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SessionArgs {
    /// Read what the run's execution session tells of it, and not the run itself; RUN is then a run id, the id of that
    /// session, or the path of an exported session
    #[arg(long)]
    from_session: bool,
    /// With --from-session: the frozen plan, or an exported session it was proposed in; without it, the session that
    /// committed to the plan is read from the same place
    #[arg(long, value_name = "FILE", requires = "from_session")]
    plan: Option<PathBuf>,
    /// With --from-session: who reports runs there, as `execution_identity` says. Anyone can start a session that looks
    /// like a report; nobody else can start one as this
    #[arg(long, value_name = "NAME", default_value = "macp-executor")]
    reporter: String,
}

/// Where the report of a run is, and its plan.
#[derive(Clone, Debug)]
pub(crate) struct ReportPlace {
    target: String,
    place: PlaceArgs,
    plan: Option<PathBuf>,
    reporter: String,
}

impl SessionArgs {
    pub(crate) fn of(&self, run: &str, place: &PlaceArgs) -> Option<ReportPlace> {
        self.from_session.then(|| ReportPlace {
            target: run.to_owned(),
            place: place.clone(),
            plan: self.plan.clone(),
            reporter: self.reporter.clone(),
        })
    }
}

impl ReportPlace {
    /// The run as its session tells it. Outputs that were kept apart may be missing.
    pub(crate) async fn load(&self) -> Result<ExportedRun, Unreadable> {
        let is_file = self.place.data().is_none() && Path::new(&self.target).is_file();
        let session_id = match self.target.starts_with(SESSION_PREFIX) || is_file {
            true => self.target.clone(),
            // The session's id follows from the run's.
            false => execution_session_id(&self.target),
        };
        let mut reading = ReportReading::default();
        let reported = match walk(&self.place.history(&session_id), &mut |entry| reading.take(entry)).await? {
            Ok(()) => reading.finish(),
            Err(error) => Err(error),
        };
        let reported = reported.map_err(not_a_report)?;
        if reported.initiator != self.reporter {
            let (initiator, reporter) = (&reported.initiator, &self.reporter);
            return Err(damaged(anyhow!("this is no report of {reporter:?}: {initiator:?} started the session")));
        }
        let plan = self.plan_of(&reported, is_file).await?;
        ExportedRun::of_report(reported, plan).map_err(not_enough)
    }

    async fn plan_of(&self, reported: &Reported, is_file: bool) -> Result<Value, Unreadable> {
        let named = |field: &str| reported.request.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let digest = Digest::try_from(named("plan_hash")).map_err(|error| damaged(error.into()))?;
        if let Some(path) = &self.plan {
            return plan_in_file(path, digest).await;
        }
        let session_id = named("session_id");
        if is_file {
            let missing = "the session tells the plan by its digest alone; give the frozen plan, or an export of \
                           the session it was proposed in, with --plan";
            return Err(Unreadable::Failed(anyhow!("{missing}: {digest}, session {session_id:?}")));
        }
        search(&self.place.history(&session_id), digest.clone()).await?.ok_or_else(|| {
            let missing = format!("session {session_id:?} does not have the plan {digest} itself; give it with --plan");
            Unreadable::Failed(anyhow!(missing))
        })
    }
}

/// A frozen plan, or the one in the history of an exported session.
async fn plan_in_file(path: &Path, digest: Digest) -> Result<Value, Unreadable> {
    match open_file(path) {
        Err(FileError::Format { .. }) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(canonical::parse(&text).with_context(|| format!("{} is no frozen plan", path.display()))?)
        }
        _ => search(&History::File(path.to_owned()), digest.clone()).await?.ok_or_else(|| {
            Unreadable::Failed(anyhow!("the session in {} does not have the plan {digest}", path.display()))
        }),
    }
}

async fn search(place: &History, digest: Digest) -> Result<Option<Value>, Unreadable> {
    let mut search = PlanSearch::new(digest);
    let walked: Result<(), std::convert::Infallible> = walk(place, &mut |entry| {
        search.take(entry);
        Ok(())
    })
    .await?;
    match walked {
        Ok(()) => Ok(search.found()),
        Err(never) => match never {},
    }
}

/// Shows every entry of a history, chain-checked; stops where it is told to.
async fn walk<E>(place: &History, take: &mut dyn FnMut(&Entry) -> Result<(), E>) -> Result<Result<(), E>, Unreadable> {
    match place {
        History::File(path) => pages(open_file(path).map_err(|error| unreadable(error.into()))?, take),
        History::Directory { directory, session_id } => {
            let store = open_store(directory)?;
            pages(Source::Store(open_history(&store, session_id)?), take)
        }
        History::Server { server, session_id } => {
            let client = server.connect().await?;
            pages(fetch(&client, session_id).await?, take)
        }
    }
}

fn pages<E>(
    mut source: Source<'_>,
    take: &mut dyn FnMut(&Entry) -> Result<(), E>,
) -> Result<Result<(), E>, Unreadable> {
    loop {
        let page = source.next_page().map_err(unreadable)?;
        if page.is_empty() {
            return Ok(Ok(()));
        }
        for (_, entry) in &page {
            if let Err(stopped) = take(entry) {
                return Ok(Err(stopped));
            }
        }
    }
}

fn not_a_report(error: NotAReport) -> Unreadable {
    match error {
        NotAReport::OtherSession => Unreadable::Failed(error.into()),
        error => damaged(error.into()),
    }
}

/// What the session does not tell is no damage to what it does.
fn not_enough(error: ReportError) -> Unreadable {
    match error {
        ReportError::Empty | ReportError::ByDigest => Unreadable::Failed(error.into()),
        error => damaged(error.into()),
    }
}

fn unreadable(error: ReadError) -> Unreadable {
    match error.bad_sequence() {
        Some(_) => damaged(error.into()),
        None => Unreadable::Failed(error.into()),
    }
}

fn damaged(error: anyhow::Error) -> Unreadable {
    Unreadable::Damaged(Damage { seq: None, problem: causes(&error) })
}
