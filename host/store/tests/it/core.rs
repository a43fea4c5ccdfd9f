use std::time::Duration;

use dstack_store::{Database, DbError, Store, StoreConfig, meta};

use crate::support::{open, open_file};

#[tokio::test]
async fn what_is_answered_is_in_the_file() {
    let test = open_file();
    test.write(|tx| meta::set(tx, "colour", "green"))
        .await
        .unwrap();
    let path = test.path();
    let folder = test.folder;
    drop(test.store);
    let again = Store::open(StoreConfig::file(path)).unwrap();
    let colour = again.read(|tx| meta::get(tx, "colour")).await.unwrap();
    assert_eq!(colour.as_deref(), Some("green"));
    drop(folder);
}

#[tokio::test]
async fn a_failed_write_undoes_itself_alone() {
    let test = open();
    // The first write keeps the writer busy until all others have queued, so that they share a transaction.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let store = test.store.clone();
    let busy = tokio::spawn(async move {
        store
            .write(move |tx| {
                wait.recv_timeout(Duration::from_secs(10)).unwrap();
                meta::set(tx, "busy", "1")
            })
            .await
    });
    let mut writes = Vec::new();
    for number in 0..20 {
        let store = test.store.clone();
        writes.push(tokio::spawn(async move {
            store
                .write(move |tx| {
                    meta::set(tx, &format!("n{number}"), "1")?;
                    match number % 4 {
                        1 => Err(DbError::Missing {
                            what: "luck".to_owned(),
                        }),
                        2 => panic!("number {number}"),
                        _ => Ok(()),
                    }
                })
                .await
        }));
    }
    tokio::task::yield_now().await;
    go.send(()).unwrap();
    busy.await.unwrap().unwrap();
    for (number, write) in writes.into_iter().enumerate() {
        let answer = write.await.unwrap();
        let stored = test
            .read(move |tx| meta::get(tx, &format!("n{number}")))
            .await
            .unwrap();
        match number % 4 {
            1 => assert!(matches!(answer, Err(DbError::Missing { .. })), "{answer:?}"),
            2 => assert!(
                matches!(&answer, Err(DbError::Panicked { reason }) if *reason == format!("number {number}")),
                "{answer:?}"
            ),
            _ => assert!(answer.is_ok(), "{answer:?}"),
        }
        assert_eq!(stored.is_some(), answer.is_ok(), "write {number}");
    }
}

#[tokio::test]
async fn readers_see_one_snapshot_and_cannot_write() {
    let test = open();
    test.write(|tx| meta::set(tx, "a", "old")).await.unwrap();
    let (first_read, wait) = tokio::sync::oneshot::channel();
    let (written, wait_written) = std::sync::mpsc::channel::<()>();
    let store = test.store.clone();
    let reader = tokio::spawn(async move {
        store
            .read(move |tx| {
                let before = meta::get(tx, "a")?;
                first_read.send(()).unwrap();
                wait_written.recv_timeout(Duration::from_secs(10)).unwrap();
                Ok((before, meta::get(tx, "a")?))
            })
            .await
    });
    wait.await.unwrap();
    test.write(|tx| meta::set(tx, "a", "new")).await.unwrap();
    written.send(()).unwrap();
    let (before, after) = reader.await.unwrap().unwrap();
    assert_eq!(
        (before.as_deref(), after.as_deref()),
        (Some("old"), Some("old"))
    );
    let refused = test.read(|tx| meta::set(tx, "a", "reader")).await;
    assert!(matches!(refused, Err(DbError::Sql { .. })), "{refused:?}");
    assert_eq!(
        test.read(|tx| meta::get(tx, "a")).await.unwrap().as_deref(),
        Some("new")
    );
}

#[tokio::test]
async fn a_second_server_on_the_file_is_refused_and_told_why() {
    let test = open_file();
    let config = StoreConfig::file(test.path());
    let refused = Store::open(config.clone()).err().unwrap();
    assert!(matches!(refused, DbError::InUse { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{refused}"
    );
    drop(test.store);
    Store::open(config).unwrap();
}

#[tokio::test]
async fn the_python_servers_file_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sqlite.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE alembic_version (version_num TEXT)")
        .unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let refused = Store::open(StoreConfig::file(&path)).err().unwrap();
    assert!(matches!(refused, DbError::Foreign { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let test = open_file();
    let path = test.path();
    let folder = test.folder;
    drop(test.store);
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute("INSERT INTO schema_version VALUES (9999, 0)", [])
        .unwrap();
    drop(other);
    let refused = Store::open(StoreConfig::file(&path)).err().unwrap();
    assert!(
        matches!(refused, DbError::TooNew { found: 9999, .. }),
        "{refused}"
    );
    drop(folder);
}

#[test]
fn only_its_owner_reads_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let test = open_file();
    let mode = std::fs::metadata(test.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn addresses_name_a_file_or_are_refused_without_their_password() {
    let path = |url: &str| {
        StoreConfig::from_url(url).map(|it| match it.database {
            Database::Sqlite(path) => path.display().to_string(),
            Database::Postgres(address) => address.to_string(),
        })
    };
    assert_eq!(path("data/x.db").unwrap(), "data/x.db");
    assert_eq!(path("sqlite:///var/x.db").unwrap(), "/var/x.db");
    assert_eq!(path("sqlite+aiosqlite:////var/x.db").unwrap(), "/var/x.db");
    assert_eq!(
        path("postgres://me:hunter2@db/dstack").unwrap(),
        "me@db:5432/dstack"
    );
    let refused = path("mysql://me:hunter2@db/dstack")
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("mysql") && !refused.contains("hunter2"),
        "{refused}"
    );
}
