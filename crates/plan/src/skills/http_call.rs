//! `http_call`: one HTTP request, whose answer is the output.

use bytes::Bytes;
use macp_plan_core::cause::Cause;
use macp_plan_core::cost::Usage;
use macp_plan_core::effect::{Effect, Idempotency};
use macp_plan_core::reference;
use macp_plan_core::skill::{PureSkill, SkillMetadata};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use super::exchange::{Answer, Exchange, Request};
use super::fault::Fault;
use super::headers::{self, Prepared, Target, header_name};
use super::{answer, document, metadata};
use crate::egress;
use crate::schema::Schema;
use crate::secrets::{self, Bindings};
use crate::skill::{Call, Calling, Observation, Skill};

pub const ID: &str = "http_call";
pub const VERSION: &str = "1.2.0";

const REDIRECTS: u32 = 5;

/// The largest answer that is read, in bytes; an operator may set less, never more. It belongs to the version: what a
/// call can cost at most must not depend on where that is computed again.
pub const ANSWER_BYTES_MAX: usize = 10 * 1024 * 1024;

/// What of an answer's head is told. Cookies and challenges are not: they are for the client, and may be confidential.
const TOLD: [&str; 17] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-request-id",
];

#[derive(Debug)]
pub struct HttpCall {
    metadata: SkillMetadata,
    input: Schema,
    exchange: Exchange,
    bindings: Bindings,
}

impl HttpCall {
    pub(crate) fn new(exchange: Exchange, bindings: Bindings) -> Self {
        let metadata = metadata::http_call();
        let input = Schema::compile(&metadata.input_schema).expect("the skill's own schema compiles");
        Self { metadata, input, exchange, bindings }
    }

    async fn dispatch(&self, call: Call<'_>) -> Observation {
        let request = match self.request(&call) {
            Ok(request) => request,
            Err(fault) => return Observation::new(fault.cause, fault.message),
        };
        let target = egress::target(&request.url).unwrap_or_default();
        let sent = request.body.as_ref().map_or(0, Bytes::len);
        match self.exchange.run(request, call.timeout).await {
            Ok(answer) => {
                if let Ok(body) = &answer.body {
                    match declares_json(&answer.headers) {
                        true => answer::reserve_json(body).await,
                        false => answer::reserve_text(body).await,
                    }
                }
                observed(&target, answer, sent, flag(call.parameters, "expect_json", false))
            }
            Err(fault) => {
                let observation = Observation::new(fault.cause, fault.message);
                if fault.answered { observation.with_usage(used(sent)) } else { observation }
            }
        }
    }

    fn request(&self, call: &Call<'_>) -> Result<Request, Fault> {
        let invalid = |problem: String| Fault::new(Cause::InputInvalid, problem);
        let parameters = call.parameters;
        let missing = || invalid("at the top: `url` is missing".to_owned());
        let url = url(parameters.get("url").and_then(Value::as_str).ok_or_else(missing)?).map_err(invalid)?;
        let method = method(parameters);
        let effect_key = call.effect_keys.first().map(String::as_str);
        let target = Target { method: &method, url: &url, effect_key };
        // Parameters name no secret that the step does not: the executor has refused those.
        let prepared = call.http.headers(headers_of(parameters), target, &self.bindings)?;
        let Prepared { mut headers, confidential } = prepared;
        let body = body(parameters).map_err(invalid)?.map(|(bytes, kind)| {
            headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
            bytes
        });
        let most = parameters.get("max_redirects").and_then(Value::as_u64).and_then(|most| u32::try_from(most).ok());
        let redirects_max = flag(parameters, "follow_redirects", true).then(|| most.unwrap_or(REDIRECTS));
        Ok(Request { method, url, headers, confidential, body, redirects_max })
    }
}

impl PureSkill for HttpCall {
    fn metadata(&self) -> &SkillMetadata {
        &self.metadata
    }

