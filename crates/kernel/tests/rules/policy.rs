//! STD-POL-2 to STD-POL-11: what a policy descriptor may say, and what may be registered.

use macp_kernel::policy::{
    self, Abstention, Algorithm, Authority, Commitment, Criterion, DESCRIPTION_BYTES_MAX, Evaluations, Interpretation,
    InvalidPolicy, ObjectionAction, Objections, Policy, RULES_BYTES_MAX, RULES_DEPTH_MAX, Rules, Threshold, VoteQuorum,
    Voting, builtins, default_policy, validate, validate_candidate,
};
use macp_wire::v1::PolicyDescriptor;
use serde_json::{Value, json};

const DECISION: &str = "macp.mode.decision.v1";
const PROPOSAL: &str = "macp.mode.proposal.v1";
const TASK: &str = "macp.mode.task.v1";
const HANDOFF: &str = "macp.mode.handoff.v1";
const QUORUM: &str = "macp.mode.quorum.v1";
const STANDARD: [&str; 5] = [DECISION, PROPOSAL, TASK, HANDOFF, QUORUM];

pub(crate) fn descriptor(mode: &str, rules: &str) -> PolicyDescriptor {
    PolicyDescriptor {
        policy_id: "policy.test".into(),
        mode: mode.into(),
        description: "A policy.".into(),
        rules: rules.into(),
        schema_version: 3,
        registered_at_unix_ms: 0,
    }
}

fn read(mode: &str, rules: &Value) -> Result<Rules, InvalidPolicy> {
    validate(&descriptor(mode, &rules.to_string())).map(|policy| policy.rules)
}

fn accepted(mode: &str, rules: Value) -> Rules {
    read(mode, &rules).unwrap_or_else(|error| panic!("{mode} {rules}: {error}"))
}

#[track_caller]
fn refused(mode: &str, rules: Value, text: &str) {
    let error = read(mode, &rules).expect_err("the rules are refused").to_string();
    assert!(error.contains(text), "{mode} {rules}: {error}");
}

/// Builds `{"a": {"b": value}}` out of `a.b`.
fn at(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, key| json!({ key: inner }))
}

#[test]
fn std_pol_2_every_rule_of_a_decision_is_read() {
    let rules = accepted(
        DECISION,
        json!({
            "voting": {
                "algorithm": "weighted", "threshold": 0.75, "quorum": { "type": "percentage", "value": 12.5 },
                "weights": { "alice": 2, "bob": 0.5 },
            },
            "objection_handling": {
                "critical_severity_vetoes": true, "veto_threshold": 3, "critical_objection_action": "hold",
            },
            "evaluation": { "required_before_voting": true, "minimum_confidence": 0.9 },
            "commitment": {
                "authority": "designated_role", "designated_roles": ["carol", "bob", "carol"],
                "require_vote_quorum": true, "allow_decline_over_approval": true,
            },
        }),
    );
    let weights = [("alice".into(), 2.0), ("bob".into(), 0.5)].into();
    let expected = Rules {
        voting: Voting {
            algorithm: Algorithm::Weighted,
            threshold: 0.75,
            quorum: VoteQuorum::Percentage(12.5),
            weights: Some(weights),
        },
        objections: Objections { critical_severity_vetoes: true, veto_threshold: 3, action: ObjectionAction::Hold },
        evaluations: Evaluations { required_before_voting: true, minimum_confidence: 0.9 },
        commitment: Commitment {
            authority: Authority::DesignatedRole,
            designated_roles: ["bob".into(), "carol".into()].into(),
            require_vote_quorum: true,
            allow_decline_over_approval: true,
        },
        ..Rules::default()
    };
    assert_eq!(rules, expected);
}

