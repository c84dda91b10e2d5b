//! What holds for any rules: nothing makes the reader panic, and what is accepted means one thing.

use macp_kernel::policy::{
    Abstention, Algorithm, Authority, Commitment, Criterion, Evaluations, Interpretation, ObjectionAction, Objections,
    Policy, Rules, Threshold, VoteQuorum, Voting, validate,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use crate::policy::descriptor;

/// The default looks for a `lib.rs` to put seeds beside, and a test has none.
fn config() -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(beside)), ..ProptestConfig::default() }
}

fn mode() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "*",
        "macp.mode.decision.v1",
        "macp.mode.proposal.v1",
        "macp.mode.task.v1",
        "macp.mode.handoff.v1",
        "macp.mode.quorum.v1",
        "ext.multi_round.v1",
    ])
}

/// Keys the reader knows, so that noise gets further than the closed keys.
fn key() -> impl Strategy<Value = String> {
    let known = "voting algorithm threshold quorum type value weights objection_handling veto_threshold \
                 critical_objection_action evaluation minimum_confidence required_before_voting commitment authority \
                 designated_roles acceptance criterion implicit_accept_timeout_ms counter_proposal max_rounds _ $";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    prop_oneof![8 => prop::sample::select(known), 1 => ".{0,4}"]
}

