//! Follows a run as it happens, over as many connections as it takes.

use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use macp_client::{Client, Error};
use macp_plan::result::RunResult;
use macp_plan_core::journal::{Body, Entry};
use macp_plan_core::plan::Aliases;
use macp_wire::plan::v1::JournalEntry;

use super::source;
use super::why::wait;
use crate::money::cents;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::{clean, spelt};

/// How long to wait before connecting again: short at first, since most restarts are.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Told of every entry as it arrives.
pub(super) trait Follower {
    fn entry(&mut self, entry: &Entry, recorded: &JournalEntry) -> anyhow::Result<()>;
    /// The connection is gone, and will be tried again.
    fn lost(&mut self, why: &str);
}

/// Hands every entry from `from_seq` on to the follower, until the run has ended.
pub(super) async fn follow(
    client: &Client,
    run_id: &str,
    from_seq: u64,
    follower: &mut dyn Follower,
) -> anyhow::Result<()> {
    let mut next = from_seq;
    let mut retry = RETRY_MIN;
    loop {
        let before = next;
        let lost = match follow_once(client, run_id, &mut next, follower).await {
            Ok(true) => return Ok(()),
            Ok(false) => "the server ended the stream".to_owned(),
            Err(Stop::Lost(error)) if error.is_disconnected() || error.code() == Some("STREAM_LAGGED") => {
                error.to_string()
            }
            Err(Stop::Lost(error)) => return Err(error.into()),
            Err(Stop::Own(error)) => return Err(error),
        };
        retry = if next > before { RETRY_MIN } else { (retry * 2).min(RETRY_MAX) };
        let (lost, run_id) = (clean(&lost), clean(run_id));
        follower.lost(&format!("{lost}; asking again for {run_id} from entry {next}, Ctrl-C does not stop the run"));
        tokio::time::sleep(retry).await;
    }
}

/// Why one connection ended badly.
enum Stop {
    Lost(Error),
    Own(anyhow::Error),
}

/// One connection; true once the run's last entry was handed on.
async fn follow_once(client: &Client, run_id: &str, next: &mut u64, follower: &mut dyn Follower) -> Result<bool, Stop> {
    let mut entries = client.watch_run(run_id, *next).await.map_err(Stop::Lost)?;
    while let Some(batch) = entries.next().await.map_err(Stop::Lost)? {
        for recorded in batch {
            let read = serde_json::from_str(&recorded.entry_json).context("the server sent an entry that is none");
            let entry: Entry = read.map_err(Stop::Own)?;
            follower.entry(&entry, &recorded).map_err(Stop::Own)?;
            *next = entry.seq + 1;
            if matches!(entry.body, Body::RunFinished(_)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Tells people how a run gets on: a line for every step and retry, and a bar over the steps.
pub(super) struct Progress<'a> {
    output: &'a Output,
    aliases: Aliases,
    bar: ProgressBar,
    /// Where the current attempt stands, for the bar.
    failed: Option<String>,
    /// How long the target of the last call asks to wait.
    asked_ms: Option<u64>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(output: &'a Output, steps_total: u64, aliases: Aliases) -> Progress<'a> {
        let bar = progress::bar(Some(steps_total), "running");
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { output, aliases, bar, failed: None, asked_ms: None }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// A code as it is told.
    fn told(&self, code: &str, step_id: &str) -> String {
        clean(&spelt(code, Some(step_id), &self.aliases))
    }

    fn line(&self, text: &str) -> anyhow::Result<()> {
        if self.output.is_json() {
            return Ok(());
        }
        self.bar.suspend(|| self.output.line(text).and_then(|()| self.output.flush()))?;
        Ok(())
    }
}

impl Follower for Progress<'_> {
    fn entry(&mut self, entry: &Entry, _recorded: &JournalEntry) -> anyhow::Result<()> {
        match &entry.body {
            Body::StepStarted { step_id, .. } => self.bar.set_message(clean(step_id)),
            Body::AttemptObserved { retry_after_ms, .. } => self.asked_ms = *retry_after_ms,
            Body::AttemptJudged { code, retry: true, .. } => self.failed = Some(code.clone()),
            Body::RetryScheduled { step_id, next_attempt, backoff_ms } => {
                let code = self.failed.take().unwrap_or_default();
                let mark = self.output.paint(Paint::Warn, "↻");
                let wait = wait(*backoff_ms, self.asked_ms.take());
                let (step, code) = (clean(step_id), self.told(&code, step_id));
                self.line(&format!("  {mark} {step}  {code}; attempt {next_attempt} in {wait}"))?;
            }
            Body::StepFinished(step) => {
                let mark = match step.code.starts_with("OK") {
                    true => self.output.paint(Paint::Good, "✓"),
                    false => self.output.paint(Paint::Bad, "✗"),
                };
                let (name, code) = (clean(&step.step_id), self.told(&step.code, &step.step_id));
                let cost = cents(step.cost_microcents);
                self.line(&format!("  {mark} {name}  {code}  {cost}"))?;
                self.bar.inc(1);
            }
            _ => {}
        }
        Ok(())
    }

    fn lost(&mut self, why: &str) {
        self.bar.suspend(|| self.output.note(why));
    }
}

/// The result of a run so far, as the server tells it.
pub(super) async fn result(client: &Client, run_id: &str) -> anyhow::Result<RunResult> {
    let answer = client.get_run(run_id).await?;
    source::read_result(&answer.result_json)
}
