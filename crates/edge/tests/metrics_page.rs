//! docs/OPERATIONS.md lists every metric there is, with its help.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use macp_edge::{Server, Settings};
use macp_ledger::MemoryStore;

#[tokio::test(flavor = "multi_thread")]
async fn the_operations_guide_lists_every_metric() {
    let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
    let server = Server::start(settings, Arc::new(MemoryStore::new())).await.expect("started");
    let address = server.local_addr();
    let scraped = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).expect("connected");
        let request =
            "GET /metrics HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text\r\nconnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("answered");
        text
    });
    let scraped = scraped.await.expect("no panic");
    let served: BTreeSet<(String, String)> = scraped
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
        .map(|(name, help)| (name.to_owned(), help.trim_end_matches('.').to_owned()))
        .collect();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
    let guide = std::fs::read_to_string(guide).expect("readable");
    let listed: BTreeSet<(String, String)> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| macp_")?.strip_suffix(" |")?.split_once(" | "))
        .map(|(name, help)| (format!("macp_{name}"), help.to_owned()))
        .collect();
    assert!(!served.is_empty());
    assert_eq!(listed, served);
    server.shut_down().await.expect("stopped");
}
