//! `GET /metrics`.

use crate::client::TestServer;

fn scrape(server: &TestServer, token: &str) -> (u16, String, String) {
    let mut request = ureq::get(format!("{}/metrics", server.url))
        .config()
        .http_status_as_error(false)
        .build();
    if !token.is_empty() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut answer = request.call().unwrap();
    let kind = answer.headers().get("content-type");
    let kind = kind.map(|value| value.to_str().unwrap().to_owned());
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), kind.unwrap_or_default(), text)
}

#[test]
fn metrics_are_off_unless_they_are_switched_on() {
    let server = TestServer::start(&[]);
    let (status, _, text) = scrape(&server, "");
    assert_eq!(status, 404);
    let body: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        body,
        serde_json::json!({"detail": {"msg": "Not found", "code": null}})
    );
}

#[test]
fn metrics_want_their_token_if_there_is_one() {
    let server = TestServer::start(&[
        ("DSTACK_ENABLE_PROMETHEUS_METRICS", ""),
        ("DSTACK_PROMETHEUS_AUTH_TOKEN", "scrape"),
    ]);
    assert_eq!(scrape(&server, "").0, 403);
    assert_eq!(scrape(&server, "other").0, 403);
    let (status, kind, text) = scrape(&server, "scrape");
    assert_eq!((status, kind.as_str()), (200, "text/plain; charset=utf-8"));
    assert!(
        text.contains("# TYPE dstack_backend_calls counter"),
        "{text}"
    );
    // Nothing to do, and all of it counted.
    for line in [
        "dstack_http_panics_total 0",
        "dstack_pipeline_queue{pipeline=\"runs\"} 0.0",
        "dstack_pipeline_lag_seconds{pipeline=\"instances\"} 0.0",
        "dstack_pipeline_running{pipeline=\"jobs_submitted\"} 0.0",
        "dstack_pipeline_steps_total{pipeline=\"fleets\",outcome=\"failed\"} 0",
        "dstack_pipeline_step_duration_seconds_count{pipeline=\"jobs_running\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
