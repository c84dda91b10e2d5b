//! ADM: the order of the checks, no trace of what was refused, duplicates, and Signals.

use std::sync::Arc;

use macp_kernel::{
    Caller, Command, Credential, Door, Input, Limits, ProfileSetting, Registered, Rejection, SignatureCheck,
    SignatureRule, decide, door,
};
use macp_wire::classic::v1::SessionStartPayload;
use macp_wire::codes::Code;
use macp_wire::v1::{Envelope, ProgressPayload, SignalPayload};
use prost::Message;

use crate::world::{
    NOW, SESSION, World, by, commitment, envelope, json, multi_round, participants, proposal, start, start_with, vote,
    with_payload, word,
};

/// One input with one or two things wrong about it.
struct Attempt {
    world: World,
    caller: Caller,
    envelope: Envelope,
    start: SessionStartPayload,
    signature: SignatureCheck,
}

/// One thing that can be wrong: the verdict it gets, and a word its text must hold.
struct Flaw {
    step: &'static str,
    expected: &'static str,
    text: &'static str,
    spoil: fn(&mut Attempt),
}

const fn flaw(step: &'static str, expected: &'static str, text: &'static str, spoil: fn(&mut Attempt)) -> Flaw {
    Flaw { step, expected, text, spoil }
}

/// The steps both kinds of envelope go through, 1 to 5.
const COMMON: [Flaw; 7] = [
    flaw("1 version", "UNSUPPORTED_PROTOCOL_VERSION", "macp_version", |attempt| {
        attempt.envelope.macp_version = "0.9".into();
    }),
    flaw("2 payload", "PAYLOAD_TOO_LARGE", "payload", |attempt| {
        attempt.world.limits.payload_bytes_max = 0;
    }),
    flaw("3 credential", "UNAUTHENTICATED", "bad token", |attempt| {
        attempt.caller.credential = Credential::Refused("bad token".into());
    }),
    flaw("3 sender", "UNAUTHENTICATED", "identity", |attempt| {
        if attempt.caller.credential == Credential::Absent {
            attempt.caller.credential = Credential::Identity("mallory".into());
        }
    }),
    flaw("4 fields", "INVALID_ENVELOPE", "message_id", |attempt| {
        attempt.envelope.message_id = "x".repeat(257);
    }),
    flaw("5 scope", "FORBIDDEN", "not for mode", |attempt| attempt.caller.scope.modes = Some(Arc::default())),
    flaw("5 rate", "RATE_LIMITED", "too many", |attempt| attempt.caller.over_rate = true),
];

const START: [Flaw; 9] = [
    flaw("6 mode", "MODE_NOT_SUPPORTED", "mode", |attempt| {
        attempt.envelope.mode = "macp.mode.unheard_of.v1".into();
    }),
    // Appended rather than set, so that the fields spoilt elsewhere stay in the payload.
    flaw("6 decode", "INVALID_ENVELOPE", "payload of SessionStart", |attempt| {
        attempt.start.intent = "undecodable".into();
    }),
    flaw("6 ttl", "INVALID_ENVELOPE", "ttl_ms", |attempt| attempt.start.ttl_ms = -1),
    flaw("6 version", "INVALID_ENVELOPE", "mode_version", |attempt| {
        attempt.start.mode_version = "9.9.9".into();
    }),
    flaw("6 context", "INVALID_ENVELOPE", "convergence", |attempt| {
        attempt.start.context = r#"{"convergence": 1}"#.into();
    }),
    flaw("7 existence", "INVALID_ENVELOPE", "exists", |attempt| {
        attempt.happened_before(existing());
        attempt.envelope.message_id = "another".into();
    }),
    flaw("8 duplicate", "duplicate", "", |attempt| attempt.happened_before(existing())),
    flaw("9 skew", "INVALID_ENVELOPE", "skew", |attempt| {
        attempt.envelope.timestamp_unix_ms = NOW + 10_000_000;
    }),
    flaw("11 signature", "UNAUTHENTICATED", "signed", |attempt| {
        attempt.world.limits.signatures = SignatureRule::Required;
    }),
];