fn value() -> impl Strategy<Value = Value> {
    let words = ["none", "majority", "weighted", "count", "percentage", "hold", "designated_role", "initiator", ""];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..120).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..3).prop_map(Value::from),
            4 => btree_map(key(), inner, 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn names() -> impl Strategy<Value = SmolStr> {
    "[_$a-c./]{1,6}".prop_map(SmolStr::from)
}

fn voting() -> impl Strategy<Value = Voting> {
    let algorithm = prop::sample::select(vec![
        Algorithm::None,
        Algorithm::Majority,
        Algorithm::Supermajority,
        Algorithm::Unanimous,
        Algorithm::Weighted,
        Algorithm::Plurality,
    ]);
    let quorum = (0.0..1e6)
        .prop_flat_map(|value| prop::sample::select(vec![VoteQuorum::Count(value), VoteQuorum::Percentage(value)]));
    let weights = btree_map(names(), prop_oneof![1e-300..1e300, 0.1..10.0], 1..4);
    (algorithm, 0.501..=1.0, quorum, weights, any::<bool>()).prop_map(
        |(algorithm, threshold, quorum, weights, given)| {
            let weights = (given || algorithm == Algorithm::Weighted).then_some(weights);
            Voting { algorithm, threshold, quorum, weights }
        },
    )
}

fn commitment() -> impl Strategy<Value = Commitment> {
    let authority = vec![Authority::InitiatorOnly, Authority::AnyParticipant, Authority::DesignatedRole];
    (prop::sample::select(authority), btree_set(names(), 1..4), any::<bool>(), any::<bool>()).prop_map(
        |(authority, designated_roles, require_vote_quorum, allow_decline_over_approval)| Commitment {
            authority,
            designated_roles,
            require_vote_quorum,
            allow_decline_over_approval,
        },
    )
}

fn rules() -> impl Strategy<Value = Rules> {
    let actions = vec![ObjectionAction::Deny, ObjectionAction::FinalizeDecline, ObjectionAction::Hold];
    let objections = (any::<bool>(), 1..=i64::MAX as u64, prop::sample::select(actions)).prop_map(
        |(critical_severity_vetoes, veto_threshold, action)| Objections {
            critical_severity_vetoes,
            veto_threshold,
            action,
        },
    );
    let evaluations = (any::<bool>(), 0.0..=1.0).prop_map(|(required_before_voting, minimum_confidence)| Evaluations {
        required_before_voting,
        minimum_confidence,
    });
    let criteria = vec![Criterion::AllParties, Criterion::Counterparty, Criterion::Initiator];
    let threshold = prop::option::of(prop_oneof![
        (1..=i64::MAX as u64).prop_map(Threshold::Count),
        (1..=100_u64).prop_map(Threshold::Percentage)
    ]);
    let interpretations = vec![Interpretation::Neutral, Interpretation::ImplicitReject, Interpretation::Ignored];
    let others = (
        prop::sample::select(criteria),
        0..=i64::MAX,
        0..=i64::MAX,
        threshold,
        prop::sample::select(interpretations),
        any::<[bool; 4]>(),
    );
    (voting(), objections, evaluations, commitment(), others).prop_map(
        |(
            voting,
            objections,
            evaluations,
            commitment,
            (criterion, counters, timeout, threshold, interpretation, flags),
        )| {
            Rules {
                voting,
                objections,
                evaluations,
                commitment,
                criterion,
                counter_proposals_max: counters.unsigned_abs(),
                terminal_on_any_reject: flags[0],
                allow_reassignment_on_reject: flags[1],
                require_output: flags[2],
                implicit_accept_timeout_ms: timeout,
                threshold,
                abstention: Abstention { counts_toward_quorum: flags[3], interpretation },
            }
        },
    )
}

/// The rules as somebody would write them who leaves nothing out.
fn written(rules: &Rules) -> Value {
    let (quorum_type, quorum_value) = match rules.voting.quorum {
        VoteQuorum::Count(value) => ("count", value),
        VoteQuorum::Percentage(value) => ("percentage", value),
    };
    let mut text = json!({
        "voting": {
            "algorithm": format!("{:?}", rules.voting.algorithm).to_lowercase(), "threshold": rules.voting.threshold,
            "quorum": { "type": quorum_type, "value": quorum_value },
        },
        "objection_handling": {
            "critical_severity_vetoes": rules.objections.critical_severity_vetoes,
            "veto_threshold": rules.objections.veto_threshold,
            "critical_objection_action": match rules.objections.action {
                ObjectionAction::Deny => "deny",
                ObjectionAction::FinalizeDecline => "finalize_decline",
                ObjectionAction::Hold => "hold",
            },
        },
        "evaluation": {
            "required_before_voting": rules.evaluations.required_before_voting,
            "minimum_confidence": rules.evaluations.minimum_confidence,
        },
        "commitment": {
            "authority": match rules.commitment.authority {
                Authority::InitiatorOnly => "initiator_only",
                Authority::AnyParticipant => "any_participant",
                Authority::DesignatedRole => "designated_role",
            },
            "designated_roles": rules.commitment.designated_roles,
            "require_vote_quorum": rules.commitment.require_vote_quorum,
            "allow_decline_over_approval": rules.commitment.allow_decline_over_approval,
        },
        "acceptance": {
            "criterion": match rules.criterion {
                Criterion::AllParties => "all_parties",
                Criterion::Counterparty => "counterparty",
                Criterion::Initiator => "initiator",
            },
            "implicit_accept_timeout_ms": rules.implicit_accept_timeout_ms,
        },
        "counter_proposal": { "max_rounds": rules.counter_proposals_max },
        "rejection": { "terminal_on_any_reject": rules.terminal_on_any_reject },
        "assignment": { "allow_reassignment_on_reject": rules.allow_reassignment_on_reject },
        "completion": { "require_output": rules.require_output },
        "abstention": {
            "counts_toward_quorum": rules.abstention.counts_toward_quorum,
            "interpretation": match rules.abstention.interpretation {
                Interpretation::Neutral => "neutral",
                Interpretation::ImplicitReject => "implicit_reject",
                Interpretation::Ignored => "ignored",
            },
        },
    });
    if let Some(weights) = &rules.voting.weights {
        text["voting"]["weights"] = json!(weights);
    }
    text["threshold"] = match rules.threshold {
        None => json!({}),
        Some(Threshold::Count(value)) => json!({ "type": "n_of_m", "value": value }),
        Some(Threshold::Percentage(value)) => json!({ "type": "percentage", "value": value }),
    };
    text
}

/// Adds notes to every closed object. Weights are open: a note there would be a participant.
fn annotate(object: &mut Map<String, Value>, notes: &[(String, Value)]) {
    for (key, value) in object.iter_mut() {
        if let (true, Value::Object(inner)) = (key != "weights" && !key.starts_with(['_', '$']), value) {
            annotate(inner, notes);
        }
    }
    object.extend(notes.iter().cloned());
}

fn notes() -> impl Strategy<Value = Vec<(String, Value)>> {
    vec(("[_$][a-z.-]{0,5}", value()), 1..3)
}

proptest! {
    #![proptest_config(config())]

    /// Whatever is accepted is accepted again, as the same policy.
    #[test]
    fn std_pol_6_no_text_makes_the_reader_panic(mode in mode(), text in "[{}\\[\\]\",:a-z0-9_$.eE+\\- \\\\u]{0,60}", version in 0_u32..5) {
        let mut descriptor = descriptor(mode, &text);
        descriptor.schema_version = version;
        if let Ok(policy) = Policy::read(descriptor) {
            prop_assert_eq!(Policy::read(policy.descriptor.clone()), Ok(policy));
        }
    }

    #[test]
    fn std_pol_6_no_rules_make_the_reader_panic(mode in mode(), rules in value()) {
        let descriptor = descriptor(mode, &rules.to_string());
        if let Ok(policy) = validate(&descriptor) {
            prop_assert_eq!(Policy::read(descriptor), Ok(policy));
        }
    }

    #[test]
    fn std_pol_2_rules_read_back_as_they_were_written(rules in rules()) {
        let policy = Policy::read(descriptor("*", &written(&rules).to_string()));
        prop_assert_eq!(policy.map(|policy| policy.rules), Ok(rules));
    }

    #[test]
    fn std_pol_7_annotations_change_nothing(rules in rules(), notes in notes()) {
        let mut text = written(&rules);
        annotate(text.as_object_mut().expect("an object"), &notes);
        let policy = Policy::read(descriptor("*", &text.to_string()));
        prop_assert_eq!(policy.map(|policy| policy.rules), Ok(rules));
    }

    /// STD-POL-7 for rules that need not be good: a note never makes them better or worse.
    #[test]
    fn std_pol_7_annotations_never_change_the_verdict(mode in mode(), rules in value(), notes in notes()) {
        let mut noted = rules.clone();
        if let Value::Object(object) = &mut noted {
            object.retain(|key, _| !key.starts_with(['_', '$']));
            object.extend(notes);
        }
        let read = |rules: &Value| Policy::read(descriptor(mode, &rules.to_string())).map(|policy| policy.rules);
        prop_assert_eq!(read(&rules), read(&noted));
    }
}
