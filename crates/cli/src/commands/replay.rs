//! `macp replay`: every decision of a history taken again.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use macp_archive::{FileError, Replay, Source, is_trace, replay};
use macp_client::Replayed;
use macp_kernel::mode;
use macp_kernel::replay::{Options, Versions};
use macp_wire::history::v1::{ReplayReport, ReplaySessionRequest, ReplayVerdict};
use macp_wire::v1::SessionState;
use serde_json::{Value, json};

use super::{replay_trace, replay_what_if};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::source::{self, HistoryArgs, Place};
use crate::table::{Column, Table, left, right};
use crate::text::{clean, count};
use crate::time::stamp;
use crate::view::{Decision, state_cell, state_name, text_or_base64};

const COLUMNS: &[Column] =
    &[right("ORDINAL", 7), left("ACCEPTED (UTC)", 23), left("TYPE", 14), left("SENDER", 16), left("STATE", 8)];

/// Take every decision of a history again and compare
///
/// Uses nothing but what the history holds: no clock, no configuration, no network. The history may be a session of a
/// server, of a data directory, or an exported file; a trace written by `macp serve --audit` is recognised too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    history: HistoryArgs,
    /// Print the verdict only
    #[arg(long, short)]
    quiet: bool,
    /// Vouch for the course alone, who said what in which order and state, and not that the outcome follows from it: all
    /// that can be had where a mode leaves the outcome to those who took part, such as a task
    #[arg(long, conflicts_with_all = ["what_if_policy", "semantic"])]
    structural: bool,
    /// Refuse a session whose mode does not let its outcome follow from its course
    #[arg(long, conflicts_with = "what_if_policy")]
    semantic: bool,
    /// Allow other versions than the bound ones; the result is then no historical reconstruction
    #[arg(long)]
    what_if: bool,
    /// Tell what would have happened under the policy in this JSON file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what_if", "mode_version", "configuration_version",
                                                           "policy_version"])]
    what_if_policy: Option<PathBuf>,
    /// Replay under this mode version
    #[arg(long, value_name = "VERSION")]
    mode_version: Option<String>,
    /// Replay under this configuration version
    #[arg(long, value_name = "VERSION")]
    configuration_version: Option<String>,
    /// Replay under this policy version
    #[arg(long, value_name = "VERSION")]
    policy_version: Option<String>,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    if let Some(policy) = &args.what_if_policy {
        return replay_what_if::run(args.history.place()?, policy, output).await;
    }
    let options = Options {
        versions: Versions {
            mode_version: args.mode_version,
            configuration_version: args.configuration_version,
            policy_version: args.policy_version,
        },
        what_if: args.what_if,
        semantic: args.semantic,
    };
    let asked = options.clone();
    let mut steps = Steps { output, table: Table::new(COLUMNS), quiet: args.quiet, first: true };
    let mut verdict = match args.history.place()? {
        Place::File(path) => {
            let trace = is_trace(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if trace {
                return replay_trace::run(&path, args.quiet, output);
            }
            match source::open_file(&path) {
                Ok(source) => local(source, options, &mut steps)?,
                Err(error @ FileError::Header { .. }) => Verdict::refused(error.to_string()),
                Err(FileError::Format { path }) => {
                    bail!("{} is neither an export of a session nor a trace, by its first line", path.display())
                }
                Err(error) => return Err(error.into()),
            }
        }
        Place::Directory { directory, session_id } => {
            let store = source::open_store(&directory)?;
            local(Source::Store(source::open_history(&store, &session_id)?), options, &mut steps)?
        }
        Place::Server { server, session_id } if args.structural || args.semantic => {
            // A server vouches for what each mode grants and takes no other word, so the history is fetched and replayed here.
            let client = source::connect(&server, &session_id).await?;
            local(source::fetch(&client, &session_id).await?, options, &mut steps)?
        }
        Place::Server { server, session_id } => {
            let client = source::connect(&server, &session_id).await?;
            remote(&client, request(session_id, options), &mut steps).await?
        }
    };
    verdict.notes.extend(note(&asked, verdict.kind));
    if args.structural && verdict.kind == ReplayVerdict::Match && verdict.notes.is_empty() {
        verdict
            .notes
            .push("asked for the course alone: that the outcome follows from it is not vouched for".to_owned());
    }
    verdict.report(output)?;
    Ok(Finding::from_ok(verdict.kind == ReplayVerdict::Match))
}

