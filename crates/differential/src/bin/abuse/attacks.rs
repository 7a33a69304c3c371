//! What strangers do to a broker, each bounded in count and in time.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, FetchRequest, MetadataRequest, ProduceResponse,
    SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use tidemark_differential::raw::{produce, topic_name};
use tidemark_differential::requests::{Body, encode};

use crate::from::{address, answer, frame, is_closed, is_served, open};
use crate::{BULK, HONEST};

const PATIENCE: Duration = Duration::from_secs(2);

/// Where to, and how long.
pub struct Target<'a> {
    pub broker: SocketAddrV4,
    pub over: &'a AtomicBool,
    /// How much of everything.
    pub scale: usize,
}

impl Target<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Waits for the end, looking now and then.
    fn until_the_end(&self, mut now_and_then: impl FnMut()) {
        while self.goes_on() {
            now_and_then();
            sleep(Duration::from_millis(200));
        }
    }

    /// Calls `each` at a pace, at most so often.
    fn paced(&self, per_second: usize, most: usize, mut each: impl FnMut(usize)) -> usize {
        let begun = Instant::now();
        let mut done = 0;
        while self.goes_on() && done < most {
            each(done);
            done += 1;
            let due = begun + Duration::from_secs_f64(done as f64 / per_second as f64);
            sleep(due.saturating_duration_since(Instant::now()));
        }
        done
    }
}

fn api_versions() -> Body {
    encode(0, &ApiVersionsRequest::default()).expect("a request of this version")
}

/// Connections that say nothing, each from an address of its own, and stay.
pub fn idle(target: &Target<'_>, count: usize) -> String {
    let mut open_ones: Vec<TcpStream> = Vec::new();
    let mut tries = 0;
    while target.goes_on() && open_ones.len() < count && tries < 2 * count {
        // Who is not accepted yet waits with the operating system: that is the rate's business.
        if let Ok(stream) = open(address(1, tries), target.broker, PATIENCE) {
            open_ones.push(stream);
        }
        tries += 1;
    }
    let opened = open_ones.len();
    target.until_the_end(|| {});
    open_ones.retain(|stream| !is_closed(stream));
    format!("idle: opened={opened} open_at_the_end={}", open_ones.len())
}

/// A large request is announced, and comes a few bytes at a time.
pub fn slow_writers(target: &Target<'_>) -> String {
    let count = 5 * target.scale;
    let mut head = (50i32 << 20).to_be_bytes().to_vec();
    head.extend_from_slice(&[0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff]);
    // Enough that it counts among the memory of requests.
    head.resize(40_000, 0);
    let begin = |n: usize| {
        let mut stream = open(address(2, n), target.broker, PATIENCE).ok()?;
        stream.write_all(&head).ok()?;
        Some(stream)
    };
    let mut writers: Vec<TcpStream> = (0..count).filter_map(begin).collect();
    let (opened, mut closed) = (writers.len(), 0);
    target.until_the_end(|| {
        writers.retain_mut(|stream| {
            let goes_on = stream.write_all(&[0; 16]).is_ok();
            closed += usize::from(!goes_on);
            goes_on
        });
    });
    format!("slow writers: opened={opened} closed_by_the_broker={closed}")
}

fn fetch(topic: &str, max_wait_ms: i32, offset: i64) -> Result<Body> {
    let partition = FetchPartition::default()
        .with_fetch_offset(offset)
        .with_partition_max_bytes(50 << 20);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(topic_name(topic))
                .with_partitions(vec![partition]),
        ]);
    encode(4, &request)
}

/// All there is is asked for, and not read.
pub fn slow_readers(target: &Target<'_>) -> Result<String> {
    let count = 5 * target.scale;
    let request = frame(&fetch(BULK, 0, 0)?);
    let mut readers: Vec<TcpStream> = Vec::new();
    for n in 0..count {
        if let Ok(mut stream) = open(address(3, n), target.broker, PATIENCE)
            && stream.write_all(&request.repeat(20)).is_ok()
        {
            readers.push(stream);
        }
    }
    let opened = readers.len();
    let mut bytes = 0;
    target.until_the_end(|| {
        for stream in &mut readers {
            bytes += stream.read(&mut [0; 64]).unwrap_or(0);
        }
    });
    Ok(format!("slow readers: opened={opened} read_bytes={bytes}"))
}

/// Connections that come and go, much faster than they may.
pub fn storm(target: &Target<'_>) -> String {
    let addresses = 4;
    let (mut connected, mut served) = (0, 0);
    let request = api_versions();
    let tried = target.paced(100 * target.scale, 2_000 * target.scale, |n| {
        if let Ok(mut stream) = open(address(4, n % addresses), target.broker, PATIENCE) {
            connected += 1;
            // Most do not even say something.
            if n % 16 == 0 {
                served += usize::from(is_served(&mut stream, &request));
            }
        }
    });
    format!("storm: tried={tried} connected={connected} answered={served}")
}

/// Sizes that no request has.
pub fn oversized(target: &Target<'_>) -> String {
    let sizes = [i32::MAX, -1, i32::MIN, (100 << 20) + 1, 0, 0x4745_5420];
    let (mut closed, mut answered) = (0, 0);
    let tried = target.paced(10 * target.scale, 200 * target.scale, |n| {
        let Ok(mut stream) = open(address(5, n % 50), target.broker, PATIENCE) else {
            return;
        };
        let sent = stream.write_all(&sizes[n % sizes.len()].to_be_bytes());
        let sent = sent.and_then(|()| stream.write_all(&[0x20; 200]));
        match sent.and_then(|()| stream.read(&mut [0; 64])) {
            Ok(0) | Err(_) => closed += 1,
            Ok(_) => answered += 1,
        }
    });
    format!("oversized frames: sent={tried} closed={closed} answered={answered}")
}

