// The scenario's verbs (tests/clients/lib/scenario.py) in JavaScript, on @platformatic/kafka.

import { readFileSync } from 'node:fs'
import { Admin, ConfigResourceTypes, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { anyCause, NoWord, serve, within } from './verbs.mjs'

const packageFile = new URL('./node_modules/@platformatic/kafka/package.json', import.meta.url)
const { version } = JSON.parse(readFileSync(packageFile, 'utf8'))
const base = { clientId: 'scenario', bootstrapBrokers: [process.argv[2]], retries: 20, retryDelay: 100 }
const producers = {}
const received = []
let member
let readers = 0

function kind (error) {
  const fenced = ['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED']
  return anyCause(error, cause => fenced.includes(cause.apiId)) ? 'fenced' : 'other'
}

async function producer (name, how, transactionalId) {
  const options = { idempotent: how === 'idempotent' || how === 'transactional', transactionalId }
  if (!['plain', 'idempotent', 'transactional', 'none'].includes(how)) options.compression = how
  const made = new Producer({ ...base, serializers: stringSerializers, acks: -1, ...options })
  producers[name] = { made, transaction: null }
}

// Without these it asks to go on as producer 0, epoch 0, which is refused when the id has another producer.
const begin = made => made.beginTransaction({ producerId: -1n, producerEpoch: -1 })

const send = (name, topic, partition, values) => {
  const { made, transaction } = producers[name]
  return (transaction ?? made).send({ messages: values.map(value => ({ topic, partition: Number(partition), value })) })
}

async function end (name, verb) {
  const { transaction } = producers[name]
  producers[name].transaction = null
  await transaction[verb]()
}

async function withConsumer (groupId, options, use) {
  const consumer = new Consumer({
    ...base,
    groupId,
    deserializers: stringDeserializers,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    rebalanceTimeout: 10000,
    maxWaitTime: 200,
    autocommit: false
  })
  try {
    return await use(consumer)
  } finally {
    await consumer.close(true)
  }
}

// Up to `count` messages, up to the value `last`, or for `ms`.
async function collect (stream, ms, done) {
  const messages = []
  await new Promise((resolve, reject) => {
    setTimeout(resolve, ms)
    stream.on('error', reject)
    stream.on('data', message => {
      if (!done(messages)) messages.push(message)
      if (done(messages)) resolve()
    })
  })
  return messages
}

async function process_ (name, groupId, input, output, count, verb) {
  await withConsumer(groupId, {}, async consumer => {
    const stream = await consumer.consume({ topics: [input], mode: 'committed', fallbackMode: 'earliest', isolationLevel: 1 })
    const messages = await collect(stream, 30000, found => found.length === Number(count))
    if (messages.length < Number(count)) throw new Error(`only ${messages.length} records within 30 s`)
    const transaction = await begin(producers[name].made)
    await transaction.send({ messages: messages.map(({ value }) => ({ topic: output, partition: 0, value: `${value}*` })) })
    await transaction.addConsumer(consumer)
    await transaction.addOffset(messages.at(-1))
    await transaction[verb]()
  })
}

async function read (topic, partition, level, last, ms) {
  if (level === 'read_committed') throw new NoWord('the client hands out the records of aborted transactions')
  return withConsumer(`reader-${process.pid}-${readers++}`, {}, async consumer => {
    const stream = await consumer.consume({ topics: [topic], mode: 'earliest', isolationLevel: 0 })
    const mine = found => found.filter(message => message.partition === Number(partition))
    const found = await collect(stream, Number(ms), all => mine(all).some(({ value }) => value === last))
    return mine(found).map(({ value }) => value)
  })
}

async function join (groupId, topic) {
  member = new Consumer({
    ...base,
    groupId,
    deserializers: stringDeserializers,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    rebalanceTimeout: 10000,
    maxWaitTime: 200,
    autocommit: 100
  })
  const stream = await member.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
  stream.on('error', error => console.error(error))
  stream.on('data', ({ value }) => { received.push(value) })
}

async function withAdmin (use) {
  const admin = new Admin(base)
  try {
    return await use(admin)
  } finally {
    await admin.close()
  }
}

await serve({
  hello: () => ['@platformatic/kafka', version],
  reconnects: () => {},
  codecs: () => ['none', 'gzip', 'snappy', 'lz4'],  // and zstd from Node 22.15 on
  producer,
  send: async (name, topic, partition, value) => { await within(60000, send(name, topic, partition, [value]), 'send') },
  many: async (name, topic, partition, prefix, count) => {
    await send(name, topic, partition, Array.from({ length: Number(count) }, (_, i) => `${prefix}${i}`))
  },
  begin: async name => { producers[name].transaction = await begin(producers[name].made) },
  commit: name => end(name, 'commit'),
  abort: name => end(name, 'abort'),
  close: name => producers[name].made.close(),
  process: process_,
  committed: (group, topic, partition) => withAdmin(async admin => {
    const groups = [{ groupId: group, topics: [{ name: topic, partitionIndexes: [Number(partition)] }] }]
    const [answer] = await admin.listConsumerGroupOffsets({ groups, requireStable: true })
    return String(answer.topics[0]?.partitions[0]?.committedOffset ?? -1)
  }),
  read,
  join,
  assignment: () => (member.assignments ?? []).flatMap(({ partitions }) => partitions).sort(),
  received: () => received,
  'create-topic': (topic, partitions) => withAdmin(async admin => {
    await admin.createTopics({ topics: [topic], partitions: Number(partitions), replicas: 1 })
  }),
  'describe-config': (name, key) => withAdmin(async admin => {
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: name, configurationKeys: [key] }]
    const [answer] = await admin.describeConfigs({ resources, includeSynonyms: false, includeDocumentation: false })
    return answer.configs.find(config => config.name === key).value
  })
}, kind)
