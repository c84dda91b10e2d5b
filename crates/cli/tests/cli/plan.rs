//! Plans before they run, as an author handles them: no server anywhere.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Run, macp};

/// The digest of the example, frozen. It changes only if freezing, the skills or the built-in prices do.
const EXAMPLE_HASH: &str = "sha256:6652c42e0a60a6617482432b633a5624c91f9a30b210cd1e85a7b7db9a777e8b";

pub(crate) fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans/orders.json")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn written(place: &Path, name: &str, plan: &Value) -> PathBuf {
    let path = place.join(name);
    std::fs::write(&path, plan.to_string()).unwrap();
    path
}

/// AOS-68: every finding with step, rule and fix; the exit code says whether the plan can run.
#[test]
fn lint_tells_everything_at_once() {
    let fine = macp(&["plan", "lint", text(&example())]).exits(0);
    assert!(fine.stdout.starts_with("OK ") && fine.stdout.contains("nothing to say"), "{fine:?}");
    let fine = macp(&["--json", "plan", "lint", text(&example())]).exits(0).value();
    assert_eq!((&fine["valid"], &fine["plan_hash"]), (&json!(true), &json!(EXAMPLE_HASH)));

    let place = tempfile::tempdir().unwrap();
    let mut plan: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    plan["steps"][0]["parameters"]["method"] = json!("FETCH");
    plan["steps"][2]["parameters"]["url"] = json!("http://127.0.0.1:8000/{{later.body}}");
    plan["context"]["allowed_skills"] = json!(["http_call"]);
    let bad = written(place.path(), "bad.json", &plan);
    let found = macp(&["--json", "plan", "lint", text(&bad)]).exits(1).value();
    assert_eq!((&found["valid"], &found["plan_hash"]), (&json!(false), &Value::Null));
    let findings = found["findings"].as_array().unwrap();
    let of = |step: &str| findings.iter().filter(move |finding| finding["step_id"] == step).collect::<Vec<_>>();
    assert!(["fetch", "total", "notice"].iter().all(|step| !of(step).is_empty()), "{found:#}");
    assert!(findings.iter().all(|finding| finding["rule"].as_str().unwrap().starts_with("AOS-")), "{found:#}");
    let told = macp(&["plan", "lint", text(&bad)]).exits(1);
    assert!(told.stdout.contains("step notice: ") && told.stdout.contains("fix: "), "{told:?}");
    assert!(told.stdout.lines().last().unwrap().starts_with("BAD "), "{told:?}");
    plan["steps"][0]["skill_version"] = json!("9.9.9");
    let unknown = written(place.path(), "unknown.json", &plan);
    assert!(macp(&["plan", "lint", text(&unknown)]).exits(1).stdout.contains("available: 1.2.0"));

    std::fs::write(&bad, "{\"a\": 1, \"a\": 2}").unwrap();
    assert!(macp(&["plan", "lint", text(&bad)]).exits(1).stdout.contains("not_json"));
    let missing = macp(&["plan", "lint", "/nowhere/plan.json"]).exits(1);
    assert!(missing.stderr.contains("cannot read /nowhere/plan.json"), "{missing:?}");
}

/// A value that no header can carry is found before the plan runs, whatever stands beside it.
#[test]
fn lint_finds_header_values_that_cannot_be_sent() {
    let place = tempfile::tempdir().unwrap();
    let mut plan: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    // The third step has a reference in its URL.
    for step in [0, 2] {
        plan["steps"][step]["parameters"]["headers"] = json!({"x-note": "a\r\nx-injected: b"});
    }
    let bad = written(place.path(), "bad.json", &plan);
    let found = macp(&["--json", "plan", "lint", text(&bad)]).exits(1).value();
    let steps: Vec<&str> =
        found["findings"].as_array().unwrap().iter().map(|it| it["step_id"].as_str().unwrap()).collect();
    assert_eq!(steps, ["fetch", "notice"], "{found:#}");
    assert!(found["findings"][0]["problem"].as_str().unwrap().contains("/headers/x-note"), "{found:#}");
    macp(&["plan", "freeze", text(&bad)]).exits(1);
}

