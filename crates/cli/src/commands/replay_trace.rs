//! Replay of a trace written by `macp serve --audit`.

use std::io;
use std::path::Path;

use anyhow::Context;
use macp_archive::{TraceFinding, TraceFound, TraceReport, TraceVerdict, replay_trace_with, trace_bytes};
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::{clean, count};

/// A recorded trace: every input with its verdict, the refused ones too.
pub(super) fn run(path: &Path, quiet: bool, output: &Output) -> anyhow::Result<Finding> {
    let length = trace_bytes(path).with_context(|| format!("cannot read {}", path.display()))?;
    let bar = progress::bytes(Some(length), "replaying");
    let mut shown = Ok(());
    let report = replay_trace_with(path, &mut |bytes| bar.set_position(bytes), &mut |finding| {
        if quiet || shown.is_err() {
            return;
        }
        shown = bar.suspend(|| show(path, finding, output));
    });
    bar.finish_and_clear();
    shown?;
    conclude(&report?, output)
}

fn show(path: &Path, finding: &TraceFinding, output: &Output) -> io::Result<()> {
    if output.is_json() {
        let TraceFinding { place, session_id, after_sequence, what } = finding;
        let (file, line) = (&place.path, place.line);
        return output.value(&match what {
            TraceFound::Difference { expected, found } => json!({ "difference": {
                "file": file, "line": line, "session_id": session_id, "after_sequence": after_sequence,
                "expected": expected, "found": found,
            }}),
            TraceFound::Gap(gap) => json!({ "gap": {
                "file": file, "line": line, "session_id": session_id, "after_sequence": after_sequence,
                "known_sequence": gap.sequence, "known_ordinal": gap.ordinal, "told": gap.told,
            }}),
        });
    }
    // Of a file that was rotated away, its name is wanted.
    let place = match finding.place.path == path {
        true => String::new(),
        false => format!("{}: ", finding.place.path.display()),
    };
    output.line(clean(&format!("{place}{finding}")))
}

fn conclude(report: &TraceReport, output: &Output) -> anyhow::Result<Finding> {
    let verdict = report.verdict();
    let (name, word, paint) = match verdict {
        TraceVerdict::Match => ("match", "MATCH", Paint::Good),
        TraceVerdict::Diverged => ("diverged", "DIVERGED", Paint::Bad),
        TraceVerdict::Incomplete => ("incomplete", "INCOMPLETE", Paint::Bad),
        TraceVerdict::NothingCompared => ("nothing_compared", "NOTHING COMPARED", Paint::Bad),
    };
    if output.is_json() {
        output.value(&json!({ "report": { "verdict": name, "trace": report } }))?;
        return Ok(Finding::from_ok(verdict == TraceVerdict::Match));
    }
    let events = count(report.events, "verdict", "verdicts");
    let files = if report.files > 1 { format!(" in {} files", report.files) } else { String::new() };
    output.line(format!(
        "{}: {events}{files}: {} same, {} different; not compared: {} operational, {} of sessions begun before the trace, \
         {} behind gaps, {} lost",
        output.paint(paint, word),
        report.same,
        report.different,
        report.operational,
        report.earlier,
        report.behind,
        report.lost
    ))?;
    if report.gaps > 0 {
        let gaps = count(report.gaps, "gap", "gaps");
        output.line(format!("{gaps} that the trace does not explain: lines were taken out, or a file is missing"))?;
    }
    if report.torn > 0 {
        let lines = count(report.torn, "last line of a file was", "last lines of files were");
        output.line(format!("note: {lines} cut off, as by a kill of the server; not counted"))?;
    }
    Ok(Finding::from_ok(verdict == TraceVerdict::Match))
}
