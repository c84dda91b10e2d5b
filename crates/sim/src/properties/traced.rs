//! A recorded trace, refusals included, replays to the same verdicts.

use macp_kernel::trace::{Comparison, Event, Replayer};

use crate::properties::{Property, Violation};

#[derive(Debug, Default)]
pub(crate) struct Traced {
    replayer: Replayer,
    /// A crash loses the traces of what was durable and not yet answered, so that later events may not be compared.
    has_gaps: bool,
}

impl Traced {
    pub(crate) fn check(&mut self, event: &Event) -> Result<(), Violation> {
        let comparison = self
            .replayer
            .feed(event)
            .map_err(|error| Property::Traced.violated(format!("malformed event: {error}")))?;
        let fits = match comparison {
            Comparison::Same | Comparison::Operational => true,
            Comparison::Incomplete(_) => self.has_gaps,
            Comparison::Different { .. } => false,
        };
        Property::Traced.holds(fits, || format!("{comparison:?} for {event:?}"))
    }

    pub(crate) fn restart(&mut self) {
        self.has_gaps = true;
    }
}
