use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dstack_remote::{Hop, KeyPair, Secret};

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// An SSH server with keys of its own that lets `key` log in as this user.
pub(crate) struct Sshd {
    dir: tempfile::TempDir,
    pub(crate) port: u16,
    child: Child,
}

impl Sshd {
    pub(crate) fn start(key: &KeyPair) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("authorized_keys"),
            format!("{}\n", key.public),
        )
        .unwrap();
        let port = free_port();
        let child = Self::launch(dir.path(), port);
        let sshd = Self { dir, port, child };
        sshd.wait();
        sshd
    }

    fn launch(dir: &Path, port: u16) -> Child {
        // Made anew at each start, like a machine that was rebuilt at the same address.
        let host_key = dir.join("host_key");
        if !host_key.exists() {
            let host = KeyPair::generate("host").unwrap();
            std::fs::write(&host_key, host.private.expose()).unwrap();
            std::fs::set_permissions(&host_key, PermissionsExt::from_mode(0o600)).unwrap();
        }
        let config = dir.join("sshd_config");
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nHostKey {}\nAuthorizedKeysFile {}\nUsePAM no\n\
             PasswordAuthentication no\nStrictModes no\nPermitRootLogin yes\n",
            host_key.display(),
            dir.join("authorized_keys").display()
        );
        std::fs::write(&config, text).unwrap();
        // Where sshd confines its unprivileged part.
        drop(std::fs::create_dir_all("/run/sshd"));
        let program = "/usr/sbin/sshd";
        assert!(
            Path::new(program).exists(),
            "these tests need the package openssh-server"
        );
        let log = std::fs::File::create(dir.join("log")).unwrap();
        Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn wait(&self) {
        wait_for("sshd", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// How this user logs in with `key`.
    pub(crate) fn hop(&self, key: &KeyPair) -> Hop {
        Hop {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            username: whoami(),
            private_key: Secret::new(key.private.expose()),
            machine: None,
        }
    }

    /// Logins that were made, by the server's own log.
    pub(crate) fn logins(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("log"))
            .unwrap()
            .matches("Accepted publickey")
            .count()
    }

    /// Ends the processes that serve connections: what a network that broke looks like.
    pub(crate) fn break_connections(&self) {
        let children = |pid: u32| {
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
        };
        wait_for("a connection", || !children(self.child.id()).is_empty());
        for pid in children(self.child.id()).split_whitespace() {
            assert!(
                Command::new("kill")
                    .args(["-9", pid])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }

    pub(crate) fn stop(&mut self) {
        self.break_connections();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = Self::launch(self.dir.path(), self.port);
        self.wait();
    }

    pub(crate) fn rebuild(&mut self) {
        self.stop();
        std::fs::remove_file(self.dir.path().join("host_key")).unwrap();
        self.start_again();
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn whoami() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{what} does not come"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a request was: its line, its headers in lower case, its body.
pub(crate) type Seen = (String, String, Vec<u8>);

/// An agent with scripted answers. `None` takes the request and says nothing.
pub(crate) struct Agent {
    pub(crate) port: u16,
    pub(crate) socket: PathBuf,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<VecDeque<Option<String>>>>,
    _dir: tempfile::TempDir,
}

impl Agent {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let (tcp, unix) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            UnixListener::bind(&socket).unwrap(),
        );
        let port = tcp.local_addr().unwrap().port();
        let (seen, answers) = (
            Arc::<Mutex<Vec<Seen>>>::default(),
            Arc::<Mutex<VecDeque<Option<String>>>>::default(),
        );
        for listener in [true, false] {
            let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
            let (tcp, unix) = (tcp.try_clone().unwrap(), unix.try_clone().unwrap());
            std::thread::spawn(move || {
                loop {
                    let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                    if listener {
                        let Ok((stream, _)) = tcp.accept() else {
                            return;
                        };
                        std::thread::spawn(move || {
                            serve(stream.try_clone().unwrap(), stream, &seen, &answers)
                        });
                    } else {
                        let Ok((stream, _)) = unix.accept() else {
                            return;
                        };
                        std::thread::spawn(move || {
                            serve(stream.try_clone().unwrap(), stream, &seen, &answers)
                        });
                    }
                }
            });
        }
        Self {
            port,
            socket,
            seen,
            answers,
            _dir: dir,
        }
    }

    /// The next answer: JSON with 200.
    pub(crate) fn json(&self, json: &str) -> &Self {
        self.answer(&format!(
            "200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
            json.len()
        ))
    }

    pub(crate) fn text(&self, status: &str, text: &str) -> &Self {
        self.answer(&format!("{status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
    }

    pub(crate) fn answer(&self, raw: &str) -> &Self {
        self.answers
            .lock()
            .unwrap()
            .push_back(Some(format!("HTTP/1.1 {raw}")));
        self
    }

    pub(crate) fn silence(&self) -> &Self {
        self.answers.lock().unwrap().push_back(None);
        self
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().cloned().unwrap()
    }
}

fn serve(
    read: impl Read,
    mut write: impl Write,
    seen: &Mutex<Vec<Seen>>,
    answers: &Mutex<VecDeque<Option<String>>>,
) {
    let mut read = BufReader::new(read);
    let mut line = String::new();
    if read.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && read.read_line(&mut head).unwrap_or(0) > 2 {}
    let head = head.to_lowercase();
    let length = head
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "))
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    read.read_exact(&mut body).unwrap();
    seen.lock()
        .unwrap()
        .push((line.trim().to_owned(), head, body));
    let answer = answers
        .lock()
        .unwrap()
        .pop_front()
        .expect("an answer was scripted");
    match answer {
        Some(answer) => drop(write.write_all(answer.as_bytes())),
        // Holds the connection until the client goes.
        None => drop(read.read(&mut [0])),
    }
}
