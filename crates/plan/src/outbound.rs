//! The HTTP client of skills that authors write: the same egress rules, bounds and secrets as those that come with the
//! runtime, and no way around them.
//!
//! ```text
//!  skill ──Request──▶ Http ──▶ secrets may go there? ──▶ egress rules ──▶ the world
//! ```
//!
//! Only a skill that declares [`PERMISSION`] gets a client: an operator who withholds it must be able to rely on that.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use macp_plan_core::cause::Cause;
use tokio::time::Instant;

pub use reqwest::Method;
pub use reqwest::header::HeaderMap;

use crate::secrets::{self, Allowed, Bindings, Secrets};
use crate::skill::Observation;
use crate::skills::exchange::{self, Exchange};
use crate::skills::fault::Fault;
use crate::skills::headers::{self, Prepared, Target};
use crate::skills::http_call::url;

/// What a skill has to declare to call out.
pub const PERMISSION: &str = "network:outbound";

/// What a registry calls out with: one set of rules for all its skills.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) exchange: Exchange,
    pub(crate) bindings: Bindings,
}

/// The client of one dispatch. All requests of the dispatch share its time.
#[derive(Clone, Copy)]
pub struct Http<'a> {
    open: Option<Open<'a>>,
    secrets: &'a dyn Secrets,
    allowed: Allowed<'a>,
    effect_keys: &'a [String],
    timeout: Duration,
    deadline: Instant,
}

/// What there is to call out with.
#[derive(Clone, Copy)]
pub(crate) struct Open<'a> {
    pub(crate) client: &'a Client,
    /// Whether a request of this dispatch may have taken effect.
    pub(crate) acted: &'a AtomicBool,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub url: String,
    /// Values may name secrets as `secret://name`, if the step names them; they are looked up when the request goes out.
    pub headers: Vec<(String, String)>,
    pub body: Option<Bytes>,
    /// Redirects to follow at most; none takes a redirect as the answer.
    pub redirects_max: Option<u32>,
    /// Which of the effects that the skill declares this request is, from 0: its key goes along as `Idempotency-Key`
    /// unless the method is GET or HEAD.
    pub effect: usize,
}

impl Request {
    #[must_use]
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: Vec::new(), body: None, redirects_max: None, effect: 0 }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }
}

/// What came back, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// How long the other side asks to wait before the next request.
    pub retry_after_ms: Option<u64>,
}

/// A request that has no answer, and what a skill reports then. Neither names what was sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct NoAnswer {
    pub cause: Cause,
    pub message: String,
}

impl From<NoAnswer> for Observation {
    fn from(no_answer: NoAnswer) -> Self {
        Observation::new(no_answer.cause, no_answer.message)
    }
}

impl From<Fault> for NoAnswer {
    fn from(Fault { cause, message, .. }: Fault) -> Self {
        Self { cause, message }
    }
}

impl<'a> Http<'a> {
    pub(crate) fn new(
        open: Option<Open<'a>>,
        secrets: &'a dyn Secrets,
        allowed: Allowed<'a>,
        effect_keys: &'a [String],
        timeout: Duration,
    ) -> Self {
        Self { open, secrets, allowed, effect_keys, timeout, deadline: Instant::now() + timeout }
    }

    /// A client that reaches nothing, for calls that are made by hand.
    #[must_use]
    pub fn closed(secrets: &'a dyn Secrets) -> Self {
        Self::new(None, secrets, Allowed::none(), &[], Duration::ZERO)
    }

    /// Sends a request once and reads its answer, within what is left of the call's time.
    pub async fn send(&self, request: Request) -> Result<Answer, NoAnswer> {
        let Some(Open { client, acted }) = self.open else {
            let message =
                format!("there is no client: none is set up here, or the skill does not declare `{PERMISSION}`");
            return Err(NoAnswer { cause: Cause::EgressForbidden, message });
        };
        let changes = !matches!(request.method, Method::GET | Method::HEAD);
        let doubt = changes.then(|| Doubt { acted });
        let sent = self.exchange(client, request).await;
        let proves = match &sent {
            Ok(answer) => Cause::http(answer.status).proves_no_effect(),
            Err(no_answer) => no_answer.cause.proves_no_effect(),
        };
        if let (Some(doubt), true) = (doubt, proves) {
            doubt.dispel();
        }
        sent
    }

    async fn exchange(&self, client: &Client, request: Request) -> Result<Answer, NoAnswer> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = format!("the call has used up its {} ms", self.timeout.as_millis());
            return Err(NoAnswer { cause: Cause::ClientTimeout, message });
        }
        let request = self.prepared(client, request)?;
        let answer = client.exchange.run(request, left).await?;
        // A skill that sees the status alone would take it for what became of its own request.
        if let cause @ (Cause::Unclassified | Cause::HttpStatus { redirected: true, .. }) = answer.cause() {
            let message = format!("behind a redirect, the answer was {}", answer.status);
            return Err(NoAnswer { cause, message });
        }
        let (status, headers, retry_after_ms) = (answer.status, answer.headers, answer.retry_after_ms);
        Ok(Answer { status, headers, body: answer.body?, retry_after_ms })
    }

    /// The request as it goes out.
    fn prepared(&self, client: &Client, request: Request) -> Result<exchange::Request, Fault> {
        let Request { method, url: text, headers: listed, body, redirects_max, effect } = request;
        let invalid = |problem: String| Fault::new(Cause::InputInvalid, problem);
        let url = url(&text).map_err(invalid)?;
        let listed = listed.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for name in listed.clone().flat_map(|(_, value)| secrets::names(value).unwrap_or_default()) {
            self.allowed.check(name).map_err(|error| invalid(error.to_string()))?;
        }
        let effect_key = self.effect_keys.get(effect).map(String::as_str);
        let target = Target { method: &method, url: &url, effect_key };
        let Prepared { headers, confidential } = self.headers(listed, target, &client.bindings)?;
        Ok(exchange::Request { method, url, headers, confidential, body, redirects_max })
    }

    /// Headers with secrets in their place, each of them only on its way to where it may go. Whether the call may use
    /// them at all is for the caller to know.
    pub(crate) fn headers<'h>(
        &self,
        listed: impl Iterator<Item = (&'h str, &'h str)>,
        target: Target<'_>,
        bindings: &Bindings,
    ) -> Result<Prepared, Fault> {
        headers::prepare(listed, target, bindings, self.secrets)
    }
}

/// Stands for a request that may take effect from before it goes out. Whatever ends it without a proof that it took none
/// leaves it open, also a skill that waits no longer and drops the request half-way.
struct Doubt<'a> {
    acted: &'a AtomicBool,
}

impl Doubt<'_> {
    /// The request is proven to have had no effect. What others of the call did stays as it is.
    fn dispel(self) {
        std::mem::forget(self);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.acted.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Http<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
