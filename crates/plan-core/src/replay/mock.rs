//! Mock replay: recorded inputs in, every decision anew, then the comparison.

use std::sync::Arc;

use serde_json::{Value, json};

use super::recording::{Places, Recording, Spot, assumptions};
use super::{Bodies, Options, Refused, check_plan, pins};
use crate::behavior::{Behavior, StepBehavior};
use crate::compare::{self, Aspect, BehaviorDigests, Comparison, Mismatch, Origin, Report, Skipped};
use crate::cost::CostBasis;
use crate::digest::{self, BODY_LABEL, Digest};
use crate::effect::Idempotency;
use crate::journal::{Body, Class, Entry, Journal, RunFinished, RunMode, RunStart};
use crate::machine::{Machine, Next, Unknown};
use crate::plan::FrozenPlan;
use crate::skill::Catalog;

/// What a mock replay gave.
#[derive(Clone, Debug)]
pub struct Mock {
    pub report: Report,
    /// What the replay decided.
    pub behavior: Behavior,
    /// The entries of the replay, decided and fed, if they were asked for.
    pub entries: Vec<Entry>,
}

/// Replays a recorded run without the world. The journal's chain holds, because there is no other kind of [`Journal`].
pub fn mock_replay(
    plan: &Arc<FrozenPlan>,
    journal: &Journal,
    bodies: Bodies<'_>,
    catalog: &Arc<dyn Catalog>,
    options: &Options,
) -> Result<Mock, Refused> {
    let original_start = journal.start();
    check_plan(plan, &original_start.plan_hash)?;
    let (under, substitutions) = match options.what_if.is_empty() {
        true => (Arc::clone(plan), Vec::new()),
        false => {
            options.what_if.check(plan, catalog.as_ref())?;
            let (plan, substitutions) = options.what_if.substitute(plan)?;
            (Arc::new(plan), substitutions)
        }
    };
    let run_ids = (original_start.run_id.clone(), options.replay_run_id.clone());
    let mut report = Report::not_comparable(RunMode::MockReplay, run_ids.0, run_ids.1, plan.hash.clone());
    report.what_if = !options.what_if.is_empty();
    report.substitutions = substitutions;
    let checked = pins::check(&under.plan, &[original_start.revision], catalog.as_ref());
    report.pin_violations = checked.violations;
    if checked.fatal {
        return Ok(Mock { report, behavior: Behavior::default(), entries: Vec::new() });
    }
    let original = Behavior::of(journal.entries());
    let places = Places::of(&under.plan);
    let mut replayer = Replayer::new(&under, journal, bodies, catalog, options, (&original, &places));
    replayer.run();
    replayer.report_left_over();
    let Replayer { behavior, entries, found, skipped, decided, ended, .. } = replayer;
    report.behavior_digest = BehaviorDigests { original: digest_of(&original), replay: digest_of(&behavior) };
    report.skipped = skipped;
    if !journal.finished() {
        let why = "the recording ends before the run does".to_owned();
        report.skipped.push(Skipped { step_id: None, aspect: Some(Aspect::Status), why });
    }
    let mut comparison = compare::behaviors(&under.plan, &original, &behavior);
    comparison.mismatches.extend(found);
    if comparison.mismatches.is_empty() && !report.what_if {
        comparison.decisions(&original, &behavior);
    }
    drop_unknown(&mut comparison, &report.skipped);
    check_digests(&mut comparison, &report.behavior_digest, &original);
    if ended && journal.finished() && comparison.mismatches.is_empty() {
        comparison.mismatches.extend(check_sequence(journal, &decided, &places));
    }
    for mismatch in comparison.mismatches.iter_mut().filter(|mismatch| mismatch.cause == Origin::Runtime) {
        let at = mismatch.step_id.as_deref().and_then(|id| places.get(id)).unwrap_or(usize::MAX);
        if report.what_if || checked.tainted_from.is_some_and(|from| from <= at) {
            mismatch.cause = Origin::Pin;
        }
    }
    report.conclude(comparison);
    Ok(Mock { report, behavior, entries })
}

