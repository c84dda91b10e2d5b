//! The simulated writer: takes batches of several shards into one commit, applies it, syncs it, reports it; each of
//! these is a step of its own, so that anything may happen in between.

use std::collections::VecDeque;
use std::sync::Arc;

use macp_ledger::{Append, AppendError, Failure, FailureKind, Record};

use crate::Bug;
use crate::disk::Disk;
use crate::plan::Rates;
use crate::random::Random;

/// How one append ended, for the shard it came from.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) shard: usize,
    pub(crate) session_id: Arc<str>,
    pub(crate) result: Result<Vec<Record>, AppendError>,
}

/// What a step of the writer did.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) reports: Vec<Report>,
    /// Sessions with new durable records.
    pub(crate) grown: Vec<Arc<str>>,
    pub(crate) sync_failed: bool,
}

#[derive(Debug)]
pub(crate) struct Writer {
    /// Batches on their way, in order per shard; between shards the order is the scheduler's to choose.
    queues: Vec<VecDeque<Vec<Append>>>,
    commit: Option<Commit>,
    bug: Option<Bug>,
}

#[derive(Debug)]
struct Commit {
    appends: Vec<(usize, Append)>,
    /// Once applied.
    results: Option<Vec<Result<(), AppendError>>>,
}

impl Writer {
    pub(crate) fn new(shards: usize, bug: Option<Bug>) -> Self {
        Writer { queues: vec![VecDeque::new(); shards], commit: None, bug }
    }

    pub(crate) fn hand_over(&mut self, shard: usize, appends: Vec<Append>) {
        self.queues[shard].push_back(appends);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.commit.is_none() && self.queues.iter().all(VecDeque::is_empty)
    }

    /// The process is gone, and with it whatever was not on disk.
    pub(crate) fn crash(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.commit = None;
    }

    pub(crate) fn step(&mut self, disk: &Disk, random: &mut Random, batches_max: u64, rates: Rates) -> Progress {
        match self.commit.take() {
            None => {
                self.take(random, batches_max);
                Progress::default()
            }
            Some(commit) => match commit.results {
                None => self.apply(commit.appends, disk, random, rates),
                Some(results) => self.finish(commit.appends, results, disk, random, rates),
            },
        }
    }

    fn take(&mut self, random: &mut Random, batches_max: u64) {
        let mut appends = Vec::new();
        for _ in 0..=random.below(batches_max) {
            let waiting: Vec<usize> = (0..self.queues.len()).filter(|shard| !self.queues[*shard].is_empty()).collect();
            if waiting.is_empty() {
                break;
            }
            let shard = *random.pick(&waiting);
            let batch = self.queues[shard].pop_front().expect("the queue is not empty");
            appends.extend(batch.into_iter().map(|append| (shard, append)));
        }
        if !appends.is_empty() {
            self.commit = Some(Commit { appends, results: None });
        }
    }

    fn apply(&mut self, appends: Vec<(usize, Append)>, disk: &Disk, random: &mut Random, rates: Rates) -> Progress {
        let whole_fails = random.chance(rates.commit_fails);
        let results: Vec<_> = appends
            .iter()
            .map(|(_, append)| {
                if whole_fails {
                    return Err(failed(FailureKind::DiskFull));
                }
                if random.chance(rates.append_fails) {
                    return Err(failed(FailureKind::Io));
                }
                if self.bug == Some(Bug::DroppedAppend) && random.chance(60) {
                    return Ok(());
                }
                disk.apply(append)
            })
            .collect();
        let mut progress = Progress::default();
        if self.bug == Some(Bug::AckBeforeSync) {
            progress.reports = self.reports(&appends, &results, random);
        }
        self.commit = Some(Commit { appends, results: Some(results) });
        progress
    }

    fn finish(
        &mut self,
        appends: Vec<(usize, Append)>,
        mut results: Vec<Result<(), AppendError>>,
        disk: &Disk,
        random: &mut Random,
        rates: Rates,
    ) -> Progress {
        let sync_failed = random.chance(rates.sync_fails);
        let grown = if sync_failed {
            disk.lose_sync();
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(failed(FailureKind::Io));
            }
            Vec::new()
        } else {
            disk.sync()
        };
        let reports = match self.bug {
            Some(Bug::AckBeforeSync) => Vec::new(),
            _ => self.reports(&appends, &results, random),
        };
        Progress { reports, grown, sync_failed }
    }

    fn reports(
        &self,
        appends: &[(usize, Append)],
        results: &[Result<(), AppendError>],
        random: &mut Random,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        for ((shard, append), result) in appends.iter().zip(results) {
            if self.bug == Some(Bug::LostReport) && random.chance(20) {
                continue;
            }
            let result = match result {
                Err(AppendError::Failed(_)) if self.bug == Some(Bug::LostFlight) => Ok(append.records.clone()),
                other => other.clone().map(|()| append.records.clone()),
            };
            reports.push(Report { shard: *shard, session_id: Arc::clone(&append.session_id), result });
        }
        reports
    }
}

fn failed(kind: FailureKind) -> AppendError {
    Failure::new(kind, "simulated write error").into()
}