#[test]
fn std_pol_2_every_rule_of_the_other_modes_is_read() {
    let proposal = json!({
        "acceptance": { "criterion": "counterparty" }, "counter_proposal": { "max_rounds": 4 },
        "rejection": { "terminal_on_any_reject": true }, "commitment": { "authority": "any_participant" },
    });
    let any_participant = Commitment { authority: Authority::AnyParticipant, ..Commitment::default() };
    let expected = Rules {
        criterion: Criterion::Counterparty,
        counter_proposals_max: 4,
        terminal_on_any_reject: true,
        commitment: any_participant,
        ..Rules::default()
    };
    assert_eq!(accepted(PROPOSAL, proposal), expected);

    let task = json!({
        "assignment": { "allow_reassignment_on_reject": true }, "completion": { "require_output": true },
    });
    let expected = Rules { allow_reassignment_on_reject: true, require_output: true, ..Rules::default() };
    assert_eq!(accepted(TASK, task), expected);

    let handoff = json!({ "acceptance": { "implicit_accept_timeout_ms": i64::MAX } });
    assert_eq!(accepted(HANDOFF, handoff), Rules { implicit_accept_timeout_ms: i64::MAX, ..Rules::default() });

    let quorum = json!({
        "threshold": { "type": "percentage", "value": 67 },
        "abstention": { "counts_toward_quorum": true, "interpretation": "implicit_reject" },
    });
    let abstention = Abstention { counts_toward_quorum: true, interpretation: Interpretation::ImplicitReject };
    let expected = Rules { threshold: Some(Threshold::Percentage(67)), abstention, ..Rules::default() };
    assert_eq!(accepted(QUORUM, quorum), expected);
}

/// A schema of `*` knows every rule of every mode, also those that share an object.
#[test]
fn std_pol_8_any_mode() {
    let rules = json!({
        "acceptance": { "criterion": "initiator", "implicit_accept_timeout_ms": 5 },
        "threshold": { "value": 2 }, "voting": { "algorithm": "plurality" }, "completion": { "require_output": true },
    });
    let rules = accepted("*", rules);
    assert_eq!(rules.criterion, Criterion::Initiator);
    assert_eq!(rules.implicit_accept_timeout_ms, 5);
    assert_eq!(rules.threshold, Some(Threshold::Count(2)));
    assert_eq!(rules.voting.algorithm, Algorithm::Plurality);
    refused("*", json!({ "threshold": { "value": 0 } }), "rules.threshold.value must be 1 or more");
    refused("*", json!({ "colour": 1 }), "rules.colour is no rule of *");
}

#[test]
fn std_pol_3_a_policy_covers_its_mode_or_all() {
    let one = validate(&descriptor(TASK, "{}")).expect("valid");
    assert!(one.covers(TASK) && !one.covers(DECISION));
    let any = validate(&descriptor("*", "{}")).expect("valid");
    assert!(any.covers(TASK) && any.covers("ext.vendor.v1"));
}

#[test]
fn std_pol_5_built_in_policies() {
    let ids: Vec<&str> = builtins().iter().map(|policy| policy.id()).collect();
    assert_eq!(ids, ["policy.default", "policy.std.majority", "policy.std.supermajority", "policy.std.unanimous"]);
    assert_eq!(ids[0], policy::DEFAULT_ID);
    assert!(builtins().iter().all(|policy| policy.schema_version() == 1));
    let default = default_policy();
    assert_eq!((default.id(), default.descriptor.mode.as_str()), ("policy.default", "*"));
    assert_eq!(default.rules, Rules::default(), "the default policy rules nothing");

    let standard = [
        (Algorithm::Majority, 0.5, 1.0),
        (Algorithm::Supermajority, 0.666_666_666_666_666_6, 2.0),
        (Algorithm::Unanimous, 0.5, 1.0),
    ];
    for (policy, (algorithm, threshold, voters)) in builtins()[1..].iter().zip(standard) {
        let voting = Voting { algorithm, threshold, quorum: VoteQuorum::Count(voters), weights: None };
        let commitment = Commitment { require_vote_quorum: true, ..Commitment::default() };
        assert_eq!(policy.rules, Rules { voting, commitment, ..Rules::default() }, "{}", policy.id());
        assert_eq!(policy.descriptor.mode, DECISION);
    }
}

