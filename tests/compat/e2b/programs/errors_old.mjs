// What goes wrong, and what users of the JavaScript client of 2025 catch.
import assert from 'node:assert/strict'

const LONG = 100_000
const NOBODY = { apiKey: 'e2b_' + '0'.repeat(64) }
const GONE = ['TimeoutError', 'NotFoundError'] // which of them depends on the call: a command is not found
const named = (...names) => (error) => names.includes(error.name) || assert.fail(`${error.name}: ${error.message}`)
const until = async (holds) => {
  for (let n = 0; n < 1000; n++) {
    if (await holds()) return
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.fail('it did not happen in time')
}

export async function case_a_paused_sandbox_answers_nothing({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  await s.betaPause()
  assert.equal(await s.isRunning(), false)
  for (const call of [
    () => s.commands.run('true'), () => s.files.read('f'), () => s.files.list('/'), () => s.runCode('1'),
  ])
    await assert.rejects(call(), named(...GONE))
  await s.kill()
}

export async function case_a_killed_sandbox_is_gone_everywhere({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const running = await s.commands.run('sleep 100', { background: true })
  await s.kill()
  await assert.rejects(running.wait(), named('SandboxError')) // it is cut off
  assert.equal(await s.isRunning(), false)
  for (const call of [() => s.commands.run('true'), () => s.files.read('f'), () => s.runCode('1')])
    await assert.rejects(call(), named(...GONE))
  for (const call of [() => s.getInfo(), () => s.setTimeout(1000), () => s.betaPause(), () => Sandbox.connect(s.sandboxId)])
    await assert.rejects(call(), named('NotFoundError', 'SandboxError'))
}

export async function case_time_runs_out({ Sandbox }) {
  const s = await Sandbox.create({ timeoutMs: LONG })
  await assert.rejects(s.commands.run('sleep 77', { timeoutMs: 500 }), named('TimeoutError'))
  await assert.rejects(s.runCode('import time\ntime.sleep(77)', { timeoutMs: 500 }), named('TimeoutError'))
  assert.equal((await s.runCode('1 + 1')).text, '2')
  await s.setTimeout(1000)
  await until(async () => !(await s.isRunning()))
  await assert.rejects(s.commands.run('true'), named(...GONE))
}

export async function case_an_unknown_key_opens_nothing({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => Sandbox.create('base', NOBODY), () => Sandbox.getInfo(s.sandboxId, NOBODY),
    () => Sandbox.connect(s.sandboxId, NOBODY), () => Sandbox.kill(s.sandboxId, NOBODY),
    () => Sandbox.list(NOBODY).nextItems(),
  ])
    await assert.rejects(call(), named('AuthenticationError'))
  assert.equal(await Sandbox.kill(s.sandboxId), true)
}

export async function case_what_is_not_there({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => s.files.read('nothing'), () => s.files.list('nothing'), () => s.files.rename('nothing', 'other'),
    () => s.commands.connect(999_999), () => Sandbox.getInfo('sbnothing'), () => Sandbox.connect('sbnothing'),
  ])
    await assert.rejects(call(), named('NotFoundError'))
  assert.equal(await s.commands.kill(999_999), false)
  assert.equal(await Sandbox.kill('sbnothing'), false)
  await assert.rejects(Sandbox.create('nothing-like-it'), /nothing-like-it/)
  await s.kill()
}

export async function case_what_makes_no_sense({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => s.files.read('/etc'), () => s.files.list('/etc/hostname'),
    () => s.commands.run('true', { cwd: '/nowhere' }),
  ])
    await assert.rejects(call(), named('InvalidArgumentError'))
  for (const call of [() => s.commands.run('true', { user: 'nobody9' }), () => s.files.read('f', { user: 'nobody9' })])
    await assert.rejects(call(), named('AuthenticationError'))
  await assert.rejects(Sandbox.create('base', { timeoutMs: 1e12 }), /400/)
  await s.kill()
}
