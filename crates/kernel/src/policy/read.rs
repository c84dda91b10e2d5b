//! From a descriptor to typed rules: the checks of STD-POL-6 that concern what a policy says, not what it is called.
//!
//! ```text
//!  descriptor ──▶ Draft::parse   3 version, 4 an object, 5 closed keys, 6 shapes
//!             ──▶ Draft::rules   8 types, 9 domains, and every default filled in
//! ```
//!
//! Registration looks at reserved names between the two, so they are two.

use macp_wire::v1::PolicyDescriptor;
use serde_json::{Map, Value};
use smol_str::SmolStr;

use super::{
    Abstention, Algorithm, Authority, Commitment, Criterion, Evaluations, Interpretation, InvalidPolicy,
    ObjectionAction, Objections, Policy, RULES_BYTES_MAX, Rules, SCHEMA_VERSIONS, Threshold, VoteQuorum, Voting, json,
    keys,
};

impl Policy {
    /// Reads what a descriptor says, whatever its id: one out of a history, a candidate, or one to be registered.
    pub fn read(descriptor: PolicyDescriptor) -> Result<Policy, InvalidPolicy> {
        let rules = Draft::parse(&descriptor)?.rules()?;
        Ok(Policy { descriptor, rules })
    }
}

/// Rules whose keys and shapes are known to be good.
pub(super) struct Draft(Map<String, Value>);

impl Draft {
    pub(super) fn parse(descriptor: &PolicyDescriptor) -> Result<Draft, InvalidPolicy> {
        match descriptor.schema_version {
            0 => return Err(InvalidPolicy::SchemaVersionMissing),
            known if SCHEMA_VERSIONS.contains(&known) => {}
            found => return Err(InvalidPolicy::SchemaVersionUnknown { found }),
        }
        let mut rules = object(&descriptor.rules)?;
        match keys::Modes::of(&descriptor.mode) {
            Some(modes) => keys::check_closed(&rules, modes, &descriptor.mode)?,
            None => rules = known_of_extension(rules),
        }
        keys::check_shapes(&rules)?;
        Ok(Draft(rules))
    }

    pub(super) fn rules(&self) -> Result<Rules, InvalidPolicy> {
        keys::check_types(&self.0)?;
        Ok(Rules {
            voting: self.voting()?,
            objections: self.objections()?,
            evaluations: Evaluations {
                required_before_voting: self.flag("evaluation.required_before_voting"),
                minimum_confidence: self.number("evaluation.minimum_confidence", 0.0, "between 0 and 1", |number| {
                    (0.0..=1.0).contains(&number)
                })?,
            },
            commitment: self.commitment()?,
            criterion: self.word(
                "acceptance.criterion",
                "all_parties, counterparty or initiator",
                &[
                    ("all_parties", Criterion::AllParties),
                    ("counterparty", Criterion::Counterparty),
                    ("initiator", Criterion::Initiator),
                ],
            )?,
            counter_proposals_max: self.at_least("counter_proposal.max_rounds", 0)?.map_or(0, i64::unsigned_abs),
            terminal_on_any_reject: self.flag("rejection.terminal_on_any_reject"),
            allow_reassignment_on_reject: self.flag("assignment.allow_reassignment_on_reject"),
            require_output: self.flag("completion.require_output"),
            implicit_accept_timeout_ms: self.at_least("acceptance.implicit_accept_timeout_ms", 0)?.unwrap_or(0),
            threshold: self.threshold()?,
            abstention: Abstention {
                counts_toward_quorum: self.flag("abstention.counts_toward_quorum"),
                interpretation: self.word(
                    "abstention.interpretation",
                    "neutral, implicit_reject or ignored",
                    &[
                        ("neutral", Interpretation::Neutral),
                        ("implicit_reject", Interpretation::ImplicitReject),
                        ("ignored", Interpretation::Ignored),
                    ],
                )?,
            },
        })
    }

    fn voting(&self) -> Result<Voting, InvalidPolicy> {
        let algorithm = self.word(
            "voting.algorithm",
            "none, majority, supermajority, unanimous, weighted or plurality",
            &[
                ("none", Algorithm::None),
                ("majority", Algorithm::Majority),
                ("supermajority", Algorithm::Supermajority),
                ("unanimous", Algorithm::Unanimous),
                ("weighted", Algorithm::Weighted),
                ("plurality", Algorithm::Plurality),
            ],
        )?;
        let (demand, least): (_, fn(f64) -> bool) = match algorithm {
            Algorithm::Majority => ("at least 0.5 and at most 1 for a majority", |number| number >= 0.5),
            Algorithm::Supermajority => ("given for a supermajority, above 0.5 and at most 1", |number| number > 0.5),
            _ => ("above 0 and at most 1", |number| number > 0.0),
        };
        let threshold =
            self.number("voting.threshold", Voting::default().threshold, demand, |it| least(it) && it <= 1.0)?;
        let quorum = self.word(
            "voting.quorum.type",
            "count or percentage",
            &[("count", VoteQuorum::Count as fn(f64) -> VoteQuorum), ("percentage", VoteQuorum::Percentage)],
        )?;
        let voters = self.number("voting.quorum.value", 0.0, "0 or more", |number| number >= 0.0)?;
        Ok(Voting { algorithm, threshold, quorum: quorum(voters), weights: self.weights(algorithm)? })
    }

