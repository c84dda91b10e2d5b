//! The taxonomy: published tables, frozen digests, and a mapping from causes to codes without holes.

mod rules;

use macp_plan_core::cause::{Cause, ConnectionFault};
use macp_plan_core::retry::should_retry;
use macp_plan_core::taxonomy::{self, Category, Class, Taxonomy, VERSIONS, alias, explain, stops_always};
use rules::{Declared, http_call, json_transform, llm_invoke, policy};

fn version(number: &str) -> &'static Taxonomy {
    Taxonomy::version(number).expect("a kept version")
}

/// Every cause, each kind at least once, statuses at every boundary. The match has no wildcard: a new cause that is not
/// listed here does not compile.
fn causes() -> Vec<Cause> {
    use Cause::*;
    let statuses = [0, 99, 100, 200, 399, 400, 401, 403, 404, 408, 413, 422, 429, 499, 500, 529, 599, 600, u16::MAX];
    let mut causes: Vec<Cause> = statuses.iter().map(|status| Cause::http(*status)).collect();
    for context_length in [false, true] {
        causes.extend(statuses.iter().map(|status| LlmStatus { status: *status, context_length }));
    }
    use ConnectionFault::*;
    causes.extend([Refused, Unreachable, Reset, BrokenPipe, ClosedEarly].map(|fault| Connection { fault }));
    let mut next = Some(Success);
    while let Some(cause) = next {
        next = match &cause {
            Success => Some(Partial),
            Partial => Some(HttpMalformed),
            HttpMalformed => Some(ClientTimeout),
            ClientTimeout => Some(GuardTimeout),
            GuardTimeout => Some(DnsFailure),
            DnsFailure => Some(Tls),
            Tls => Some(TooManyRedirects),
            TooManyRedirects => Some(AnswerTooLarge),
            AnswerTooLarge => Some(EgressForbidden),
            EgressForbidden => Some(RateLimited),
            RateLimited => Some(ConcurrencyLimited),
            ConcurrencyLimited => Some(LlmContentFilter),
            LlmContentFilter => Some(LlmInvalidResponse),
            LlmInvalidResponse => Some(InputInvalid),
            InputInvalid => Some(ReferenceUnresolved),
            ReferenceUnresolved => Some(OutputMismatch),
            OutputMismatch => Some(SerializationFailed),
            SerializationFailed => Some(DeserializationFailed),
            DeserializationFailed => Some(SkillNotFound),
            SkillNotFound => Some(SkillDisabled),
            SkillDisabled => Some(NotAllowed),
            NotAllowed => Some(BudgetExceeded),
            BudgetExceeded => Some(QuotaExceeded),
            QuotaExceeded => Some(StorageQuotaExceeded),
            StorageQuotaExceeded => Some(SafetyRejected),
            SafetyRejected => Some(PromptInjection),
            PromptInjection => Some(Internal),
            Internal => Some(Unclassified),
            Unclassified => Some(IdempotencyConflict),
            IdempotencyConflict => Some(EffectInDoubt),
            EffectInDoubt => Some(Cancelled),
            Cancelled | HttpStatus { .. } | LlmStatus { .. } | Connection { .. } => None,
        };
        causes.push(cause);
    }
    causes
}

/// AOS-36: every cause has one code, it exists in the pinned version, and it is the same every time.
#[test]
fn cause_map_total() {
    let skills = [http_call(), llm_invoke(), json_transform()];
    for taxonomy in VERSIONS {
        for cause in causes() {
            for skill in &skills {
                let code = taxonomy.resolve(&cause, skill);
                assert!(taxonomy.code(code).is_some(), "{cause:?} gives {code} under {}", taxonomy.number());
                assert!((0..100).all(|_| taxonomy.resolve(&cause, skill) == code));
            }
        }
        for skill in &skills {
            for mode in &skill.metadata.failure_modes {
                assert!(taxonomy.code(mode).is_some(), "{mode}");
            }
        }
        let reached = |class: &Class| causes().iter().any(|cause| Class::of(cause) == *class);
        // 502 to 504 and the like have classes of their own, which the sweep below reaches.
        let unreached: Vec<_> = Class::ALL.iter().filter(|class| !reached(class)).map(|class| class.name()).collect();
        assert_eq!(unreached, ["http_502", "http_503", "http_504"]);
    }
}

