//! Any bytes as a valid policy for a mode, with every rule of it drawn.

use std::sync::Arc;

use macp_kernel::policy::{Policy, builtins, validate};
use macp_wire::v1::PolicyDescriptor;
use serde_json::{Map, Value, json};

use super::reader::Reader;

/// What governs a session: nothing, a built-in policy, or a registered one.
pub fn policy(mode: &str, id: &str, reader: &mut Reader<'_>) -> Arc<Policy> {
    let covering: Vec<&Arc<Policy>> = builtins().iter().filter(|policy| policy.covers(mode)).collect();
    match reader.byte() % 4 {
        0 => Arc::clone(covering[0]),
        1 => Arc::clone(reader.pick(&covering)),
        _ => Arc::new(registered(mode, id, reader)),
    }
}

/// A policy of the reader's own.
pub fn registered(mode: &str, id: &str, reader: &mut Reader<'_>) -> Policy {
    let general = reader.one_in(4);
    let descriptor = PolicyDescriptor {
        policy_id: id.to_owned(),
        mode: if general { "*".to_owned() } else { mode.to_owned() },
        description: "drawn".into(),
        rules: rules(mode, reader).to_string(),
        schema_version: reader.pick(&[1, 2, 3]),
        registered_at_unix_ms: 0,
    };
    validate(&descriptor).unwrap_or_else(|error| panic!("{error}: {descriptor:?}"))
}

fn rules(mode: &str, reader: &mut Reader<'_>) -> Value {
    let mut rules = Map::new();
    let authority = reader.pick(&["initiator_only", "any_participant", "designated_role"]);
    let mut commitment =
        json!({ "authority": authority, "designated_roles": reader.pick(&[&["bob"][..], &["carol", "alice"]]) });
    match mode {
        "macp.mode.decision.v1" => {
            commitment["require_vote_quorum"] = reader.flag().into();
            commitment["allow_decline_over_approval"] = reader.flag().into();
            rules.insert("voting".into(), voting(reader));
            rules.insert(
                "objection_handling".into(),
                json!({
                    "critical_severity_vetoes": reader.flag(),
                    "veto_threshold": reader.pick(&[1, 2]),
                    "critical_objection_action": reader.pick(&["deny", "finalize_decline", "hold"]),
                }),
            );
            rules.insert(
                "evaluation".into(),
                json!({
                    "required_before_voting": reader.flag(),
                    "minimum_confidence": reader.pick(&[0.0, 0.5, 1.0]),
                }),
            );
        }
        "macp.mode.proposal.v1" => {
            let criterion = reader.pick(&["all_parties", "counterparty", "initiator"]);
            rules.insert("acceptance".into(), json!({ "criterion": criterion }));
            rules.insert("counter_proposal".into(), json!({ "max_rounds": reader.pick(&[0, 1, 2]) }));
            rules.insert("rejection".into(), json!({ "terminal_on_any_reject": reader.flag() }));
        }
        "macp.mode.task.v1" => {
            rules.insert("assignment".into(), json!({ "allow_reassignment_on_reject": reader.flag() }));
            rules.insert("completion".into(), json!({ "require_output": reader.flag() }));
        }
        "macp.mode.handoff.v1" => {
            let timeout_ms = reader.pick(&[1_i64, 60, 0, 400, 30_000, i64::MAX]);
            rules.insert("acceptance".into(), json!({ "implicit_accept_timeout_ms": timeout_ms }));
        }
        "macp.mode.quorum.v1" => {
            let threshold = match reader.byte() % 3 {
                0 => json!({}),
                1 => json!({ "type": "n_of_m", "value": reader.pick(&[1, 2, 9]) }),
                _ => json!({ "type": "percentage", "value": reader.pick(&[1, 50, 67, 100]) }),
            };
            rules.insert("threshold".into(), threshold);
            let interpretation = reader.pick(&["neutral", "implicit_reject", "ignored"]);
            let abstention = json!({ "counts_toward_quorum": reader.flag(), "interpretation": interpretation });
            rules.insert("abstention".into(), abstention);
        }
        _ => {}
    }
    rules.insert("commitment".into(), commitment);
    Value::Object(rules)
}

fn voting(reader: &mut Reader<'_>) -> Value {
    let algorithm = reader.pick(&["none", "majority", "supermajority", "unanimous", "weighted", "plurality"]);
    let mut voting = json!({
        "algorithm": algorithm,
        "threshold": reader.pick(&[0.51, 2.0 / 3.0, 1.0]),
        "quorum": { "type": reader.pick(&["count", "percentage"]), "value": reader.pick(&[0, 1, 2, 60]) },
    });
    if algorithm == "weighted" {
        voting["weights"] = json!({ "alice": reader.pick(&[1.0, 2.5]), "bob": 1, "dave": 3 });
    }
    voting
}
