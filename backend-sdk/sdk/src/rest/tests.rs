use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dstack_backend_types::{BackendError, ErrorKind, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ErrorMap, Paging, Refreshing, Rest, wait_until};
use crate::testing::{Host, Reply, Request};

const BASE: &str = "https://api.acme.example/v1/";

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

/// A host whose answers come one after the other, the last one for ever.
fn answers(replies: Vec<Reply>) -> Host {
    let mut at = 0;
    Host::new(move |_| {
        let reply = replies.get(at).or(replies.last()).unwrap().clone();
        at += 1;
        reply
    })
}

fn statuses(statuses: &[u16]) -> Host {
    answers(
        statuses
            .iter()
            .map(|status| Reply::status(*status))
            .collect(),
    )
}

#[test]
fn a_request_carries_base_query_headers_login_and_body() {
    let host = answers(vec![Reply::json(200, &json!({"id": 7}))]);
    let api = Rest::new(BASE).bearer(&secret("hush")).header("x-a", "b");
    let reply: Value = api
        .post("/servers")
        .query("dry run", true)
        .json(&json!({"name": "n"}))
        .fetch()
        .unwrap();
    assert_eq!(reply["id"], 7);
    let request = &host.requests()[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/v1/servers")
    );
    assert_eq!(request.query, "dry%20run=true");
    assert_eq!(request.header("x-a"), Some("b"));
    assert_eq!(request.header("authorization"), Some("Bearer hush"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.json(), json!({"name": "n"}));
}

#[test]
fn every_login_has_its_header() {
    let host = statuses(&[200]);
    let by = |api: Rest| {
        api.get("/").done().unwrap();
        host.requests().pop().unwrap()
    };
    let basic = by(Rest::new(BASE).basic("user", &secret("password")));
    assert_eq!(
        basic.header("authorization"),
        Some("Basic dXNlcjpwYXNzd29yZA==")
    );
    let key = by(Rest::new(BASE).key_header("x-api-key", &secret("hush")));
    assert_eq!(key.header("x-api-key"), Some("hush"));
}

#[test]
fn a_token_is_fetched_once_until_shortly_before_its_end() {
    static FETCHED: AtomicU32 = AtomicU32::new(0);
    let host = statuses(&[200]);
    let api = Rest::new(BASE).signed(Refreshing::new(|| {
        let number = FETCHED.fetch_add(1, Ordering::SeqCst);
        Ok((secret(&format!("token-{number}")), Duration::from_secs(120)))
    }));
    for (pause, token) in [(0, "token-0"), (59, "token-0"), (2, "token-1")] {
        crate::host::sleep(Duration::from_secs(pause)).unwrap();
        api.get("/").done().unwrap();
        let request = host.requests().pop().unwrap();
        assert_eq!(
            request.header("authorization").unwrap(),
            format!("Bearer {token}")
        );
    }
}

#[test]
fn only_what_may_be_repeated_is_tried_again() {
    let asked = |replies: Vec<Reply>, call: fn(&Rest) -> Result<(), BackendError>| {
        let host = answers(replies);
        let result = call(&Rest::new(BASE)).map_err(|error| error.kind);
        (host.requests().len(), host.waited().as_millis(), result)
    };
    let busy = || Reply::status(503);
    assert_eq!(
        asked(vec![busy(), Reply::cut(), Reply::status(200)], |api| api
            .get("/")
            .done()),
        (3, 1250, Ok(()))
    );
    assert_eq!(
        asked(vec![busy()], |api| api.get("/").done()),
        (3, 1250, Err(ErrorKind::Transport))
    );
    assert_eq!(
        asked(vec![Reply::cut()], |api| api.post("/").done()),
        (1, 0, Err(ErrorKind::Transport)),
        "it may have been done"
    );
    assert_eq!(
        asked(vec![Reply::cut(), Reply::status(200)], |api| {
            api.post("/")
                .idempotency_key("idempotency-key", "r1")
                .done()
        }),
        (2, 250, Ok(()))
    );
    let wait = |seconds| Reply::status(429).header("retry-after", seconds);
    assert_eq!(
        asked(vec![wait("2"), Reply::status(200)], |api| api
            .post("/")
            .done()),
        (2, 2000, Ok(())),
        "refused unseen"
    );
    assert_eq!(
        asked(vec![wait("60")], |api| api.post("/").done()),
        (1, 0, Err(ErrorKind::RateLimited)),
        "too long to hold a thread"
    );
    assert_eq!(
        asked(vec![Reply::status(404)], |api| api.get("/").done()),
        (1, 0, Err(ErrorKind::NotFound))
    );
}

#[test]
fn a_cancelled_call_ends_in_its_pause() {
    let host = statuses(&[503]);
    host.cancel();
    let error = Rest::new(BASE).get("/").done().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Cancelled);
}

