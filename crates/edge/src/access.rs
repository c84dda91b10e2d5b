//! What a caller may see and do, beyond what the rules of a session say.

use std::sync::Arc;

use macp_engine::Snapshot;
use macp_kernel::{Caller, Credential, Profile};
use macp_wire::codes::Code;
use macp_wire::v1::SessionMetadata;
use tonic::Status;

use crate::replies::CallerMemory;
use crate::status;

/// Who calls, and what the credential is good for.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) caller: Caller,
    /// Resolved by configured authentication. In local development callers are believed, not resolved.
    pub(crate) authenticated: bool,
    /// Without configured authentication, classic sessions are everybody's.
    pub(crate) local: bool,
    /// Only standard sessions are offered, and they need a credential always.
    pub(crate) standard_only: bool,
    /// May read every session.
    pub(crate) observer: bool,
    /// May change the registries.
    pub(crate) administrator: bool,
    /// May run a plan as a new epoch, which repeats its effects.
    pub(crate) may_repeat: bool,
    /// Sessions it may have open at once.
    pub(crate) open_sessions_max: Option<u64>,
    /// The connection of the call, which tells callers without a name apart.
    pub(crate) connection: u64,
    /// Where the call counts.
    pub(crate) memory: Arc<CallerMemory>,
}

impl Access {
    pub(crate) fn identity(&self) -> Option<&str> {
        self.caller.credential.identity()
    }

    /// Refuses a credential that is not valid; none at all is let through where local development allows it.
    pub(crate) fn admitted(self) -> Result<Self, Status> {
        match &self.caller.credential {
            Credential::Refused(reason) => Err(status::coded(Code::Unauthenticated, reason.as_str())),
            Credential::Absent if self.standard_only => Err(unidentified()),
            Credential::Absent | Credential::Identity(_) => Ok(self),
        }
    }

    /// Insists on a credential.
    pub(crate) fn identified(self) -> Result<Self, Status> {
        let access = self.admitted()?;
        if access.identity().is_none() {
            return Err(unidentified());
        }
        Ok(access)
    }

    /// Insists on a credential that may change the registries.
    pub(crate) fn administering(self) -> Result<Self, Status> {
        let access = self.identified()?;
        if !access.administrator {
            return Err(status::coded(Code::Forbidden, "this credential may not change the registries"));
        }
        Ok(access)
    }

    /// Whether a session may be read: by its initiator, its participants and observers.
    pub(crate) fn check_read(&self, session: &Snapshot) -> Result<(), Status> {
        self.check_read_of(session.profile, &session.metadata)
    }

    /// As [`Access::check_read`], of a session known by its metadata alone.
    pub(crate) fn check_read_of(&self, profile: Profile, session: &SessionMetadata) -> Result<(), Status> {
        if profile == Profile::Classic && self.local {
            return Ok(());
        }
        let Some(identity) = self.identity() else {
            return Err(unidentified());
        };
        // Anyone may take part in a classic session without a roster.
        let open = profile == Profile::Classic && session.participants.is_empty();
        if open || self.observer || takes_part(identity, session) {
            return Ok(());
        }
        Err(status::coded(Code::Forbidden, "this session is readable by its initiator, participants and observers"))
    }

    /// Whether listings and watches show every session.
    pub(crate) fn sees_all(&self) -> bool {
        self.local || self.observer
    }

    /// Whether listings and watches show a session.
    pub(crate) fn sees(&self, session: &SessionMetadata) -> bool {
        self.sees_all() || self.identity().is_some_and(|identity| takes_part(identity, session))
    }

    /// Whether a session is the caller's own: by its start, by its roster, or because anyone may join it. To be allowed
    /// to look is not enough.
    pub(crate) fn takes_part_in(&self, session: &Snapshot) -> bool {
        let open = session.profile == Profile::Classic && session.metadata.participants.is_empty();
        open || self.identity().is_some_and(|identity| takes_part(identity, &session.metadata))
    }

    /// Whether the caller may act on a session it can read, beyond looking: as one who takes part in it, or by a role.
    pub(crate) fn check_act(&self, session: &Snapshot) -> Result<(), Status> {
        if self.local || self.caller.scope.may_cancel || self.takes_part_in(session) {
            return Ok(());
        }
        Err(status::coded(Code::Forbidden, "only those who take part in a session may start what it committed to"))
    }

    /// Whether the caller may start runs at all.
    pub(crate) fn check_start_runs(&self) -> Result<(), Status> {
        match self.identity() {
            _ if self.local => Ok(()),
            None => Err(unidentified()),
            Some(_) if self.caller.scope.may_start => Ok(()),
            Some(_) => Err(status::coded(Code::Forbidden, "this credential may not start anything")),
        }
    }

    /// Whether a run is the caller's to see, whatever session it belongs to. Who may stop it, or say what became of its
    /// effects, has to see what there is to decide.
    pub(crate) fn sees_run(&self, started_by: &str) -> bool {
        self.local || self.observer || self.caller.scope.may_cancel || self.identity() == Some(started_by)
    }

    /// Whether the caller may stop a run, settle its effects or have it executed again: who started it, or by a role.
    pub(crate) fn check_control_of_run(&self, started_by: &str) -> Result<(), Status> {
        match self.identity() {
            _ if self.local => Ok(()),
            None => Err(unidentified()),
            Some(identity) if identity == started_by || self.caller.scope.may_cancel => Ok(()),
            Some(_) => Err(status::coded(
                Code::Forbidden,
                "only who started a run, or a role with the right to cancel, may do this",
            )),
        }
    }

    /// Whether the caller may take over runs that were executed elsewhere.
    pub(crate) fn check_import(&self) -> Result<(), Status> {
        match self.identity() {
            _ if self.local || self.administrator => Ok(()),
            None => Err(unidentified()),
            Some(_) => {
                Err(status::coded(Code::Forbidden, "runs are taken over with the right to change registries only"))
            }
        }
    }
}

fn takes_part(identity: &str, session: &SessionMetadata) -> bool {
    session.initiator == identity || session.participants.iter().any(|participant| participant == identity)
}

/// What is told to who has no credential and needs one.
pub(crate) const UNIDENTIFIED: &str = "this call needs a credential: `authorization: Bearer <token>`";

pub(crate) fn unidentified() -> Status {
    status::coded(Code::Unauthenticated, UNIDENTIFIED)
}
