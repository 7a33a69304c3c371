//! What a connection passes before it may ask anything (KIP-43, KIP-152), and again when its session
//! is to be renewed (KIP-368).
//!
//! ```text
//!            ApiVersions                SaslHandshake             tokens              done
//! Greeting ─────────────► Greeting' ──────────────────► Exchange ────────► Exchange ───────► Through
//!                                                                                              │
//!                       Exchange ◄───────────────── SaslHandshake, if a session has an end ────┘
//! ```
//!
//! Anything else closes the connection; a proof that fails is answered after
//! `connection.failed.authentication.delay.ms`, and then it is closed too. Frames are small, few and in
//! time until a client is through. States, texts and codes are Kafka's (`SaslServerAuthenticator`).
//!
//! A handshake at version 0 is followed by tokens that are bare frames, one at version 1 by
//! SaslAuthenticate requests.
//!
//! Renewal happens between two requests of the reading half: what was asked before is under way and is
//! answered in its place, what is asked after waits unread. Only the same mechanism may be used and
//! only the same principal come of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    RequestKind, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use tidemark_audit::{Event, Kind, Outcome as Audited};
use tidemark_types::{ErrorCode, MonoTime};
use tidemark_wire::api_versions::unsupported_version;
use tidemark_wire::{
    ApiKey, FrameSplitter, Opened, RequestHeader, Stage, WireError, decode_body, encode_response,
    open_frame,
};

use super::mechanism::{Done, Exchange, Failed, Step};
use super::{Offered, SaslListener};
use crate::audit;
use crate::connection::{ConnectionInfo, End};
use crate::front::Front;
use crate::handlers::{Outcome, Pending, api_versions};

/// More than any client sends before it is through.
const MAX_FRAMES: u32 = 20;
/// As in Kafka, a session is not renewed more often.
const MIN_RENEWAL: Duration = Duration::from_secs(1);

/// What a frame led to.
pub(crate) enum Taken {
    /// A request to be carried out, of the connection as it is now.
    Request {
        header: RequestHeader,
        body: Bytes,
    },
    Answer(Pending),
    /// The last answer: the connection ends with it, and nothing more is read.
    Last(Pending),
}

/// Stands between a connection's frames and the handlers.
pub(crate) struct Gate {
    connection: Arc<ConnectionInfo>,
    state: State,
    frames: u32,
    /// When a client that is not through is sent away.
    deadline: Option<MonoTime>,
    session: Option<Session>,
}

enum State {
    /// Nobody asked who it is, or it has said so.
    Through,
    Greeting {
        versions_told: bool,
    },
    Exchange(Running),
    /// A session was to be renewed with another mechanism.
    OtherMechanism,
}

struct Running {
    /// Which of the listener's.
    mechanism: usize,
    exchange: Box<dyn Exchange>,
    /// Tokens are frames of their own.
    bare: bool,
}

/// What an authentication gave.
struct Session {
    mechanism: usize,
    /// `None`: it does not end.
    ends: Option<MonoTime>,
    renewed: Option<MonoTime>,
}

impl Gate {
    pub(crate) fn new(connection: Arc<ConnectionInfo>, front: &Front) -> Gate {
        let asks = connection.sasl.is_some();
        let patience = Duration::from_millis(front.settings.auth_timeout_ms);
        Gate {
            state: match asks {
                true => State::Greeting {
                    versions_told: false,
                },
                false => State::Through,
            },
            frames: 0,
            deadline: asks.then(|| front.clock.now() + patience),
            session: None,
            connection,
        }
    }

    /// The connection as it is now: after an authentication with its principal.
    pub(crate) fn connection(&self) -> &Arc<ConnectionInfo> {
        &self.connection
    }

