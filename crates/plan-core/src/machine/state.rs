//! What a machine remembers between entries.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::outputs::Size;
use super::prepare::Prepared;
use crate::budget::Breach;
use crate::cause::Cause;
use crate::cost::Usage;
use crate::digest::Digest;
use crate::journal::{RefusedCheck, Reused, RunFinished, RunStatus, StepFinished, Stop};
use crate::limits;
use crate::plan::StepStatus;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub phase: Phase,
    /// The step that is next or under way.
    pub current: Option<Current>,
    /// The step that is next and waits for the outputs that it is prepared from.
    pub unprepared: Option<usize>,
    pub results: Vec<StepFinished>,
    /// How finished steps look to conditions, by step id.
    pub seen: BTreeMap<String, Seen>,
    /// Outputs of finished steps that are still to be read, by the name references use.
    pub outputs: BTreeMap<String, Held>,
    /// How much of them is known, about in bytes of memory, wherever it is.
    pub held_bytes: usize,
    /// How much of that is here.
    pub here_bytes: usize,
    /// How many steps that refer to a name have not finished; names without any are not here.
    pub unread: BTreeMap<String, usize>,
    pub spent: u64,
    /// That the threshold was reached has been told.
    pub threshold_told: bool,
    /// An alert is decided before anything else.
    pub alert_due: Option<Alert>,
    /// Why the run ends early.
    pub stop: Option<(Stop, RunStatus)>,
    pub finished: Option<RunFinished>,
}

/// What people are to be told about the budget.
#[derive(Clone, Debug)]
pub(super) enum Alert {
    Threshold,
    Refused(RefusedCheck),
}

/// Where in the order of entries the machine is: what is due next.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Start,
    Admission,
    StepStart,
    Budget,
    Schedule,
    Limiter,
    Dedupe,
    Intent,
    Dispatch,
    Judge,
    StepEnd(Ending),
    RunEnd,
    Finished,
}

/// Why a step ends.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Condition,
    Refused {
        cause: Cause,
        details: Map<String, Value>,
    },
    /// The last attempt stands, whatever it was.
    Attempt,
    Budget {
        breach: Option<Breach>,
        required: u64,
        remaining: i64,
        ceiling: Option<u64>,
    },
    Duplicate {
        reused_run_id: Option<String>,
        reused: Option<Reused>,
    },
    Conflict {
        effect_key: String,
    },
    Cancelled {
        by: String,
        reason: String,
    },
    Deadline {
        limit_ms: u64,
    },
    InDoubt,
}

#[derive(Clone, Debug)]
pub(super) struct Current {
    pub prepared: Prepared,
    /// The attempt that is under way or next.
    pub attempt: u32,
    /// Codes of the attempts made.
    pub codes: Vec<String>,
    pub cost: u64,
    /// Type and target of the effects of all attempts so far.
    pub effects: Vec<(String, String)>,
    /// Effects of this attempt whose intent is written.
    pub intents: usize,
    /// The effect key is ours; retries do not claim it again.
    pub claimed: bool,
    pub wait_ms: u64,
    /// The last thing that happened to an attempt.
    pub happened: Option<Happened>,
    pub output: Option<Held>,
    /// Some call of the step may have had an effect that does harm if repeated: nothing proves that none had.
    pub may_have_acted: bool,
}

/// What became of an attempt, before it is judged.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub cause: Cause,
    pub usage: Option<Usage>,
    pub retry_after_ms: Option<u64>,
    /// A limiter refuses before anything is sent.
    pub dispatched: bool,
}

/// An output that references may name.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Known {
        value: Value,
        memory: usize,
        /// By which it can be read again, if it can.
        digest: Option<Digest>,
    },
    /// It is stored, and read when it is needed.
    Stored { digest: Digest, size: Size },
    /// It existed and is no longer kept.
    Unknown,
    /// It did not fit beside what the run holds already.
    TooMuch,
}

#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub status: StepStatus,
    pub code: String,
}

impl State {
    pub(super) fn new(reads: &[BTreeSet<String>]) -> Self {
        let mut unread = BTreeMap::new();
        for name in reads.iter().flatten() {
            *unread.entry(name.clone()).or_default() += 1;
        }
        Self {
            phase: Phase::Start,
            current: None,
            unprepared: None,
            results: Vec::new(),
            seen: BTreeMap::new(),
            outputs: BTreeMap::new(),
            held_bytes: 0,
            here_bytes: 0,
            unread,
            spent: 0,
            threshold_told: false,
            alert_due: None,
            stop: None,
            finished: None,
        }
    }
}