/// Why a what-if could not be tried, where that helps to ask again.
fn note(asked: &Options, kind: ReplayVerdict) -> Option<String> {
    let version = asked.versions.mode_version.as_ref().filter(|_| asked.what_if && kind == ReplayVerdict::Refused)?;
    let offered = mode::ALL.iter().any(|kind| kind.spec().version == version);
    (!offered).then(|| format!("no mode is offered here in version {version:?}; a what-if needs one that is"))
}

/// Prints decisions as they are taken.
struct Steps<'a> {
    output: &'a Output,
    table: Table,
    quiet: bool,
    first: bool,
}

impl Steps<'_> {
    /// A bar, unless the decisions themselves scroll by.
    fn bar(&self, length: Option<u64>) -> ProgressBar {
        match !self.quiet && self.output.is_terminal() {
            true => ProgressBar::hidden(),
            false => progress::bar(length, "replaying"),
        }
    }

    fn show(&mut self, decision: &Decision) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        if self.output.is_json() {
            return self.output.value(&json!({ "step": decision.to_json() }));
        }
        if std::mem::take(&mut self.first) {
            self.output.line(self.table.header(self.output))?;
        }
        // Bookkeeping entries have no ordinal.
        let ordinal = match decision.ordinal {
            0 => "-".to_owned(),
            ordinal => ordinal.to_string(),
        };
        let cells = [
            ordinal.into(),
            stamp(decision.accepted_at_ms).into(),
            clean(&decision.message_type).into(),
            clean(&decision.sender).into(),
            state_cell(decision.state),
        ];
        self.output.line(self.table.row(self.output, &cells))
    }
}

/// What a replay showed, wherever it was done.
#[derive(Debug)]
struct Verdict {
    kind: ReplayVerdict,
    message: String,
    what_if: bool,
    determinism_class: String,
    entries: u64,
    state: Option<SessionState>,
    resolution: Vec<u8>,
    divergence: Option<Value>,
    notes: Vec<String>,
}

/// What a standard session resolved to; none if it is a classic one, which resolves to a text.
fn commitment(resolution: &[u8]) -> Option<Value> {
    let is_text = std::str::from_utf8(resolution).is_ok_and(|text| !text.contains(char::is_control));
    if is_text { None } else { macp_conformance::decode("macp.v1.CommitmentPayload", resolution).ok() }
}

impl Verdict {
    fn refused(message: String) -> Verdict {
        Verdict {
            kind: ReplayVerdict::Refused,
            message,
            what_if: false,
            determinism_class: String::new(),
            entries: 0,
            state: None,
            resolution: Vec::new(),
            divergence: None,
            notes: Vec::new(),
        }
    }

    fn report(&self, output: &Output) -> io::Result<()> {
        if output.is_json() {
            return output.value(&json!({ "report": {
                "verdict": self.word(),
                "message": (self.kind != ReplayVerdict::Match).then_some(&self.message),
                "what_if": self.what_if,
                "determinism_class": self.determinism_class,
                "entries": self.entries,
                "state": self.state.map(state_name),
                "resolution": (!self.resolution.is_empty())
                    .then(|| commitment(&self.resolution).unwrap_or_else(|| text_or_base64(&self.resolution))),
                "divergence": self.divergence,
                "notes": self.notes,
            }}));
        }
        let entries = count(self.entries, "decision", "decisions");
        let what_if = if self.what_if { " (what-if, not a historical reconstruction)" } else { "" };
        self.report_verdict(&entries, what_if, output)?;
        self.notes.iter().try_for_each(|note| output.line(format!("note: {}", clean(note))))
    }

    fn report_verdict(&self, entries: &str, what_if: &str, output: &Output) -> io::Result<()> {
        match self.kind {
            ReplayVerdict::Match => {
                let state = self.state.map(state_name).unwrap_or_default();
                let class = &self.determinism_class;
                let word = output.paint(Paint::Good, "MATCH");
                output.line(format!("{word}: {entries} taken again, all the same; {state}, {class}{what_if}"))?;
                if !self.resolution.is_empty() {
                    let text = || String::from_utf8_lossy(&self.resolution).into_owned();
                    let resolution = commitment(&self.resolution).map_or_else(text, |value| value.to_string());
                    output.line(format!("resolution: {}", clean(&resolution)))?;
                }
                Ok(())
            }
            ReplayVerdict::Diverged => {
                let word = output.paint(Paint::Bad, "DIVERGED");
                output.line(format!("{word}: {}{what_if}", clean(&self.message)))
            }
            ReplayVerdict::Refused | ReplayVerdict::Unspecified => {
                output.line(format!("{}: {}", output.paint(Paint::Bad, "REFUSED"), clean(&self.message)))
            }
        }
    }

