use dstack_api::projects::ProjectRole;
use dstack_api::users::GlobalRole;
use dstack_engine::ids::{ProjectId, UserId};
use dstack_store::projects::ProjectRow;
use dstack_store::users::{UserRow, token_hash};
use dstack_store::{DbError, Sealed, Store, StoreConfig, Tx, projects, users};
use jiff::Timestamp;
use uuid::Uuid;

/// A store in a folder of its own.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) folder: tempfile::TempDir,
}

impl std::ops::Deref for TestStore {
    type Target = Store;
    fn deref(&self) -> &Store {
        &self.store
    }
}

pub(crate) fn open() -> TestStore {
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
