//! Time does what it should when it should, by arithmetic of its own: live and replayed sessions share the kernel's, so
//! that comparing them shows nothing about it.
//!
//! Entries are dated in their order, but for an accept by silence, which is dated to when it was due. A pause moves the
//! deadline by its length; a session ends for want of time only when it is out of time; an offer is
//! accepted by silence exactly when it has stood open for the timeout of its policy, pauses not counted.

use macp_kernel::{Session, State};
use macp_wire::history::v1::{Entry, ExpiryCause, TtlExpired, entry};
use macp_wire::modes::handoff::v1::{HandoffAcceptPayload, HandoffOfferPayload};
use macp_wire::v1::Envelope;
use prost::Message;

use crate::properties::{Property, Violation};

/// What one session's history says of time.
#[derive(Debug, Default)]
pub(crate) struct Clockwork {
    deadline_ms: i64,
    suspend_ms_max: i64,
    implicit_accept_ms: i64,
    paused_since_ms: Option<i64>,
    paused_ms: i64,
    /// The completed pauses: from, to.
    pauses: Vec<(i64, i64)>,
    /// The offers, and when each was made.
    offers: Vec<(String, i64)>,
    /// Of the latest entry but accepts by silence.
    last_ms: i64,
}

impl Clockwork {
    /// Takes in an entry; `session` is what it led to.
    pub(crate) fn tick(&mut self, session_id: &str, entry: &Entry, session: &Session) -> Result<(), Violation> {
        let at_ms = entry.accepted_at_unix_ms;
        let wrong = |detail: String| {
            Property::Timely.violated(format!("session {session_id}, entry {}: {detail}", entry.sequence))
        };
        if let Some(binding) = &entry.binding {
            self.deadline_ms = binding.deadline_unix_ms;
            self.suspend_ms_max = binding.suspend_ms_max;
            self.implicit_accept_ms = session.binding().policy.rules.implicit_accept_timeout_ms;
            self.last_ms = at_ms;
        }
        if !entry.synthetic {
            if at_ms < self.last_ms {
                return Err(wrong(format!("it is dated {at_ms}, and an earlier entry {}", self.last_ms)));
            }
            self.last_ms = at_ms;
        }
        match &entry.input {
            Some(entry::Input::Envelope(envelope)) if entry.synthetic => {
                self.check_accept(envelope, at_ms).map_err(wrong)?;
            }
            Some(entry::Input::Envelope(envelope)) => self.note_offer(envelope, at_ms),
            Some(entry::Input::SessionSuspend(_)) => self.paused_since_ms = Some(at_ms),
            Some(entry::Input::SessionResume(_)) => self.resume(at_ms),
            Some(entry::Input::TtlExpired(expired)) => self.check_expiry(expired, at_ms).map_err(wrong)?,
            Some(entry::Input::SessionCancel(_)) | None => {}
        }
        let found = session.position().deadline_ms;
        if found != self.deadline_ms {
            return Err(wrong(format!("the deadline is {found}, by start and pauses it is {}", self.deadline_ms)));
        }
        let paused = session.state() == State::Suspended;
        if !session.state().is_terminal() && paused != self.paused_since_ms.is_some() {
            return Err(wrong(format!(
                "the session is {:?}, paused since {:?}",
                session.state(),
                self.paused_since_ms
            )));
        }
        Ok(())
    }

    fn resume(&mut self, at_ms: i64) {
        let Some(since_ms) = self.paused_since_ms.take() else {
            return;
        };
        let pause_ms = (at_ms - since_ms).max(0);
        self.deadline_ms += pause_ms;
        self.paused_ms += pause_ms;
        self.pauses.push((since_ms, at_ms));
    }

    fn check_expiry(&self, expired: &TtlExpired, at_ms: i64) -> Result<(), String> {
        let (cause, limit_ms) = match self.paused_since_ms {
            None => (ExpiryCause::Unspecified, self.deadline_ms),
            Some(since_ms) => (ExpiryCause::SuspensionTime, since_ms + self.suspend_ms_max - self.paused_ms),
        };
        if expired.cause() != cause || at_ms <= limit_ms || expired.deadline_unix_ms != self.deadline_ms {
            return Err(format!("{expired:?} at {at_ms}, by start and pauses {cause:?} after {limit_ms}"));
        }
        Ok(())
    }

    fn note_offer(&mut self, envelope: &Envelope, at_ms: i64) {
        if envelope.message_type == "HandoffOffer"
            && let Ok(offer) = HandoffOfferPayload::decode(envelope.payload.clone())
        {
            self.offers.push((offer.handoff_id, at_ms));
        }
    }

    fn check_accept(&self, envelope: &Envelope, at_ms: i64) -> Result<(), String> {
        let accept = HandoffAcceptPayload::decode(envelope.payload.clone()).map_err(|error| error.to_string())?;
        let Some((_, offered_ms)) = self.offers.iter().find(|(id, _)| *id == accept.handoff_id) else {
            return Err(format!("the runtime accepts {:?}, which nobody offered", accept.handoff_id));
        };
        let paused_ms: i64 =
            self.pauses.iter().map(|(from, to)| (at_ms.min(*to) - (*offered_ms).max(*from)).max(0)).sum();
        let open_ms = at_ms - offered_ms - paused_ms;
        if self.implicit_accept_ms <= 0 || open_ms != self.implicit_accept_ms {
            let timeout_ms = self.implicit_accept_ms;
            return Err(format!("an offer was accepted by silence of {open_ms} ms, the policy says {timeout_ms}"));
        }
        Ok(())
    }
}
