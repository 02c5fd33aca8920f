// What goes wrong, and the error that a JavaScript user catches.
import assert from 'node:assert/strict'

const LONG = 100_000
const NOBODY = { apiKey: 'e2b_' + '0'.repeat(64) }
const GONE = ['TimeoutError', 'SandboxNotFoundError'] // which of them depends on the call
const MIB = 1024 * 1024
const named = (...names) => (error) => names.includes(error.name) || assert.fail(`${error.name}: ${error.message}`)
const until = async (holds) => {
  for (let n = 0; n < 1000; n++) {
    if (await holds()) return
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.fail('it did not happen in time')
}

export async function case_a_paused_sandbox_answers_nothing({ Sandbox }) {
  const s = await Sandbox.create({ timeoutMs: LONG })
  await s.pause()
  assert.equal(await s.isRunning(), false)
  for (const call of [
    () => s.commands.run('true'), () => s.commands.list(), () => s.files.read('f'), () => s.files.write('f', '1'),
    () => s.files.list('/'), () => s.pty.kill(1), () => s.runCode('1'),
  ])
    await assert.rejects(call(), named(...GONE))
  await s.kill()
}

export async function case_a_killed_sandbox_is_gone_everywhere({ Sandbox }) {
  const s = await Sandbox.create({ timeoutMs: LONG })
  const running = await s.commands.run('sleep 100', { background: true })
  await s.kill()
  await assert.rejects(running.wait(), named(...GONE))
  assert.equal(await s.isRunning(), false)
  for (const call of [() => s.commands.run('true'), () => s.files.read('f'), () => s.files.exists('f'), () => s.runCode('1')])
    await assert.rejects(call(), named(...GONE))
  for (const call of [
    () => s.getInfo(), () => s.setTimeout(1000), () => s.getMetrics(), () => s.pause(), () => s.fork(),
    () => s.createSnapshot(), () => s.updateNetwork({}), () => Sandbox.connect(s.sandboxId),
  ])
    await assert.rejects(call(), named('SandboxNotFoundError'))
  assert.equal(await s.kill(), false)
}

export async function case_a_deadline_kills({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: 1000 })
  await until(async () => !(await s.isRunning()))
  await assert.rejects(s.commands.run('true'), named(...GONE))
}

export async function case_time_runs_out({ Sandbox }) {
  const s = await Sandbox.create({ timeoutMs: LONG })
  await assert.rejects(s.commands.run('sleep 77', { timeoutMs: 500 }), named('TimeoutError'))
  await until(async () => !(await s.commands.list()).some((entry) => entry.args.join(' ').includes('sleep 77')))
  await assert.rejects(s.runCode('import time\ntime.sleep(77)', { timeoutMs: 500 }), named('TimeoutError'))
  assert.equal((await s.runCode('1 + 1')).text, '2')
  await assert.rejects(Sandbox.getInfo(s.sandboxId, { requestTimeoutMs: 1 }), named('TimeoutError'))
  await assert.rejects(s.files.read('/etc/hostname', { requestTimeoutMs: 1 }), named('TimeoutError'))
  const command = await s.commands.run('sleep 78', { background: true })
  await command.disconnect() // who leaves does not end it
  assert.ok((await s.commands.list()).some((entry) => entry.pid === command.pid))
  await s.kill()
}

export async function case_an_unknown_key_opens_nothing({ Sandbox, Volume, Secret, Template }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => Sandbox.create('base', NOBODY), () => Sandbox.getInfo(s.sandboxId, NOBODY),
    () => Sandbox.connect(s.sandboxId, NOBODY), () => Sandbox.kill(s.sandboxId, NOBODY),
    () => Sandbox.list(NOBODY).nextItems(), () => Volume.list(NOBODY), () => Secret.create('k', 'v', NOBODY),
    () => Template.exists('base', NOBODY),
  ])
    await assert.rejects(call(), named('AuthenticationError'))
  assert.equal(await s.kill(), true)
}

export async function case_a_full_disk({ Sandbox }) {
  if (!process.env.SMALL_DISK) return // with names for each port the same is answered by the same
  const s = await Sandbox.connect(process.env.SMALL_DISK, { timeoutMs: 1_000_000 })
  const many = new Blob([new Uint8Array(100 * MIB).map((_, place) => (place * 7919) >> 3)])
  for (const useOctetStream of [true, false])
    await assert.rejects(s.files.write('large', many, { useOctetStream }), named('NotEnoughSpaceError'))
  assert.equal((await s.commands.run('echo 1')).stdout, '1\n')
}

export async function case_what_is_not_there({ Sandbox, Volume }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => s.files.read('nothing'), () => s.files.list('nothing'), () => s.files.getInfo('nothing'),
    () => s.files.rename('nothing', 'other'),
  ])
    await assert.rejects(call(), named('FileNotFoundError'))
  await s.files.remove('nothing')
  assert.equal(await s.commands.kill(999_999), false)
  assert.equal(await s.pty.kill(999_999), false)
  for (const call of [() => s.commands.connect(999_999), () => s.commands.sendStdin(999_999, 'x'), () => s.pty.resize(999_999, { cols: 20, rows: 20 })])
    await assert.rejects(call(), named('NotFoundError'))
  for (const call of [() => Sandbox.getInfo('sbnothing'), () => Sandbox.connect('sbnothing'), () => Sandbox.setTimeout('sbnothing', 10_000), () => Sandbox.pause('sbnothing')])
    await assert.rejects(call(), named('SandboxNotFoundError'))
  await assert.rejects(Volume.connect('nothing'), named('VolumeNotFoundError'))
  await assert.rejects(Sandbox.create('base', { volumeMounts: { '/data': 'nothing' } }), named('SandboxError'))
  await assert.rejects(Sandbox.create('nothing-like-it'), /nothing-like-it/)
  await s.kill()
}

export async function case_what_makes_no_sense({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  for (const call of [
    () => s.files.read('/etc'), () => s.files.write('/etc', 'x', { user: 'root' }),
    () => s.files.list('/etc/hostname'), () => s.commands.run('true', { cwd: '/nowhere' }),
  ])
    await assert.rejects(call(), named('InvalidArgumentError'))
  for (const call of [() => s.commands.run('true', { user: 'nobody9' }), () => s.files.read('f', { user: 'nobody9' })])
    await assert.rejects(call(), named('AuthenticationError'))
  for (const call of [
    () => Sandbox.create('base', { timeoutMs: 1e12 }),
    () => Sandbox.create('base', { network: { denyOut: ['example.com'] } }),
    () => Sandbox.create('base', { network: { maskRequestHost: 'two words' } }),
    () => Sandbox.create('base', { envs: { 'A=B': '1' } }),
  ])
    await assert.rejects(call(), /400/)
  await s.kill()
}

export async function case_what_is_too_large({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  await assert.rejects(s.commands.run('echo ' + 'x'.repeat(5 * MIB)), named('RateLimitError'))
  await assert.rejects(Sandbox.create('base', { metadata: { m: 'x'.repeat(5 * MIB) } }), /413/)
  assert.equal((await s.commands.run('echo 1')).stdout, '1\n')
  await s.kill()
}
