// Runs every case of a program with the packages of one folder, and says what they called: node run.mjs FOLDER PROGRAM
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

import { told, watch } from './driven.mjs'

const [folder, program] = process.argv.slice(2)
const require = createRequire(`${folder}/package.json`)
const e2b = require('@e2b/code-interpreter')
watch(e2b)
const cases = await import(pathToFileURL(program))
for (const [name, run] of Object.entries(cases).filter(([name]) => name.startsWith('case_'))) {
  let outcome = 'ok'
  try {
    await run(e2b)
  } catch (error) {
    outcome = String(error?.stack ?? error)
  }
  console.log('@ ' + JSON.stringify({ case: name, outcome }))
}
await cases.close?.(e2b)
console.log('% ' + JSON.stringify(told()))
process.exit(0)
