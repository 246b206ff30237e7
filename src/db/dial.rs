//! Sockets to a server, and how they are watched: neither side shall outlive the other unnoticed.
//! TLS, where it is wanted, is part of the [`Stream`], below the tap of owners' sessions.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::tls::{Mode, Secured, Tls};

/// An idle connection is probed after this long; the same on the server's side (start-up options).
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// So many unanswered probes end it.
pub const KEEPALIVE_COUNT: u32 = 3;
/// Unacknowledged data ends it after this long. With the three above a cut network is noticed in 9–11 s (measured).
pub const TCP_USER_TIMEOUT: Duration = Duration::from_secs(9);

/// One socket to try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Where it is.
    pub socket: Socket,
    /// The host as the connection string names it: what a certificate must name.
    pub host: String,
    /// What is demanded of it; on a Unix socket there is no TLS.
    pub tls: Arc<Tls>,
}

/// Where a socket is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Socket {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Socket::Unix(path) => write!(f, "socket {}", path.display()),
            Socket::Tcp(address) => address.fmt(f),
        }
    }
}

impl Address {
    /// Connects, with keepalive and user timeout set on TCP, and TLS as demanded.
    ///
    /// # Errors
    /// What the system said, what is wrong with TLS, or that it took longer than `limit`.
    pub async fn dial(&self, limit: Duration) -> io::Result<Stream> {
        let dialled = async {
            let address = match &self.socket {
                Socket::Unix(path) => return Ok(Stream::Unix(UnixStream::connect(path).await?)),
                Socket::Tcp(address) => address,
            };
            if self.tls.mode == Mode::Disable {
                return Ok(Stream::Tcp(connect(address).await?));
            }
            match self.tls.secure(connect(address).await?, &self.host).await {
                Ok(Secured::Plain(socket)) => Ok(Stream::Tcp(socket)),
                Ok(Secured::Tls(stream)) => Ok(Stream::Tls(stream)),
                // As libpq: what is only preferred is done without.
                Err(_) if self.tls.mode == Mode::Prefer => Ok(Stream::Tcp(connect(address).await?)),
                Err(e) => Err(e),
            }
        };
        tokio::time::timeout(limit, dialled).await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
        })
    }
}

async fn connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_COUNT),
    )?;
    Ok(stream)
}

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// On this machine.
    Unix(UnixStream),
    /// Anywhere.
    Tcp(TcpStream),
    /// Anywhere, encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_write(cx, bytes),
            Self::Tcp(s) => Pin::new(s).poll_write(cx, bytes),
            Self::Tls(s) => Pin::new(s).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
            Self::Tls(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}
