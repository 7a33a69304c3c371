import { Kafka } from 'kafkajs'

const kafka = new Kafka({ brokers: ['127.0.0.1:9092'] })

const producer = kafka.producer({ transactionalId: 'shop-1', idempotent: true, maxInFlightRequests: 1 })
await producer.connect()

let transaction = await producer.transaction()  // from here on no earlier instance of shop-1 can write or commit
await transaction.send({ topic: 'orders', messages: [{ value: 'one coffee' }] })
await transaction.send({ topic: 'payments', messages: [{ value: '3 euros' }] })
await transaction.commit()                      // both records, in both topics

transaction = await producer.transaction()
await transaction.send({ topic: 'orders', messages: [{ value: 'a mistake' }] })  // the broker has it ...
await transaction.abort()                       // ... and no read_committed reader will ever see it
await producer.disconnect()

const consumer = kafka.consumer({ groupId: 'books' })  // kafkajs reads committed records unless told otherwise
await consumer.connect()
await consumer.subscribe({ topics: ['orders', 'payments'], fromBeginning: true })
const seen = []
await new Promise(resolve => consumer.run({
  eachMessage: async ({ message }) => {
    seen.push(message.value.toString())
    if (seen.length === 2) resolve()
  }
}))
await consumer.disconnect()

console.log(`[${seen.sort().join(', ')}]`)
