//! Single hosts of SSH fleets: one that comes by another address, keys with a passphrase, and what else may be wrong.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::OwnHosts;
use dstack_test_support::server::{TestServer, bin_dir, wait_for};
use serde_json::Value;

use crate::ssh_fleets::{PATIENCE, fleet, instances, server, task};

const WITHOUT_CONTAINERS: &str = "env: [DSTACK_SHIM_RUNTIME=process]\n";

/// The fleet `moved` of one host, by this address.
fn moved(hosts: &OwnHosts, server: &TestServer, address: &str) -> Result<String> {
    let config = format!(
        "  user: root\n  identity_file: {}\n  hosts: [{address}]\n",
        hosts.key()
    );
    fleet(server, "moved", &config, WITHOUT_CONTAINERS)
}

/// The instance of this address, once it is ready.
fn ready(server: &TestServer, address: &str) -> Result<Value> {
    wait_for(&format!("{address} is ready"), PATIENCE, || {
        let all = instances(server, "moved")?;
        let found = all.into_iter().find(|it| it["hostname"] == address);
        Ok(found.filter(|it| it["status"] == "idle"))
    })
    .with_context(|| server.log())
}

/// Waits until the fleet has this instance alone.
fn alone(server: &TestServer, id: &Value) -> Result<()> {
    wait_for("the end of the old address", PATIENCE, || {
        let all = instances(server, "moved")?;
        Ok(matches!(all.as_slice(), [only] if only["id"] == *id).then_some(()))
    })
    .with_context(|| server.log())
}

/// The shim that runs on the first host.
fn shim(hosts: &OwnHosts) -> Result<String> {
    let all = hosts.processes(1)?;
    let mut found = all
        .iter()
        .filter(|(_, line)| line.starts_with("/usr/local/bin/dstack-shim"));
    let (pid, _) = found.next().with_context(|| format!("no shim: {all:?}"))?;
    Ok(pid.clone())
}

fn works(server: &TestServer, name: &str) -> Result<()> {
    let path = server.file(
        &format!("{name}.dstack.yml"),
        &task(name, "", &["echo works on"]),
    )?;
    let out = server.ok(&["apply", "-f", &path, "-y"])?;
    ensure!(out.contains("works on"), "{out}");
    Ok(())
}

#[test]
fn a_host_that_comes_by_another_address_keeps_its_new_shim() -> Result<()> {
    let (hosts, server) = (OwnHosts::start(false)?, server()?);
    moves(&hosts, &server).with_context(|| hosts.logs())?;
    passphrases(&hosts, &server).with_context(|| hosts.logs())
}

fn moves(hosts: &OwnHosts, server: &TestServer) -> Result<()> {
    let keys = fs::read_to_string(hosts.file(1, "root/.ssh/authorized_keys"))?;
    let [first, second, third] = [hosts.address(1), hosts.other_address(1), hosts.alias(1, 4)];
    let apply = |address: &str| {
        let path = moved(hosts, server, address)?;
        server.ok(&["apply", "-f", &path, "-y", "-d"])
    };
    apply(&first)?;
    let one = ready(server, &first)?;
    works(server, "before")?;

    // The old address is given back while the host is prepared by the new one.
    apply(&second)?;
    let two = ready(server, &second)?;
    ensure!(one["id"] != two["id"], "{two}");
    alone(server, &two["id"])?;
    works(server, "between")?;

    // The old address is given back when the new shim runs already.
    hosts.hide(&second, true)?;
    apply(&third)?;
    let three = ready(server, &third)?;
    let before = shim(hosts)?;
    ensure!(
        instances(server, "moved")?.len() == 2,
        "the old address was given up too early: {}",
        server.log()
    );
    hosts.hide(&second, false)?;
    alone(server, &three["id"])?;
    ensure!(
        server
            .log()
            .contains("the host is another instance's by now and stays as it is"),
        "{}",
        server.log()
    );
    ensure!(shim(hosts)? == before, "another shim runs now");
    works(server, "after")?;

    server.ok(&["fleet", "delete", "moved", "-y"])?;
    ensure!(hosts.traces(1)?.is_empty(), "{:?}", hosts.traces(1)?);
    let left = fs::read_to_string(hosts.file(1, "root/.ssh/authorized_keys"))?;
    ensure!(left.trim_end() == keys.trim_end(), "{left}");
    Ok(())
}

/// Applies a file on a terminal on which somebody types the passphrase when asked; what the terminal showed.
fn typing(server: &TestServer, file: &str, passphrase: &str, temp: &Path) -> Result<String> {
    let line = format!(
        "{} apply -f {file} -y -d",
        bin_dir().join("dstack").display()
    );
    let mut child = server
        .command(Path::new("script"))
        .args(["--quiet", "--flush", "--return", "--command", &line])
        .arg("/dev/null")
        .env("TMPDIR", temp)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("script, of package bsdutils, makes the terminal")?;
    let mut keyboard = child.stdin.take().context("stdin")?;
    let mut screen = child.stdout.take().context("stdout")?;
    let (mut shown, mut has_typed) = (Vec::new(), false);
    loop {
        let mut some = [0; 512];
        let count = screen.read(&mut some)?;
        if count == 0 {
            break;
        }
        shown.extend(some.iter().take(count));
        let text = String::from_utf8_lossy(&shown);
        // The prompt is there, and what is typed from now on is read.
        if !has_typed && text.contains("passphrase: ") {
            has_typed = true;
            writeln!(keyboard, "{passphrase}")?;
        }
    }
    child.wait()?;
    let text = String::from_utf8_lossy(&shown).into_owned();
    ensure!(has_typed, "nobody asked for the passphrase: {text}");
    Ok(text)
}

