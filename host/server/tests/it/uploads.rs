//! Uploaded code and files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dstack_test_support::moto::{Moto, REGION};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::client::{ADMIN, TestServer};
use crate::limits::rss;

const ARCHIVE: &str = "/api/files/upload_archive";

fn hash(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn msg(answer: &crate::client::Answer) -> &str {
    answer.body["detail"][0]["msg"].as_str().unwrap_or_default()
}

#[test]
fn what_is_not_what_its_name_says_is_not_kept() {
    let server = TestServer::start(&[]);
    let right = hash(b"tar");
    let short = right.get(..63).unwrap();
    for name in [&hash(b"other"), "blob", short, &format!("{right}0")] {
        let answer = server.upload(ARCHIVE, name, b"tar");
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(msg(&answer).contains(&right), "{}", answer.text);
        let known = server.post("/api/files/get_archive_by_hash", json!({"hash": name}));
        assert_eq!(known.status, 400, "{}", known.text);
    }
    assert_eq!(server.upload(ARCHIVE, &right, b"tar").status, 200);
    assert_eq!(server.upload(ARCHIVE, &hash(b""), b"").status, 200);
}

#[test]
fn the_same_many_times_at_once_is_one() {
    let server = TestServer::start(&[]);
    let content = vec![b'x'; 1_000_000];
    let name = hash(&content);
    let ids: Vec<Value> = std::thread::scope(|scope| {
        let each = |_| scope.spawn(|| server.upload(ARCHIVE, &name, &content));
        let all: Vec<_> = (0..16).map(each).collect();
        all.into_iter()
            .map(|one| {
                let answer = one.join().unwrap();
                assert_eq!(answer.status, 200, "{}", answer.text);
                answer.body["id"].clone()
            })
            .collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let known = server.ok("/api/files/get_archive_by_hash", json!({"hash": name}));
    assert_eq!(known, json!({"id": ids[0], "hash": name}));
    // Another user's is another one, with the same bytes.
    let eve = json!({"username": "eve", "global_role": "user"});
    server.ok("/api/users/create", eve);
    let user = server.ok("/api/users/get_user", json!({"username": "eve"}));
    let token = user["creds"]["token"].as_str().unwrap();
    let other = server.post_as(
        token,
        "/api/files/get_archive_by_hash",
        json!({"hash": name}),
    );
    assert_eq!(other.status, 400, "{}", other.text);
}

/// An upload whose length is not announced.
fn chunked(server: &TestServer, content: &[u8]) -> (u16, String) {
    let mut socket = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = format!(
        "POST {ARCHIVE} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {ADMIN}\r\n\
         Content-Type: multipart/form-data; boundary=XX\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let start = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\n\r\n",
        hash(content)
    );
    let send = |socket: &mut TcpStream, piece: &[u8]| {
        let head = format!("{:x}\r\n", piece.len());
        // The server may have heard enough.
        drop(socket.write_all(&[head.as_bytes(), piece, b"\r\n"].concat()));
    };
    send(&mut socket, start.as_bytes());
    for piece in content.chunks(1000) {
        send(&mut socket, piece);
    }
    send(&mut socket, b"\r\n--XX--\r\n");
    drop(socket.write_all(b"0\r\n\r\n"));
    let mut answer = Vec::new();
    drop(socket.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).unwrap();
    (status.parse().unwrap(), answer)
}

#[test]
fn what_is_too_large_is_refused_whether_announced_or_not() {
    let server = TestServer::start(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "5000")]);
    let announced = server.upload(ARCHIVE, &hash(&[1; 6000]), &[1; 6000]);
    assert_eq!(announced.status, 400, "{}", announced.text);
    assert_eq!(announced.body["detail"][0]["code"], "error");
    let text = msg(&announced);
    assert!(
        text.starts_with("Archive size is 6")
            && text.contains("B, which exceeds the limit of 5000B. "),
        "{text}"
    );
    let (status, text) = chunked(&server, &[1; 60_000]);
    assert!(
        status == 400 && text.contains("exceeds the limit of 5000B"),
        "{text}"
    );
    assert_eq!(chunked(&server, &[1; 5000]).0, 200);
    let repo = json!({"repo_id": "r", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": null});
    server.ok("/api/project/main/repos/init", repo);
    let path = "/api/project/main/repos/upload_code?repo_id=r";
    let diff = server.upload(path, &hash(&[1; 6000]), &[1; 6000]);
    assert!(
        msg(&diff).starts_with("Repo diff size is 6"),
        "{}",
        diff.text
    );
    let endless = TestServer::start(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "0")]);
    let large = vec![5; 20_000_000];
    assert_eq!(endless.upload(ARCHIVE, &hash(&large), &large).status, 200);
}

/// Many uploads that do not end: what has come of them is on the disk.
#[test]
fn uploads_wait_on_the_disk() {
    const COUNT: usize = 24;
    const EACH: usize = 8_000_000;
    let server = TestServer::start(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "100000000")]);
    assert_eq!(server.upload(ARCHIVE, &hash(b"warm"), b"warm").status, 200);
    let before = rss();
    let piece = vec![b'x'; 100_000];
    let open: Vec<TcpStream> = std::thread::scope(|scope| {
        let each = |_| {
            scope.spawn(|| {
                let mut socket =
                    TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
                let head = format!(
                    "POST {ARCHIVE} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\
                     Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: 50000000\r\n\r\n\
                     --XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"
                );
                socket.write_all(head.as_bytes()).unwrap();
                for _ in 0..EACH / piece.len() {
                    socket.write_all(&piece).unwrap();
                }
                socket
            })
        };
        let all: Vec<_> = (0..COUNT).map(each).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let grown = rss().saturating_sub(before);
    assert!(
        grown < COUNT * EACH / 3,
        "{grown} bytes for {} that have come",
        COUNT * EACH
    );
    drop(open);
    assert_eq!(server.get("/healthcheck").status, 200);
}

#[test]
fn uploads_go_to_the_bucket_that_is_set() {
    let moto = Moto::start().unwrap();
    moto.bucket("uploads").unwrap();
    let server = TestServer::start(&[
        ("DSTACK_SERVER_S3_BUCKET", "uploads"),
        ("AWS_REGION", REGION),
        ("AWS_ENDPOINT_URL", moto.url()),
        ("AWS_ACCESS_KEY_ID", "any"),
        ("AWS_SECRET_ACCESS_KEY", "any"),
    ]);
    let name = hash(b"tar");
    assert_eq!(server.upload(ARCHIVE, &name, b"tar").status, 200);
    let me = server.ok("/api/users/get_my_user", Value::Null);
    let key = format!(
        "data/users/{}/file_archives/{name}",
        me["id"].as_str().unwrap()
    );
    assert_eq!(moto.object("uploads", &key).unwrap(), b"tar");
    let repo = json!({"repo_id": "r", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": null});
    server.ok("/api/project/main/repos/init", repo);
    let name = hash(b"diff");
    let path = "/api/project/main/repos/upload_code?repo_id=r";
    assert_eq!(server.upload(path, &name, b"diff").status, 200);
    let key = format!("data/projects/main/codes/r/{name}");
    assert_eq!(moto.object("uploads", &key).unwrap(), b"diff");
}
