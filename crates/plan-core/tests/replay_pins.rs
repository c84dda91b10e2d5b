//! Pins that do not hold: the cells of the matrix that concern replays, and what-if (tests 38 and 39).

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::compare::{Aspect, Origin, Report, Verdict};
use macp_plan_core::digest::{self, RATE_CARD_LABEL};
use macp_plan_core::journal::{Journal, RunMode};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::replay::{Options, WhatIf, full_replay, mock_replay};
use macp_plan_core::skill::Catalog;
use macp_plan_core::testkit::{
    Answer, Kit, ScriptedSkill, World, execute, freeze, http, llm_step, plan, rate_card, step,
};
use serde_json::{Value, json};

fn value() -> Value {
    plan(1_000, vec![step("s1", "http_call", json!({"host": "x"})), llm_step("s2", "say", 10)])
}

fn world() -> World {
    World::new().answer("s1", 0, http(503)).always("s2", Answer::of(Cause::Success).tokens(100, 10))
}

fn recorded(plan: &Arc<FrozenPlan>) -> Journal {
    execute(plan, &Kit::standard().shared(), world()).journal
}

fn mock(plan: &Arc<FrozenPlan>, journal: &Journal, catalog: &Arc<dyn Catalog>, what_if: WhatIf) -> Report {
    let options = Options { what_if, ..Options::new("r-replay") };
    mock_replay(plan, journal, &|_| None, catalog, &options).expect("its own plan").report
}

fn kinds(report: &Report) -> Vec<&str> {
    report.pin_violations.iter().map(|violation| violation.kind.as_str()).collect()
}

fn nulls(report: &Report) -> Vec<Aspect> {
    report.behavior_match.iter().filter(|(_, it)| it.is_none()).map(|(aspect, _)| *aspect).collect()
}

/// AOS-99, first row: without the skill, what needs it is null, the rest is evaluated, and it never is a match.
#[test]
fn a_missing_skill() {
    let plan = freeze(value());
    let journal = recorded(&plan);
    let catalog = Kit::standard().without("llm_invoke", "2.0.0").shared();
    let report = mock(&plan, &journal, &catalog, WhatIf::default());
    assert_eq!((report.verdict, kinds(&report)), (Verdict::NotComparable, vec!["skill_missing"]));
    assert!(report.mismatches.is_empty(), "{:#?}", report.mismatches);
    assert_eq!(nulls(&report), [Aspect::CostCents, Aspect::SideEffects]);

    // A card in the plan prices the call without the skill.
    let mut with_card = value();
    with_card["pins"]["rate_card"]["card"] = rate_card();
    let plan = freeze(with_card);
    let report = mock(&plan, &recorded(&plan), &catalog, WhatIf::default());
    assert_eq!((report.verdict, nulls(&report)), (Verdict::NotComparable, vec![Aspect::SideEffects]));
    assert!(report.mismatches.is_empty(), "{:#?}", report.mismatches);

    let journal = recorded(&plan);
    let report = full_replay(&plan, &journal, &journal, &|_| None, &catalog).expect("its own plan");
    assert_eq!((report.verdict, report.replay_mode), (Verdict::NotComparable, RunMode::FullReplay));
    assert_eq!(nulls(&report).len(), Aspect::ALL.len());
}

/// AOS-99, second row.
#[test]
fn a_disabled_skill() {
    let plan = freeze(value());
    let journal = recorded(&plan);
    let catalog = Kit::standard().registered("http_call", "1.2.0", false, None).shared();
    let report = mock(&plan, &journal, &catalog, WhatIf::default());
    assert_eq!((report.verdict, kinds(&report)), (Verdict::Match, vec!["skill_disabled"]));
    let report = full_replay(&plan, &journal, &journal, &|_| None, &catalog).expect("its own plan");
    assert_eq!(report.verdict, Verdict::NotComparable);
}

