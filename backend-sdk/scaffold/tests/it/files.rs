use std::fs;
use std::path::{Path, PathBuf};

use dstack_backend_scaffold::{Auth, Kind, Order, Place, ScaffoldError, Sdk, create};

fn order(name: &str) -> Order {
    Order {
        name: name.to_owned(),
        kind: Kind::Vm,
        auth: Auth::Bearer,
    }
}

fn outside(folder: &Path) -> Place {
    Place::Outside {
        folder: folder.to_owned(),
        sdk: Sdk::Version,
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    all.sort();
    all
}

#[test]
fn a_backend_of_the_repository_is_one_new_folder() {
    let root = tempfile::tempdir().unwrap();
    let error = create(
        &order("ExampleXYZ"),
        &Place::Repository(root.path().to_owned()),
    );
    assert!(matches!(error, Err(ScaffoldError::NotARepository { .. })));
    assert!(entries(root.path()).is_empty());

    let backends = root.path().join("backends");
    fs::create_dir(&backends).unwrap();
    let place = Place::Repository(root.path().to_owned());
    let created = create(&order("ExampleXYZ"), &place).unwrap();
    assert_eq!(created.folder, backends.join("examplexyz"));
    assert_eq!(entries(&backends), std::slice::from_ref(&created.folder));
    assert_eq!(entries(root.path()), [backends]);
    for file in &created.files {
        assert!(created.folder.join(file).is_file(), "{}", file.display());
    }
    let manifest = fs::read_to_string(created.folder.join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("dstack-backend-sdk.workspace = true"),
        "{manifest}"
    );
    assert!(!manifest.contains("[workspace]"), "{manifest}");
    assert!(!created.folder.join(".gitignore").exists());
}

#[test]
fn what_is_refused_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("a/b");
    for name in ["", "aws", "Type", "größe", "2x", "../x", &"x".repeat(40)] {
        let error = create(&order(name), &outside(&deep)).unwrap_err();
        assert!(matches!(error, ScaffoldError::Name { .. }), "{error}");
    }
    let place = Place::Outside {
        folder: deep.clone(),
        sdk: Sdk::Path(folder.path().to_owned()),
    };
    let error = create(&order("Acme"), &place).unwrap_err();
    assert!(
        error.to_string().contains("no crate dstack-backend-types"),
        "{error}"
    );
    assert!(entries(folder.path()).is_empty());

    // A file stands where the folder would be made.
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let error = create(&order("Acme"), &outside(&file)).unwrap_err();
    assert!(matches!(error, ScaffoldError::Write { .. }), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn what_is_there_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for existing in ["acme", "ACME"] {
        let mine = folder.path().join(existing);
        fs::create_dir(&mine).unwrap();
        let error = create(&order("Acme"), &outside(folder.path())).unwrap_err();
        assert!(matches!(error, ScaffoldError::Exists { .. }), "{error}");
        assert_eq!(entries(folder.path()), std::slice::from_ref(&mine));
        assert!(entries(&mine).is_empty());
        fs::remove_dir(mine).unwrap();
    }
    create(&order("Acme"), &outside(folder.path())).unwrap();
    create(&order("Acme"), &outside(folder.path())).unwrap_err();
    assert_eq!(entries(folder.path()), [folder.path().join("acme")]);
}
