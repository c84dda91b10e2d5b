//! `macp run replay`: a recorded run, decided once more.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use macp_client::{Client, RunReplayed};
use macp_plan::result::traced;
use macp_plan_core::compare::{Aspect, BehaviorDigests, Evaluated, Report, Verdict};
use macp_plan_core::journal::RunMode;
use macp_plan_core::replay::{Refused, WhatIf};
use macp_wire::plan::v1::{ReplayMode, ReplayRequest};
use serde_json::{Value, json};

use super::mock::mock;
use super::report;
use super::source::{Damage, Place, RunArgs, Unreadable};
use crate::Finding;
use crate::commands::misused;
use crate::commands::plan::CatalogArgs;
use crate::output::{Output, Paint};
use crate::progress;
use crate::settings::read_rate_card;
use crate::text::clean;

/// Replay a run and tell what differs and whose doing that is
///
/// A mock replay feeds the recorded answers to the decision core and takes every decision again; it calls nothing and
/// works on exported files. A full replay executes the plan against the live world once more, with the same effect
/// keys, and needs a server. Exit codes: 0 match, 10 diverged, 11 explained, 12 not comparable, 2 usage, 1 anything
/// else.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Against the recording, or against the live world
    #[arg(long, value_enum, default_value = "mock")]
    mode: ModeArg,
    /// Put another pin in, as skill=ID@VERSION, taxonomy=VERSION or card=FILE; such a replay never says match
    #[arg(long, value_name = "PIN=VALUE", value_parser = substitution)]
    what_if: Vec<Substitution>,
    /// With a full replay: allow this step to repeat effects that nothing recognises as repetitions
    #[arg(long, value_name = "STEP")]
    allow_step: Vec<String>,
    /// With a full replay: the same id means the same replay, however often it is asked for
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    #[command(flatten)]
    catalog: CatalogArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ModeArg {
    Mock,
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Substitution {
    Skill { id: String, version: String },
    Taxonomy(String),
    Card(PathBuf),
}

fn substitution(text: &str) -> Result<Substitution, String> {
    let wrong = || format!("{text:?} is not skill=ID@VERSION, taxonomy=VERSION or card=FILE");
    let (pin, value) = text.split_once('=').ok_or_else(wrong)?;
    match (pin, value) {
        (_, "") => Err(wrong()),
        ("skill", value) => {
            let (id, version) = value.split_once('@').ok_or_else(wrong)?;
            Ok(Substitution::Skill { id: id.to_owned(), version: version.to_owned() })
        }
        ("taxonomy", version) => Ok(Substitution::Taxonomy(version.to_owned())),
        ("card", path) => Ok(Substitution::Card(path.into())),
        _ => Err(wrong()),
    }
}

pub(super) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let place = args.run.clone().place();
    let what_if = match check_usage(&args, &place).and_then(|()| what_if(&args.what_if)) {
        Ok(what_if) => what_if,
        Err(error) => return misused(error, output),
    };
    match replay(args, place, what_if, output).await {
        Err(error) if is_usage(&error) => misused(error, output),
        found => found,
    }
}

/// Whether a pin to put in does not exist, as this program finds or a server says.
fn is_usage(error: &anyhow::Error) -> bool {
    let here = error.downcast_ref::<Refused>().is_some_and(Refused::is_usage);
    here || error.downcast_ref::<macp_client::Error>().and_then(macp_client::Error::code) == Some("INVALID_REQUEST")
}

/// What cannot be asked for, told before anything is done.
fn check_usage(args: &Args, place: &Place) -> anyhow::Result<()> {
    match args.mode {
        ModeArg::Full if !args.what_if.is_empty() => bail!("a what-if is a mock replay; leave --mode full away"),
        ModeArg::Full if !matches!(place, Place::Server { .. }) => {
            bail!("a full replay executes the plan again, which a server has to do")
        }
        ModeArg::Mock if !args.allow_step.is_empty() => {
            bail!("a mock replay repeats nothing; --allow-step is for --mode full")
        }
        ModeArg::Mock if args.request_id.is_some() => {
            bail!("a mock replay starts nothing; --request-id is for --mode full")
        }
        ModeArg::Full | ModeArg::Mock => Ok(()),
    }
}

