use super::*;

#[test]
fn only_lower_versions_are_older() {
    for there in ["0.9.12", "0.10.1-dev", "0.10"] {
        assert!(is_older(there, "0.10.2"), "{there}");
    }
    for there in ["", "unknown", "0.10.2", "0.10.3-dev", "1", "dstack-shim v"] {
        assert!(!is_older(there, "0.10.2"), "{there}");
    }
}

#[test]
fn variables_survive_both_readers() {
    let env = BTreeMap::from([
        ("A".to_owned(), "a \"b\" $c `d` \\".to_owned()),
        ("DSTACK_SHIM_HOME".to_owned(), "/elsewhere".to_owned()),
    ]);
    let text = env_file(&env, "1000");
    assert!(
        text.starts_with("A=\"a \\\"b\\\" \\$c \\`d\\` \\\\\"\n"),
        "{text}"
    );
    assert!(
        text.contains("DSTACK_SHIM_HOME=\"/root/.dstack\"\n"),
        "{text}"
    );
    assert!(
        text.contains("DSTACK_SHIM_SOCKET_OWNER=\"1000\"\n"),
        "{text}"
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("{text}printf %s \"$A\"")])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "a \"b\" $c `d` \\"
    );
}

#[test]
fn a_host_without_docker_is_refused_unless_it_is_not_needed() {
    let none = Facts::read("dstack:engine=none\n");
    let error = check_engine(&none, &BTreeMap::new()).unwrap_err();
    assert!(
        error.is_final && error.reason.contains("install Docker"),
        "{error}"
    );
    let process = BTreeMap::from([("DSTACK_SHIM_RUNTIME".to_owned(), "process".to_owned())]);
    assert_eq!(check_engine(&none, &process), Ok(()));
    let silent = Facts::read("dstack:engine=silent\n");
    assert!(check_engine(&silent, &BTreeMap::new()).is_err());
    let there = Facts::read("dstack:engine=there\n");
    assert_eq!(check_engine(&there, &BTreeMap::new()), Ok(()));
}

#[test]
fn a_program_for_another_processor_is_told_by_its_head() {
    let head = |machine: u8| {
        let mut head = b"\x7fELF".to_vec();
        head.resize(18, 0);
        head.extend([machine, 0]);
        head
    };
    assert!(is_for(&head(62), "amd64") && is_for(&head(183), "arm64"));
    assert!(!is_for(&head(183), "amd64") && !is_for(&head(62), "arm64"));
    assert!(!is_for(b"#!/bin/sh\nexec something longer", "amd64") && !is_for(b"", "amd64"));
}

#[test]
fn complaints_that_somebody_must_see_to_come_with_the_remedy() {
    let failed = |text: &str| {
        let output = CommandOutput {
            status: Some(1),
            stderr: text.as_bytes().to_vec(),
            ..CommandOutput::default()
        };
        HostError::step("starting the shim", &output)
    };
    let old = failed(
        "greeting\ndstack-shim does not run here (/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found \
         (required by dstack-shim)): is it so?\n",
    );
    assert!(
        old.is_final && old.reason.contains("newer C library") && old.reason.contains("2.34"),
        "{old}"
    );
    let full = failed("cat: write error: No space left on device\n");
    assert!(full.is_final && full.reason.contains("free some space"));
    assert!(failed("dstack-shim does not run here (x): why?").is_final);
    let other = failed("the network broke");
    assert!(!other.is_final && other.reason == "starting the shim: the network broke");
}

#[test]
fn a_key_of_several_lines_is_not_put_anywhere() {
    assert!(key_parts("ssh-ed25519 AAAA x\nssh-rsa BBBB").is_err());
    assert!(key_parts("AAAA").is_err());
    assert_eq!(
        key_parts(" ssh-ed25519 AAAA me \n"),
        Ok(("ssh-ed25519 AAAA me", "AAAA"))
    );
}
