//! Which budgets a reply counts in, and the bytes it has there.

use std::sync::Arc;

use super::budget::Budget;

/// The budgets of the replies to one caller on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    /// `None` for what is not bounded for each connection.
    pub(super) connection: Option<Arc<Budget>>,
    /// Of an identified caller alone, over all connections.
    pub(super) caller: Option<Arc<Budget>>,
    /// Of all identified callers, or of all others.
    pub(super) total: Arc<Budget>,
}

impl Budgets {
    fn all(&self) -> impl Iterator<Item = &Budget> {
        let own = self.connection.as_deref().into_iter().chain(self.caller.as_deref());
        own.chain(std::iter::once(&*self.total))
    }

    /// Reserves in every budget if all have room now.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        for (count, budget) in self.all().enumerate() {
            if !budget.try_reserve(bytes) {
                self.all().take(count).for_each(|reserved| reserved.release(bytes));
                return None;
            }
        }
        Some(Charge { budgets: Arc::clone(self), bytes })
    }

    /// Waits while there is no room, and reserves nothing: for a reply so short that what counts for its call covers it.
    pub(crate) async fn wait(self: &Arc<Self>) -> Charge {
        if self.are_full() {
            Arc::clone(self).room().await;
        }
        Charge { budgets: Arc::clone(self), bytes: 0 }
    }

    /// Counts bytes that exist already, beyond the bounds if need be.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut charge = Charge { budgets: Arc::clone(self), bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// Reserves in one budget after the other, and waits where there is no room.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize) -> Charge {
        if let Some(charge) = self.try_reserve(bytes) {
            return charge;
        }
        // The narrowest first: what waits for its own connection or caller takes nothing that others could use.
        let mut reserved = Vec::with_capacity(3);
        for budget in self.all() {
            reserved.push(Reserved::wait(budget, bytes).await);
        }
        reserved.into_iter().for_each(Reserved::keep);
        Charge { budgets: Arc::clone(self), bytes }
    }

    /// Returns whether any of the budgets is full.
    pub(super) fn are_full(&self) -> bool {
        self.all().any(Budget::is_full)
    }

    /// Waits until none of the budgets is full.
    pub(super) async fn room(self: Arc<Self>) {
        while self.are_full() {
            for budget in self.all() {
                budget.room().await;
            }
        }
    }
}

/// A reservation in one budget, released if the others cannot be had.
struct Reserved<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl<'a> Reserved<'a> {
    async fn wait(budget: &'a Budget, bytes: usize) -> Self {
        budget.reserve(bytes).await;
        Reserved { budget, bytes }
    }

    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.release(self.bytes);
        }
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budgets: Arc<Budgets>,
    bytes: usize,
}

impl Charge {
    pub(super) fn budgets(&self) -> &Arc<Budgets> {
        &self.budgets
    }

    /// Counts so many bytes from now on, more than the budgets have room for if need be.
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        for budget in self.budgets.all() {
            if bytes > before {
                budget.charge(bytes - before);
            } else if before > bytes {
                budget.release(before - bytes);
            }
        }
    }

    /// Counts more if every budget has room for it.
    pub(crate) fn try_add(&mut self, bytes: usize) -> bool {
        let Some(mut more) = self.budgets.try_reserve(bytes) else {
            return false;
        };
        self.bytes += std::mem::take(&mut more.bytes);
        true
    }

    /// Takes a part of it, to be counted until that part is dropped.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { budgets: Arc::clone(&self.budgets), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn budgets(connection: &Arc<Budget>, total: &Arc<Budget>) -> Arc<Budgets> {
        let caller = Some(Arc::new(Budget::new(3 * MIB)));
        Arc::new(Budgets { connection: Some(Arc::clone(connection)), caller, total: Arc::clone(total) })
    }

    #[tokio::test]
    async fn a_charge_counts_in_every_budget_until_it_is_dropped() {
        let (connection, total) = (Arc::new(Budget::new(2 * MIB)), Arc::new(Budget::new(4 * MIB)));
        let mut charge = budgets(&connection, &total).reserve(MIB).await;
        charge.set(2 * MIB);
        assert_eq!((connection.used(), total.used()), (2 * MIB, 2 * MIB));
        let part = charge.split(MIB / 2);
        drop(charge);
        assert_eq!((connection.used(), total.used()), (MIB / 2, MIB / 2));
        drop(part);
        assert_eq!((connection.used(), total.used()), (0, 0));
    }

    #[tokio::test]
    async fn what_waits_for_its_connection_takes_nothing_of_the_total() {
        let (connection, total) = (Arc::new(Budget::new(MIB)), Arc::new(Budget::new(4 * MIB)));
        let budgets = budgets(&connection, &total);
        let first = budgets.reserve(MIB).await;
        let mut second = pin!(budgets.reserve(MIB));
        let is_pending = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
        assert_eq!(total.used(), MIB);
        drop(first);
        drop(second.await);
        assert_eq!((connection.used(), total.used()), (0, 0));
    }

    #[tokio::test]
    async fn a_reservation_given_up_half_way_leaves_nothing_behind() {
        let (connection, total) = (Arc::new(Budget::new(2 * MIB)), Arc::new(Budget::new(MIB)));
        let budgets = budgets(&connection, &total);
        let first = budgets.reserve(MIB).await;
        assert!(budgets.try_reserve(MIB).is_none());
        {
            let mut second = pin!(budgets.reserve(MIB));
            let is_pending = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            assert_eq!(connection.used(), 2 * MIB, "it has its connection, and waits for the total");
        }
        assert_eq!((connection.used(), total.used()), (MIB, MIB));
        drop(first);
    }
}