/// AOS-36, row by row, under both versions.
#[test]
fn causes_have_the_published_codes() {
    let rows = [
        (Cause::HttpMalformed, "ERR_UNKNOWN"),
        (Cause::ClientTimeout, "ERR_HTTP_TIMEOUT"),
        (Cause::GuardTimeout, "ERR_TIMEOUT"),
        (Cause::DnsFailure, "ERR_DNS_FAILURE"),
        (Cause::Connection { fault: ConnectionFault::Reset }, "ERR_CONNECTION_REFUSED"),
        (Cause::Tls, "ERR_SSL_ERROR"),
        (Cause::TooManyRedirects, "ERR_HTTP_4XX"),
        (Cause::AnswerTooLarge, "ERR_VALIDATION_FAILED"),
        (Cause::EgressForbidden, "ERR_POLICY_VIOLATION"),
        (Cause::RateLimited, "ERR_RATE_LIMIT_INTERNAL"),
        (Cause::ConcurrencyLimited, "ERR_RATE_LIMIT_CONCURRENT"),
        (Cause::LlmStatus { status: 429, context_length: false }, "ERR_LLM_RATE_LIMIT"),
        (Cause::LlmStatus { status: 529, context_length: false }, "ERR_LLM_API_ERROR"),
        (Cause::LlmStatus { status: 400, context_length: true }, "ERR_LLM_CONTEXT_LENGTH"),
        (Cause::LlmStatus { status: 422, context_length: true }, "ERR_LLM_CONTEXT_LENGTH"),
        (Cause::LlmStatus { status: 422, context_length: false }, "ERR_VALIDATION_FAILED"),
        (Cause::LlmStatus { status: 404, context_length: false }, "ERR_VALIDATION_FAILED"),
        (Cause::LlmStatus { status: 401, context_length: false }, "ERR_HTTP_401"),
        (Cause::LlmStatus { status: 403, context_length: true }, "ERR_HTTP_403"),
        (Cause::LlmContentFilter, "ERR_LLM_CONTENT_FILTER"),
        (Cause::LlmInvalidResponse, "ERR_LLM_INVALID_RESPONSE"),
        (Cause::InputInvalid, "ERR_VALIDATION_FAILED"),
        (Cause::ReferenceUnresolved, "ERR_VALIDATION_FAILED"),
        (Cause::OutputMismatch, "ERR_SCHEMA_MISMATCH"),
        (Cause::SerializationFailed, "ERR_SERIALIZATION_FAILED"),
        (Cause::DeserializationFailed, "ERR_DESERIALIZATION_FAILED"),
        (Cause::SkillNotFound, "ERR_SKILL_NOT_FOUND"),
        (Cause::SkillDisabled, "ERR_SKILL_DISABLED"),
        (Cause::NotAllowed, "ERR_PERMISSION_DENIED"),
        (Cause::BudgetExceeded, "ERR_BUDGET_EXCEEDED"),
        (Cause::QuotaExceeded, "ERR_QUOTA_EXCEEDED"),
        (Cause::StorageQuotaExceeded, "ERR_STORAGE_QUOTA_EXCEEDED"),
        (Cause::SafetyRejected, "ERR_SAFETY_REJECTED"),
        (Cause::PromptInjection, "ERR_PROMPT_INJECTION"),
        (Cause::Internal, "ERR_INTERNAL"),
        (Cause::Unclassified, "ERR_UNKNOWN"),
    ];
    for taxonomy in VERSIONS {
        for (cause, code) in &rows {
            assert_eq!(taxonomy.resolve(cause, &llm_invoke()), *code, "{cause:?}");
        }
    }
}

/// AOS-36: every status against the rules of the table, written the other way round.
#[test]
fn http_status_sweep() {
    let own = [400, 401, 403, 404, 429, 500, 502, 503, 504];
    for status in 0..=999 {
        let expected = match status {
            408 => "ERR_HTTP_TIMEOUT".to_owned(),
            status if own.contains(&status) => format!("ERR_HTTP_{status}"),
            status if status / 100 == 4 => "ERR_HTTP_4XX".to_owned(),
            status if status / 100 == 5 => "ERR_HTTP_5XX".to_owned(),
            status if (1..=3).contains(&(status / 100)) => "OK_HTTP_CALL".to_owned(),
            _ => "ERR_UNKNOWN".to_owned(),
        };
        for taxonomy in VERSIONS {
            assert_eq!(taxonomy.resolve(&Cause::http(status), &http_call()), expected, "{status}");
        }
    }
}

