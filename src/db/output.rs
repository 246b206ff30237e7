//! Output files: what a `COPY … TO STDOUT` sends is streamed to a file, and never held in memory.
//!
//! ```text
//!   socket ─▶ tap ─▶ Sink ─▶ (a bounded channel) ─▶ writer ─▶ .NAME.ATTEMPT.part ─▶ fsync ─▶ rename to NAME
//! ```
//! A full channel stops the reading from the socket, and so the server. The file appears under its name whole, before
//! the transaction commits: a task that is done has its file. What is left of an attempt that was given up is removed.

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::channel::mpsc;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::attempt::AttemptName;

/// Pieces of at most one read of the socket (16 KiB) that wait for the disk.
const PIECES: usize = 64;

/// Where an attempt's output goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// The folder, which exists.
    pub folder: PathBuf,
    /// The name of the file in it; see [`crate::model::is_output_name`].
    pub name: String,
    /// The largest file.
    pub max_bytes: u64,
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file system.
    #[error("cannot write the output file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More was sent than is allowed.
    #[error("the output is larger than {max_bytes} bytes")]
    TooLarge {
        /// The bound.
        max_bytes: u64,
    },
}

impl OutputError {
    /// What it is as an SQLSTATE: `io_error`, or `program_limit_exceeded`.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            OutputError::Io { .. } => "58030",
            OutputError::TooLarge { .. } => "54000",
        }
    }

    /// What can be done about it.
    pub fn hint(&self) -> &'static str {
        match self {
            OutputError::Io { .. } => "The folder is below data_dir of the service.",
            OutputError::TooLarge { .. } => {
                "Raise tasks.max_output_mib in Settings.toml, or copy it in several tasks."
            }
        }
    }
}

/// The end that the tap writes to.
#[derive(Debug)]
pub struct Sink {
    pieces: mpsc::Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Sink {
    /// Is there room for another piece?
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A writer that ended has said why: the rest is dropped.
        self.pieces.poll_ready(cx).map(|_| ())
    }

    /// Takes bytes of a read under way.
    pub fn take(&mut self, bytes: &[u8]) {
        self.piece.extend_from_slice(bytes);
    }

    /// Sends what the read brought.
    pub fn send(&mut self) {
        if !self.piece.is_empty() {
            let _ = self.pieces.start_send(std::mem::take(&mut self.piece));
        }
    }
}

/// A file being written. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct Saving {
    part: Part,
    target: PathBuf,
    writer: JoinHandle<Result<u64, OutputError>>,
    trouble: oneshot::Receiver<()>,
}

/// The file under its preliminary name; removed when dropped.
#[derive(Debug)]
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Saving {
    /// Opens the file under its preliminary name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn begin(output: &Output, attempt: &AttemptName) -> Result<(Saving, Sink), OutputError> {
        let part = output.folder.join(format!(".{}.{}.part", output.name, attempt.attempt));
        let failed = |source| OutputError::Io { path: part.clone(), source };
        // One of that name is what a crash left of the very same attempt.
        match fs::remove_file(&part).await {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).await;
        let file = file.map_err(failed)?;
        let (pieces, stream) = mpsc::channel(PIECES);
        let (tell, trouble) = oneshot::channel();
        let writer = tokio::spawn(write(file, part.clone(), output.max_bytes, stream, tell));
        let target = output.folder.join(&output.name);
        Ok((Saving { part: Part(part), target, writer, trouble }, Sink { pieces, piece: Vec::new() }))
    }

    /// Returns when the writer is in trouble, so that nothing more need be sent to it; never otherwise.
    pub async fn trouble(&mut self) {
        if (&mut self.trouble).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Once the sink is dropped, of a command that failed: the trouble that it was ended for, if it was.
    pub async fn finish_failed(self) -> Option<OutputError> {
        self.writer.await.ok()?.err()
    }

    /// Once the sink is dropped: makes the file durable and gives it its name. Returns its size in bytes.
    ///
    /// # Errors
    /// What went wrong with it, at whatever time; there is no new file then.
    pub async fn finish(self) -> Result<u64, OutputError> {
        let failed = |source| OutputError::Io { path: self.target.clone(), source };
        let bytes = self.writer.await.map_err(|e| failed(io::Error::other(e)))??;
        fs::rename(&self.part.0, &self.target).await.map_err(failed)?;
        // The name is durable with its folder.
        let folder = self.target.parent().unwrap_or_else(|| Path::new("."));
        let synced = async { File::open(folder).await?.sync_all().await };
        synced.await.map_err(failed)?;
        Ok(bytes)
    }
}

/// Writes what comes; after trouble it goes on taking, so that the sender is not held up.
async fn write(
    mut file: File,
    path: PathBuf,
    max_bytes: u64,
    mut pieces: mpsc::Receiver<Vec<u8>>,
    tell: oneshot::Sender<()>,
) -> Result<u64, OutputError> {
    let mut written: u64 = 0;
    let result = loop {
        let Some(piece) = pieces.next().await else { break Ok(()) };
        written += piece.len() as u64;
        if written > max_bytes {
            break Err(OutputError::TooLarge { max_bytes });
        }
        if let Err(source) = file.write_all(&piece).await {
            break Err(OutputError::Io { path: path.clone(), source });
        }
    };
    if result.is_err() {
        let _ = tell.send(());
        while pieces.next().await.is_some() {}
        return result.map(|()| written);
    }
    let synced = async {
        file.flush().await?;
        file.sync_all().await
    };
    synced.await.map_err(|source| OutputError::Io { path, source })?;
    Ok(written)
}
