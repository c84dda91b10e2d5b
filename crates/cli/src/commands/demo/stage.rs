//! Tells the demo: one line per message and answer, for people or as JSON.

use std::path::Path;
use std::time::Duration;

use macp_client::Client;
use macp_wire::v1::{Ack, Envelope};
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::text::{clean, count};
use crate::view::state_name;

/// What the script says the server will answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Accepted,
    Duplicate,
    Refused(&'static str),
}

/// Where the demo is told, and what it has seen so far.
pub(super) struct Stage<'a> {
    output: &'a Output,
    pace: Duration,
    accepted: u64,
    duplicates: u64,
    refused: u64,
    proofs: u64,
    /// What did not go as it should.
    mismatches: Vec<String>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(output: &'a Output, pace: Duration) -> Stage<'a> {
        Stage { output, pace, accepted: 0, duplicates: 0, refused: 0, proofs: 0, mismatches: Vec::new() }
    }

    pub(super) async fn act(&mut self, title: &str) -> anyhow::Result<()> {
        if self.output.is_json() {
            self.output.value(&json!({ "act": title }))?;
            return Ok(());
        }
        self.output.line("")?;
        self.output.line(self.output.paint(Paint::Bold, title))?;
        self.pause().await
    }

    pub(super) async fn note(&mut self, text: &str) -> anyhow::Result<()> {
        if !self.output.is_json() {
            self.output.line(self.output.paint(Paint::Faint, text))?;
        }
        self.pause().await
    }

    /// Sends an envelope, tells what came of it, and compares that with the script.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        envelope: Envelope,
        words: &str,
        expected: Expected,
    ) -> anyhow::Result<Ack> {
        let ack = client.send(envelope.clone()).await?;
        let code = ack.error.as_ref().map(|error| error.code.as_str()).unwrap_or_default();
        let as_expected = match expected {
            Expected::Accepted => ack.ok && !ack.duplicate,
            Expected::Duplicate => ack.ok && ack.duplicate,
            Expected::Refused(refusal) => !ack.ok && code == refusal,
        };
        match (ack.ok, ack.duplicate) {
            (true, false) => self.accepted += 1,
            (true, true) => self.duplicates += 1,
            (false, _) => self.refused += 1,
        }
        if !as_expected {
            self.mismatches.push(format!(
                "{} of {}: expected {expected:?}, got ok={} duplicate={} {code}",
                envelope.message_type, envelope.sender, ack.ok, ack.duplicate
            ));
        }
        self.tell(&envelope, words, &ack).await?;
        Ok(ack)
    }

    async fn tell(&self, envelope: &Envelope, words: &str, ack: &Ack) -> anyhow::Result<()> {
        let error = ack.error.clone().unwrap_or_default();
        if self.output.is_json() {
            self.output.value(&json!({ "message": {
                "session_id": envelope.session_id, "type": envelope.message_type, "sender": envelope.sender,
                "says": words, "ok": ack.ok, "duplicate": ack.duplicate, "code": error.code,
                "state": state_name(ack.session_state()),
            }}))?;
            return Ok(());
        }
        let (mark, answer) = match (ack.ok, ack.duplicate) {
            (true, false) => (self.output.paint(Paint::Good, "✓"), String::new()),
            (true, true) => {
                (self.output.paint(Paint::Warn, "="), self.output.paint(Paint::Warn, "duplicate, no effect"))
            }
            (false, _) => {
                let text = format!("{}: {}", error.code, clean(&error.message));
                (self.output.paint(Paint::Bad, "✗"), self.output.paint(Paint::Bad, text))
            }
        };
        let sender = self.output.paint(Paint::Name, format!("{:<8}", envelope.sender));
        self.output.line(format!("  {mark} {sender}{:<13} {words}", envelope.message_type).trim_end())?;
        if !answer.is_empty() {
            self.output.line(format!("{:26}└ {answer}", ""))?;
        }
        self.pause().await
    }

    /// Tells how a step of a plan got on.
    pub(super) async fn step(&mut self, good: bool, step_id: &str, words: &str) -> anyhow::Result<()> {
        if self.output.is_json() {
            self.output.value(&json!({ "step": { "step_id": step_id, "ok": good, "says": words } }))?;
            return Ok(());
        }
        let mark = if good { self.output.paint(Paint::Good, "✓") } else { self.output.paint(Paint::Warn, "↻") };
        let step = self.output.paint(Paint::Name, format!("{:<8}", clean(step_id)));
        self.output.line(format!("  {mark} {step}{:<13} {}", "step", clean(words)))?;
        self.pause().await
    }

    /// Tells one thing that was proven, or was not.
    pub(super) async fn proof(&mut self, good: bool, words: &str) -> anyhow::Result<()> {
        self.proofs += 1;
        if !good {
            self.mismatches.push(words.to_owned());
        }
        if self.output.is_json() {
            self.output.value(&json!({ "proof": words, "ok": good }))?;
            return Ok(());
        }
        let mark = if good { self.output.paint(Paint::Good, "✓") } else { self.output.paint(Paint::Bad, "✗") };
        self.output.line(format!("  {mark} {words}"))?;
        self.pause().await
    }

    /// The summary; positive only if everything went as the script says.
    pub(super) fn finish(&self, took: Duration, kept: Option<(&Path, &str)>) -> anyhow::Result<Finding> {
        let good = self.mismatches.is_empty();
        if self.output.is_json() {
            self.output.value(&json!({ "summary": {
                "ok": good, "accepted": self.accepted, "duplicates": self.duplicates, "refused": self.refused,
                "proofs": self.proofs, "mismatches": self.mismatches,
                "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }}))?;
            return Ok(Finding::from_ok(good));
        }
        self.output.line("")?;
        let (word, paint) =
            if good { ("Everything matches", Paint::Good) } else { ("Something does not match", Paint::Bad) };
        self.output.line(format!(
            "{}: {} accepted, {} refused, {}, {} in {:.1} s.",
            self.output.paint(paint, word),
            count(self.accepted, "message", "messages"),
            self.refused,
            count(self.duplicates, "duplicate", "duplicates"),
            count(self.proofs, "proof", "proofs"),
            took.as_secs_f64()
        ))?;
        for mismatch in &self.mismatches {
            self.output.line(format!("  {}", clean(mismatch)))?;
        }
        if let Some((directory, session)) = kept {
            let directory = directory.display();
            self.output.line(format!("Look inside: macp session log {session} --data {directory}"))?;
        } else {
            self.output.line("Next: macp serve, then macp session start --help")?;
        }
        Ok(Finding::from_ok(good))
    }

    async fn pause(&self) -> anyhow::Result<()> {
        if !self.pace.is_zero() {
            self.output.flush()?;
            tokio::time::sleep(self.pace).await;
        }
        Ok(())
    }
}
