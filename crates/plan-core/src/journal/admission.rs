//! Admission: whether a run may begin, and everything that kept it from it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cause::Cause;
use crate::finding::Finding;

/// Limits that depend on other runs: looked at once, before the first step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Admission {
    pub admitted: bool,
    /// Why a run that passed every check was refused nevertheless, such as a quota that is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The final code of a refused run: that of the first check that failed, in the order of the checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Everything the checks found, not only the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<AdmissionFinding>,
    #[serde(default)]
    pub limits: Map<String, Value>,
}

/// One thing that kept a run from being admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionFinding {
    pub code: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// What is wrong and what to do about it, for people.
    pub explanation: String,
    /// What could be had instead, such as the versions of a skill that are registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available: Vec<String>,
}

impl Admission {
    /// A run that may begin, and the limits that were looked at.
    #[must_use]
    pub fn admitted(limits: Map<String, Value>) -> Self {
        Self { admitted: true, limits, ..Self::default() }
    }

    /// A run that may not begin, because of what its checks found. The first error gives the final code.
    #[must_use]
    pub fn refused(findings: &[Finding]) -> Self {
        let errors = findings.iter().filter(|finding| finding.is_error());
        Self {
            admitted: false,
            code: errors.clone().next().map(|finding| finding.code.to_owned()),
            findings: errors.map(AdmissionFinding::from).collect(),
            ..Self::default()
        }
    }
}

impl From<&Finding> for AdmissionFinding {
    fn from(finding: &Finding) -> Self {
        let explanation = match finding.fix.as_str() {
            "" => finding.problem.clone(),
            fix => format!("{}; {fix}", finding.problem),
        };
        Self {
            code: finding.code.to_owned(),
            reason: finding.reason.to_owned(),
            step_id: finding.step_id.clone(),
            explanation,
            available: finding.available.clone(),
        }
    }
}
