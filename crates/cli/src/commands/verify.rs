//! `macp verify`: hash chain and signatures of a history.

use std::path::{Path, PathBuf};

use anyhow::bail;
use macp_archive::{FileError, Keys, Source, Verification, is_trace, verify};
use macp_ledger::sqlite::Stray;
use macp_ledger::{Checker, Failure, FailureKind, Filter, History, SqliteStore, Store};
use macp_wire::history::v1::{VerifySessionResponse, entry};
use serde_json::json;

use crate::Finding;
use crate::databases;
use crate::output::{Output, Paint, causes};
use crate::progress;
use crate::source::{self, HistoryArgs, Place};
use crate::text::{clean, count};

/// Sessions listed at once when all are checked.
const PAGE_SESSIONS: usize = 1_000;

/// Check that a history is what was written
///
/// Follows the hash chain from the first entry to the last, checks the seal of an ended session and the signatures,
/// and names the first bad entry. The history may be a session of a server, of a data directory, or an exported file.
///
/// This shows that nothing was changed since the chain was made, not that what it says follows from the rules: whoever
/// can write a whole new chain can write a false outcome into it. `macp replay` checks the meaning, and so does
/// `macp import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    history: HistoryArgs,
    /// Check every session of the data directory
    #[arg(long, requires = "data", conflicts_with_all = ["target", "file"])]
    all: bool,
    /// JSON file with the Ed25519 keys of senders; a server uses its own
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let keys = match &args.keys {
        Some(path) => Keys::read(path)?,
        None => Keys::none(),
    };
    if args.all {
        let directory = args.history.data().expect("--all requires --data").to_owned();
        return all(&directory, &keys, output);
    }
    if args.history.names_nothing() && args.history.data().is_some() {
        bail!("name a session, or ask for --all of them");
    }
    let mut label = String::new();
    let mut is_whole = true;
    let (session_id, found) = match args.history.place()? {
        Place::File(path) => match source::open_file(&path) {
            Ok(source) => check(source, &keys)?,
            // A file whose first line was damaged is a finding like any other, and has no name but its own.
            Err(error @ FileError::Header { .. }) => {
                label = path.display().to_string();
                (String::new(), Found::as_a_whole(&error.to_string()))
            }
            Err(FileError::Format { path }) if is_trace(&path).is_ok_and(|is_trace| is_trace) => {
                bail!("{} is a trace, which has no chain to verify; use `macp replay`", path.display())
            }
            Err(error) => return Err(error.into()),
        },
        Place::Directory { directory, session_id } => match databases::open(&directory) {
            Ok(store) => {
                is_whole = store.loss().is_none();
                check(Source::Store(source::open_history(&store, &session_id)?), &keys)?
            }
            Err(failure) if failure.kind() == FailureKind::Loss => {
                (session_id, Found::as_a_whole(&failure.to_string()))
            }
            Err(failure) => return Err(failure.into()),
        },
        Place::Server { server, session_id } => {
            let client = source::connect(&server, &session_id).await?;
            let bar = progress::waiting("the server verifies");
            let answer = client.verify(&session_id).await;
            bar.finish_and_clear();
            (session_id, answer?.into())
        }
    };
    report(&session_id, &label, &found, output)?;
    Ok(Finding::from_ok(found.bad.is_none() && is_whole))
}

/// What was found, wherever the check was done.
#[derive(Debug)]
struct Found {
    entries: u64,
    head: String,
    sealed: bool,
    signatures_verified: u64,
    signatures_unchecked: u64,
    /// Sequence of the first bad entry, 0 for the history as a whole, and what is wrong.
    bad: Option<(u64, String)>,
}

impl Found {
    fn as_a_whole(message: &str) -> Found {
        let bad = Some((0, message.to_owned()));
        Found { entries: 0, head: String::new(), sealed: false, signatures_verified: 0, signatures_unchecked: 0, bad }
    }
}

impl From<Verification> for Found {
    fn from(found: Verification) -> Self {
        Found {
            entries: found.entries,
            head: found.head.map(|head| head.to_string()).unwrap_or_default(),
            sealed: found.sealed,
            signatures_verified: found.signatures_verified,
            signatures_unchecked: found.signatures_unchecked,
            bad: found.bad.map(|bad| (bad.sequence, bad.message)),
        }
    }
}

impl From<VerifySessionResponse> for Found {
    fn from(answer: VerifySessionResponse) -> Self {
        Found {
            entries: answer.entries,
            head: hex::encode(&answer.head_hash),
            sealed: answer.sealed,
            signatures_verified: answer.signatures_verified,
            signatures_unchecked: answer.signatures_unchecked,
            bad: (!answer.ok).then_some((answer.bad_sequence, answer.message)),
        }
    }
}

fn check(mut source: Source<'_>, keys: &Keys) -> anyhow::Result<(String, Found)> {
    let bar = progress::bar(Some(source.entries()), "verifying");
    let found = verify(&mut source, keys, &mut |entries| bar.set_position(entries));
    bar.finish_and_clear();
    Ok((source.session_id().to_owned(), found?.into()))
}

