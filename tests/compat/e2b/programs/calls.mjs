// Methods and options of JavaScript clients of any age, one by one.
import assert from 'node:assert/strict'

const HOUR = 3_600_000
const until = async (holds) => {
  for (let n = 0; n < 1000; n++) {
    const answer = await holds()
    if (answer) return answer
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.fail('it did not happen in time')
}
const isNew = (e2b) => e2b.Volume !== undefined
const seen = async () => (await (await fetch(process.env.PROXY + '/seen')).text()).split('\n').length

export async function case_a_sandbox_is_made_with_every_option(e2b) {
  const { Sandbox } = e2b
  const options = { timeoutMs: 100_000, metadata: { a: '1' }, envs: { B: '2' }, secure: true, allowInternetAccess: false }
  const s = await Sandbox.create('base', options)
  assert.equal((await s.commands.run('echo $B')).stdout, '2\n')
  assert.deepEqual((await Sandbox.getInfo(s.sandboxId)).metadata, { a: '1' })
  assert.equal((await Sandbox.getFullInfo(s.sandboxId)).sandboxId, s.sandboxId)
  assert.equal((await s.getInfo()).sandboxId, s.sandboxId)
  assert.equal((await s.commands.run('curl -sm 5 http://192.0.2.1 || echo closed')).stdout, 'closed\n')
  assert.equal(await s.isRunning(), true)
  await s.setTimeout(200_000)
  await Sandbox.setTimeout(s.sandboxId, 300_000)
  const left = async () => (await s.getInfo()).endAt - Date.now()
  assert.ok((await left()) > 200_000 && (await left()) <= 300_000)
  const again = await Sandbox.connect(s.sandboxId, { timeoutMs: 310_000 })
  // The older client declares options here that it does not use.
  await again.connect(isNew(e2b) ? { timeoutMs: 320_000, onResume: 'restore' } : { ...options, autoPause: false, mcp: {}, timeoutMs: 320_000 })
  assert.ok((await left()) > 310_000)
  assert.ok(s.getHost(8000).startsWith(`8000-${s.sandboxId}.`))
  await s.kill()
  assert.equal(await Sandbox.kill(s.sandboxId), false)
}

export async function case_metrics_have_a_range(e2b) {
  const { Sandbox } = e2b
  const s = await Sandbox.create('base', { timeoutMs: 100_000 })
  const [before, after] = [new Date(Date.now() - HOUR), new Date(Date.now() + HOUR)]
  await until(async () => (await s.getMetrics()).length)
  assert.ok((await s.getMetrics({ start: before, end: after })).length)
  assert.ok((await Sandbox.getMetrics(s.sandboxId, { start: before, end: after })).length)
  if (isNew(e2b)) { // the older client takes a range and does not send it
    assert.deepEqual(await s.getMetrics({ end: before }), [])
    assert.deepEqual(await Sandbox.getMetrics(s.sandboxId, { start: after }), [])
  }
  await s.kill()
}

export async function case_lists_have_pages({ Sandbox }) {
  const metadata = { pages: 'js' }
  const made = []
  for (let n = 0; n < 2; n++) made.push(await Sandbox.create('base', { timeoutMs: 100_000, metadata }))
  const query = { metadata, state: ['running'] }
  const pages = Sandbox.list({ query, limit: 1 })
  const first = await pages.nextItems()
  const rest = Sandbox.list({ query, limit: 1, nextToken: pages.nextToken })
  const found = [...first, ...(await rest.nextItems())].map((entry) => entry.sandboxId)
  assert.deepEqual(found.sort(), made.map((s) => s.sandboxId).sort())
  assert.equal(rest.hasNext, false)
  for (const s of made) await s.kill()
}

export async function case_a_sandbox_sleeps(e2b) {
  const { Sandbox } = e2b
  const options = { timeoutMs: 100_000, metadata: { s: '1' }, envs: { B: '2' }, secure: true, allowInternetAccess: false }
  const s = isNew(e2b) ? await Sandbox.create('base', options) : await Sandbox.betaCreate('base', { ...options, autoPause: true })
  await s.betaPause(isNew(e2b) ? { keepMemory: true } : {})
  assert.equal((await Sandbox.getInfo(s.sandboxId)).state, 'paused')
  assert.equal(await s.isRunning(), false)
  await s.connect({ timeoutMs: 100_000 })
  assert.equal((await s.commands.run('echo $B')).stdout, '2\n')
  await Sandbox.betaPause(s.sandboxId, isNew(e2b) ? { keepMemory: false } : {})
  await s.kill()
}

export async function case_there_is_no_gateway_for_tools(e2b) {
  const makers = isNew(e2b) ? ['create'] : ['create', 'betaCreate']
  for (const make of makers) await assert.rejects(e2b.Sandbox[make]({ mcp: { time: {} } }), /does not have that/)
  const s = await e2b.Sandbox.create('base', { timeoutMs: 100_000 })
  assert.ok(s.getMcpUrl().startsWith(`https://50005-${s.sandboxId}.`))
  await assert.rejects(s.getMcpToken(), (error) => /NotFoundError/.test(error.name))
  await s.kill()
}

export async function case_addresses_are_signed_for_a_user({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: 100_000 })
  await s.files.write('/root/f', "root's", { user: 'root' })
  const options = { user: 'root', useSignatureExpiration: 60 }
  assert.equal(await (await fetch(await s.downloadUrl('/root/f', options))).text(), "root's")
  const form = new FormData()
  form.append('file', new Blob(['up']), 'u')
  assert.equal((await fetch(await s.uploadUrl('/root/g', options), { method: 'POST', body: form })).status, 200)
  assert.equal(await s.files.read('/root/g', { user: 'root' }), 'up')
  const late = await fetch(await s.downloadUrl('/root/f', { user: 'root', useSignatureExpiration: -60 }))
  assert.deepEqual([late.status, (await late.json()).message], [401, 'signature is already expired'])
  await s.kill()
}

