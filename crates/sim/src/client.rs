//! One client: asks, waits, gives up, asks again with the same message id, and repeats itself now and then.

use macp_engine::{Answer, Error};
use macp_kernel::Settled;

use crate::ask::Ask;
use crate::plan::Plan;
use crate::random::Random;
use crate::workload::Workload;

/// Requests a client remembers of each kind.
const REMEMBERED_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Client {
    waiting: Option<Waiting>,
    /// To be asked again, because nobody knows what became of it.
    again: Option<Ask>,
    accepted: Vec<Ask>,
    refused: Vec<Ask>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    since_step: u64,
    ask: Ask,
}

impl Client {
    /// What to ask now; none while the client waits for an answer.
    pub(crate) fn next(
        &mut self,
        client: usize,
        step: u64,
        now: i64,
        plan: &Plan,
        workload: &mut Workload,
        random: &mut Random,
    ) -> Option<Ask> {
        if let Some(waiting) = &self.waiting {
            if step < waiting.since_step + plan.patience_steps {
                return None;
            }
            self.give_up(random);
        }
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        if !self.accepted.is_empty() && random.chance(100) {
            return Some(random.pick(&self.accepted).clone());
        }
        if !self.refused.is_empty() && random.chance(60) {
            let refused = self.refused.swap_remove(random.index(self.refused.len()));
            return Some(workload.correct(&refused, client, random).unwrap_or(refused));
        }
        Some(workload.draw(client, now, plan, random))
    }

    pub(crate) fn asked(&mut self, number: u64, step: u64, ask: Ask) {
        self.waiting = Some(Waiting { number, since_step: step, ask });
    }

    /// Takes an answer, unless the client has given up on it.
    pub(crate) fn answered(&mut self, number: u64, result: &Result<Answer, Error>, random: &mut Random) {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.number == number) else {
            return;
        };
        match result {
            Err(_) => self.ask_again(waiting.ask, random),
            Ok(Answer::Read(_)) => {}
            Ok(Answer::Verdict(reply)) => match reply.settled {
                Settled::Accepted { .. } | Settled::Duplicate { .. } => {
                    remember(&mut self.accepted, waiting.ask, random)
                }
                Settled::Rejected(_) => remember(&mut self.refused, waiting.ask, random),
                Settled::Unchanged => {}
            },
        }
    }

    /// The answer will not come, or comes too late.
    pub(crate) fn give_up(&mut self, random: &mut Random) {
        if let Some(waiting) = self.waiting.take() {
            self.ask_again(waiting.ask, random);
        }
    }

    fn ask_again(&mut self, ask: Ask, random: &mut Random) {
        if random.chance(850) {
            self.again = Some(ask);
        }
    }
}

fn remember(asks: &mut Vec<Ask>, ask: Ask, random: &mut Random) {
    if asks.len() < REMEMBERED_MAX {
        asks.push(ask);
    } else {
        let at = random.index(asks.len());
        asks[at] = ask;
    }
}