/// AOS-99, third row: another build under the same version is a warning, and what differs from there on is its doing.
#[test]
fn another_build() {
    let builds = ["one", "two"].map(|text| digest::of_bytes(RATE_CARD_LABEL, text.as_bytes()));
    let mut pinned = value();
    pinned["pins"]["skill_builds"] = json!({"llm_invoke@2.0.0": builds[0]});
    let plan = freeze(pinned);
    let journal = recorded(&plan);
    let same = Kit::standard().registered("llm_invoke", "2.0.0", true, Some(builds[0].clone())).shared();
    assert!(mock(&plan, &journal, &same, WhatIf::default()).pin_violations.is_empty());
    let other = Kit::standard().registered("llm_invoke", "2.0.0", true, Some(builds[1].clone())).shared();
    let report = mock(&plan, &journal, &other, WhatIf::default());
    assert_eq!((report.verdict, kinds(&report)), (Verdict::Match, vec!["skill_build_changed"]));

    // Another build may be switched off as well, and then it is not called.
    let off = Kit::standard().registered("llm_invoke", "2.0.0", false, Some(builds[1].clone())).shared();
    assert_eq!(kinds(&mock(&plan, &journal, &off, WhatIf::default())), ["skill_build_changed", "skill_disabled"]);
    let report = full_replay(&plan, &journal, &journal, &|_| None, &off).expect("its own plan");
    assert_eq!(report.verdict, Verdict::NotComparable);

    let changed = ScriptedSkill::new("llm_invoke", "2.0.0", None, "OK_LLM_INVOKE");
    let other = Kit::standard().with(changed).registered("llm_invoke", "2.0.0", true, Some(builds[1].clone())).shared();
    let report = mock(&plan, &journal, &other, WhatIf::default());
    assert_eq!(report.verdict, Verdict::Diverged);
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Pin), "{:#?}", report.mismatches);
    // A live replay under another build: what differs from its step on is the build's doing, whatever the world said.
    let live = |world: World| execute(&plan, &other, world).journal;
    let usage = |tokens| world().always("s2", Answer::of(Cause::Success).tokens(100, tokens));
    let report = full_replay(&plan, &journal, &live(usage(9)), &|_| None, &other).expect("its own plan");
    assert_eq!((report.verdict, kinds(&report)), (Verdict::Diverged, vec!["skill_build_changed"]));
    assert!(!report.inputs_changed.is_empty() && !report.mismatches.is_empty());
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Pin), "{:#?}", report.mismatches);
    let recovered = live(usage(10).answer("s1", 0, http(200)));
    let report = full_replay(&plan, &journal, &recovered, &|_| None, &other).expect("its own plan");
    let before = report.mismatches.iter().find(|mismatch| mismatch.step_id.as_deref() == Some("s1"));
    assert_eq!(before.expect("a retry less").cause, Origin::External);
    // The same change without another build is the runtime's: a skill changed without a new version.
    let silent = Kit::standard().with(ScriptedSkill::new("llm_invoke", "2.0.0", None, "OK_LLM_INVOKE")).shared();
    let report = mock(&plan, &journal, &silent, WhatIf::default());
    assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Runtime));
}

/// AOS-99, fourth row: without taxonomy, card, jitter or estimator nothing can be decided.
#[test]
fn unknown_rules() {
    let catalog = Kit::standard().shared();
    let no_card = Kit::standard().with_card(json!({"id": "rc-kit", "currency": "USD", "skills": {}})).shared();
    let plan = freeze(value());
    let journal = recorded(&plan);
    let report = mock(&plan, &journal, &no_card, WhatIf::default());
    assert_eq!((report.verdict, kinds(&report)), (Verdict::NotComparable, vec!["rate_card"]));
    assert_eq!(nulls(&report).len(), Aspect::ALL.len());
    let report = full_replay(&plan, &journal, &journal, &|_| None, &no_card).expect("its own plan");
    assert_eq!(report.verdict, Verdict::NotComparable);
    for (pin, kind) in [
        ("taxonomy_version", "taxonomy"),
        ("jitter", "jitter"),
        ("token_estimator", "token_estimator"),
        ("spec", "spec"),
    ] {
        let mut unknown = value();
        unknown["pins"][pin] = "9.9.9".into();
        let plan = freeze(unknown);
        let journal = recorded(&plan);
        let live = full_replay(&plan, &journal, &journal, &|_| None, &catalog).expect("its own plan");
        for report in [mock(&plan, &journal, &catalog, WhatIf::default()), live] {
            assert_eq!((report.verdict, kinds(&report)), (Verdict::NotComparable, vec![kind]));
            assert_eq!(nulls(&report).len(), Aspect::ALL.len());
        }
    }
}

