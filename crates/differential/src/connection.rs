//! One connection to a broker, blocking.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::requests::Body;

/// What came of waiting for an answer.
#[derive(Clone, Debug)]
pub enum Received {
    Frame(Bytes),
    Closed,
    Nothing,
}

pub struct Connection {
    stream: TcpStream,
    next_correlation_id: i32,
    /// Bytes that are no whole frame yet.
    bytes: Vec<u8>,
    /// Frames that came while another was waited for.
    early: HashMap<i32, Bytes>,
    closed: bool,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .with_context(|| format!("{address} does not accept connections"))?;
        Connection::over(stream)
    }

    /// A connection that comes from `local`, whatever its port.
    pub fn open_from(local: IpAddr, address: SocketAddr) -> Result<Connection> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddr::new(local, 0)).with_context(|| format!("bind to {local}"))?;
        connect(&socket, &address)
            .with_context(|| format!("{address} does not accept connections from {local}"))?;
        Connection::over(TcpStream::from(socket))
    }

    fn over(stream: TcpStream) -> Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            next_correlation_id: 1,
            bytes: Vec::new(),
            early: HashMap::new(),
            closed: false,
        })
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Treats the connection as closed.
    pub fn give_up(&mut self) {
        self.closed = true;
    }

    /// Sends a request and gives its correlation id. `cut` bytes are missing at its end, `tail`
    /// zeros follow it; the size in front is that of what is sent.
    pub fn send(&mut self, body: &Body, client_id: Option<&str>, cut: usize, tail: usize) -> i32 {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let mut frame = Vec::new();
        frame.extend_from_slice(&body.key.to_be_bytes());
        frame.extend_from_slice(&body.version.to_be_bytes());
        frame.extend_from_slice(&correlation_id.to_be_bytes());
        match client_id {
            None => frame.extend_from_slice(&(-1_i16).to_be_bytes()),
            Some(id) => {
                let length = i16::try_from(id.len()).expect("a script's client id is short");
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(id.as_bytes());
            }
        }
        let flexible = ApiKey::try_from(body.key)
            .is_ok_and(|key| key.request_header_version(body.version) >= 2);
        if flexible {
            frame.push(0);
        }
        frame.extend_from_slice(&body.bytes);
        frame.truncate(frame.len().saturating_sub(cut));
        frame.resize(frame.len() + tail, 0);
        let size = i32::try_from(frame.len()).expect("a script's frame is small");
        self.send_bytes(&size.to_be_bytes());
        self.send_bytes(&frame);
        correlation_id
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            // What the broker sent before it closed may still be read.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// The answer to a request; to any if `correlation_id` is `None`.
    pub fn receive(&mut self, correlation_id: Option<i32>, patience: Duration) -> Received {
        let until = Instant::now() + patience;
        loop {
            match correlation_id {
                Some(id) => {
                    if let Some(frame) = self.early.remove(&id) {
                        return Received::Frame(frame);
                    }
                }
                None => {
                    if let Some(id) = self.early.keys().min().copied() {
                        return Received::Frame(self.early.remove(&id).expect("its key is there"));
                    }
                }
            }
            if self.closed {
                return Received::Closed;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            self.read(left);
        }
    }

    fn read(&mut self, patience: Duration) {
        let mut buffer = [0; 64 << 10];
        let _ = self.stream.set_read_timeout(Some(patience));
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(n) => self.bytes.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.closed = true,
        }
        while self.bytes.len() >= 8 {
            let word = |at: usize| {
                let bytes: [u8; 4] = self.bytes[at..at + 4].try_into().expect("four bytes");
                i32::from_be_bytes(bytes)
            };
            let Ok(size) = usize::try_from(word(0)) else {
                self.closed = true;
                return;
            };
            if self.bytes.len() < 4 + size {
                return;
            }
            let id = word(4);
            let frame: Vec<u8> = self.bytes.drain(..4 + size).skip(4).collect();
            self.early.insert(id, Bytes::from(frame));
        }
    }
}
