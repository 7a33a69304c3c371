//! OAUTHBEARER: tokens of an issuer that the settings name, checked with the keys that it publishes.
//!
//! Without keys nobody gets in: those of a file must be there at the start; those of a URL are asked for
//! from the start on until they come, and while they do not every token is refused. So an issuer that is
//! down keeps out who needs it and nobody else. Keys that were read stay in use when a later reading
//! fails.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidemark_config::Settings;
use tidemark_metadata::MetadataImage;
use tidemark_oauth::message::{self, ACKNOWLEDGEMENT, FAILURE};
use tidemark_oauth::{
    Accepted, Backoff, Expected, Jwks, JwksError, JwksOptions, Location, Refused, Schedule,
    Validator,
};
use tidemark_types::MonoTime;
use tracing::{info, warn};

use super::mechanism::{Done, Exchange, Failed, Mechanism, Step, Stepping};
use crate::clock::Clock;
use crate::front::Front;
use crate::shared::Shared;

/// For a connection to the issuer, and for all of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two readings that tokens with unknown keys have caused.
const UNKNOWN_KEY_MS: u64 = 10_000;

/// The same failure is told again after this long.
const TOLD_AGAIN: Duration = Duration::from_secs(600);

/// Kafka's sentence, without the names.
const OTHER_IDENTITY: &str = "Authentication failed: Client requested an authorization id that is \
                              different from the token's principal name";

/// What all listeners with OAUTHBEARER share.
pub(crate) struct Issuer {
    validator: Validator,
    jwks: Jwks,
    schedule: Mutex<Schedule>,
    /// Held by who reads the keys; who waits for it need not read again.
    reading: tokio::sync::Mutex<()>,
    told: Mutex<Option<(String, MonoTime)>>,
}

impl Issuer {
    /// The settings have passed their check. Blocks: a file is read, and must be good.
    pub(crate) fn open(settings: &Settings, now: MonoTime) -> Result<Issuer, JwksError> {
        let location = settings.sasl_oauthbearer_jwks_endpoint_url.as_deref();
        let location =
            Location::parse(location.unwrap_or_default()).map_err(JwksError::Location)?;
        let refresh_ms = match &location {
            // As the files of TLS.
            Location::File(_) => settings.tls_reload_interval_ms,
            Location::Https(_) => settings.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        };
        let jwks = Jwks::open(JwksOptions {
            location,
            truststore: settings
                .oauth_jwks_truststore_location
                .as_ref()
                .map(Into::into),
            connect_timeout: PATIENCE,
            timeout: PATIENCE,
        })?;
        let audiences = settings.sasl_oauthbearer_expected_audience.split(',');
        let audiences = audiences.map(str::trim).filter(|it| !it.is_empty());
        Ok(Issuer {
            validator: Validator::new(Expected {
                issuer: settings
                    .sasl_oauthbearer_expected_issuer
                    .clone()
                    .unwrap_or_default(),
                audiences: audiences.map(str::to_owned).collect(),
                clock_skew_s: u32::try_from(settings.sasl_oauthbearer_clock_skew_seconds)
                    .unwrap_or(u32::MAX),
                principal_claim: settings.sasl_oauthbearer_sub_claim_name.clone(),
                scope_claim: settings.sasl_oauthbearer_scope_claim_name.clone(),
            }),
            jwks,
            schedule: Mutex::new(Schedule::new(
                Backoff {
                    refresh_ms,
                    retry_ms: settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
                    retry_max_ms: settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
                    unknown_key_ms: UNKNOWN_KEY_MS,
                },
                now.as_ms(),
            )),
            reading: tokio::sync::Mutex::new(()),
            told: Mutex::new(None),
        })
    }

    /// Keys for a token that came with an unknown one: waits for a reading, if it is not too soon for one.
    async fn look_again(self: &Arc<Self>, clock: &Arc<dyn Clock>) {
        let _turn = self.reading.lock().await;
        if self.schedule.lock().unknown_key(clock.now().as_ms()) {
            self.read(clock).await;
        }
    }

    /// Reads the keys, and says what is new.
    async fn read(self: &Arc<Self>, clock: &Arc<dyn Clock>) {
        let (issuer, clock) = (self.clone(), clock.clone());
        // Whoever waits may go away meanwhile: what was read counts all the same.
        let reading = tokio::task::spawn_blocking(move || {
            let result = issuer.jwks.refresh();
            let now = clock.now();
            issuer.schedule.lock().done(now.as_ms(), result.is_ok());
            issuer.tell(result, now);
        });
        if let Err(e) = reading.await {
            warn!("OAUTHBEARER: the keys were not read: {e}");
        }
    }