/// Test 39 (AOS-100): what-if lists what it exchanged and never says match, not even when nothing differs.
#[test]
fn what_if_never_matches() {
    let plan = freeze(value());
    let journal = recorded(&plan);
    let other = ScriptedSkill::new(
        "http_call",
        "1.3.0",
        Some(("http_request", macp_plan_core::effect::Idempotency::Natural)),
        "OK_HTTP_CALL",
    );
    let mut card = rate_card();
    card["skills"]["http_call@1.3.0"] = json!({"base": 0});
    card["id"] = "rc-next".into();
    let catalog = Kit::standard().with(other).shared();

    let same = mock(&plan, &journal, &catalog, WhatIf { rate_card: Some(card.clone()), ..WhatIf::default() });
    assert_eq!((same.verdict, same.what_if), (Verdict::NotComparable, true));
    assert!(same.mismatches.is_empty(), "{:#?}", same.mismatches);
    assert_eq!(same.substitutions[0].pin, "rate_card");
    assert_eq!((same.substitutions[0].original.as_str(), same.substitutions[0].replay.as_str()), ("rc-kit", "rc-next"));

    card["skills"]["llm_invoke@2.0.0"]["models"]["large"]["input"] = 301.into();
    let dearer = mock(&plan, &journal, &catalog, WhatIf { rate_card: Some(card.clone()), ..WhatIf::default() });
    assert_eq!(dearer.verdict, Verdict::Diverged);
    assert!(dearer.mismatches.iter().all(|it| it.cause == Origin::Pin && it.aspect == Aspect::CostCents));

    let skills = [("http_call".to_owned(), "1.3.0".to_owned())].into_iter().collect();
    let newer = mock(&plan, &journal, &catalog, WhatIf { skills, rate_card: Some(card), ..WhatIf::default() });
    assert_eq!(newer.verdict, Verdict::Diverged);
    assert_eq!(newer.behavior_match[&Aspect::SkillPins], Some(false));
    assert!(newer.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Pin));

    let older = WhatIf { taxonomy_version: Some("1.0.0".to_owned()), ..WhatIf::default() };
    assert_eq!(mock(&plan, &journal, &catalog, older).verdict, Verdict::NotComparable);

    // Under a pin that does not exist nothing is decided, and so nothing is the same: what exists is told instead.
    let skill = |id: &str, version: &str| [(id.to_owned(), version.to_owned())].into_iter().collect();
    let rows = [
        (WhatIf { taxonomy_version: Some("9.0.0".to_owned()), ..WhatIf::default() }, "there are 1.0.0, 1.1.0"),
        (WhatIf { skills: skill("http_call", "9.9.9"), ..WhatIf::default() }, "1.3.0"),
        (WhatIf { skills: skill("http_call", "1.2.0"), ..WhatIf::default() }, "nothing to try"),
        (WhatIf { rate_card: Some(rate_card()), ..WhatIf::default() }, "nothing to try"),
        (WhatIf { skills: skill("mail_send", "1.0.0"), ..WhatIf::default() }, "it uses http_call"),
    ];
    for (what_if, exists) in rows {
        let options = Options { what_if, ..Options::new("r-what-if") };
        let refused = mock_replay(&plan, &journal, &|_| None, &catalog, &options).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().contains(exists), "{refused}");
    }
}
