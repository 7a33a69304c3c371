//! One client connection: frames in, requests handled in order, responses out in the same order.
//!
//! Reading and answering are two halves of one task. The reading half decodes a request and starts
//! it (a command reaches the owner's queue before the next frame is looked at), the answering half
//! waits for each in turn and writes. So requests are pipelined, and one that waits (a Fetch, a
//! JoinGroup, a sync) holds up only the answers behind it, as the protocol demands.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tracing::debug;

use tidemark_config::Endpoint;
use tidemark_txn_coordinator::guard::ConnectionId;
use tidemark_types::MonoTime;
use tidemark_wire::{ApiKey, FrameSplitter, RequestHeader, WireError};

use crate::clock::{Clock, Sleep};
use crate::connections::Counted;
use crate::front::Front;
use crate::handlers::{self, Cx, Outcome, Pending};
use crate::in_flight::{Asked, InFlight};
use crate::limits::Limit;
use crate::memory::{FREE_BYTES, Reserved};
use crate::pace::Pace;
use crate::sasl::{Gate, SaslListener, Taken};

/// Where a connection comes from and what it reached.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    /// The address the client dialled, as this side sees it.
    pub local: SocketAddr,
    pub listener: Arc<str>,
    /// Who the client is, as `User:NAME`; `User:ANONYMOUS` where it does not say.
    pub principal: Arc<str>,
    /// What clients of this listener are told, where that is configured.
    pub advertised: Option<Endpoint>,
    /// How its clients say who they are; `None`: they need not.
    pub sasl: Option<Arc<SaslListener>>,
    /// Its number among all connections. Given when it is served, whatever it was before.
    pub id: ConnectionId,
}

impl ConnectionInfo {
    /// Host and port that this client is told to reach us at.
    pub fn advertised(&self) -> (String, i32) {
        match &self.advertised {
            Some(endpoint) => (endpoint.host.clone(), i32::from(endpoint.port)),
            None => (
                self.local.ip().to_canonical().to_string(),
                i32::from(self.local.port()),
            ),
        }
    }
}

/// Serves a connection until the client ends it, breaks the protocol, or the broker stops. `place` is
/// its place among those who have not authenticated; there must be one where clients have to.
pub(crate) async fn serve<S>(
    stream: S,
    info: ConnectionInfo,
    place: Option<Counted>,
    front: Arc<Front>,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let peer = info.peer;
    // Held until the end is told and counted: who sees it closed finds it counted.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (pending, answers) = mpsc::channel(front.settings.max_inflight_requests_per_connection);
    let connection = Arc::new(ConnectionInfo {
        id: front.next_connection(),
        ..info
    });
    let in_flight = InFlight::new(front.settings.max_inflight_bytes_per_connection);
    let mut stopping = front.stopping();
    let ended = tokio::select! {
        ended = async {
            tokio::try_join!(
                read_requests(&mut reader, connection, place, front.clone(), pending, &in_flight),
                write_answers(&mut writer, answers, &front, &in_flight),
            )
        } => ended.map(|_| ()),
        _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
    };
    match ended {
        Ok(()) | Err(End::Client) => {}
        Err(End::Idle) => front.limits.count(Limit::Idle),
        Err(End::Stalled) => front.stalled(peer),
        Err(End::NotInTime) => front.not_in_time(peer),
        Err(End::SlowRequest) => front.slow_request(peer),
        Err(End::SlowReader) => front.slow_reader(peer),
        Err(End::Over(limit, bytes)) => front.over_limit(peer, limit, bytes),
        Err(End::Protocol(error)) => front.refused(peer, &error),
        Err(End::Io(error)) => debug!("connection of {peer} ended: {error}"),
    }
}

/// Why a connection ends.
pub(crate) enum End {
    /// The client closed it, or asked for something that is answered by closing.
    Client,
    /// Nothing was asked on it for `connections.max.idle.ms`.
    Idle,
    /// It stopped in the middle of a frame, whose memory others wait for.
    Stalled,
    /// It did not authenticate in time.
    NotInTime,
    /// It does not bring a frame to its end.
    SlowRequest,
    /// It does not take an answer.
    SlowReader,
    /// It asked what is over a limit, with a frame of this size.
    Over(Limit, usize),
    Protocol(WireError),
    Io(io::Error),
}