/// Whoever freezes without having linted hears what lint would have said: beside the plan, and not in it.
#[test]
fn freezing_tells_what_lint_warns_of() {
    let place = tempfile::tempdir().unwrap();
    let mut plan: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    plan["context"]["allowed_skills"] = json!(["http_call", "json_transform", "llm_invoke"]);
    let (odd, out) = (written(place.path(), "odd.json", &plan), place.path().join("odd.plan"));
    let warned =
        |run: &Run| run.stderr.contains("warning: ") && run.stderr.contains("`llm_invoke`, which no step uses");
    let printed = macp(&["plan", "freeze", text(&odd)]).exits(0);
    assert!(warned(&printed) && printed.stdout.starts_with('{'), "{printed:?}");
    let kept = macp(&["plan", "freeze", text(&odd), "-o", text(&out)]).exits(0);
    assert!(warned(&kept) && kept.stdout.lines().count() == 1, "{kept:?}");
    let told = macp(&["--json", "plan", "freeze", text(&odd), "-o", text(&out)]).exits(0).value();
    assert_eq!((&told["ok"], &told["findings"][0]["reason"]), (&json!(true), &json!("skill_unused")), "{told:#}");
    assert!(macp(&["plan", "freeze", text(&example())]).exits(0).stderr.is_empty());
}

/// A card that is known is not thereby pinned, and whoever names its file hears so.
#[test]
fn freezing_tells_of_a_card_that_is_not_pinned() {
    let place = tempfile::tempdir().unwrap();
    let free = json!({"http_call@1.2.0": {}, "json_transform@2.0.0": {}});
    let card = written(place.path(), "card.json", &json!({"id": "mine", "skills": free}));
    let (plan, known) = (example(), ["--rate-card", text(&card)]);
    let unpinned = macp(&[&["plan", "freeze", text(&plan)], &known[..]].concat()).exits(0);
    assert!(unpinned.stderr.contains("--card ID pins another: `mine`"), "{unpinned:?}");
    let pinned = macp(&[&["plan", "freeze", text(&plan), "--card", "mine"], &known[..]].concat()).exits(0);
    assert!(pinned.stderr.is_empty() && pinned.stdout.contains("\"id\":\"mine\""), "{pinned:?}");
}

/// AOS-11, AOS-13: the digest names the plan and leaves out when it was made.
#[test]
fn freezing_is_repeatable_and_the_digest_can_be_checked_by_hand() {
    let place = tempfile::tempdir().unwrap();
    let frozen = place.path().join("orders.plan");
    let told = macp(&["plan", "freeze", text(&example()), "-o", text(&frozen)]).exits(0);
    assert_eq!(told.stdout, format!("froze {}: {EXAMPLE_HASH}\n", frozen.display()));
    assert_eq!(macp(&["plan", "hash", text(&frozen)]).exits(0).stdout, format!("{EXAMPLE_HASH}\n"));

    let canonical = macp(&["plan", "hash", "--canonical", text(&frozen)]).exits(0).stdout;
    let digest = Sha256::digest(format!("aos-plan-hash/1:{canonical}"));
    assert_eq!(format!("sha256:{}", hex::encode(digest)), EXAMPLE_HASH);
    assert!(!canonical.contains("created_at") && canonical.contains("\"plan_id\":\"orders-of-the-day\""));

    let again = macp(&["plan", "freeze", text(&frozen)]).exits(0).stdout;
    assert_eq!(again, std::fs::read_to_string(&frozen).unwrap(), "freezing a frozen plan changes nothing");
    let embedded = place.path().join("embedded.plan");
    let told =
        macp(&["--json", "plan", "freeze", text(&example()), "-o", text(&embedded), "--embed-rate-card"]).exits(0);
    assert_ne!(told.value()["plan_hash"], EXAMPLE_HASH);
    let embedded: Value = serde_json::from_slice(&std::fs::read(embedded).unwrap()).unwrap();
    assert!(embedded["pins"]["rate_card"]["card"]["skills"].is_object());
}

