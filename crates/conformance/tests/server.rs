//! Every fixture on a real server, over its RPCs, with histories on a disk.

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use macp_client::Client;
use macp_conformance::{GrpcDriver, Level, Report, Set, Summary, Tally, run};
use macp_edge::{Server, Settings};
use macp_ledger::SqliteStore;
use tokio::task::JoinSet;

struct Running {
    server: Server,
    driver: GrpcDriver,
    /// Goes with the test.
    _directory: tempfile::TempDir,
}

async fn start() -> Running {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path()).expect("a store");
    let settings = Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), ..Settings::default() };
    let server = Server::start(settings, Arc::new(store)).await.expect("the server starts");
    let client = Client::connect(format!("http://{}", server.local_addr())).await.expect("it listens");
    Running { server, driver: GrpcDriver::new(client), _directory: directory }
}

/// All at once: each fixture has a session and a policy of its own.
async fn play(set: &Set, driver: &GrpcDriver) -> Tally {
    let mut running = JoinSet::new();
    for (name, fixture) in set.fixtures.clone() {
        let mut driver = driver.clone();
        running.spawn(async move {
            let level = Level::of(&name).expect("loaded fixtures have one");
            run(&name, level, &fixture, &mut driver).await
        });
    }
    let reports: Vec<Report> = running.join_all().await;
    common::judge(&reports);
    Summary::of(&reports).total()
}

#[tokio::test]
async fn std_conf_3_every_fixture_holds_over_grpc() {
    let running = start().await;
    // One fixture of either set sets the clock, which no server lets a client do.
    assert_eq!(play(&common::own(), &running.driver).await, Tally { passed: 6, failed: 0, skipped: 1 });
    if let Some(set) = common::set() {
        let expected = Tally { passed: 39, failed: 0, skipped: 1 };
        assert_eq!(play(set, &running.driver).await, expected);
        // Again on the same server: the policies are there already, and the sessions are others.
        assert_eq!(play(set, &running.driver).await, expected);
    }
    drop(running.driver);
    running.server.shut_down().await.expect("a clean shutdown");
}