async fn read_requests(
    mut reader: impl AsyncRead + Unpin,
    connection: Arc<ConnectionInfo>,
    mut place: Option<Counted>,
    front: Arc<Front>,
    answers: mpsc::Sender<(Pending, Asked)>,
    in_flight: &InFlight,
) -> Result<(), End> {
    let max_frame_bytes = usize::try_from(front.settings.socket_request_max_bytes).unwrap_or(0);
    let mut frames = FrameSplitter::new(max_frame_bytes);
    let mut gate = Gate::new(connection, &front);
    assert_eq!(gate.deadline().is_some(), place.is_some());
    gate.limit(&mut frames, max_frame_bytes, &front);
    let mut idle = Idle::new(&front);
    // Of the frame that is on its way.
    let mut coming = Reserved::default();
    let mut pace = Pace::new(front.settings.request_read_timeout_ms);
    loop {
        while let Some(frame) = frames.next_frame().map_err(End::Protocol)? {
            // Counted while the frame is worked on. What is kept afterwards is a copy, and counts
            // where it is kept.
            let mut memory = std::mem::take(&mut coming);
            let bytes = frame.len();
            let memory_bytes = Asked::memory_bytes(&frame);
            front
                .request_memory
                .reserve(&mut memory, memory_bytes)
                .await;
            let asked = in_flight.take(&front, &frame).await;
            let asked = asked.map_err(|limit| End::Over(limit, bytes))?;
            let taken = gate.take(frame, &front).await?;
            let pending = match taken {
                Taken::Request { header, body } => {
                    start_request(header, body, gate.connection(), &front).await?
                }
                Taken::Answer(pending) => {
                    gate.limit(&mut frames, max_frame_bytes, &front);
                    pending
                }
                Taken::Last(pending) => return end_with((pending, asked), &answers, &front).await,
            };
            if gate.deadline().is_none() {
                drop(place.take());
            }
            drop(memory);
            pace.done();
            // A full channel stops reading: the client has as many requests in flight as it may.
            if answers.capacity() == 0 {
                front.limits.count(Limit::InflightRequests);
            }
            answers
                .send((pending, asked))
                .await
                .map_err(|_| End::Client)?;
            if in_flight.is_over() {
                front.limits.count(Limit::InflightBytes);
                in_flight.room().await;
            }
        }
        let room = frames.room_of_next_read();
        if room > FREE_BYTES {
            front.request_memory.reserve(&mut coming, room).await;
        }
        let mut patience = patience(&front, &frames, &coming);
        let mut late = gate.deadline().map(|at| front.clock.sleep_until(at));
        let read = loop {
            let in_a_frame = frames.pending_bytes() > 0;
            tokio::select! {
                // What has arrived counts before any time that has passed: this process may have
                // slept.
                biased;
                read = reader.read_buf(frames.read_buffer()) => break read.map_err(End::Io)?,
                () = idle.due() => {
                    if idle.is_over(&front) && in_flight.is_empty() {
                        return Err(End::Idle);
                    }
                    idle.rearm(&front);
                }
                () = due(&mut late) => return Err(End::NotInTime),
                () = pace.over(&*front.clock), if in_a_frame => return Err(End::SlowRequest),
                () = &mut patience => {
                    if !coming.is_empty() && front.request_memory.is_short() {
                        return Err(End::Stalled);
                    }
                    frames.give_back();
                    patience = self::patience(&front, &frames, &coming);
                }
            }
        };
        if read == 0 {
            return Err(End::Client);
        }
        idle.heard(&front);
        pace.moved(read);
    }
}

/// Hands over the last answer and waits until it is written, which ends the connection; not for ever,
/// as the client may take nothing.
async fn end_with(
    last: (Pending, Asked),
    answers: &mpsc::Sender<(Pending, Asked)>,
    front: &Front,
) -> Result<(), End> {
    let delay_ms = front.settings.connection_failed_authentication_delay_ms;
    let patience = PATIENCE + Duration::from_millis(delay_ms);
    let enough = front.clock.sleep_until(front.clock.now() + patience);
    tokio::select! {
        handed = answers.send(last) => handed.map_err(|_| End::Client)?,
        () = front.clock.sleep_until(front.clock.now() + patience) => return Err(End::Client),
    }
    enough.await;
    Err(End::Client)
}

