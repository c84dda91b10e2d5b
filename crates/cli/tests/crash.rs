//! The real server under load, killed with SIGKILL at random moments, again and again (REC-2, LIFE-2, REPLAY-7).
//!
//! After each restart: every acknowledged message is in its history exactly once and its message id still answers as a
//! duplicate, nothing unacknowledged is there twice or in part, open sessions go on, chains verify and replay matches.
//!
//! `MACP_CRASH_ROUNDS` sets how often the server is killed, `MACP_CRASH_SEED` repeats the choices of an earlier run.

#[path = "crash/choices.rs"]
mod choices;
#[path = "cli/support.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use choices::{Choices, number};
use macp_client::{Client, Draft, Error, envelope};
use macp_wire::history::v1::{LogEntry, ReplayVerdict, entry};
use macp_wire::v1::{CommitmentPayload, Envelope, SessionState};
use support::{Server, macp};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CLIENTS: u64 = 24;
const ROUNDS_DEFAULT: u64 = 3;
/// The server is killed after this many acknowledgements of a round, give or take.
const ACKNOWLEDGED_MIN: u64 = 300;
const ACKNOWLEDGED_SPREAD: u64 = 1_200;
/// Sessions of earlier rounds are checked by samples, and all of them after the last round: a long run stays linear.
const OLDER_CHECKED_ONE_IN: u64 = 20;
/// Longer than any run takes.
const TTL_MS: i64 = 86_400_000;

/// What clients were told, over all rounds.
#[derive(Default)]
struct Told {
    /// Acknowledged envelopes by session, in the order the session's only client sent them.
    acknowledged: BTreeMap<String, Vec<Envelope>>,
    /// Sent, outcome unknown.
    unknown: BTreeMap<String, Envelope>,
}

#[tokio::test(flavor = "multi_thread")]
async fn rec_2_nothing_acknowledged_is_lost_and_nothing_happens_twice() {
    let rounds = number("MACP_CRASH_ROUNDS", || ROUNDS_DEFAULT);
    let seed = number("MACP_CRASH_SEED", || uuid::Uuid::new_v4().as_u64_pair().0);
    println!("MACP_CRASH_SEED={seed} MACP_CRASH_ROUNDS={rounds}");
    let mut choices = Choices(seed);
    let data = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    let mut server = Server::on(data.path());
    for round in 0..rounds {
        let target = ACKNOWLEDGED_MIN + choices.below(ACKNOWLEDGED_SPREAD);
        let began = told.lock().unwrap().acknowledged.values().map(Vec::len).sum::<usize>();
        load_until_killed(server, round, target, &mut choices, &told).await;
        server = Server::on(data.path());
        let client = Client::connect(server.uri()).await.unwrap();
        let last = round + 1 == rounds;
        let (checked, unknown) = check_sessions(&client, &told, |session| {
            last || session.starts_with(&format!("r{round}-")) || choices.one_in(OLDER_CHECKED_ONE_IN)
        })
        .await;
        println!("round {round}: {began} messages before, {unknown} outcomes unknown, {checked} messages checked");
        terminal_race(&client, &format!("race-{round}"), None).await;
    }
    let survivor = survivor(&told.lock().unwrap());
    let client = Client::connect(server.uri()).await.unwrap();
    terminal_race(&client, &survivor.0, Some(survivor.1)).await;
    server.kill();
    check_offline(data.path());
}

