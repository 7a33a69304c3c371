// The loop of the programs in JavaScript: a verb a line on standard input, an answer a line on standard output.

import { createInterface } from 'node:readline'

export class NoWord extends Error {}

export async function serve (verbs, kind) {
  process.on('unhandledRejection', error => console.error('unhandled', error))
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split('\t')
    let answer
    try {
      const values = await verbs[verb](...words)
      answer = ['ok', ...(Array.isArray(values) ? values : values === undefined ? [] : [values])]
    } catch (error) {
      console.error(error)
      answer = error instanceof NoWord
        ? ['none', error.message]
        : ['err', kind(error), `${error.name}: ${error.message}`.replace(/\s+/g, ' ')]
    }
    process.stdout.write(answer.join('\t') + '\n')
  }
  process.exit(0)
}

// Whether this error or one that it was made from passes the test.
export function anyCause (error, test) {
  for (let cause = error; cause; cause = cause.cause) {
    if (test(cause) || (cause.errors ?? []).some(one => anyCause(one, test))) return true
  }
  return false
}

export function within (ms, promise, what) {
  let timer
  const limit = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${what}`)), ms)
  })
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer))
}
