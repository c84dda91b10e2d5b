//! Random plans in random worlds: every run replays, and every changed pin is named.

use std::sync::Arc;

use macp_plan_core::compare::{Origin, Verdict};
use macp_plan_core::digest::{self, BODY_LABEL, Digest};
use macp_plan_core::journal::{Body, Journal};
use macp_plan_core::machine::{Machine, Next, Pinned, Rules};
use macp_plan_core::plan::RetryPolicy;
use macp_plan_core::replay::{Options, WhatIf, full_replay, mock_replay};
use macp_plan_core::retry;
use macp_plan_core::testkit::{Kit, ScriptedSkill, execute, freeze, random, rate_card};
use proptest::prelude::*;
use serde_json::json;

/// Something no rule pins: whatever it says, nothing may change.
fn noise(seed: u64) -> Body {
    let facts = json!({"latency": seed, "when": "2026-03-01T09:00:00Z", "said": format!("word {seed}")});
    Body::Observed { step_id: None, facts: serde_json::from_value(facts).expect("facts") }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    /// AOS-87: mock replay always matches.
    #[test]
    fn every_run_replays(seed: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let report = mock_replay(&plan, &run.journal, &bodies, &catalog, &Options::new("r-replay")).expect("its plan").report;
        prop_assert_eq!(report.verdict, Verdict::Match, "{:#?}", report.mismatches);
        prop_assert_eq!(&report.behavior_digest.original, &report.behavior_digest.replay);
        let itself = full_replay(&plan, &run.journal, &run.journal, &bodies, &catalog).expect("its plan");
        prop_assert_eq!(itself.verdict, Verdict::Match, "{:#?}", itself.mismatches);
    }

    /// AOS-94: notes for people change nothing, wherever they stand.
    #[test]
    fn noise_changes_nothing(seed: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let mut journal = Journal::begin(run.journal.start().clone()).expect("canonical");
        for entry in &run.journal.entries()[1..] {
            journal.append(noise(seed % 1_000 + entry.seq)).expect("canonical");
            journal.append(entry.body.clone()).expect("canonical");
        }
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let report = mock_replay(&plan, &journal, &bodies, &catalog, &Options::new("r-replay")).expect("its plan").report;
        prop_assert_eq!(report.verdict, Verdict::Match);
        prop_assert_eq!(report.behavior_digest.replay.as_ref(), run.machine.finished().map(|end| &end.behavior_digest));
    }

    /// Another price, a skill that is gone: every difference has its cause, and none is missed.
    #[test]
    fn changed_pins_are_named(seed: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let mut card = rate_card();
        card["skills"]["mail_send@1.0.0"]["base"] = 1_000_001.into();
        let what_if = WhatIf { rate_card: Some(card), ..WhatIf::default() };
        let options = Options { what_if, ..Options::new("r-replay") };
        let report = mock_replay(&plan, &run.journal, &bodies, &catalog, &options).expect("its plan").report;
        prop_assert_ne!(report.verdict, Verdict::Match);
        prop_assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Pin));
        let charged = run.machine.results().iter().any(|it| it.skill_id == "mail_send" && it.cost_microcents > 0);
        prop_assert!(!charged || report.verdict == Verdict::Diverged && !report.mismatches.is_empty());

        let empty = Kit::empty().with_card(rate_card()).shared();
        let report = mock_replay(&plan, &run.journal, &bodies, &empty, &Options::new("r-replay")).expect("its plan").report;
        prop_assert_eq!(report.verdict, Verdict::NotComparable);
        prop_assert!(report.mismatches.iter().all(|mismatch| mismatch.cause == Origin::Pin));
        prop_assert!(report.pin_violations.iter().all(|violation| violation.kind == "skill_missing"));
    }

    /// Another build of a skill is named, and whatever differs from its step on is put down to it.
    #[test]
    fn another_build_is_named(seed: u64) {
        let random::Case { plan, world, .. } = random::case(seed);
        let step = &plan.plan.steps[usize::try_from(seed % plan.plan.steps.len() as u64).expect("small")];
        let (skill_id, version) = (step.skill_id.as_str(), step.skill_version.as_str());
        let builds = ["one", "two"].map(|text| digest::of_bytes(BODY_LABEL, text.as_bytes()));
        let mut pinned = plan.value.clone();
        pinned["pins"]["skill_builds"] = json!({format!("{skill_id}@{version}"): builds[0]});
        let pinned = freeze(pinned);
        let with_build = |build: &Digest| Kit::standard().registered(skill_id, version, true, Some(build.clone()));
        let run = execute(&pinned, &with_build(&builds[0]).shared(), world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let replayed = |catalog| mock_replay(&pinned, &run.journal, &bodies, &catalog, &Options::new("r-replay")).expect("its plan").report;
        let same = replayed(with_build(&builds[1]).shared());
        prop_assert_eq!(same.verdict, Verdict::Match, "{:#?}", same.mismatches);
        prop_assert_eq!((same.pin_violations.len(), same.pin_violations[0].kind.as_str()), (1, "skill_build_changed"));

        let silent = ScriptedSkill::new(skill_id, version, None, "OK");
        let changed = Kit::standard().with(silent).registered(skill_id, version, true, Some(builds[1].clone())).shared();
        let other = replayed(changed);
        let strays: Vec<_> = other.mismatches.iter().filter(|mismatch| mismatch.cause != Origin::Pin).collect();
        prop_assert!(strays.is_empty(), "{:#?}", strays);
        let acted = run.machine.results().iter().any(|it| it.skill_id == skill_id && !it.side_effects.is_empty());
        prop_assert!(!acted || other.verdict == Verdict::Diverged && !other.mismatches.is_empty());
    }

    /// Another taxonomy and another version of a skill, in their places on purpose: named, never a match, and whatever
    /// differs is put down to them.
    #[test]
    fn another_version_is_named(seed: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let skill_id = plan.plan.steps[0].skill_id.clone();
        let next = ScriptedSkill::new(&skill_id, "9.0.0", None, "OK");
        let mut card = rate_card();
        card["skills"][format!("{skill_id}@9.0.0")] = json!({"base": 7});
        let catalog = Kit::standard().with(next).shared();
        let skills = [(skill_id.clone(), "9.0.0".to_owned())].into();
        let taxonomy = if plan.plan.pins.taxonomy_version == "1.0.0" { "1.1.0" } else { "1.0.0" };
        let rows = [
            WhatIf { taxonomy_version: Some(taxonomy.to_owned()), ..WhatIf::default() },
            WhatIf { skills, rate_card: Some(card), ..WhatIf::default() },
        ];
        for (what_if, pin) in rows.into_iter().zip(["taxonomy", "skill"]) {
            let options = Options { what_if, ..Options::new("r-replay") };
            let report = mock_replay(&plan, &run.journal, &bodies, &catalog, &options).expect("its plan").report;
            prop_assert_ne!(report.verdict, Verdict::Match);
            prop_assert!(report.substitutions.iter().any(|it| it.pin.contains(pin)), "{:?}", report.substitutions);
            let strays: Vec<_> = report.mismatches.iter().filter(|mismatch| mismatch.cause != Origin::Pin).collect();
            prop_assert!(strays.is_empty(), "{pin}: {:#?}", strays);
            let called = run.machine.results().iter().any(|it| it.skill_id == skill_id && it.total_attempts > 0);
            prop_assert!(pin != "skill" || !called || report.verdict == Verdict::Diverged, "{:#?}", report.skipped);
        }
    }

    /// A changed rule is found whenever it changed anything.
    #[test]
    fn changed_rules_are_found(seed: u64) {
        #[derive(Debug)]
        struct Later;
        impl Rules for Later {
            fn backoff_ms(&self, policy: &RetryPolicy, attempt: u32, jitter_seed: &str) -> u64 {
                retry::backoff_ms(policy, attempt, jitter_seed) + 1
            }
        }
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let options = Options { rules: Arc::new(Later), ..Options::new("r-replay") };
        let report = mock_replay(&plan, &run.journal, &bodies, &catalog, &options).expect("its plan").report;
        let waited = run.journal.entries().iter().filter(|entry| matches!(entry.body, Body::RetryScheduled { .. })).count();
        prop_assert_eq!(report.mismatches.len(), waited);
        prop_assert_eq!(report.verdict == Verdict::Match, waited == 0);
    }

    /// A journal that was damaged and sealed again is read without panic, and never matches unless nothing was lost.
    #[test]
    fn damaged_journals_do_not_match(seed: u64, dice: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world);
        let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
        let mut dice = random::Dice::new(dice);
        let mut entries: Vec<Body> = run.journal.entries()[1..].iter().map(|entry| entry.body.clone()).collect();
        let place = usize::try_from(dice.below(entries.len() as u64)).expect("small");
        let other = usize::try_from(dice.below(entries.len() as u64)).expect("small");
        let damage = dice.below(3);
        match damage {
            0 => drop(entries.remove(place)),
            1 => entries.swap(place, other),
            _ => entries.insert(other, entries[place].clone()),
        }
        let mut journal = Journal::begin(run.journal.start().clone()).expect("canonical");
        entries.into_iter().for_each(|body| drop(journal.append(body).expect("canonical")));
        let report = mock_replay(&plan, &journal, &bodies, &catalog, &Options::new("r-replay")).expect("its plan").report;
        // Inputs are found wherever they stand, and one given twice is used once; decisions must all be there, in order.
        if damage == 0 {
            prop_assert_ne!(report.verdict, Verdict::Match);
        }
        let _ = Machine::recover(plan, catalog, Arc::new(Pinned), journal.start(), journal.entries(), &bodies);
        let _ = full_replay(run.machine.plan(), &run.journal, &journal, &bodies, &Kit::standard().shared());
    }

    /// Looking at a machine changes nothing, and entries out of place are refused rather than believed.
    #[test]
    fn entries_out_of_place_are_refused(seed: u64, other: u64) {
        let random::Case { plan, catalog, world } = random::case(seed);
        let run = execute(&plan, &catalog, world.clone());
        let foreign = random::case(other);
        let foreign = execute(&foreign.plan, &foreign.catalog, foreign.world);
        let start = run.journal.start().clone();
        let mut machine = Machine::new(plan, catalog, Arc::new(Pinned), start);
        for entry in run.journal.entries() {
            for stranger in foreign.journal.entries() {
                let mut trial = machine.clone();
                if trial.apply(&stranger.body, None).is_ok() {
                    // It fits, so whatever it led to must itself be decidable.
                    let _ = trial.next();
                }
            }
            let first = format!("{:?}", machine.next());
            prop_assert_eq!(first, format!("{:?}", machine.next()));
            let apart = entry.body.output_apart().and_then(|digest| run.world.bodies.get(digest)).cloned();
            machine.apply(&entry.body, apart.as_ref()).expect("its own entry");
        }
        prop_assert!(matches!(machine.next(), Next::Finished));
    }
}
