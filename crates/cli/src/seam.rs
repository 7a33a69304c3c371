//! Stands in for `tidemark_broker::Broker`, with the same surface, until that can be built: it
//! binds the listeners and answers nothing.

use std::net::SocketAddr;

use tidemark_config::Settings;
use tokio::net::TcpListener;

pub(crate) struct Broker {
    listeners: Vec<ListenerAddress>,
    _sockets: Vec<TcpListener>,
}

pub(crate) struct ListenerAddress {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
}

impl Broker {
    pub(crate) async fn start(settings: Settings) -> Result<Broker, String> {
        let mut listeners = Vec::new();
        let mut sockets = Vec::new();
        for listener in settings.listeners {
            let refused = |error| {
                format!(
                    "cannot listen on {} (listener {}): {error}; free that port, or choose another \
                     with --listen HOST:PORT",
                    listener.bind, listener.name
                )
            };
            let to = (listener.bind_host(), listener.bind.port);
            let socket = TcpListener::bind(to).await.map_err(refused)?;
            let address = socket.local_addr().map_err(refused)?;
            let name = listener.name.clone();
            listeners.push(ListenerAddress { name, address });
            sockets.push(socket);
        }
        Ok(Broker {
            listeners,
            _sockets: sockets,
        })
    }

    pub(crate) fn listeners(&self) -> &[ListenerAddress] {
        &self.listeners
    }

    pub(crate) fn cluster_id(&self) -> &str {
        "none"
    }

    pub(crate) async fn shutdown(self) {}
}