const MESSAGE: [Flaw; 9] = [
    flaw("7 existence", "SESSION_NOT_FOUND", "nowhere", |attempt| {
        attempt.envelope.session_id = "nowhere".into();
    }),
    flaw("8 duplicate", "duplicate", "", |attempt| attempt.envelope.message_id = "p1".into()),
    flaw("10 ttl", "SESSION_NOT_OPEN", "deadline", |attempt| attempt.world.now = NOW + 60_001),
    flaw("10 state", "SESSION_NOT_OPEN", "resolved", |attempt| {
        attempt.happened_before(commitment("c1"));
    }),
    flaw("11 unknown mode", "MODE_NOT_SUPPORTED", "mode", |attempt| {
        attempt.envelope.mode = "macp.mode.unheard_of.v1".into();
    }),
    flaw("11 other mode", "INVALID_ENVELOPE", "mode", |attempt| {
        attempt.envelope.mode = "multi_round".into();
    }),
    flaw("11 participant", "INVALID_ENVELOPE", "participant", |attempt| {
        attempt.envelope.sender = "stranger".into();
    }),
    flaw("11 signature", "UNAUTHENTICATED", "signed", |attempt| {
        attempt.world.limits.signatures = SignatureRule::Required;
    }),
    flaw("12 mode's own", "INVALID_ENVELOPE", "payload of Vote", |attempt| {
        attempt.envelope.payload = "{".into();
    }),
];

fn existing() -> Envelope {
    multi_round(&participants(&["alice", "bob"]))
}

impl Attempt {
    /// Lets something happen before the attempt, at the usual time and under the usual limits.
    fn happened_before(&mut self, envelope: Envelope) {
        let (now, limits) = (self.world.now, self.world.limits.clone());
        (self.world.now, self.world.limits) = (NOW, Limits::default());
        let settled = self.world.send(envelope);
        assert!(matches!(word(&settled), "accepted" | "duplicate"), "{settled:?}");
        (self.world.now, self.world.limits) = (now, limits);
    }
}

/// A start that would be accepted.
fn good_start() -> Attempt {
    Attempt {
        world: World::new(),
        caller: Caller::anonymous(),
        envelope: Envelope { mode: "multi_round".into(), ..start() },
        start: participants(&["alice", "bob"]),
        signature: SignatureCheck::Absent,
    }
}

/// A message that would be accepted.
fn good_message() -> Attempt {
    let mut world = World::started(start_with(&participants(&["alice", "bob"])));
    world.expect(proposal("p1", "p1"), "accepted");
    world.expect(vote("v1", "p1"), "accepted");
    Attempt {
        world,
        caller: Caller::anonymous(),
        envelope: Envelope { mode: "decision".into(), ..vote("m1", "p1") },
        start: SessionStartPayload::default(),
        signature: SignatureCheck::Absent,
    }
}

fn finish_start(attempt: &mut Attempt) {
    let mut payload = attempt.start.encode_to_vec();
    if attempt.start.intent == "undecodable" {
        payload.push(0xff);
    }
    attempt.envelope.payload = payload.into();
}

fn finish_message(_attempt: &mut Attempt) {}

/// Spoils a good input with every pair of flaws; the earlier must decide.
fn check_order(good: fn() -> Attempt, finish: fn(&mut Attempt), flaws: &[&Flaw]) {
    let mut clean = good();
    finish(&mut clean);
    let Attempt { mut world, caller, envelope, signature, .. } = clean;
    assert_eq!(word(&world.send_signed(caller, envelope, signature)), "accepted", "without a flaw");

    for (at, first) in flaws.iter().enumerate() {
        for second in flaws[at..].iter() {
            // A session that has ended has no deadline any more, so these two exclude each other.
            if (first.step, second.step) == ("10 ttl", "10 state") {
                continue;
            }
            let mut attempt = good();
            // The later flaw goes in first, so that the earlier one has the last word where both set one field.
            (second.spoil)(&mut attempt);
            (first.spoil)(&mut attempt);
            finish(&mut attempt);
            let Attempt { mut world, caller, envelope, signature, .. } = attempt;
            let settled = world.send_signed(caller, envelope, signature);
            let pair = format!("{:?} and {:?}: {settled:?}", first.step, second.step);
            assert_eq!(word(&settled), first.expected, "{pair}");
            if let macp_kernel::Settled::Rejected(rejection) = &settled {
                assert!(rejection.message.contains(first.text), "{pair}");
            }
        }
    }
}

#[test]
fn adm_1_order_of_a_start() {
    let flaws: Vec<&Flaw> = COMMON.iter().chain(&START).collect();
    check_order(good_start, finish_start, &flaws);
}

