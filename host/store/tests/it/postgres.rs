//! What is PostgreSQL's alone, on a real server; and all other tests of this folder once more on it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use dstack_engine::changes::{Hint, Pipeline};
use dstack_store::lease::{self, Claim};
use dstack_store::{
    DbError, Heard, News, Store, StoreConfig, Topic, jobs, meta, projects, runs, users,
};
use dstack_test_support::postgres::{Cluster, PASSWORD};
use uuid::Uuid;

use crate::rows::{run_with_job, small_world};
use crate::support::{at, project, seed, server_of_this_run, user};

#[test]
fn the_same_tests_pass_on_postgresql() {
    if server_of_this_run().is_some() {
        return;
    }
    let cluster = Cluster::start().unwrap();
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--test-threads=2", "--skip", "postgres::"])
        .env("DSTACK_TEST_POSTGRES_URL", cluster.root())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "on PostgreSQL:\n{text}");
    let passed = text.matches(" ... ok").count();
    assert!(passed > 25, "only {passed} tests were run:\n{text}");
}

fn config(url: &str) -> StoreConfig {
    StoreConfig::from_url(url).unwrap()
}

fn store(url: &str) -> Store {
    Store::open(config(url)).unwrap()
}

fn refused(url: &str) -> String {
    let error = Store::open(config(url)).err().unwrap();
    let text = error.to_string();
    assert!(
        !text.contains(PASSWORD) && !text.contains("hunter2"),
        "{text}"
    );
    format!("{error:?} {text}")
}

