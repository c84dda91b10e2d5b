//! One HTTP exchange: a request, the redirects that lead to its answer, and the answer, all within one timeout.
//!
//! Every hop passes the egress rules. A connection serves one request and is closed: nothing is kept between calls that
//! could make one run's call end differently because of another's, and the client has no reason to send twice.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use macp_plan_core::cause::Cause;
use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Certificate, Client, Method, Response, Url, redirect, retry};
use tokio::time::Instant;

use super::fault::Fault;
use crate::egress::{self, Egress, Governed, Resolver};

/// Far beyond what an answer's head should need.
const HEADERS_MAX: usize = 200;

/// The part of the largest answer up to which the buffer of an answer of unknown length grows by doubling.
const GROWN_PART: usize = 16;
/// What a call takes without its answer: heads, and the buffers of a connection.
const CALL_BYTES: usize = 256 * 1024;

/// What a call takes whose answer has at most so many bytes, while it is being read.
pub(crate) fn memory_of(answer_bytes_max: usize) -> usize {
    CALL_BYTES + answer_bytes_max + answer_bytes_max / GROWN_PART
}

/// Which certificates of servers are believed.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    pub(crate) system_roots: bool,
    pub(crate) roots: Vec<Certificate>,
}

/// Makes exchanges, under one set of egress rules.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    client: Client,
    egress: Arc<Egress>,
    answer_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Headers that are for the first host only.
    pub(crate) confidential: Vec<HeaderName>,
    pub(crate) body: Option<Bytes>,
    /// Redirects to follow at most; `None` takes a redirect as the answer.
    pub(crate) redirects_max: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The head may have arrived although the body did not.
    pub(crate) body: Result<Bytes, Fault>,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) redirects: u32,
    /// It answers a GET that took the place of another method. Whoever redirected it so may have acted on that.
    pub(crate) is_turned: bool,
}

impl Answer {
    /// What the status says of the request that was asked for, which may not be the one it answers.
    pub(crate) fn cause(&self) -> Cause {
        let cause = Cause::http(self.status);
        if self.is_turned { cause.unproven() } else { cause }
    }
}

/// Where a request has been led.
struct Reached {
    response: Response,
    redirects: u32,
    is_turned: bool,
}