export async function case_commands_have_every_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: 100_000 })
  let out = ''
  let err = ''
  const listen = { onStdout: (data) => (out += data), onStderr: (data) => (err += data) }
  const options = { envs: { A: '1' }, cwd: '/tmp', user: 'root', timeoutMs: 30_000, ...listen }
  const done = await s.commands.run('echo $A; pwd; whoami; echo e >&2', options)
  assert.deepEqual([done.stdout, out, done.stderr, err], ['1\n/tmp\nroot\n', '1\n/tmp\nroot\n', 'e\n', 'e\n'])
  const running = await s.commands.run('cat', { background: true, stdin: true })
  assert.ok((await s.commands.list()).some((entry) => entry.pid === running.pid))
  out = ''
  const joined = await s.commands.connect(running.pid, { timeoutMs: 30_000, ...listen })
  await s.commands.sendStdin(running.pid, 'typed\n')
  await until(() => out === 'typed\n')
  assert.equal(await s.commands.kill(running.pid), true)
  await assert.rejects(joined.wait(), (error) => error.name === 'CommandExitError' && error.error === 'signal: killed')
  assert.equal(await s.commands.kill(running.pid), false)
  await assert.rejects(running.wait())
  const left = await s.commands.run('sleep 100', { background: true })
  await left.disconnect()
  const again = await s.commands.connect(left.pid)
  assert.equal(await again.kill(), true)
  await until(async () => !(await s.commands.list()).length)
  await assert.rejects(s.commands.run('sleep 30', { timeoutMs: 300 }), (error) => error.name === 'TimeoutError')
  await s.kill()
}

export async function case_terminals_have_every_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: 100_000 })
  let output = ''
  const onData = (data) => (output += new TextDecoder().decode(data))
  const options = { cols: 70, rows: 20, user: 'root', cwd: '/tmp', envs: { WHO: 'me' }, timeoutMs: 30_000, onData }
  const terminal = await s.pty.create(options)
  await s.pty.resize(terminal.pid, { cols: 101, rows: 31 })
  await s.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; echo $WHO-$(whoami)-$(pwd); exit\n'))
  await terminal.wait()
  assert.match(output, /31 101[^]*me-root-\/tmp/)
  const other = await s.pty.create({ cols: 70, rows: 20, onData })
  assert.equal(await s.pty.kill(other.pid), true)
  await assert.rejects(other.wait())
  assert.equal(await s.pty.kill(other.pid), false)
  await s.kill()
}

