//! Who may start a run: one run per commitment and epoch (AOS-110), one run per request.
//!
//! Both name the run before it exists, and the name outlives a crash in between. So whoever is told of an earlier run
//! that is not there goes on to create it *under that id*: of all who do, the store lets one.

use std::sync::Arc;

use macp_ledger::Store;
use macp_plan_core::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blocking;
use super::documents::{ADMISSIONS, REJECTIONS, REQUESTS, get, key, put_if_absent};
use super::error::StoreError;

/// The execution of a commitment that was decided on in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commitment {
    pub session_id: String,
    pub commitment_hash: String,
    pub epoch: u64,
}

/// Runs by the commitment they carry out.
#[derive(Clone, Debug)]
pub struct Admissions {
    pub(super) store: Arc<dyn Store>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The given run is the one.
    Admitted,
    /// This run is, whether or not it has been created yet.
    Already { run_id: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Admitted {
    #[serde(flatten)]
    commitment: Commitment,
    run_id: String,
}

impl Commitment {
    pub(crate) fn key(&self) -> String {
        key(&[&self.session_id, &self.commitment_hash, &self.epoch.to_string()])
    }
}

impl Admissions {
    /// Lets `run_id` carry out a commitment unless another run does: exactly one, ever. Durable when it returns.
    pub async fn admit(&self, commitment: Commitment, run_id: &str) -> Result<Admission, StoreError> {
        let run_id = run_id.to_owned();
        blocking(&self.store, move |store| {
            let key = commitment.key();
            let earlier = put_if_absent(store, ADMISSIONS, &key, &Admitted { commitment, run_id })?;
            Ok(earlier.map_or(Admission::Admitted, |earlier| Admission::Already { run_id: earlier.run_id }))
        })
        .await
    }

    /// The name of the run that tells why a commitment is not carried out: the given one, unless the same reasons gave
    /// it another. That run is not admitted and keeps nobody from being. Durable when it returns.
    pub async fn reject(&self, commitment: Commitment, reasons: &[&str], run_id: &str) -> Result<String, StoreError> {
        let reasons = Value::from(reasons).to_string();
        let run_id = run_id.to_owned();
        blocking(&self.store, move |store| {
            let Commitment { session_id, commitment_hash, epoch } = &commitment;
            let key = key(&[session_id, commitment_hash, &epoch.to_string(), &reasons]);
            let rejected = Admitted { commitment, run_id: run_id.clone() };
            let earlier = put_if_absent(store, REJECTIONS, &key, &rejected)?;
            Ok(earlier.map_or(run_id, |earlier| earlier.run_id))
        })
        .await
    }

    /// The run that carries out a commitment, if one was admitted.
    pub async fn run_of(&self, commitment: Commitment) -> Result<Option<String>, StoreError> {
        blocking(&self.store, move |store| {
            let admitted: Option<Admitted> = get(store, ADMISSIONS, &commitment.key())?;
            Ok(admitted.map(|admitted| admitted.run_id))
        })
        .await
    }
}

/// Runs by the request that asked for them.
#[derive(Clone, Debug)]
pub struct Requests {
    pub(super) store: Arc<dyn Store>,
}

/// A request to start a run, as its sender names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// Whose request it is: ids of different senders never meet.
    pub sender: String,
    pub request_id: String,
    /// Digest of everything that was asked for.
    pub digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The given run answers the request.
    New,
    /// The same was asked before; this run answers it, whether or not it has been created yet.
    Same { run_id: String },
    /// The id was used before, for something else.
    Differs { run_id: String },
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    sender: String,
    request_id: String,
    digest: Digest,
    run_id: String,
}

impl StartRequest {
    fn key(&self) -> String {
        key(&[&self.sender, &self.request_id])
    }
}

impl Requests {
    /// What [`Requests::register`] would say of a request, which is not noted.
    pub async fn find(&self, request: StartRequest) -> Result<Registered, StoreError> {
        blocking(&self.store, move |store| {
            let found: Option<Request> = get(store, REQUESTS, &request.key())?;
            Ok(found.map_or(Registered::New, |earlier| earlier.answers(&request.digest)))
        })
        .await
    }

    /// Notes that `run_id` answers a request, unless another run does. Durable when it returns.
    pub async fn register(&self, request: StartRequest, run_id: &str) -> Result<Registered, StoreError> {
        let run_id = run_id.to_owned();
        blocking(&self.store, move |store| {
            let key = request.key();
            let StartRequest { sender, request_id, digest } = request;
            let document = Request { sender, request_id, digest, run_id };
            Ok(match put_if_absent(store, REQUESTS, &key, &document)? {
                None => Registered::New,
                Some(earlier) => earlier.answers(&document.digest),
            })
        })
        .await
    }
}

impl Request {
    /// What this means for a request of the same name.
    fn answers(self, digest: &Digest) -> Registered {
        let run_id = self.run_id;
        if self.digest == *digest { Registered::Same { run_id } } else { Registered::Differs { run_id } }
    }
}
