// What the newest JavaScript client has beside the rest: states, copies, lists, git, handles, connections, refusals.
import assert from 'node:assert/strict'

let box
const sandbox = async (e2b) =>
  (box ??= await e2b.Sandbox.create('base', { timeoutMs: 200_000, metadata: { js: 'options' }, secure: true }))

export const close = async () => box?.kill()

export async function case_pausing_and_waking(e2b) {
  const s = await e2b.Sandbox.create('base', { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  await s.files.write('kept', '1')
  assert.equal(await s.pause(), true)
  assert.equal(await s.pause({ keepMemory: true }), false)
  assert.equal((await s.getInfo()).state, 'paused')
  const woken = await e2b.Sandbox.connect(s.sandboxId, { timeoutMs: 60_000, onResume: 'reboot' })
  assert.equal(await woken.files.read('kept'), '1')
  assert.equal(await e2b.Sandbox.kill(s.sandboxId), true)
  assert.equal(await e2b.Sandbox.kill(s.sandboxId), false)
}

export async function case_a_timeout_of_nothing_does_what_the_deadline_would(e2b) {
  const s = await e2b.Sandbox.create('base', { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause' } })
  await s.setTimeout(0)
  assert.equal((await s.getInfo()).state, 'paused')
  await assert.rejects(s.setTimeout(0), (error) => error.name === 'SandboxNotFoundError')
  assert.equal(await s.kill(), true)
  const other = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
  await other.setTimeout(0)
  assert.equal(await other.kill(), false)
}

export async function case_copies_and_snapshots(e2b) {
  const s = await sandbox(e2b)
  await s.files.write('copied', 'yes')
  const made = await s.fork({ count: 2, timeoutMs: 60_000 })
  assert.equal(made.length, 2)
  for (const one of made) {
    const copy = one.sandbox ?? one
    assert.equal(await copy.files.read('copied'), 'yes')
    await copy.kill()
  }
  const taken = await s.createSnapshot({ name: 'js-options' })
  const listed = await s.listSnapshots({ limit: 1, name: 'js-options' }).nextItems()
  assert.deepEqual(listed.map((entry) => entry.snapshotId), [taken.snapshotId])
  const from = await e2b.Sandbox.create(taken.snapshotId, { timeoutMs: 60_000 })
  assert.equal(await from.files.read('copied'), 'yes')
  await from.kill()
  assert.equal(await e2b.Sandbox.deleteSnapshot(taken.snapshotId), true)
}

export async function case_lists_are_filtered_and_ordered(e2b) {
  const s = await sandbox(e2b)
  const listed = async (query) =>
    (await e2b.Sandbox.list({ query: { metadata: { js: 'options' }, ...query }, order: 'asc', limit: 5 }).nextItems()).map(
      (entry) => entry.sandboxId
    )
  assert.deepEqual(await listed({ state: ['running'], template: 'base' }), [s.sandboxId])
  assert.deepEqual(await listed({ state: ['paused'] }), [])
  assert.deepEqual(await listed({ startedAfter: new Date(Date.now() + 1000) }), [])
}

export async function case_a_network_is_changed(e2b) {
  const s = await sandbox(e2b)
  await s.updateNetwork({ denyOut: ['192.0.2.0/24'] })
  assert.deepEqual((await s.getInfo()).network.denyOut, ['192.0.2.0/24'])
  await s.updateNetwork({ allowInternetAccess: false })
  await s.updateNetwork({})
}

export async function case_handles_take_input(e2b) {
  const s = await sandbox(e2b)
  const started = await s.commands.run('read x; echo got $x; pwd; whoami', {
    background: true, stdin: true, cwd: '/tmp', user: 'root', envs: { A: '1' }, timeoutMs: 20_000,
  })
  let out = ''
  const joined = await s.commands.connect(started.pid, { onStdout: (data) => (out += data) })
  await s.commands.sendStdin(started.pid, 'it\n')
  await s.commands.closeStdin(started.pid)
  assert.equal((await started.wait()).stdout, 'got it\n/tmp\nroot\n')
  await joined.wait()
  assert.equal(out, 'got it\n/tmp\nroot\n')
  assert.equal(await started.kill(), false)
  const terminal = await s.pty.create({ cols: 80, rows: 24, cwd: '/tmp', envs: { WHO: 'me' }, onData: () => {} })
  let output = ''
  const other = await s.pty.connect(terminal.pid, { onData: (data) => (output += new TextDecoder().decode(data)) })
  await s.pty.resize(terminal.pid, { cols: 101, rows: 31 })
  await s.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; echo $WHO-; exit\n'))
  await other.wait()
  assert.match(output, /31 101[^]*me-/)
  assert.equal(await s.pty.kill(terminal.pid), false)
}

export async function case_files_have_options(e2b) {
  const s = await sandbox(e2b)
  const big = 'x'.repeat(300_000)
  await s.files.write('zipped', big, { gzip: true, useOctetStream: true, metadata: { kind: 'test' } })
  assert.equal(await s.files.read('zipped', { gzip: true }), big)
  const found = await s.files.getInfo('zipped')
  assert.deepEqual([found.size, found.metadata], [big.length, { kind: 'test' }])
  const stream = await s.files.read('zipped', { format: 'stream', streamIdleTimeoutMs: 20_000 })
  assert.equal((await new Response(stream).text()).length, big.length)
  assert.equal(await (await s.files.read('zipped', { format: 'blob' })).text(), big)
  await s.files.writeFiles([{ path: '/root/a', data: '1' }], { user: 'root' })
  assert.equal(await s.files.read('/root/a', { user: 'root' }), '1')
  await s.files.makeDir('deep/er')
  assert.deepEqual((await s.files.list('deep', { depth: 2 })).map((entry) => entry.name), ['er'])
  const seen = []
  const options = { recursive: true, includeEntry: true, timeoutMs: 0, allowNetworkMounts: true }
  const handle = await s.files.watchDir('deep', (event) => seen.push(event), options)
  await s.files.write('deep/er/f', '1')
  for (let n = 0; n < 500 && !seen.length; n++) await new Promise((done) => setTimeout(done, 20))
  assert.equal(seen[0].name, 'er/f')
  await handle.stop()
}

export async function case_git(e2b) {
  const s = await sandbox(e2b)
  await s.git.init('/home/user/repo', { initialBranch: 'main' })
  await s.files.write('repo/a', '1')
  await s.git.add('/home/user/repo', { all: true })
  await s.git.commit('/home/user/repo', 'first', { authorName: 'Ada', authorEmail: 'ada@example.com' })
  await s.git.createBranch('/home/user/repo', 'side')
  assert.equal((await s.git.branches('/home/user/repo')).currentBranch, 'side')
  await s.git.clone('/home/user/repo', { path: '/home/user/copy', branch: 'main', depth: 1 })
  assert.equal(await s.files.read('copy/a'), '1')
}

export async function case_code_has_options(e2b) {
  const s = await e2b.Sandbox.create({ timeoutMs: 60_000 })
  const seen = []
  const note = (kind) => (value) => seen.push(kind)
  const options = { envs: { Q: '7' }, timeoutMs: 20_000, onStdout: note('out'), onStderr: note('err'), onResult: note('result') }
  const done = await s.runCode('import os, sys\nprint(os.environ["Q"])\nprint("e", file=sys.stderr)\n1', options)
  assert.deepEqual([done.logs.stdout, done.text, seen.sort()], [['7\n'], '1', ['err', 'out', 'result']])
  let error
  await s.runCode('1 / 0', { onError: (value) => (error = value.name) })
  assert.equal(error, 'ZeroDivisionError')
  assert.equal((await s.runCode('const x = 41; x + 1', { language: 'js' })).text, '42')
  const context = await s.createCodeContext({ language: 'python' })
  await s.runCode('y = 1', { context })
  await s.restartCodeContext(context)
  assert.equal((await s.runCode('y', { context })).error.name, 'NameError')
  assert.ok((await s.listCodeContexts()).some((entry) => entry.id === context.id))
  await s.removeCodeContext(context)
  await assert.rejects(s.runCode('while True: pass', { timeoutMs: 500 }))
  await s.kill()
}

const CHARTS = `
import matplotlib.pyplot as plt
plt.figure(); plt.scatter([1, 2], [3, 4], label='s'); plt.show()
plt.figure(); plt.bar(['a', 'b'], [1, 2]); plt.show()
plt.figure(); plt.pie([1, 3], labels=['a', 'b']); plt.show()
plt.figure(); plt.boxplot([[1, 2, 3], [2, 3, 9]]); plt.show()
fig, (one, two) = plt.subplots(1, 2); one.plot([1], [2]); two.bar(['a'], [1]); plt.show()
`

export async function case_charts_of_every_kind(e2b) {
  const s = await e2b.Sandbox.create({ timeoutMs: 60_000 })
  const charts = (await s.runCode(CHARTS)).results.map((result) => result.chart)
  assert.deepEqual(charts.map((chart) => chart.type), ['scatter', 'bar', 'pie', 'box_and_whisker', 'superchart'])
  const [scatter, bar, pie, box, several] = charts
  assert.deepEqual(scatter.elements[0].points, [[1, 3], [2, 4]])
  assert.deepEqual(bar.elements.map((entry) => entry.label), ['a', 'b'])
  assert.deepEqual(pie.elements.map((entry) => Math.round(entry.angle)), [90, 270])
  assert.deepEqual(box.elements.map((entry) => entry.median), [2, 3])
  assert.deepEqual(several.elements.map((entry) => entry.type), ['line', 'bar'])
  await s.kill()
}

export async function case_a_private_sandbox(e2b) {
  const s = await e2b.Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: false } })
  assert.equal((await s.runCode('1 + 1')).text, '2')
  const context = await s.createCodeContext({ cwd: '/tmp' })
  assert.equal((await s.runCode('x = 3; x', { context })).text, '3')
  assert.ok((await s.listCodeContexts()).some((entry) => entry.id === context.id))
  await s.restartCodeContext(context)
  await s.removeCodeContext(context)
  await s.kill()
}

export async function case_addresses_are_signed(e2b) {
  const s = await sandbox(e2b)
  const form = new FormData()
  form.append('file', new Blob(['up']), 'u')
  const address = await s.uploadUrl('up.txt', { useSignatureExpiration: 60 })
  assert.equal((await fetch(address, { method: 'POST', body: form })).status, 200)
  const down = await s.downloadUrl('up.txt', { useSignatureExpiration: 60, user: 'user' })
  assert.equal(await (await fetch(down)).text(), 'up')
  assert.equal((await fetch(down + '0')).status, 401)
}

export async function case_connections_have_options(e2b) {
  const s = await sandbox(e2b)
  const options = { headers: { 'X-Own': '1' }, apiHeaders: { 'X-Api': '1' }, retries: 1, requestTimeoutMs: 20_000 }
  assert.equal((await e2b.Sandbox.getInfo(s.sandboxId, options)).sandboxId, s.sandboxId)
  const bound = new e2b.E2B({ apiKey: process.env.E2B_API_KEY, apiUrl: process.env.E2B_API_URL })
  assert.equal(await bound.Template.exists('base'), true)
  await assert.rejects(e2b.Sandbox.getInfo('sbnothing'), (error) => error.name === 'SandboxNotFoundError')
  await assert.rejects(e2b.Sandbox.getInfo(s.sandboxId, { apiKey: 'e2b_' + '0'.repeat(64) }), /AuthenticationError/)
}

export async function case_what_cannot_be_is_refused_in_words(e2b) {
  for (const options of [
    { network: { egressProxy: { address: '192.0.2.1:1080' } } },
    { network: { httpsPorts: [8443] } },
    { iam: { tokens: { t: { audience: 'a', tokenType: 'JWT-SVID' } } } },
  ])
    await assert.rejects(e2b.Sandbox.create('base', options), /this server does not have that/)
  const template = e2b.Template().fromBaseImage()
  await assert.rejects(e2b.Template.build(template, 'mine'), /cannot be built/)
  await assert.rejects(e2b.Template.assignTags('base:default', 'mine'), /cannot be built/)
}