async fn due(timer: &mut Option<Sleep>) {
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// A connection that goes quiet is looked at again after this time, if it holds memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// When to look whether a quiet connection should give up memory: the buffer of large requests that
/// are done, or its place in the middle of one.
fn patience(front: &Front, frames: &FrameSplitter, coming: &Reserved) -> Sleep {
    match !coming.is_empty() || frames.holds_spare_memory() {
        true => front.clock.sleep_until(front.clock.now() + PATIENCE),
        false => Box::pin(std::future::pending()),
    }
}

/// `connections.max.idle.ms`: one timer per connection, looked at when it fires and not at each
/// read.
struct Idle {
    max: Option<Duration>,
    last: MonoTime,
    timer: Sleep,
}

impl Idle {
    fn new(front: &Front) -> Idle {
        let max = u64::try_from(front.settings.connections_max_idle_ms)
            .ok()
            .map(Duration::from_millis);
        let last = front.clock.now();
        Idle {
            max,
            last,
            timer: match max {
                Some(max) => front.clock.sleep_until(last + max),
                None => Box::pin(std::future::pending()),
            },
        }
    }

    async fn due(&mut self) {
        self.timer.as_mut().await;
    }

    fn heard(&mut self, front: &Front) {
        self.last = front.clock.now();
    }

    fn is_over(&self, front: &Front) -> bool {
        self.max
            .is_some_and(|max| front.clock.now() >= self.last + max)
    }

    fn rearm(&mut self, front: &Front) {
        if let Some(max) = self.max {
            let from = match self.is_over(front) {
                // Requests are in flight: look again in a while.
                true => front.clock.now(),
                false => self.last,
            };
            self.timer = front.clock.sleep_until(from + max);
        }
    }
}

async fn start_request(
    header: RequestHeader,
    body: Bytes,
    connection: &Arc<ConnectionInfo>,
    front: &Arc<Front>,
) -> Result<Pending, End> {
    if header.api_key == ApiKey::ApiVersions {
        // Before anything else is ready: a client that waits for this falls back to the protocol of
        // ten years ago.
        let warn = |version: &str| front.old_java_client(connection.peer, version);
        return handlers::api_versions::handle(&header, body, warn).map_err(End::Protocol);
    }
    let shared = front.ready().await.ok_or(End::Client)?;
    let cx = Cx {
        shared,
        connection: connection.clone(),
        header,
    };
    handlers::dispatch(cx, body).await.map_err(End::Protocol)
}

async fn write_answers(
    mut writer: impl AsyncWrite + Unpin,
    mut answers: mpsc::Receiver<(Pending, Asked)>,
    front: &Front,
    in_flight: &InFlight,
) -> Result<(), End> {
    let mut pace = Pace::new(front.settings.response_write_timeout_ms);
    while let Some((pending, asked)) = answers.recv().await {
        let outcome = match pending {
            Pending::Ready(outcome) => outcome,
            Pending::Later(future) => future.await,
        };
        match outcome {
            Outcome::Answer(chunks) => {
                write_chunks(&mut writer, chunks, &mut pace, &*front.clock).await?;
            }
            Outcome::Budgeted(chunks, held) => {
                write_chunks(&mut writer, chunks, &mut pace, &*front.clock).await?;
                drop(held);
            }
            Outcome::Last(chunks) => {
                if !chunks.is_empty() {
                    write_chunks(&mut writer, chunks, &mut pace, &*front.clock).await?;
                }
                return Err(End::Client);
            }
            Outcome::Nothing => {}
            Outcome::Close => return Err(End::Client),
        }
        in_flight.answered(&asked);
    }
    Err(End::Client)
}

async fn write_chunks(
    writer: &mut (impl AsyncWrite + Unpin),
    chunks: Vec<Bytes>,
    pace: &mut Pace,
    clock: &dyn Clock,
) -> Result<(), End> {
    let mut chunks = Chunks::new(chunks);
    while bytes::Buf::has_remaining(&chunks) {
        let written = tokio::select! {
            biased;
            written = writer.write_buf(&mut chunks) => written.map_err(End::Io)?,
            () = pace.over(clock) => return Err(End::SlowReader),
        };
        if written == 0 {
            return Err(End::Io(io::ErrorKind::WriteZero.into()));
        }
        pace.moved(written);
    }
    // TLS may hold back the end of what the socket did not take at once.
    tokio::select! {
        biased;
        flushed = writer.flush() => flushed.map_err(End::Io)?,
        () = pace.over(clock) => return Err(End::SlowReader),
    }
    pace.done();
    Ok(())
}

/// Chunks as one buffer, so that they go out in vectored writes.
struct Chunks {
    chunks: std::collections::VecDeque<Bytes>,
    remaining: usize,
}

impl Chunks {
    fn new(chunks: Vec<Bytes>) -> Chunks {
        Chunks {
            remaining: chunks.iter().map(Bytes::len).sum(),
            chunks: chunks.into_iter().filter(|c| !c.is_empty()).collect(),
        }
    }
}

impl bytes::Buf for Chunks {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| chunk)
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [io::IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, chunk) in dst.iter_mut().zip(&self.chunks) {
            *slot = io::IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(
            count <= self.remaining,
            "advanced past the end of the chunks"
        );
        self.remaining -= count;
        while count > 0 {
            let front = self.chunks.front_mut().expect("bytes remain");
            if count < front.len() {
                bytes::Buf::advance(front, count);
                return;
            }
            count -= front.len();
            self.chunks.pop_front();
        }
    }
}