    fn weights(&self, algorithm: Algorithm) -> Result<Option<super::Weights>, InvalidPolicy> {
        let path = "voting.weights";
        let Some(weights) = keys::find(&self.0, path).and_then(Value::as_object) else {
            return match algorithm {
                Algorithm::Weighted => Err(InvalidPolicy::OutOfDomain { path, demand: "given for a weighted vote" }),
                _ => Ok(None),
            };
        };
        if weights.is_empty() {
            return Err(InvalidPolicy::OutOfDomain { path, demand: "left out, or name at least one participant" });
        }
        let weights: super::Weights =
            weights.iter().filter_map(|(name, weight)| Some((SmolStr::new(name), weight.as_f64()?))).collect();
        match weights.values().all(|weight| *weight > 0.0) {
            true => Ok(Some(weights)),
            false => Err(InvalidPolicy::OutOfDomain { path, demand: "above 0 for every participant in it" }),
        }
    }

    fn objections(&self) -> Result<Objections, InvalidPolicy> {
        Ok(Objections {
            critical_severity_vetoes: self.flag("objection_handling.critical_severity_vetoes"),
            veto_threshold: self.at_least("objection_handling.veto_threshold", 1)?.map_or(1, i64::unsigned_abs),
            action: self.word(
                "objection_handling.critical_objection_action",
                "deny, finalize_decline or hold",
                &[
                    ("deny", ObjectionAction::Deny),
                    ("finalize_decline", ObjectionAction::FinalizeDecline),
                    ("hold", ObjectionAction::Hold),
                ],
            )?,
        })
    }

    fn commitment(&self) -> Result<Commitment, InvalidPolicy> {
        let authority = self.word(
            "commitment.authority",
            "initiator_only, any_participant or designated_role",
            &[
                ("initiator_only", Authority::InitiatorOnly),
                ("any_participant", Authority::AnyParticipant),
                ("designated_role", Authority::DesignatedRole),
            ],
        )?;
        let path = "commitment.designated_roles";
        let roles = keys::find(&self.0, path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if authority == Authority::DesignatedRole && roles.is_empty() {
            return Err(InvalidPolicy::OutOfDomain { path, demand: "given when authority is designated_role" });
        }
        Ok(Commitment {
            authority,
            designated_roles: roles.iter().filter_map(Value::as_str).map(SmolStr::new).collect(),
            require_vote_quorum: self.flag("commitment.require_vote_quorum"),
            allow_decline_over_approval: self.flag("commitment.allow_decline_over_approval"),
        })
    }

    fn threshold(&self) -> Result<Option<Threshold>, InvalidPolicy> {
        let threshold = self.word(
            "threshold.type",
            "n_of_m (also written count) or percentage",
            &[
                ("n_of_m", Threshold::Count as fn(u64) -> Threshold),
                ("count", Threshold::Count),
                ("percentage", Threshold::Percentage),
            ],
        )?;
        let path = "threshold.value";
        match self.at_least(path, 1)?.map(|value| threshold(value.unsigned_abs())) {
            Some(Threshold::Percentage(101..)) => {
                Err(InvalidPolicy::OutOfDomain { path, demand: "at most 100 for a percentage" })
            }
            threshold => Ok(threshold),
        }
    }

    fn flag(&self, path: &str) -> bool {
        keys::find(&self.0, path).and_then(Value::as_bool).unwrap_or_default()
    }

    fn number(
        &self,
        path: &'static str,
        default: f64,
        demand: &'static str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<f64, InvalidPolicy> {
        let number = keys::find(&self.0, path).and_then(Value::as_f64).unwrap_or(default);
        if allowed(number) { Ok(number) } else { Err(InvalidPolicy::OutOfDomain { path, demand }) }
    }

    /// A whole number that is at least 0 or at least 1.
    fn at_least(&self, path: &'static str, least: i64) -> Result<Option<i64>, InvalidPolicy> {
        let number = keys::find(&self.0, path).and_then(keys::integer);
        if number.is_some_and(|number| number < least) {
            let demand = if least == 0 { "0 or more" } else { "1 or more" };
            return Err(InvalidPolicy::OutOfDomain { path, demand });
        }
        Ok(number)
    }

    /// The value a word stands for; the first one listed is the default.
    fn word<T: Copy>(&self, path: &'static str, demand: &'static str, words: &[(&str, T)]) -> Result<T, InvalidPolicy> {
        let Some(word) = keys::find(&self.0, path).and_then(Value::as_str) else { return Ok(words[0].1) };
        words
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, value)| *value)
            .ok_or(InvalidPolicy::OutOfDomain { path, demand })
    }
}

fn object(text: &str) -> Result<Map<String, Value>, InvalidPolicy> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    if text.len() > RULES_BYTES_MAX {
        return Err(InvalidPolicy::RulesTooLong { bytes: text.len() });
    }
    match json::parse(text) {
        Ok(Value::Object(rules)) => Ok(rules),
        Ok(other) => Err(InvalidPolicy::RulesNotObject { found: json::kind(&other) }),
        Err(error) => Err(InvalidPolicy::RulesUnreadable { cause: error.to_string() }),
    }
}

/// Rules of an extension mode belong to that mode, except who may commit, which is said the same way everywhere.
fn known_of_extension(mut rules: Map<String, Value>) -> Map<String, Value> {
    let mut known = Map::new();
    if let Some(Value::Object(mut commitment)) = rules.remove("commitment") {
        commitment.retain(|key, _| key == "authority" || key == "designated_roles");
        known.insert("commitment".into(), Value::Object(commitment));
    }
    known
}
