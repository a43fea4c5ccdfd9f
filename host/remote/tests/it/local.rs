use std::time::Duration;

use bytes::Bytes;
use dstack_agent_protocol::runner::SubmitRequest;
use dstack_agent_protocol::shim::{TaskConfig, TaskStatus, TerminateRequest};
use dstack_remote::{Address, Config, Endpoint, ProbeRequest, Remote, RemoteError, RunnerAt};

use crate::bed::{Agent, free_port};

fn here(agent: &Agent) -> Address {
    Address::local("/nowhere", &agent.socket)
}

fn remote() -> Remote {
    Remote::new(Config {
        call_timeout: Duration::from_millis(300),
        ..Config::default()
    })
}

#[tokio::test]
async fn a_shim_is_called_through_its_socket() {
    let agent = Agent::start();
    let shim = remote().shim(&here(&agent));
    agent.json(r#"{"service": "dstack-shim", "version": "0.22.5"}"#);
    assert_eq!(shim.healthcheck().await.unwrap().version, "0.22.5");
    assert_eq!(agent.last().0, "GET /api/healthcheck HTTP/1.1");
    agent.json(r#"{"ID": "x"}"#);
    let task = TaskConfig {
        id: "t-1".into(),
        name: "n".into(),
        gpu: -1,
        ..TaskConfig::default()
    };
    shim.submit(&task).await.unwrap();
    let (line, head, body) = agent.last();
    assert_eq!(line, "POST /api/tasks HTTP/1.1");
    assert!(
        head.contains("content-type: application/json\r\n"),
        "{head}"
    );
    assert_eq!(serde_json::from_slice::<TaskConfig>(&body).unwrap(), task);
    agent.json(r#"{"id": "t-1", "status": "running", "ports": [{"host": 1, "container": 10999}]}"#);
    let info = shim
        .task_when_changed("t-1", TaskStatus::Pulling, Duration::from_secs(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (info.status, info.ports.unwrap()[0].host),
        (TaskStatus::Running, 1)
    );
    assert_eq!(
        agent.last().0,
        "GET /api/tasks/t-1?wait=pulling&timeout_ms=1000 HTTP/1.1"
    );
    agent
        .text("404 Not Found", "Not Found\n")
        .text("404 Not Found", "Not Found\n")
        .text("404 Not Found", "Not Found\n");
    assert_eq!(shim.task("a/../b").await.unwrap(), None);
    assert_eq!(agent.last().0, "GET /api/tasks/a%2F..%2Fb HTTP/1.1");
    assert_eq!(
        shim.terminate("t-1", &TerminateRequest::default())
            .await
            .unwrap(),
        None
    );
    shim.remove("t-1").await.unwrap();
    assert_eq!(agent.last().0, "POST /api/tasks/t-1/remove HTTP/1.1");
}

#[tokio::test]
async fn a_runner_is_called_through_its_port_or_socket() {
    let agent = Agent::start();
    let remote = remote();
    for at in [
        RunnerAt::Port(agent.port),
        RunnerAt::Socket(agent.socket.clone()),
    ] {
        let runner = remote.runner(&here(&agent), at);
        agent.json(r#"{"service": "dstack-runner", "version": "1"}"#);
        assert_eq!(runner.healthcheck().await.unwrap().unwrap().version, "1");
        agent.text("200 OK", "\n");
        runner.submit(&SubmitRequest::default()).await.unwrap();
        agent.text("200 OK", "\n");
        runner
            .upload_archive("a-1", Bytes::from_static(b"TAR\r\n"))
            .await
            .unwrap();
        let (_, head, body) = agent.last();
        let boundary = head
            .lines()
            .find_map(|l| l.strip_prefix("content-type: multipart/form-data; boundary="))
            .unwrap()
            .to_owned();
        let want = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"archive\"; filename=\"a-1\"\r\n\
             Content-Type: application/octet-stream\r\n\r\nTAR\r\n\r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(body).unwrap(), want);
        agent.text("200 OK", "\n");
        runner
            .upload_code(Bytes::from_static(b"diff"))
            .await
            .unwrap();
        assert_eq!(agent.last().2, b"diff");
        // No JSON means that user or directory could not be resolved.
        agent.text("200 OK", "\n");
        assert_eq!(runner.run().await.unwrap(), None);
        agent.json(r#"{"working_dir": "/w", "username": ""}"#);
        assert_eq!(runner.run().await.unwrap().unwrap().working_dir, "/w");
        agent.json(r#"{"job_states": null, "last_updated": 7, "has_more": true}"#);
        assert_eq!(
            runner
                .pull(5, Some(Duration::from_secs(2)))
                .await
                .unwrap()
                .last_updated,
            7
        );
        assert_eq!(
            agent.last().0,
            "GET /api/pull?timestamp=5&wait_ms=2000 HTTP/1.1"
        );
        agent
            .text("200 OK", "\n")
            .text("404 Not Found", "Metrics collector is not available\n");
        runner.stop().await.unwrap();
        assert_eq!(runner.metrics().await.unwrap(), None);
    }
}

#[tokio::test]
async fn errors_tell_apart_what_callers_act_on() {
    let agent = Agent::start();
    let shim = remote().shim(&here(&agent));
    agent.text(
        "409 Conflict",
        &format!("request error: {}\n", "ü".repeat(400)),
    );
    let error = shim.submit(&TaskConfig::default()).await.unwrap_err();
    let RemoteError::Status {
        status: 409,
        message,
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert!(
        message.starts_with("request error: ü") && message.len() <= 512,
        "{message}"
    );
    agent.json("{");
    assert!(matches!(
        shim.tasks().await,
        Err(RemoteError::BadBody { .. })
    ));
    agent.text("200 OK", "hello");
    assert!(matches!(
        shim.tasks().await,
        Err(RemoteError::BadBody { .. })
    ));
    agent.json(r#"{"service": "nginx", "version": "2"}"#);
    let error = shim.healthcheck().await.unwrap_err();
    assert_eq!(error.to_string(), "unexpected service: nginx version: 2");
    agent.silence();
    let error = shim.tasks().await.unwrap_err();
    assert!(
        matches!(error, RemoteError::TimedOut { .. }) && error.is_unreachable(),
        "{error:?}"
    );
    agent.answer("200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
    let error = shim.tasks().await.unwrap_err();
    assert!(
        matches!(error, RemoteError::Unreachable { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_agent_that_is_not_up_is_refused_not_unreachable() {
    let remote = remote();
    let address = Address::local("/nowhere", "/nowhere/shim.sock");
    let error = remote.shim(&address).tasks().await.unwrap_err();
    assert!(error.is_refused() && !error.is_unreachable(), "{error:?}");
    assert_eq!(
        remote
            .runner(&address, free_port())
            .healthcheck()
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn a_socket_with_a_long_path_is_reached() {
    let agent = Agent::start();
    let folder = agent.socket.with_file_name("long-".repeat(30));
    std::fs::create_dir(&folder).unwrap();
    let socket = folder.join("shim.sock");
    std::fs::rename(&agent.socket, &socket).unwrap();
    assert!(socket.as_os_str().len() > 150);
    let shim = remote().shim(&Address::local(&folder, &socket));
    agent.json(r#"{"service": "dstack-shim", "version": "0.22.5"}"#);
    assert_eq!(shim.healthcheck().await.unwrap().version, "0.22.5");
    std::fs::remove_file(&socket).unwrap();
    let error = shim.healthcheck().await.unwrap_err();
    assert!(matches!(error, RemoteError::Refused { .. }), "{error}");
}

/// What a replica is asked, and that only the status of its answer counts.
#[tokio::test]
async fn a_replica_is_probed() {
    let agent = Agent::start();
    let request = || ProbeRequest {
        method: "POST".into(),
        path: "/v1/chat?x=1".into(),
        headers: vec![("X-Key".into(), "k".into()), ("Host".into(), "own".into())],
        body: Some("{}".into()),
        timeout: Duration::from_secs(5),
    };
    let at = here(&agent);
    let endpoint = Endpoint::Socket(agent.socket.clone());
    for (status, wanted) in [
        ("204 No Content", 204),
        ("302 Found", 302),
        ("503 Busy", 503),
    ] {
        agent.text(status, "not read");
        let got = remote().probe(&at, &endpoint, request()).await.unwrap();
        assert_eq!(got, wanted);
    }
    let (line, head, body) = agent.last();
    assert_eq!(line, "POST /v1/chat?x=1 HTTP/1.1");
    let head = head.to_lowercase();
    assert!(
        head.contains("x-key: k\r\n") && head.contains("host: own\r\n"),
        "{head}"
    );
    assert!(!head.contains("host: localhost"), "{head}");
    assert_eq!(body, *b"{}");
    let nobody = Endpoint::Port(free_port());
    let refused = remote().probe(&at, &nobody, request()).await.unwrap_err();
    assert!(refused.is_refused(), "{refused}");
    let bad = ProbeRequest {
        path: "no path \n".into(),
        ..request()
    };
    let wrong = remote().probe(&at, &endpoint, bad).await.unwrap_err();
    assert!(matches!(wrong, RemoteError::Invalid(_)), "{wrong}");
}