/// The defaults written out, as some runtimes list their default policy, rule as much as none.
#[test]
fn std_pol_5_defaults_written_out_are_inert() {
    let rules = json!({
        "voting": { "algorithm": "none", "threshold": 0.5, "quorum": { "type": "count", "value": 0 } },
        "objection_handling": {
            "critical_severity_vetoes": false, "veto_threshold": 1, "critical_objection_action": "deny",
        },
        "evaluation": { "required_before_voting": false, "minimum_confidence": 0.0 },
        "commitment": {
            "authority": "initiator_only", "designated_roles": [], "require_vote_quorum": false,
            "allow_decline_over_approval": false,
        },
        "acceptance": { "criterion": "all_parties", "implicit_accept_timeout_ms": 0 },
        "counter_proposal": { "max_rounds": 0 }, "rejection": { "terminal_on_any_reject": false },
        "assignment": { "allow_reassignment_on_reject": false }, "completion": { "require_output": false },
        "threshold": { "type": "n_of_m" },
        "abstention": { "counts_toward_quorum": false, "interpretation": "neutral" },
    });
    assert_eq!(accepted("*", rules), Rules::default());
}

/// Each descriptor has one more fault than the one before it; the first fault in the order is the answer.
#[test]
fn std_pol_6_order_of_checks() {
    let mut descriptor = PolicyDescriptor { mode: DECISION.into(), rules: "[".into(), ..PolicyDescriptor::default() };
    let mut answer = |change: &dyn Fn(&mut PolicyDescriptor)| {
        change(&mut descriptor);
        validate(&descriptor).map(|_| ()).map_err(|error| error.to_string())
    };
    let mut expect = |change: &dyn Fn(&mut PolicyDescriptor), text: &str| {
        let error = answer(change).expect_err("still refused");
        assert!(error.contains(text), "{error:?} does not say {text:?}");
    };
    expect(&|_| (), "policy_id is empty");
    expect(&|it| it.policy_id = " \t".into(), "policy_id is empty");
    expect(&|it| it.policy_id = "policy.default".into(), "policy.default is built in");
    expect(&|it| it.policy_id = "policy.std.majority".into(), "schema_version is missing");
    expect(&|it| it.schema_version = 4, "schema_version 4 is not supported");
    expect(&|it| it.schema_version = 1, "rules cannot be read as JSON");
    expect(&|it| it.rules = "[]".into(), "rules must be a JSON object, not an array");
    let faults = r#"{"colour": 1, "voting": {"algorithm": null, "threshold": "half", "quorum": {"value": -1}}}"#;
    expect(&|it| it.rules = faults.into(), "rules.colour is no rule of macp.mode.decision.v1");
    expect(&|it| it.rules = it.rules.replace("colour", "_colour"), "rules.voting.algorithm must be a string, not null");
    expect(&|it| it.rules = it.rules.replace("null", "\"fair\""), "lies in the namespace policy.std.");
    expect(&|it| it.policy_id = "policy.mine".into(), "rules.voting.threshold must be a number, not a string");
    expect(&|it| it.rules = it.rules.replace("\"half\"", "0.5"), "rules.voting.algorithm must be none, majority");
    expect(&|it| it.rules = it.rules.replace("fair", "majority"), "rules.voting.quorum.value must be 0 or more");
    assert_eq!(answer(&|it| it.rules = it.rules.replace("-1", "1")), Ok(()));
}

/// A candidate of a what-if replay may have any id, but says what every policy may say.
#[test]
fn std_pol_32_a_candidate_is_checked_without_its_id() {
    for policy_id in ["", "policy.default", "policy.std.majority", "policy.std.mine"] {
        let candidate = PolicyDescriptor { policy_id: policy_id.into(), ..descriptor(TASK, "") };
        let policy = validate_candidate(&candidate).expect("only the id is odd");
        assert_eq!(policy.descriptor, candidate);
        assert!(validate(&candidate).is_err(), "{policy_id}");
    }
    let candidate = PolicyDescriptor { schema_version: 0, ..descriptor(TASK, "") };
    assert_eq!(validate_candidate(&candidate), Err(InvalidPolicy::SchemaVersionMissing));
}

