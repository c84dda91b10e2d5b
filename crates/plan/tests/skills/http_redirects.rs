//! `http_call` and redirects: followed by hand, judged at every hop, one dispatch all the same.

use macp_plan_core::cause::Cause;
use serde_json::{Value, json};

use crate::server::{Reply, Server, answer};
use crate::world::{EFFECT_KEY, PATIENT, SECRET, call, expect_code, http, settings};

fn redirect(status: u16, location: &str) -> Vec<u8> {
    answer(status, &[("Location", location)], "moved")
}

async fn redirecting(status: u16, location: &str) -> Server {
    Server::start(vec![Reply::Bytes(redirect(status, location)), Reply::Bytes(answer(200, &[], "here"))]).await
}

#[tokio::test]
async fn redirects_are_followed() {
    let skill = http(&settings());
    for status in [301, 302, 303, 307, 308] {
        let server = redirecting(status, "/there?x=1#part").await;
        let seen = call(&*skill, json!({"url": server.url("/here")}), PATIENT).await;
        expect_code(&*skill, &seen, "OK_HTTP_CALL");
        assert_eq!(seen.output.unwrap()["body"], "here");
        assert_eq!(seen.details["redirects"], 1);
        let lines: Vec<String> = server.requests().iter().map(|request| request.line().to_owned()).collect();
        assert_eq!(lines, ["GET /here HTTP/1.1", "GET /there?x=1 HTTP/1.1"]);
    }
}

#[tokio::test]
async fn a_redirect_decides_about_method_and_body() {
    let skill = http(&settings());
    let second = async |method: &str, status: u16| {
        let server = redirecting(status, "/there").await;
        let parameters = json!({"url": server.url("/"), "method": method, "body": [1]});
        expect_code(&*skill, &call(&*skill, parameters, PATIENT).await, "OK_HTTP_CALL");
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        let request = requests.into_iter().next_back().unwrap();
        let method = request.line().split(' ').next().unwrap().to_owned();
        let key = request.header("idempotency-key").map(str::to_owned);
        (method, String::from_utf8(request.body).unwrap(), key)
    };
    let kept = |method: &str| (method.to_owned(), "[1]".to_owned(), Some(EFFECT_KEY.to_owned()));
    let turned = || ("GET".to_owned(), String::new(), None);
    assert_eq!(second("POST", 301).await, turned());
    assert_eq!(second("POST", 302).await, turned());
    assert_eq!(second("POST", 303).await, turned());
    assert_eq!(second("PUT", 303).await, turned());
    assert_eq!(second("PUT", 302).await, kept("PUT"));
    assert_eq!(second("POST", 307).await, kept("POST"));
    assert_eq!(second("DELETE", 308).await, kept("DELETE"));
}

#[tokio::test]
async fn a_loop_ends() {
    let skill = http(&settings());
    let requests_until_refusal = async |extra: Option<u32>| {
        let server = Server::answering(redirect(302, "/again")).await;
        let mut parameters = json!({"url": server.url("/")});
        if let Some(most) = extra {
            parameters["max_redirects"] = json!(most);
        }
        let seen = call(&*skill, parameters, PATIENT).await;
        assert_eq!(seen.cause, Cause::TooManyRedirects);
        expect_code(&*skill, &seen, "ERR_HTTP_4XX");
        server.requests().len()
    };
    assert_eq!(requests_until_refusal(None).await, 6, "the first request and five redirects");
    assert_eq!(requests_until_refusal(Some(1)).await, 2);
    assert_eq!(requests_until_refusal(Some(0)).await, 1);
}

#[tokio::test]
async fn a_redirect_can_be_the_answer() {
    let skill = http(&settings());
    let server = redirecting(302, "/there").await;
    let seen = call(&*skill, json!({"url": server.url("/"), "follow_redirects": false}), PATIENT).await;
    assert_eq!(seen.cause, Cause::http(302));
    expect_code(&*skill, &seen, "OK_HTTP_CALL");
    assert_eq!(seen.output.unwrap()["headers"]["location"], "/there");
    // Nowhere to go.
    for bytes in [answer(302, &[], ""), redirect(302, "http://[broken"), answer(300, &[("location", "/x")], "")] {
        let server = Server::answering(bytes).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
        expect_code(&*skill, &seen, "OK_HTTP_CALL");
        server.only_request();
    }
}