#[test]
fn what_is_not_there_is_none_and_deleted() {
    let _host = statuses(&[404]);
    let api = Rest::new(BASE);
    assert_eq!(api.get("/servers/7").found::<Value>().unwrap(), None);
    api.delete("/servers/7").gone().unwrap();
    assert_eq!(
        api.get("/servers/7").fetch::<Value>().unwrap_err().kind,
        ErrorKind::NotFound
    );
}

#[test]
fn answers_become_kinds_by_the_table() {
    let api = Rest::new(BASE).bearer(&secret("hush-hush")).errors(
        ErrorMap::new()
            .status_and_code(403, "quota", ErrorKind::Quota)
            .code("sold_out", ErrorKind::NoCapacity)
            .code("17", ErrorKind::SkipOffer)
            .text("Out of Stock", ErrorKind::NoCapacity)
            .status(409, ErrorKind::Invalid)
            .code_at("/reason/id")
            .auth_fields(["creds.api_key"]),
    );
    for (status, body, kind) in [
        (403, json!({"error": {"code": "quota"}}), ErrorKind::Quota),
        (403, json!({"error": {"code": "other"}}), ErrorKind::Auth),
        (400, json!({"code": "sold_out"}), ErrorKind::NoCapacity),
        (400, json!({"reason": {"id": 17}}), ErrorKind::SkipOffer),
        (500, json!("we are OUT OF STOCK"), ErrorKind::NoCapacity),
        (409, json!({}), ErrorKind::Invalid),
        (422, json!({}), ErrorKind::Invalid),
        (402, json!({}), ErrorKind::Quota),
        (410, json!({}), ErrorKind::NotFound),
        (418, json!({}), ErrorKind::Internal),
    ] {
        let _host = answers(vec![Reply::json(status, &body)]);
        let error = api.post("/servers").done().unwrap_err();
        assert_eq!(error.kind, kind, "{status} {body}");
        assert_eq!(error.details["status"], status);
    }
    let body = json!({"error": {"code": "denied", "message": "the key hush-hush is wrong"}});
    let _host = answers(vec![Reply::json(401, &body).header("retry-after", "5")]);
    let error = api.get("/servers?token=hush-hush").done().unwrap_err();
    assert_eq!(
        error.message,
        "GET /servers: status 401 (denied): the key *** is wrong"
    );
    assert_eq!(error.details["fields"], json!(["creds.api_key"]));
    assert_eq!(error.retry_after_ms, Some(5000));
}

#[test]
fn an_error_may_hide_behind_a_success() {
    let api = Rest::new(BASE).errors(
        ErrorMap::new()
            .failure_at("/errors/0")
            .message_at("/errors/0/message")
            .text("no longer any instances available", ErrorKind::NoCapacity),
    );
    let body = json!({"errors": [{"message": "There are no longer any instances available"}]});
    let _host = answers(vec![
        Reply::json(200, &body),
        Reply::json(200, &json!({"errors": []})),
    ]);
    let error = api.post("/graphql").done().unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    api.post("/graphql").done().unwrap();
}

#[derive(Debug, Deserialize, PartialEq)]
struct Server {
    id: u32,
}

#[test]
fn a_field_that_is_not_understood_is_named_but_not_shown() {
    #[derive(Debug, Deserialize)]
    struct Page {
        #[allow(dead_code, reason = "read only")]
        servers: Vec<Server>,
    }
    let body = json!({"servers": [{"id": 1}, {"id": "hush"}]});
    let _host = answers(vec![Reply::json(200, &body)]);
    let api = Rest::new(BASE);
    let error = api.get("/servers").fetch::<Page>().unwrap_err();
    assert!(error.message.contains("servers[1].id"), "{error}");
    assert!(!error.message.contains("hush"), "{error}");
    let error = api
        .get("/servers")
        .all::<Server>("/servers", &Paging::LinkHeader)
        .unwrap_err();
    assert!(error.message.contains("servers[1].id"), "{error}");
    assert!(!error.message.contains("hush"), "{error}");
}

