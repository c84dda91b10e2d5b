//! Replay of a trace written by `macp serve --audit`.

use std::io;
use std::path::Path;

use anyhow::Context;
use macp_archive::{TraceDifference, TraceReport, replay_trace_with};
use serde_json::json;

use crate::Finding;
use crate::output::{Output, Paint};
use crate::progress;
use crate::text::{clean, count};

/// A recorded trace: every input with its verdict, the refused ones too.
pub(super) fn run(path: &Path, quiet: bool, output: &Output) -> anyhow::Result<Finding> {
    let length = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    let bar = progress::bytes(Some(length), "replaying");
    let mut shown = Ok(());
    let report = replay_trace_with(path, &mut |bytes| bar.set_position(bytes), &mut |difference| {
        if quiet || shown.is_err() {
            return;
        }
        shown = bar.suspend(|| show(difference, output));
    });
    bar.finish_and_clear();
    shown?;
    conclude(&report?, output)
}

fn show(difference: &TraceDifference, output: &Output) -> io::Result<()> {
    if output.is_json() {
        let TraceDifference { line, session_id, after_sequence, expected, found } = difference;
        return output.value(&json!({ "difference": {
            "line": line, "session_id": session_id, "after_sequence": after_sequence,
            "expected": expected, "found": found,
        }}));
    }
    output.line(clean(&difference.to_string()))
}

fn conclude(report: &TraceReport, output: &Output) -> anyhow::Result<Finding> {
    let same = report.different == 0;
    if output.is_json() {
        output.value(&json!({ "report": { "verdict": if same { "match" } else { "diverged" }, "trace": report } }))?;
    } else {
        let (word, paint) = if same { ("MATCH", Paint::Good) } else { ("DIVERGED", Paint::Bad) };
        let events = count(report.events, "verdict", "verdicts");
        output.line(format!(
            "{}: {events}: {} same, {} different; not compared: {} operational, {} of sessions begun earlier, {} lost",
            output.paint(paint, word),
            report.same,
            report.different,
            report.operational,
            report.incomplete,
            report.lost
        ))?;
        if report.torn {
            output.line("note: the last line was cut off, as by a kill of the server; it is not counted")?;
        }
    }
    Ok(Finding::from_ok(same))
}
