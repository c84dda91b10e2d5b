//! Failed steps whose effect may have taken place (AOS-42, AOS-80): said by the step, whatever ends it, and never
//! guessed.

use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::compare::Verdict;
use macp_plan_core::journal::{LimiterVerdict, RunStatus, StepFinished};
use macp_plan_core::plan::StepStatus;
use macp_plan_core::replay::{Options, mock_replay};
use macp_plan_core::testkit::{Answer, Kit, Run, World, execute, freeze, http, plan, step};
use serde_json::{Value, json};

/// Executes one step and replays it: what a step says of its effect must not change how runs compare.
fn go(budget: u64, step: Value, world: World) -> Run {
    let (plan, catalog) = (freeze(plan(budget, vec![step])), Kit::standard().shared());
    let run = execute(&plan, &catalog, world);
    let replayed = mock_replay(&plan, &run.journal, &|_| None, &catalog, &Options::new("r-replay")).expect("its plan");
    assert_eq!(replayed.report.verdict, Verdict::Match, "{:#?}", replayed.report.mismatches);
    run
}

fn outcome(run: &Run) -> &StepFinished {
    run.machine.step_result("s1").expect("the step ended")
}

/// How a step ends whose first attempt ended with a cause and that is not tried again.
fn ends(skill: &str, cause: Cause) -> (StepStatus, bool) {
    let mut step = step("s1", skill, json!({}));
    step["retry_policy"]["max_retries"] = 0.into();
    let run = go(1_000, step, World::new().always("s1", Answer::of(cause)));
    (outcome(&run).status, outcome(&run).leaves_doubt())
}

fn connection(fault: ConnectionFault) -> Cause {
    Cause::Connection { fault }
}

fn llm(status: u16) -> Cause {
    Cause::LlmStatus { status, context_length: false }
}

/// Causes after which nothing can have happened.
fn proofs() -> Vec<Cause> {
    let mut causes = vec![
        Cause::DnsFailure,
        connection(ConnectionFault::Refused),
        connection(ConnectionFault::Unreachable),
        Cause::Tls,
        Cause::EgressForbidden,
        Cause::RateLimited,
        Cause::ConcurrencyLimited,
        Cause::InputInvalid,
        Cause::ReferenceUnresolved,
        Cause::SerializationFailed,
        Cause::SkillNotFound,
        Cause::SkillDisabled,
        Cause::NotAllowed,
        Cause::BudgetExceeded,
        Cause::IdempotencyConflict,
        Cause::SafetyRejected,
        Cause::PromptInjection,
    ];
    for status in [400, 401, 404, 409, 422, 429, 499] {
        causes.extend([Cause::http(status), llm(status)]);
    }
    causes
}

/// Causes after which something may have.
fn doubts() -> Vec<Cause> {
    let mut causes = vec![
        Cause::HttpMalformed,
        Cause::ClientTimeout,
        Cause::GuardTimeout,
        connection(ConnectionFault::Reset),
        connection(ConnectionFault::BrokenPipe),
        connection(ConnectionFault::ClosedEarly),
        Cause::TooManyRedirects,
        Cause::AnswerTooLarge,
        Cause::LlmContentFilter,
        Cause::LlmInvalidResponse,
        Cause::OutputMismatch,
        Cause::DeserializationFailed,
        Cause::QuotaExceeded,
        Cause::StorageQuotaExceeded,
        Cause::Internal,
        Cause::Unclassified,
        Cause::EffectInDoubt,
        Cause::Cancelled,
    ];
    for status in [408, 500, 502, 503, 504, 599] {
        causes.extend([Cause::http(status), llm(status)]);
    }
    causes
}

/// AOS-42: only what proves that nothing happened lets anyone try again unasked.
#[test]
fn a_failure_without_proof_leaves_doubt() {
    for cause in proofs() {
        assert_eq!(ends("mail_send", cause.clone()), (StepStatus::Failure, false), "{cause:?}");
    }
    for cause in doubts() {
        assert_eq!(ends("mail_send", cause.clone()), (StepStatus::Failure, true), "{cause:?}");
    }
    for cause in [Cause::Success, Cause::http(200)] {
        assert_eq!(ends("mail_send", cause.clone()), (StepStatus::Success, false), "{cause:?}");
    }
    assert_eq!(ends("mail_send", Cause::Partial), (StepStatus::Partial, false));
}

