//! What the command line needs of a broker. Stands in until the broker crate has it: it binds the
//! listeners and answers nothing.

use std::net::SocketAddr;

use tidemark_config::Settings;
use tokio::net::TcpListener;

pub(crate) struct Broker {
    listeners: Vec<(String, TcpListener)>,
}

impl Broker {
    pub(crate) async fn start(settings: Settings) -> Result<Broker, String> {
        let mut listeners = Vec::new();
        for listener in settings.listeners {
            let address = (listener.bind_host().to_owned(), listener.bind.port);
            let bound = TcpListener::bind(address).await.map_err(|error| {
                format!(
                    "cannot listen on {} (listener {}): {error}; free that port, or choose another \
                     with --listen HOST:PORT",
                    listener.bind, listener.name
                )
            })?;
            listeners.push((listener.name, bound));
        }
        Ok(Broker { listeners })
    }

    pub(crate) fn cluster_id(&self) -> String {
        "none".to_owned()
    }

    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.listeners
            .iter()
            .filter_map(|(name, bound)| Some((name.clone(), bound.local_addr().ok()?)))
            .collect()
    }

    /// Ends only if the broker cannot go on; the value says why.
    pub(crate) async fn failure(&self) -> String {
        std::future::pending().await
    }

    pub(crate) async fn shutdown(self) -> Result<(), String> {
        Ok(())
    }
}