    fn effects(&self, parameters: &Map<String, Value>) -> Vec<Effect> {
        let url = parameters.get("url").and_then(Value::as_str).and_then(|text| Url::parse(text).ok());
        // A URL that cannot be read is refused before anything is sent, so no effect ever has this target.
        let target = url.as_ref().and_then(egress::target).unwrap_or_else(|| "unknown".to_owned());
        // A method that is a reference may turn out to be any.
        let idempotency = match parameters.get("method").map(Value::as_str) {
            None | Some(Some("GET" | "HEAD")) => Idempotency::Natural,
            _ if flag(parameters, "target_dedupes", false) => Idempotency::Keyed,
            _ => Idempotency::None,
        };
        vec![Effect { kind: "http_request".to_owned(), target, idempotency }]
    }

    fn usage_bound(&self, parameters: &Map<String, Value>) -> Usage {
        // A body that cannot be written is refused before anything is sent.
        let sent = body(parameters).map_or(0, |body| body.map_or(0, |(bytes, _)| bytes.len()));
        let answered = if method(parameters) == Method::HEAD { 0 } else { ANSWER_BYTES_MAX };
        used(sent + answered)
    }

    fn success_code(&self) -> &'static str {
        "OK_HTTP_CALL"
    }

    fn check_input(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        self.input.check(&Value::Object(parameters.clone()))?;
        check_written(parameters)
    }

    /// A reference in one place leaves open what stands there, and not what the plan says elsewhere.
    fn check_template(&self, parameters: &Map<String, Value>) -> Result<(), String> {
        if reference::is_literal(parameters) { self.check_input(parameters) } else { check_written(parameters) }?;
        // Looked at where plans are checked, and not in every call: what is recorded was called, and refused then.
        let scheme = parameters.get("url").and_then(Value::as_str).and_then(|url| url.split_once("://"));
        match scheme {
            Some((scheme, _))
                if !matches!(scheme.to_ascii_lowercase().as_str(), "https" | "http") && literal(scheme) =>
            {
                Err(format!("at /url: a URL begins with https or http, not with {scheme}"))
            }
            _ => Ok(()),
        }
    }
}

fn literal(text: &str) -> bool {
    !super::has_reference(text)
}

/// What the schema cannot say of parameters, as far as they are written and not referred to.
fn check_written(parameters: &Map<String, Value>) -> Result<(), String> {
    if let Some(text) = parameters.get("url").and_then(Value::as_str).filter(|text| literal(text)) {
        url(text)?;
    }
    for (name, value) in headers_of(parameters) {
        header_name(name)?;
        headers::check_value(name, value)?;
        if literal(value) {
            secrets::check(value).map_err(|error| format!("at /headers/{name}: {error}"))?;
        }
    }
    for place in ["body", "body_text"] {
        if parameters.get(place).is_some_and(names_a_secret) {
            return Err(format!("at /{place}: {HEADERS_ONLY}"));
        }
    }
    Ok(())
}

const HEADERS_ONLY: &str = "a secret can be named in a header only; here its name would be sent in its place";