export async function case_files_have_every_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: 100_000 })
  const user = 'root'
  assert.equal(await s.files.makeDir('/root/d/e', { user }), true)
  await s.files.write('/root/d/one', '1', { user })
  await s.files.write([{ path: '/root/d/two', data: new Blob(['2']) }], { user })
  assert.equal(await s.files.read('/root/d/one', { user, format: 'text' }), '1')
  assert.equal(await (await s.files.read('/root/d/two', { user, format: 'blob' })).text(), '2')
  assert.equal(await s.files.exists('/root/d/one', { user }), true)
  assert.equal((await s.files.getInfo('/root/d/one', { user })).size, 1)
  const deep = (await s.files.list('/root', { depth: 2, user })).map((entry) => entry.path)
  for (const path of ['/root/d', '/root/d/e', '/root/d/one', '/root/d/two']) assert.ok(deep.includes(path))
  assert.equal((await s.files.rename('/root/d/one', '/root/d/three', { user })).name, 'three')
  await s.files.remove('/root/d/three', { user })
  assert.equal(await s.files.exists('/root/d/three', { user }), false)
  const events = []
  const ends = []
  const options = { user, recursive: true, timeoutMs: 0, onExit: (error) => ends.push(error) }
  await s.files.watchDir('/root/d', (event) => events.push(event), options)
  await s.files.write('/root/d/e/f', '1', { user })
  await until(() => events.length)
  assert.equal(events[0].name, 'e/f')
  await s.kill()
  await until(() => ends.length) // what was watched is gone
}

export async function case_code_has_every_option({ Sandbox }) {
  const s = await Sandbox.create({ timeoutMs: 100_000 })
  const found = { out: [], err: [], result: [], error: [] }
  const listen = {
    onStdout: (message) => found.out.push(message.line),
    onStderr: (message) => found.err.push(message.line),
    onResult: (result) => found.result.push(result.text),
    onError: (error) => found.error.push(error.name),
  }
  const code = 'import os, sys\nprint(os.environ["Q"])\nprint("e", file=sys.stderr)\n41 + 1'
  await s.runCode(code, { envs: { Q: '7' }, timeoutMs: 60_000, ...listen })
  await s.runCode('1 / 0', listen)
  assert.deepEqual(found, { out: ['7\n'], err: ['e\n'], result: ['42'], error: ['ZeroDivisionError'] })
  assert.deepEqual((await s.runCode('echo $((40 + 2))', { language: 'bash' })).logs.stdout, ['42\n'])
  const context = await s.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.equal((await s.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  await assert.rejects(s.runCode('1', { context, language: 'python' }))
  await s.kill()
}

export async function case_a_connection_has_every_option(e2b) {
  const domain = process.env.E2B_DOMAIN ?? 'sandboxes.test'
  const options = {
    apiKey: process.env.E2B_API_KEY, domain, apiUrl: process.env.E2B_API_URL ?? `https://api.${domain}`,
    requestTimeoutMs: 30_000, headers: { 'X-Own': '1' }, logger: { debug: () => {}, info: () => {} },
    ...(isNew(e2b) ? {
      apiHeaders: { 'X-Api': '1' }, retries: 1, validateApiKey: true, sandboxUrl: process.env.E2B_SANDBOX_URL,
    } : { accessToken: process.env.E2B_API_KEY }),
  }
  const s = await e2b.Sandbox.create('base', { timeoutMs: 100_000, ...options })
  assert.equal((await s.commands.run('echo 1', { requestTimeoutMs: 20_000 })).stdout, '1\n')
  if (isNew(e2b)) {
    const before = await seen()
    const through = await e2b.Sandbox.connect(s.sandboxId, { ...options, proxy: process.env.PROXY_URL })
    assert.equal((await through.commands.run('echo 2')).stdout, '2\n')
    await through.files.write('f', '3')
    assert.equal(await through.files.read('f'), '3')
    assert.ok((await seen()) > before)
    const closed = process.env.PROXY_URL.replace('ada:word', 'ada:wrong')
    await assert.rejects(e2b.Sandbox.getInfo(s.sandboxId, { ...options, proxy: closed }))
  }
  await s.kill()
}

export async function case_templates_are_described_and_not_built(e2b) {
  const { Template } = e2b
  const template = Template().fromImage('python').runCmd('true')
  assert.match(Template.toDockerfile(template), /RUN true/)
  assert.match(await Template.toJSON(template), /python/)
  const options = { cpuCount: 1, memoryMB: 512, skipCache: true, onBuildLogs: () => {} }
  const more = isNew(e2b) ? { tags: ['v1'], minFreeDiskMb: 100 } : {}
  for (const build of ['build', 'buildInBackground']) {
    await assert.rejects(Template[build](template, { alias: 'mine', ...options, ...more }), /cannot be built/)
  }
  const status = Template.getBuildStatus({ templateId: 'base', buildId: 'b' }, { logsOffset: 1 })
  await assert.rejects(status, /cannot be built/)
}
