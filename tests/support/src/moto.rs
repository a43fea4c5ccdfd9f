//! A fake AWS of a test's own: moto, from PyPI, which `cargo xtask test` installs.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The region of everything here.
pub const REGION: &str = "eu-west-1";

/// A running fake. It ends with this value.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    url: String,
}

/// A pair of keys that the fake knows.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Access key.
    pub key: String,
    /// Secret key.
    pub secret: String,
}

impl Moto {
    /// Starts a fake that lets everybody in.
    ///
    /// # Errors
    /// If moto is not installed or does not start.
    pub fn start() -> Result<Self> {
        // It is in the folder that is built into.
        let own = std::env::current_exe()?;
        let mut places = own.ancestors().map(|dir| dir.join("moto/bin/moto_server"));
        let program = places
            .find(|path| path.exists())
            .context("no moto; `cargo xtask test` installs it")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("setpriv (util-linux) is needed")?;
        let mut moto = Self {
            child,
            url: format!("http://127.0.0.1:{port}"),
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        while ureq::get(format!("{}/moto-api/", moto.url)).call().is_err() {
            if moto.child.try_wait()?.is_some() || Instant::now() > deadline {
                let mut text = String::new();
                if let Some(mut told) = moto.child.stderr.take() {
                    drop(moto.child.kill());
                    told.read_to_string(&mut text)?;
                }
                bail!("moto does not start:\n{text}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // Its log is of no use from here on, and must not fill the pipe.
        if let Some(mut told) = moto.child.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()).ok());
        }
        Ok(moto)
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Calls an operation of CloudWatch Logs.
    ///
    /// # Errors
    /// If it is refused.
    pub fn logs(&self, action: &str, body: &Value) -> Result<Value> {
        let mut answer = ureq::post(&self.url)
            .header("Authorization", &scope("logs"))
            .header("X-Amz-Target", format!("Logs_20140328.{action}"))
            .header("Content-Type", "application/x-amz-json-1.1")
            .send(body.to_string())?;
        let text = answer.body_mut().read_to_string()?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// If it is refused.
    pub fn bucket(&self, name: &str) -> Result<()> {
        ureq::put(format!("{}/{name}", self.url))
            .header("Authorization", &scope("s3"))
            .send(format!(
                "<CreateBucketConfiguration><LocationConstraint>{REGION}</LocationConstraint></CreateBucketConfiguration>"
            ))?;
        Ok(())
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// If there is none.
    pub fn object(&self, bucket: &str, key: &str) -> Result<Vec<u8>> {
        let mut answer = ureq::get(format!("{}/{bucket}/{key}", self.url))
            .header("Authorization", &scope("s3"))
            .call()?;
        Ok(answer.body_mut().read_to_vec()?)
    }

    /// Makes a user who may do everything, and from now on lets nobody in without a right signature.
    ///
    /// # Errors
    /// If it is refused.
    pub fn checks_signatures(&self) -> Result<Keys> {
        let iam = |form: &str| -> Result<String> {
            let mut answer = ureq::post(&self.url)
                .header("Authorization", &scope("iam"))
                .header("Content-Type", "application/x-www-form-urlencoded")
                .send(format!("Version=2010-05-08&{form}"))?;
            Ok(answer.body_mut().read_to_string()?)
        };
        iam("Action=CreateUser&UserName=it")?;
        iam(
            "Action=PutUserPolicy&UserName=it&PolicyName=all&PolicyDocument=%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Action%22%3A%22%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D",
        )?;
        let answer = iam("Action=CreateAccessKey&UserName=it")?;
        let part = |name: &str| {
            let (_, rest) = answer.split_once(&format!("<{name}>"))?;
            Some(rest.split_once('<')?.0.to_owned())
        };
        let keys = Keys {
            key: part("AccessKeyId").context("no key")?,
            secret: part("SecretAccessKey").context("no secret")?,
        };
        let answer = ureq::post(format!("{}/moto-api/reset-auth", self.url)).send("0")?;
        ensure!(answer.status().is_success(), "moto checks no signatures");
        Ok(keys)
    }
}

/// A signature that says for which service it is, and is none.
fn scope(service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=test/20200101/{REGION}/{service}/aws4_request, SignedHeaders=host, Signature=0"
    )
}

impl Drop for Moto {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