#[test]
fn std_pol_6_lengths() {
    let longest = PolicyDescriptor {
        policy_id: "p".repeat(256),
        mode: "m".repeat(256),
        description: "d".repeat(DESCRIPTION_BYTES_MAX),
        rules: format!(r#"{{"_":"{}"}}"#, "n".repeat(RULES_BYTES_MAX - 8)),
        ..descriptor("", "")
    };
    assert_eq!(longest.rules.len(), RULES_BYTES_MAX);
    assert!(validate(&longest).is_ok());
    type Spoil = fn(&mut PolicyDescriptor);
    let too_long: [(Spoil, &str); 4] = [
        (|it| it.policy_id.push('p'), "policy_id is 257 bytes long"),
        (|it| it.mode.push('m'), "mode is 257 bytes long"),
        (|it| it.description.push('d'), "description is 4097 bytes long"),
        (|it| it.rules.push(' '), "rules is 65537 bytes long"),
    ];
    for (lengthen, text) in too_long {
        let mut descriptor = longest.clone();
        lengthen(&mut descriptor);
        let error = validate(&descriptor).expect_err("too long").to_string();
        assert!(error.contains(text), "{error}");
    }
    let no_mode = descriptor(" ", "{}");
    assert_eq!(validate(&no_mode), Err(InvalidPolicy::ModeBlank));
}

#[test]
fn std_pol_6_nesting_is_bounded() {
    let nested = |levels: usize| {
        // The rules object is a level itself.
        let inner = levels - 1;
        descriptor(TASK, &format!(r#"{{"_": {}{}}}"#, "[".repeat(inner), "]".repeat(inner)))
    };
    assert!(validate(&nested(RULES_DEPTH_MAX)).is_ok());
    let error = validate(&nested(RULES_DEPTH_MAX + 1)).expect_err("too deep").to_string();
    assert!(error.contains("nested deeper than 32 levels"), "{error}");
    assert!(validate(&nested(30_000)).is_err());
}

/// Every rule is known at its place in its modes and nowhere else.
#[test]
fn std_pol_7_closed_keys() {
    let table: [(&str, Value, &[&str]); 24] = [
        ("voting.algorithm", json!("none"), &[DECISION]),
        ("voting.threshold", json!(0.5), &[DECISION]),
        ("voting.quorum.type", json!("count"), &[DECISION]),
        ("voting.quorum.value", json!(1), &[DECISION]),
        ("voting.weights", json!({ "alice": 1 }), &[DECISION]),
        ("objection_handling.critical_severity_vetoes", json!(true), &[DECISION]),
        ("objection_handling.veto_threshold", json!(1), &[DECISION]),
        ("objection_handling.critical_objection_action", json!("deny"), &[DECISION]),
        ("evaluation.required_before_voting", json!(true), &[DECISION]),
        ("evaluation.minimum_confidence", json!(1), &[DECISION]),
        ("commitment.authority", json!("any_participant"), &STANDARD),
        ("commitment.designated_roles", json!(["alice"]), &STANDARD),
        ("commitment.require_vote_quorum", json!(true), &[DECISION]),
        ("commitment.allow_decline_over_approval", json!(true), &[DECISION]),
        ("acceptance.criterion", json!("initiator"), &[PROPOSAL]),
        ("acceptance.implicit_accept_timeout_ms", json!(1), &[HANDOFF]),
        ("counter_proposal.max_rounds", json!(1), &[PROPOSAL]),
        ("rejection.terminal_on_any_reject", json!(true), &[PROPOSAL]),
        ("assignment.allow_reassignment_on_reject", json!(true), &[TASK]),
        ("completion.require_output", json!(true), &[TASK]),
        ("threshold.type", json!("n_of_m"), &[QUORUM]),
        ("threshold.value", json!(1), &[QUORUM]),
        ("abstention.counts_toward_quorum", json!(true), &[QUORUM]),
        ("abstention.interpretation", json!("ignored"), &[QUORUM]),
    ];
    for (path, value, modes) in table {
        for mode in STANDARD {
            let answer = read(mode, &at(path, value.clone()));
            assert_eq!(answer.is_ok(), modes.contains(&mode), "{path} in {mode}: {answer:?}");
        }
        let beside = format!("{path}s");
        refused("*", at(&beside, value.clone()), &format!("rules.{beside} is no rule of *"));
        // A dotted name is one unknown key, not a path.
        refused("*", json!({ path: value }), "is no rule of *");
    }
    refused(DECISION, at("voting.quorum.quorum", json!(1)), "rules.voting.quorum.quorum is no rule");
}

#[test]
fn std_pol_7_annotations_are_ignored_at_every_level() {
    let bare = json!({ "voting": { "quorum": { "value": 2 } } });
    let noted = json!({
        "_note": null, "$schema": "https://example.org", "voting": {
            "_": [], "$id": { "algorithm": "weighted" }, "quorum": { "value": 2, "_why": { "x-acme.rule": 1 } },
        },
    });
    assert_eq!(accepted(DECISION, noted), accepted(DECISION, bare));
}

/// Keys of the weights are participants, whatever they look like.
#[test]
fn std_pol_7_weights_are_an_open_map() {
    let rules = at("voting.weights", json!({ "_alice": 1, "$bob": 2, "x-acme.carol": 3 }));
    let weights = accepted(DECISION, rules).voting.weights.expect("given");
    assert_eq!(
        weights.into_iter().collect::<Vec<_>>(),
        [("$bob".into(), 2.0), ("_alice".into(), 1.0), ("x-acme.carol".into(), 3.0)]
    );
    refused(
        DECISION,
        at("voting.weights", json!({ "_alice": "one" })),
        "weights._alice must be a number, not a string",
    );
}

#[test]
fn std_pol_7_vendor_rules_are_never_ignored() {
    for key in ["x-acme.rule", "x-a1.b-2.c"] {
        refused(TASK, json!({ key: {} }), &format!("rules.{key} is a vendor extension"));
    }
    for key in ["x-acme", "x-", "x-.rule", "x-acme.", "x-Acme.rule", "x-a-b.rule", "x-acme..rule"] {
        refused(TASK, json!({ key: {} }), &format!("rules.{key} is no rule of"));
    }
    refused(TASK, at("completion", json!({ "x-acme.rule": {} })), "rules.completion.x-acme.rule is no rule of");
}

#[test]
fn std_pol_7_an_absurd_key_is_shown_short() {
    let error = read(TASK, &json!({ "é".repeat(500): 1 })).expect_err("unknown").to_string();
    assert!(error.contains(&"é".repeat(80)) && !error.contains(&"é".repeat(81)), "{error}");
}

/// Objects and words: a null is no way to say "the default".
#[test]
fn std_pol_6_shapes() {
    for path in ["voting", "voting.quorum", "voting.weights", "commitment", "acceptance", "threshold", "abstention"] {
        for value in [json!(null), json!(1), json!("x"), json!([]), json!(true)] {
            refused("*", at(path, value), &format!("rules.{path} must be an object, not"));
        }
    }
    for path in [
        "voting.algorithm",
        "voting.quorum.type",
        "objection_handling.critical_objection_action",
        "commitment.authority",
        "acceptance.criterion",
        "threshold.type",
        "abstention.interpretation",
    ] {
        for value in [json!(null), json!(1), json!({}), json!([]), json!(true)] {
            refused("*", at(path, value), &format!("rules.{path} must be a string, not"));
        }
        refused("*", at(path, json!("NONE")), &format!("rules.{path} must be "));
        refused("*", at(path, json!("")), &format!("rules.{path} must be "));
    }
}

#[test]
fn std_pol_6_types() {
    for path in [
        "objection_handling.critical_severity_vetoes",
        "evaluation.required_before_voting",
        "commitment.require_vote_quorum",
        "commitment.allow_decline_over_approval",
        "rejection.terminal_on_any_reject",
        "assignment.allow_reassignment_on_reject",
        "completion.require_output",
        "abstention.counts_toward_quorum",
    ] {
        for value in [json!(null), json!(1), json!("true")] {
            refused("*", at(path, value), &format!("rules.{path} must be true or false, not"));
        }
    }
    for path in ["voting.threshold", "voting.quorum.value", "evaluation.minimum_confidence"] {
        for value in [json!(null), json!("1"), json!(true)] {
            refused("*", at(path, value), &format!("rules.{path} must be a number, not"));
        }
    }
    for path in [
        "objection_handling.veto_threshold",
        "acceptance.implicit_accept_timeout_ms",
        "counter_proposal.max_rounds",
        "threshold.value",
    ] {
        for value in [json!(null), json!("1"), json!(1.5), json!(1e300), json!(u64::MAX)] {
            refused("*", at(path, value), &format!("rules.{path} must be an integer, not"));
        }
        assert_eq!(accepted("*", at(path, json!(2.0))), accepted("*", at(path, json!(2))), "{path}");
    }
    let roles = "commitment.designated_roles";
    refused("*", at(roles, json!("alice")), "must be an array of strings, not a string");
    refused("*", at(roles, json!(["alice", 1])), "designated_roles[1] must be a string, not a number");
}

#[test]
fn std_pol_6_domains() {
    let cases = [
        ("voting.threshold", vec![json!(0.001), json!(1)], vec![json!(0), json!(-0.5), json!(1.001)]),
        ("voting.quorum.value", vec![json!(0), json!(0.5), json!(1000)], vec![json!(-1), json!(-0.1)]),
        ("voting.weights", vec![json!({ "a": 0.1 })], vec![json!({}), json!({ "a": 1, "b": 0 }), json!({ "a": -1 })]),
        ("objection_handling.veto_threshold", vec![json!(1)], vec![json!(0), json!(-1)]),
        ("evaluation.minimum_confidence", vec![json!(0), json!(1)], vec![json!(-0.01), json!(1.01)]),
        ("acceptance.implicit_accept_timeout_ms", vec![json!(0)], vec![json!(-1)]),
        ("counter_proposal.max_rounds", vec![json!(0)], vec![json!(-1)]),
        ("threshold.value", vec![json!(1), json!(1_000_000)], vec![json!(0), json!(-1)]),
    ];
    for (path, good, bad) in cases {
        good.into_iter().for_each(|value| drop(accepted("*", at(path, value))));
        bad.into_iter().for_each(|value| refused("*", at(path, value), &format!("rules.{path} must be ")));
    }
    let voting = |algorithm: &str, threshold: f64| json!({ "algorithm": algorithm, "threshold": threshold });
    let vote = |algorithm: &str, threshold| read(DECISION, &at("voting", voting(algorithm, threshold))).is_ok();
    assert!(vote("majority", 0.5) && !vote("majority", 0.499));
    assert!(vote("supermajority", 0.501) && !vote("supermajority", 0.5));
    assert!(vote("plurality", 0.1) && vote("unanimous", 0.1) && vote("none", 0.1));
    refused(DECISION, at("voting.algorithm", json!("supermajority")), "given for a supermajority");
    refused(DECISION, at("voting.algorithm", json!("weighted")), "rules.voting.weights must be given");
    let percentage = |value: u64| at("threshold", json!({ "type": "percentage", "value": value }));
    assert!(read(QUORUM, &percentage(100)).is_ok());
    refused(QUORUM, percentage(101), "rules.threshold.value must be at most 100");
    refused(QUORUM, at("threshold.type", json!("weighted")), "rules.threshold.type must be n_of_m");
    let designated = |roles| at("commitment", json!({ "authority": "designated_role", "designated_roles": roles }));
    refused(TASK, designated(json!([])), "designated_roles must be given");
    refused(TASK, at("commitment.authority", json!("designated_role")), "designated_roles must be given");
    assert!(read(TASK, &designated(json!(["alice"]))).is_ok());
}

/// Rules of an extension mode are its own, except who may commit.
#[test]
fn std_pol_9_extension_modes() {
    for mode in ["ext.multi_round.v1", "ext.vendor.v1"] {
        let rules = json!({
            "colour": null, "voting": 5, "x-acme.rule": 1,
            "commitment": { "authority": "any_participant", "designated_roles": ["a"], "require_vote_quorum": "maybe" },
        });
        let expected = Commitment {
            authority: Authority::AnyParticipant,
            designated_roles: ["a".into()].into(),
            ..Commitment::default()
        };
        assert_eq!(accepted(mode, rules), Rules { commitment: expected, ..Rules::default() });
        assert_eq!(accepted(mode, json!({ "commitment": "mine" })), Rules::default());
        refused(mode, at("commitment.authority", json!("king")), "rules.commitment.authority must be initiator_only");
        refused(mode, at("commitment.authority", json!(null)), "rules.commitment.authority must be a string");
        refused(mode, at("commitment.designated_roles", json!([1])), "must be a string, not a number");
        refused(mode, at("commitment.authority", json!("designated_role")), "designated_roles must be given");
    }
}

#[test]
fn std_pol_10_rules_text() {
    assert_eq!(Policy::read(descriptor(DECISION, "")).expect("empty is {}").rules, Rules::default());
    for text in [" ", "{", "{}{}", "{} x", "null x", "{'a':1}", "{\"a\":NaN}", "{\"_\":1e999}", "\u{feff}{}"] {
        let error = validate(&descriptor(DECISION, text)).expect_err("unreadable");
        assert!(matches!(error, InvalidPolicy::RulesUnreadable { .. }), "{text:?}: {error}");
    }
    for (text, found) in
        [("null", "null"), ("[]", "an array"), ("\"{}\"", "a string"), ("1", "a number"), ("true", "true or false")]
    {
        let error = validate(&descriptor(DECISION, text)).expect_err("no object");
        assert_eq!(error, InvalidPolicy::RulesNotObject { found });
    }
}

/// Two readers of the same text must not see two policies.
#[test]
fn std_pol_10_repeated_keys() {
    for text in [
        r#"{"voting":{"algorithm":"none"},"voting":{"algorithm":"none"}}"#,
        r#"{"voting":{"algorithm":"none","algorithm":"majority"}}"#,
        r#"{"voting":{"weights":{"alice":1,"\u0061lice":2}}}"#,
        r#"{"_note":[{"a":{"b":1,"b":1}}]}"#,
    ] {
        let error = validate(&descriptor(DECISION, text)).expect_err("repeated").to_string();
        assert!(error.contains("a key is given twice"), "{error}");
    }
}

/// An assigned id takes its assigned definition, however it is spelled, and no other.
#[test]
fn std_pol_11_the_reserved_namespace() {
    for policy in &builtins()[1..] {
        assert_eq!(validate(&policy.descriptor).as_ref(), Ok(&**policy));
        let mut rules: Value = serde_json::from_str(&policy.descriptor.rules).expect("JSON");
        rules["_note"] = json!("spelled out");
        rules["evaluation"] = json!({ "minimum_confidence": 0 });
        rules["voting"]["quorum"]["_note"] = json!([]);
        let same = PolicyDescriptor {
            rules: rules.to_string(),
            description: "In other words.".into(),
            registered_at_unix_ms: 5,
            ..policy.descriptor.clone()
        };
        assert_eq!(validate(&same).expect("the same definition").rules, policy.rules);

        let others: [fn(&mut PolicyDescriptor); 5] = [
            |it| it.schema_version = 2,
            |it| it.mode = "*".into(),
            |it| it.rules = "{}".into(),
            |it| it.rules = it.rules.replace("true", "false"),
            |it| it.policy_id = "policy.std.mine".into(),
        ];
        for change in others {
            let mut other = policy.descriptor.clone();
            change(&mut other);
            let reserved = InvalidPolicy::Reserved { policy_id: other.policy_id.clone() };
            assert_eq!(validate(&other), Err(reserved));
        }
    }
    let beside = PolicyDescriptor { policy_id: "policy.standard".into(), ..descriptor(TASK, "{}") };
    assert!(validate(&beside).is_ok());
}

/// Versions 1 and 2 know the same keys as 3.
#[test]
fn std_pol_13_schema_versions_share_their_keys() {
    let rules = r#"{"objection_handling":{"critical_objection_action":"hold"},"commitment":{"allow_decline_over_approval":true}}"#;
    for schema_version in [1, 2, 3] {
        let descriptor = PolicyDescriptor { schema_version, ..descriptor(DECISION, rules) };
        assert_eq!(validate(&descriptor).expect("known").rules.objections.action, ObjectionAction::Hold);
    }
}
