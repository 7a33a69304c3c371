// The scenario's verbs (tests/clients/lib/scenario.py) in JavaScript, on kafkajs.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import { ZstdCodec } from 'zstd-codec'
import { anyCause, serve, within } from './verbs.mjs'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const { version } = createRequire(import.meta.url)('kafkajs/package.json')
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
const zstd = await new Promise(resolve => ZstdCodec.run(codec => resolve(new codec.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer))
})

// kafkajs brings gzip; for the others it has a place for a codec. For lz4 npm has none that both runs on Node 20 and
// writes frames that Kafka takes: kafkajs-lz4 is native code of an older Node, lz4js makes blocks that depend on each other.
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  zstd: CompressionTypes.ZSTD
}
const { TIDEMARK_TEST_CA: ca, TIDEMARK_TEST_MECHANISM: mechanism, TIDEMARK_TEST_TOKEN_FILE: tokenFile } = process.env
const sasl = mechanism === 'OAUTHBEARER'
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: readFileSync(tokenFile, 'utf8').trim() }) }
  : { mechanism: mechanism?.toLowerCase(), username: process.env.TIDEMARK_TEST_USER, password: process.env.TIDEMARK_TEST_PASSWORD }
const { TIDEMARK_TEST_CERTIFICATE: certificate, TIDEMARK_TEST_KEY: key } = process.env
const shown = certificate && { cert: readFileSync(certificate), key: readFileSync(key) }
const security = { ...(ca && { ssl: { ca: [readFileSync(ca)], ...shown } }), ...(mechanism && { sasl }) }
const kafka = new Kafka({
  ...security,
  // How long before the end of a session it is renewed. By default ten seconds, more than some sessions here last; and
  // brokers do not renew a session within a second of the last time.
  reauthenticationThreshold: 1000,
  brokers: [process.argv[2]],
  logLevel: process.env.TIDEMARK_TEST_CLIENT_LOG ? logLevel.DEBUG : logLevel.ERROR,
  logCreator: () => ({ level, label, log }) => console.error(level, label, JSON.stringify(log)),
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 15 }
})
const producers = {}
const received = []
let assigned = []
let readers = 0

function kind (error) {
  const fenced = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH']
  return anyCause(error, cause => fenced.includes(cause.type)) ? 'fenced' : 'other'
}

// Each producer has the function by which it sends: the transaction's own while one is open.
async function producer (name, how, transactionalId) {
  const options = { idempotent: how === 'idempotent' || how === 'transactional', transactionalId, maxInFlightRequests: 1 }
  const made = kafka.producer({ ...options, createPartitioner: () => ({ message }) => message.partition })
  await made.connect()
  producers[name] = { made, transaction: null, compression: codecs[how] }
}

const send = (name, topic, partition, values) => {
  const { made, transaction, compression } = producers[name]
  const messages = values.map(value => ({ partition: Number(partition), value }))
  return (transaction ?? made).send({ topic, messages, acks: -1, compression })
}

async function end (name, verb) {
  const { transaction } = producers[name]
  producers[name].transaction = null
  await transaction[verb]()
}

async function withConsumer (options, use) {
  const consumer = kafka.consumer({ sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 200, ...options })
  await consumer.connect()
  try {
    return await use(consumer)
  } finally {
    await consumer.disconnect()
  }
}

async function process_ (name, groupId, input, output, count, verb) {
  await withConsumer({ groupId }, async consumer => {
    const records = []
    await consumer.subscribe({ topics: [input], fromBeginning: true })
    await within(30000, new Promise((resolve, reject) => {
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ message }) => {
          records.push(message)
          if (records.length === Number(count)) resolve()
        }
      }).catch(reject)
    }), `${count} records`)
    const batch = records.slice(0, Number(count))  // the consumer goes on reading meanwhile
    const transaction = await producers[name].made.transaction()
    await transaction.send({ topic: output, messages: batch.map(({ value }) => ({ partition: 0, value: `${value}*` })) })
    const offset = String(BigInt(batch.at(-1).offset) + 1n)
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: input, partitions: [{ partition: 0, offset }] }] })
    await transaction[verb]()
  })
}

// kafkajs has no consumer outside of a group: each read is a new group that starts at the beginning.
async function read (topic, partition, level, last, ms) {
  const groupId = `reader-${process.pid}-${readers++}`
  const values = []
  await withConsumer({ groupId, readUncommitted: level === 'read_uncommitted' }, async consumer => {
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      setTimeout(resolve, Number(ms))
      consumer.run({
        autoCommit: false,
        eachMessage: async record => {
          if (record.partition !== Number(partition)) return
          const value = String(record.message.value)
          if (!values.includes(last)) values.push(value)
          if (value === last) resolve()
        }
      }).catch(reject)
    })
  })
  return values
}

async function join (groupId, topic) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 200 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { assigned = payload.memberAssignment[topic] ?? [] })
  consumer.on(consumer.events.REBALANCING, () => { assigned = [] })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { received.push(String(message.value)) } })
}

async function withAdmin (use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

await serve({
  hello: () => ['kafkajs', version],
  connect: async () => {
    const admin = kafka.admin({ retry: { retries: 0 } })
    await admin.connect()
    // It takes the refusal of a token for a challenge that it need not answer, and learns by the next request.
    try {
      await admin.listTopics()
    } finally {
      await admin.disconnect()
    }
  },
  reconnects: () => {},
  codecs: () => Object.keys(codecs),
  producer,
  send: async (name, topic, partition, value) => { await send(name, topic, partition, [value]) },
  many: async (name, topic, partition, prefix, count) => {
    await send(name, topic, partition, Array.from({ length: Number(count) }, (_, i) => `${prefix}${i}`))
  },
  begin: async name => { producers[name].transaction = await producers[name].made.transaction() },
  commit: name => end(name, 'commit'),
  abort: name => end(name, 'abort'),
  close: name => producers[name].made.disconnect(),
  process: process_,
  committed: (groupId, topic, partition) => withAdmin(async admin => {
    const [answer] = await admin.fetchOffsets({ groupId, topics: [topic] })
    return answer.partitions.find(one => one.partition === Number(partition))?.offset ?? '-1'
  }),
  read,
  join,
  assignment: () => [...assigned].sort(),
  received: () => received,
  'create-topic': (topic, numPartitions) => withAdmin(async admin => {
    const made = await admin.createTopics({ topics: [{ topic, numPartitions: Number(numPartitions) }] })
    if (!made) throw new Error('the topic exists')
  }),
  'describe-config': (name, key) => withAdmin(async admin => {
    const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name }] })
    return resources[0].configEntries.find(entry => entry.configName === key).configValue
  })
}, kind)
