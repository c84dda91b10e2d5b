//! Replay: decide again over the recorded inputs, and compare.
//!
//! The same functions decide here as on live traffic; what was operational then (identity checks, rates, skew, the
//! server's own limits) is not asked again, and what the session was bound to comes out of its first entry. Signatures
//! are verified again with the keys recorded beside them. No clock, configuration or network is read.

mod compare;
mod fields;
mod shown;
mod versions;
mod what_if;

use std::sync::Arc;

use bytes::Bytes;
use macp_wire::history::v1::{self as history, Binding, Entry, RecordedSignature, entry};
use macp_wire::v1::Envelope;

pub use compare::Divergence;
pub use versions::Versions;
pub use what_if::WhatIf;

use crate::decide::Verdict;
use crate::mode::{Determinism, Extension};
use crate::policy::{self, Policy};
use crate::signature::verify_bytes;
use crate::{
    Caller, Command, Input, Limits, Profile, ProfileSetting, Registered, Session, SignatureCheck, SignatureRule, State,
    apply, decide,
};

/// What to replay under.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Versions other than the bound ones, where given.
    pub versions: Versions,
    /// Asked for explicitly: replay under other versions, which is not historical reconstruction.
    pub what_if: bool,
    /// Vouch for the meaning too, not for the course alone. Refused for modes that cannot grant it.
    pub semantic: bool,
}

/// One decision taken again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub sequence: u64,
    pub ordinal: u64,
    pub accepted_at_ms: i64,
    pub message_type: String,
    pub message_id: String,
    pub sender: String,
    pub state: State,
}

/// Why a replay ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The history is not replayed, and why.
    #[error("not replayed: {0}")]
    Refused(String),
    /// The same input was decided differently.
    #[error("{0}")]
    Diverged(Divergence),
}

/// Takes the decisions of one history again, entry by entry.
#[derive(Debug, Default)]
pub struct Replayer {
    options: Options,
    slot: Option<Session>,
    limits: Limits,
    /// What the history itself holds of what was registered when it began.
    registered: Registered,
    entries: u64,
    /// The first difference of a what-if, which goes on after it.
    divergence: Option<Divergence>,
}

/// What a whole replay showed.
#[derive(Clone, Debug)]
pub struct Report {
    pub entries: u64,
    pub what_if: bool,
    pub determinism: Determinism,
    pub state: State,
    pub resolution: Option<Bytes>,
    /// Only a what-if ends with one; otherwise the replay stopped there.
    pub divergence: Option<Divergence>,
    /// What the replay does not show, in sentences. Saying nothing would pass it off as shown.
    pub notes: Vec<String>,
}

impl Replayer {
    pub fn new(options: Options) -> Self {
        Replayer { options, ..Replayer::default() }
    }

    /// Takes the next entry's decision again.
    pub fn feed(&mut self, recorded: &Entry) -> Result<Step, Stop> {
        if self.slot.is_none() {
            self.begin(recorded)?;
        }
        let command = command(recorded, &self.registered)?;
        if let (Some(session), Input::Envelope { envelope, .. }) = (&self.slot, &command.input)
            && envelope.session_id != **session.id()
        {
            return Err(Stop::Diverged(compare::foreign(recorded, session.id(), &envelope.session_id)));
        }
        let now = recorded.accepted_at_unix_ms;
        match decide(self.slot.as_ref(), &command, now, &self.limits) {
            Verdict::Accept(accepted) => {
                if let Some(divergence) = compare::entries(recorded, &accepted.entry) {
                    self.diverge(divergence)?;
                }
                apply(&mut self.slot, &accepted.entry, accepted.change);
            }
            refused => self.diverge(compare::decision(recorded, &refused))?,
        }
        self.entries += 1;
        let session = self.slot.as_ref().ok_or_else(|| {
            Stop::Refused("the start of the session was refused, so there is nothing to go on with".into())
        })?;
        Ok(step(recorded, session.state()))
    }

    /// The state so far; recovery goes on from here.
    pub fn into_session(self) -> Option<Session> {
        self.slot
    }

    pub fn session(&self) -> Option<&Session> {
        self.slot.as_ref()
    }

    pub fn finish(self) -> Result<Report, Stop> {
        let session = self.slot.ok_or_else(|| Stop::Refused("the history has no entry".to_owned()))?;
        let notes = notes(&session, &self.options);
        Ok(Report {
            notes,
            entries: self.entries,
            what_if: self.options.what_if,
            determinism: session.binding().mode.spec().determinism,
            state: session.state(),
            resolution: session.resolution().cloned(),
            divergence: self.divergence,
        })
    }

    /// Reads what the session is bound to, and refuses what is not historical reconstruction.
    fn begin(&mut self, first: &Entry) -> Result<(), Stop> {
        let binding = first
            .binding
            .as_ref()
            .ok_or_else(|| Stop::Refused("the first entry says nothing of what the session is bound to".into()))?;
        versions::check(binding, &self.options)?;
        self.limits = replay_limits(binding);
        self.registered = bound(binding)?;
        Ok(())
    }

    /// A reconstruction stops at the first difference; a what-if notes it and goes on.
    fn diverge(&mut self, divergence: Divergence) -> Result<(), Stop> {
        if !self.options.what_if {
            return Err(Stop::Diverged(divergence));
        }
        self.divergence.get_or_insert(divergence);
        Ok(())
    }
}

