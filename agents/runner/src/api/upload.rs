//! Files that arrive over HTTP.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::fs::File;
use tokio::io::AsyncWriteExt;

/// A file that appears under its name only once it is complete.
#[derive(Debug)]
pub(super) struct Upload {
    file: File,
    part: PathBuf,
    target: PathBuf,
}

impl Upload {
    pub(super) async fn begin(target: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Its own for each upload: a client that gave up may still be sending.
        let part =
            target.with_file_name(format!(".part-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        if let Some(dir) = target.parent() {
            tokio::fs::create_dir_all(dir).await?;
        }
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&part)
            .await?;
        Ok(Self {
            file,
            part,
            target: target.to_owned(),
        })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).await
    }

    pub(super) async fn finish(mut self) -> io::Result<()> {
        self.file.flush().await?;
        tokio::fs::rename(&self.part, &self.target).await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Gone under this name when the upload was completed.
        drop(std::fs::remove_file(&self.part));
    }
}