/// Where the session is not known by its id, people know it by the label.
fn report(session_id: &str, label: &str, found: &Found, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        output.value(&json!({
            "session_id": session_id,
            "ok": found.bad.is_none(),
            "entries": found.entries,
            "head_hash": found.head,
            "sealed": found.sealed,
            "signatures_verified": found.signatures_verified,
            "signatures_unchecked": found.signatures_unchecked,
            "bad_sequence": found.bad.as_ref().map(|(sequence, _)| sequence),
            "message": found.bad.as_ref().map(|(_, message)| message),
        }))?;
        return Ok(());
    }
    if let Some((sequence, message)) = &found.bad {
        let place = match sequence {
            0 => "the history as a whole".to_owned(),
            sequence => format!("entry {sequence}"),
        };
        let name = if session_id.is_empty() { label } else { session_id };
        output.line(format!("{} {} at {place}: {}", output.paint(Paint::Bad, "BAD"), clean(name), clean(message)))?;
        return Ok(());
    }
    let seal = if found.sealed { "sealed" } else { "open" };
    let entries = count(found.entries, "entry", "entries");
    let good = output.paint(Paint::Good, "OK");
    output.line(format!("{good} {}: {entries}, {seal}, head {}", clean(session_id), found.head))?;
    let signatures = found.signatures_verified + found.signatures_unchecked;
    if signatures > 0 {
        let unchecked = found.signatures_unchecked;
        output.line(format!(
            "   signatures: {} verified, {unchecked} without a registered key",
            found.signatures_verified
        ))?;
    }
    Ok(())
}

/// None if there is no such session.
fn check_stored(store: &SqliteStore, session_id: &str, keys: &Keys) -> anyhow::Result<Option<Found>> {
    let Some(history) = History::open(store, session_id)? else {
        return Ok(None);
    };
    Ok(Some(verify(&mut Source::Store(history), keys, &mut |_| {})?.into()))
}

/// Whether a failure is one of the disk or the database, and no finding about what is stored there.
fn is_of_the_store(error: &anyhow::Error) -> bool {
    let mut failures = error.chain().filter_map(|cause| cause.downcast_ref::<Failure>());
    failures.any(|failure| failure.kind().concerns_all())
}

/// A history without a row in the session index; its first entry tells whose it is.
fn describe(stray: &Stray) -> (String, Found) {
    let entries = count(stray.entries, "entry is", "entries are");
    let message = format!("{entries} stored, but the session index has no row with key {}", stray.key);
    let first = Checker::new().check(&stray.first);
    let name = match first.map(|entry| entry.input) {
        Ok(Some(entry::Input::Envelope(envelope))) => envelope.session_id,
        // Nothing is left that names it but the key.
        Ok(_) | Err(_) => String::new(),
    };
    (name, Found { entries: stray.entries, ..Found::as_a_whole(&message) })
}

/// Every session of a directory, and whether its databases have everything that was acknowledged. Bad sessions are
/// reported one by one.
fn all(directory: &Path, keys: &Keys, output: &Output) -> anyhow::Result<Finding> {
    let missing = databases::missing(directory)?;
    if !output.is_json() {
        let bad = output.paint(Paint::Bad, "BAD");
        missing.iter().try_for_each(|text| output.line(format!("{bad} {}", clean(text))))?;
    }
    let store = match SqliteStore::open_read_only(directory) {
        Ok(store) => store,
        Err(failure) if failure.kind() == FailureKind::Loss => {
            if output.is_json() {
                output.value(&json!({ "ok": false, "sessions": 0, "entries": 0, "bad": 0, "missing": missing }))?;
            }
            return Ok(Finding::Negative);
        }
        Err(failure) => return Err(failure.into()),
    };
    let bar = progress::bar(None, "verifying sessions");
    let (mut sessions, mut entries, mut bad) = (0_u64, 0_u64, 0_u64);
    let mut after: Option<String> = None;
    loop {
        let page = store.list(after.as_deref(), PAGE_SESSIONS, Filter::All)?;
        let Some(last) = page.last() else {
            break;
        };
        after = Some(last.session_id.to_string());
        for head in &page {
            // One that cannot be read says nothing about the others.
            let found = match check_stored(&store, &head.session_id, keys) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) if is_of_the_store(&error) => return Err(error),
                Err(error) => Found::as_a_whole(&causes(&error)),
            };
            sessions += 1;
            entries += found.entries;
            bar.inc(1);
            if found.bad.is_some() {
                bad += 1;
                match bar.suspend(|| report(&head.session_id, "", &found, output).and_then(|()| Ok(output.flush()?))) {
                    // Nobody reads of the others, and what was found stands.
                    Err(_) if output.is_unread() => return Ok(Finding::Negative),
                    told => told?,
                }
            }
        }
    }
    // Sessions are found by their rows in the index, and a row that was removed leads nowhere.
    let mut after = None;
    while let Some(stray) = store.next_stray(after)? {
        after = Some(stray.key);
        bad += 1;
        let (name, found) = describe(&stray);
        match bar.suspend(|| report(&name, "without a name", &found, output).and_then(|()| Ok(output.flush()?))) {
            Err(_) if output.is_unread() => return Ok(Finding::Negative),
            told => told?,
        }
    }
    bar.finish_and_clear();
    if output.is_json() {
        output.value(&json!({
            "ok": bad == 0 && missing.is_empty(),
            "sessions": sessions,
            "entries": entries,
            "bad": bad,
            "missing": missing,
        }))?;
    } else {
        let (word, paint) = if bad == 0 { ("OK", Paint::Good) } else { ("BAD", Paint::Bad) };
        let checked = count(sessions, "session", "sessions");
        let entries = count(entries, "entry", "entries");
        output.line(format!("{} {checked} with {entries} checked, {bad} bad", output.paint(paint, word)))?;
    }
    Ok(Finding::from_ok(bad == 0 && missing.is_empty()))
}