/// What is harmless to repeat, or recognised when it is repeated, needs nobody's word.
#[test]
fn effects_that_can_be_repeated_leave_none() {
    for skill in ["http_call", "post_call", "json_transform"] {
        for cause in doubts() {
            assert!(!ends(skill, cause.clone()).1, "{skill}: {cause:?}");
        }
    }
}

/// Every attempt counts, not only the last one.
#[test]
fn doubt_stays_whatever_later_attempts_prove() {
    let mail = || step("s1", "mail_send", json!({}));
    let timeout = || World::new().answer("s1", 0, http(503));
    let run = go(1_000, mail(), timeout().answer("s1", 1, Answer::of(Cause::DnsFailure)));
    assert_eq!((outcome(&run).code.as_str(), outcome(&run).leaves_doubt()), ("ERR_DNS_FAILURE", true));
    // A refusal by the limiter is no call.
    let refused = (0..4).fold(World::new(), |world, attempt| world.limit("s1", attempt, LimiterVerdict::RateLimited));
    let run = go(1_000, mail(), refused);
    assert_eq!((outcome(&run).code.as_str(), outcome(&run).leaves_doubt()), ("ERR_RATE_LIMIT_INTERNAL", false));
    let refused = (1..4).fold(timeout(), |world, attempt| world.limit("s1", attempt, LimiterVerdict::RateLimited));
    assert!(outcome(&go(1_000, mail(), refused)).leaves_doubt());
    // The effect took place in the end, so nobody needs to ask.
    let run = go(1_000, mail(), timeout());
    assert_eq!((outcome(&run).status, outcome(&run).leaves_doubt()), (StepStatus::Success, false));
}

/// Whatever ends the step between two attempts, it says so; and its status and code stay what they are.
#[test]
fn doubt_is_said_however_the_step_ends() {
    let mail = || step("s1", "mail_send", json!({}));
    let failing = || World::new().always("s1", http(503));
    let ends = [
        (1_000, failing().cancel("s1", 1), RunStatus::Cancelled, "ERR_CANCELLED"),
        (1_000, failing().deadline("s1", 1), RunStatus::Failed, "ERR_TIMEOUT"),
        (1, failing(), RunStatus::BudgetExceeded, "ERR_BUDGET_EXCEEDED"),
        (1_000, failing(), RunStatus::Failed, "ERR_HTTP_503"),
    ];
    for (budget, world, status, code) in ends {
        let run = go(budget, mail(), world);
        assert_eq!(run.machine.finished().expect("it ended").status, status);
        assert_eq!((outcome(&run).code.as_str(), outcome(&run).details.get("effect")), (code, Some(&json!("unknown"))));
    }
    // Before the first call there is nothing to doubt.
    for world in [failing().cancel("s1", 0), failing().deadline("s1", 0)] {
        assert!(!outcome(&go(1_000, mail(), world)).leaves_doubt());
    }
    assert!(!outcome(&go(0, mail(), failing())).leaves_doubt());
}

/// It explains an outcome and is no part of behaviour: whether the target recognises keys changes no digest.
#[test]
fn doubt_is_no_part_of_behaviour() {
    use macp_plan_core::effect::Idempotency::{Keyed, None as Unrepeatable};
    use macp_plan_core::testkit::ScriptedSkill;

    let plan = freeze(plan(1_000, vec![step("s1", "mail_send", json!({}))]));
    let digests = [Keyed, Unrepeatable].map(|class| {
        let skill = ScriptedSkill::new("mail_send", "1.0.0", Some(("email_queued", class)), "OK");
        let run = execute(&plan, &Kit::standard().with(skill).shared(), World::new().always("s1", http(503)));
        assert_eq!(outcome(&run).leaves_doubt(), class == Unrepeatable);
        run.machine.finished().expect("it ended").behavior_digest.clone()
    });
    assert_eq!(digests[0], digests[1]);
}