/// Whether a text in a body is the name of a secret. One that only mentions a name may be about anything.
fn names_a_secret(body: &Value) -> bool {
    match body {
        Value::String(text) => text.starts_with(secrets::REFERENCE),
        Value::Array(elements) => elements.iter().any(names_a_secret),
        Value::Object(members) => members.values().any(names_a_secret),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Skill for HttpCall {
    fn call<'a>(&'a self, call: Call<'a>) -> Calling<'a> {
        Box::pin(self.dispatch(call))
    }
}

/// One request, and the bytes of the bodies that went out and came back. Heads are not counted, nor is what redirects
/// on the way made of the request.
fn used(bytes: usize) -> Usage {
    Usage { requests: 1, bytes: bytes.try_into().unwrap_or(u64::MAX), ..Usage::default() }
}

fn flag(parameters: &Map<String, Value>, name: &str, default: bool) -> bool {
    parameters.get(name).and_then(Value::as_bool).unwrap_or(default)
}

fn method(parameters: &Map<String, Value>) -> Method {
    let name = parameters.get("method").and_then(Value::as_str).unwrap_or("GET");
    Method::from_bytes(name.as_bytes()).unwrap_or(Method::GET)
}

fn headers_of(parameters: &Map<String, Value>) -> impl Iterator<Item = (&str, &str)> + Clone {
    let headers = parameters.get("headers").and_then(Value::as_object).into_iter().flatten();
    headers.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
}

pub(crate) fn url(text: &str) -> Result<Url, String> {
    // The text itself stays out of errors: a query may hold what is nobody's business.
    let url = Url::parse(text).map_err(|error| format!("at /url: not a URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("at /url: a URL must not carry a user or a password; use a header and `secret://name`".to_owned());
    }
    if url.host().is_none() {
        return Err("at /url: the URL names no host".to_owned());
    }
    if secrets::mentions(text) {
        return Err(format!("at /url: {HEADERS_ONLY}"));
    }
    Ok(url)
}

/// The body of a request, and of what type it is unless the plan says otherwise.
fn body(parameters: &Map<String, Value>) -> Result<Option<(Bytes, &'static str)>, String> {
    match (parameters.get("body"), parameters.get("body_text").and_then(Value::as_str)) {
        (Some(body), None) => {
            // Canonical, so that every attempt sends the same bytes and a target can compare them.
            let text = macp_wire::canonical::to_string(body).map_err(|error| format!("at /body: {error}"))?;
            Ok(Some((Bytes::from(text), "application/json")))
        }
        (None, Some(text)) => Ok(Some((Bytes::copy_from_slice(text.as_bytes()), "text/plain; charset=utf-8"))),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("at the top: give `body` or `body_text`, not both".to_owned()),
    }
}

fn observed(target: &str, answer: Answer, sent: usize, expect_json: bool) -> Observation {
    let mut cause = answer.cause();
    let Answer { status, headers, body, retry_after_ms, redirects, .. } = answer;
    let answered = body.as_ref().map_or(0, Bytes::len);
    let mut output = json!({"status_code": status, "headers": told_headers(&headers)});
    let mut message = format!("{target} answered {status}");
    match body {
        Ok(body) => {
            match put_body(&mut output, &headers, &body) {
                Err(problem) if expect_json && status < 400 => {
                    cause = Cause::DeserializationFailed;
                    message = format!("{message}, but {problem}");
                }
                // Whoever refers to a part of it would wonder where that is.
                Err(problem) if declares_json(&headers) => {
                    message = format!("{message}; kept as text, since {problem}")
                }
                _ => {}
            }
        }
        // The status decides; a body that did not arrive behind it is only missing.
        Err(fault) if status >= 400 => message = format!("{message}; its body was lost: {}", fault.message),
        Err(fault) => return Observation::new(fault.cause, fault.message).with_detail("upstream_status", status),
    }
    let mut observation = Observation::new(cause, message)
        .with_usage(used(sent + answered))
        .with_output(output)
        .with_retry_after_ms(retry_after_ms)
        .with_detail("upstream_status", status);
    if redirects > 0 {
        observation = observation.with_detail("redirects", redirects);
    }
    observation
}

fn told_headers(headers: &HeaderMap) -> Map<String, Value> {
    let told = TOLD.iter().filter_map(|name| {
        let values: Vec<&str> = headers.get_all(*name).iter().filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then(|| ((*name).to_owned(), Value::from(values.join(", "))))
    });
    told.collect()
}

/// Puts the body into the output: as the value it is, else as text, else as base64. Says why it is not a JSON value.
fn put_body(output: &mut Value, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let declared = content_type(headers);
    let problem = match is_json(declared) {
        true => match document::read(body) {
            Ok(value) => {
                output["body"] = value;
                return Ok(());
            }
            Err(unfit) => format!("its body cannot be taken as JSON: {unfit}"),
        },
        false => format!("its body is not JSON but `{declared}`"),
    };
    document::put_text(output, body);
    Err(problem)
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn declares_json(headers: &HeaderMap) -> bool {
    is_json(content_type(headers))
}

/// `application/json`, or a type whose suffix says that it is JSON underneath.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
