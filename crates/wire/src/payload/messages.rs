//! The JSON form of each classic payload. Field names are those of the protobuf message.

use serde_json::json;

use crate::{
    modes::{
        decision::v1::{EvaluationPayload, ObjectionPayload, ProposalPayload, VotePayload},
        multi_round::v1::ContributePayload,
    },
    v1::{CommitmentPayload, CommitmentRef},
};

use super::{
    ClassicPayload, Error,
    json::{Object, base64},
};

impl ClassicPayload for ProposalPayload {
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self {
            proposal_id: object.text("proposal_id")?,
            option: object.text("option")?,
            rationale: object.text("rationale")?,
            supporting_data: object.bytes("supporting_data")?,
        })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        Ok(written(json!({
            "proposal_id": self.proposal_id,
            "option": self.option,
            "rationale": self.rationale,
            "supporting_data": base64(&self.supporting_data),
        })))
    }
}

impl ClassicPayload for EvaluationPayload {
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self {
            proposal_id: object.text("proposal_id")?,
            recommendation: object.text("recommendation")?,
            confidence: object.number("confidence")?,
            reason: object.text("reason")?,
        })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        if !self.confidence.is_finite() {
            return Err(Error::NotFinite { field: "confidence" });
        }
        Ok(written(json!({
            "proposal_id": self.proposal_id,
            "recommendation": self.recommendation,
            "confidence": self.confidence,
            "reason": self.reason,
        })))
    }
}

impl ClassicPayload for ObjectionPayload {
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self {
            proposal_id: object.text("proposal_id")?,
            reason: object.text("reason")?,
            severity: object.text("severity")?,
        })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        Ok(written(json!({
            "proposal_id": self.proposal_id,
            "reason": self.reason,
            "severity": self.severity,
        })))
    }
}

impl ClassicPayload for VotePayload {
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self {
            proposal_id: object.text("proposal_id")?,
            vote: object.text("vote")?,
            reason: object.text("reason")?,
        })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        Ok(written(json!({
            "proposal_id": self.proposal_id,
            "vote": self.vote,
            "reason": self.reason,
        })))
    }
}

impl ClassicPayload for CommitmentPayload {
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self {
            commitment_id: object.text("commitment_id")?,
            action: object.text("action")?,
            authority_scope: object.text("authority_scope")?,
            reason: object.text("reason")?,
            mode_version: object.text("mode_version")?,
            policy_version: object.text("policy_version")?,
            configuration_version: object.text("configuration_version")?,
            outcome_positive: object.flag("outcome_positive")?,
            supersedes: object.object("supersedes")?.map(reference).transpose()?,
        })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        let mut object = json!({
            "commitment_id": self.commitment_id,
            "action": self.action,
            "authority_scope": self.authority_scope,
            "reason": self.reason,
            "mode_version": self.mode_version,
            "policy_version": self.policy_version,
            "configuration_version": self.configuration_version,
            "outcome_positive": self.outcome_positive,
        });
        if let Some(supersedes) = &self.supersedes {
            object["supersedes"] = json!({
                "session_id": supersedes.session_id,
                "commitment_hash": supersedes.commitment_hash,
            });
        }
        Ok(written(object))
    }
}

impl ClassicPayload for ContributePayload {
    /// A contribution without a value says nothing, so `value` must be there.
    fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        let mut object = Object::parse(bytes)?;
        Ok(Self { value: object.text_required("value")? })
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        Ok(written(json!({ "value": self.value })))
    }
}

fn reference(mut object: Object) -> Result<CommitmentRef, Error> {
    Ok(CommitmentRef { session_id: object.text("session_id")?, commitment_hash: object.text("commitment_hash")? })
}

fn written(value: serde_json::Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
