//! Commands that the server puts before and around a person's own ones.

use crate::config::{Ide, PythonVersion};

use super::shell::quote;

/// The commands around a person's own ones. Each list is joined with `&&` like the person's.
pub trait Bootstrap: Send + Sync {
    /// Sets up and activates a virtual environment with this Python in the default image.
    fn python(&self, version: PythonVersion) -> Vec<String>;
    /// Starts the Docker daemon of docker mode.
    fn docker(&self) -> Vec<String>;
    /// Installs the editor's server part in this version.
    fn install_ide(&self, ide: Ide, version: &str) -> Vec<String>;
    /// Makes notebooks work.
    fn notebooks(&self) -> Vec<String>;
    /// Tells how to open the editor.
    fn ide_hints(&self, ide: Ide, run_name: &str, folder: &str) -> Vec<String>;
    /// Tells how to log in.
    fn ssh_hint(&self, run_name: &str) -> Vec<String>;
    /// Does nothing until the job is stopped.
    fn idle(&self) -> Vec<String>;
}

/// The commands of this server. They tolerate images without the tools they use, but say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandardBootstrap {
    /// Where editors' servers are downloaded from instead of their makers' sites: an address that has the makers' hosts
    /// as its first folders. None: the makers' sites.
    pub ide_mirror: Option<String>,
}

impl StandardBootstrap {
    /// The address of a download at a maker's host.
    fn download(&self, place: &str) -> String {
        match &self.ide_mirror {
            None => format!("https://{place}"),
            Some(mirror) => format!("{}/{place}", mirror.trim_end_matches('/')),
        }
    }
}

fn lines<const N: usize>(lines: [String; N]) -> Vec<String> {
    lines.to_vec()
}

impl Bootstrap for StandardBootstrap {
    fn python(&self, version: PythonVersion) -> Vec<String> {
        // Jobs may run without a container, where there is neither uv nor a writable /dstack; the host's Python is used then.
        lines([format!(
            "if command -v uv >/dev/null 2>&1; then \
             {{ test -x /dstack/venv/bin/python || uv venv --quiet --seed --python {version} --prompt workflow /dstack/venv; }} \
             && . /dstack/venv/bin/activate; fi"
        )])
    }

    fn docker(&self) -> Vec<String> {
        lines(["start-dockerd".to_owned()])
    }

    fn install_ide(&self, ide: Ide, version: &str) -> Vec<String> {
        let arch = "$(case $(uname -m) in aarch64|arm64) echo arm64;; *) echo x64;; esac)";
        let (home, url) = match ide {
            Ide::Vscode => {
                let url = self.download(&format!(
                    "update.code.visualstudio.com/commit:{version}/server-linux-{arch}/stable"
                ));
                (format!("~/.vscode-server/bin/{version}"), url)
            }
            Ide::Cursor => {
                let url = self.download(&format!(
                    "cursor.blob.core.windows.net/remote-releases/{version}/vscode-reh-linux-{arch}.tar.gz"
                ));
                (format!("~/.cursor-server/bin/{version}"), url)
            }
            Ide::Windsurf => {
                let (number, commit) = version.split_once('@').unwrap_or((version, version));
                let url = self.download(&format!(
                    "windsurf-stable.codeiumdata.com/linux-reh-{arch}/stable/{commit}/windsurf-reh-linux-{arch}-{number}.tar.gz"
                ));
                (format!("~/.windsurf-server/bin/{commit}"), url)
            }
            // Zed installs its own server when it connects.
            Ide::Zed => return Vec::new(),
        };
        // A folder without its content would count as installed.
        lines([format!(
            "{{ test -d {home} || {{ echo 'Installing the {ide} server' && mkdir -p {home} && \
             {{ curl -fsSL \"{url}\" || wget -qO- \"{url}\"; }} | tar -xz --strip-components=1 -C {home}; }} \
             || {{ rm -rf {home}; echo 'The {ide} server could not be installed now; the editor will try when it connects'; }}; }}"
        )])
    }

    fn notebooks(&self) -> Vec<String> {
        lines(["{ (python3 -m pip install -q --no-cache-dir ipykernel || uv pip install -q ipykernel) >/dev/null 2>&1 || true; }".to_owned()])
    }

    fn ide_hints(&self, ide: Ide, run_name: &str, folder: &str) -> Vec<String> {
        let link = match ide {
            Ide::Vscode => format!("vscode://vscode-remote/ssh-remote+{run_name}{folder}"),
            Ide::Cursor => format!("cursor://vscode-remote/ssh-remote+{run_name}{folder}"),
            Ide::Windsurf => format!("windsurf://vscode-remote/ssh-remote+{run_name}{folder}"),
            Ide::Zed => format!("zed://ssh/{run_name}{folder}"),
        };
        let name = match ide {
            Ide::Vscode => "VS Code Desktop",
            Ide::Cursor => "Cursor",
            Ide::Windsurf => "Windsurf",
            Ide::Zed => "Zed",
        };
        lines([
            format!(
                "echo {}",
                quote(&format!("To open in {name}, use this link:"))
            ),
            "echo".to_owned(),
            format!("echo {}", quote(&format!("  {link}"))),
            "echo".to_owned(),
        ])
    }

    fn ssh_hint(&self, run_name: &str) -> Vec<String> {
        lines([
            format!(
                "echo {}",
                quote(&format!("To connect via SSH, use: ssh {run_name}"))
            ),
            "echo".to_owned(),
        ])
    }

    fn idle(&self) -> Vec<String> {
        lines([
            "printf 'To exit, press Ctrl+C.\\n'".to_owned(),
            "tail -f /dev/null".to_owned(),
        ])
    }
}