/// AOS-33, AOS-35, AOS-38: the tables and their digests are frozen. Who edits a version must give it a new number.
#[test]
fn taxonomy_snapshot() {
    let first = version("1.0.0");
    let codes: Vec<_> = first.codes().collect();
    assert_eq!(codes.len(), 42);
    assert_eq!(codes.iter().filter(|info| info.category == Category::Success).count(), 4);
    assert_eq!(codes.iter().filter(|info| info.retryable).count(), 15);
    let second = version("1.1.0");
    assert_eq!(second.codes().count(), 49);
    assert!(first.codes().zip(second.codes()).all(|(before, after)| before == after));
    let added: Vec<_> = second.codes().skip(42).map(|info| info.code).collect();
    assert_eq!(
        added,
        [
            "OK_PARTIAL",
            "OK_DRY_RUN",
            "OK_SKIP_DUPLICATE",
            "OK_SKIP_CONDITION",
            "ERR_IDEMPOTENCY_CONFLICT",
            "ERR_EFFECT_IN_DOUBT",
            "ERR_CANCELLED"
        ]
    );
    assert_eq!(second.codes().skip(42).filter(|info| info.retryable).count(), 0);
    assert_eq!(first.digest().as_str(), "sha256:87458f578823bd7479efa88249a1088397f235f906b1a40cf0c6178662860176");
    assert_eq!(second.digest().as_str(), "sha256:824f8525f71b747a91aece5fa307be7e0119960e2e42a24affb14c2a42868313");
    assert!(Taxonomy::version("1.0").is_none() && Taxonomy::version("2.0.0").is_none());
    assert_eq!(VERSIONS.last().map(Taxonomy::number), Some(taxonomy::DEFAULT_VERSION));
}

/// AOS-33, AOS-35: every row, against the published table.
#[test]
fn rows_are_as_published() {
    let word = |value: serde_json::Value| value.as_str().expect("a word").to_owned();
    let rows: Vec<String> = version("1.1.0")
        .codes()
        .map(|info| {
            let category = word(serde_json::to_value(info.category).expect("a category"));
            let severity = word(serde_json::to_value(info.severity).expect("a severity"));
            format!("{:<28}{category:<12}{:<4}{severity}", info.code, if info.retryable { "yes" } else { "no" })
        })
        .collect();
    let published: Vec<&str> = include_str!("rules/taxonomy.txt").lines().collect();
    assert_eq!(rows, published);
}

/// AOS-26: the flag follows from the code, whatever the policy says and however many retries were made.
#[test]
fn retryable_is_function_of_code() {
    for taxonomy in VERSIONS {
        for info in taxonomy.codes() {
            let flag = taxonomy.retryable(info.code);
            assert_eq!(flag, info.retryable);
            assert!(!flag || info.category != Category::Success);
            let mut policy = policy();
            policy.retryable_codes = vec![info.code.to_owned()];
            for attempt in 0..12 {
                let exhausted = !should_retry(&policy, attempt, info.code);
                assert_eq!(exhausted, attempt >= policy.max_retries);
                assert_eq!(taxonomy.retryable(info.code), flag, "{} after {attempt}", info.code);
            }
        }
        assert!(!taxonomy.retryable("ERR_OF_NOBODY"));
    }
}

/// AOS-35: under 1.0.0 its neighbours stand in, and nothing of 1.1.0 is ever produced.
#[test]
fn the_first_version_has_substitutes() {
    let (first, second) = (version("1.0.0"), version("1.1.0"));
    let cases = [
        (Cause::Partial, "OK", "OK_PARTIAL"),
        (Cause::IdempotencyConflict, "ERR_VALIDATION_FAILED", "ERR_IDEMPOTENCY_CONFLICT"),
        (Cause::EffectInDoubt, "ERR_UNKNOWN", "ERR_EFFECT_IN_DOUBT"),
        (Cause::Cancelled, "ERR_POLICY_VIOLATION", "ERR_CANCELLED"),
    ];
    for (cause, before, after) in cases {
        assert_eq!(first.resolve(&cause, &http_call()), before);
        assert_eq!(second.resolve(&cause, &http_call()), after);
        assert_eq!(first.or_substitute(after), before);
        assert_eq!(second.or_substitute(after), after);
    }
    assert_eq!(first.or_substitute("OK_SKIP_DUPLICATE"), "OK");
    assert_eq!(first.or_substitute("OK_SKIP_CONDITION"), "OK");
    assert_eq!(first.or_substitute("OK_DRY_RUN"), "OK_DRY_RUN");
    assert_eq!(first.or_substitute("ERR_HTTP_503"), "ERR_HTTP_503");
}