#[tokio::test]
async fn a_redirect_cannot_lead_out_of_what_is_allowed() {
    let skill = http(&settings());
    // Loopback by IPv6 is not among what the settings allow; a fault of the rules would still stay on this machine.
    for location in ["http://[::1]:9/latest", "https://evil.example/", "ftp://127.0.0.1/", "file:///etc/passwd"] {
        let server = Server::answering(redirect(302, location)).await;
        let seen = call(&*skill, json!({"url": server.url("/")}), PATIENT).await;
        assert_eq!(seen.cause, Cause::EgressForbidden, "{location}: {seen:?}");
        expect_code(&*skill, &seen, "ERR_POLICY_VIOLATION");
    }
}

/// AOS-42: who answers a POST with where to look next may have acted on it, whatever comes of looking there. Where the
/// method stays, the first server asks to be left out, and the last one decides.
#[tokio::test]
async fn what_is_behind_a_redirect_proves_nothing_about_a_request_that_was_heard() {
    let skill = http(&settings());
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/", listener.local_addr().unwrap())
    };
    let ends = async |method: &str, status: u16, location: &str, end: u16| {
        let replies = vec![Reply::Bytes(redirect(status, location)), Reply::Bytes(answer(end, &[], "no"))];
        let server = Server::start(replies).await;
        call(&*skill, json!({"url": server.url("/"), "method": method}), PATIENT).await
    };
    let seen = async |method: &str, status: u16, location: &str| ends(method, status, location, 404).await;
    for location in ["/there", "https://evil.example/", nobody.as_str()] {
        for (method, status) in [("POST", 301), ("POST", 302), ("POST", 303), ("PUT", 303), ("DELETE", 303)] {
            let seen = seen(method, status, location).await;
            assert!(!seen.cause.proves_no_effect(), "{method} {status} {location}: {seen:?}");
            // AOS-36: a status has its code all the same.
            expect_code(&*skill, &seen, if location == "/there" { "ERR_HTTP_404" } else { "ERR_UNKNOWN" });
        }
        for (method, status) in [("GET", 303), ("GET", 302), ("PUT", 302), ("POST", 307)] {
            let seen = seen(method, status, location).await;
            assert!(seen.cause.proves_no_effect(), "{method} {status} {location}: {seen:?}");
        }
    }
    // A code that policies repeat a request for must not stand for one that may have been heard.
    expect_code(&*skill, &ends("POST", 303, "/there", 429).await, "ERR_UNKNOWN");
    expect_code(&*skill, &ends("POST", 307, "/there", 429).await, "ERR_HTTP_429");
    let there = seen("POST", 303, "/there").await;
    assert_eq!((&there.details["upstream_status"], &there.output.unwrap()["body"]), (&json!(404), &json!("no")));
}

#[tokio::test]
async fn what_is_confidential_stays_with_the_first_server() {
    let skill = http(&settings());
    let other = Server::answering(answer(200, &[], "")).await;
    let first = Server::answering(redirect(307, &other.url("/"))).await;
    let headers = json!({"X-Key": "secret://token", "Authorization": "Basic abc", "Cookie": "a=b", "X-Plain": "plain"});
    let parameters = |url: String| json!({"url": url, "headers": headers});
    expect_code(&*skill, &call(&*skill, parameters(first.url("/")), PATIENT).await, "OK_HTTP_CALL");
    assert_eq!(first.only_request().header("x-key"), Some(SECRET));
    let second = other.only_request();
    let got = |name: &str| second.header(name).map(str::to_owned);
    assert_eq!((got("x-key"), got("authorization"), got("cookie")), (None, None, None));
    assert_eq!(got("x-plain"), Some("plain".to_owned()));

    // On the same server it may be needed again.
    let same = redirecting(307, "/there").await;
    expect_code(&*skill, &call(&*skill, parameters(same.url("/")), PATIENT).await, "OK_HTTP_CALL");
    assert_eq!(same.requests()[1].header("x-key"), Some(SECRET));
}

#[tokio::test]
async fn hops_share_one_timeout() {
    let skill = http(&settings());
    let server = Server::start(vec![Reply::Bytes(redirect(302, "/slow")), Reply::ThenHang(Vec::new())]).await;
    let seen = call(&*skill, json!({"url": server.url("/")}), crate::world::BRIEF).await;
    assert_eq!(seen.cause, Cause::ClientTimeout);
    assert_eq!(seen.output, None::<Value>);
}