/// Batches that open into hundreds of times their size.
pub fn bombs(target: &Target<'_>, bombs: &[(&'static str, Vec<u8>)]) -> Result<String> {
    let frames: Vec<Vec<u8>> = bombs
        .iter()
        .map(|(_, batch)| Ok(frame(&produce(7, None, HONEST, vec![(0, batch.clone())])?)))
        .collect::<Result<_>>()?;
    let (mut refused, mut taken, mut unanswered) = (0, Vec::new(), 0);
    let mut stream: Option<TcpStream> = None;
    let sent = target.paced(target.scale, 40 * target.scale, |n| {
        let which = n % frames.len();
        if stream.is_none() {
            stream = open(address(6, n % 4), target.broker, Duration::from_secs(30)).ok();
        }
        let Some(open_one) = &mut stream else { return };
        let answered = open_one.write_all(&frames[which]);
        let answered = answered.and_then(|()| answer(open_one));
        let code = answered.ok().and_then(|mut bytes| {
            let mut bytes = bytes::Bytes::from(std::mem::take(&mut bytes));
            let response = ProduceResponse::decode(&mut bytes, 7).ok()?;
            Some(response.responses[0].partition_responses[0].error_code)
        });
        match code {
            None => {
                unanswered += 1;
                stream = None;
            }
            Some(0) => taken.push(bombs[which].0),
            Some(_) => refused += 1,
        }
    });
    anyhow::ensure!(taken.is_empty(), "bombs that were taken: {taken:?}");
    Ok(format!(
        "decompression bombs: sent={sent} refused={refused} unanswered={unanswered}"
    ))
}

/// Large requests that are no data, behind a fetch that waits.
pub fn parked(target: &Target<'_>) -> Result<String> {
    let count = 4 * target.scale;
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("x")));
    let large = |topics: usize| {
        let request = MetadataRequest::default().with_topics(Some(vec![topic.clone(); topics]));
        Ok::<_, anyhow::Error>(frame(&encode(1, &request)?))
    };
    let long_poll = frame(&fetch(HONEST, 600_000, i64::MAX >> 1)?);
    let (four_mib, thirty_mib) = (large(4 << 18)?, large(10 << 20)?);
    let mut waiting = Vec::new();
    for n in 0..count {
        let Ok(mut stream) = open(address(7, n), target.broker, PATIENCE) else {
            continue;
        };
        let body = match n % 4 {
            0 => &thirty_mib,
            _ => &four_mib,
        };
        let sent = stream.write_all(&long_poll);
        if sent.and_then(|()| stream.write_all(body)).is_ok() {
            waiting.push(stream);
        }
    }
    let sent = waiting.len();
    target.until_the_end(|| {});
    waiting.retain(|stream| !is_closed(stream));
    Ok(format!(
        "large requests that wait: sent={sent} of={count} open_at_the_end={}",
        waiting.len()
    ))
}

/// Logins of users that exist and users that do not, by SCRAM with a wrong proof: how many, and how many got in.
pub fn logins(target: &Target<'_>, port: u16, most: usize) -> Result<(String, usize)> {
    let broker = SocketAddrV4::new(*target.broker.ip(), port);
    let handshake =
        SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("SCRAM-SHA-256"));
    let handshake = frame(&encode(1, &handshake)?);
    let token = |text: String| {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(text.into_bytes().into());
        Ok::<_, anyhow::Error>(frame(&encode(0, &request)?))
    };
    let login = |n: usize, stream: &mut TcpStream| -> Result<i16> {
        stream.write_all(&handshake)?;
        answer(stream)?;
        let user = if n.is_multiple_of(2) {
            "alice"
        } else {
            "nobody"
        };
        stream.write_all(&token(format!("n,,n={user},r=nonce{n}"))?)?;
        // Error code, no message, and the server's first message: r=NONCE,s=SALT,i=COUNT.
        let first = answer(stream)?;
        let first = String::from_utf8_lossy(&first).into_owned();
        let nonce = first
            .split("r=")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        let nonce = nonce.context("no nonce")?;
        // Thirty-two zeros are no proof.
        let proof = "A".repeat(43);
        stream.write_all(&token(format!("c=biws,r={nonce},p={proof}="))?)?;
        let last = answer(stream)?;
        Ok(i16::from_be_bytes([last[0], last[1]]))
    };
    let (mut refused, mut unanswered) = (0, 0);
    let got_in = AtomicUsize::new(0);
    let tried = target.paced(target.scale, most, |n| {
        let opened = open(address(8, n % 100), broker, Duration::from_secs(10));
        let told = opened
            .map_err(Into::into)
            .and_then(|mut s| login(n, &mut s));
        match told {
            Ok(0) => drop(got_in.fetch_add(1, Ordering::Relaxed)),
            Ok(_) => refused += 1,
            Err(_) => unanswered += 1,
        }
    });
    let line = format!("bad logins: tried={tried} refused={refused} unanswered={unanswered}");
    Ok((line, got_in.into_inner()))
}

/// Whether somebody new gets in, asked once a second: how many did, of how many, and the slowest.
pub fn newcomers(target: &Target<'_>) -> (usize, usize, Duration) {
    let (mut came, mut slowest) = (0, Duration::ZERO);
    let request = api_versions();
    let tried = target.paced(1, usize::MAX, |_| {
        let begun = Instant::now();
        let from = std::net::Ipv4Addr::new(127, 0, 0, 2);
        let opened = open(from, target.broker, Duration::from_secs(20));
        if opened.is_ok_and(|mut stream| is_served(&mut stream, &request)) {
            came += 1;
            slowest = slowest.max(begun.elapsed());
        }
    });
    (came, tried, slowest)
}