    /// When to send the client away; `None` once it is through.
    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        self.deadline
    }

    /// Sets what frames may look like now.
    pub(crate) fn limit(&self, frames: &mut FrameSplitter, max_frame_bytes: usize, front: &Front) {
        let max = match self.deadline {
            Some(_) => max_frame_bytes.min(front.settings.sasl_server_max_receive_size),
            None => max_frame_bytes,
        };
        frames.set_max_frame_bytes(max);
        frames.set_bare_tokens(matches!(&self.state, State::Exchange(running) if running.bare));
    }

    /// Takes a frame.
    pub(crate) async fn take(&mut self, frame: Bytes, front: &Arc<Front>) -> Result<Taken, End> {
        if let State::Through = self.state {
            return self.take_through(frame, front);
        }
        self.frames += 1;
        if self.frames > MAX_FRAMES {
            return Ok(self.fail(front, "too many requests before authentication", None));
        }
        if matches!(&self.state, State::Exchange(running) if running.bare) {
            return self.token(&frame, None, front).await;
        }
        match open_frame(frame, Stage::PreAuth).map_err(End::Protocol)? {
            Opened::UnsupportedApiVersions { correlation_id } => match self.state {
                State::Greeting {
                    versions_told: false,
                } => unsupported(correlation_id).map(Taken::Answer),
                _ => Ok(self.fail(front, "ApiVersions at the wrong time", None)),
            },
            Opened::Request { header, body } => {
                front.api_counts.count(header.api_key, header.api_version);
                self.request(header, body, front).await
            }
        }
    }

    async fn request(
        &mut self,
        header: RequestHeader,
        body: Bytes,
        front: &Arc<Front>,
    ) -> Result<Taken, End> {
        match (&mut self.state, header.api_key) {
            (State::Greeting { versions_told }, ApiKey::ApiVersions) if !*versions_told => {
                // Kafka takes a second one for a mistake, unless the first was refused.
                let warn = |version: &str| front.old_java_client(self.connection.peer, version);
                let (answer, told) =
                    api_versions::answer(&header, body, warn).map_err(End::Protocol)?;
                *versions_told = told;
                Ok(Taken::Answer(answer))
            }
            (State::Greeting { .. }, ApiKey::SaslHandshake) => {
                self.handshake(&header, decode(&header, body)?, front)
            }
            (State::Exchange(_), ApiKey::SaslAuthenticate) => {
                let RequestKind::SaslAuthenticate(request) =
                    decode_body(&header, body).map_err(End::Protocol)?
                else {
                    unreachable!("the header says SaslAuthenticate");
                };
                self.token(&request.auth_bytes, Some(&header), front).await
            }
            (State::Exchange(_), ApiKey::SaslHandshake) => {
                let refused = SaslHandshakeResponse::default()
                    .with_error_code(ErrorCode::IllegalSaslState.code());
                let frame = encode(&header, &refused)?;
                Ok(self.fail(front, "a handshake within another", Some(frame)))
            }
            (State::OtherMechanism, _) => Ok(self.fail(
                front,
                "a session is renewed with its own mechanism only",
                None,
            )),
            _ => Ok(self.fail(front, "a request at the wrong time", None)),
        }
    }

    fn handshake(
        &mut self,
        header: &RequestHeader,
        request: SaslHandshakeRequest,
        front: &Arc<Front>,
    ) -> Result<Taken, End> {
        let sasl = self.sasl();
        let names = sasl.mechanisms.iter().map(|o| o.mechanism.name());
        let known = SaslHandshakeResponse::default()
            .with_mechanisms(names.map(StrBytes::from_static_str).collect());
        let mut offered = sasl.mechanisms.iter();
        let asked = &*request.mechanism;
        let Some(mechanism) = offered.position(|o| o.mechanism.name() == asked) else {
            let refused = known.with_error_code(ErrorCode::UnsupportedSaslMechanism.code());
            let frame = encode(header, &refused)?;
            return Ok(self.fail(front, "a mechanism that is not offered", Some(frame)));
        };
        let answer = Taken::Answer(ready(encode(header, &known)?));
        self.state = match &self.session {
            Some(session) if session.mechanism != mechanism => State::OtherMechanism,
            _ => State::Exchange(Running {
                mechanism,
                exchange: sasl.mechanisms[mechanism].mechanism.begin(),
                bare: header.api_version == 0,
            }),
        };
        Ok(answer)
    }

    /// A token, in a request or bare.
    async fn token(
        &mut self,
        token: &[u8],
        header: Option<&RequestHeader>,
        front: &Arc<Front>,
    ) -> Result<Taken, End> {
        let began = front.clock.now();
        // The users are known when the replay is done.
        let shared = front.ready().await.ok_or(End::Client)?;
        let State::Exchange(running) = &mut self.state else {
            unreachable!("tokens are taken in an exchange only");
        };
        let step = running.exchange.step(token, &shared).await;
        // What the broker takes is not the client's delay.
        if let Some(deadline) = &mut self.deadline {
            *deadline = *deadline + front.clock.now().since(began);
        }
        match step {
            Step::Challenge(token) => Ok(Taken::Answer(ready(token_answer(header, token, None)?))),
            Step::Done(done) => self.done(done, header, front),
            Step::Failed(failed) => self.failed(failed, header, front),
        }
    }

    fn done(
        &mut self,
        done: Done,
        header: Option<&RequestHeader>,
        front: &Arc<Front>,
    ) -> Result<Taken, End> {
        let mechanism = self.running();
        let name = self.offered(mechanism).mechanism.name();
        let principal: Arc<str> = Arc::from(format!("User:{}", done.user));
        if self.session.is_some() && principal != self.connection.principal {
            let told = format!(
                "Cannot change principals during re-authentication from {}: {principal}",
                self.connection.principal.replacen(':', ".", 1),
            );
            let told = told.replacen(": User:", ": User.", 1);
            let why = "another user than the session's".to_owned();
            let failed = Failed {
                told: Some(told),
                why,
            };
            return self.failed(failed, header, front);
        }
        let now = front.clock.now();
        let left = done.expires_at_ms.map(|at_ms| {
            let left_ms = at_ms.saturating_sub(front.clock.wall_ms());
            Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
        });
        let lifetime = match (self.offered(mechanism).max_session, left) {
            (Some(max), Some(left)) => Some(max.min(left)),
            (max, left) => max.or(left),
        };
        self.session = Some(Session {
            mechanism,
            ends: lifetime.map(|lifetime| now + lifetime),
            renewed: self.session.take().and_then(|session| session.renewed),
        });
        tracing::debug!(
            "{} at {}: {principal} by {name}",
            self.connection.peer,
            self.connection.listener
        );
        if principal != self.connection.principal {
            self.connection = Arc::new(ConnectionInfo {
                principal,
                ..ConnectionInfo::clone(&self.connection)
            });
        }
        front.audit.record(|| {
            let mut origin = audit::origin(&self.connection);
            let client_id = header.and_then(|header| header.client_id.as_deref());
            origin.client_id = client_id.map(Arc::from);
            Event::new(Kind::Authentication)
                .outcome(Audited::Succeeded)
                .of(&origin)
                .mechanism(name)
        });
        self.state = State::Through;
        self.deadline = None;
        Ok(Taken::Answer(ready(token_answer(
            header, done.token, lifetime,
        )?)))
    }

    fn failed(
        &mut self,
        failed: Failed,
        header: Option<&RequestHeader>,
        front: &Arc<Front>,
    ) -> Result<Taken, End> {
        let name = self.offered(self.running()).mechanism.name();
        let frame = match header {
            // A client of version 0 learns it from the end of the connection.
            None => None,
            Some(header) => {
                let again = match self.session {
                    Some(_) => "re-authentication",
                    None => "authentication",
                };
                let told = failed.told.unwrap_or_else(|| {
                    format!(
                        "Authentication failed during {again} due to invalid credentials with SASL \
                         mechanism {name}"
                    )
                });
                let refused = SaslAuthenticateResponse::default()
                    .with_error_code(ErrorCode::SaslAuthenticationFailed.code())
                    .with_error_message(Some(StrBytes::from_string(told)));
                Some(encode(header, &refused)?)
            }
        };
        Ok(self.fail(front, &format!("{name}: {}", failed.why), frame))
    }

    /// A client is through, or nobody asked.
    fn take_through(&mut self, frame: Bytes, front: &Arc<Front>) -> Result<Taken, End> {
        let ends = self.session.as_ref().and_then(|session| session.ends);
        // Nobody looks at the clock for a session without an end.
        let now = ends.map(|_| front.clock.now());
        let opened = open_frame(frame, Stage::Open).map_err(End::Protocol)?;
        if let Opened::Request { header, body } = &opened
            && header.api_key == ApiKey::SaslHandshake
            && now.is_some_and(|now| self.may_renew(now))
        {
            front.api_counts.count(header.api_key, header.api_version);
            return self.handshake(header, decode(header, body.clone())?, front);
        }
        if ends.is_some_and(|ends| now >= Some(ends)) {
            front.session_over(self.connection.peer, &self.connection.principal);
            return Err(End::Client);
        }
        match opened {
            Opened::UnsupportedApiVersions { correlation_id } => {
                unsupported(correlation_id).map(Taken::Answer)
            }
            Opened::Request { header, body } => {
                front.api_counts.count(header.api_key, header.api_version);
                match header.api_key {
                    ApiKey::SaslHandshake => {
                        let _request = decode(&header, body)?;
                        let refused = SaslHandshakeResponse::default()
                            .with_error_code(ErrorCode::IllegalSaslState.code());
                        Ok(Taken::Answer(ready(encode(&header, &refused)?)))
                    }
                    ApiKey::SaslAuthenticate => {
                        decode_body(&header, body).map_err(End::Protocol)?;
                        let message = "SaslAuthenticate request received after successful \
                                       authentication";
                        let refused = SaslAuthenticateResponse::default()
                            .with_error_code(ErrorCode::IllegalSaslState.code())
                            .with_error_message(Some(StrBytes::from_static_str(message)));
                        Ok(Taken::Answer(ready(encode(&header, &refused)?)))
                    }
                    _ => Ok(Taken::Request { header, body }),
                }
            }
        }
    }

    /// True, and noted, if the session, which has an end, may be renewed now: it was not within the
    /// last second.
    fn may_renew(&mut self, now: MonoTime) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let soon = |renewed: MonoTime| now.since(renewed) < MIN_RENEWAL;
        if session.renewed.is_some_and(soon) {
            return false;
        }
        session.renewed = Some(now);
        self.frames = 0;
        true
    }

    /// The client is not let in, or not any longer.
    fn fail(&mut self, front: &Arc<Front>, why: &str, answer: Option<Bytes>) -> Taken {
        front.not_authenticated(self.connection.peer, &self.connection.listener, why);
        front.audit.record(|| {
            let mut origin = audit::origin(&self.connection);
            if self.session.is_none() {
                // It is nobody yet.
                origin.principal = None;
            }
            let event = Event::new(Kind::Authentication)
                .outcome(Audited::Failed)
                .of(&origin)
                .reason(why);
            let State::Exchange(running) = &self.state else {
                return event;
            };
            let event = event.mechanism(self.offered(running.mechanism).mechanism.name());
            match running.exchange.claims() {
                Some(user) => event.claimed(user),
                None => event,
            }
        });
        let delay_ms = front.settings.connection_failed_authentication_delay_ms;
        let delay = front
            .clock
            .sleep_until(front.clock.now() + Duration::from_millis(delay_ms));
        Taken::Last(Pending::later(async move {
            delay.await;
            Outcome::Last(answer.into_iter().collect())
        }))
    }

    fn sasl(&self) -> Arc<SaslListener> {
        let sasl = self.connection.sasl.clone();
        sasl.expect("only such a listener asks who is there")
    }

    fn running(&self) -> usize {
        match &self.state {
            State::Exchange(running) => running.mechanism,
            _ => unreachable!("asked in an exchange only"),
        }
    }

    fn offered(&self, mechanism: usize) -> &Offered {
        let sasl = self.connection.sasl.as_ref();
        &sasl
            .expect("only such a listener has mechanisms")
            .mechanisms[mechanism]
    }
}

