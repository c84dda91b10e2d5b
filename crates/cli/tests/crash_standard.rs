//! The real server under load with sessions by today's standard, killed with SIGKILL at random moments, again and again
//! (REC-2, LIFE-2, REPLAY-7, STD-CORE-28, STD-HAND-11, STD-POL-4).
//!
//! After each restart: every acknowledged message, pause and resumption is in its history exactly once and in order, and
//! what was acknowledged as suspended still is; offers nobody answered are accepted by the runtime exactly once and as of
//! the moment they were due, also when nothing was running then; policies are there; chains verify and replay matches.
//!
//! `MACP_CRASH_ROUNDS` sets how often the server is killed, `MACP_CRASH_SEED` repeats the choices of an earlier run.

#[path = "crash/choices.rs"]
mod choices;
#[path = "crash/model.rs"]
mod model;
#[path = "cli/support.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use choices::{Choices, number};
use macp_client::{Client, Error};
use macp_wire::history::v1::{LogEntry, ReplayVerdict, entry};
use macp_wire::modes::handoff::v1::{HandoffAcceptPayload, HandoffContextPayload};
use macp_wire::v1::{Ack, Envelope, PolicyDescriptor, SessionState};
use model::*;
use support::{PATIENCE, Server, macp};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CLIENTS: u64 = 16;
const ROUNDS_DEFAULT: u64 = 3;
/// The server is killed after this many acknowledgements of a round, give or take.
const ACKNOWLEDGED_MIN: u64 = 200;
const ACKNOWLEDGED_SPREAD: u64 = 500;
/// Sessions of earlier rounds are checked by samples, and all of them after the last round: a long run stays linear.
const OLDER_CHECKED_ONE_IN: u64 = 20;

/// What clients were told, over all rounds.
#[derive(Default)]
struct Told {
    /// Acknowledged acts by session, in the order the session's only client did them.
    done: BTreeMap<String, Vec<Done>>,
    /// Done, outcome unknown.
    unknown: BTreeMap<String, Act>,
    /// Whether policies are registered, where that is known.
    policies: BTreeMap<String, Option<bool>>,
}

