//! Listeners: bound ports that accept connections, within limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
}

impl Bound {
    /// `tls` is for the listeners that speak TLS; there must be one if there are such. `sasl` is that
    /// of each listener of the settings.
    pub async fn bind_all(
        settings: &Settings,
        tls: Option<&Arc<Tls>>,
        sasl: &[Option<Arc<SaslListener>>],
    ) -> Result<Vec<Bound>, StartError> {
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
                Ok((stream, peer)) => self.admit(stream, peer, &name, &front).await,
                Err(e) => {
                    warn!("listener {name}: accept failed: {e}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a connection, closes one that is over a limit, or lets it wait for its turn, and with
    /// it those that are not accepted yet.
    async fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        name: &Arc<str>,
        front: &Arc<Front>,
    ) {
        let Some(admitted) = front.admit(peer) else {
            return;
        };
        if admitted.wait > Duration::ZERO {
            let clock = &front.clock;
            clock.sleep_until(clock.now() + admitted.wait).await;
        }
        let counted = admitted.counted;
        let place = match self.tls.is_some() || self.sasl.is_some() {
            false => None,
            true => match front.unauthenticated(peer) {
                None => return,
                place => place,
            },
        };
        let came = front.clock.now();
        let info = match self.describe(&stream, peer, name) {
            Ok(info) => info,
            // The client is gone already.
            Err(_) => return,
        };
        let front = front.clone();
        let tls = self.tls.clone();
        tokio::spawn(async move {
            match tls {
                None => connection::serve(stream, info, place, front).await,
                Some(tls) => tls::serve(tls, stream, came, info, place, front).await,
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