/// AOS-14, AOS-32: builds are pinned on request, and what an agent may use comes from its profile.
#[test]
fn builds_and_profiles_are_frozen_in() {
    let place = tempfile::tempdir().unwrap();
    let frozen = |extra: &[&str]| {
        let path = example();
        let run = macp(&[&["plan", "freeze", text(&path)], extra].concat()).exits(0);
        serde_json::from_str::<Value>(&run.stdout).unwrap()
    };
    assert!(frozen(&[])["pins"]["skill_builds"].is_null());
    let pinned = frozen(&["--pin-builds"]);
    let builds = pinned["pins"]["skill_builds"].as_object().unwrap();
    assert_eq!(builds.keys().collect::<Vec<_>>(), ["http_call@1.2.0", "json_transform@2.0.0"]);
    assert_eq!(frozen(&["--pin-builds"])["pins"], pinned["pins"]);

    let profile = written(place.path(), "profile.json", &json!({"max_retries_per_step": 0}));
    let patient = frozen(&["--profile", text(&profile)]);
    assert!(patient["steps"].as_array().unwrap().iter().all(|step| step["retry_policy"]["max_retries"] == 0));
    let narrow = written(place.path(), "narrow.json", &json!({"denied_skills": ["http_call"]}));
    let found = macp(&["--json", "plan", "lint", text(&example()), "--profile", text(&narrow)]).exits(1).value();
    assert_eq!(found["findings"][0]["reason"], "skill_outside_profile", "{found:#}");
    let odd = written(place.path(), "odd.json", &json!({"skills": []}));
    macp(&["plan", "freeze", text(&example()), "--profile", text(&odd)]).exits(1);
}

#[test]
fn what_cannot_be_frozen_leaves_no_file_and_has_no_digest() {
    let place = tempfile::tempdir().unwrap();
    let bad = written(place.path(), "bad.json", &json!({"goal": "nothing"}));
    let out = place.path().join("bad.plan");
    let refused = macp(&["plan", "freeze", text(&bad), "-o", text(&out)]).exits(1);
    assert!(refused.stdout.contains("not frozen: ") && !out.exists(), "{refused:?}");
    assert_eq!(macp(&["--json", "plan", "freeze", text(&bad)]).exits(1).value()["ok"], false);
    let authored = macp(&["plan", "hash", text(&example())]).exits(1);
    assert!(authored.stdout.contains("only what is frozen has a digest"), "{authored:?}");
}

