//! Throughput rows through stock librdkafka: plain or idempotent produce, or transactions.
//!
//! `produce`: records of one size to one topic; records and MB per second from the first send to
//! the last acknowledgement. `transactions`: begin, n records over p partitions, commit, again and
//! again; transactions per second and the latency of the commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rand::RngCore;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

#[derive(Parser)]
struct Args {
    #[arg(long, default_value = "127.0.0.1:9092")]
    brokers: String,
    /// The topic to use; made if it is not there.
    #[arg(long, default_value = "bench")]
    topic: String,
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// One JSON object instead of a line of text.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    row: Row,
}

#[derive(Subcommand)]
enum Row {
    Produce {
        #[arg(long, default_value_t = 200_000)]
        count: u64,
        #[arg(long, default_value_t = 1024)]
        record_bytes: usize,
        #[arg(long, default_value = "5")]
        linger_ms: String,
        #[arg(long)]
        idempotent: bool,
    },
    Transactions {
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Records of one transaction, spread over the partitions.
        #[arg(long, default_value_t = 1)]
        records: usize,
        #[arg(long, default_value_t = 100)]
        record_bytes: usize,
    },
}

#[derive(Default)]
struct Counts {
    delivered: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(_) => self.delivered.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    make_topic(&args)?;
    match &args.row {
        Row::Produce {
            count,
            record_bytes,
            linger_ms,
            idempotent,
        } => produce(&args, *count, *record_bytes, linger_ms, *idempotent),
        Row::Transactions {
            seconds,
            records,
            record_bytes,
        } => transactions(&args, *seconds, *records, *record_bytes),
    }
}

fn make_topic(args: &Args) -> Result<()> {
    let admin: AdminClient<_> = ClientConfig::new()
        .set("bootstrap.servers", &args.brokers)
        .create()?;
    let topic = NewTopic::new(&args.topic, args.partitions, TopicReplication::Fixed(1));
    let made = futures_executor::block_on(admin.create_topics(&[topic], &AdminOptions::new()))?;
    for result in made {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => anyhow::bail!("topic {name} cannot be made: {code}"),
        }
    }
    Ok(())
}

fn produce(
    args: &Args,
    count: u64,
    record_bytes: usize,
    linger_ms: &str,
    idempotent: bool,
) -> Result<()> {
    let producer: BaseProducer<Counts> = ClientConfig::new()
        .set("bootstrap.servers", &args.brokers)
        .set("acks", "all")
        .set("linger.ms", linger_ms)
        .set(
            "enable.idempotence",
            if idempotent { "true" } else { "false" },
        )
        .set("queue.buffering.max.messages", "500000")
        .create_with_context(Counts::default())?;
    producer
        .client()
        .fetch_metadata(Some(&args.topic), Duration::from_secs(10))?;
    // Random and long, so that nothing on the way can make it small.
    let mut noise = vec![0u8; 1 << 20];
    rand::rng().fill_bytes(&mut noise);
    let begin = Instant::now();
    for n in 0..count {
        let at = (n as usize * 4099) % (noise.len() - record_bytes);
        let partition = (n % u64::from(args.partitions.unsigned_abs())) as i32;
        loop {
            let record = BaseRecord::<(), [u8]>::to(&args.topic)
                .partition(partition)
                .payload(&noise[at..at + record_bytes]);
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    producer.poll(Duration::from_millis(1));
                }
                Err((e, _)) => return Err(e).context("produce"),
            }
        }
        if n % 1000 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(Duration::from_secs(120))?;
    let seconds = begin.elapsed().as_secs_f64();
    let counts = producer.context();
    let delivered = counts.delivered.load(Ordering::Relaxed);
    ensure!(
        delivered == count && counts.failed.load(Ordering::Relaxed) == 0,
        "{delivered} of {count} records were acknowledged"
    );
    let per_second = count as f64 / seconds;
    let mb = per_second * record_bytes as f64 / 1e6;
    if args.json {
        println!(
            "{}",
            serde_json::json!({"records": count, "record_bytes": record_bytes, "seconds": seconds, "records_per_s": per_second, "mb_per_s": mb})
        );
    } else {
        println!(
            "produce: records={count} bytes={record_bytes} {per_second:.0} records/s {mb:.1} MB/s"
        );
    }
    Ok(())
}

fn transactions(args: &Args, seconds: f64, records: usize, record_bytes: usize) -> Result<()> {
    let producer: BaseProducer<Counts> = ClientConfig::new()
        .set("bootstrap.servers", &args.brokers)
        .set(
            "transactional.id",
            format!("bench-{}", rand::rng().next_u64()),
        )
        .set("linger.ms", "0")
        .create_with_context(Counts::default())?;
    let wait = Duration::from_secs(30);
    producer.init_transactions(wait)?;
    let payload = vec![b'x'; record_bytes];
    let mut commits: Vec<f64> = Vec::new();
    let mut begin = Instant::now();
    let mut warm = false;
    loop {
        if !warm && begin.elapsed().as_secs_f64() > 1.0 {
            warm = true;
            commits.clear();
            begin = Instant::now();
        }
        if warm && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
        producer.begin_transaction()?;
        for n in 0..records {
            let partition = n as i32 % args.partitions;
            let record = BaseRecord::<(), [u8]>::to(&args.topic)
                .partition(partition)
                .payload(&payload);
            producer.send(record).map_err(|(e, _)| e)?;
        }
        // Short naps of our own: the library's flush() looks for reports 100 ms at a time.
        while producer.in_flight_count() > 0 {
            producer.poll(Duration::ZERO);
            thread::sleep(Duration::from_micros(50));
        }
        let commit = Instant::now();
        producer.commit_transaction(wait)?;
        commits.push(commit.elapsed().as_secs_f64() * 1e3);
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let count = commits.len();
    ensure!(count > 0, "no transaction was committed");
    commits.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| commits[((count as f64 * share) as usize).min(count - 1)];
    let rate = count as f64 / elapsed;
    if args.json {
        println!(
            "{}",
            serde_json::json!({"transactions": count, "records": records, "partitions": args.partitions, "txn_per_s": rate, "commit_p50_ms": at(0.5), "commit_p99_ms": at(0.99)})
        );
    } else {
        println!(
            "transactions: {records} records x {} partitions {rate:.0} txn/s commit p50={:.3} p99={:.3} ms",
            args.partitions,
            at(0.5),
            at(0.99)
        );
    }
    Ok(())
}
