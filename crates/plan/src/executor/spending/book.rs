//! The sums behind the limits: for every agent and day what ended runs cost, and what runs at work may still cost.

use std::collections::BTreeMap;

use super::day::Day;

/// Sums in microcents, and the runs at work that are part of them.
#[derive(Debug)]
pub(super) struct Book {
    /// Days before this one are forgotten.
    from: Day,
    accounts: BTreeMap<String, BTreeMap<Day, Tally>>,
    at_work: BTreeMap<String, Reserved>,
}

/// What counts against a limit. Wide enough that no number of budgets overflows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) spent: u128,
    pub(super) reserved: u128,
}

#[derive(Debug)]
struct Reserved {
    agent_id: String,
    day: Day,
    microcents: u64,
}

impl Book {
    pub(super) fn new(from: Day) -> Self {
        Self { from, accounts: BTreeMap::new(), at_work: BTreeMap::new() }
    }

    /// What a run that has ended cost.
    pub(super) fn spend(&mut self, agent_id: &str, day: Day, microcents: u64) {
        self.change(agent_id, day, |tally| tally.spent += u128::from(microcents));
    }

    /// Sets the whole budget of a run aside until it has ended.
    pub(super) fn reserve(&mut self, run_id: &str, agent_id: &str, day: Day, microcents: u64) {
        self.release(run_id);
        if day < self.from {
            return;
        }
        self.change(agent_id, day, |tally| tally.reserved += u128::from(microcents));
        let reserved = Reserved { agent_id: agent_id.to_owned(), day, microcents };
        self.at_work.insert(run_id.to_owned(), reserved);
    }

    /// Takes back what was set aside for a run, if anything was.
    pub(super) fn release(&mut self, run_id: &str) {
        self.settle(run_id, 0);
    }

    /// Puts what a run cost in the place of what was set aside for it. A run that nothing was set aside for is one the
    /// sums were read with when it had ended already.
    pub(super) fn settle(&mut self, run_id: &str, cost_microcents: u64) {
        if let Some(Reserved { agent_id, day, microcents }) = self.at_work.remove(run_id) {
            self.change(&agent_id, day, |tally| {
                tally.reserved -= u128::from(microcents);
                tally.spent += u128::from(cost_microcents);
            });
        }
    }

    pub(super) fn of_day(&self, agent_id: &str, day: Day) -> Tally {
        self.accounts.get(agent_id).and_then(|days| days.get(&day)).copied().unwrap_or_default()
    }

    pub(super) fn of_month(&self, agent_id: &str, day: Day) -> Tally {
        let days = self.accounts.get(agent_id).into_iter().flatten();
        let of_month = days.filter(|(other, _)| other.month() == day.month());
        of_month.fold(Tally::default(), |sum, (_, tally)| Tally {
            spent: sum.spent + tally.spent,
            reserved: sum.reserved + tally.reserved,
        })
    }

    /// Forgets everything before a day.
    pub(super) fn forget_before(&mut self, day: Day) {
        if day > self.from {
            self.from = day;
            self.accounts.retain(|_, days| {
                *days = days.split_off(&day);
                !days.is_empty()
            });
            self.at_work.retain(|_, reserved| reserved.day >= day);
        }
    }

    /// Days on which nothing counts are not kept, nor are agents without any.
    fn change(&mut self, agent_id: &str, day: Day, change: impl FnOnce(&mut Tally)) {
        if day < self.from {
            return;
        }
        let mut tally = self.of_day(agent_id, day);
        change(&mut tally);
        if tally != Tally::default() {
            self.accounts.entry(agent_id.to_owned()).or_default().insert(day, tally);
        } else if let Some(days) = self.accounts.get_mut(agent_id) {
            days.remove(&day);
            if days.is_empty() {
                self.accounts.remove(agent_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn day(number: u64) -> Day {
        Day::of(number * DAY_MS)
    }

    fn tally(spent: u128, reserved: u128) -> Tally {
        Tally { spent, reserved }
    }

    #[test]
    fn a_run_counts_once_whatever_is_said_how_often() {
        let mut book = Book::new(day(0));
        book.reserve("r1", "a", day(3), 10);
        book.reserve("r1", "a", day(3), 10);
        book.reserve("r2", "a", day(4), 7);
        assert_eq!((book.of_day("a", day(3)), book.of_month("a", day(3))), (tally(0, 10), tally(0, 17)));
        book.settle("r1", 4);
        book.settle("r1", 4);
        book.settle("never-seen", 99);
        assert_eq!((book.of_day("a", day(3)), book.of_month("a", day(9))), (tally(4, 0), tally(4, 7)));
        assert_eq!(book.of_month("b", day(3)), tally(0, 0), "another agent is not concerned");
        assert_eq!(book.of_month("a", day(31)), tally(0, 0), "another month is not either");
    }

    #[test]
    fn what_no_longer_counts_takes_no_memory() {
        let mut book = Book::new(day(0));
        book.reserve("r1", "free", day(1), 5);
        book.release("r1");
        assert!(book.accounts.is_empty() && book.at_work.is_empty());
        book.spend("a", day(1), 5);
        book.reserve("r2", "a", day(2), 5);
        book.spend("a", day(40), 5);
        book.forget_before(day(31));
        assert_eq!((book.of_day("a", day(1)), book.of_day("a", day(40))), (tally(0, 0), tally(5, 0)));
        assert!(book.at_work.is_empty());
        book.settle("r2", 5);
        book.spend("a", day(2), 5);
        assert_eq!(book.of_day("a", day(2)), tally(0, 0), "what is forgotten stays so");
    }
}
