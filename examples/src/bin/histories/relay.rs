//! A relay in front of the broker, through which all clients go: connections can be cut, and answers swallowed first, so
//! that what was asked is done and nobody hears of it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::recorder::locked;

struct Connection {
    client: TcpStream,
    broker: TcpStream,
    swallows: Arc<AtomicBool>,
}

impl Connection {
    /// An end that is gone answers its peer's address no more.
    fn is_whole(&self) -> bool {
        self.client.peer_addr().is_ok() && self.broker.peer_addr().is_ok()
    }

    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.broker.shutdown(Shutdown::Both);
    }
}

pub struct Relay {
    port: u16,
    connections: Arc<Mutex<Vec<Connection>>>,
}

impl Relay {
    /// Listens on `port` and hands everything on to `broker_port`.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(port: u16, broker_port: u16) -> Result<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("the relay's port {port}"))?;
        let connections: Arc<Mutex<Vec<Connection>>> = Arc::default();
        let all = connections.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let all = all.clone();
                thread::spawn(move || {
                    // While the broker is away a connection waits for it: some clients take one that is closed at once
                    // for a broker that speaks another protocol, and do not come again.
                    if let Some(broker) = patiently(broker_port) {
                        let _ = join(client, broker, &all);
                    }
                });
            }
        });
        Ok(Relay { port, connections })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on what the broker answers on the connections that `which` chooses is thrown away.
    pub fn swallow(&self, which: &mut dyn FnMut() -> bool) {
        for connection in locked(&self.connections).iter() {
            connection.swallows.store(which(), Ordering::Relaxed);
        }
    }

    /// Cuts those that swallow, and of the others those that `which` chooses. Answers how many of them were still there.
    pub fn cut(&self, which: &mut dyn FnMut() -> bool) -> usize {
        let mut cut = 0;
        for connection in locked(&self.connections).iter() {
            if connection.swallows.load(Ordering::Relaxed) || which() {
                cut += usize::from(connection.is_whole());
                connection.cut();
            }
        }
        cut
    }
}

fn patiently(port: u16) -> Option<TcpStream> {
    for _ in 0..100 {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(broker) => return Some(broker),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
    None
}

fn join(client: TcpStream, broker: TcpStream, all: &Mutex<Vec<Connection>>) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let swallows = Arc::new(AtomicBool::new(false));
    let (from_client, to_broker) = (client.try_clone()?, broker.try_clone()?);
    let (from_broker, to_client) = (broker.try_clone()?, client.try_clone()?);
    let mut all = locked(all);
    // One whose ends are both gone answers its peer's address no more.
    all.retain(|c| c.client.peer_addr().is_ok() || c.broker.peer_addr().is_ok());
    all.push(Connection {
        client,
        broker,
        swallows: swallows.clone(),
    });
    thread::spawn(move || hand_on(from_client, to_broker, &AtomicBool::new(false)));
    thread::spawn(move || hand_on(from_broker, to_client, &swallows));
    Ok(())
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, swallows: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if !swallows.load(Ordering::Relaxed) && to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
