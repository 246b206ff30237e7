//! [`Tap`]: the stream handed to tokio-postgres. Writes pass; what is read goes through a [`Framer`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::Framer;
use super::replies::{SharedReplies, lock};

/// How much is read from the socket at once; one such buffer per session.
const READ_BYTES: usize = 16 * 1024;

/// A stream whose incoming side is filtered, frame by frame.
#[derive(Debug)]
pub struct Tap<S> {
    inner: S,
    framer: Framer,
    replies: SharedReplies,
    raw: Box<[u8]>,
    /// Filtered, not yet read by tokio-postgres.
    filtered: BytesMut,
}

impl<S> Tap<S> {
    /// Taps `inner`; what the server says goes to `replies`.
    pub fn new(inner: S, replies: SharedReplies) -> Self {
        let raw = vec![0; READ_BYTES].into_boxed_slice();
        Self { inner, framer: Framer::default(), replies, raw, filtered: BytesMut::new() }
    }

    fn note_end(&self, why: impl FnOnce() -> String) {
        lock(&self.replies).end.get_or_insert_with(why);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Ends: the socket is drained, or tokio's cooperative budget makes it say Pending.
        while this.filtered.is_empty() {
            // What waits for the disk holds up the server.
            if let Some(sink) = &mut lock(&this.replies).sink {
                ready!(sink.poll_room(cx));
            }
            let mut raw = ReadBuf::new(&mut this.raw);
            if let Err(error) = ready!(Pin::new(&mut this.inner).poll_read(cx, &mut raw)) {
                this.note_end(|| error.to_string());
                return Poll::Ready(Err(error));
            }
            if raw.filled().is_empty() {
                this.note_end(|| "the server closed the connection".to_owned());
                return Poll::Ready(Ok(()));
            }
            let fed = {
                let mut replies = lock(&this.replies);
                let fed = this.framer.feed(raw.filled(), &mut replies, &mut this.filtered);
                if let Some(sink) = &mut replies.sink {
                    sink.send();
                }
                fed
            };
            if let Err(error) = fed {
                this.note_end(|| error.to_string());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
        let taken = this.filtered.len().min(buf.remaining());
        buf.put_slice(&this.filtered[..taken]);
        this.filtered.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
