//! What is told of a step besides its outcome: times, and what was said. Nothing is ever decided by it.

use std::time::Duration;

use macp_plan_core::journal::Body;
use macp_wire::informational::Informational;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Told {
    first_dispatch: Option<Instant>,
    last_answer: Option<Instant>,
    said: String,
    pub(super) details: Map<String, Value>,
    attempts: Vec<Value>,
}

impl Told {
    /// The last word stands.
    pub(super) fn say(&mut self, said: impl Into<String>) {
        self.said = said.into();
    }

    /// A call that was just answered.
    pub(super) fn attempt(&mut self, attempt: u32, dispatched: Instant, dispatched_unix_ms: u64, message: &str) {
        let answered = Instant::now();
        self.first_dispatch.get_or_insert(dispatched);
        self.last_answer = Some(answered);
        self.attempts.push(json!({
            "attempt": attempt,
            "dispatched_unix_ms": dispatched_unix_ms,
            "latency_ms": milliseconds(answered - dispatched),
            "message": message,
        }));
    }

    /// The entry that tells it all, once the step has ended.
    pub(super) fn observed(self, step_id: &str, now_unix_ms: u64) -> Body {
        let Self { first_dispatch, last_answer, said, details, attempts } = self;
        let latency = first_dispatch.zip(last_answer).map_or(Duration::ZERO, |(first, last)| last - first);
        let mut facts = Map::new();
        facts.insert("finished_unix_ms".to_owned(), now_unix_ms.into());
        facts.insert("latency_ms".to_owned(), milliseconds(latency).into());
        if !said.is_empty() {
            facts.insert("message".to_owned(), said.into());
        }
        if !details.is_empty() {
            facts.insert("details".to_owned(), details.into());
        }
        if !attempts.is_empty() {
            facts.insert("attempts".to_owned(), attempts.into());
        }
        Body::Observed { step_id: Some(step_id.to_owned()), facts: Informational::new(facts) }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