    fn tell(&self, result: Result<bool, JwksError>, now: MonoTime) {
        let failed = result.is_err();
        let text = match result {
            Ok(false) => return,
            Ok(true) => {
                let keys = self.jwks.keys();
                let mut text = format!("OAUTHBEARER: {} keys read", keys.len());
                for passed_over in keys.passed_over() {
                    text.push_str(&format!("; not used: {passed_over}"));
                }
                text
            }
            Err(e) if self.jwks.keys().is_empty() => {
                format!("OAUTHBEARER: there are no keys, and every token is refused: {e}")
            }
            Err(e) => format!("OAUTHBEARER: the keys read before stay in use: {e}"),
        };
        let mut told = self.told.lock();
        let again = |(before, at): &(String, MonoTime)| {
            *before == text && (!failed || now.since(*at) < TOLD_AGAIN)
        };
        if told.as_ref().is_some_and(again) {
            return;
        }
        match failed {
            true => warn!("{text}"),
            false => info!("{text}"),
        }
        *told = Some((text, now));
    }
}

/// Reads the keys when it is time to. Runs until it is aborted.
pub(crate) async fn watch(issuer: Arc<Issuer>, front: Arc<Front>) {
    loop {
        let next = MonoTime::from_ms(issuer.schedule.lock().next_ms());
        if front.clock.now() < next {
            front.clock.sleep_until(next).await;
            // Somebody's token may have caused a reading since.
            continue;
        }
        read_now(issuer.clone(), front.clone()).await;
    }
}

/// Reads the keys again, whether it is time to or not.
pub(crate) async fn read_now(issuer: Arc<Issuer>, front: Arc<Front>) {
    let _turn = issuer.reading.lock().await;
    issuer.read(&front.clock).await;
}

/// At one listener.
pub(super) struct OauthBearer(pub(super) Arc<Issuer>);

impl Mechanism for OauthBearer {
    fn name(&self) -> &'static str {
        "OAUTHBEARER"
    }

    fn begin(&self) -> Box<dyn Exchange> {
        Box::new(Bearer {
            issuer: self.0.clone(),
            refused: None,
        })
    }

    fn has_users(&self, _: &MetadataImage) -> bool {
        true
    }
}

struct Bearer {
    issuer: Arc<Issuer>,
    /// The client was told that its token is bad, and has to say that it heard it.
    refused: Option<Refused>,
}

impl Exchange for Bearer {
    /// A name in a token that was refused is nobody's word.
    fn claims(&self) -> Option<&str> {
        None
    }

    fn step<'a>(&'a mut self, token: &'a [u8], shared: &'a Arc<Shared>) -> Stepping<'a> {
        Box::pin(async move {
            if let Some(refused) = self.refused.take() {
                return Step::Failed(match token == ACKNOWLEDGEMENT {
                    true => Failed {
                        told: Some(String::from_utf8_lossy(FAILURE).into_owned()),
                        why: refused.to_string(),
                    },
                    false => Failed {
                        told: None,
                        why: format!("{refused}, and the client did not say that it heard it"),
                    },
                });
            }
            match self.judge(token, shared).await {
                Ok(accepted) => Step::Done(Done {
                    user: accepted.principal,
                    token: Vec::new(),
                    expires_at_ms: Some(accepted.expires_at_ms),
                }),
                Err(Bad::Message(failed)) => Step::Failed(failed),
                Err(Bad::Token(refused)) => {
                    self.refused = Some(refused);
                    Step::Challenge(FAILURE.to_vec())
                }
            }
        })
    }
}

enum Bad {
    /// No token would help.
    Message(Failed),
    Token(Refused),
}

impl Bearer {
    async fn judge(&self, token: &[u8], shared: &Arc<Shared>) -> Result<Accepted, Bad> {
        let bad_message = |why: String| Bad::Message(Failed { told: None, why });
        let message = message::parse(token).map_err(|e| bad_message(e.to_string()))?;
        let issuer = &self.issuer;
        let validate = || {
            let id = message.authorization_id.as_deref();
            let keys = issuer.jwks.keys();
            let now_ms = shared.clock.wall_ms();
            issuer.validator.validate(&message.token, id, &keys, now_ms)
        };
        let judged = match validate() {
            Err(refused) if refused.is_for_want_of_a_key() => {
                issuer.look_again(&shared.clock).await;
                validate()
            }
            judged => judged,
        };
        judged.map_err(|refused| match refused {
            Refused::AuthorizationId => Bad::Message(Failed {
                told: Some(OTHER_IDENTITY.to_owned()),
                why: refused.to_string(),
            }),
            refused => Bad::Token(refused),
        })
    }
}