/// Gives the first host a `sudo` that asks nobody.
fn allow_sudo(hosts: &OwnHosts) -> Result<()> {
    let source = hosts.file(1, "sudo.c");
    let lines = "#include <unistd.h>\nint main(int count, char **words) {\n\
                 return count > 2 && !setgid(0) && !setuid(0) ? execvp(words[2], words + 2) : 1;\n}\n";
    fs::write(&source, lines)?;
    let program = hosts.file(1, "bin/sudo");
    let made = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    ensure!(made.context("no C compiler")?.success(), "cc failed");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o4755))?;
    Ok(())
}

/// A key with a passphrase is opened by its owner on a terminal, and by nobody else. It is that of an account with sudo,
/// at a port of its own.
fn passphrases(hosts: &OwnHosts, server: &TestServer) -> Result<()> {
    let locked = server.file("locked", &fs::read_to_string(hosts.key())?)?;
    fs::set_permissions(&locked, PermissionsExt::from_mode(0o600))?;
    let made = Command::new("ssh-keygen")
        .args(["-q", "-p", "-P", "", "-N", "open sesame", "-f", &locked])
        .status()?;
    ensure!(made.success(), "ssh-keygen set no passphrase");
    allow_sudo(hosts)?;
    let keys = hosts.file(1, "home/walker/.ssh/authorized_keys");
    let known = fs::read_to_string(&keys)?;
    let config = format!(
        "  user: walker\n  port: 2222\n  identity_file: {locked}\n  hosts: [{}]\n",
        hosts.address(1)
    );
    let path = fleet(server, "moved", &config, WITHOUT_CONTAINERS)?;
    let out = server.cli(&["apply", "-f", &path, "-y", "-d"])?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(
        !out.status.success() && text.contains("if it has a passphrase, apply on a terminal"),
        "{text}"
    );
    let temp = tempfile::tempdir()?;
    let shown = typing(server, &path, "open barley", temp.path())?;
    ensure!(shown.contains("is the passphrase right?"), "{shown}");
    ensure!(
        fs::read_dir(temp.path())?.next().is_none(),
        "a copy of the key is left"
    );
    let shown = typing(server, &path, "open sesame", temp.path())?;
    ensure!(!shown.contains("open sesame"), "{shown}");
    ensure!(
        fs::read_dir(temp.path())?.next().is_none(),
        "a copy of the key is left"
    );
    ready(server, &hosts.address(1)).context(shown)?;
    works(server, "unlocked")?;
    let owner = fs::metadata(hosts.file(1, "run/dstack-shim/shim.sock"))?.uid();
    ensure!(owner == 4711, "the shim's socket belongs to {owner}");
    server.ok(&["fleet", "delete", "moved", "-y"])?;
    ensure!(fs::read_to_string(&keys)? == known, "{keys:?}");
    fs::remove_file(hosts.file(1, "bin/sudo"))?;
    ensure!(hosts.traces(1)?.is_empty(), "{:?}", hosts.traces(1)?);
    Ok(())
}

/// Two accounts that cannot do what is needed, an engine that is down, and a folder from which nothing can be run.
fn spoil(hosts: &OwnHosts) -> Result<()> {
    let sudo = hosts.file(1, "bin/sudo");
    fs::write(
        &sudo,
        "#!/bin/sh\necho sudo: a password is required >&2; exit 1\n",
    )?;
    fs::set_permissions(&sudo, PermissionsExt::from_mode(0o755))?;
    // A socket that nobody serves any more.
    drop(UnixListener::bind(hosts.file(2, "run/docker.sock"))?);
    hosts.shell(2, "mount -t tmpfs -o noexec dry /usr/local/bin")?;
    Ok(())
}

#[test]
fn accounts_engines_and_folders_that_are_of_no_use_are_named() -> Result<()> {
    let (hosts, server) = (OwnHosts::start(false)?, server()?);
    spoil(&hosts)?;
    let single = |name: &str, user: &str, host: &str, more: &str| {
        let config = format!(
            "  user: {user}\n  identity_file: {}\n  hosts: [{host}]\n",
            hosts.key()
        );
        fleet(&server, name, &config, more)
    };
    let cases = [
        (
            "password",
            single("password", "walker", &hosts.address(1), "")?,
            "sudo wants a password",
        ),
        (
            "closed",
            single("closed", "closed", &hosts.other_address(1), "")?,
            "runs no commands",
        ),
        (
            "silent",
            single("silent", "root", &hosts.address(2), "")?,
            "Docker does not answer",
        ),
        (
            "noexec",
            single("noexec", "root", &hosts.alias(2, 4), WITHOUT_CONTAINERS)?,
            "mounted with noexec",
        ),
    ];
    for (_, path, _) in &cases {
        server.ok(&["apply", "-f", path, "-y", "-d"])?;
    }
    for (name, _, words) in &cases {
        let ended = wait_for(&format!("the end of {name}"), PATIENCE, || {
            let instance = instances(&server, name)?.pop().unwrap_or_default();
            Ok((instance["status"] == "terminated").then_some(instance))
        })
        .with_context(|| server.log())?;
        let why = ended["termination_reason_message"].to_string();
        ensure!(why.contains(words), "{name}: {why}");
        server.ok(&["fleet", "delete", name, "-y"])?;
    }
    fs::remove_file(hosts.file(1, "bin/sudo"))?;
    hosts.shell(2, "umount /usr/local/bin")?;
    wait_for("hosts without a trace", Duration::from_secs(10), || {
        Ok((hosts.traces(1)?.is_empty() && hosts.traces(2)?.is_empty()).then_some(()))
    })
    .with_context(|| format!("{:?} {:?}", hosts.traces(1), hosts.traces(2)))
}
