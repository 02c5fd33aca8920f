// The JavaScript client, of any age: sandboxes, commands, files, watching, terminals, code.
import assert from 'node:assert/strict'

let box
const sandbox = async (e2b) => (box ??= await e2b.Sandbox.create({ timeoutMs: 120_000, envs: { A: '1' }, metadata: { m: '1' } }))
const until = async (holds) => {
  for (let n = 0; n < 500; n++) {
    if (await holds()) return
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.fail('it did not happen in time')
}

export const close = async () => box?.kill()

export async function case_commands(e2b) {
  const s = await sandbox(e2b)
  const done = await s.commands.run('echo $A; whoami; echo e >&2')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['1\nuser\n', 'e\n', 0])
  await assert.rejects(s.commands.run('exit 3'), (error) => error.name === 'CommandExitError' && error.exitCode === 3)
  const out = []
  await s.commands.run('echo 1; echo 2', { onStdout: (data) => out.push(data) })
  assert.equal(out.join(''), '1\n2\n')
  const running = await s.commands.run('sleep 60', { background: true })
  assert.ok((await s.commands.list()).some((entry) => entry.pid === running.pid))
  assert.equal(await s.commands.kill(running.pid), true)
  await assert.rejects(running.wait())
}

export async function case_files(e2b) {
  const s = await sandbox(e2b)
  await s.files.write('d/a.txt', 'hello')
  assert.equal(await s.files.read('d/a.txt'), 'hello')
  assert.deepEqual(Buffer.from(await s.files.read('d/a.txt', { format: 'bytes' })), Buffer.from('hello'))
  await s.files.write([{ path: 'm1', data: '1' }, { path: 'm2', data: '2' }])
  assert.equal(await s.files.read('m2'), '2')
  assert.deepEqual((await s.files.list('d')).map((entry) => entry.name), ['a.txt'])
  assert.equal(await s.files.exists('nothing'), false)
  await assert.rejects(s.files.read('nothing'), (error) => /NotFoundError/.test(error.name))
  assert.equal(await s.files.makeDir('d/e'), true)
  assert.equal(await s.files.makeDir('d/e'), false)
  await s.files.rename('d/a.txt', 'd/b.txt')
  await s.files.remove('d')
  assert.equal(await s.files.exists('d'), false)
}

export async function case_watching(e2b) {
  const s = await sandbox(e2b)
  const seen = []
  const handle = await s.files.watchDir('/home/user', (event) => seen.push(event))
  await s.files.write('w.txt', '1')
  await until(() => seen.some((event) => event.name === 'w.txt' && event.type === 'write'))
  assert.deepEqual(seen.filter((event) => event.name === 'w.txt').map((event) => event.type), ['create', 'chmod', 'write'])
  await handle.stop()
}

export async function case_a_terminal(e2b) {
  const s = await sandbox(e2b)
  let output = ''
  const terminal = await s.pty.create({ cols: 80, rows: 24, onData: (data) => (output += new TextDecoder().decode(data)) })
  await s.pty.sendInput(terminal.pid, new TextEncoder().encode('echo $((40 + 2)); exit\n'))
  await terminal.wait()
  assert.match(output, /42/)
}

export async function case_code(e2b) {
  const s = await sandbox(e2b)
  const done = await s.runCode('x = 41\nprint("hi")\nx + 1')
  assert.deepEqual([done.text, done.logs.stdout, done.error], ['42', ['hi\n'], undefined])
  const failed = await s.runCode('1 / 0')
  assert.equal(failed.error.name, 'ZeroDivisionError')
  const context = await s.createCodeContext({ cwd: '/tmp' })
  assert.equal((await s.runCode('import os; os.getcwd()', { context })).text, '/tmp')
}

export async function case_describing(e2b) {
  const s = await sandbox(e2b)
  const found = await s.getInfo()
  assert.deepEqual([found.sandboxId, found.metadata, found.state], [s.sandboxId, { m: '1' }, 'running'])
  assert.equal(await s.isRunning(), true)
  const page = e2b.Sandbox.list({ query: { metadata: { m: '1' } } })
  assert.deepEqual((await page.nextItems()).map((entry) => entry.sandboxId), [s.sandboxId])
  await s.setTimeout(100_000)
  const metrics = await s.getMetrics()
  assert.ok(metrics[0].memTotal > 0)
}

export async function case_a_signed_address(e2b) {
  const s = await sandbox(e2b)
  await s.files.write('s.txt', 'signed')
  assert.equal(await (await fetch(await s.downloadUrl('s.txt'))).text(), 'signed')
}

export async function case_a_port_has_an_address(e2b) {
  if (!process.env.E2B_DOMAIN) return // with one address for everything its name leads nowhere
  const s = await sandbox(e2b)
  await s.files.write('/tmp/web/page', 'served')
  await s.commands.run('python3 -m http.server 8000 -d /tmp/web', { background: true })
  await s.commands.run('until curl -sf localhost:8000/page; do sleep 0.1; done')
  const answer = await fetch(`https://${s.getHost(8000)}/page`)
  assert.deepEqual([answer.status, await answer.text()], [200, 'served'])
  assert.equal((await fetch(`https://${s.getHost(8001)}/`)).status, 502)
}

export async function case_a_killed_sandbox_is_gone(e2b) {
  const s = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
  assert.notEqual(await s.kill(), false) // the older client answers nothing
  assert.equal(await s.isRunning(), false)
  await assert.rejects(s.commands.run('true'))
  await assert.rejects(e2b.Sandbox.create('nothing-like-it'))
}