/// Clients drive sessions until enough was acknowledged; then the server dies in the middle of it.
async fn load_until_killed(server: Server, round: u64, target: u64, choices: &mut Choices, told: &Arc<Mutex<Told>>) {
    let enough = Arc::new(Notify::new());
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (uri, told, enough, acknowledged) = (server.uri(), told.clone(), enough.clone(), acknowledged.clone());
        let seed = choices.below(u64::MAX);
        clients.spawn(async move {
            let client = Client::connect(uri).await.unwrap();
            let mut choices = Choices(seed);
            for session in 0.. {
                let session = format!("r{round}-c{number}-s{session}");
                for envelope in script(&session, &mut choices) {
                    match client.send(envelope.clone()).await {
                        Ok(ack) => {
                            assert!(ack.ok && !ack.duplicate, "{ack:?}");
                            told.lock().unwrap().acknowledged.entry(session.clone()).or_default().push(envelope);
                            if acknowledged.fetch_add(1, Ordering::Relaxed) + 1 == target {
                                enough.notify_one();
                            }
                        }
                        Err(Error::Status(_) | Error::Connect { .. }) => {
                            told.lock().unwrap().unknown.insert(session, envelope);
                            return;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    tokio::select! {
        () = enough.notified() => {}
        // Clients end only when the server does.
        ended = clients.join_next() => panic!("a client ended before the server: {ended:?}"),
    }
    server.kill();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// One decision: some are committed, some stay open.
fn script(session: &str, choices: &mut Choices) -> Vec<Envelope> {
    let start = envelope::Start { ttl_ms: TTL_MS, ..envelope::Start::default() };
    let mut drafts = vec![
        envelope::start(session, "decision", "alice", start),
        envelope::proposal(session, "alice", "p1", "Deploy", ""),
    ];
    for _ in 0..choices.below(6) {
        drafts.push(envelope::evaluation(session, "bob", "p1", "APPROVE", 0.5, "fine"));
    }
    drafts.push(envelope::vote(session, "bob", "p1", "approve", ""));
    if choices.one_in(2) {
        drafts.push(commitment(session));
    }
    drafts.into_iter().map(Draft::build).collect()
}

fn commitment(session: &str) -> Draft {
    let payload = CommitmentPayload { commitment_id: "c1".to_owned(), ..CommitmentPayload::default() };
    envelope::commitment(session, "alice", &payload)
}

/// Compares sessions with what their clients were told, all those with an unknown outcome among them. Returns how many
/// messages were compared and how many outcomes were unknown.
async fn check_sessions(client: &Client, told: &Mutex<Told>, mut wanted: impl FnMut(&str) -> bool) -> (usize, usize) {
    let (acknowledged, unknown) = {
        let mut told = told.lock().unwrap();
        (told.acknowledged.clone(), std::mem::take(&mut told.unknown))
    };
    let sessions: BTreeSet<&String> = acknowledged.keys().chain(unknown.keys()).collect();
    let mut checked = 0;
    for session in sessions.into_iter().filter(|session| unknown.contains_key(*session) || wanted(session)) {
        let sent = acknowledged.get(session).map(Vec::as_slice).unwrap_or_default();
        let settled = check_session(client, session, sent, unknown.get(session)).await;
        checked += sent.len();
        told.lock().unwrap().acknowledged.entry(session.clone()).or_default().extend(settled);
    }
    (checked, unknown.len())
}

/// Returns what was acknowledged while checking.
async fn check_session(client: &Client, session: &str, sent: &[Envelope], unknown: Option<&Envelope>) -> Vec<Envelope> {
    let mut settled = Vec::new();
    let log = match client.whole_log(session).await {
        Ok(log) => log,
        Err(error) if sent.is_empty() && error.is_not_found() => Vec::new(),
        Err(error) => panic!("{session}: {error}"),
    };
    let kept = envelopes(&log);
    assert_eq!(log.len(), kept.len(), "{session}: nothing but messages");
    assert!(kept.starts_with(sent), "{session}: an acknowledged message is missing, changed or out of place");
    // What comes after is the one whose answer was lost, whole, or nothing.
    let rest = &kept[sent.len()..];
    assert!(rest.is_empty() || (rest.len() == 1 && Some(&rest[0]) == unknown), "{session}: {rest:?}");

    for envelope in sent {
        let ack = client.send(envelope.clone()).await.unwrap();
        assert!(ack.ok && ack.duplicate, "{session}: {} is forgotten: {ack:?}", envelope.message_id);
    }
    if let Some(envelope) = unknown {
        let ack = client.send(envelope.clone()).await.unwrap();
        assert!(ack.ok, "{session}: {ack:?}");
        assert_eq!(ack.duplicate, !rest.is_empty(), "{session}: duplicate exactly if it is in the history");
        settled.push(envelope.clone());
    }
    assert_eq!(envelopes(&client.whole_log(session).await.unwrap()).len(), sent.len() + settled.len());
    if client.get_session(session).await.unwrap().state() == SessionState::Open && has_proposal(sent) {
        let message = envelope::evaluation(session, "carol", "p1", "REVIEW", 0.1, "after the crash").build();
        let ack = client.submit(message.clone()).await.unwrap();
        assert!(!ack.duplicate);
        settled.push(message);
    }
    let verified = client.verify(session).await.unwrap();
    assert!(verified.ok, "{session}: {verified:?}");
    let replayed = client.replay_report(session).await.unwrap();
    assert_eq!(replayed.verdict(), ReplayVerdict::Match, "{session}: {replayed:?}");
    settled
}

fn has_proposal(sent: &[Envelope]) -> bool {
    sent.iter().any(|envelope| envelope.message_type == "Proposal")
}

/// The envelopes of a log, in order; sequences must be without gaps.
fn envelopes(log: &[LogEntry]) -> Vec<Envelope> {
    let entries = log.iter().map(|logged| logged.entry.as_ref().expect("an entry"));
    let numbered = (1..).zip(entries).inspect(|(sequence, entry)| assert_eq!(entry.sequence, *sequence));
    numbered
        .filter_map(|(_, entry)| match &entry.input {
            Some(entry::Input::Envelope(envelope)) => Some(envelope.clone()),
            _ => None,
        })
        .collect()
}

/// An open session with a vote that has lived through a crash, and how many messages it has.
fn survivor(told: &Told) -> (String, usize) {
    let ready = |sent: &[Envelope]| {
        let has = |wanted: &str| sent.iter().any(|envelope| envelope.message_type == wanted);
        has("Vote") && !has("Commitment")
    };
    let found = told.acknowledged.iter().find(|(_, sent)| ready(sent)).expect("some session is open and has a vote");
    (found.0.clone(), found.1.len())
}

/// LIFE-2: a hundred commitments at once, one wins, in a new session or in one that is there with so many messages.
async fn terminal_race(client: &Client, session: &str, there: Option<usize>) {
    const RACERS: usize = 100;
    let before = match there {
        Some(messages) => messages,
        None => {
            let start = envelope::Start { ttl_ms: TTL_MS, ..envelope::Start::default() };
            client.submit(envelope::start(session, "decision", "alice", start)).await.unwrap();
            client.submit(envelope::proposal(session, "alice", "p1", "Deploy", "")).await.unwrap();
            client.submit(envelope::vote(session, "bob", "p1", "approve", "")).await.unwrap();
            3
        }
    };
    let mut racers = JoinSet::new();
    for _ in 0..RACERS {
        let (client, envelope) = (client.clone(), commitment(session).build());
        racers.spawn(async move { (envelope.message_id.clone(), client.send(envelope).await.unwrap()) });
    }
    let mut winners = Vec::new();
    while let Some(raced) = racers.join_next().await {
        let (message_id, ack) = raced.unwrap();
        assert_eq!(ack.session_state(), SessionState::Resolved, "{ack:?}");
        match ack.error {
            None => winners.push(message_id),
            Some(error) => assert_eq!(error.code, "SESSION_NOT_OPEN"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let log = client.whole_log(session).await.unwrap();
    let kept = envelopes(&log);
    assert_eq!(kept.len(), before + 1);
    assert_eq!(kept.last().map(|envelope| &envelope.message_id), winners.first());
    assert!(client.verify(session).await.unwrap().sealed);
    assert_eq!(client.replay_report(session).await.unwrap().verdict(), ReplayVerdict::Match);
}

/// What a killed server left behind proves itself without one.
fn check_offline(data: &Path) {
    let data = data.to_str().unwrap();
    let all = macp(&["--json", "verify", "--data", data, "--all"]).exits(0).value();
    assert_eq!(all["ok"], true);
    assert!(all["sessions"].as_u64().unwrap() > 0);
}