fn ids(
    provider: impl FnMut(&Request) -> Reply + Send + 'static,
    items: &str,
    paging: &Paging,
) -> Result<Vec<u32>, BackendError> {
    let _host = Host::new(provider);
    let api = Rest::new(BASE);
    let servers: Vec<Server> = api.get("/servers").query("size", 1).all(items, paging)?;
    Ok(servers.into_iter().map(|server| server.id).collect())
}

#[test]
fn lists_are_read_to_their_last_page() {
    let cursor = |request: &Request| {
        assert_eq!(request.query("size"), Some("1"), "the query stays");
        Reply::json(
            200,
            &match request.query("after") {
                None => json!({"servers": [{"id": 1}], "next": "a b"}),
                Some("a%20b") => json!({"servers": [{"id": 2}], "next": null}),
                other => panic!("{other:?}"),
            },
        )
    };
    let paging = Paging::cursor("after", "/next");
    assert_eq!(ids(cursor, "/servers", &paging).unwrap(), [1, 2]);

    let numbered = |request: &Request| match request.query("page") {
        Some("1") => Reply::json(200, &json!([{"id": 1}])),
        Some("2") => Reply::json(200, &json!([{"id": 2}])),
        _ => Reply::json(200, &json!([])),
    };
    let paging = Paging::number("page", None);
    assert_eq!(ids(numbered, "", &paging).unwrap(), [1, 2]);

    let counted = |request: &Request| {
        let page: u32 = request.query("page").unwrap().parse().unwrap();
        assert!(page <= 2, "the last page was known");
        Reply::json(200, &json!({"items": [{"id": page}], "pages": 2}))
    };
    let paging = Paging::number("page", Some("/pages"));
    assert_eq!(ids(counted, "/items", &paging).unwrap(), [1, 2]);

    for next in [
        "https://api.acme.example/v1/servers?page=2",
        "/v1/servers?page=2",
    ] {
        let linked = move |request: &Request| {
            assert_eq!(request.path, "/v1/servers");
            match request.query("page") {
                None => Reply::json(200, &json!({"items": [{"id": 1}], "next": next})),
                Some(_) => Reply::json(200, &json!({"items": [{"id": 2}]})),
            }
        };
        let paging = Paging::next_url("/next");
        assert_eq!(ids(linked, "/items", &paging).unwrap(), [1, 2], "{next}");
    }
}

#[test]
fn a_list_without_end_and_a_page_elsewhere_are_errors() {
    let paging = Paging::next_url("/next");
    let body = json!({"items": [], "next": "/v1/servers?page=2"});
    let error = ids(move |_| Reply::json(200, &body), "/items", &paging).unwrap_err();
    assert!(error.message.contains("do not end"), "{error}");
    let body = json!({"items": [], "next": "https://evil.example/v1"});
    let error = ids(move |_| Reply::json(200, &body), "/items", &paging).unwrap_err();
    assert!(error.message.contains("not an address of"), "{error}");
    let error = ids(
        |_| Reply::json(200, &json!({"items": 1})),
        "/items",
        &paging,
    )
    .unwrap_err();
    assert!(error.message.contains("no list"), "{error}");
}

#[test]
fn waiting_ends_with_what_is_found_or_at_the_deadline() {
    let host = statuses(&[200]);
    let second = Duration::from_secs(1);
    let mut looks = 0;
    let found = wait_until("it", second, 10 * second, || {
        looks += 1;
        Ok((looks == 3).then_some(looks))
    });
    assert_eq!((found.unwrap(), host.waited()), (3, 2 * second));
    let error = wait_until("it", 3 * second, 10 * second, || Ok(None::<()>)).unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Timeout, "waited 10 s for it")
    );
    assert_eq!(host.waited(), 12 * second);
}

#[test]
fn nothing_secret_is_printed() {
    let api = Rest::new(BASE).bearer(&secret("hush"));
    let call = api.get("/x?token=hush").header("x", "hush");
    assert!(!format!("{api:?} {call:?}").contains("hush"));
}
