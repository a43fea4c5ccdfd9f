//! A dev environment on an own host: editor, ports, logins, and its end when nobody is there.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dstack_e2e::own_hosts::IMAGE;
use dstack_e2e::web::Web;
use dstack_test_support::server::{TestServer, bin_dir, wait_for};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(90);
/// A commit of the editor.
const VERSION: &str = "17baf841131aa23349f217ca7c570c76ee87b957";

/// A mirror that has the editor's server of one version.
pub(crate) fn mirror(folder: &Path) -> Result<Web> {
    let release = folder.join("release/vscode-server");
    fs::create_dir_all(release.join("bin"))?;
    fs::write(
        release.join("bin/code-server"),
        "#!/bin/sh\necho the editor\n",
    )?;
    let place = folder.join(format!(
        "www/update.code.visualstudio.com/commit:{VERSION}/server-linux-x64"
    ));
    fs::create_dir_all(&place)?;
    let made = Command::new("tar")
        .arg("-czf")
        .arg(place.join("stable"))
        .arg("-C")
        .arg(folder.join("release"))
        .arg("vscode-server")
        .status()?;
    ensure!(made.success(), "tar failed");
    Web::start(&folder.join("www"), None)
}

/// A client that stays until it is told to go.
struct Client {
    child: Child,
    log: PathBuf,
}

impl Client {
    fn start(server: &TestServer, name: &str, args: &[&str]) -> Result<Self> {
        let log = server.home().join(format!("{name}.out"));
        let file = File::create(&log)?;
        let child = server
            .command(&bin_dir().join("dstack"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Self { child, log })
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn says(&mut self, words: &str) -> Result<String> {
        let found = wait_for(&format!("\"{words}\" of the client"), PATIENCE, || {
            let said = self.said();
            ensure!(
                said.contains(words) || self.child.try_wait()?.is_none(),
                "it ended:\n{said}"
            );
            Ok(said.contains(words).then_some(said))
        });
        found.with_context(|| self.said())
    }

    fn leave(&mut self, signal: &str) -> Result<()> {
        Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The person's own `ssh`, with the entries that the client wrote.
fn ssh(server: &TestServer, name: &str, command: &str) -> Result<String> {
    let output = Command::new("ssh")
        .arg("-F")
        .arg(server.home().join(".dstack/ssh/config"))
        .args([name, command])
        .stdin(Stdio::null())
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "ssh {name} {command}: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn page(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("200 OK").then_some(text)
}

fn last_try(server: &TestServer) -> Result<Value> {
    let run = server.run("dev")?;
    Ok(run["latest_job_submission"].clone())
}

/// The port of this machine that the client named for one of the job.
fn local_port(said: &str, remote: &str) -> Result<u16> {
    let words = format!(" is port {remote} of the job");
    let line = said
        .lines()
        .find(|line| line.contains(&words))
        .context("no such line")?;
    let address = line.trim().strip_suffix(&words).context("more words")?;
    let port = address.rsplit(':').next().unwrap_or_default();
    Ok(port.trim_end_matches('/').parse()?)
}

/// From submission to its end; the fleet is there.
pub(crate) fn whole_life(server: &TestServer, web: &Web) -> Result<()> {
    let file = |limit: &str| {
        let text = format!(
            "type: dev-environment\nname: dev\nimage: {IMAGE}\nuser: root\nide: vscode\nversion: {VERSION}\n\
             inactivity_duration: {limit}\nports: ['*:8000']\ninit:\n- echo init of $DSTACK_RUN_NAME > /tmp/init\n\
             resources:\n  cpu: x86:1..\n  memory: 100MB..\n  disk: 1GB..\n"
        );
        server.file("dev.dstack.yml", &text)
    };
    let path = file("1h")?;
    let mut client = Client::start(server, "apply", &["apply", "-f", &path, "-y"])?;
    let said = client.says("To log in, use: ssh dev")?;
    ensure!(
        said.contains("To open in VS Code, use this link: vscode://vscode-remote/ssh-remote+dev/"),
        "{said}"
    );
    client.says("To connect via SSH, use: ssh dev")?;
    let installed = format!("sh ~/.vscode-server/bin/{VERSION}/bin/code-server && cat /tmp/init");
    let out = ssh(server, "dev", &installed)?;
    ensure!(out == "the editor\ninit of dev\n", "{out}");
    ensure!(
        web.asked().iter().any(|path| path.contains(VERSION)),
        "{:?}",
        web.asked()
    );
    // A port of the job is here, in the attached apply and in a later attach.
    ssh(server, "dev", "busybox httpd -p 8000 -h /tmp")?;
    let port = local_port(&said, "8000")?;
    wait_for("the page of the job", PATIENCE, || Ok(page(port, "/init")))?;
    client.leave("-INT")?;
    ensure!(client.said().contains("Detached"), "{}", client.said());
    ensure!(
        page(port, "/init").is_none(),
        "the port outlived the client"
    );

    let mut client = Client::start(server, "attach", &["attach", "dev"])?;
    let said = client.says("To log in, use: ssh dev")?;
    let port = local_port(&said, "8000")?;
    wait_for("the page of the job", PATIENCE, || Ok(page(port, "/init")))?;
    // Being attached is activity: the clock of inactivity, which ran, starts again.
    let quiet = |wanted: std::ops::RangeInclusive<i64>| {
        wait_for(&format!("{wanted:?} s without anybody"), PATIENCE, || {
            let seconds = last_try(server)?["inactivity_secs"].as_i64();
            Ok(seconds.filter(|it| wanted.contains(it)))
        })
    };
    quiet(5..=3600)?;
    quiet(0..=3)?;
    // A shorter limit, in place, while somebody is there.
    let out = server.ok(&["apply", "-f", &file("4s")?, "-y", "-d"])?;
    ensure!(out.contains("Run dev updated"), "{out}");
    ssh(server, "dev", "true")?;
    ensure!(server.run("dev")?["status"] == "running");
    client.leave("-TERM")?;
    let run = server.finished("dev", PATIENCE)?;
    let last = &run["latest_job_submission"];
    // A run whose job ended by anything but itself is a failed one.
    ensure!(
        last["status"] == "terminated"
            && last["termination_reason"] == "inactivity_duration_exceeded",
        "{run}"
    );
    let why = last["termination_reason_message"].to_string();
    ensure!(why.contains("nobody was connected"), "{why}");
    let (_, events) = server.post("/api/events/list", &json!({}))?;
    ensure!(events.to_string().contains("inactivity"), "{events}");
    Ok(())
}
