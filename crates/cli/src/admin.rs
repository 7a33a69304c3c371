//! The admin endpoint of a broker that serves.

use std::net::SocketAddr;
use std::time::Duration;

use tidemark_admin::Token;
use tidemark_broker::Broker;
use tidemark_config::Settings;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::txn::DEFAULT_ADMIN;

/// Where the look-up views are, in the data directory. They may be deleted at any time.
const VIEWS: &str = "views";
/// `admin.listen` for none.
const OFF: &str = "off";
/// Answers under way get this long at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What requests have to bring, if they have to.
fn token(settings: &Settings) -> Result<Option<Token>, String> {
    let Some(path) = &settings.admin_token_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string());
    let token = text.and_then(|text| Token::new(&text));
    token
        .map(Some)
        .map_err(|why| format!("admin.token.file: {path}: {why}"))
}

pub(crate) struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Admin {
    /// `None` when it is off, or nothing was said of it and its usual place is taken: another broker
    /// on this machine is no reason not to start.
    ///
    /// Errors: the address that was asked for cannot be listened on.
    pub(crate) async fn start(
        broker: &Broker,
        settings: &Settings,
    ) -> Result<Option<Admin>, String> {
        let wanted = settings.admin_listen.as_deref();
        if wanted == Some(OFF) {
            return Ok(None);
        }
        let listener = match (
            TcpListener::bind(wanted.unwrap_or(DEFAULT_ADMIN)).await,
            wanted,
        ) {
            (Ok(listener), _) => listener,
            (Err(e), None) => {
                tracing::warn!(
                    "no admin endpoint: {DEFAULT_ADMIN} cannot be listened on ({e}); name another \
                     place with admin.listen, or off"
                );
                return Ok(None);
            }
            (Err(e), Some(wanted)) => {
                return Err(format!(
                    "admin.listen: cannot listen on {wanted:?}: {e}\nGive HOST:PORT of this \
                     machine (port 0 for any free one), or off"
                ));
            }
        };
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        let token = token(settings)?;
        let inspector = broker.inspector(Some(settings.data_dir.join(VIEWS)));
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _whoever_held_it_is_gone_too = stopped.await;
            };
            if let Err(e) = tidemark_admin::serve(listener, inspector, token, stopped).await {
                tracing::error!("the admin endpoint ended: {e}");
            }
        });
        Ok(Some(Admin {
            address,
            stop,
            task,
        }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers what was asked so far and no more.
    pub(crate) async fn stop(self) {
        let _it_has_ended_by_itself = self.stop.send(());
        let _it_took_too_long = tokio::time::timeout(PATIENCE, self.task).await;
    }
}
