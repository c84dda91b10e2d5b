//! ListSkills and DescribeSkill: what can be called here, and what it declares about itself.

use macp_plan_core::skill::Registration;
use macp_wire::codes::Code;
use macp_wire::plan::v1::{DescribeSkillRequest, DescribeSkillResponse, ListSkillsResponse, SkillSummary};
use tonic::Status;

use super::validate::json;
use super::{Plans, refusal};
use crate::status;

pub(super) fn list(plans: &Plans) -> ListSkillsResponse {
    let skills = plans.executor.registry().registrations().map(|known| {
        let metadata = known.skill.metadata();
        SkillSummary {
            skill_id: metadata.skill_id.clone(),
            version: metadata.version.clone(),
            name: metadata.name.clone(),
            description: metadata.description.clone(),
            enabled: known.enabled,
        }
    });
    ListSkillsResponse { skills: skills.collect() }
}

pub(super) fn describe(plans: &Plans, request: &DescribeSkillRequest) -> Result<DescribeSkillResponse, Status> {
    let of_id = plans.executor.registry().registrations();
    let of_id: Vec<Registration> = of_id.filter(|known| known.skill.metadata().skill_id == request.skill_id).collect();
    let versions = || of_id.iter().map(|known| known.skill.metadata().version.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (&*of_id, request.version.as_str()) {
        ([], _) => {
            let message = format!("there is no skill {:?}", status::shown(&request.skill_id));
            return Err(refusal::refused(Code::SkillNotFound, message));
        }
        ([only], "") => only,
        (_, "") => {
            return Err(status::invalid_request(format!("name a version; there are {}", versions())));
        }
        (known, version) => known.iter().find(|known| known.skill.metadata().version == version).ok_or_else(|| {
            let (id, version) = (status::shown(&request.skill_id), status::shown(version));
            refusal::refused(Code::SkillNotFound, format!("{id} has no version {version:?}, but {}", versions()))
        })?,
    };
    Ok(DescribeSkillResponse { metadata_json: json(found.skill.metadata())?, enabled: found.enabled })
}
