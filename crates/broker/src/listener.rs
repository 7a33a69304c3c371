//! Listeners: bound ports that accept connections, within limits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tidemark_config::{Listener, Settings};
use tidemark_tls::{ANONYMOUS, Tls};
use tidemark_txn_coordinator::guard::ConnectionId;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

use crate::ListenerAddress;
use crate::connection::{self, ConnectionInfo};
use crate::error::StartError;
use crate::front::Front;
use crate::sasl::SaslListener;
use crate::tls;

/// After an accept failed for lack of something (files), wait: the next one would fail as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound port.
pub(crate) struct Bound {
    listener: Listener,
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    sasl: Option<Arc<SaslListener>>,
    connections: Arc<Connections>,
}

/// How many connections there are, in all and from each address.
struct Connections {
    max: usize,
    max_per_ip: usize,
    total: AtomicUsize,
    by_ip: DashMap<IpAddr, usize>,
}

impl Bound {
    /// `tls` is for the listeners that speak TLS; there must be one if there are such. `sasl` is that
    /// of each listener of the settings.
    pub async fn bind_all(
        settings: &Settings,
        tls: Option<&Arc<Tls>>,
        sasl: &[Option<Arc<SaslListener>>],
    ) -> Result<Vec<Bound>, StartError> {
        let connections = Arc::new(Connections {
            max: settings.max_connections,
            max_per_ip: settings.max_connections_per_ip,
            total: AtomicUsize::new(0),
            by_ip: DashMap::new(),
        });
        let mut bound = Vec::with_capacity(settings.listeners.len());
        for (listener, sasl) in settings.listeners.iter().zip(sasl) {
            // A listener that was meant to ask must not open without.
            assert_eq!(listener.protocol.has_sasl(), sasl.is_some());
            let refused = |source| StartError::Listen {
                listener: listener.name.clone(),
                address: listener.bind.to_string(),
                source,
            };
            let to = (listener.bind_host(), listener.bind.port);
            let socket = TcpListener::bind(to).await.map_err(refused)?;
            let address = socket.local_addr().map_err(refused)?;
            bound.push(Bound {
                listener: listener.clone(),
                socket,
                address,
                tls: match listener.protocol.has_tls() {
                    false => None,
                    // It must not open without.
                    true => Some(tls.expect("loaded for such listeners").clone()),
                },
                sasl: sasl.clone(),
                connections: connections.clone(),
            });
        }
        Ok(bound)
    }

    pub fn address(&self) -> ListenerAddress {
        ListenerAddress {
            name: self.listener.name.clone(),
            address: self.address,
        }
    }

    /// Accepts until the task is ended.
    pub async fn accept(self, front: Arc<Front>) {
        let name: Arc<str> = Arc::from(self.listener.name.as_str());
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer, &name, &front),
                Err(e) => {
                    warn!("listener {name}: accept failed: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr, name: &Arc<str>, front: &Arc<Front>) {
        let Some(counted) = Connections::count(&self.connections, peer.ip()) else {
            front.over_limit(peer);
            return;
        };
        let info = match self.describe(&stream, peer, name) {
            Ok(info) => info,
            // The client is gone already.
            Err(_) => return,
        };
        let front = front.clone();
        let tls = self.tls.clone();
        tokio::spawn(async move {
            match tls {
                None => connection::serve(stream, info, front).await,
                Some(tls) => tls::serve(tls, stream, info, front).await,
            }
            drop(counted);
        });
    }

    fn describe(
        &self,
        stream: &TcpStream,
        peer: SocketAddr,
        name: &Arc<str>,
    ) -> io::Result<ConnectionInfo> {
        stream.set_nodelay(true)?;
        let advertised = self.listener.advertised.clone().map(|mut endpoint| {
            // Port 0 was bound to a free one: that is the one to tell.
            if endpoint.port == 0 {
                endpoint.port = self.address.port();
            }
            endpoint
        });
        Ok(ConnectionInfo {
            peer,
            local: stream.local_addr()?,
            listener: name.clone(),
            principal: Arc::from(ANONYMOUS),
            advertised,
            sasl: self.sasl.clone(),
            id: ConnectionId::default(),
        })
    }
}

impl Connections {
    fn count(this: &Arc<Connections>, ip: IpAddr) -> Option<Counted> {
        if this.total.fetch_add(1, Ordering::Relaxed) >= this.max {
            this.total.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut of_ip = this.by_ip.entry(ip).or_insert(0);
        if *of_ip >= this.max_per_ip {
            this.total.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        *of_ip += 1;
        drop(of_ip);
        Some(Counted {
            connections: this.clone(),
            ip,
        })
    }
}

/// A connection that counts until it is dropped.
struct Counted {
    connections: Arc<Connections>,
    ip: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.total.fetch_sub(1, Ordering::Relaxed);
        let left = self.connections.by_ip.get_mut(&self.ip).map(|mut of_ip| {
            *of_ip -= 1;
            *of_ip
        });
        if left == Some(0) {
            self.connections
                .by_ip
                .remove_if(&self.ip, |_, count| *count == 0);
        }
    }
}
