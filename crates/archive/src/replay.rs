//! Takes every decision of a history again.

use macp_kernel::replay::{Divergence, Options, Replayer, Report, Step, Stop};

use crate::verify::unreadable;
use crate::{Source, Unreadable};

/// What a replay showed.
#[derive(Debug)]
pub enum Replay {
    /// Every decision, the order, the transitions and the outcome are the same.
    Match(Report),
    /// A decision came out differently; only a what-if goes on to a report.
    Diverged { divergence: Divergence, report: Option<Report> },
    /// Not replayed, and why: other versions, a mode that grants no such replay, a damaged history.
    Refused(String),
    /// Nothing can be said: the reading failed, not the history.
    Failed(Unreadable),
}

/// Replays a history; `on_step` hears of every decision.
pub fn replay(source: &mut Source<'_>, options: Options, on_step: &mut dyn FnMut(&Step)) -> Replay {
    let mut replayer = Replayer::new(options);
    loop {
        let page = match source.next_page() {
            Ok(page) => page,
            Err(error) if error.bad_sequence().is_some() => return Replay::Refused(error.to_string()),
            Err(error) => return Replay::Failed(unreadable(error)),
        };
        if page.is_empty() {
            break;
        }
        for (_, entry) in &page {
            match replayer.feed(entry) {
                Ok(step) => on_step(&step),
                Err(stop) => return stopped(stop),
            }
        }
    }
    match replayer.finish() {
        Ok(mut report) => match report.divergence.take() {
            Some(divergence) => Replay::Diverged { divergence, report: Some(report) },
            None => Replay::Match(report),
        },
        Err(stop) => stopped(stop),
    }
}

fn stopped(stop: Stop) -> Replay {
    match stop {
        Stop::Refused(reason) => Replay::Refused(reason),
        Stop::Diverged(divergence) => Replay::Diverged { divergence, report: None },
    }
}