impl Exchange {
    pub(crate) fn new(
        egress: Egress,
        resolver: Arc<dyn Resolver>,
        trust: &Trust,
        answer_bytes_max: usize,
    ) -> Result<Self, reqwest::Error> {
        let egress = Arc::new(egress);
        let builder = Client::builder()
            .user_agent(concat!("macp-runtime/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Governed { egress: Arc::clone(&egress), resolver })
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .http1_only()
            .http1_max_headers(HEADERS_MAX)
            .pool_max_idle_per_host(0)
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        let roots = trust.roots.iter().cloned();
        let builder = match trust.system_roots {
            true => builder.tls_certs_merge(roots),
            false => builder.tls_certs_only(roots),
        };
        Ok(Self { client: builder.build()?, egress, answer_bytes_max })
    }

    /// What a call takes at most while its answer is read, in bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        memory_of(self.answer_bytes_max)
    }

    /// Sends a request and reads the answer. The timeout covers all of it, on the monotonic clock.
    pub(crate) async fn run(&self, request: Request, timeout: Duration) -> Result<Answer, Fault> {
        let deadline = Instant::now() + timeout;
        let host = host_of(&request.url);
        let reached = match tokio::time::timeout_at(deadline, self.reach(request)).await {
            Ok(reached) => reached?,
            Err(_elapsed) => return Err(late(&host, timeout)),
        };
        let Reached { response, redirects, is_turned } = reached;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let retry_after_ms = headers.get(header::RETRY_AFTER).and_then(|value| wait_of(value, SystemTime::now()));
        let body = match tokio::time::timeout_at(deadline, self.read(&host, response)).await {
            Ok(body) => body,
            Err(_elapsed) => Err(late(&host, timeout)),
        };
        Ok(Answer { status, headers, body, retry_after_ms, redirects, is_turned })
    }

    /// Follows redirects until there is an answer.
    async fn reach(&self, mut request: Request) -> Result<Reached, Fault> {
        let (mut redirects, mut is_turned) = (0, false);
        loop {
            let response = self.send(&request).await.map_err(|fault| behind(redirects, is_turned, fault))?;
            let (Some(most), Some(next)) = (request.redirects_max, redirect_of(&request.url, &response)) else {
                return Ok(Reached { response, redirects, is_turned });
            };
            if redirects == most {
                let host = host_of(&request.url);
                let told = format!("{host} redirects once more after the {most} redirects that are followed");
                return Err(Fault { answered: true, ..Fault::new(Cause::TooManyRedirects, told) });
            }
            redirects += 1;
            is_turned |= turn(&mut request, response.status().as_u16(), next);
        }
    }

    async fn send(&self, request: &Request) -> Result<Response, Fault> {
        self.egress.check_url(&request.url)?;
        let mut sending =
            self.client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        if let Some(body) = &request.body {
            sending = sending.body(body.clone());
        }
        egress::towards(&request.url, sending.send())
            .await
            .map_err(|error| Fault::of_client(&host_of(&request.url), error))
    }

    async fn read(&self, host: &str, mut response: Response) -> Result<Bytes, Fault> {
        let too_large = || {
            let most = self.answer_bytes_max;
            Fault::new(
                Cause::AnswerTooLarge,
                format!("the answer of {host} has more than the {most} bytes that are read"),
            )
        };
        // An answer to HEAD announces a length it does not have; the client knows, and reports none.
        if response.content_length().is_some_and(|length| length > self.answer_bytes_max as u64) {
            return Err(too_large());
        }
        // An announced length is what arrives. Otherwise the buffer grows by doubling only as long as a copy of it is
        // small against the largest answer.
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
        let mut body = BytesMut::with_capacity(announced.unwrap_or_default());
        while let Some(chunk) = response.chunk().await.map_err(|error| Fault::of_client(host, error))? {
            let length = body.len() + chunk.len();
            if length > self.answer_bytes_max {
                return Err(too_large());
            }
            if length > body.capacity() && length > self.answer_bytes_max / GROWN_PART {
                body.reserve(self.answer_bytes_max - body.len());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}

/// A fault as it looks from the request that was asked for, which redirects may have led away from.
fn behind(redirects: u32, is_turned: bool, fault: Fault) -> Fault {
    let answered = redirects > 0 && fault.cause.consumes_nothing();
    match is_turned {
        true => {
            let told = format!("behind a redirect, {}", fault.message);
            Fault { answered, ..Fault::new(fault.cause.unproven(), told) }
        }
        false => Fault { answered, ..fault },
    }
}

fn host_of(url: &Url) -> String {
    egress::target(url).unwrap_or_default()
}

fn late(host: &str, timeout: Duration) -> Fault {
    Fault::new(Cause::ClientTimeout, format!("{host} did not answer within {} ms", timeout.as_millis()))
}

/// Where an answer redirects to, if it does and says so readably.
fn redirect_of(url: &Url, response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
    url.join(location).ok()
}

/// Makes of a request the one a redirect asks for. Says whether another method was turned into a GET.
fn turn(request: &mut Request, status: u16, mut next: Url) -> bool {
    let becomes_get = match status {
        303 => request.method != Method::HEAD,
        301 | 302 => request.method == Method::POST,
        _ => false,
    };
    let is_turned = becomes_get && request.method != Method::GET;
    if becomes_get {
        request.method = Method::GET;
        request.body = None;
        for name in [header::CONTENT_TYPE, HeaderName::from_static(IDEMPOTENCY_KEY)] {
            request.headers.remove(name);
        }
    }
    if next.origin() != request.url.origin() {
        for name in &request.confidential {
            request.headers.remove(name);
        }
        for name in [header::AUTHORIZATION, header::COOKIE] {
            request.headers.remove(name);
        }
    }
    // A server must not choose credentials on the way, and a fragment is never sent.
    let _ = next.set_username("");
    let _ = next.set_password(None);
    next.set_fragment(None);
    request.url = next;
    is_turned
}

pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How long a `Retry-After` asks to wait: seconds, or a date that is turned into a duration here and now. What cannot be
/// read is no hint.
fn wait_of(value: &header::HeaderValue, now: SystemTime) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) {
        // Digits beyond all numbers ask for the longest wait there is.
        let wait = text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000);
        return Some(wait.min(macp_wire::canonical::INTEGER_MAX));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let wait = until.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    /// AOS-48: both forms, and nothing else.
    #[test]
    fn waits_are_read_in_both_forms() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_000);
        let wait = |text: &'static str| wait_of(&HeaderValue::from_static(text), now);
        assert_eq!(wait("120"), Some(120_000));
        assert_eq!(wait("0"), Some(0));
        assert_eq!(wait(" 7 "), Some(7_000));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10_000));
        assert_eq!(wait("Sunday, 06-Nov-94 08:49:47 GMT"), Some(10_000));
        assert_eq!(wait("Sun Nov  6 08:49:47 1994"), Some(10_000));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0), "a date that has passed asks for no wait");
        for endless in ["99999999999999999999", "9999999999999999"] {
            assert_eq!(wait(endless), Some(macp_wire::canonical::INTEGER_MAX), "the policy's cap comes later");
        }
        for malformed in ["", "-1", "1.5", "+3", "soon", "1e3"] {
            assert_eq!(wait(malformed), None, "{malformed}");
        }
    }
}