    fn word(&self) -> &'static str {
        match self.kind {
            ReplayVerdict::Match => "match",
            ReplayVerdict::Diverged => "diverged",
            ReplayVerdict::Refused | ReplayVerdict::Unspecified => "refused",
        }
    }
}

fn local(mut source: Source<'_>, options: Options, steps: &mut Steps<'_>) -> anyhow::Result<Verdict> {
    let what_if = options.what_if;
    let bar = steps.bar(Some(source.entries()));
    let mut shown = Ok(());
    let replayed = replay(&mut source, options, &mut |step| {
        bar.inc(1);
        if !steps.quiet && shown.is_ok() {
            shown = steps.show(&Decision::from(step));
        }
    });
    bar.finish_and_clear();
    shown?;
    let (report, divergence) = match replayed {
        Replay::Refused(message) => return Ok(Verdict::refused(message)),
        Replay::Failed(unreadable) => return Err(unreadable.into()),
        Replay::Match(report) => (Some(report), None),
        Replay::Diverged { divergence, report } => (report, Some(divergence)),
    };
    let verdict = Verdict {
        kind: if divergence.is_some() { ReplayVerdict::Diverged } else { ReplayVerdict::Match },
        message: divergence.as_ref().map(ToString::to_string).unwrap_or_default(),
        what_if,
        determinism_class: report.as_ref().map(|it| it.determinism.as_str().to_owned()).unwrap_or_default(),
        entries: report.as_ref().map(|it| it.entries).unwrap_or_default(),
        state: report.as_ref().map(|it| it.state.to_wire()),
        notes: report.as_ref().map(|it| it.notes.clone()).unwrap_or_default(),
        resolution: report.and_then(|it| it.resolution).map(|it| it.to_vec()).unwrap_or_default(),
        divergence: divergence.map(|it| {
            json!({
                "sequence": it.sequence, "ordinal": it.ordinal, "field": it.field,
                "expected": it.expected, "found": it.found,
            })
        }),
    };
    Ok(verdict)
}

fn request(session_id: String, options: Options) -> ReplaySessionRequest {
    ReplaySessionRequest {
        session_id,
        what_if: options.what_if,
        mode_version: options.versions.mode_version.unwrap_or_default(),
        configuration_version: options.versions.configuration_version.unwrap_or_default(),
        policy_version: options.versions.policy_version.unwrap_or_default(),
    }
}

async fn remote(
    client: &macp_client::Client,
    request: ReplaySessionRequest,
    steps: &mut Steps<'_>,
) -> anyhow::Result<Verdict> {
    let mut events = client.replay(request).await?;
    let bar = steps.bar(None);
    let report = loop {
        match events.next().await {
            Ok(Some(Replayed::Step(step))) => {
                bar.inc(1);
                steps.show(&step.into())?;
            }
            Ok(Some(Replayed::Report(report))) => break Ok(report.into()),
            Ok(None) => break Err(anyhow::anyhow!("the server ended the replay without a report")),
            Err(error) => break Err(error.into()),
        }
    };
    bar.finish_and_clear();
    report
}

impl From<ReplayReport> for Verdict {
    fn from(report: ReplayReport) -> Self {
        Verdict {
            kind: report.verdict(),
            state: Some(report.state()).filter(|state| *state != SessionState::Unspecified),
            what_if: report.what_if,
            entries: report.entries,
            resolution: report.resolution.to_vec(),
            divergence: report.divergence.as_ref().map(|it| {
                json!({
                    "sequence": it.sequence, "ordinal": it.ordinal, "field": it.field,
                    "expected": it.expected, "found": it.found,
                })
            }),
            message: report.message,
            determinism_class: report.determinism_class,
            notes: report.notes,
        }
    }
}
