//! One shard with everything that is on its way to it.
//!
//! What comes from one source stays in order, except that loaders finish in any order; between sources any order is
//! possible, and the scheduler draws it.

use std::collections::VecDeque;

use macp_engine::{Event, Load, LoadResult, Request, Shard};
use macp_ledger::Head;

use crate::plan::Plan;
use crate::random::Random;
use crate::writer::Report;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) shard: Shard<u64>,
    pub(crate) requests: VecDeque<Request<u64>>,
    pub(crate) appended: VecDeque<Report>,
    /// Sessions a loader has not read yet.
    pub(crate) loads: Vec<Load>,
    pub(crate) loaded: Vec<(Load, LoadResult)>,
    pub(crate) expiries: VecDeque<Head>,
    pub(crate) ticks: u32,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Request,
    Appended,
    Loaded,
    Expire,
    Tick,
}

impl Node {
    pub(crate) fn new(plan: &Plan) -> Self {
        Node {
            shard: Shard::new(plan.limits.clone(), plan.keep(), plan.traced),
            requests: VecDeque::new(),
            appended: VecDeque::new(),
            loads: Vec::new(),
            loaded: Vec::new(),
            expiries: VecDeque::new(),
            ticks: 0,
        }
    }

    pub(crate) fn has_events(&self) -> bool {
        self.sources().next().is_some()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.has_events() && self.loads.is_empty()
    }

    /// Takes one event from a source drawn at random.
    pub(crate) fn next(&mut self, random: &mut Random) -> Option<Event<u64>> {
        let sources: Vec<Source> = self.sources().collect();
        if sources.is_empty() {
            return None;
        }
        match random.pick(&sources) {
            Source::Request => self.requests.pop_front().map(Event::Request),
            Source::Appended => self
                .appended
                .pop_front()
                .map(|Report { session_id, result, .. }| Event::Appended { session_id, result }),
            Source::Loaded => {
                let (load, result) = self.loaded.swap_remove(random.index(self.loaded.len()));
                Some(Event::Loaded { load, result })
            }
            Source::Expire => self.expiries.pop_front().map(Event::Due),
            Source::Tick => {
                self.ticks -= 1;
                Some(Event::Tick)
            }
        }
    }

    fn sources(&self) -> impl Iterator<Item = Source> {
        [
            (Source::Request, !self.requests.is_empty()),
            (Source::Appended, !self.appended.is_empty()),
            (Source::Loaded, !self.loaded.is_empty()),
            (Source::Expire, !self.expiries.is_empty()),
            (Source::Tick, self.ticks > 0),
        ]
        .into_iter()
        .filter_map(|(source, ready)| ready.then_some(source))
    }
}
