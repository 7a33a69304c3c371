//! One of the two brokers: runs steps and keeps what it answered.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use crate::answers::decode;
use crate::compare::Names;
use crate::connection::{Connection, Received};
use crate::driver::Driver;
use crate::env::{Drawn, Env};
use crate::requests::{Body, build, hex};
use crate::script::Line;
use crate::steps::{Step, StepKind};
use crate::tree::Tree;

/// How long a request may take that is not meant to be answered late. A line that meets silence names less.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client would go on repeating a request that is answered with a transient code.
const RETRIES_FOR: Duration = Duration::from_secs(15);
/// Time for a broker to take a request of one connection before the next one's is sent.
const HEAD_START: Duration = Duration::from_millis(1_500);

/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
/// CONCURRENT_TRANSACTIONS: clients repeat the request.
const TRANSIENT: [i64; 4] = [14, 15, 16, 51];

/// What came of a step.
#[derive(Clone, Debug)]
pub struct Answer {
    pub outcome: Outcome,
    /// The transient codes that were met and repeated away.
    pub repeated: Vec<i64>,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Tree(Tree),
    /// One of: closed, no answer, no reply is due, does not decode.
    Said(String),
    /// Nothing is compared.
    Between,
}

struct Started {
    connection: String,
    correlation_id: i32,
    body: Body,
    line: Line,
}

pub struct Side {
    address: SocketAddr,
    driver: Driver,
    env: Env,
    connections: HashMap<String, Connection>,
    started: HashMap<String, Started>,
    pub names: Names,
}

impl Side {
    pub fn connect(address: SocketAddr) -> Result<Side> {
        Ok(Side {
            address,
            driver: Driver::connect(address)?,
            env: Env::default(),
            connections: HashMap::new(),
            started: HashMap::new(),
            names: Names::new(address.port()),
        })
    }

    pub fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Forgets connections and drawn names: the next script starts.
    pub fn next_script(&mut self) {
        self.connections.clear();
        self.started.clear();
        self.env.drawn.clear();
        self.names.forget_producers();
    }

    /// # Errors
    /// When the step itself is wrong, or the broker is gone.
    pub fn run(&mut self, step: &Step) -> Result<Answer> {
        let line = &*step.line;
        let answer = match step.kind {
            StepKind::Request => self.request(line, step.version)?,
            StepKind::Start => {
                let body = build(line, step.version, &self.env)?;
                let (connection, correlation_id) = self.send(line, &body)?;
                let name = line.need("start")?.to_owned();
                let started = Started {
                    connection,
                    correlation_id,
                    body,
                    line: line.clone(),
                };
                let before = self.started.insert(name, started);
                ensure!(before.is_none(), "it was started already");
                sleep(HEAD_START);
                between()
            }
            StepKind::Await => self.await_started(line)?,
            StepKind::Raw => self.raw(line)?,
            StepKind::Between => {
                self.between(line)?;
                between()
            }
        };
        Ok(answer)
    }

    fn connection(&mut self, line: &Line) -> Result<(String, &mut Connection)> {
        let name = line.get("conn").unwrap_or("main").to_owned();
        let usable = self.connections.get(&name).is_some_and(|c| !c.is_closed());
        if !usable {
            self.connections
                .insert(name.clone(), Connection::open(self.address)?);
        }
        let connection = self.connections.get_mut(&name).context("just inserted")?;
        Ok((name, connection))
    }

    fn send(&mut self, line: &Line, body: &Body) -> Result<(String, i32)> {
        let client_id = line.get("client").unwrap_or("differential");
        let client_id = (client_id != "null").then_some(client_id);
        let (cut, tail) = (line.number("cut", 0)?, line.number("tail", 0)?);
        let (name, connection) = self.connection(line)?;
        let correlation_id = connection.send(body, client_id, cut, tail);
        Ok((name, correlation_id))
    }

    /// `times=N`: sent that often, each time with what the time before has drawn; the last answer counts, and those
    /// before it must be without an error.
    fn request(&mut self, line: &Line, version: i16) -> Result<Answer> {
        let times: u32 = line.number("times", 1)?;
        let mut repeated = Vec::new();
        for time in 1..times {
            let answer = self.request_once(line, version, false)?;
            repeated.extend(answer.repeated);
            let said = match &answer.outcome {
                Outcome::Tree(tree) => match tree.error_codes().iter().find(|code| **code != 0) {
                    None => continue,
                    Some(code) => format!("error {code}"),
                },
                Outcome::Said(said) => said.clone(),
                Outcome::Between => continue,
            };
            return Ok(Answer {
                outcome: Outcome::Said(format!("{said}, the {time}th time of {times}")),
                repeated,
            });
        }
        let mut answer = self.request_once(line, version, true)?;
        answer.repeated.extend(repeated);
        Ok(answer)
    }

