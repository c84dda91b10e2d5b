//! `macp plan taxonomy` and `macp plan code`.

use std::fmt::Write;

use anyhow::Context;
use macp_plan_core::taxonomy::{self, CodeInfo, DEFAULT_VERSION, Taxonomy};
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::table::{Cell, Column, Table, left};

const COLUMNS: &[Column] = &[
    left("CODE", 26),
    left("CATEGORY", 11),
    left("RETRYABLE", 9),
    left("SEVERITY", 8),
    left("STOPS", 5),
    left("MEANING", 7),
];

/// Print the codes that steps can end with
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Version of the taxonomy
    #[arg(value_name = "VERSION", default_value = DEFAULT_VERSION)]
    number: String,
    /// As a Markdown table
    #[arg(long, hide = true)]
    markdown: bool,
}

/// Explain one code: what it means, what leads to it, what to do
#[derive(Debug, clap::Args)]
pub(crate) struct CodeArgs {
    /// The code, or another spelling of one
    code: String,
}

pub(super) fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    let taxonomy = Taxonomy::version(&args.number).with_context(|| {
        let kept: Vec<&str> = taxonomy::VERSIONS.iter().map(Taxonomy::number).collect();
        format!("there is no taxonomy {:?}; there are {}", args.number, kept.join(", "))
    })?;
    if args.markdown {
        output.bytes(markdown(taxonomy).as_bytes())?;
        return Ok(Finding::Positive);
    }
    if output.is_json() {
        for info in taxonomy.codes() {
            output.value(&row_json(info))?;
        }
        return Ok(Finding::Positive);
    }
    let rows: Vec<Vec<Cell>> = taxonomy.codes().map(row).collect();
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    output.line(output.paint(Paint::Faint, format!("taxonomy {} {}", taxonomy.number(), taxonomy.digest())))?;
    Ok(Finding::Positive)
}

pub(super) fn explain(args: &CodeArgs, output: &Output) -> anyhow::Result<Finding> {
    let explanation = taxonomy::explain(&args.code)
        .with_context(|| format!("there is no code {:?}; `macp plan taxonomy` lists them", args.code))?;
    if output.is_json() {
        output.value(&explanation)?;
        return Ok(Finding::Positive);
    }
    if let Some(alias) = &explanation.alias {
        output.line(format!("{alias} is another spelling of {}", explanation.code))?;
    }
    output.line(output.paint(Paint::Bold, explanation.code))?;
    output.line(format!("  {}", explanation.meaning))?;
    output.line(format!("  To do: {}", explanation.action))?;
    let retry = if explanation.retryable { "may be retried" } else { "never retried" };
    let stop = if explanation.always_stops { ", ends the run whatever on_error says" } else { "" };
    let (category, severity) = (word(&explanation.category), word(&explanation.severity));
    output.line(format!("  Category {category}, severity {severity}, {retry}{stop}."))?;
    output.line(format!("  In taxonomy {}. What leads to it:", explanation.versions.join(", ")))?;
    for cause in &explanation.causes {
        output.line(format!("  - {cause}"))?;
    }
    Ok(Finding::Positive)
}

/// The table for the documents.
fn markdown(taxonomy: &Taxonomy) -> String {
    let mut table = String::from("| Code | Category | Retryable | Severity | Always stops | Meaning | To do |\n");
    table.push_str("|---|---|---|---|---|---|---|\n");
    for info in taxonomy.codes() {
        let [retryable, stops] = [info.retryable, taxonomy::stops_always(info.code)].map(yes);
        let (category, severity) = (word(&info.category), word(&info.severity));
        let CodeInfo { code, meaning, action, .. } = info;
        writeln!(table, "| `{code}` | {category} | {retryable} | {severity} | {stops} | {meaning} | {action} |")
            .expect("a string takes any text");
    }
    table
}

fn row(info: &CodeInfo) -> Vec<Cell> {
    let paint = if info.code.starts_with("OK") { Paint::Good } else { Paint::Bold };
    vec![
        Cell::painted(paint, info.code),
        word(&info.category).into(),
        yes(info.retryable).into(),
        word(&info.severity).into(),
        yes(taxonomy::stops_always(info.code)).into(),
        info.meaning.into(),
    ]
}

fn row_json(info: &CodeInfo) -> Value {
    json!({
        "code": info.code, "category": info.category, "retryable": info.retryable, "severity": info.severity,
        "always_stops": taxonomy::stops_always(info.code), "meaning": info.meaning, "action": info.action,
    })
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// How a closed word is written.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("a word is written as a string, not as {other:?}"),
    }
}
