//! Everything in one place, and the scheduler that draws what happens next.
//!
//! ```text
//!  clients ──Request──▶ nodes (shards) ──Append──▶ writer ──▶ disk
//!     ▲                  │  ▲  ▲    └──Load──▶ loaders ◀─────┤
//!     └──── Answer ──────┘  │  └──────────────────┘          │
//!                           └───Due──── sweeper ◀────────────┘
//!                  the oracle listens everywhere
//! ```
//!
//! The production driver decides a handful of events, flushes, and only then performs the effects; so does a turn here.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_engine::{Answer, Effect, Error, LoadResult, Loaded, Outgoing, Reply, Request, load};
use macp_kernel::{Rejection, Session, Settled};
use macp_ledger::{Hash, Head, Store};
use macp_wire::codes::Code;
use macp_wire::v1::SessionMetadata;
use prost::Message;

use crate::Bug;
use crate::ask::Ask;
use crate::client::Client;
use crate::disk::Disk;
use crate::node::Node;
use crate::oracle::Oracle;
use crate::plan::{Plan, Rates};
use crate::properties::Violation;
use crate::random::Random;
use crate::runner::Summary;
use crate::transcript::{Digest, Transcript};
use crate::truth::Course;
use crate::workload::Workload;
use crate::writer::Writer;

/// An ordinary day in 2025, so that nothing depends on the clock being near zero.
const BEGIN_MS: i64 = 1_750_000_000_000;