/// AOS-86: an estimate is no comparison, and says what bounds it.
#[test]
fn explain_and_dry_run_call_nothing() {
    let told = macp(&["plan", "explain", text(&example())]).exits(0).stdout;
    for part in [
        "1. fetch  http_call@1.2.0",
        "again after ERR_DNS_FAILURE, ERR_HTTP_503, ERR_HTTP_TIMEOUT",
        "http_request to 127.0.0.1:8000; repeating it is harmless",
        "the output of total",
        "the run goes on",
        "at most 5 ¢",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    // Nobody listens there, and nobody is asked.
    let estimate = macp(&["--json", "plan", "dry-run", text(&example())]).exits(0).value();
    assert_eq!(estimate["estimate"]["verdict"], "estimate");
    let codes: Vec<_> = estimate["estimate"]["steps"].as_array().unwrap().iter().map(|step| &step["code"]).collect();
    assert_eq!(codes, ["OK_DRY_RUN", "OK_DRY_RUN", "OK_DRY_RUN"]);
    assert_eq!(estimate["estimate"]["cost_high_cents"], 5);
    let place = tempfile::tempdir().unwrap();
    let mut plan: Value = serde_json::from_slice(&std::fs::read(example()).unwrap()).unwrap();
    plan["steps"][0]["retry_policy"]["retryable_codes"] = json!(["ERR_RATE_LIMITED"]);
    let aliased = written(place.path(), "aliased.json", &plan);
    let told = macp(&["plan", "explain", text(&aliased)]).exits(0).stdout;
    assert!(told.contains("again after ERR_RATE_LIMIT_INTERNAL (written ERR_RATE_LIMITED)"), "{told}");

    // A plan that is none yet: everything that is wrong with it, in the words and the shape of lint.
    plan["steps"][0]["parameters"] = json!({"method": "FETCH", "timeout_ms": "soon"});
    plan["context"]["allowed_skills"] = json!(["http_call"]);
    let bad = written(place.path(), "bad.json", &plan);
    let linted = macp(&["--json", "plan", "lint", text(&bad)]).exits(1).value();
    for verb in ["explain", "dry-run", "freeze"] {
        let refused = macp(&["--json", "plan", verb, text(&bad)]).exits(1).value();
        assert_eq!((&refused["ok"], &refused["findings"][0]["level"]), (&json!(false), &json!("error")), "{refused:#}");
        let told = macp(&["plan", verb, text(&bad)]).exits(1).stdout;
        assert!(told.contains("step fetch: ") && told.contains("at /method: "), "{verb}: {told}");
        assert!(told.contains("at /timeout_ms: ") && told.contains("\"url\" is a required property"), "{verb}: {told}");
    }
    assert_eq!((&linted["ok"], &linted["findings"][0]["level"]), (&json!(false), &json!("error")), "{linted:#}");
    let missing = macp(&["plan", "dry-run", "/nowhere"]).exits(1);
    assert!(missing.stderr.contains("cannot read /nowhere"), "AOS-96 keeps 2 for usage: {missing:?}");
    macp(&["plan", "dry-run"]).exits(2);
}

#[test]
fn codes_and_skills_explain_themselves() {
    let newest = macp(&["--json", "plan", "taxonomy"]).exits(0).values();
    let oldest = macp(&["--json", "plan", "taxonomy", "1.0.0"]).exits(0).values();
    assert_eq!(oldest.len(), 42, "AOS-33");
    assert!(newest.len() > oldest.len());
    macp(&["plan", "taxonomy", "0.9.0"]).exits(1);
    let alias = macp(&["plan", "code", "ERR_RATE_LIMITED"]).exits(0).stdout;
    assert!(alias.starts_with("ERR_RATE_LIMITED is another spelling of ERR_RATE_LIMIT_INTERNAL"), "{alias}");
    let code = macp(&["--json", "plan", "code", "ERR_EFFECT_IN_DOUBT"]).exits(0).value();
    assert_eq!(code["versions"], json!(["1.1.0"]));
    macp(&["plan", "code", "ERR_NOTHING"]).exits(1);

    let skills = macp(&["--json", "plan", "skills"]).exits(0).values();
    let ids: Vec<_> = skills.iter().map(|skill| skill["skill_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["http_call", "json_transform", "llm_invoke"]);
    let declared = macp(&["--json", "plan", "skills", "http_call@1.2.0"]).exits(0).value();
    assert_eq!(declared["idempotency"], "per_call");
    macp(&["plan", "skills", "http_call@0.0.1"]).exits(1);

    // What a skill promised before can be held against what it promises now.
    let place = tempfile::tempdir().unwrap();
    let mut earlier = declared.clone();
    let same = written(place.path(), "same.json", &declared);
    assert!(macp(&["plan", "skills", "http_call", "--diff", text(&same)]).exits(0).stdout.starts_with("SAME"));
    earlier["retry"]["max_retries"] = json!(77);
    let earlier = written(place.path(), "earlier.json", &earlier);
    let told = macp(&["plan", "skills", "http_call", "--diff", text(&earlier)]).exits(1).stdout;
    assert!(told.contains("/retry/max_retries: 77 became") && told.contains("DIFFERENT: 1 difference"), "{told}");
    let told = macp(&["--json", "plan", "skills", "http_call", "--diff", text(&earlier)]).exits(1).value();
    assert_eq!((&told["same"], &told["differences"][0]["before"]), (&json!(false), &json!(77)));
}

const DOCUMENT: &str = include_str!("../../../../docs/PLANS.md");

#[test]
fn the_plan_in_the_document_can_run_and_its_example_is_the_one_here() {
    let (_, plan) = DOCUMENT.split_once("## Writing a plan\n\n```json\n").expect("the document has a plan");
    let (plan, _) = plan.split_once("```").expect("the plan ends");
    let place = tempfile::tempdir().unwrap();
    let plan = written(place.path(), "document.json", &serde_json::from_str(plan).unwrap());
    let linted = macp(&["plan", "lint", text(&plan)]).exits(0);
    assert!(linted.stdout.contains("nothing to say"), "{linted:?}");
    assert!(DOCUMENT.contains(&format!("froze orders.plan: {EXAMPLE_HASH}\n")));
}

#[test]
fn the_document_has_the_taxonomy_word_for_word() {
    let document = DOCUMENT;
    let (_, rest) = document.split_once("\n<!-- taxonomy: ").expect("the line before the table is there");
    let (_, rest) = rest.split_once(" -->\n").expect("the line before the table ends");
    let (table, _) = rest.split_once("<!-- end of taxonomy -->\n").expect("the line after the table is there");
    let Run { stdout, .. } = macp(&["plan", "taxonomy", "--markdown"]).exits(0);
    assert!(
        table == format!("\n{stdout}\n"),
        "docs/PLANS.md does not say what the program does: put what `macp plan taxonomy --markdown` prints, with an \
         empty line before and after, between its lines `<!-- taxonomy: … -->` and `<!-- end of taxonomy -->`.\n\n\
         The program says:\n{stdout}"
    );
}
