//! Connections from an address of one's choice: all of 127.0.0.0/8 is this machine.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use tidemark_differential::requests::Body;

/// The n-th address of an attack. The first kilobyte of the network is left to honest clients.
pub fn address(attack: u8, n: usize) -> Ipv4Addr {
    let n = u16::try_from(n % 65_000).unwrap_or(0) + 1;
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(127, attack, high, low)
}

/// Connects within `patience`, and gives up reading and writing after as long.
pub fn open(from: Ipv4Addr, to: SocketAddrV4, patience: Duration) -> io::Result<TcpStream> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(patience))?;
    }
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// A request of a version without tagged fields, with its size in front.
pub fn frame(body: &Body) -> Vec<u8> {
    let size = i32::try_from(body.bytes.len() + 10).expect("an attack's frame is below 2 GiB");
    let mut frame = size.to_be_bytes().to_vec();
    frame.extend_from_slice(&body.key.to_be_bytes());
    frame.extend_from_slice(&body.version.to_be_bytes());
    frame.extend_from_slice(&1i32.to_be_bytes());
    frame.extend_from_slice(&(-1i16).to_be_bytes());
    frame.extend_from_slice(&body.bytes);
    frame
}

/// The next answer, behind its correlation id.
pub fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = u32::from_be_bytes(size).min(64 << 20) as usize;
    let mut answer = vec![0; size];
    stream.read_exact(&mut answer)?;
    answer.drain(..4.min(size));
    Ok(answer)
}

/// Whether a request is answered.
pub fn is_served(stream: &mut TcpStream, body: &Body) -> bool {
    stream.write_all(&frame(body)).is_ok() && answer(stream).is_ok()
}

/// Whether the other side has closed it, as far as can be seen without waiting.
pub fn is_closed(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    match stream.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock,
    }
}