/// AOS-36: success codes belong to the skill; AOS-22: a skill may be more precise, within what it declares.
#[test]
fn a_skill_names_its_own_success_and_its_own_failures() {
    let taxonomy = version("1.1.0");
    assert_eq!(taxonomy.resolve(&Cause::Success, &http_call()), "OK_HTTP_CALL");
    assert_eq!(taxonomy.resolve(&Cause::Success, &llm_invoke()), "OK_LLM_INVOKE");
    assert_eq!(taxonomy.resolve(&Cause::Success, &json_transform()), "OK_JSON_TRANSFORM");
    let strange = Declared { success: "OK_OF_NOBODY", ..http_call() };
    assert_eq!(taxonomy.resolve(&Cause::Success, &strange), "OK");
    let failing = Declared { success: "ERR_UNKNOWN", ..http_call() };
    assert_eq!(taxonomy.resolve(&Cause::Success, &failing), "OK");

    let precise = |cause: Cause, code| Declared { precise: Some((cause, code)), ..http_call() };
    let cause = Cause::Unclassified;
    assert_eq!(taxonomy.resolve(&cause, &precise(cause.clone(), "ERR_HTTP_503")), "ERR_HTTP_503");
    // Not declared as a failure mode, unknown, or no failure: the shared mapping stands.
    for code in ["ERR_INTERNAL", "ERR_OF_NOBODY", "OK_HTTP_CALL"] {
        assert_eq!(taxonomy.resolve(&cause, &precise(cause.clone(), code)), "ERR_UNKNOWN");
    }
    // Nor has a skill a say in what the executor decides: budgets and cancels stop a run by their codes.
    for (cause, code) in [
        (Cause::BudgetExceeded, "ERR_BUDGET_EXCEEDED"),
        (Cause::Cancelled, "ERR_CANCELLED"),
        (Cause::IdempotencyConflict, "ERR_IDEMPOTENCY_CONFLICT"),
        (Cause::EffectInDoubt, "ERR_EFFECT_IN_DOUBT"),
        (Cause::GuardTimeout, "ERR_TIMEOUT"),
        (Cause::RateLimited, "ERR_RATE_LIMIT_INTERNAL"),
    ] {
        assert_eq!(taxonomy.resolve(&cause, &precise(cause.clone(), "ERR_HTTP_503")), code);
    }
    let success = Cause::http(200);
    assert_eq!(taxonomy.resolve(&success, &precise(success.clone(), "ERR_HTTP_503")), "OK_HTTP_CALL");
}

/// AOS-34.
#[test]
fn five_codes_always_stop() {
    let stopping: Vec<_> = version("1.1.0").codes().map(|info| info.code).filter(|code| stops_always(code)).collect();
    assert_eq!(
        stopping,
        [
            "ERR_POLICY_VIOLATION",
            "ERR_BUDGET_EXCEEDED",
            "ERR_QUOTA_EXCEEDED",
            "ERR_SAFETY_REJECTED",
            "ERR_PROMPT_INJECTION"
        ]
    );
}

/// AOS-37.
#[test]
fn other_spellings_stand_for_codes() {
    let cases = [
        ("ERR_RATE_LIMITED", Some("ERR_RATE_LIMIT_INTERNAL")),
        ("ERR_HTTP_503_UNAVAILABLE", Some("ERR_HTTP_503")),
        ("ERR_HTTP_408_TIMEOUT", Some("ERR_HTTP_TIMEOUT")),
        ("ERR_HTTP_409_CONFLICT", Some("ERR_HTTP_4XX")),
        ("ERR_HTTP_422_UNPROCESSABLE", Some("ERR_HTTP_4XX")),
        ("ERR_HTTP_599_ODD", Some("ERR_HTTP_5XX")),
        ("ERR_LLM_AUTH_FAILED", Some("ERR_HTTP_401")),
        ("ERR_JSON_DEPTH_EXCEEDED", Some("ERR_VALIDATION_FAILED")),
        ("ERR_SOCKET_ERROR", Some("ERR_CONNECTION_REFUSED")),
        ("ERR_HTTP_503", None),
        ("ERR_HTTP_503_", None),
        ("ERR_HTTP_200_FINE", None),
        ("ERR_HTTP_5033_X", None),
        ("ERR_HTTP_+50_X", None),
        ("TIMEOUT", None),
        ("BUDGET_EXCEEDED", None),
        ("", None),
    ];
    for (spelling, code) in cases {
        assert_eq!(alias(spelling), code, "{spelling}");
        assert!(code.is_none_or(|code| version("1.0.0").code(code).is_some()));
    }
    // No code is another spelling of something else.
    assert!(version("1.1.0").codes().all(|info| alias(info.code).is_none()));
}

#[test]
fn every_code_is_explained() {
    for info in version("1.1.0").codes() {
        let explained = explain(info.code).expect(info.code);
        assert!(explained.meaning.ends_with('.') && explained.action.ends_with('.'), "{}", info.code);
        assert_eq!(explained.alias, None);
        assert_eq!(explained.versions.first() == Some(&"1.0.0"), version("1.0.0").code(info.code).is_some());
    }
    let explained = explain("ERR_RATE_LIMITED").expect("an alias");
    assert_eq!((explained.code, explained.alias.as_deref()), ("ERR_RATE_LIMIT_INTERNAL", Some("ERR_RATE_LIMITED")));
    assert_eq!(explained.causes, ["this runtime's request-rate limiter refused the call"]);
    assert!(explain("ERR_OF_NOBODY").is_none());
}