    fn request_once(&mut self, line: &Line, version: i16, settles: bool) -> Result<Answer> {
        let mut transient: BTreeSet<i64> = TRANSIENT.into();
        if line.flag("once", false)? {
            transient.clear();
        }
        if let Some(more) = line.get("retry") {
            for code in more.split(',') {
                transient.insert(code.parse()?);
            }
        }
        let mut repeated = Vec::new();
        let started = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            let body = build(line, version, &self.env)?;
            let (name, id) = self.send(line, &body)?;
            let outcome = if body.is_answered {
                self.outcome(&name, id, &body, patience(line)?)?
            } else {
                self.after_silence(&name)?
            };
            if let Outcome::Tree(tree) = &outcome {
                let codes = tree.error_codes();
                let met = codes.into_iter().find(|code| transient.contains(code));
                if let (Some(code), true) = (met, started.elapsed() < RETRIES_FOR) {
                    repeated.push(code);
                    sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(200));
                    continue;
                }
                self.bind(line, tree)?;
                if settles {
                    self.driver
                        .settle_after(line, tree, &mut self.env, &mut self.names)?;
                }
            }
            return Ok(Answer { outcome, repeated });
        }
    }

    fn outcome(
        &mut self,
        connection: &str,
        id: i32,
        body: &Body,
        patience: Duration,
    ) -> Result<Outcome> {
        let connection = self
            .connections
            .get_mut(connection)
            .context("an open connection")?;
        Ok(match connection.receive(Some(id), patience) {
            Received::Frame(frame) => answered(body, frame),
            Received::Closed => Outcome::Said("the connection is closed".to_owned()),
            Received::Nothing => {
                // Nothing that follows on it would be answered either.
                connection.give_up();
                Outcome::Said(format!("no answer within {patience:?}"))
            }
        })
    }

    /// acks=0: whether the connection still answers.
    fn after_silence(&mut self, connection: &str) -> Result<Outcome> {
        let ping = Body {
            key: 18,
            version: 0,
            bytes: Vec::new(),
            is_answered: true,
        };
        let connection = self
            .connections
            .get_mut(connection)
            .context("an open connection")?;
        let id = connection.send(&ping, Some("differential"), 0, 0);
        let said = match connection.receive(Some(id), PATIENCE) {
            Received::Frame(_) => "no reply, and the connection goes on",
            Received::Closed => "the connection is closed",
            Received::Nothing => "nothing any more",
        };
        Ok(Outcome::Said(said.to_owned()))
    }

    fn await_started(&mut self, line: &Line) -> Result<Answer> {
        let name = line.words.first().context("await NAME")?;
        let started = self
            .started
            .remove(name)
            .with_context(|| format!("nothing was started as {name}"))?;
        let outcome = self.outcome(
            &started.connection,
            started.correlation_id,
            &started.body,
            patience(line)?,
        )?;
        if let Outcome::Tree(tree) = &outcome {
            let mut as_sent = started.line;
            as_sent.bind.clone_from(&line.bind);
            self.bind(&as_sent, tree)?;
        }
        Ok(Answer {
            outcome,
            repeated: Vec::new(),
        })
    }

    /// `raw HEX [patience=ms]`: bytes without a header of ours.
    fn raw(&mut self, line: &Line) -> Result<Answer> {
        let bytes = hex(&line.words.concat())?;
        let (_, connection) = self.connection(line)?;
        connection.send_bytes(&bytes);
        let said = match connection.receive(None, patience(line)?) {
            Received::Frame(frame) => format!("a frame: {frame:?}"),
            Received::Closed => "the connection is closed".to_owned(),
            Received::Nothing => "nothing, and the connection stays open".to_owned(),
        };
        Ok(Answer {
            outcome: Outcome::Said(said),
            repeated: Vec::new(),
        })
    }

    fn between(&mut self, line: &Line) -> Result<()> {
        let first = line.words.first().map(String::as_str);
        match line.verb.as_str() {
            "pause" => sleep(Duration::from_millis(first.unwrap_or("0").parse()?)),
            "close" => {
                self.connections.remove(first.unwrap_or("main"));
            }
            "topic" => {
                for name in &line.words {
                    self.driver
                        .wait_for_topic(name, &mut self.env, &mut self.names)?;
                }
            }
            "settle" => {
                for place in &line.words {
                    let (topic, partition) = place.rsplit_once('/').context("topic/partition")?;
                    self.driver.wait_for_lso(topic, partition.parse()?)?;
                }
            }
            "until-ended" => {
                for id in &line.words {
                    self.driver.wait_until_not(id, &["Ongoing", "Prepare"])?;
                }
            }
            verb => bail!("no verb {verb}"),
        }
        Ok(())
    }

    /// Keeps what was drawn under the name after `->`.
    fn bind(&mut self, line: &Line, tree: &Tree) -> Result<()> {
        let Some(name) = &line.bind else {
            return Ok(());
        };
        let drawn = match line.verb.as_str() {
            "init" | "end" => {
                let id = tree.number("producer_id").context("no producer id")?;
                if id < 0 {
                    // Below v5 EndTxn tells none, and a refusal draws none: what was, stays.
                    return Ok(());
                }
                let epoch = tree.number("producer_epoch").context("no epoch")?;
                self.names.producer(id);
                Drawn::Producer {
                    id,
                    epoch: i16::try_from(epoch)?,
                }
            }
            "join" => {
                let member = tree.field("member_id").and_then(Tree::text);
                let generation = tree.number("generation_id").context("no generation")?;
                Drawn::Member {
                    id: member.context("no member id")?.to_owned(),
                    generation: i32::try_from(generation)?,
                }
            }
            "fetch" => {
                let session = tree.number("session_id").context("no session")?;
                Drawn::Session(i32::try_from(session)?)
            }
            verb => bail!("{verb} draws nothing"),
        };
        self.env.drawn.insert(name.clone(), drawn);
        Ok(())
    }
}

/// `patience=ms`: how long the answer of this line is waited for.
fn patience(line: &Line) -> Result<Duration> {
    let default = u64::try_from(PATIENCE.as_millis())?;
    Ok(Duration::from_millis(line.number("patience", default)?))
}

fn between() -> Answer {
    Answer {
        outcome: Outcome::Between,
        repeated: Vec::new(),
    }
}

fn answered(body: &Body, frame: Bytes) -> Outcome {
    match decode(body.key, body.version, frame) {
        Ok(tree) => Outcome::Tree(tree),
        Err(e) => Outcome::Said(format!("an answer that does not decode: {e:#}")),
    }
}
