//! Facts for people: recorded, shown, and never decided on.
//!
//! The type has no equality, no order and no hash, so that code which would decide by such a fact does not compile:
//!
//! ```compile_fail
//! use macp_wire::informational::Informational;
//! fn differs(one: &Informational, other: &Informational) -> bool {
//!     one != other
//! }
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Times, durations, trace ids and texts that may differ between two runs which behave alike.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Informational(Map<String, Value>);

impl Informational {
    #[must_use]
    pub fn new(facts: Map<String, Value>) -> Self {
        Self(facts)
    }

    /// For showing. Rooms that decide never call this; a test of the rooms looks for it.
    #[must_use]
    pub fn shown(&self) -> &Map<String, Value> {
        &self.0
    }
}