/// Heads the sweeper takes at a look.
const DUE_PER_LOOK: usize = 5;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) plan: Plan,
    pub(crate) now: i64,
    pub(crate) step: u64,
    crash_at: Option<u64>,
    pub(crate) disk: Disk,
    pub(crate) nodes: Vec<Node>,
    pub(crate) writer: Writer,
    clients: Vec<Client>,
    workload: Workload,
    /// Which client asked; requests of the healing phase belong to none.
    askers: BTreeMap<u64, usize>,
    requests: u64,
    pub(crate) oracle: Oracle,
    /// While false nothing goes wrong any more.
    pub(crate) faults: bool,
    /// While true an error may be the aftermath of a fault.
    pub(crate) errors_excused: bool,
    bug: Option<Bug>,
    /// What the loader found last, for the planted bug that does not look again.
    last_loaded: BTreeMap<Arc<str>, Option<(Session, Hash)>>,
    pub(crate) transcript: Transcript,
    pub(crate) summary: Summary,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>, echo: bool) -> Self {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&mut random);
        let mut transcript = Transcript::new(echo);
        transcript.note(format_args!("{plan:?}"));
        World {
            now: BEGIN_MS,
            step: 0,
            crash_at: None,
            disk: Disk::new(bug),
            nodes: (0..plan.shards).map(|_| Node::new(&plan)).collect(),
            writer: Writer::new(plan.shards, bug),
            clients: (0..plan.clients).map(|_| Client::default()).collect(),
            workload: Workload::default(),
            askers: BTreeMap::new(),
            requests: 0,
            oracle: Oracle::new(plan.subscribed),
            faults: true,
            errors_excused: true,
            bug,
            last_loaded: BTreeMap::new(),
            transcript,
            summary: Summary::default(),
            random,
            plan,
        }
    }

    /// One step of live traffic, drawn by weight.
    pub(crate) fn live_step(&mut self) -> Result<(), Violation> {
        self.step += 1;
        self.now += i64::try_from(self.random.below(self.plan.pace_ms_max + 1)).expect("a few milliseconds");
        if self.crash_at.take_if(|at| *at <= self.step).is_some() {
            return self.crash();
        }
        let weights = self.plan.weights;
        type Action = fn(&mut World) -> Result<(), Violation>;
        let actions: [(u64, Action); 9] = [
            (weights.client, World::client),
            (weights.turn, World::turn),
            (weights.write, World::write),
            (weights.load, World::load),
            (weights.sweep, World::sweep),
            (weights.tick, World::tick),
            (weights.jump, World::jump),
            (weights.step_back, World::step_back),
            (weights.crash, World::crash),
        ];
        let mut drawn = self.random.below(actions.iter().map(|(weight, _)| weight).sum());
        for (weight, action) in actions {
            if drawn < weight {
                return action(self);
            }
            drawn -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// One step of work that is under way; false when there is none.
    pub(crate) fn work_step(&mut self) -> Result<bool, Violation> {
        self.step += 1;
        let writes = !self.writer.is_idle();
        let loads = self.nodes.iter().any(|node| !node.loads.is_empty());
        let turns = self.nodes.iter().any(Node::has_events);
        type Action = fn(&mut World) -> Result<(), Violation>;
        let candidates: [(bool, Action); 3] = [(writes, World::write), (loads, World::load), (turns, World::turn)];
        let ready: Vec<Action> = candidates.into_iter().filter_map(|(ready, action)| ready.then_some(action)).collect();
        if ready.is_empty() {
            return Ok(false);
        }
        let action = *self.random.pick(&ready);
        action(self)?;
        Ok(true)
    }

    fn rates(&self) -> Rates {
        if self.faults { self.plan.rates } else { Rates::default() }
    }

    fn node_of(&self, session_id: &str) -> usize {
        let hash = Digest::of(format_args!("{session_id}"));
        usize::try_from(hash % self.nodes.len() as u64).expect("smaller than the number of shards")
    }

    fn client(&mut self) -> Result<(), Violation> {
        let client = self.random.index(self.clients.len());
        let ask =
            self.clients[client].next(client, self.step, self.now, &self.plan, &mut self.workload, &mut self.random);
        if let Some(ask) = ask {
            let number = self.submit(ask.clone());
            self.askers.insert(number, client);
            self.clients[client].asked(number, self.step, ask);
        }
        Ok(())
    }

    /// Puts a request on its way.
    pub(crate) fn submit(&mut self, ask: Ask) -> u64 {
        self.requests += 1;
        let number = self.requests;
        self.transcript.note(format_args!("{} {number} asks {ask:?}", self.now));
        self.oracle.ask(number, &ask);
        let node = self.node_of(&ask.session_id);
        let request = Request { session_id: Arc::clone(&ask.session_id), kind: ask.kind(), reply: number };
        self.nodes[node].requests.push_back(request);
        number
    }

    fn turn(&mut self) -> Result<(), Violation> {
        let ready: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].has_events()).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let index = *self.random.pick(&ready);
        let mut effects = Vec::new();
        for _ in 0..=self.random.below(self.plan.events_per_turn_max) {
            let node = &mut self.nodes[index];
            let Some(event) = node.next(&mut self.random) else {
                break;
            };
            node.shard.step(event, self.now, &mut effects);
        }
        self.nodes[index].shard.flush(&mut effects);
        self.perform(index, effects)
    }

    fn perform(&mut self, index: usize, effects: Vec<Effect<u64>>) -> Result<(), Violation> {
        let mut appends = Vec::new();
        for effect in effects {
            match effect {
                Effect::Load(load) => self.nodes[index].loads.push(load),
                Effect::Append(append) => {
                    if self.bug == Some(Bug::EarlyPublish) {
                        self.oracle.publish(&append.session_id, &append.records)?;
                    }
                    appends.push(append);
                }
                Effect::Publish { session_id, records } => {
                    if self.bug != Some(Bug::EarlyPublish) {
                        self.oracle.publish(&session_id, &records)?;
                    }
                }
                Effect::Send(Outgoing::Answer(number, result)) => self.answer(number, result)?,
                Effect::Send(Outgoing::Lifecycle(lifecycle)) => self.oracle.announce(&lifecycle)?,
                Effect::Send(Outgoing::Trace(event)) => self.oracle.trace(&event)?,
            }
        }
        if !appends.is_empty() {
            self.transcript.note(format_args!("{} shard {index} appends {appends:?}", self.now));
            self.writer.hand_over(index, appends);
        }
        Ok(())
    }

    fn answer(&mut self, number: u64, result: Result<Answer, Error>) -> Result<(), Violation> {
        let result = self.driver_answer(number, result);
        self.transcript.note(format_args!("{} {number} is answered {result:?}", self.now));
        self.summary.count_answer(&result);
        if let Ok(Answer::Verdict(Reply { state: Some(state), .. })) = &result
            && state.is_terminal()
            && let Some(asked) = self.oracle.asked.get(&number)
        {
            self.workload.is_over(&asked.session_id);
        }
        self.oracle.answer(number, &result, self.errors_excused)?;
        if let Some(client) = self.askers.remove(&number) {
            self.clients[client].answered(number, &result, &mut self.random);
        }
        Ok(())
    }

    /// Where the planted bugs of the driver get at an answer.
    fn driver_answer(&self, number: u64, result: Result<Answer, Error>) -> Result<Answer, Error> {
        match (self.bug, result) {
            (
                Some(Bug::RewrittenDuplicate),
                Ok(Answer::Verdict(reply @ Reply { settled: Settled::Duplicate { .. }, .. })),
            ) => Ok(Answer::Verdict(Reply { settled: Settled::Duplicate { accepted_at_ms: self.now }, ..reply })),
            (Some(Bug::ErrorAsRefusal), Err(Error::Write(text))) => {
                let rejection = Rejection::new(Code::InternalError, text);
                let asked = self.oracle.asked.get(&number);
                let course = asked.and_then(|asked| self.oracle.truth.session(&asked.session_id));
                let state = course.and_then(Course::state);
                let profile = course.and_then(Course::profile);
                Ok(Answer::Verdict(Reply {
                    settled: Settled::Rejected(rejection),
                    state,
                    profile,
                    concerns_caller: true,
                }))
            }
            (_, result) => result,
        }
    }

    fn write(&mut self) -> Result<(), Violation> {
        let rates = self.rates();
        let progress = self.writer.step(&self.disk, &mut self.random, self.plan.batches_per_commit_max, rates);
        self.oracle.grow(&self.disk, &progress.grown)?;
        if progress.sync_failed && self.plan.weights.crash > 0 && self.random.chance(300) {
            // A disk that cannot sync often takes the machine down soon after.
            self.crash_at = Some(self.step + self.random.below(40));
        }
        for report in progress.reports {
            self.transcript.note(format_args!("{} reports {report:?}", self.now));
            self.summary.count_append(&report.result);
            self.nodes[report.shard].appended.push_back(report);
        }
        Ok(())
    }

    /// A loader reads one session; what it found reaches the shard later.
    fn load(&mut self) -> Result<(), Violation> {
        let ready: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.nodes[*node].loads.is_empty()).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let index = *self.random.pick(&ready);
        let at = self.random.index(self.nodes[index].loads.len());
        let load = self.nodes[index].loads.swap_remove(at);
        let read_fails = self.rates().read_fails;
        self.disk.fail_reads(self.random.chance(read_fails));
        let result = self.look(&load.session_id);
        self.disk.fail_reads(false);
        let found = result.as_ref().map(|found| found.as_ref().map(|found| found.session.sequence()));
        self.transcript.note(format_args!("{} loads {}: {found:?}", self.now, load.session_id));
        self.summary.loads += 1;
        self.nodes[index].loaded.push((load, result));
        Ok(())
    }

    fn look(&mut self, session_id: &Arc<str>) -> LoadResult {
        if self.bug != Some(Bug::StaleReload) {
            return load(&self.disk, session_id);
        }
        if self.random.chance(250)
            && let Some(last) = self.last_loaded.get(session_id)
        {
            return Ok(last.clone().map(|(session, hash)| Box::new(Loaded { session, hash })));
        }
        let loaded = load(&self.disk, session_id)?;
        let kept = loaded.as_ref().map(|loaded| (loaded.session.clone(), loaded.hash));
        self.last_loaded.insert(Arc::clone(session_id), kept);
        Ok(loaded)
    }

    pub(crate) fn sweep(&mut self) -> Result<(), Violation> {
        if self.bug == Some(Bug::SleepingSweeper) {
            return Ok(());
        }
        let read_fails = self.rates().read_fails;
        self.disk.fail_reads(self.random.chance(read_fails));
        // Like the production sweeper: a failed look is made up for by the next.
        let due = self.disk.due(self.now, DUE_PER_LOOK).unwrap_or_default();
        let due: Vec<Head> = due.iter().filter_map(|session_id| self.disk.head(session_id).ok().flatten()).collect();
        self.disk.fail_reads(false);
        for head in due {
            if !self.sweeper_heeds(&head) {
                continue;
            }
            self.transcript.note(format_args!("{} {} is due", self.now, head.session_id));
            let node = self.node_of(&head.session_id);
            self.nodes[node].expiries.push_back(head);
        }
        Ok(())
    }

    /// Where the planted bug of the sweeper gets at what it found.
    fn sweeper_heeds(&self, head: &Head) -> bool {
        let deadline_ms = SessionMetadata::decode(head.summary.clone()).map_or(0, |session| session.expires_at_unix_ms);
        self.bug != Some(Bug::DeafSweeper) || self.now > deadline_ms
    }

    pub(crate) fn tick(&mut self) -> Result<(), Violation> {
        if self.bug != Some(Bug::LostTicks) {
            self.nodes.iter_mut().for_each(|node| node.ticks += 1);
        }
        Ok(())
    }

    fn jump(&mut self) -> Result<(), Violation> {
        self.now += self.random.within(0..=self.plan.ttl_ms_max * 2);
        Ok(())
    }

    fn step_back(&mut self) -> Result<(), Violation> {
        self.now -= self.random.within(0..=100);
        Ok(())
    }

    /// The process dies and starts again: only the disk remains.
    fn crash(&mut self) -> Result<(), Violation> {
        self.summary.crashes += 1;
        let limbo_survives = self.random.chance(500);
        let revived = self.disk.crash(limbo_survives);
        self.transcript.note(format_args!("{} crash, back from limbo: {revived:?}", self.now));
        self.summary.revived += revived.len() as u64;
        self.writer.crash();
        self.nodes = (0..self.plan.shards).map(|_| Node::new(&self.plan)).collect();
        self.askers.clear();
        self.last_loaded.clear();
        for client in &mut self.clients {
            client.give_up(&mut self.random);
        }
        self.oracle.crash(&self.disk)
    }
}