impl State {
    /// Holds the output of a step that finished, if there is room for it. Whoever refers to one that there was no room
    /// for is refused. Of small outputs no more than `small_max` is held here, if there is such a limit.
    pub(super) fn hold(&mut self, name: String, output: Held, small_max: Option<usize>) {
        let output = match output.memory() {
            Some(memory) if self.held_bytes.saturating_add(memory) > limits::HELD_BYTES_MAX => Held::TooMuch,
            Some(memory) => {
                self.held_bytes += memory;
                let output = match output {
                    Held::Known { memory, digest: Some(digest), .. }
                        if small_max.is_some_and(|most| self.here_bytes.saturating_add(memory) > most) =>
                    {
                        Held::Stored { digest, size: Size { memory, text: 0 } }
                    }
                    output => output,
                };
                if matches!(output, Held::Known { .. }) {
                    self.here_bytes += memory;
                }
                output
            }
            None => output,
        };
        let replaced = self.outputs.insert(name, output);
        self.forget(replaced);
    }

    /// Lets go of what nobody refers to any more, now that a step with these references has finished.
    pub(super) fn release(&mut self, reads: &BTreeSet<String>) {
        for name in reads {
            let Some(readers) = self.unread.get_mut(name) else { continue };
            *readers = readers.saturating_sub(1);
            if *readers == 0 {
                self.unread.remove(name);
                let read = self.outputs.remove(name);
                self.forget(read);
            }
        }
    }

    fn forget(&mut self, output: Option<Held>) {
        let Some(memory) = output.as_ref().and_then(Held::memory) else { return };
        self.held_bytes = self.held_bytes.saturating_sub(memory);
        if matches!(output, Some(Held::Known { .. })) {
            self.here_bytes = self.here_bytes.saturating_sub(memory);
        }
    }
}

impl Held {
    /// What the value takes in memory, wherever it is.
    fn memory(&self) -> Option<usize> {
        match self {
            Self::Known { memory, .. } | Self::Stored { size: Size { memory, .. }, .. } => Some(*memory),
            Self::Unknown | Self::TooMuch => None,
        }
    }
}

impl Current {
    pub(super) fn new(prepared: Prepared) -> Self {
        Self {
            prepared,
            attempt: 0,
            codes: Vec::new(),
            cost: 0,
            effects: Vec::new(),
            intents: 0,
            claimed: false,
            wait_ms: 0,
            happened: None,
            output: None,
            may_have_acted: false,
        }
    }

    /// Retries made, which is one less than the attempts made.
    pub(super) fn retries(&self) -> u32 {
        u32::try_from(self.codes.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use macp_wire::memory;
    use serde_json::json;

    use super::*;

    fn known(value: Value) -> Held {
        let digest = crate::digest::of_value(crate::digest::BODY_LABEL, &value).unwrap();
        Held::Known { memory: memory::of(&value), value, digest: Some(digest) }
    }

    /// Small objects take a hundred times their text.
    #[test]
    fn what_is_held_is_weighed_as_it_is_in_memory() {
        let mut state = State::new(&[]);
        let tiny = |count: usize| known(Value::from(vec![json!({"": 0}); count]));
        state.hold("first".to_owned(), tiny(100_000), None);
        state.hold("second".to_owned(), tiny(100_000), None);
        assert!(matches!(state.outputs["first"], Held::Known { .. }));
        assert!(matches!(state.outputs["second"], Held::TooMuch));
        state.hold("first".to_owned(), Held::Unknown, None);
        assert_eq!((state.held_bytes, state.here_bytes), (0, 0));
    }

    #[test]
    fn small_outputs_are_here_up_to_a_limit() {
        let mut state = State::new(&[]);
        for name in ["first", "second", "third"] {
            state.hold(name.to_owned(), known(json!("x".repeat(1_000))), Some(2_500));
        }
        assert!(matches!(state.outputs["second"], Held::Known { .. }));
        assert!(matches!(state.outputs["third"], Held::Stored { .. }));
        assert_eq!(state.held_bytes, 3 * (32 + 24 + 1_000), "the limit of a run counts all of them");
        assert_eq!(state.here_bytes, 2 * (32 + 24 + 1_000));
    }
}
