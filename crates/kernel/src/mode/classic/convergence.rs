//! When a multi-round session has converged: the strategies a SessionStart can choose in its context.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{Rejection, Roster};

/// Decides from the holders of one value whether the session has converged on it. Only the value that was just
/// contributed can have gained holders, so nothing else needs a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    kind: Kind,
    /// What the holders of one value must weigh together.
    needed: u64,
    /// Weight per participant, in the order of the roster; all one unless the strategy is `weighted`.
    weights: Option<Box<[u64]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Kind {
    AllEqual,
    Majority,
    Threshold,
    Weighted,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::AllEqual, Kind::Majority, Kind::Threshold, Kind::Weighted];

    fn name(self) -> &'static str {
        match self {
            Kind::AllEqual => "all_equal",
            Kind::Majority => "majority",
            Kind::Threshold => "threshold",
            Kind::Weighted => "weighted",
        }
    }
}

/// By way of a string, because a derived reader would also take a variant spelled as an object.
impl TryFrom<String> for Kind {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or("there is no such strategy")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    strategy: Kind,
    #[serde(default, deserialize_with = "given")]
    threshold: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    weights: Option<BTreeMap<String, u64>>,
}

/// A member that is there has a value: null is not the same as leaving it out.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Strategy {
    /// Reads the choice out of a context. A context that is no JSON object, or has no `convergence`, chooses nothing.
    pub fn from_context(roster: &Roster, context: &[u8]) -> Result<Strategy, Rejection> {
        match serde_json::from_slice::<serde_json::Value>(context) {
            Ok(serde_json::Value::Object(mut members)) => match members.remove("convergence") {
                Some(choice) => Strategy::chosen(roster, choice),
                None => Ok(Strategy::all_equal(roster)),
            },
            Ok(_) | Err(_) => Ok(Strategy::all_equal(roster)),
        }
    }

    fn all_equal(roster: &Roster) -> Strategy {
        Strategy { kind: Kind::AllEqual, needed: roster.len() as u64, weights: None }
    }

    fn chosen(roster: &Roster, choice: serde_json::Value) -> Result<Strategy, Rejection> {
        // A derived reader would also take the members as an array.
        if !choice.is_object() {
            return Err(Rejection::invalid("convergence in the context is no object"));
        }
        let choice: Choice = serde_json::from_value(choice)
            .map_err(|error| Rejection::invalid(format!("convergence in the context: {error}")))?;
        let participants = roster.len() as u64;
        if choice.kind_takes_no_threshold() && choice.threshold.is_some() {
            return Err(Rejection::invalid("convergence: only `threshold` and `weighted` take a threshold"));
        }
        if choice.strategy != Kind::Weighted && choice.weights.is_some() {
            return Err(Rejection::invalid("convergence: only `weighted` takes weights"));
        }
        let kind = choice.strategy;
        match kind {
            Kind::AllEqual => Ok(Strategy::all_equal(roster)),
            Kind::Majority => Ok(Strategy { kind, needed: participants / 2 + 1, weights: None }),
            Kind::Threshold => {
                let needed =
                    choice.threshold.ok_or_else(|| Rejection::invalid("convergence: `threshold` needs a threshold"))?;
                check_threshold(needed, participants)?;
                Ok(Strategy { kind, needed, weights: None })
            }
            Kind::Weighted => Strategy::weighted(roster, choice),
        }
    }

    fn weighted(roster: &Roster, choice: Choice) -> Result<Strategy, Rejection> {
        let mut weights = vec![1; roster.len()].into_boxed_slice();
        for (name, weight) in choice.weights.unwrap_or_default() {
            let at = roster.index_of(&name).ok_or_else(|| {
                Rejection::invalid(format!("convergence: a weight for {name:?}, who is no participant"))
            })?;
            weights[at] = weight;
        }
        let total = weights
            .iter()
            .try_fold(0_u64, |total, weight| total.checked_add(*weight))
            .ok_or_else(|| Rejection::invalid("convergence: the weights add up to too much"))?;
        if total == 0 {
            return Err(Rejection::invalid("convergence: the weights add up to nothing"));
        }
        let needed = match choice.threshold {
            Some(threshold) => {
                check_threshold(threshold, total)?;
                threshold
            }
            None => total / 2 + 1,
        };
        Ok(Strategy { kind: Kind::Weighted, needed, weights: Some(weights) })
    }

    /// What one participant adds to the value it holds.
    pub(super) fn weight(&self, participant: usize) -> u64 {
        self.weights.as_ref().map_or(1, |weights| weights[participant])
    }

    /// Whether holders of this weight are enough.
    pub(super) fn is_met(&self, held: u64) -> bool {
        held >= self.needed
    }

    pub fn name(&self) -> &'static str {
        self.kind.name()
    }
}

impl Choice {
    fn kind_takes_no_threshold(&self) -> bool {
        matches!(self.strategy, Kind::AllEqual | Kind::Majority)
    }
}

fn check_threshold(threshold: u64, most: u64) -> Result<(), Rejection> {
    if threshold == 0 || threshold > most {
        return Err(Rejection::invalid(format!("convergence: a threshold of {threshold} is outside 1..={most}")));
    }
    Ok(())
}
