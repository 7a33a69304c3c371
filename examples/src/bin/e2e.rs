//! Produce-to-consume latency through stock librdkafka: one producer sends at a fixed rate, one
//! consumer waits in a long poll; every record carries the moment it was sent.
//!
//! With `--disk` there is no broker: the same schedule of bare 4 KiB writes and syncs on a prewritten
//! file, which is what the disk alone would allow.
//!
//! Prints p50, p99, p99.9 and the maximum of end-to-end and acknowledgement latency, in
//! milliseconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "127.0.0.1:9092")]
    brokers: String,
    /// The topic to use; made if it is not there.
    #[arg(long, default_value = "bench-e2e")]
    topic: String,
    /// Records per second.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Records that count.
    #[arg(long, default_value_t = 10_000)]
    count: usize,
    /// Records before, which do not.
    #[arg(long, default_value_t = 1_000)]
    warm_up: usize,
    #[arg(long, default_value_t = 100)]
    record_bytes: usize,
    /// Write to a file in this directory instead of producing.
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// One JSON object instead of a line of text.
    #[arg(long)]
    json: bool,
}

/// Collects how long each acknowledgement took.
struct Acks {
    start: Instant,
    latencies: std::sync::Mutex<Vec<(u64, u64)>>,
}

impl ClientContext for Acks {}

impl ProducerContext for Acks {
    /// When the record was sent, in nanoseconds since the start.
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<u64>) {
        if result.is_ok() {
            let now = nanos_since(self.start);
            self.latencies
                .lock()
                .expect("no holder panics")
                .push((*sent, now - *sent));
        }
    }
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("runs take minutes")
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(
        args.record_bytes >= 8,
        "a record holds at least its 8-byte time"
    );
    if let Some(dir) = &args.disk {
        let alone = disk_alone(dir, &args)?;
        println!("{}", serde_json::json!({"disk_ms": alone.json()}));
        return Ok(());
    }
    let start = Instant::now();
    let total = args.count + args.warm_up;

    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &args.brokers)
        .set("group.id", "bench-e2e")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "500")
        .set("fetch.min.bytes", "1")
        .set("allow.auto.create.topics", "true")
        .create()
        .context("consumer")?;
    // Makes the topic, so that the assignment below finds it.
    consumer
        .fetch_metadata(Some(&args.topic), Duration::from_secs(10))
        .context("metadata")?;
    let producer: BaseProducer<Acks> = ClientConfig::new()
        .set("bootstrap.servers", &args.brokers)
        .set("linger.ms", "0")
        .set("acks", "all")
        .create_with_context(Acks {
            start,
            latencies: std::sync::Mutex::new(Vec::with_capacity(total)),
        })
        .context("producer")?;
    producer
        .client()
        .fetch_metadata(Some(&args.topic), Duration::from_secs(10))
        .context("metadata")?;
    let (_, end) = consumer
        .fetch_watermarks(&args.topic, 0, Duration::from_secs(10))
        .context("watermarks")?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(&args.topic, 0, Offset::Offset(end))?;
    consumer.assign(&assignment)?;

    let stop = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let stop = stop.clone();
        move || -> Result<Vec<(u64, u64)>> {
            let mut latencies = Vec::with_capacity(total);
            while latencies.len() < total && !stop.load(Ordering::Relaxed) {
                let Some(message) = consumer.poll(Duration::from_millis(100)) else {
                    continue;
                };
                let message = message?;
                let payload = message.payload().context("a record without a value")?;
                let sent = u64::from_be_bytes(payload[..8].try_into()?);
                latencies.push((sent, nanos_since(start) - sent));
            }
            Ok(latencies)
        }
    });
    // The consumer is in its long poll before the first record.
    thread::sleep(Duration::from_millis(500));

    let interval = Duration::from_secs_f64(1.0 / args.rate as f64);
    let mut payload = vec![b'x'; args.record_bytes];
    let begin = Instant::now();
    for n in 0..total {
        let due = begin + interval * u32::try_from(n)?;
        loop {
            let now = Instant::now();
            if now >= due {
                break;
            }
            producer.poll((due - now).min(Duration::from_millis(1)));
        }
        let sent = nanos_since(start);
        payload[..8].copy_from_slice(&sent.to_be_bytes());
        let record = BaseRecord::<(), [u8], Box<u64>>::with_opaque_to(&args.topic, Box::new(sent))
            .partition(0)
            .payload(&payload);
        producer
            .send(record)
            .map_err(|(e, _)| e)
            .context("produce")?;
    }
    producer.flush(Duration::from_secs(30)).context("flush")?;
    thread::sleep(Duration::from_secs(1));
    stop.store(true, Ordering::Relaxed);
    let received = reader.join().expect("the reader does not panic")?;
    ensure!(
        received.len() == total,
        "{} of {total} records were received",
        received.len()
    );
    let acks = producer
        .context()
        .latencies
        .lock()
        .expect("no holder panics");
    ensure!(
        acks.len() == total,
        "{} of {total} were acknowledged",
        acks.len()
    );
    let e2e = Percentiles::of(&received[args.warm_up..]);
    let ack = Percentiles::of(&acks[args.warm_up..]);
    if args.json {
        println!(
            "{}",
            serde_json::json!({"rate": args.rate, "count": args.count, "e2e_ms": e2e.json(), "ack_ms": ack.json()})
        );
    } else {
        println!(
            "e2e: rate={}/s count={} {} | ack {}",
            args.rate,
            args.count,
            e2e.text(),
            ack.text()
        );
    }
    Ok(())
}

/// The latencies of writes that are due at the same moments as the records would be, each from when
/// it was due: a slow sync delays those that wait behind it, as it does in a broker.
fn disk_alone(dir: &Path, args: &Args) -> Result<Percentiles> {
    const FRAME_BYTES: usize = 4096;
    const FILE_BYTES: u64 = 64 << 20;
    let path = dir.join("disk-alone");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let megabyte = vec![1_u8; 1 << 20];
    for at in (0..FILE_BYTES).step_by(megabyte.len()) {
        file.write_all_at(&megabyte, at)?;
    }
    file.sync_all()?;
    let frame = [2_u8; FRAME_BYTES];
    let interval = Duration::from_secs_f64(1.0 / args.rate as f64);
    let total = args.count + args.warm_up;
    let mut latencies = Vec::with_capacity(total);
    let begin = Instant::now();
    for n in 0..total {
        let due = begin + interval * u32::try_from(n)?;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        file.write_all_at(&frame, n as u64 * FRAME_BYTES as u64 % FILE_BYTES)?;
        file.sync_data()?;
        latencies.push((0, nanos_since(due)));
    }
    std::fs::remove_file(&path)?;
    Ok(Percentiles::of(&latencies[args.warm_up..]))
}

/// In milliseconds.
struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    fn of(latencies: &[(u64, u64)]) -> Percentiles {
        let mut sorted: Vec<u64> = latencies.iter().map(|(_, nanos)| *nanos).collect();
        sorted.sort_unstable();
        let at = |share: f64| {
            let index = ((sorted.len() as f64 * share) as usize).min(sorted.len() - 1);
            sorted[index] as f64 / 1e6
        };
        Percentiles {
            p50: at(0.50),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
        }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({"p50": self.p50, "p99": self.p99, "p999": self.p999, "max": self.max})
    }

    fn text(&self) -> String {
        format!(
            "p50={:.3} p99={:.3} p99.9={:.3} max={:.3} ms",
            self.p50, self.p99, self.p999, self.max
        )
    }
}
