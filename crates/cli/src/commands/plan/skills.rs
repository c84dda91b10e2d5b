//! `macp plan skills`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use macp_plan_core::skill::SkillMetadata;
use serde_json::{Value, json};

use super::{CatalogArgs, skill_diff};
use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::table::{Cell, Column, Table, left};
use crate::text::clean;

const COLUMNS: &[Column] = &[left("SKILL", 20), left("ENABLED", 7), left("NAME", 12), left("DESCRIPTION", 11)];

/// List the skills plans can use, or print what one of them declares
///
/// Without --live these are the skills that come with this program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print what this skill declares, as http_call or http_call@1.2.0
    #[arg(value_name = "ID[@VERSION]")]
    skill: Option<String>,
    /// Compare it with what it declared before: a file written by `macp --json plan skills ID`. The exit code is 1 if
    /// something differs
    #[arg(long, value_name = "FILE", requires = "skill")]
    diff: Option<PathBuf>,
    /// Ask a server which skills it offers
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    catalog: CatalogArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// One skill in the list.
struct Listed {
    skill_id: String,
    version: String,
    name: String,
    description: String,
    enabled: bool,
}

pub(super) async fn run(args: &Args, output: &Output) -> anyhow::Result<Finding> {
    match &args.skill {
        None => list(&if args.live { live(args).await? } else { built_in(args)? }, output)?,
        Some(named) => {
            let metadata = if args.live { describe_live(args, named).await? } else { describe(args, named)? };
            if let Some(before) = &args.diff {
                return skill_diff::show(&skill_diff::read(before)?, &metadata, output);
            }
            if output.is_json() { output.value(&metadata)? } else { output.line(format!("{metadata:#}"))? }
        }
    }
    Ok(Finding::Positive)
}

fn list(skills: &[Listed], output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        for Listed { skill_id, version, name, description, enabled } in skills {
            output.value(&json!({
                "skill_id": skill_id, "version": version, "name": name, "description": description, "enabled": enabled,
            }))?;
        }
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = skills
        .iter()
        .map(|skill| {
            let (paint, enabled) = if skill.enabled { (Paint::Good, "yes") } else { (Paint::Warn, "no") };
            vec![
                Cell::painted(Paint::Bold, clean(&format!("{}@{}", skill.skill_id, skill.version))),
                Cell::painted(paint, enabled),
                clean(&skill.name).into(),
                clean(&skill.description).into(),
            ]
        })
        .collect();
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    Ok(())
}

fn built_in(args: &Args) -> anyhow::Result<Vec<Listed>> {
    let registry = args.catalog.registry()?;
    let listed = registry.registrations().map(|registration| {
        let SkillMetadata { skill_id, version, name, description, .. } = registration.skill.metadata().clone();
        Listed { skill_id, version, name, description, enabled: registration.enabled }
    });
    Ok(listed.collect())
}

fn describe(args: &Args, named: &str) -> anyhow::Result<Value> {
    let registry = args.catalog.registry()?;
    let (skill_id, version) = split(named);
    let meant: Vec<_> = registry
        .registrations()
        .filter(|registration| registration.skill.metadata().skill_id == skill_id)
        .filter(|registration| version.is_none_or(|version| registration.skill.metadata().version == version))
        .collect();
    match meant.as_slice() {
        [one] => Ok(serde_json::to_value(one.skill.metadata())?),
        [] => bail!("there is no skill {named:?}; `macp plan skills` lists them"),
        _ => bail!("there are several versions of {named:?}; name one, as {named}@VERSION"),
    }
}

async fn live(args: &Args) -> anyhow::Result<Vec<Listed>> {
    let skills = args.server.connect().await?.list_skills().await?;
    let listed = skills.into_iter().map(|skill| Listed {
        skill_id: skill.skill_id,
        version: skill.version,
        name: skill.name,
        description: skill.description,
        enabled: skill.enabled,
    });
    Ok(listed.collect())
}

async fn describe_live(args: &Args, named: &str) -> anyhow::Result<Value> {
    let (skill_id, version) = split(named);
    let answer = args.server.connect().await?.describe_skill(skill_id, version.unwrap_or_default()).await?;
    serde_json::from_str(&answer.metadata_json).context("the server's description is no JSON")
}

fn split(named: &str) -> (&str, Option<&str>) {
    match named.split_once('@') {
        Some((skill_id, version)) => (skill_id, Some(version)),
        None => (named, None),
    }
}
