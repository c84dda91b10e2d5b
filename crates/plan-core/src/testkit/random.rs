//! Random plans and worlds from a seed: the same seed, the same case, on every machine.

use std::sync::Arc;

use serde_json::{Value, json};

use super::plans::{freeze, plan, step};
use super::skill::Kit;
use super::world::{Answer, World};
use crate::cause::{Cause, ConnectionFault};
use crate::cost::Usage;
use crate::journal::{DedupeVerdict, LimiterVerdict};
use crate::plan::{FrozenPlan, Thousandths};
use crate::skill::Catalog;

/// Numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a limit that is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let place = self.below(u64::try_from(from.len()).unwrap_or(u64::MAX));
        &from[usize::try_from(place).unwrap_or(0)]
    }
}

/// A plan, what it can call, and how the world answers.
#[derive(Clone, Debug)]
pub struct Case {
    pub plan: Arc<FrozenPlan>,
    pub catalog: Arc<dyn Catalog>,
    pub world: World,
}

/// The case of a seed.
#[must_use]
pub fn case(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let count = 1 + dice.below(6);
    let ids: Vec<String> = (0..count).map(|place| format!("s{place}")).collect();
    let steps: Vec<Value> = (0..ids.len()).map(|place| random_step(&mut dice, &ids[..=place])).collect();
    let budget = *dice.pick(&[0, 1, 2, 3, 10, 1_000]);
    let mut plan = plan(budget, steps);
    let policy = &mut plan["context"]["budget_policy"];
    policy["hard_limit"] = (!dice.one_in(4)).into();
    policy["alert_threshold_percent"] = (*dice.pick(&[0, 50, 80, 100])).into();
    if dice.one_in(4) {
        policy["per_step_max_cents"] = (*dice.pick(&[0, 1, 2])).into();
    }
    if dice.one_in(4) {
        plan["pins"]["taxonomy_version"] = "1.0.0".into();
    }
    let world = random_world(&mut dice, &ids);
    Case { plan: freeze(plan), catalog: Kit::standard().shared(), world }
}

fn random_step(dice: &mut Dice, ids: &[String]) -> Value {
    let (own, earlier) = ids.split_last().expect("a step has an id");
    let skill = *dice.pick(&["http_call", "post_call", "llm_invoke", "mail_send", "json_transform"]);
    let host = *dice.pick(&["a.example", "b.example", "c.example:8080"]);
    let mut parameters = json!({"host": host, "effects": dice.below(3)});
    if skill == "llm_invoke" {
        let model = *dice.pick(&["large", "stub"]);
        parameters = json!({"model": model, "prompt": "tell me more", "max_tokens": dice.below(2_000)});
    }
    if !earlier.is_empty() && dice.one_in(2) {
        let (path, from) = (*dice.pick(&["body", "of", "nothing"]), dice.pick(earlier));
        parameters["prompt"] = format!("look: {{{{{from}.{path}}}}}").into();
    }
    if dice.one_in(12) {
        parameters["refuse"] = true.into();
    }
    let mut step = step(own, skill, parameters);
    let policy = &mut step["retry_policy"];
    policy["max_retries"] = dice.below(4).into();
    policy["jitter_enabled"] = dice.one_in(2).into();
    policy["jitter_max_ms"] = dice.below(500).into();
    policy["backoff_base_ms"] = dice.below(1_000).into();
    policy["backoff_multiplier"] = json!(dice.pick(&[Thousandths(1_000), Thousandths(1_500), Thousandths(2_000)]));
    if dice.one_in(2) {
        step["on_error"] = "continue".into();
    }
    if !earlier.is_empty() && dice.one_in(4) {
        let of = dice.pick(earlier);
        step["run_if"] = match dice.below(3) {
            0 => json!({"step_id": of, "status_in": ["success", "partial"]}),
            1 => json!({"step_id": of, "status_in": ["failure"]}),
            _ => json!({"step_id": of, "code_in": ["ERR_HTTP_503", "OK"]}),
        };
    }
    if dice.one_in(6) {
        step["max_cost_cents"] = dice.below(3).into();
    }
    step
}

fn random_world(dice: &mut Dice, ids: &[String]) -> World {
    let mut world = World::new();
    world.inline_max = *dice.pick(&[0, 64, 16 * 1024]);
    for id in ids {
        for attempt in 0..4 {
            if dice.one_in(2) {
                world = world.answer(id, attempt, random_answer(dice));
            }
            if dice.one_in(10) {
                let verdict = *dice.pick(&[
                    LimiterVerdict::RateLimited,
                    LimiterVerdict::ConcurrencyLimited,
                    LimiterVerdict::StorageLimited,
                ]);
                world = world.limit(id, attempt, verdict);
            }
        }
        if dice.one_in(8) {
            let verdict = *dice.pick(&[DedupeVerdict::Duplicate, DedupeVerdict::Conflict]);
            let output = (verdict == DedupeVerdict::Duplicate).then(|| json!({"body": "from before"}));
            world = world.dedupe(id, verdict, output);
        }
    }
    let attempt = u32::try_from(dice.below(3)).unwrap_or(0);
    match dice.below(10) {
        0 => world.cancel(&dice.pick(ids).clone(), attempt),
        1 => world.deadline(&dice.pick(ids).clone(), attempt),
        _ => world,
    }
}

fn random_answer(dice: &mut Dice) -> Answer {
    let cause = match dice.below(12) {
        0..=3 => Cause::http(*dice.pick(&[500, 503, 404, 429])),
        4 => Cause::ClientTimeout,
        5 => Cause::Connection { fault: *dice.pick(&[ConnectionFault::Refused, ConnectionFault::Reset]) },
        6 => Cause::LlmStatus { status: 529, context_length: false },
        7 => Cause::Partial,
        8 => dice.pick(&[Cause::EffectInDoubt, Cause::QuotaExceeded, Cause::SafetyRejected, Cause::Internal]).clone(),
        _ => Cause::Success,
    };
    let mut answer = Answer::of(cause);
    if dice.one_in(2) {
        answer.usage = Some(Usage {
            requests: 1,
            bytes: dice.below(10_000),
            input_tokens: dice.below(1_000),
            output_tokens: dice.below(2_000),
        });
    }
    if dice.one_in(3) {
        answer.retry_after_ms = Some(dice.below(100_000));
    }
    if !dice.one_in(4) {
        let body = "x".repeat(usize::try_from(dice.below(200)).unwrap_or(0));
        answer.output = Some(json!({"body": body, "of": dice.below(10)}));
    }
    answer
}
