//! What a run holds of the outputs of its steps: only what a step to come refers to, and never more than fits.

use std::sync::Arc;

use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::{Body, RunStatus, StopReason};
use macp_plan_core::limits::HELD_BYTES_MAX;
use macp_plan_core::machine::{Machine, Pinned};
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::testkit::{Kit, Run, World, execute, freeze, http, plan, start, step};
use serde_json::{Value, json};

/// Of these no eight fit, and more than one does.
const LARGE_BYTES: usize = HELD_BYTES_MAX / 8;
const STEPS: usize = 9;

fn reading(id: &str, reads: &[String]) -> Value {
    step(id, "http_call", json!({"reads": reads}))
}

/// Steps `s0` to `s8` in a world where each returns something large.
fn go(steps: Vec<Value>) -> (Vec<Value>, Run) {
    let text = "x".repeat(LARGE_BYTES);
    let world = (0..STEPS).fold(World::new(), |world, place| {
        world.always(&format!("s{place}"), http(200).output(json!({"text": text, "n": place})))
    });
    let run = execute(&freeze(plan(1_000, steps.clone())), &Kit::standard().shared(), world);
    (steps, run)
}

/// An output is let go with the last step that refers to it, so that only neighbours are held here.
#[test]
fn an_output_is_held_until_its_last_reader_has_finished() {
    let read = |place: usize| if place == 0 { Vec::new() } else { vec![format!("{{{{s{}.text}}}}", place - 1)] };
    let (steps, run) = go((0..STEPS).map(|place| reading(&format!("s{place}"), &read(place))).collect());
    assert_eq!(run.machine.finished().unwrap().status, RunStatus::Succeeded, "{:?}", run.machine.results().last());
    let plan = freeze(plan(1_000, steps));
    let begin = start(&plan, "r");
    let mut machine = Machine::new(plan, Kit::standard().shared(), Arc::new(Pinned), begin);
    let mut finished = 0;
    for entry in run.journal.entries() {
        let apart = machine.wants_output(&entry.body).and_then(|digest| run.world.bodies.get(digest).cloned());
        machine.apply(&entry.body, apart.as_ref()).unwrap();
        if !matches!(entry.body, Body::StepFinished(_)) {
            continue;
        }
        for place in 0..STEPS {
            let held = place == finished && place + 1 < STEPS;
            assert_eq!(machine.output(&format!("s{place}")).is_some(), held, "s{place} after s{finished}");
        }
        finished += 1;
    }
    assert_eq!(finished, STEPS);
}

/// What does not fit is not held. Whoever refers to it is refused with a code, also in a replay; others go on.
#[test]
fn a_run_that_would_hold_too_much_is_refused_where_it_reads_it() {
    let mut steps: Vec<Value> = (0..STEPS).map(|place| reading(&format!("s{place}"), &[])).collect();
    let all: Vec<String> = (0..STEPS).map(|place| format!("{{{{s{place}.n}}}}")).collect();
    let (first, last) = (&all[..STEPS - 2], &all[STEPS - 2..]);
    steps.push(reading("fits", first));
    steps.push(reading("does-not", last));
    let (steps, run) = go(steps);
    assert_eq!(run.machine.step_result("fits").unwrap().code, "OK_HTTP_CALL");
    let refused = run.machine.step_result("does-not").unwrap();
    assert_eq!((refused.code.as_str(), refused.total_attempts), ("ERR_VALIDATION_FAILED", 0));
    assert!(refused.details["why"].as_str().unwrap().contains(&HELD_BYTES_MAX.to_string()), "{:?}", refused.details);
    let stop = run.machine.finished().unwrap().stop.clone().unwrap();
    assert_eq!((stop.reason, stop.step_id.as_deref()), (StopReason::StepFailed, Some("does-not")));

    let (plan, catalog) = (freeze(plan(1_000, steps)), Kit::standard().shared());
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    let mock = mock_replay(&plan, &run.journal, &bodies, &catalog, &Options::new("replay")).unwrap();
    assert_eq!(mock.report.verdict, Verdict::Match, "{:#?}", mock.report);
}