/// In local development the token is the name.
#[derive(Clone)]
struct People(BTreeMap<&'static str, Client>);

impl People {
    async fn at(server: &Server) -> People {
        let client = Client::connect(server.uri()).await.unwrap();
        People(["alice", "bob", "carol"].map(|name| (name, client.clone().with_token(name).unwrap())).into())
    }

    fn alice(&self) -> &Client {
        &self.0["alice"]
    }

    async fn act(&self, session: &str, act: &Act) -> Result<Ack, Error> {
        match act {
            Act::Say(envelope) => self.0[envelope.sender.as_str()].submit(envelope.clone()).await,
            Act::Suspend(reason) => self.alice().suspend(session, reason).await,
            Act::Resume(reason) => self.alice().resume(session, reason).await,
        }
    }

    /// Does something for the first time. Tells whether it was done: silence may answer an offer before its target does.
    async fn attempt(&self, session: &str, done: &mut Vec<Done>, act: Act) -> Result<bool, Error> {
        let answer_before_ms = if act.says("HandoffAccept") { consent_due_ms(done) } else { None };
        match (self.act(session, &act).await, answer_before_ms) {
            (Ok(ack), _) => {
                assert!(!ack.duplicate, "{session}: {ack:?}");
                let at_ms = ack.accepted_at_unix_ms;
                assert!(answer_before_ms.is_none_or(|due_ms| at_ms < due_ms), "{session}: answered late: {ack:?}");
                done.push(Done { act, at_ms });
                assert_eq!(ack.session_state(), state(done), "{session}: {ack:?}");
                Ok(true)
            }
            (Err(Error::Refused(refusal)), Some(due_ms)) => {
                assert!(refusal.code == "INVALID_ENVELOPE" && due_ms <= now_ms(), "{session}: {refusal}");
                Ok(false)
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn must(&self, session: &str, done: &mut Vec<Done>, act: Act) {
        assert!(self.attempt(session, done, act).await.unwrap_or_else(|error| panic!("{session}: {error}")));
    }

    async fn must_not(&self, session: &str, act: &Act, code: &str) {
        let error = self.act(session, act).await.expect_err("a refusal");
        assert_eq!(error.code(), Some(code), "{session}: {act:?}: {error}");
    }
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rec_2_standard_sessions_lose_nothing_acknowledged_and_time_goes_on_without_a_server() {
    let rounds = number("MACP_CRASH_ROUNDS", || ROUNDS_DEFAULT);
    let seed = number("MACP_CRASH_SEED", || uuid::Uuid::new_v4().as_u64_pair().0);
    println!("MACP_CRASH_SEED={seed} MACP_CRASH_ROUNDS={rounds}");
    let mut choices = Choices(seed);
    let data = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    let mut server = Server::on(data.path());
    let mut people = People::at(&server).await;
    for silence_ms in SILENCES_MS {
        let policy = silence(&format!("{SILENCE}{silence_ms}"), silence_ms);
        told.lock().unwrap().policies.insert(policy.policy_id.clone(), Some(true));
        people.alice().register_policy(policy).await.unwrap();
    }
    let mut asleep_in_all = 0;
    for round in 0..rounds {
        // Every other outage outlasts all offers.
        let outlast = round % 2 == 0;
        load_until_killed(server, people, round, outlast, &mut choices, &told).await;
        let down_at_ms = now_ms();
        let due = due_after(&told.lock().unwrap(), down_at_ms);
        if outlast && let Some(last_ms) = due.iter().map(|(_, due_ms)| *due_ms).max() {
            let left_ms = u64::try_from(last_ms - now_ms()).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(left_ms + 1)).await;
        }
        let up_at_ms = now_ms();
        server = Server::on(data.path());
        people = People::at(&server).await;
        let asleep: Vec<_> = due.into_iter().filter(|(_, due_ms)| *due_ms < up_at_ms).collect();
        for (session, _) in &asleep {
            // STD-HAND-14: reading a log is no touch, so only the timer can have done it.
            accepted_by_silence(people.alice(), session).await;
        }
        asleep_in_all += asleep.len();
        check_policies(people.alice(), &told).await;
        let last = round + 1 == rounds;
        let (checked, unknown) = check_sessions(&people, &told, &mut choices, round, last).await;
        let asleep = asleep.len();
        println!("round {round}: {asleep} offers due while down, {unknown} outcomes unknown, {checked} acts checked");
        let race = format!("crash-standard-the-race-{round}");
        let mut done = Vec::new();
        for act in votes(&race) {
            people.must(&race, &mut done, act).await;
        }
        terminal_race(people.alice(), &race, done.len()).await;
    }
    assert!(asleep_in_all > 0, "no offer came due while the server was down");
    let (survivor, acts) = survivor(&told.lock().unwrap());
    terminal_race(people.alice(), &survivor, acts).await;
    server.kill();
    let all = macp(&["--json", "verify", "--data", data.path().to_str().unwrap(), "--all"]).exits(0).value();
    assert_eq!(all["ok"], true);
    let sessions = told.lock().unwrap().done.len() as u64 + rounds;
    assert_eq!(all["sessions"].as_u64(), Some(sessions), "{all}");
}

/// When a round has gone on for long enough.
struct Progress {
    acknowledged: AtomicU64,
    target: u64,
    /// Only right after an offer, so that it is still unanswered.
    at_offer: bool,
    enough: Notify,
}

/// Clients drive sessions until enough was acknowledged; then the server dies in the middle of it.
async fn load_until_killed(
    server: Server,
    people: People,
    round: u64,
    at_offer: bool,
    choices: &mut Choices,
    told: &Arc<Mutex<Told>>,
) {
    let target = ACKNOWLEDGED_MIN + choices.below(ACKNOWLEDGED_SPREAD);
    let progress = Arc::new(Progress { acknowledged: AtomicU64::new(0), target, at_offer, enough: Notify::new() });
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        // Half of them share a connection.
        let people = if number % 2 == 0 { people.clone() } else { People::at(&server).await };
        let choices = Choices(choices.below(u64::MAX));
        clients.spawn(drive(people, format!("r{round}-c{number}"), choices, told.clone(), progress.clone()));
    }
    tokio::select! {
        () = progress.enough.notified() => {}
        // Clients end only when the server does.
        ended = clients.join_next() => panic!("a client ended before the server: {ended:?}"),
    }
    server.kill();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// One client: session after session, and a policy now and then, until the server is gone.
async fn drive(people: People, name: String, mut choices: Choices, told: Arc<Mutex<Told>>, progress: Arc<Progress>) {
    for number in 0.. {
        if choices.one_in(8) && !change_policies(people.alice(), &format!("crash.{name}-{number}"), &told).await {
            return;
        }
        let session = format!("crash-standard-{name}-s{number}");
        let mut done = Vec::new();
        for act in script(&session, &mut choices) {
            match people.attempt(&session, &mut done, act.clone()).await {
                Ok(true) => {
                    told.lock().unwrap().done.insert(session.clone(), done.clone());
                    let acknowledged = progress.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
                    if acknowledged >= progress.target && (!progress.at_offer || act.says("HandoffOffer")) {
                        progress.enough.notify_one();
                    }
                }
                Ok(false) => break,
                Err(error) if error.is_disconnected() => {
                    told.lock().unwrap().unknown.insert(session, act);
                    return;
                }
                Err(error) => panic!("{session}: {act:?}: {error}"),
            }
        }
    }
}

/// Registers a policy and, as its name has it, forgets it again. Returns whether the server is still there.
async fn change_policies(alice: &Client, id: &str, told: &Mutex<Told>) -> bool {
    let known = |fate| told.lock().unwrap().policies.insert(id.to_owned(), fate);
    known(None);
    let mut changed = alice.register_policy(silence(id, 77)).await;
    if changed.is_ok() && id.ends_with(['0', '2', '4', '6', '8']) {
        // Settled by the check after the restart, as long as the answer is not there.
        changed = alice.unregister_policy(id).await;
        changed.is_ok().then(|| known(Some(false)));
    } else if changed.is_ok() {
        known(Some(true));
    }
    match changed {
        Ok(()) => true,
        Err(error) if error.is_disconnected() => false,
        Err(error) => panic!("{id}: {error}"),
    }
}

/// Open sessions whose offer is due after this moment, none of its messages being in doubt.
fn due_after(told: &Told, moment_ms: i64) -> Vec<(String, i64)> {
    let certain = told.done.iter().filter(|(session, _)| !told.unknown.contains_key(*session));
    let open = certain.filter(|(_, done)| state(done) == SessionState::Open);
    open.filter_map(|(session, done)| Some((session.clone(), consent_due_ms(done)?)))
        .filter(|(_, due_ms)| *due_ms > moment_ms)
        .collect()
}

/// Waits until the runtime has accepted a session's offer, without touching the session.
async fn accepted_by_silence(alice: &Client, session: &str) {
    let began = Instant::now();
    while read(&alice.whole_log(session).await.unwrap()).1.is_empty() {
        assert!(began.elapsed() < PATIENCE, "{session}: the offer is due and not accepted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Policies are there or not, as was acknowledged, and are what they were.
async fn check_policies(alice: &Client, told: &Mutex<Told>) {
    let listed = alice.list_policies("").await.unwrap();
    let mut listed: BTreeMap<_, _> = listed.into_iter().map(|policy| (policy.policy_id.clone(), policy)).collect();
    let mut told = told.lock().unwrap();
    for (id, fate) in &mut told.policies {
        let found = listed.remove(id);
        assert_eq!(found.is_some(), *fate.get_or_insert(found.is_some()), "{id}");
        let Some(found) = found else { continue };
        let timeout_ms = id.strip_prefix(SILENCE).map_or(77, |silence_ms| silence_ms.parse().unwrap());
        assert!(found.registered_at_unix_ms > 0, "{found:?}");
        assert_eq!(PolicyDescriptor { registered_at_unix_ms: 0, ..found }, silence(id, timeout_ms));
    }
    assert!(listed.contains_key(MAJORITY));
    listed.retain(|id, _| id.starts_with("crash."));
    assert!(listed.is_empty(), "nobody registered {listed:?}");
}

/// Compares sessions with what their clients were told, all those with an unknown outcome among them. Returns how many
/// acts were compared and how many outcomes were unknown.
async fn check_sessions(
    people: &People,
    told: &Mutex<Told>,
    choices: &mut Choices,
    round: u64,
    last: bool,
) -> (usize, usize) {
    let (done, unknown) = {
        let mut told = told.lock().unwrap();
        (told.done.clone(), std::mem::take(&mut told.unknown))
    };
    let mut checked = 0;
    let mut settled: BTreeMap<String, Vec<Done>> = BTreeMap::new();
    let sessions: BTreeSet<&String> = done.keys().chain(unknown.keys()).collect();
    for session in sessions {
        let recent = session.starts_with(&format!("crash-standard-r{round}-")) || unknown.contains_key(session);
        if recent || last || choices.one_in(OLDER_CHECKED_ONE_IN) {
            let before = done.get(session).map(Vec::as_slice).unwrap_or_default();
            checked += before.len();
            let mut done = settle(people, session, before, unknown.get(session)).await;
            go_on(people, session, &mut done, last || choices.one_in(2)).await;
            settled.insert(session.clone(), done);
        }
    }
    // Once all of them go on, so that they wait for their silences together.
    for (session, done) in &mut settled {
        check_consent(people, session, done, choices.one_in(3)).await;
        let verified = people.alice().verify(session).await.unwrap();
        let ended = state(done) == SessionState::Resolved;
        assert!(verified.ok && verified.sealed == ended, "{session}: {verified:?}");
        let replayed = people.alice().replay_report(session).await.unwrap();
        assert_eq!(replayed.verdict(), ReplayVerdict::Match, "{session}: {replayed:?}");
    }
    told.lock().unwrap().done.extend(settled);
    (checked, unknown.len())
}

/// What clients were told is there and nothing else; what they were not told is done now if it is not. Returns all that
/// is done.
async fn settle(people: &People, session: &str, before: &[Done], unknown: Option<&Act>) -> Vec<Done> {
    let log = match people.alice().whole_log(session).await {
        Ok(log) => log,
        Err(error) if before.is_empty() && error.is_not_found() => Vec::new(),
        Err(error) => panic!("{session}: {error}"),
    };
    let (mut done, _) = read(&log);
    assert!(
        done.starts_with(before),
        "{session}: something acknowledged is missing, changed or out of place: {done:?}"
    );
    // What comes after is the one whose answer was lost, whole, or nothing.
    let rest = &done[before.len()..];
    assert!(rest.is_empty() || (rest.len() == 1 && Some(&rest[0].act) == unknown), "{session}: {rest:?}");
    let lost = unknown.filter(|_| rest.is_empty());

    for Done { act, at_ms } in &done {
        if let Act::Say(_) = act {
            let ack = people.act(session, act).await.unwrap_or_else(|error| panic!("{session}: {act:?}: {error}"));
            assert!(ack.duplicate, "{session}: forgotten: {ack:?}");
            assert_eq!(ack.accepted_at_unix_ms, *at_ms, "{session}: {ack:?}");
        }
    }
    if let Some(act) = lost {
        let outcome = people.attempt(session, &mut done, act.clone()).await;
        outcome.unwrap_or_else(|error| panic!("{session}: {act:?}: {error}"));
    }
    check_standing(people, session, &done).await;
    done
}

/// State, deadline and policy are as what was done makes them.
async fn check_standing(people: &People, session: &str, done: &[Done]) {
    let metadata = people.alice().get_session(session).await.unwrap();
    assert_eq!(metadata.state(), state(done), "{session}");
    assert_eq!(metadata.expires_at_unix_ms, deadline_ms(done), "{session}: {done:?}");
    assert_eq!(metadata.policy_version, started_with(&done[0].act).1.policy_version);
}

/// Sessions go on where they stood.
async fn go_on(people: &People, session: &str, done: &mut Vec<Done>, resume: bool) {
    let has = |done: &[Done], message_type| done.iter().any(|done| done.act.says(message_type));
    let commitment = commitment(session, &done[0].act);
    if state(done) == SessionState::Suspended {
        people.must_not(session, &commitment, "SESSION_NOT_OPEN").await;
        people.must_not(session, &Act::Suspend("again".to_owned()), "SESSION_NOT_OPEN").await;
        if resume {
            people.must(session, done, Act::Resume("after the crash".to_owned())).await;
        }
    } else if state(done) == SessionState::Open && has(done, "HandoffOffer") {
        let context = HandoffContextPayload { handoff_id: "h1".into(), ..Default::default() };
        people.must(session, done, say(session, HANDOFF, "alice", "HandoffContext", &context)).await;
    } else if state(done) == SessionState::Open && has(done, "Proposal") && !has(done, "Vote") {
        people.must(session, done, evaluation(session)).await;
        // STD-POL-4, STD-POL-17: the policy still binds.
        people.must_not(session, &commitment, "POLICY_DENIED").await;
    }
    check_standing(people, session, done).await;
}

/// STD-HAND-11, STD-HAND-12: an offer is accepted once, by its target or by silence, and then as of when it was due.
async fn check_consent(people: &People, session: &str, done: &mut Vec<Done>, commit: bool) {
    let due_ms = consent_due_ms(done);
    if due_ms.is_some() && state(done) == SessionState::Open {
        accepted_by_silence(people.alice(), session).await;
    }
    let (kept, synthetic) = read(&people.alice().whole_log(session).await.unwrap());
    assert_eq!(kept, *done, "{session}");
    let Some(due_ms) = due_ms else {
        return assert!(synthetic.is_empty(), "{session}: answered, paused or never offered, and yet {synthetic:?}");
    };
    // While it is suspended nothing happens; what was due before may wait for the end of the pause.
    if state(done) == SessionState::Suspended && synthetic.is_empty() {
        return;
    }
    let payload = HandoffAcceptPayload {
        handoff_id: "h1".to_owned(),
        accepted_by: "bob".to_owned(),
        reason: "implicit accept (timeout)".to_owned(),
        implicit: true,
    };
    let Act::Say(accept) = say(session, HANDOFF, "bob", "HandoffAccept", &payload) else { unreachable!() };
    let accept = Envelope { message_id: "implicit-accept:h1".to_owned(), timestamp_unix_ms: due_ms, ..accept };
    assert_eq!(synthetic, [Done { act: Act::Say(accept), at_ms: due_ms }], "{session}: {done:?}");
    if commit && state(done) == SessionState::Open {
        people.must(session, done, commitment(session, &done[0].act.clone())).await;
    }
}

/// What clients did, and what the runtime said by itself. Sequences and ordinals must be without gaps, and each entry
/// somebody's.
fn read(log: &[LogEntry]) -> (Vec<Done>, Vec<Done>) {
    let (mut done, mut synthetic) = (Vec::new(), Vec::new());
    let mut ordinal = 0;
    for (sequence, logged) in (1..).zip(log) {
        let entry = logged.entry.as_ref().expect("an entry");
        assert_eq!(entry.sequence, sequence);
        let (by, act) = match entry.input.clone().expect("an input") {
            entry::Input::Envelope(envelope) => (envelope.sender.clone(), Act::Say(envelope)),
            entry::Input::SessionSuspend(suspend) => (suspend.suspended_by, Act::Suspend(suspend.reason)),
            entry::Input::SessionResume(resume) => (resume.resumed_by, Act::Resume(resume.reason)),
            other => panic!("nobody asked for {other:?}"),
        };
        let is_message = matches!(act, Act::Say(_));
        ordinal += u64::from(is_message);
        assert_eq!(entry.ordinal, if is_message { ordinal } else { 0 }, "STD-CORE-37");
        assert_eq!(entry.identity, if entry.synthetic { "" } else { &by });
        let kept = if entry.synthetic { &mut synthetic } else { &mut done };
        kept.push(Done { act, at_ms: entry.accepted_at_unix_ms });
    }
    (done, synthetic)
}

/// An open decision with a vote that has lived through a crash, and how many acts it has seen.
fn survivor(told: &Told) -> (String, usize) {
    let ready = |done: &[Done]| state(done) == SessionState::Open && done.iter().any(|done| done.act.says("Vote"));
    let found = told.done.iter().find(|(_, done)| ready(done)).expect("some decision is open and has a vote");
    (found.0.clone(), found.1.len())
}

/// LIFE-2: a hundred commitments at once to a decision with so many entries; one wins.
async fn terminal_race(alice: &Client, session: &str, entries: usize) {
    const RACERS: usize = 100;
    let mut racers = JoinSet::new();
    for _ in 0..RACERS {
        let Act::Say(envelope) = commitment(session, &start(session, DECISION, MAJORITY)) else { unreachable!() };
        let alice = alice.clone();
        racers.spawn(async move { (envelope.clone(), alice.send(envelope).await.unwrap()) });
    }
    let mut winners = Vec::new();
    while let Some(raced) = racers.join_next().await {
        let (envelope, ack) = raced.unwrap();
        assert_eq!(ack.session_state(), SessionState::Resolved, "{ack:?}");
        match ack.error {
            None => winners.push(Done { act: Act::Say(envelope), at_ms: ack.accepted_at_unix_ms }),
            Some(error) => assert_eq!(error.code, "SESSION_NOT_OPEN"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    let (kept, _) = read(&alice.whole_log(session).await.unwrap());
    assert_eq!(kept.len(), entries + 1);
    assert_eq!(kept.last(), winners.first());
    assert!(alice.verify(session).await.unwrap().sealed);
    assert_eq!(alice.replay_report(session).await.unwrap().verdict(), ReplayVerdict::Match);
}