#[test]
fn every_refusal_says_what_to_do_and_shows_no_password() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.database_named("good").unwrap();
    let text = refused(&url.replace(PASSWORD, "hunter2"));
    assert!(
        text.starts_with("Login") && text.contains("DSTACK_DATABASE_URL"),
        "{text}"
    );
    let text = refused(&cluster.url("nowhere"));
    assert!(
        text.starts_with("NoDatabase") && text.contains("/nowhere"),
        "{text}"
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let text = refused(&format!(
        "postgres://me:hunter2@127.0.0.1:{}/x?connect_timeout=1",
        port.local_addr().unwrap().port()
    ));
    assert!(text.starts_with("Unreachable"), "{text}");
    drop(port);

    cluster.database_named("standby").unwrap();
    cluster
        .sql(
            "postgres",
            "ALTER DATABASE standby SET default_transaction_read_only = on",
        )
        .unwrap();
    let text = refused(&cluster.url("standby"));
    assert!(
        text.starts_with("ReadOnly") && text.contains("primary"),
        "{text}"
    );

    let foreign = cluster.database_named("python").unwrap();
    cluster
        .sql("python", "CREATE TABLE alembic_version (version_num TEXT)")
        .unwrap();
    assert!(refused(&foreign).starts_with("Foreign"));
    assert_eq!(
        cluster
            .sql(
                "python",
                "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            )
            .unwrap(),
        "1",
        "nothing was made in it"
    );

    drop(store(&url));
    cluster
        .sql("good", "INSERT INTO schema_version VALUES (9999, 0)")
        .unwrap();
    assert!(refused(&url).starts_with("TooNew"));
}

/// Tables with their columns, and whether each may be NULL.
type Tables = BTreeMap<String, BTreeSet<(String, bool)>>;

#[test]
fn both_databases_have_the_same_tables() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.database_named("good").unwrap();
    drop(store(&url));
    let text = cluster
        .sql(
            "good",
            "SELECT table_name, column_name, is_nullable FROM information_schema.columns WHERE table_schema = 'public'",
        )
        .unwrap();
    let mut ours = Tables::new();
    for line in text.lines() {
        let words: Vec<_> = line.split('|').collect();
        let column = (words[1].to_owned(), words[2] == "YES");
        ours.entry(words[0].to_owned()).or_default().insert(column);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    drop(Store::open(StoreConfig::file(&path)).unwrap());
    let file = rusqlite::Connection::open(path).unwrap();
    let mut statement = file
        .prepare(
            "SELECT t.name, c.name, c.\"notnull\" FROM sqlite_master t JOIN pragma_table_xinfo(t.name) c \
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
        )
        .unwrap();
    let mut theirs = Tables::new();
    let rows = statement
        .query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })
        .unwrap();
    for row in rows {
        let (table, column, required) = row.unwrap();
        // A key that counts by itself is never NULL, and SQLite does not say so.
        let required = required != 0 || (table == "members" && column == "number");
        theirs.entry(table).or_default().insert((column, !required));
    }
    assert_eq!(ours, theirs);
    let indexes = cluster
        .sql("good", "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey'")
        .unwrap();
    let ours: BTreeSet<String> = indexes.lines().map(str::to_owned).collect();
    let mut statement = file
        .prepare("SELECT name FROM sqlite_master WHERE type = 'index' AND name NOT LIKE 'sqlite_%'")
        .unwrap();
    let theirs: BTreeSet<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn every_number_has_a_file_for_each_database() {
    let of = |database: &str| -> BTreeSet<String> {
        let folder = format!("{}/src/migrations/{database}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_dir(folder)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(of("sqlite"), of("postgres"));
}

fn claim(limit: u32) -> Claim {
    Claim {
        now: at(100),
        sent: Instant::now(),
        duration: Duration::from_secs(30),
        limit,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_rows_and_names_without_doubles() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.database().unwrap();
    // They start together: one makes the schema, the others wait for it.
    let starting: Vec<_> = (0..3)
        .map(|_| {
            let url = url.clone();
            tokio::task::spawn_blocking(move || store(&url))
        })
        .collect();
    let mut replicas = Vec::new();
    for one in starting {
        replicas.push(one.await.unwrap());
    }
    replicas[0]
        .write(|tx| {
            let world = small_world(tx)?;
            for number in 100..160 {
                let (run, job) = run_with_job(&world, number);
                runs::insert(tx, &run, at(100))?;
                jobs::insert(tx, &job, at(100))?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for replica in &replicas {
        for _ in 0..10 {
            let replica = replica.clone();
            tasks.push(tokio::spawn(async move {
                replica
                    .write(|tx| lease::claim_jobs_submitted(tx, claim(4)))
                    .await
            }));
        }
    }
    let mut leased = Vec::new();
    for task in tasks {
        leased.extend(task.await.unwrap().unwrap().iter().map(lease::Lease::id));
    }
    let different: BTreeSet<_> = leased.iter().collect();
    assert_eq!((leased.len(), different.len()), (60, 60));

    // Look whether there is one, else make it: what would be a race anywhere else.
    let mut tasks = Vec::new();
    for number in 0..30_u128 {
        let replica = replicas[usize::try_from(number % 3).unwrap()].clone();
        tasks.push(tokio::spawn(async move {
            replica
                .write(move |tx| match users::by_name_any_case(tx, "zoe")? {
                    Some(_) => Ok(false),
                    None => users::insert(tx, &user("zoe", 500 + number)).map(|()| true),
                })
                .await
        }));
    }
    let mut made = 0;
    for task in tasks {
        made += u32::from(task.await.unwrap().unwrap());
    }
    assert_eq!(made, 1);
}

/// Waits for something that another thread brings about.
async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come");
}

type Heap = std::sync::Arc<std::sync::Mutex<Vec<Heard>>>;

fn listening(store: &Store) -> Heap {
    let heap = Heap::default();
    let into = heap.clone();
    store.listen(move |heard| into.lock().unwrap().push(heard));
    heap
}

#[tokio::test]
async fn replicas_hear_each_other_and_notice_what_they_missed() {
    let mut cluster = Cluster::start().unwrap();
    let url = cluster.database().unwrap();
    let (first, second) = (store(&url), store(&url));
    let (mine, theirs) = (listening(&first), listening(&second));
    let hint = |number| Hint {
        pipeline: Pipeline::Instances,
        id: Uuid::from_u128(number),
    };
    // The connection for news may still be on its way; what is told before it stands is not heard.
    let told = [
        News::Changed(Topic::Backends),
        News::Hints(vec![hint(1), hint(2)]),
    ];
    let count = |heap: &Heap| {
        let heap = heap.lock().unwrap();
        let has = |news: &News| heap.contains(&Heard::News(news.clone()));
        told.iter().filter(|news| has(news)).count()
    };
    soon("news", || {
        if count(&theirs) < 2 {
            told.iter().for_each(|news| first.tell(news.clone()));
        }
        count(&theirs) == 2
    })
    .await;
    assert_eq!(count(&mine), 0, "nobody hears himself");

    // More than fits: everything may have changed.
    theirs.lock().unwrap().clear();
    first.tell(News::Hints((0..5000).map(hint).collect()));
    soon("a lot", || {
        theirs.lock().unwrap().contains(&Heard::Everything)
    })
    .await;

    // After a break everything may have changed, and all works again.
    theirs.lock().unwrap().clear();
    cluster.stop().unwrap();
    let lost = first.write(|tx| meta::set(tx, "a", "1")).await;
    assert!(matches!(lost, Err(DbError::Unreachable { .. })), "{lost:?}");
    cluster.resume().unwrap();
    soon("a catch-up", || {
        theirs.lock().unwrap().contains(&Heard::Everything)
    })
    .await;
    first.write(|tx| meta::set(tx, "a", "2")).await.unwrap();
    let found = second.read(|tx| meta::get(tx, "a")).await.unwrap();
    assert_eq!(found.as_deref(), Some("2"));
    theirs.lock().unwrap().clear();
    soon("news after the break", || {
        first.tell(News::Changed(Topic::HostKeys));
        theirs
            .lock()
            .unwrap()
            .contains(&Heard::News(News::Changed(Topic::HostKeys)))
    })
    .await;
}

#[tokio::test]
async fn a_paused_writer_keeps_nobody_waiting_for_ever() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.database().unwrap();
    let (paused, other) = (store(&url), store(&url));
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let sleeping = paused.clone();
    let late = tokio::spawn(async move {
        sleeping
            .write(move |tx| {
                meta::set(tx, "who", "paused")?;
                inside.send(()).unwrap();
                wait.recv_timeout(Duration::from_secs(60)).unwrap();
                meta::set(tx, "what", "late")
            })
            .await
    });
    is_inside.await.unwrap();
    // The database ends the silent transaction, and the next one is let in.
    other
        .write(|tx| meta::set(tx, "who", "other"))
        .await
        .unwrap();
    go.send(()).unwrap();
    assert!(late.await.unwrap().is_err(), "its transaction was over");
    let who = other
        .read(|tx| Ok((meta::get(tx, "who")?, meta::get(tx, "what")?)))
        .await
        .unwrap();
    assert_eq!(who, (Some("other".to_owned()), None));
    paused
        .write(|tx| meta::set(tx, "who", "back"))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_error_that_a_closure_swallows_is_no_success() {
    let cluster = Cluster::start().unwrap();
    let store = store(&cluster.database().unwrap());
    let swallowed = store
        .write(|tx| {
            let (admin, _) = seed(tx)?;
            let twin = projects::insert(tx, &project("MAIN", 7, admin));
            assert!(twin.unwrap_err().is_conflict());
            Ok(())
        })
        .await;
    assert!(swallowed.is_err(), "the database has undone all of it");
    let admin = store.read(|tx| users::by_name(tx, "admin")).await.unwrap();
    assert!(admin.is_none());
}

#[tokio::test]
async fn behind_a_pooler_nothing_is_kept_prepared() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.database_named("pooled").unwrap();
    let store = store(&format!("{url}?pgbouncer=true"));
    store
        .write(|tx| {
            let world = small_world(tx)?;
            runs::insert(tx, &world.run, at(100))?;
            jobs::insert(tx, &world.job, at(100))?;
            assert_eq!(jobs::get(tx, world.job.id)?.unwrap(), world.job);
            assert_eq!(lease::claim_jobs_submitted(tx, claim(4))?.len(), 1);
            const PREPARED: dstack_store::Sql =
                dstack_store::sql!("SELECT count(*) FROM pg_prepared_statements");
            let kept: Option<i64> = tx.first(PREPARED, &[], |mut row| row.take())?;
            assert_eq!(kept, Some(0));
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn the_connection_is_encrypted_where_it_must_be() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(path("other.pem"), other.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut cluster = Cluster::start().unwrap();
    let url = cluster.database_named("safe").unwrap();
    let plain = refused(&format!("{url}?sslmode=require"));
    assert!(plain.contains("TLS"), "{plain}");
    cluster
        .use_certificate(&path("cert.pem"), &path("key.pem"))
        .unwrap();
    let url = url.replace("127.0.0.1", "localhost");
    for query in [
        "require".to_owned(),
        format!("verify-full&sslrootcert={}", path("cert.pem")),
    ] {
        let store = store(&format!("{url}?sslmode={query}"));
        const SAFE: dstack_store::Sql = dstack_store::sql!(
            "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl"
        );
        let safe: Option<i64> = store
            .read(|tx| tx.first(SAFE, &[], |mut row| row.take()))
            .await
            .unwrap();
        assert_eq!(safe, Some(1), "{query}");
    }
    let wrong = format!(
        "{url}?sslmode=verify-full&sslrootcert={}",
        path("other.pem")
    );
    assert!(
        refused(&wrong).contains("certificate"),
        "{}",
        refused(&wrong)
    );
    let none = format!("{url}?sslmode=verify-full&sslrootcert={}", path("none.pem"));
    assert!(refused(&none).contains("none.pem"));
}