async fn replay(args: Args, place: Place, what_if: WhatIf, output: &Output) -> anyhow::Result<Finding> {
    let text = match place {
        Place::Server { server, run_id } => {
            let client = server.connect().await?;
            let request = ReplayRequest {
                allow_step_ids: args.allow_step,
                request_id: args.request_id.unwrap_or_default(),
                ..request(run_id, args.mode, what_if)?
            };
            remote(&client, request).await?
        }
        place => match place.load().await {
            Ok(recorded) => {
                let report = mock(&recorded, what_if, &args.catalog.catalog()?)?;
                serde_json::to_string(&traced(&report))?
            }
            Err(Unreadable::Damaged(damage)) => return damaged(&damage, !what_if.is_empty(), output),
            Err(Unreadable::Failed(error)) => return Err(error),
        },
    };
    let report: Report = serde_json::from_str(&text).context("the report cannot be read")?;
    if output.is_json() {
        output.value(&serde_json::from_str::<Value>(&text)?)?;
    } else {
        report::show(&report, output)?;
    }
    Ok(Finding::Verdict(report.verdict))
}

fn what_if(substitutions: &[Substitution]) -> anyhow::Result<WhatIf> {
    let mut what_if = WhatIf::default();
    for substitution in substitutions {
        match substitution {
            Substitution::Skill { id, version } => {
                what_if.skills.insert(id.clone(), version.clone());
            }
            Substitution::Taxonomy(version) => what_if.taxonomy_version = Some(version.clone()),
            Substitution::Card(path) => what_if.rate_card = Some(read_rate_card(path)?),
        }
    }
    Ok(what_if)
}

fn request(run_id: String, mode: ModeArg, what_if: WhatIf) -> anyhow::Result<ReplayRequest> {
    let mode = match mode {
        ModeArg::Mock => ReplayMode::Mock,
        ModeArg::Full => ReplayMode::Full,
    };
    let card = what_if.rate_card.as_ref().map(serde_json::to_string).transpose()?;
    let what_if_skills: BTreeMap<String, String> = what_if.skills;
    Ok(ReplayRequest {
        run_id,
        mode: mode.into(),
        what_if_skills: what_if_skills.into_iter().collect(),
        what_if_taxonomy_version: what_if.taxonomy_version.unwrap_or_default(),
        what_if_rate_card_json: card.unwrap_or_default(),
        ..ReplayRequest::default()
    })
}

/// The report of a replay that a server makes.
async fn remote(client: &Client, request: ReplayRequest) -> anyhow::Result<String> {
    let mut events = client.replay_run(request).await?;
    let bar = progress::bar(Some(0), "replaying");
    let report = loop {
        match events.next().await {
            Ok(Some(RunReplayed::Progress(progress))) => {
                bar.set_length(progress.steps_total.into());
                bar.set_position(progress.steps_done.into());
            }
            Ok(Some(RunReplayed::Report(report))) => break Ok(report),
            Ok(None) => break Err(anyhow::anyhow!("the server ended the replay without a report")),
            Err(error) => break Err(error.into()),
        }
    };
    bar.finish_and_clear();
    report
}

/// A run that cannot be believed is compared with nothing, and where it breaks is told.
fn damaged(damage: &Damage, what_if: bool, output: &Output) -> anyhow::Result<Finding> {
    if output.is_json() {
        output.value(&report_of_damage(damage, what_if))?;
    } else {
        let word = output.paint(Paint::Warn, "NOT COMPARABLE");
        output.line(format!("{word}: the recording is damaged: {}", clean(&damage.to_string())))?;
    }
    Ok(Finding::Verdict(Verdict::NotComparable))
}

/// The report about a run that cannot be believed. It has what every report has: even which run it was is taken from
/// what is damaged, so that it is null here, and so is every aspect.
fn report_of_damage(damage: &Damage, what_if: bool) -> Value {
    let subject = damage.seq.map_or_else(|| "recording".to_owned(), |seq| format!("entry {seq}"));
    let unknown: BTreeMap<Aspect, Option<bool>> = Aspect::ALL.into_iter().map(|aspect| (aspect, None)).collect();
    json!({
        "trace_id": null, "replay_mode": RunMode::MockReplay, "original_run_id": null, "replay_run_id": null,
        "plan_hash": null, "verdict": Verdict::NotComparable, "what_if": what_if, "behavior_match": unknown,
        "behavior_digest": BehaviorDigests::default(), "first_divergence": null, "mismatches": [],
        "pin_violations": [{"kind": "journal", "subject": subject, "why": damage.to_string()}],
        "inputs_changed": [], "evaluated": Evaluated::default(), "skipped": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutions_name_a_pin_and_a_value() {
        let skill = Substitution::Skill { id: "http_call".to_owned(), version: "2.0.0".to_owned() };
        assert_eq!(substitution("skill=http_call@2.0.0"), Ok(skill));
        assert_eq!(substitution("taxonomy=1.0.0"), Ok(Substitution::Taxonomy("1.0.0".to_owned())));
        assert_eq!(substitution("card=a=b.json"), Ok(Substitution::Card("a=b.json".into())));
        for wrong in ["", "skill", "skill=http_call", "taxonomy=", "price=1", "=1"] {
            assert!(substitution(wrong).is_err(), "{wrong}");
        }
    }
}
