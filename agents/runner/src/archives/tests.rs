use std::os::unix::fs::PermissionsExt;

use super::*;

fn me() -> Account {
    Account {
        uid: 0,
        gid: 0,
        groups: vec![0],
        name: String::new(),
        home: "/".into(),
        is_switched: false,
    }
}

/// A tar of (path, content or None for a directory, mode).
fn tar(dir: &Path, entries: &[(&str, Option<&str>, u32)]) -> PathBuf {
    let path = dir.join("a.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    for (name, content, mode) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_size(content.map_or(0, str::len) as u64);
        header.set_entry_type(if content.is_some() {
            tar::EntryType::Regular
        } else {
            tar::EntryType::Directory
        });
        // Written by hand: the builder refuses paths that an attacker would use.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder
            .append(&header, content.unwrap_or_default().as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap();
    path
}

#[test]
fn a_file_lands_exactly_at_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let tar = tar(dir.path(), &[("app.yml", Some("x: 1\n"), 0o640)]);
    let target = dir.path().join("new/.config/renamed.yml");
    unpack_at(&tar, &target, &me()).unwrap();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "x: 1\n");
    assert_eq!(
        target.metadata().unwrap().permissions().mode() & 0o777,
        0o640
    );
}

#[test]
fn a_tree_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("data");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("old"), "old").unwrap();
    let tar = tar(
        dir.path(),
        &[
            ("src/", None, 0o755),
            ("src/locked/", None, 0o555),
            ("src/locked/a", Some("a"), 0o600),
            ("src/b", Some("b"), 0o755),
        ],
    );
    unpack_at(&tar, &target, &me()).unwrap();
    assert!(!target.join("old").exists());
    assert_eq!(
        std::fs::read_to_string(target.join("locked/a")).unwrap(),
        "a"
    );
    assert_eq!(
        target
            .join("locked")
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o555
    );
    assert_eq!(
        target.join("b").metadata().unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn an_archive_cannot_reach_out() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["top/../../evil", "../evil", "/../evil"] {
        let inner = dir.path().join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let tar = tar(dir.path(), &[(name, Some("x"), 0o644)]);
        let got = unpack_into(&tar, &inner);
        assert!(got.is_err() || !dir.path().join("evil").exists(), "{name}");
        assert!(!dir.path().join("evil").exists(), "{name}");
    }
}

/// A tar of one entry of any kind, after a directory `top`.
fn tar_with(dir: &Path, kind: tar::EntryType, link: &str, claimed_size: u64) -> PathBuf {
    let path = dir.join("b.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    builder
        .append_data(&mut header, "top", io::empty())
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(claimed_size);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..9].copy_from_slice(b"top/entry");
    gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    builder.append(&header, io::empty()).unwrap();
    builder.into_inner().unwrap();
    path
}

#[test]
fn links_may_lead_about_within_the_archive_and_not_out_of_it() {
    for (link, is_fine) in [
        ("other", true),
        ("./a/../other", true),
        ("../top/other", true),
        (".", true),
        ("..", true),
        ("../..", false),
        ("../../etc/passwd", false),
        ("a/../../../x", false),
        ("/etc/passwd", false),
        ("/", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tar = tar_with(dir.path(), tar::EntryType::Symlink, link, 0);
        let got = unpack_into(&tar, &dir.path().join("in"));
        assert_eq!(got.is_ok(), is_fine, "{link}: {got:?}");
        let made = dir.path().join("in/top/entry").symlink_metadata();
        assert_eq!(made.is_ok(), is_fine, "{link}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "s").unwrap();
    let tar = tar_with(dir.path(), tar::EntryType::Link, "top/../../secret", 0);
    assert!(unpack_into(&tar, &dir.path().join("in")).is_err());
    assert!(!dir.path().join("in/top/entry").exists());
}

#[test]
fn nothing_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("in");
    std::fs::create_dir(&inner).unwrap();
    std::fs::create_dir(dir.path().join("out")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("out"), inner.join("link")).unwrap();
    let tar = tar(dir.path(), &[("link/evil", Some("x"), 0o644)]);
    let error = unpack_into(&tar, &inner).unwrap_err().to_string();
    assert_eq!(error, "link/evil lies behind a link");
    assert_eq!(
        std::fs::read_dir(dir.path().join("out")).unwrap().count(),
        0
    );
}

#[test]
fn devices_and_pipes_are_refused() {
    for kind in [
        tar::EntryType::Block,
        tar::EntryType::Char,
        tar::EntryType::Fifo,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tar = tar_with(dir.path(), kind, "", 0);
        let error = unpack_into(&tar, &dir.path().join("in")).unwrap_err();
        assert!(
            error.to_string().starts_with("top/entry is neither"),
            "{error}"
        );
        // Refused before anything was unpacked.
        assert!(!dir.path().join("in/top").exists());
    }
}

#[test]
fn what_would_be_larger_than_the_archive_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // A size without the bytes.
    let tar = tar_with(dir.path(), tar::EntryType::Regular, "", 1 << 40);
    assert!(unpack_into(&tar, &dir.path().join("in")).is_err());
    // A file of a terabyte of holes, as GNU tar writes it.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_mode(0o644);
    header.set_size(0);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..4].copy_from_slice(b"hole");
    gnu.realsize = *b"77777777777\0";
    header.set_cksum();
    let path = dir.path().join("c.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    builder.append(&header, io::empty()).unwrap();
    builder.into_inner().unwrap();
    let error = unpack_into(&path, &dir.path().join("in")).unwrap_err();
    assert!(error.to_string().contains("more than it holds"), "{error}");
    assert!(!dir.path().join("in/hole").exists());
    // A name that would fill the memory.
    let long = tar_with(dir.path(), tar::EntryType::GNULongName, "", 1 << 30);
    assert!(unpack_into(&long, &dir.path().join("in")).is_err());
}
