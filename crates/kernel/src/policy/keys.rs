//! Which rules exist, where they stand and what kind of value each takes: one row per rule, checked from outside in.

use serde_json::{Map, Value};

use super::{InvalidPolicy, json};
use crate::mode;

/// What kind of value a rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Holds rules of its own and nothing else.
    Object,
    /// One of a few words.
    Word,
    Flag,
    Number,
    Integer,
    Words,
    /// An open object: its keys are participants, whatever they look like.
    Weights,
}

/// A set of the standard modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes(u8);

impl Modes {
    const DECISION: Modes = Modes(1);
    const PROPOSAL: Modes = Modes(2);
    const TASK: Modes = Modes(4);
    const HANDOFF: Modes = Modes(8);
    const QUORUM: Modes = Modes(16);
    const PROPOSAL_AND_HANDOFF: Modes = Modes(2 | 8);
    const ALL: Modes = Modes(31);

    /// The modes a descriptor speaks of. An extension mode is in no set: nobody here knows its rules.
    pub(super) fn of(name: &str) -> Option<Modes> {
        if name == "*" {
            return Some(Modes::ALL);
        }
        match mode::find_standard(name)? {
            mode::Kind::Decision => Some(Modes::DECISION),
            mode::Kind::Proposal => Some(Modes::PROPOSAL),
            mode::Kind::Task => Some(Modes::TASK),
            mode::Kind::Handoff => Some(Modes::HANDOFF),
            mode::Kind::Quorum => Some(Modes::QUORUM),
            _ => None,
        }
    }

    fn meets(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }
}

struct Key {
    path: &'static str,
    kind: Kind,
    modes: Modes,
}

const fn key(path: &'static str, kind: Kind, modes: Modes) -> Key {
    Key { path, kind, modes }
}

const KEYS: &[Key] = &[
    key("voting", Kind::Object, Modes::DECISION),
    key("voting.algorithm", Kind::Word, Modes::DECISION),
    key("voting.threshold", Kind::Number, Modes::DECISION),
    key("voting.quorum", Kind::Object, Modes::DECISION),
    key("voting.quorum.type", Kind::Word, Modes::DECISION),
    key("voting.quorum.value", Kind::Number, Modes::DECISION),
    key("voting.weights", Kind::Weights, Modes::DECISION),
    key("objection_handling", Kind::Object, Modes::DECISION),
    key("objection_handling.critical_severity_vetoes", Kind::Flag, Modes::DECISION),
    key("objection_handling.veto_threshold", Kind::Integer, Modes::DECISION),
    key("objection_handling.critical_objection_action", Kind::Word, Modes::DECISION),
    key("evaluation", Kind::Object, Modes::DECISION),
    key("evaluation.required_before_voting", Kind::Flag, Modes::DECISION),
    key("evaluation.minimum_confidence", Kind::Number, Modes::DECISION),
    key("commitment", Kind::Object, Modes::ALL),
    key("commitment.authority", Kind::Word, Modes::ALL),
    key("commitment.designated_roles", Kind::Words, Modes::ALL),
    key("commitment.require_vote_quorum", Kind::Flag, Modes::DECISION),
    key("commitment.allow_decline_over_approval", Kind::Flag, Modes::DECISION),
    key("acceptance", Kind::Object, Modes::PROPOSAL_AND_HANDOFF),
    key("acceptance.criterion", Kind::Word, Modes::PROPOSAL),
    key("acceptance.implicit_accept_timeout_ms", Kind::Integer, Modes::HANDOFF),
    key("counter_proposal", Kind::Object, Modes::PROPOSAL),
    key("counter_proposal.max_rounds", Kind::Integer, Modes::PROPOSAL),
    key("rejection", Kind::Object, Modes::PROPOSAL),
    key("rejection.terminal_on_any_reject", Kind::Flag, Modes::PROPOSAL),
    key("assignment", Kind::Object, Modes::TASK),
    key("assignment.allow_reassignment_on_reject", Kind::Flag, Modes::TASK),
    key("completion", Kind::Object, Modes::TASK),
    key("completion.require_output", Kind::Flag, Modes::TASK),
    key("threshold", Kind::Object, Modes::QUORUM),
    key("threshold.type", Kind::Word, Modes::QUORUM),
    key("threshold.value", Kind::Integer, Modes::QUORUM),
    key("abstention", Kind::Object, Modes::QUORUM),
    key("abstention.counts_toward_quorum", Kind::Flag, Modes::QUORUM),
    key("abstention.interpretation", Kind::Word, Modes::QUORUM),
];

