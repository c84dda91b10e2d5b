//! Replays a recorded trace: every input gets the same verdict again, the refused ones too.

use std::fmt;
use std::path::Path;

use macp_kernel::trace::{Comparison, Event, Gap, Missing, Replayer, TracedVerdict};
use serde::Serialize;

use crate::trace_line::TraceLine;
use crate::trace_reader::{Next, TraceError, TracePlace, TraceReader};

/// What replaying a trace showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    pub files: u64,
    pub events: u64,
    pub same: u64,
    pub different: u64,
    /// Operational refusals, which are not compared.
    pub operational: u64,
    /// Events of sessions that began before the trace, which are not compared.
    pub earlier: u64,
    /// Places at which events of a session are missing though nothing says why.
    pub gaps: u64,
    /// Places at which events are missing and the trace says that it left some out there.
    pub gaps_told: u64,
    /// Events of a session behind a gap or a difference, which are not compared.
    pub behind: u64,
    /// Events that were not recorded.
    pub lost: u64,
    /// Last lines that were cut off, as it happens when the writing process is killed; they are not counted.
    pub torn: u64,
}

/// What a trace is worth as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceVerdict {
    /// All that could be compared came out the same.
    Match,
    Diverged,
    /// Nothing came out differently, but something is missing from the middle.
    Incomplete,
    /// Nothing could be compared.
    NothingCompared,
}

impl TraceReport {
    pub fn verdict(&self) -> TraceVerdict {
        match self {
            TraceReport { different: 1.., .. } => TraceVerdict::Diverged,
            TraceReport { gaps: 1.., .. } => TraceVerdict::Incomplete,
            TraceReport { same: 0, .. } => TraceVerdict::NothingCompared,
            TraceReport { .. } => TraceVerdict::Match,
        }
    }
}

/// Something to tell about one line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFinding {
    pub place: TracePlace,
    pub session_id: String,
    /// The session's last entry before the input; 0 when there was no session.
    pub after_sequence: u64,
    pub what: TraceFound,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceFound {
    /// An input that got another verdict.
    Difference { expected: TracedVerdict, found: TracedVerdict },
    /// The lines before this one do not lead to where the session stood.
    Gap(Gap),
}

impl fmt::Display for TraceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceFinding { place, session_id, after_sequence, what } = self;
        write!(f, "line {}, session {session_id}, ", place.line)?;
        match after_sequence {
            0 => f.write_str("before its first entry: ")?,
            entry => write!(f, "after entry {entry}: ")?,
        }
        match what {
            TraceFound::Difference { expected, found } => write!(f, "recorded {expected}; decided again {found}"),
            TraceFound::Gap(Gap { sequence, ordinal, told }) => {
                write!(f, "the trace leads only to entry {sequence}, ordinal {ordinal}; ")?;
                f.write_str(match told {
                    false => "what comes between is missing",
                    true => "what comes between was not recorded, as the trace says itself",
                })
            }
        }
    }
}

/// Decides every event of a trace again and compares. Files that were rotated away and stand beside it belong to it.
pub fn replay_trace(path: &Path, on_finding: &mut dyn FnMut(&TraceFinding)) -> Result<TraceReport, TraceError> {
    replay_trace_with(path, &mut |_| {}, on_finding)
}

/// As [`replay_trace`]; `progress` hears how many bytes of the files are done.
pub fn replay_trace_with(
    path: &Path,
    progress: &mut dyn FnMut(u64),
    on_finding: &mut dyn FnMut(&TraceFinding),
) -> Result<TraceReport, TraceError> {
    let mut lines = TraceReader::open(path)?;
    let mut report = TraceReport { files: lines.files(), ..TraceReport::default() };
    let mut replayer = Replayer::default();
    loop {
        let next = lines.next()?;
        progress(lines.bytes());
        let event = match next {
            Next::Line(TraceLine::Event(event)) => event,
            Next::Line(TraceLine::Format(_)) => continue,
            Next::Line(TraceLine::Start {}) => {
                replayer.lose();
                continue;
            }
            Next::Line(TraceLine::Lost { lost }) => {
                report.lost += lost;
                replayer.lose();
                continue;
            }
            Next::Torn => {
                report.torn += 1;
                replayer.lose();
                continue;
            }
            Next::End => return Ok(report),
        };
        let comparison = replayer.feed(&event).map_err(|reason| lines.bad(reason))?;
        if let Some(what) = report.count(comparison) {
            let Event { session_id, after_sequence, .. } = *event;
            on_finding(&TraceFinding { place: lines.place().clone(), session_id, after_sequence, what });
        }
    }
}

impl TraceReport {
    /// Counts what came of an event; what is worth telling is returned.
    fn count(&mut self, comparison: Comparison) -> Option<TraceFound> {
        self.events += 1;
        match comparison {
            Comparison::Same => self.same += 1,
            Comparison::Operational => self.operational += 1,
            Comparison::Incomplete(Missing::Beginning) => self.earlier += 1,
            Comparison::Incomplete(Missing::Behind) => self.behind += 1,
            Comparison::Incomplete(Missing::Between(gap)) => {
                self.behind += 1;
                let gaps = if gap.told { &mut self.gaps_told } else { &mut self.gaps };
                *gaps += 1;
                return Some(TraceFound::Gap(gap));
            }
            Comparison::Different { expected, found } => {
                self.different += 1;
                return Some(TraceFound::Difference { expected, found });
            }
        }
        None
    }
}
