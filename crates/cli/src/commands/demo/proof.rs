//! What can be proven afterwards, and that a change cannot hide.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use macp_archive::{Keys, Replay, Verification, replay, verify};
use macp_client::Client;
use macp_kernel::replay::Options;
use macp_wire::history::v1::ReplayVerdict;
use macp_wire::v1::{CommitmentPayload, Envelope, SessionState};
use prost::Message;

use super::stage::Stage;
use crate::source;
use crate::text::cut;
use crate::view::state_name;

/// Characters of a session's id that are shown.
const SESSION_CHARACTERS_MAX: usize = 20;

/// A message from before the restart is still known.
pub(super) async fn remembers(stage: &mut Stage<'_>, client: &Client, vote: Envelope) -> anyhow::Result<()> {
    let ack = client.send(vote).await?;
    let words = "a vote from before the restart, sent again, is still a duplicate";
    stage.proof(ack.ok && ack.duplicate, words).await
}

pub(super) async fn replays(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<()> {
    let report = client.replay_report(session).await?;
    let good = report.verdict() == ReplayVerdict::Match && report.state() == SessionState::Resolved;
    let words = if good {
        let outcome = outcome(&report.resolution);
        let state = state_name(report.state());
        format!("{}: {} decisions replayed, all the same; {state} with {outcome}", short(session), report.entries)
    } else {
        format!("{}: replay says {:?}: {}", short(session), report.verdict(), report.message)
    };
    stage.proof(good, &words).await
}

/// The course of a session whose mode leaves the outcome to those who took part.
pub(super) async fn replays_course(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<()> {
    let mut history = source::fetch(client, session).await?;
    let options = Options { semantic: false, ..Options::default() };
    let (good, words) = match replay(&mut history, options, &mut |_| {}) {
        Replay::Match(report) => {
            let state = state_name(report.state.to_wire());
            (true, format!("{} messages of the executor replayed, all the same; {state}", report.entries))
        }
        Replay::Diverged { divergence, .. } => (false, divergence.to_string()),
        Replay::Refused(message) => (false, message),
        Replay::Failed(unreadable) => return Err(unreadable.into()),
    };
    stage.proof(good, &format!("{}: {words}", short(session))).await
}

/// Enough of a session's id to tell it from others here.
fn short(session: &str) -> String {
    cut(session, SESSION_CHARACTERS_MAX)
}

/// What a resolution says in one word.
fn outcome(resolution: &[u8]) -> String {
    let word = match serde_json::from_slice::<serde_json::Value>(resolution) {
        Ok(value) => {
            let word = value.get("action").or_else(|| value.get("converged_value"));
            word.and_then(serde_json::Value::as_str).map(str::to_owned)
        }
        // By today's standard it is the Commitment itself.
        Err(_) => CommitmentPayload::decode(resolution).ok().map(|commitment| commitment.action),
    };
    word.map_or_else(|| String::from_utf8_lossy(resolution).into_owned(), |word| format!("{word:?}"))
}

pub(super) async fn verifies(stage: &mut Stage<'_>, client: &Client, session: &str) -> anyhow::Result<()> {
    let found = client.verify(session).await?;
    let good = found.ok && found.sealed;
    let words = if good {
        let head = hex::encode(&found.head_hash);
        format!("{}: hash chain of {} entries whole and sealed, head {}…", short(session), found.entries, &head[..16])
    } else {
        format!("{}: verification failed at entry {}: {}", short(session), found.bad_sequence, found.message)
    };
    stage.proof(good, &words).await
}

/// Takes a session away as a file, proves the file without the server, then changes one byte of it.
pub(super) async fn exports(stage: &mut Stage<'_>, client: &Client, session: &str, path: &Path) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let mut chunks = client.export(session).await?;
    while let Some(chunk) = chunks.next().await? {
        bytes.extend_from_slice(&chunk);
    }
    std::fs::write(path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    let found = check(path)?;
    let words = format!("exported to one file, verified without the server: {} entries", found.entries);
    stage.proof(found.ok(), &words).await?;

    let target = 5;
    let mut tampered = tempfile::NamedTempFile::new()?;
    tampered.write_all(&flip(bytes, target)?)?;
    let found = check(tampered.path())?;
    let (good, words) = match &found.bad {
        Some(bad) if bad.sequence == target => {
            (true, format!("one byte of entry {target} changed in a copy: found, and entry {} is named", bad.sequence))
        }
        Some(bad) => (false, format!("one byte of entry {target} changed, but entry {} is blamed", bad.sequence)),
        None => (false, format!("one byte of entry {target} changed, and nobody noticed")),
    };
    stage.proof(good, &words).await
}

fn check(path: &Path) -> anyhow::Result<Verification> {
    Ok(verify(&mut source::open_file(path)?, &Keys::none(), &mut |_| {})?)
}

/// Changes one character in the middle of an entry's record. The file has a header, then one line per entry.
fn flip(mut bytes: Vec<u8>, sequence: u64) -> anyhow::Result<Vec<u8>> {
    let line = usize::try_from(sequence).context("a small number")?;
    let starts: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let (start, end) = match (starts.get(line - 1), starts.get(line)) {
        (Some(start), Some(end)) => (*start, *end),
        _ => anyhow::bail!("the export has no entry {sequence}"),
    };
    let name = b"\"record\":\"";
    let record = bytes[start..end].windows(name.len()).position(|window| window == name);
    let record = start + record.context("a line of an export has a record")? + name.len();
    let at = record + (end - record) / 2;
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    Ok(bytes)
}