fn notes(session: &Session, options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    let determinism = session.binding().mode.spec().determinism;
    if !determinism.covers_outcome() {
        notes.push(format!(
            "the mode is {}: this shows the course of the session, not that its outcome follows from it",
            determinism.as_str()
        ));
    }
    let Versions { configuration_version, policy_version, .. } = &options.versions;
    if options.what_if
        && session.binding().profile == Profile::Classic
        && (configuration_version.is_some() || policy_version.is_some())
    {
        notes.push("configuration and policy versions do not influence the decisions of classic sessions".to_owned());
    }
    notes
}

/// The limits a replay decides under: those bound to the session, and none of a server's.
pub(super) fn replay_limits(binding: &Binding) -> Limits {
    Limits {
        payload_bytes_max: u64::MAX,
        skew_ms_max: i64::MAX,
        session_entries_max: binding.entries_max,
        session_bytes_max: binding.bytes_max,
        profile: match binding.profile() {
            history::Profile::Standard => ProfileSetting::Standard,
            history::Profile::Classic | history::Profile::Unspecified => ProfileSetting::Classic,
        },
        signatures: SignatureRule::Optional,
    }
}

/// What the first entry holds of the policy and the extension mode the session was born under.
pub(super) fn bound(binding: &Binding) -> Result<Registered, Stop> {
    let policy = binding.policy.as_ref().map(|descriptor| {
        if *descriptor == policy::default_policy().descriptor {
            return Ok(Arc::clone(policy::default_policy()));
        }
        let read = Policy::read(descriptor.clone());
        read.map(Arc::new).map_err(|error| Stop::Refused(format!("the bound policy is not one: {error}")))
    });
    let extension = binding
        .extension_mode
        .as_ref()
        .map(|descriptor| Arc::new(Extension { descriptor: descriptor.clone(), promoted: binding.extension_promoted }));
    Ok(Registered { policy: policy.transpose()?, extension })
}

/// The command behind an entry.
pub(super) fn command(recorded: &Entry, registered: &Registered) -> Result<Command, Stop> {
    let mut caller = match recorded.identity.as_str() {
        "" => Caller::anonymous(),
        identity => Caller::identified(identity),
    };
    // A role may have given the right to do it, which was the server's configuration and not the session's.
    caller.scope.may_cancel = true;
    caller.scope.may_suspend = true;
    let input = match &recorded.input {
        Some(entry::Input::Envelope(envelope)) if recorded.synthetic => Input::Synthetic { envelope: envelope.clone() },
        Some(entry::Input::Envelope(envelope)) => {
            let signature = signature_check(envelope, recorded.signature.as_ref());
            Input::Envelope { envelope: envelope.clone(), signature, registered: registered.clone() }
        }
        Some(entry::Input::SessionCancel(cancel)) => Input::Cancel { reason: cancel.reason.clone() },
        Some(entry::Input::SessionSuspend(suspend)) => Input::Suspend { reason: suspend.reason.clone() },
        Some(entry::Input::SessionResume(resume)) => Input::Resume { reason: resume.reason.clone() },
        Some(entry::Input::TtlExpired(expired)) => Input::Expire(expired.cause()),
        None => {
            return Err(Stop::Refused(format!(
                "entry {} holds an input this implementation does not know",
                recorded.sequence
            )));
        }
    };
    Ok(Command { caller, input })
}

/// Verifies a recorded signature again, with the key it was admitted with. A signature covers the envelope as recorded,
/// because whoever signs names the sender, and only an unnamed sender is filled in on admission.
fn signature_check(envelope: &Envelope, recorded: Option<&RecordedSignature>) -> SignatureCheck {
    let Some(recorded) = recorded else {
        return SignatureCheck::Absent;
    };
    if recorded.public_key.is_empty() {
        return SignatureCheck::Unregistered(recorded.clone());
    }
    let bytes = recorded.signature.as_ref().map_or(&[][..], |signature| &signature.signature);
    match verify_bytes(envelope, bytes, &recorded.public_key) {
        Ok(()) => SignatureCheck::Valid(recorded.clone()),
        Err(error) => SignatureCheck::Invalid(error.to_string()),
    }
}

fn step(recorded: &Entry, state: State) -> Step {
    let (message_type, message_id, sender) = match &recorded.input {
        Some(entry::Input::Envelope(envelope)) => {
            (envelope.message_type.as_str(), envelope.message_id.as_str(), envelope.sender.as_str())
        }
        Some(entry::Input::SessionCancel(cancel)) => ("SessionCancel", "", cancel.cancelled_by.as_str()),
        Some(entry::Input::SessionSuspend(suspend)) => ("SessionSuspend", "", suspend.suspended_by.as_str()),
        Some(entry::Input::SessionResume(resume)) => ("SessionResume", "", resume.resumed_by.as_str()),
        Some(entry::Input::TtlExpired(_)) => ("TtlExpired", "", ""),
        None => ("", "", ""),
    };
    Step {
        sequence: recorded.sequence,
        ordinal: recorded.ordinal,
        accepted_at_ms: recorded.accepted_at_unix_ms,
        message_type: message_type.to_owned(),
        message_id: message_id.to_owned(),
        sender: sender.to_owned(),
        state,
    }
}
