//! Stands between a stock client and a broker and counts the error codes in the answers to its transactional requests.
//!
//! `count_codes --listen PORT --broker HOST:PORT -- COMMAND...` runs the command, a client that is to use the port, and
//! prints at its end, behind the command's own output, how many answers passed and how many held CONCURRENT_TRANSACTIONS.
//! The broker must advertise the port, or the client would go past it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Parser;
use tidemark_differential::answers::decode;

/// Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit.
const TRANSACTIONAL: [i16; 6] = [0, 22, 24, 25, 26, 28];
const END_TXN: i16 = 26;
const CONCURRENT_TRANSACTIONS: i64 = 51;

#[derive(Parser)]
#[command(about = "Counts CONCURRENT_TRANSACTIONS in the answers to a client that it starts")]
struct Args {
    /// The loopback port that the client is to use.
    #[arg(long, value_name = "PORT")]
    listen: u16,
    /// Where the broker is.
    #[arg(long, value_name = "HOST:PORT")]
    broker: SocketAddr,
    /// The client and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Default)]
struct Counts {
    answers: AtomicU64,
    ends: AtomicU64,
    concurrent: AtomicU64,
    unread: AtomicU64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("count_codes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.listen))
        .with_context(|| format!("port {}", args.listen))?;
    let counts = Arc::<Counts>::default();
    let for_thread = Arc::clone(&counts);
    let broker = args.broker;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            if let Err(error) = relay(client, broker, &for_thread) {
                eprintln!("count_codes: {broker}: {error}");
            }
        }
    });
    let status = Command::new(&args.command[0])
        .args(&args.command[1..])
        .status()
        .with_context(|| format!("cannot start {}", args.command[0]))?;
    println!(
        "answers={} ends={} code_51={} unread={}",
        counts.answers.load(Ordering::Relaxed),
        counts.ends.load(Ordering::Relaxed),
        counts.concurrent.load(Ordering::Relaxed),
        counts.unread.load(Ordering::Relaxed),
    );
    Ok(status.success())
}

/// What was asked and is not answered yet: API and version by correlation id.
type Asked = Arc<Mutex<HashMap<i32, (i16, i16)>>>;

fn relay(client: TcpStream, broker: SocketAddr, counts: &Arc<Counts>) -> Result<()> {
    let broker = TcpStream::connect(broker)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let asked = Asked::default();
    let (from_client, to_client) = (client.try_clone()?, client);
    let (from_broker, to_broker) = (broker.try_clone()?, broker);
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        pass(from_client, to_broker, |frame| {
            if let Some(head) = frame.first_chunk::<8>() {
                let word = |at: usize| i16::from_be_bytes([head[at], head[at + 1]]);
                if TRANSACTIONAL.contains(&word(0)) {
                    let id = i32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                    let mut asked = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    asked.insert(id, (word(0), word(2)));
                }
            }
        });
    });
    let counts = Arc::clone(counts);
    thread::spawn(move || {
        pass(from_broker, to_client, |frame| {
            let Some(id) = frame.first_chunk::<4>() else {
                return;
            };
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((key, version)) = asked.remove(&i32::from_be_bytes(*id)) else {
                return;
            };
            drop(asked);
            counts.answers.fetch_add(1, Ordering::Relaxed);
            if key == END_TXN {
                counts.ends.fetch_add(1, Ordering::Relaxed);
            }
            match decode(key, version, Bytes::copy_from_slice(frame)) {
                Ok(tree) if tree.error_codes().contains(&CONCURRENT_TRANSACTIONS) => {
                    counts.concurrent.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {}
                Err(_) => {
                    counts.unread.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    });
    Ok(())
}

/// Hands bytes on as they come, and whole frames (without their size) to `note` first: a request is known before its
/// answer can be there.
fn pass(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    let mut unread: Vec<u8> = Vec::new();
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        unread.extend_from_slice(&buffer[..count]);
        let mut at = 0;
        while let Some(size) = unread[at..].first_chunk::<4>() {
            let size = u32::from_be_bytes(*size) as usize;
            if unread.len() - at < 4 + size {
                break;
            }
            note(&unread[at + 4..at + 4 + size]);
            at += 4 + size;
        }
        unread.drain(..at);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
