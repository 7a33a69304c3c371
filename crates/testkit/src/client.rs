//! A client that sends what it is told, keeps any number of requests in flight, and can say whether
//! an answer has come.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{
    Decodable, HeaderVersion, Request, StrBytes, encode_request_header_into_buffer,
};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::wait::within;

type Waiting = Arc<Mutex<HashMap<i32, oneshot::Sender<Bytes>>>>;

/// One connection.
pub struct RawClient {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    waiting: Waiting,
    /// Frames whose correlation id nobody waits for.
    others: mpsc::UnboundedReceiver<Bytes>,
    closed: watch::Receiver<bool>,
    next_correlation_id: i32,
    client_id: String,
}

impl RawClient {
    /// Connects over TCP.
    pub async fn connect(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(address)
            .await
            .expect("the broker listens");
        stream.set_nodelay(true).expect("a fresh socket");
        let (reader, writer) = stream.into_split();
        RawClient::over(reader, writer)
    }

    /// A client over any pair of streams.
    pub fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> RawClient {
        let waiting = Waiting::default();
        let (to_others, others) = mpsc::unbounded_channel();
        let (is_closed, closed) = watch::channel(false);
        tokio::spawn(read_frames(reader, waiting.clone(), to_others, is_closed));
        RawClient {
            writer: Box::new(writer),
            waiting,
            others,
            closed,
            next_correlation_id: 1,
            client_id: "testkit".to_owned(),
        }
    }

    /// The `client.id` of later requests.
    pub fn set_client_id(&mut self, client_id: &str) {
        self.client_id = client_id.to_owned();
    }

    /// Sends a request and gives what will be its answer.
    pub async fn start_request<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> InFlight<R::Response> {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let (to, answer) = oneshot::channel();
        self.waiting.lock().insert(correlation_id, to);
        let frame = frame(version, correlation_id, &self.client_id, request);
        self.send_bytes(&frame).await;
        if self.is_closed() {
            // The reader may have left before it could see that somebody waits.
            self.waiting.lock().remove(&correlation_id);
        }
        InFlight {
            answer,
            come: None,
            version,
            what: format!("API {} v{version}, correlation id {correlation_id}", R::KEY),
            response: PhantomData,
        }
    }

    /// Sends a request and waits for its answer.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.start_request(version, request).await.answer().await
    }

    /// As [`RawClient::send`]; `None` if the broker closes the connection instead of answering.
    pub async fn try_send<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        self.start_request(version, request)
            .await
            .try_answer()
            .await
    }

    /// Sends a frame: `body` with its size in front.
    pub async fn send_frame(&mut self, body: &[u8]) {
        let size = i32::try_from(body.len()).expect("a test's frame is small");
        let mut bytes = size.to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        self.send_bytes(&bytes).await;
    }

    /// Sends bytes as they are. A connection that the broker has closed takes them and forgets.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let _closed_by_the_broker = self.writer.write_all(bytes).await;
    }

    /// The next frame that answers no request of this client (without its size): what
    /// [`RawClient::send_frame`] is answered with. `None` if the connection is closed instead.
    pub async fn next_frame(&mut self) -> Option<Bytes> {
        within("a frame from the broker", self.others.recv()).await
    }

    /// Waits until the broker has closed the connection.
    pub async fn closed(&mut self) {
        let closed = self.closed.wait_for(|closed| *closed);
        let _reader_is_gone = within("the broker closes the connection", closed).await;
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Shuts the writing half down, as a client that goes away does.
    pub async fn hang_up(mut self) {
        let _closed_already = self.writer.shutdown().await;
    }
}

async fn read_frames(
    mut reader: impl AsyncRead + Unpin,
    waiting: Waiting,
    others: mpsc::UnboundedSender<Bytes>,
    closed: watch::Sender<bool>,
) {
    let mut received = BytesMut::new();
    loop {
        while let Some(frame) = next_frame(&mut received) {
            let id = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
            match waiting.lock().remove(&id) {
                Some(to) => drop(to.send(frame)),
                None => drop(others.send(frame)),
            }
        }
        received.reserve(64 << 10);
        match reader.read_buf(&mut received).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    closed.send_replace(true);
    waiting.lock().clear();
}

/// Takes a whole frame without its size. The smallest answer is a correlation id and an error code:
/// six bytes, fewer than any request has.
fn next_frame(received: &mut BytesMut) -> Option<Bytes> {
    let size = received.first_chunk::<4>()?;
    let size = usize::try_from(i32::from_be_bytes(*size)).expect("the broker's sizes are sane");
    assert!(
        (4..256 << 20).contains(&size),
        "the broker sent a frame of {size} bytes"
    );
    if received.len() < 4 + size {
        return None;
    }
    received.advance(4);
    Some(received.split_to(size).freeze())
}

/// A request as bytes, its size in front.
pub(crate) fn frame<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: &str,
    request: &R,
) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut bytes = BytesMut::zeroed(4);
    encode_request_header_into_buffer(&mut bytes, &header).expect("a header encodes");
    request
        .encode(&mut bytes, version)
        .unwrap_or_else(|e| panic!("API {} v{version} does not encode: {e}", R::KEY));
    let size = i32::try_from(bytes.len() - 4).expect("a test's frame is small");
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes.freeze()
}

/// A request whose answer has not been taken yet.
pub struct InFlight<T> {
    answer: oneshot::Receiver<Bytes>,
    /// The frame, once it was seen to have come.
    come: Option<Bytes>,
    version: i16,
    what: String,
    response: PhantomData<fn() -> T>,
}

impl<T: Decodable + HeaderVersion> InFlight<T> {
    /// Whether the answer is here. It stays to be taken.
    ///
    /// # Panics
    /// When the connection was closed instead.
    pub fn is_answered(&mut self) -> bool {
        if self.come.is_none() {
            match self.answer.try_recv() {
                Ok(frame) => self.come = Some(frame),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => panic!("{}: the connection was closed", self.what),
            }
        }
        self.come.is_some()
    }

    /// The answer.
    ///
    /// # Panics
    /// When it does not come, or does not decode to its last byte.
    pub async fn answer(self) -> T {
        let what = self.what.clone();
        match self.try_answer().await {
            Some(answer) => answer,
            None => panic!("{what}: the broker closed the connection"),
        }
    }

    /// The answer, or `None` if the broker closes the connection instead.
    pub async fn try_answer(self) -> Option<T> {
        let InFlight {
            answer,
            come,
            version,
            what,
            ..
        } = self;
        let frame: Option<Bytes> = match come {
            Some(frame) => Some(frame),
            None => within(&what, answer).await.ok(),
        };
        Some(decode(frame?, version, &what))
    }
}

fn decode<T: Decodable + HeaderVersion>(mut frame: Bytes, version: i16, what: &str) -> T {
    ResponseHeader::decode(&mut frame, T::header_version(version))
        .unwrap_or_else(|e| panic!("{what}: response header: {e}"));
    let response = T::decode(&mut frame, version).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(frame.is_empty(), "{what}: {} bytes left over", frame.len());
    response
}
