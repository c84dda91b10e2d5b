//! Ending runs that cannot go on: wherever the journal ends and whatever is gone, it replays once everything is back.

use std::sync::Arc;

use macp_plan_core::cause::Cause;
use macp_plan_core::closing::{Closing, Unclosable, close};
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::{Body, Journal, RunStatus};
use macp_plan_core::machine::{Machine, Next, Pinned, Question};
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::skill::{Catalog, Registration};
use macp_plan_core::testkit::{Answer, Kit, Run, World, execute, freeze, http, llm_step, plan, random, step};
use serde_json::{Value, json};

/// A catalog of which something is left.
#[derive(Debug)]
struct Left {
    of: Arc<dyn Catalog>,
    skills: bool,
    cards: bool,
}

impl Catalog for Left {
    fn skill(&self, skill_id: &str, version: &str) -> Option<Registration> {
        self.of.skill(skill_id, version).filter(|_| self.skills)
    }

    fn versions(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn rate_card(&self, id: &str) -> Option<Value> {
        self.of.rate_card(id).filter(|_| self.cards)
    }
}

/// The journal of a run up to a place.
fn cut(run: &Run, length: usize) -> Journal {
    let mut journal = Journal::begin(run.journal.start().clone()).expect("canonical");
    for entry in &run.journal.entries()[1..length] {
        journal.append(entry.body.clone()).expect("canonical");
    }
    journal
}

/// Where an executor may leave a journal: between attempts, or with a call that is out. Says whether it is the latter.
fn place(plan: &Arc<FrozenPlan>, catalog: &Arc<dyn Catalog>, run: &Run, journal: &Journal) -> Option<bool> {
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    let (plan, catalog) = (Arc::clone(plan), Arc::clone(catalog));
    let machine = Machine::recover(plan, catalog, Arc::new(Pinned), journal.start(), journal.entries(), &bodies);
    let machine = machine.expect("its own journal");
    let is_out = matches!(machine.next(), Next::Ask(Question::Dispatch { .. }));
    (machine.boundary() || is_out).then_some(is_out)
}

/// Ends a run cut at every place without some of its catalog, and replays each with all of it. Says how many could be
/// ended.
fn closes_everywhere(
    plan: &Arc<FrozenPlan>,
    catalog: &Arc<dyn Catalog>,
    world: World,
    left: &Arc<dyn Catalog>,
) -> usize {
    let run = execute(plan, catalog, world);
    let bodies = |digest: &_| run.world.bodies.get(digest).cloned();
    let mut closed = 0;
    for length in 3..run.journal.entries().len() {
        let mut journal = cut(&run, length);
        let Some(is_out) = place(plan, catalog, &run, &journal) else { continue };
        let closing = Closing { by: "olga", reason: "enough" };
        let end = match close(plan, left, &journal.start().clone(), journal.entries(), &bodies, closing) {
            Ok(end) => end,
            Err(Unclosable::Unpriced(_) | Unclosable::Unprepared(_)) if is_out => continue,
            Err(Unclosable::Ambiguous(_)) if may_wait(&journal) => continue,
            Err(error) => panic!("cut after {length} entries: {error}"),
        };
        for body in end {
            journal.append(body).expect("canonical");
        }
        let Some(Body::RunFinished(finished)) = journal.entries().last().map(|entry| &entry.body) else {
            panic!("it does not end")
        };
        assert!(is_out || finished.status == RunStatus::Cancelled, "cut after {length} entries: {finished:?}");
        let replayed = mock_replay(plan, &journal, &bodies, catalog, &Options::new("r-replay")).expect("its plan");
        assert_eq!(replayed.report.verdict, Verdict::Match, "cut after {length}: {:#?}", replayed.report.mismatches);
        closed += 1;
    }
    closed
}

/// Whether nothing was decided since the limiter's verdict, which is where a run waits for an effect to be free.
fn may_wait(journal: &Journal) -> bool {
    matches!(journal.entries().last().map(|entry| &entry.body), Some(Body::LimiterVerdict { .. }))
}

fn left(of: &Arc<dyn Catalog>, skills: bool, cards: bool) -> Arc<dyn Catalog> {
    Arc::new(Left { of: Arc::clone(of), skills, cards })
}

#[test]
fn a_run_is_ended_wherever_it_got_stuck() {
    let mut lenient = step("s2", "post_call", json!({"effects": 2}));
    lenient["on_error"] = "continue".into();
    let steps = vec![
        step("s1", "http_call", json!({})),
        lenient,
        step("s3", "mail_send", json!({"host": "{{s1.body}}"})),
        llm_step("s4", "look", 100),
    ];
    let (plan, catalog) = (freeze(plan(1_000, steps)), Kit::standard().shared());
    let world = || {
        let large = Answer::of(Cause::Success).output(json!({"body": "z".repeat(40_000)}));
        World::new().answer("s1", 0, http(503)).answer("s1", 1, large).always("s2", http(503)).answer(
            "s3",
            0,
            http(503),
        )
    };
    let everywhere = closes_everywhere(&plan, &catalog, world(), &left(&catalog, true, true));
    let without_skills = closes_everywhere(&plan, &catalog, world(), &left(&catalog, false, true));
    assert_eq!(without_skills, everywhere - 2, "but where s2 and s3 wait for their effects to be free");
    let between = closes_everywhere(&plan, &catalog, world(), &left(&catalog, true, false));
    assert!(between > 10 && between < everywhere, "calls that were out have no price: {between} of {everywhere}");
}

#[test]
fn random_runs_are_ended_wherever_they_got_stuck() {
    let mut closed = 0;
    for seed in 0..100 {
        let random::Case { plan, catalog, world } = random::case(seed);
        for (skills, cards) in [(false, true), (true, false), (false, false)] {
            closed += closes_everywhere(&plan, &catalog, world.clone(), &left(&catalog, skills, cards));
        }
    }
    assert!(closed > 1_000, "{closed}");
}

/// AOS-80: a call with effects that was out is in doubt; one without is only broken off.
#[test]
fn a_call_that_was_out() {
    for (skill, status) in [
        ("http_call", RunStatus::InDoubt),
        ("post_call", RunStatus::InDoubt),
        ("mail_send", RunStatus::InDoubt),
        ("json_transform", RunStatus::Failed),
    ] {
        // Of a skill without effects only the skill itself can tell that it has none.
        let is_gone = skill != "json_transform";
        let (plan, catalog) = (freeze(plan(1_000, vec![step("s1", skill, json!({}))])), Kit::standard().shared());
        let run = execute(&plan, &catalog, World::new());
        let length = (3..).find(|length| place(&plan, &catalog, &run, &cut(&run, *length)) == Some(true));
        let journal = cut(&run, length.expect("a call"));
        let closing = Closing { by: "olga", reason: "enough" };
        let left = left(&catalog, !is_gone, true);
        let end = close(&plan, &left, journal.start(), journal.entries(), &|_| None, closing).expect("it can be ended");
        let Some(Body::RunFinished(finished)) = end.last() else { panic!("{end:?}") };
        assert_eq!(finished.status, status, "{skill}");
    }
}