/// The mode's own look at a start comes last: a multi-round session without participants.
#[test]
fn adm_1_order_of_a_start_ends_with_the_mode() {
    let good = || Attempt { start: SessionStartPayload::default(), ..good_start() };
    for flaw in COMMON.iter().chain(&START) {
        if flaw.step == "2 payload" {
            continue;
        }
        let mut attempt = good();
        (flaw.spoil)(&mut attempt);
        finish_start(&mut attempt);
        let Attempt { mut world, caller, envelope, signature, .. } = attempt;
        let settled = world.send_signed(caller, envelope, signature);
        assert_eq!(word(&settled), flaw.expected, "{}: {settled:?}", flaw.step);
    }
    let rejection = World::new().refused(multi_round(&SessionStartPayload::default()));
    assert!(rejection.message.contains("needs participants"), "{rejection}");
}

#[test]
fn adm_1_order_of_a_message() {
    let flaws: Vec<&Flaw> = COMMON.iter().chain(&MESSAGE).collect();
    check_order(good_message, finish_message, &flaws);
}

/// At the door whoever is refused for who it is hears so, what is malformed is left to its session, and everything else
/// counts against its sender's share.
#[test]
fn adm_1_the_door_is_steps_1_to_5() {
    type Case = (fn() -> Attempt, fn(&mut Attempt), &'static [Flaw]);
    let cases: [Case; 2] = [(good_start, finish_start, &START), (good_message, finish_message, &MESSAGE)];
    for (good, finish, flaws) in cases {
        for flaw in COMMON.iter().chain(flaws) {
            let mut attempt = good();
            (flaw.spoil)(&mut attempt);
            finish(&mut attempt);
            let Attempt { world, caller, envelope, .. } = attempt;
            let judged = door(&envelope, &caller, &world.limits);
            match flaw.step {
                "3 credential" | "3 sender" | "5 scope" => assert_eq!(refused(judged), flaw.expected, "{}", flaw.step),
                step if step.as_bytes()[0] <= b'4' && step.as_bytes()[1] == b' ' => {
                    assert_eq!(judged, Door::Unclear, "{step}");
                }
                step => assert_eq!(judged, Door::Passed(&envelope.sender), "{step}"),
            }
        }
    }
}

fn refused(judged: Door<'_>) -> &'static str {
    match judged {
        Door::Refused(rejection) => rejection.code.as_str(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Who speaks for another is refused at the door only where every session would say so first.
#[test]
fn adm_1_the_door_does_not_get_ahead_of_the_standard_order() {
    let alice = Caller::identified("alice");
    let limits = Limits { profile: ProfileSetting::Auto, ..Limits::default() };
    let spoofed = Envelope { mode: "macp.mode.decision.v1".into(), sender: "bob".into(), ..vote("m1", "p1") };
    assert_eq!(refused(door(&spoofed, &alice, &limits)), "UNAUTHENTICATED");
    for malformed in
        [Envelope { message_id: String::new(), ..spoofed.clone() }, Envelope { mode: String::new(), ..spoofed.clone() }]
    {
        assert_eq!(door(&malformed, &alice, &limits), Door::Unclear, "{malformed:?}");
    }
}

/// Nobody learns by a bad credential whether a session exists: it is refused whatever else is wrong. The order in which
/// depends on what is known here of the session, so that a replay, which may know more, is not held to it.
#[test]
fn adm_1_no_session_answers_nobody() {
    let nobody = Caller { credential: Credential::Refused("bad token".into()), ..Caller::default() };
    for setting in [ProfileSetting::Auto, ProfileSetting::Classic, ProfileSetting::Standard] {
        let limits = Limits { profile: setting, ..Limits::default() };
        for mode in ["macp.mode.decision.v1", "decision", ""] {
            let named = Envelope { mode: mode.into(), ..vote("m1", "p1") };
            let unnamed = Envelope { message_id: String::new(), ..named.clone() };
            let by_standard = setting == ProfileSetting::Standard
                || (setting == ProfileSetting::Auto && mode == "macp.mode.decision.v1");
            let expected =
                |malformed: bool| if by_standard && malformed { "INVALID_ENVELOPE" } else { "UNAUTHENTICATED" };
            assert_eq!(refused(door(&named, &nobody, &limits)), expected(mode.is_empty()), "{setting:?} {mode:?}");
            assert_eq!(refused(door(&unnamed, &nobody, &limits)), expected(true), "{setting:?} {mode:?}");
            for envelope in [&named, &unnamed] {
                assert!(matches!(door(envelope, &nobody, &limits), Door::Refused(Rejection { operational: true, .. })));
            }
        }
    }
}

/// That the profile is not offered is said where the mode is looked at, after who may do what how often.
#[test]
fn adm_1_a_profile_that_is_not_offered_is_refused_in_its_place() {
    let mut attempt = good_start();
    finish_start(&mut attempt);
    let Attempt { mut world, envelope, .. } = attempt;
    world.limits.profile = ProfileSetting::Standard;
    let caller = || Caller::identified("alice");
    let mut send = |caller, envelope: &Envelope| world.send_as(caller, envelope.clone());
    assert_eq!(word(&send(caller(), &envelope)), "MODE_NOT_SUPPORTED");
    assert_eq!(word(&send(Caller { over_rate: true, ..caller() }, &envelope)), "RATE_LIMITED");
    let mut barred = caller();
    barred.scope.may_start = false;
    assert_eq!(word(&send(barred, &envelope)), "FORBIDDEN");
    let nameless = Envelope { message_id: String::new(), ..envelope };
    assert_eq!(word(&send(caller(), &nameless)), "INVALID_ENVELOPE");
}

/// A list of modes is about modes, by whatever name: an empty one in it is for what belongs to no session.
#[test]
fn adm_1_a_scope_holds_a_mode_by_each_of_its_names() {
    let scoped = |modes: &[&str]| {
        let mut caller = Caller::identified("alice");
        caller.scope.modes = Some(Arc::new(modes.iter().map(|mode| (*mode).into()).collect()));
        caller
    };
    let begin = |mode: &str| Envelope { mode: mode.into(), ..start() };
    for (modes, mode, passes) in [
        (&["macp.mode.decision.v1"][..], "", true),
        (&["macp.mode.decision.v1"], "decision", true),
        (&["decision"], "decision", true),
        (&["macp.mode.multi_round.v1"], "multi_round", true),
        (&[""], "", false),
        (&["macp.mode.task.v1", ""], "", false),
        (&["macp.mode.task.v1", ""], "decision", false),
    ] {
        let caller = scoped(modes);
        let begin = begin(mode);
        let judged = door(&begin, &caller, &Limits { profile: ProfileSetting::Auto, ..Limits::default() });
        assert_eq!(matches!(judged, Door::Passed(_)), passes, "{modes:?} {mode:?}: {judged:?}");
    }
    let unnamed = Envelope { mode: String::new(), ..vote("m1", "p1") };
    assert_eq!(refused(door(&unnamed, &scoped(&["", "macp.mode.decision.v1"]), &Limits::default())), "FORBIDDEN");
}

#[test]
fn adm_1_signals_and_progress_at_the_door() {
    let refused = || Caller { credential: Credential::Refused("bad token".into()), ..Caller::default() };
    let cases = [
        (Caller::anonymous(), envelope("Signal", "m"), Some("alice")),
        (Caller { over_rate: true, ..Caller::default() }, envelope("Signal", "m"), Some("alice")),
        (Caller::identified("bob"), by("", Envelope { session_id: "".into(), ..envelope("Signal", "m") }), Some("bob")),
        (Caller::identified("bob"), envelope("Signal", "m"), None),
        (Caller::anonymous(), by("", envelope("Progress", "m")), None),
        (Caller::anonymous(), by(&"x".repeat(257), envelope("Signal", "m")), None),
        (refused(), Envelope { session_id: "".into(), ..envelope("Signal", "m") }, None),
    ];
    for (caller, envelope, expected) in cases {
        let passed = match door(&envelope, &caller, &Limits::default()) {
            Door::Passed(sender) => Some(sender),
            Door::Refused(_) | Door::Unclear => None,
        };
        assert_eq!(passed, expected, "{caller:?} {envelope:?}");
    }
}

#[test]
fn adm_1_an_invalid_signature_is_refused_where_none_is_required() {
    for mut attempt in [good_start(), good_message()] {
        if attempt.envelope.message_type == "SessionStart" {
            finish_start(&mut attempt);
        }
        let signature = SignatureCheck::Invalid("forged".into());
        let settled = attempt.world.send_signed(attempt.caller, attempt.envelope, signature);
        assert_eq!(word(&settled), "UNAUTHENTICATED");
    }
}

#[test]
fn adm_1_the_sender_is_the_authenticated_identity() {
    let cases = [
        (Caller::identified("alice"), "alice", "accepted"),
        (Caller::identified("alice"), "", "accepted"),
        (Caller::identified("alice"), "bob", "UNAUTHENTICATED"),
        (Caller::anonymous(), "bob", "accepted"),
        (Caller::anonymous(), "", "INVALID_ENVELOPE"),
    ];
    for (caller, sender, expected) in cases {
        let settled = World::new().send_as(caller.clone(), by(sender, start()));
        assert_eq!(word(&settled), expected, "{caller:?} as {sender:?}");
    }
}

/// Every refusal leaves session and history alone, and its message id can still be used.
#[test]
fn adm_2_a_rejected_envelope_leaves_no_trace() {
    let mut world = World::started(start());
    let bad = [
        proposal("m1", ""),
        with_payload("Proposal", "m1", "{"),
        with_payload("Proposal", "m1", vec![0xff]),
        json("Evaluation", "m1", serde_json::json!({ "proposal_id": "none" })),
        vote("m1", "p1"),
        commitment("m1"),
        envelope("Unheard", "m1"),
        Envelope { mode: "multi_round".into(), ..proposal("m1", "p1") },
        Envelope { macp_version: "2".into(), ..proposal("m1", "p1") },
        Envelope { message_id: "other".into(), ..start() },
    ];
    for envelope in bad {
        world.refused(envelope);
    }
    assert_eq!(world.session().accepted_at("m1"), None);
    world.expect(proposal("m1", "p1"), "accepted");
    assert_eq!(world.entries().len(), 2);
}

#[test]
fn adm_2_a_rejected_start_leaves_its_session_id_free() {
    let mut world = World::new();
    let bad = SessionStartPayload { ttl_ms: -1, ..Default::default() };
    world.expect(start_with(&bad), "INVALID_ENVELOPE");
    assert!(!world.exists(SESSION));
    world.expect(start(), "accepted");
}

/// `decide` only looks: asking twice gives the same answer, and nothing has happened.
#[test]
fn adm_2_deciding_changes_nothing() {
    let world = World::started(start());
    let before = world.session().clone();
    let command = Command {
        caller: Caller::anonymous(),
        input: Input::Envelope {
            envelope: proposal("m1", "p1"),
            signature: SignatureCheck::Absent,
            registered: Registered::default(),
        },
    };
    let decided = || format!("{:?}", decide(Some(world.session()), &command, NOW, &Limits::default()));
    assert_eq!(decided(), decided());
    assert_eq!(*world.session(), before);
}

#[test]
fn adm_4_duplicates_answer_also_after_the_end() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(vote("m2", "p1"), "accepted");
    world.expect(commitment("m3"), "accepted");
    let history = world.entries().to_vec();
    for again in [start(), proposal("m1", "p1"), vote("m2", "p1"), commitment("m3")] {
        world.expect(again, "duplicate");
    }
    // The id is what counts, not the content.
    world.expect(envelope("Unheard", "m1"), "duplicate");
    assert_eq!(world.entries(), history);
}

#[test]
fn adm_4_a_second_start() {
    let mut world = World::started(start());
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(start(), "duplicate");
    world.expect(Envelope { message_id: "m1".into(), ..start() }, "duplicate");
    let rejection = world.refused(Envelope { message_id: "m2".into(), ..start() });
    assert_eq!(rejection.code, Code::InvalidEnvelope);
}

#[test]
fn adm_4_the_duplicate_check_comes_before_the_skew_check() {
    let mut world = World::started(start());
    let skewed = Envelope { timestamp_unix_ms: NOW + 10_000_000, ..start() };
    world.expect(skewed.clone(), "duplicate");
    world.expect(Envelope { session_id: "s2".into(), ..skewed }, "INVALID_ENVELOPE");
}

#[test]
fn adm_4_ids_are_per_session() {
    let mut world = World::started(start());
    world.expect(Envelope { session_id: "s2".into(), ..start() }, "accepted");
    world.expect(proposal("m1", "p1"), "accepted");
    world.expect(Envelope { session_id: "s2".into(), ..proposal("m1", "p1") }, "accepted");
}

#[test]
fn adm_6_signals_without_a_credential() {
    let anonymous = Caller::anonymous;
    let cases = [
        // A Signal may carry a session_id and any bytes.
        (envelope("Signal", "m1"), "relayed"),
        (with_payload("Signal", "m1", vec![0xff, 0xff]), "relayed"),
        (Envelope { session_id: String::new(), ..envelope("Signal", "m1") }, "relayed"),
        (envelope("Signal", ""), "INVALID_ENVELOPE"),
        (envelope("Signal", &"x".repeat(257)), "INVALID_ENVELOPE"),
        (by(&"x".repeat(257), envelope("Signal", "m1")), "INVALID_ENVELOPE"),
        (Envelope { macp_version: "2".into(), ..envelope("Signal", "m1") }, "UNSUPPORTED_PROTOCOL_VERSION"),
    ];
    for (signal, expected) in cases {
        check_relay(anonymous(), &signal, expected);
    }
}

#[test]
fn adm_6_signals_with_a_credential() {
    let bare = Envelope { session_id: String::new(), ..envelope("Signal", "m1") };
    let typed = SignalPayload { signal_type: "heartbeat".into(), ..Default::default() };
    let blank = SignalPayload { signal_type: " ".into(), ..Default::default() };
    let cases = [
        (bare.clone(), "relayed"),
        (by("", bare.clone()), "relayed"),
        (Envelope { payload: typed.encode_to_vec().into(), ..bare.clone() }, "relayed"),
        (Envelope { payload: blank.encode_to_vec().into(), ..bare.clone() }, "INVALID_ENVELOPE"),
        (Envelope { payload: vec![0xff].into(), ..bare.clone() }, "INVALID_ENVELOPE"),
        (Envelope { mode: "decision".into(), ..bare.clone() }, "INVALID_ENVELOPE"),
        (envelope("Signal", "m1"), "INVALID_ENVELOPE"),
        (by("bob", bare), "UNAUTHENTICATED"),
    ];
    for (signal, expected) in cases {
        check_relay(Caller::identified("alice"), &signal, expected);
    }
}

#[test]
fn adm_6_signals_touch_no_session() {
    let mut world = World::started(start());
    let before = (world.session().clone(), world.entries().to_vec());
    for _ in 0..2 {
        world.relay(Caller::anonymous(), &envelope("Signal", "m1")).expect("passed on");
    }
    assert_eq!((world.session().clone(), world.entries().to_vec()), before);
    world.expect(proposal("m1", "p1"), "accepted");
}

#[test]
fn mode_2_progress_is_passed_on_and_never_history() {
    let payload = ProgressPayload { progress: 0.5, ..Default::default() }.encode_to_vec();
    let about_session = Envelope { mode: "decision".into(), ..with_payload("Progress", "m1", payload.clone()) };
    let about_nothing = Envelope { session_id: String::new(), ..envelope("Progress", "m1") };
    let lengthy = ProgressPayload { progress_token: "x".repeat(257), ..Default::default() };
    let cases = [
        (about_session.clone(), "relayed"),
        (about_nothing.clone(), "relayed"),
        (with_payload("Progress", "m1", payload), "INVALID_ENVELOPE"),
        (Envelope { mode: "decision".into(), ..about_nothing }, "INVALID_ENVELOPE"),
        (Envelope { payload: vec![0xff].into(), ..about_session.clone() }, "INVALID_ENVELOPE"),
        (Envelope { payload: lengthy.encode_to_vec().into(), ..about_session }, "INVALID_ENVELOPE"),
    ];
    for (progress, expected) in cases {
        check_relay(Caller::anonymous(), &progress, expected);
        check_relay(Caller::identified("alice"), &progress, expected);
    }
}

#[test]
fn adm_1_the_rate_of_ambient_messages_is_asked_before_their_payload() {
    let over = Caller { over_rate: true, ..Caller::anonymous() };
    let progress = Envelope { mode: "decision".into(), ..with_payload("Progress", "m1", vec![0xff]) };
    check_relay(over.clone(), &progress, "RATE_LIMITED");
    check_relay(over, &envelope("Signal", "m1"), "RATE_LIMITED");
}

#[track_caller]
fn check_relay(caller: Caller, envelope: &Envelope, expected: &str) {
    let relayed = World::new().relay(caller, envelope);
    let word = match &relayed {
        Ok(_) => "relayed",
        Err(rejection) => rejection.code.as_str(),
    };
    assert_eq!(word, expected, "{relayed:?} for {envelope:?}");
}