/// Every key is one that stands where it does, or a note (STD-POL-7, STD-POL-8).
pub(super) fn check_closed(rules: &Map<String, Value>, modes: Modes, mode_name: &str) -> Result<(), InvalidPolicy> {
    check_level(rules, "", modes).map_err(|path| match vendor(&path) {
        true => InvalidPolicy::VendorKey { key: shown(&path) },
        false => InvalidPolicy::UnknownKey { path: shown(&path), mode: shown(mode_name) },
    })
}

/// Err is the path of the first unknown key.
fn check_level(object: &Map<String, Value>, prefix: &str, modes: Modes) -> Result<(), String> {
    for (name, value) in object {
        if name.starts_with(['_', '$']) {
            continue;
        }
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        // A name with a dot in it must not pass for a path.
        let known = KEYS.iter().find(|key| key.path == path && key.modes.meets(modes) && !name.contains('.'));
        let Some(known) = known else { return Err(path) };
        if let (Kind::Object, Value::Object(inner)) = (known.kind, value) {
            check_level(inner, &path, modes)?;
        }
    }
    Ok(())
}

/// Whether a key has the form `x-vendor.name` vendors extend the rules by.
fn vendor(key: &str) -> bool {
    let mut parts = key.strip_prefix("x-").unwrap_or_default().split('.');
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(lower));
    let mut rest = parts.peekable();
    first && rest.peek().is_some() && rest.all(|part| !part.is_empty() && part.bytes().all(|b| lower(b) || b == b'-'))
}

/// Objects stand where objects belong and words where one of a few words does, so that a null is no default.
pub(super) fn check_shapes(rules: &Map<String, Value>) -> Result<(), InvalidPolicy> {
    check_kinds(rules, |kind| matches!(kind, Kind::Object | Kind::Word))
}

/// Every other value has its type.
pub(super) fn check_types(rules: &Map<String, Value>) -> Result<(), InvalidPolicy> {
    check_kinds(rules, |kind| !matches!(kind, Kind::Object | Kind::Word))
}

fn check_kinds(rules: &Map<String, Value>, asked: impl Fn(Kind) -> bool) -> Result<(), InvalidPolicy> {
    for key in KEYS.iter().filter(|key| asked(key.kind)) {
        if let Some(value) = find(rules, key.path) {
            check_kind(key.path, key.kind, value)?;
        }
    }
    Ok(())
}

fn check_kind(path: &str, kind: Kind, value: &Value) -> Result<(), InvalidPolicy> {
    let wrong = |path: &str, expected, value: &Value| {
        Err(InvalidPolicy::WrongType { path: shown(path), expected, found: json::kind(value) })
    };
    match kind {
        Kind::Object if !value.is_object() => wrong(path, "an object", value),
        Kind::Word if !value.is_string() => wrong(path, "a string", value),
        Kind::Flag if !value.is_boolean() => wrong(path, "true or false", value),
        Kind::Number if !value.is_number() => wrong(path, "a number", value),
        Kind::Integer if !value.is_number() => wrong(path, "an integer", value),
        Kind::Integer if integer(value).is_none() => Err(InvalidPolicy::WrongType {
            path: shown(path),
            expected: "an integer",
            found: "a fraction or a number out of range",
        }),
        Kind::Words => match value.as_array() {
            None => wrong(path, "an array of strings", value),
            Some(list) => match list.iter().enumerate().find(|(_, element)| !element.is_string()) {
                Some((at, element)) => wrong(&format!("{path}[{at}]"), "a string", element),
                None => Ok(()),
            },
        },
        Kind::Weights => match value.as_object() {
            None => wrong(path, "an object", value),
            Some(weights) => match weights.iter().find(|(_, weight)| !weight.is_number()) {
                Some((name, weight)) => wrong(&format!("{path}.{name}"), "a number", weight),
                None => Ok(()),
            },
        },
        _ => Ok(()),
    }
}

/// A whole number; `2.0` is one, as far as binary64 tells whole numbers apart.
pub(super) fn integer(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
    })
}

/// The value at a path, where every step before the last is an object.
pub(super) fn find<'a>(rules: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => rules.get(path),
        Some((first, rest)) => find(rules.get(first)?.as_object()?, rest),
    }
}

/// What a sentence shows of a key: all of it, unless it is no word but a text.
fn shown(key: &str) -> String {
    const SHOWN_MAX: usize = 80;
    match key.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &key[..at]),
        None => key.to_owned(),
    }
}