fn decode(header: &RequestHeader, body: Bytes) -> Result<SaslHandshakeRequest, End> {
    match decode_body(header, body).map_err(End::Protocol)? {
        RequestKind::SaslHandshake(request) => Ok(request),
        _ => unreachable!("the header says SaslHandshake"),
    }
}

fn encode<T: Encodable>(header: &RequestHeader, response: &T) -> Result<Bytes, End> {
    let (key, version) = (header.api_key, header.api_version);
    encode_response(key, version, header.correlation_id, response).map_err(End::Protocol)
}

fn unsupported(correlation_id: i32) -> Result<Pending, End> {
    let answer = unsupported_version();
    encode_response(ApiKey::ApiVersions, 0, correlation_id, &answer)
        .map(ready)
        .map_err(End::Protocol)
}

fn ready(frame: Bytes) -> Pending {
    Pending::Ready(Outcome::Answer(vec![frame]))
}

/// A token for the client, as its handshake's version wants it.
fn token_answer(
    header: Option<&RequestHeader>,
    token: Vec<u8>,
    lifetime: Option<Duration>,
) -> Result<Bytes, End> {
    let Some(header) = header else {
        let refused = WireError::Encode {
            api_key: ApiKey::SaslAuthenticate,
            api_version: 0,
        };
        let size = i32::try_from(token.len()).map_err(|_| End::Protocol(refused))?;
        let mut frame = BytesMut::with_capacity(4 + token.len());
        frame.put_i32(size);
        frame.put_slice(&token);
        return Ok(frame.freeze());
    };
    let answer = SaslAuthenticateResponse::default().with_auth_bytes(token.into());
    let answer = match (header.api_version, lifetime) {
        (1.., Some(lifetime)) => {
            let ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
            answer.with_session_lifetime_ms(ms)
        }
        _ => answer,
    };
    encode(header, &answer)
}
