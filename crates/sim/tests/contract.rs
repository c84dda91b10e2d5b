//! The simulated disk keeps the contract of every store.

use macp_ledger::contract;
use macp_sim::Disk;

#[test]
fn the_simulated_disk_is_a_store() {
    contract::run(|| Box::new(Disk::new(None)));
}
