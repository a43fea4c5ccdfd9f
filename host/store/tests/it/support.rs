use std::sync::atomic::{AtomicU32, Ordering};

use dstack_api::projects::ProjectRole;
use dstack_api::users::GlobalRole;
use dstack_engine::ids::{ProjectId, UserId};
use dstack_store::projects::ProjectRow;
use dstack_store::users::{UserRow, token_hash};
use dstack_store::{DbError, Sealed, Store, StoreConfig, Tx, projects, users};
use dstack_test_support::postgres::create_database;
use jiff::Timestamp;
use uuid::Uuid;

/// A store of its own: a file in a folder, or a database of the PostgreSQL server that this run of the tests is for.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) folder: tempfile::TempDir,
}

impl TestStore {
    /// The SQLite file, where it is one.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("sqlite.db")
    }
}

impl std::ops::Deref for TestStore {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

/// The PostgreSQL server that the tests are run on once more; see `postgres.rs`.
#[expect(clippy::disallowed_methods, reason = "tests have no settings")]
pub(crate) fn server_of_this_run() -> Option<String> {
    std::env::var("DSTACK_TEST_POSTGRES_URL").ok()
}

pub(crate) fn open() -> TestStore {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Some(root) = server_of_this_run() else {
        return open_file();
    };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let url = create_database(&root, &format!("run{number}")).unwrap();
    let store = Store::open(StoreConfig::from_url(&url).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    TestStore { store, folder }
}

/// A store on SQLite, whatever the run is for.
pub(crate) fn open_file() -> TestStore {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig::file(folder.path().join("sqlite.db"))).unwrap();
    TestStore { store, folder }
}

/// Seconds since 1970.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn user(name: &str, number: u128) -> UserRow {
    UserRow {
        id: UserId(Uuid::from_u128(number)),
        name: name.to_owned(),
        global_role: GlobalRole::User,
        email: Some(format!("{name}@example.org")),
        active: true,
        token: Sealed::new(format!("sealed-{name}")),
        token_sha256: token_hash(name),
        ssh_public_key: None,
        ssh_private_key: None,
        created_at: at(i64::try_from(number).unwrap()),
        original_name: None,
        deleted: false,
    }
}

pub(crate) fn project(name: &str, number: u128, owner: UserId) -> ProjectRow {
    ProjectRow {
        id: ProjectId(Uuid::from_u128(number)),
        name: name.to_owned(),
        owner_id: owner,
        created_at: at(i64::try_from(number).unwrap()),
        is_public: false,
        templates_repo: None,
        ssh_public_key: "ssh-ed25519 AAAA".to_owned(),
        ssh_private_key: Sealed::new("sealed"),
        original_name: None,
        deleted: false,
    }
}

/// A user `admin` with a project `main`.
pub(crate) fn seed(tx: &mut dyn Tx) -> Result<(UserId, ProjectId), DbError> {
    let admin = user("admin", 1);
    let main = project("main", 1, admin.id);
    users::insert(tx, &admin)?;
    projects::insert(tx, &main)?;
    projects::set_member(tx, main.id, admin.id, ProjectRole::Admin)?;
    Ok((admin.id, main.id))
}
