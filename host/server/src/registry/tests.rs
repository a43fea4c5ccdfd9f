use super::*;

fn index(platforms: &[(&str, &str)]) -> Vec<ImageIndexEntry> {
    let entry = |(number, (os, architecture)): (usize, &(&str, &str))| {
        serde_json::from_value(serde_json::json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{number:064}"),
            "size": 7,
            "platform": {"os": os, "architecture": architecture},
        }))
        .unwrap()
    };
    platforms.iter().enumerate().map(entry).collect()
}

#[test]
fn an_index_tells_its_architectures_without_the_notes_on_builds() {
    let entries = index(&[
        ("linux", "arm64"),
        ("linux", "amd64"),
        ("unknown", "unknown"),
        ("windows", "amd64"),
        ("linux", "s390x"),
        ("linux", "arm64"),
    ]);
    assert_eq!(
        architectures(&entries),
        [CpuArchitecture::Arm, CpuArchitecture::X86]
    );
    assert_eq!(
        preferred(&entries).unwrap().digest,
        format!("sha256:{:064}", 1),
        "the one for x86"
    );
    assert!(preferred(&index(&[("windows", "amd64")])).is_none());
}

#[test]
fn only_registries_of_this_machine_are_asked_without_a_certificate() {
    for host in [
        "localhost",
        "localhost:5000",
        "127.0.0.1:5000",
        "[::1]:5000",
    ] {
        assert!(is_loopback(host), "{host}");
    }
    for host in [
        "localhost.example:5000",
        "10.0.0.1:5000",
        "docker.io",
        "[2001:db8::1]:5000",
    ] {
        assert!(!is_loopback(host), "{host}");
    }
}

#[test]
fn a_configuration_without_a_start_is_no_start() {
    let config: ImageConfig = serde_json::from_str(r#"{"architecture": "amd64"}"#).unwrap();
    let facts = config.facts(None);
    assert_eq!(facts.architectures, [CpuArchitecture::X86]);
    assert_eq!((facts.entrypoint.len(), facts.command.len()), (0, 0));
    let nulls = r#"{"architecture": "riscv64", "config": {"User": "", "Entrypoint": null, "Cmd": ["/run"]}}"#;
    let facts = serde_json::from_str::<ImageConfig>(nulls)
        .unwrap()
        .facts(None);
    assert_eq!((facts.user, facts.command), (None, vec!["/run".to_owned()]));
    assert!(facts.architectures.is_empty());
}

#[test]
fn a_login_hides_its_password() {
    let login = Login {
        username: "anna".to_owned(),
        password: "pa55".to_owned(),
    };
    assert!(!format!("{login:?}").contains("pa55"));
}
