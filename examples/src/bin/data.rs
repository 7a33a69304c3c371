//! More data than memory: writes a topic that is far larger than the broker's tail and journal, kills
//! the broker, starts it again and reads everything from offset 0.
//!
//! Checked: resident memory while writing and while reading; that the journal stayed within its budget
//! on disk (its slots were reused); the bytes a start replayed; and that every offset comes once, with
//! the record that was written there. Last line:
//! `data: bytes=... rss_mb=... journal_mb=... replayed_bytes=... records=... missing=0`.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemark_examples::broker_process::{BrokerProcess, free_port};

const TOPIC: &str = "data";

#[derive(Parser)]
struct Args {
    /// Starts the broker; {port} and {data} are filled in.
    #[arg(long)]
    broker: String,
    /// An empty folder for the broker's data and log.
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// The most resident memory the broker may have had, in MB.
    #[arg(long, default_value_t = 200)]
    max_rss_mb: u64,
    /// What the broker was told: `journal.budget.bytes`.
    #[arg(long, default_value_t = 128 << 20)]
    journal_budget_bytes: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    ensure!(
        args.record_bytes >= 8,
        "a record holds at least its 8-byte number"
    );
    let data = args.dir.join("data");
    let log = args.dir.join("broker.log");
    let mut broker = BrokerProcess::new(&args.broker, free_port()?, &data, &log)?;
    broker.start()?;

    let records = args.bytes / args.record_bytes as u64;
    write(&broker.address(), records, args.record_bytes)?;
    let rss_writing = peak_rss_mb(&broker)?;
    let journal_bytes = dir_bytes(&data.join("journal"))?;
    broker.kill()?;

    let log_before = fs::metadata(&log)?.len();
    broker.start()?;
    let read = read(&broker.address(), records)?;
    let rss_mb = rss_writing.max(peak_rss_mb(&broker)?);
    let replayed_bytes = replayed(&log, log_before)?;
    let panics = broker.panics();
    broker.kill()?;

    println!(
        "data: bytes={} rss_mb={rss_mb} journal_mb={} replayed_bytes={replayed_bytes} \
         records={read} missing={}",
        args.bytes,
        journal_bytes >> 20,
        records - read
    );
    ensure!(panics.is_empty(), "the broker panicked: {panics:?}");
    ensure!(read == records, "{} records are missing", records - read);
    ensure!(
        rss_mb <= args.max_rss_mb,
        "more than {} MB resident",
        args.max_rss_mb
    );
    // Slot files have headers of their own beyond the budget's whole slots.
    ensure!(
        journal_bytes <= args.journal_budget_bytes,
        "the journal takes {journal_bytes} bytes, its budget is {}",
        args.journal_budget_bytes
    );
    ensure!(
        replayed_bytes <= args.journal_budget_bytes,
        "a start replayed {replayed_bytes} bytes, the journal's budget is {}",
        args.journal_budget_bytes
    );
    Ok(())
}

/// Record n holds n, and bytes that differ from record to record.
fn payload(n: u64, record_bytes: usize) -> Vec<u8> {
    let mut bytes = n.to_be_bytes().to_vec();
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < record_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(record_bytes);
    bytes
}

fn write(brokers: &str, records: u64, record_bytes: usize) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "100000")
        .create()?;
    let begin = Instant::now();
    for n in 0..records {
        let payload = payload(n, record_bytes);
        loop {
            let record = BaseRecord::<(), [u8]>::to(TOPIC)
                .partition(0)
                .payload(&payload);
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
        if n % (records / 10).max(1) == 0 {
            eprintln!(
                "data: {n} of {records} records in {} s",
                begin.elapsed().as_secs()
            );
        }
    }
    producer.flush(Duration::from_secs(120)).context("flush")?;
    Ok(())
}

fn read(brokers: &str, records: u64) -> Result<u64> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "data")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(TOPIC, 0, Offset::Beginning)?;
    consumer.assign(&assignment)?;
    let mut next = 0;
    let mut heard = Instant::now();
    while next < records {
        let Some(message) = consumer.poll(Duration::from_millis(500)) else {
            if heard.elapsed() > Duration::from_secs(60) {
                break;
            }
            continue;
        };
        let message = message?;
        heard = Instant::now();
        let offset = u64::try_from(message.offset())?;
        ensure!(offset == next, "offset {offset} came where {next} was due");
        let bytes = message.payload().context("a record without a value")?;
        ensure!(
            bytes == payload(next, bytes.len()),
            "the record at offset {offset} is not what was written there"
        );
        next += 1;
    }
    Ok(next)
}

/// The most that was resident so far.
fn peak_rss_mb(broker: &BrokerProcess) -> Result<u64> {
    let pid = broker.pid().context("the broker does not run")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kb = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .context("no VmHWM in /proc")?;
    Ok(kb.trim().parse::<u64>()? / 1024)
}

fn dir_bytes(dir: &PathBuf) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// What the broker's log says of its last start.
fn replayed(log: &PathBuf, from: u64) -> Result<u64> {
    let text = fs::read(log)?;
    let text = String::from_utf8_lossy(&text[usize::try_from(from)?..]).into_owned();
    let Some(at) = text.find("replayed ") else {
        bail!("the log does not say what was replayed");
    };
    let bytes = text[at..]
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(' '))
        .context("the log line has another form")?;
    Ok(bytes.0.parse()?)
}