struct Replayer<'e> {
    machine: Machine,
    recording: Recording<'e>,
    places: &'e Places<'e>,
    original: &'e Behavior,
    original_finished: bool,
    bodies: Bodies<'e>,
    card_embedded: bool,
    behavior: Behavior,
    entries: Vec<Entry>,
    keep_entries: bool,
    next_seq: u64,
    /// Where every decision of the replay stands, in order.
    decided: Vec<Spot>,
    /// The replay came to its end, rather than to the end of what is recorded.
    ended: bool,
    found: Vec<Mismatch>,
    skipped: Vec<Skipped>,
}

impl<'e> Replayer<'e> {
    fn new(
        plan: &Arc<FrozenPlan>,
        journal: &'e Journal,
        bodies: Bodies<'e>,
        catalog: &Arc<dyn Catalog>,
        options: &Options,
        (original, places): (&'e Behavior, &'e Places<'e>),
    ) -> Self {
        let start = RunStart {
            run_id: options.replay_run_id.clone(),
            mode: RunMode::MockReplay,
            original_run_id: Some(journal.start().run_id.clone()),
            ..journal.start().clone()
        };
        let machine = Machine::new(Arc::clone(plan), Arc::clone(catalog), Arc::clone(&options.rules), start);
        Self {
            machine: machine.assuming(assumptions(original, Idempotency::Keyed)),
            recording: Recording::new(journal.entries(), places),
            places,
            original,
            original_finished: journal.finished(),
            bodies,
            card_embedded: plan.plan.pins.rate_card.card.is_some(),
            behavior: Behavior::default(),
            entries: Vec::new(),
            keep_entries: options.keep_entries,
            next_seq: 0,
            decided: Vec::new(),
            ended: false,
            found: Vec::new(),
            skipped: Vec::new(),
        }
    }

    fn run(&mut self) {
        let mut last = Spot { step: None, attempt: 0, kind: "" };
        loop {
            if self.machine.boundary()
                && let Some(entry) = self.recording.interruption_after(&last)
            {
                last = Spot::of(&entry.body, self.places);
                if !self.feed(entry) {
                    return;
                }
                continue;
            }
            match self.machine.next() {
                Next::Finished => {
                    self.ended = true;
                    return;
                }
                Next::Decide(body) => {
                    last = Spot::of(&body, self.places);
                    self.decided.push(last);
                    if !self.take_decision(&body) {
                        return;
                    }
                }
                Next::Ask(question) => {
                    let asked = Spot::asked(&question, self.places);
                    let entry = match self.recording.take(&asked) {
                        Some(entry) => Some(entry),
                        None if self.machine.boundary() => self.recording.interruption(),
                        None => None,
                    };
                    let Some(entry) = entry else { return self.report_missing(asked) };
                    last = Spot::of(&entry.body, self.places);
                    if !self.feed(entry) {
                        return;
                    }
                }
            }
        }
    }

    /// Applies a recorded input. False if it does not fit, which ends the replay.
    fn feed(&mut self, entry: &Entry) -> bool {
        let apart = self.machine.wants_output(&entry.body).and_then(|digest| self.body(digest));
        let fits = self.machine.apply(&entry.body, apart.as_ref());
        if self.keep_entries {
            self.entries.push(Entry { seq: self.next_seq, body: entry.body.clone() });
        }
        self.next_seq += 1;
        fits.map_err(|misfit| self.report_misfit(entry.seq, &entry.body, &misfit.to_string())).is_ok()
    }

    fn take_decision(&mut self, body: &Body) -> bool {
        self.behavior.add(self.next_seq, body);
        if let Body::StepStarted { step_id, request_digest, .. } = body {
            self.check_request(step_id, request_digest.as_ref());
            self.note_assumptions(step_id);
        }
        let fits = self.machine.apply(body, None);
        if self.keep_entries {
            self.entries.push(Entry { seq: self.next_seq, body: body.clone() });
        }
        self.next_seq += 1;
        fits.map_err(|misfit| self.report_misfit(self.next_seq, body, &misfit.to_string())).is_ok()
    }

    /// An output kept apart, if it is there and is what its digest names.
    fn body(&self, digest: &Digest) -> Option<Value> {
        let body = (self.bodies)(digest)?;
        (digest::of_value(BODY_LABEL, &body).ok().as_ref() == Some(digest)).then_some(body)
    }

    fn step_id(&self, place: usize) -> String {
        self.machine.plan().plan.steps[place].step_id.clone()
    }

    fn check_request(&mut self, step_id: &str, request_digest: Option<&Digest>) {
        let Some(recorded) = self.original.step(step_id) else { return };
        if recorded.request_digest.as_ref() != request_digest {
            self.found.push(Mismatch {
                aspect: Aspect::SideEffects,
                step_id: Some(step_id.to_owned()),
                attempt: None,
                seq: Some(recorded.seq),
                field: "request_digest".to_owned(),
                original: json!(recorded.request_digest),
                replay: json!(request_digest),
                cause: Origin::Runtime,
                why: "request_changed: what is asked of a skill follows from the plan and earlier outputs (AOS-15, AOS-88)"
                    .to_owned(),
            });
        }
    }

    /// What cannot be evaluated for the step that starts, because facts about it are taken from the recording.
    fn note_assumptions(&mut self, step_id: &str) {
        let Some((unknown, priced)) = self.machine.assumes() else { return };
        let recorded = self.original.step(step_id);
        let reserved = recorded.is_some_and(|step| step.attempts.iter().any(|it| it.cost_basis == CostBasis::Reserved));
        let (why, aspects): (_, &[(Aspect, bool)]) = match unknown {
            Unknown::Skill => (
                "its skill is not registered, so its effects and prices cannot be worked out",
                &[(Aspect::SideEffects, true), (Aspect::CostCents, !(priced && self.card_embedded))],
            ),
            Unknown::Output => (
                "it refers to an output that is no longer kept",
                &[
                    (Aspect::SideEffects, true),
                    (Aspect::BudgetEnforcement, true),
                    (Aspect::CostCents, !priced || reserved),
                ],
            ),
        };
        for (aspect, _) in aspects.iter().filter(|(_, unknown)| *unknown) {
            let (step_id, aspect) = (Some(step_id.to_owned()), Some(*aspect));
            self.skipped.push(Skipped { step_id, aspect, why: why.to_owned() });
        }
    }

    /// The machine asks for something that was not recorded: the replay ends here, since it never calls out.
    fn report_missing(&mut self, Spot { step, attempt, kind }: Spot) {
        let step_id = step.map(|place| self.step_id(place));
        let recorded = step_id.as_deref().and_then(|id| self.original.step(id));
        let cause = if self.original_finished { Origin::Runtime } else { Origin::Recording };
        let why = if self.original_finished {
            format!("missing_recording: the replay asks for `{kind}`, which the finished run never needed (AOS-88)")
        } else {
            format!("missing_recording: the recording ends before `{kind}` (AOS-88)")
        };
        self.found.push(Mismatch {
            aspect: aspect_of(recorded, attempt),
            seq: recorded.map(|step| step.finished_seq.unwrap_or(step.seq)).or(self.original.finished_seq),
            attempt: step_id.is_some().then_some(attempt),
            step_id,
            field: "recording".to_owned(),
            original: Value::Null,
            replay: Value::from(format!("attempt {attempt}")),
            cause,
            why,
        });
    }

    fn report_misfit(&mut self, seq: u64, body: &Body, misfit: &str) {
        self.found.push(Mismatch {
            aspect: Aspect::StepOrder,
            step_id: body.step_id().map(str::to_owned),
            attempt: body.attempt(),
            seq: Some(seq),
            field: body.kind().to_owned(),
            original: json!(body.kind()),
            replay: Value::Null,
            cause: Origin::Runtime,
            why: format!("{misfit} (AOS-30)"),
        });
    }

    /// Recorded attempts that the replay did not ask for. If it ended early, they are only not evaluated.
    fn report_left_over(&mut self) {
        for (place, (attempts, seq)) in self.recording.left() {
            let step_id = self.step_id(place);
            let listed: Vec<String> = attempts.iter().map(ToString::to_string).collect();
            let listed = format!("attempt {}", listed.join(", "));
            if !self.ended {
                let why = format!("{listed}: the replay ended before it");
                self.skipped.push(Skipped { step_id: Some(step_id), aspect: None, why });
                continue;
            }
            let attempt = attempts.first().copied().unwrap_or(0);
            self.found.push(Mismatch {
                aspect: aspect_of(self.behavior.step(&step_id), attempt),
                step_id: Some(step_id),
                attempt: Some(attempt),
                seq: Some(seq),
                field: "recording".to_owned(),
                original: Value::from(listed),
                replay: Value::Null,
                cause: Origin::Runtime,
                why: "unconsumed_recording: the run was answered here, and the replay does not ask (AOS-88)".to_owned(),
            });
        }
    }
}

/// What it is about that one side has an attempt and the other has not, given the step as the other has it.
fn aspect_of(without: Option<&StepBehavior>, attempt: u32) -> Aspect {
    let Some(step) = without else { return Aspect::StepOrder };
    let refused = step.budget_checks.iter().any(|check| check.attempt == attempt && !check.allowed);
    match attempt {
        _ if refused => Aspect::BudgetEnforcement,
        0 => Aspect::Status,
        _ => Aspect::RetryCount,
    }
}

/// The digest a run recorded.
pub(super) fn digest_of(behavior: &Behavior) -> Option<Digest> {
    behavior.finished.as_ref().map(|RunFinished { behavior_digest, .. }| behavior_digest.clone())
}

/// Leaves out differences about what was taken from the recording, of the step or of sums over it.
fn drop_unknown(comparison: &mut Comparison, skipped: &[Skipped]) {
    comparison.mismatches.retain(|mismatch| {
        !skipped.iter().any(|skipped| {
            skipped.aspect == Some(mismatch.aspect)
                && (mismatch.step_id.is_none() || mismatch.step_id == skipped.step_id)
        })
    });
}

/// Unequal digests without any difference mean that the recorded end of the run does not sum up its own steps.
pub(super) fn check_digests(comparison: &mut Comparison, digests: &BehaviorDigests, original: &Behavior) {
    let (Some(one), Some(other)) = (&digests.original, &digests.replay) else { return };
    if one != other && comparison.mismatches.is_empty() {
        comparison.mismatches.push(Mismatch {
            aspect: Aspect::Status,
            step_id: None,
            attempt: None,
            seq: original.finished_seq,
            field: "behavior_digest".to_owned(),
            original: json!(one),
            replay: json!(other),
            cause: Origin::Runtime,
            why: "the digest of a run follows from its steps, its stop and its cost (AOS-31)".to_owned(),
        });
    }
}

/// The first place where the recorded decisions are not the ones that were decided now, one by one. What they say has
/// been compared; that there are as many, in the same order, has not.
fn check_sequence(journal: &Journal, decided: &[Spot], places: &Places<'_>) -> Option<Mismatch> {
    let recorded = journal.entries().iter().filter(|entry| entry.body.class() == Class::Decision);
    let recorded: Vec<(u64, Spot)> = recorded.map(|entry| (entry.seq, Spot::of(&entry.body, places))).collect();
    let longer = recorded.len().max(decided.len());
    let parted = (0..longer).find(|place| recorded.get(*place).map(|(_, spot)| spot) != decided.get(*place))?;
    let (one, other) = (recorded.get(parted), decided.get(parted));
    let spot = other.or(one.map(|(_, spot)| spot))?;
    let aspect = match spot.kind {
        "budget_checked" | "budget_alert" => Aspect::BudgetEnforcement,
        "effect_intent" => Aspect::SideEffects,
        "retry_scheduled" => Aspect::BackoffMs,
        "attempt_judged" => Aspect::RetryCount,
        _ => Aspect::StepOrder,
    };
    let kind = |spot: &Spot| Value::from(spot.kind);
    Some(Mismatch {
        aspect,
        step_id: spot.step.and_then(|place| places.name(place)).map(str::to_owned),
        attempt: spot.step.map(|_| spot.attempt),
        seq: one.map(|(seq, _)| *seq),
        field: "decision".to_owned(),
        original: one.map_or(Value::Null, |(_, spot)| kind(spot)),
        replay: other.map_or(Value::Null, kind),
        cause: Origin::Runtime,
        why: "the order of entries follows from the plan and the inputs (AOS-30, AOS-71)".to_owned(),
    })
}
