//! What the stage asks of a mechanism: one exchange of tokens, and who it was.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidemark_metadata::MetadataImage;
use tidemark_sasl::Refusal;

use crate::shared::Shared;

/// A mechanism at one listener.
pub(crate) trait Mechanism: Send + Sync {
    /// Its name on the wire.
    fn name(&self) -> &'static str;

    /// A client wants to authenticate.
    fn begin(&self) -> Box<dyn Exchange>;

    /// False if nobody can authenticate as things are.
    fn has_users(&self, image: &MetadataImage) -> bool;
}

/// One client's authentication.
pub(crate) trait Exchange: Send {
    /// A token of the client's. Not called again once it is done or failed.
    fn step<'a>(&'a mut self, token: &'a [u8], shared: &'a Arc<Shared>) -> Stepping<'a>;

    /// Who the client says it is, once it has said so: not proven, for the audit log.
    fn claims(&self) -> Option<&str>;
}

pub(crate) type Stepping<'a> = Pin<Box<dyn Future<Output = Step> + Send + 'a>>;

/// What comes of a token.
pub(crate) enum Step {
    /// For the client, which answers with another.
    Challenge(Vec<u8>),
    Done(Done),
    Failed(Failed),
}

/// The client is who it says it is.
pub(crate) struct Done {
    pub user: String,
    /// The last token, for the client.
    pub token: Vec<u8>,
    /// When what it showed runs out, in milliseconds since 1970; `None`: it does not.
    pub expires_at_ms: Option<i64>,
}

pub(crate) struct Failed {
    /// What the client is told; `None`: Kafka's sentence about invalid credentials.
    pub told: Option<String>,
    /// For the log: no secret, and nothing that the client chose.
    pub why: String,
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed {
            told: refusal.told().map(str::to_owned),
            why: refusal.why().to_owned(),
        }
    }
}
