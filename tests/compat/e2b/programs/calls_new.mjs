// Methods and options that only the newest JavaScript package has.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

const REFUSED = /this server does not have that/
const named = (name) => (error) => error.name === name
const LONG = 100_000

export async function case_states_have_every_option({ Sandbox }) {
  const lifecycle = { onTimeout: { action: 'pause', keepMemory: true }, autoResume: true }
  const s = await Sandbox.create({ template: 'base', timeoutMs: LONG, lifecycle })
  await s.files.write('/dev/shm/f', 'memory', { user: 'root' })
  assert.equal(await s.pause({ keepMemory: true }), true)
  await s.connect({ timeoutMs: LONG, onResume: 'restore' })
  assert.equal(await s.files.read('/dev/shm/f', { user: 'root' }), 'memory')
  assert.equal(await Sandbox.pause(s.sandboxId, { keepMemory: false }), true)
  assert.equal(await Sandbox.pause(s.sandboxId), false)
  const woken = await Sandbox.connect(s.sandboxId, { timeoutMs: LONG, onResume: 'reboot' })
  assert.equal(await woken.files.exists('/dev/shm/f', { user: 'root' }), false)
  await s.kill()
  await assert.rejects(s.pause(), named('SandboxNotFoundError'))
  await assert.rejects(Sandbox.connect(s.sandboxId), named('SandboxNotFoundError'))
}

export async function case_copies_and_snapshots_have_every_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const copies = [...(await Sandbox.fork(s.sandboxId, { count: 2, timeoutMs: 90_000 })), ...(await s.fork())]
  assert.equal(new Set(copies.map((copy) => copy.sandboxId)).size, 3)
  for (const copy of copies) await copy.kill()
  const one = (await Sandbox.createSnapshot(s.sandboxId, { name: 'js-one' })).snapshotId
  const two = (await s.createSnapshot({ name: 'js-two' })).snapshotId
  const ids = (entries) => entries.map((entry) => entry.snapshotId)
  const pages = Sandbox.listSnapshots({ sandboxId: s.sandboxId, limit: 1 })
  const first = await pages.nextItems()
  const rest = Sandbox.listSnapshots({ sandboxId: s.sandboxId, limit: 1, nextToken: pages.nextToken })
  assert.deepEqual(ids([...first, ...(await rest.nextItems())]).sort(), [one, two].sort())
  const mine = s.listSnapshots({ limit: 1 })
  const begin = await mine.nextItems()
  const end = await s.listSnapshots({ limit: 1, nextToken: mine.nextToken }).nextItems()
  assert.deepEqual(ids([...begin, ...end]).sort(), [one, two].sort())
  assert.deepEqual(ids(await Sandbox.listSnapshots({ name: 'js-one' }).nextItems()), [one])
  for (const taken of [one, two]) assert.equal(await Sandbox.deleteSnapshot(taken), true)
  assert.equal(await Sandbox.deleteSnapshot(one), false)
  await s.kill()
}

export async function case_lists_have_every_option({ Sandbox }) {
  const metadata = { listed: 'js' }
  const made = []
  for (let n = 0; n < 3; n++) made.push(await Sandbox.create('base', { timeoutMs: LONG, metadata }))
  const query = { metadata, template: 'base', startedAfter: (await made[0].getInfo()).startedAt }
  const pages = Sandbox.list({ query, order: 'asc', limit: 1 })
  const seen = await pages.nextItems()
  await made[0].kill() // what goes meanwhile hides nothing that stays
  while (pages.hasNext) seen.push(...(await pages.nextItems()))
  assert.deepEqual(seen.map((entry) => entry.sandboxId), made.map((s) => s.sandboxId))
  for (const s of made.slice(1)) await s.kill()
}

export async function case_a_network_has_every_option({ Sandbox, Volume }) {
  const volume = await Volume.create('js-mounted')
  const rules = { 'example.com': [{ transform: { headers: { 'X-Team': 'blue' } } }] }
  const network = {
    allowOut: ['192.0.2.7', 'example.com'], denyOut: ({ allTraffic }) => [allTraffic], rules,
    allowPublicTraffic: false, maskRequestHost: 'app.example:${PORT}',
  }
  const s = await Sandbox.create('base', { timeoutMs: LONG, network, volumeMounts: { '/data': volume } })
  assert.ok(s.trafficAccessToken)
  const found = await s.getInfo()
  assert.deepEqual([found.network.allowOut, found.network.allowPublicTraffic], [['192.0.2.7', 'example.com'], false])
  assert.deepEqual(found.volumeMounts, [{ name: 'js-mounted', path: '/data' }])
  const changes = { allowOut: ['192.0.2.8'], denyOut: ['192.0.2.0/24'], rules }
  await s.updateNetwork(changes)
  assert.equal((await s.getInfo()).allowInternetAccess, true)
  await Sandbox.updateNetwork(s.sandboxId, { ...changes, allowInternetAccess: false })
  assert.equal((await s.getInfo()).allowInternetAccess, false)
  await s.kill()
  await Volume.destroy(volume.volumeId)
  await assert.rejects(Sandbox.updateNetwork(s.sandboxId, {}), named('SandboxNotFoundError'))
}

export async function case_what_cannot_be_is_refused_in_words({ Sandbox, Secret, Template }) {
  const metadata = { refused: 'js' }
  const s = await Sandbox.create('base', { timeoutMs: LONG, metadata })
  const egressProxy = { address: '192.0.2.1:1080', username: 'a', password: 'b' }
  const token = Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' })
  for (const options of [
    { network: { egressProxy } }, { network: { httpsPorts: [8443] } }, { iam: { tokens: { t: token } } }, { mcp: { time: {} } },
  ])
    await assert.rejects(Sandbox.create('base', { metadata, ...options }), REFUSED)
  await assert.rejects(s.updateNetwork({ egressProxy }), REFUSED)
  await assert.rejects(Sandbox.updateNetwork(s.sandboxId, { egressProxy }), REFUSED)
  assert.equal((await Sandbox.list({ query: { metadata } }).nextItems()).length, 1) // what is refused leaves nothing
  await s.kill()
  const template = Template().fromBaseImage()
  const options = { cpuCount: 1, memoryMB: 512, skipCache: true, tags: ['v1'], minFreeDiskMb: 100, onBuildLogs: () => {} }
  for (const build of ['build', 'buildInBackground'])
    await assert.rejects(Template[build](template, 'mine', options), /cannot be built/)
  await assert.rejects(Template.assignTags('base', 'mine'), /cannot be built/)
  await assert.rejects(Template.removeTags('base', 'mine'), /cannot be built/)
}

export async function case_templates_have_names({ Template }) {
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.aliasExists('code-interpreter-v1'), true)
  assert.equal(await Template.aliasExists('nothing-like-it'), false)
  assert.deepEqual((await Template.getTags('base')).map((tag) => tag.tag), ['default'])
}

export async function case_handles_take_input({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const running = await s.commands.run('cat', { background: true, stdin: true })
  await running.sendStdin('one\n')
  await running.closeStdin()
  assert.equal((await running.wait()).stdout, 'one\n')
  const other = await s.commands.run('cat', { background: true, stdin: true })
  await s.commands.closeStdin(other.pid)
  await other.wait()
  const terminal = await s.pty.create({ cols: 70, rows: 20, onData: () => {} })
  const joined = await s.pty.connect(terminal.pid, { timeoutMs: 30_000, onData: () => {} })
  await s.pty.sendInput(terminal.pid, new TextEncoder().encode('exit\n'))
  await joined.wait()
  await s.kill()
}

export async function case_files_have_every_new_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const options = { gzip: true, useOctetStream: true, metadata: { kind: 'test' }, user: 'root' }
  const big = '0123456789'.repeat(50_000)
  await s.files.write('/root/one', big, options)
  await s.files.writeFiles([{ path: '/root/two', data: big }], options)
  for (const path of ['/root/one', '/root/two']) {
    assert.deepEqual((await s.files.getInfo(path, { user: 'root' })).metadata, { kind: 'test' })
    assert.equal(await s.files.read(path, { user: 'root', gzip: true }), big)
  }
  const stream = await s.files.read('/root/one', { user: 'root', format: 'stream', streamIdleTimeoutMs: 30_000 })
  assert.equal(await new Response(stream).text(), big)
  await s.kill()
}

export async function case_git_has_every_option({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const { git, files } = s
  const every = { envs: { LANG: 'C' }, user: 'user', cwd: '/home/user', timeoutMs: 60_000 }
  const path = '/home/user/r'
  await git.init(path, { bare: false, initialBranch: 'main', ...every })
  const place = { scope: 'local', path, ...every }
  await git.configureUser('Ada', 'ada@example.com', place)
  await git.setConfig('core.editor', 'true', place)
  assert.equal(await git.getConfig('core.editor', place), 'true')
  await files.write('r/a', '1')
  await files.write('r/b', '1')
  await git.add(path, { files: ['a'], ...every })
  assert.deepEqual((await git.status(path, every)).fileStatus.map((entry) => entry.name).sort(), ['a', 'b'])
  await git.add(path, { all: true, ...every })
  await git.commit(path, 'first', { authorName: 'Ada', authorEmail: 'ada@example.com', ...every })
  await git.commit(path, 'empty', { allowEmpty: true, ...every })
  await files.write('r/a', '2')
  await git.add(path, every)
  await git.restore(path, { paths: ['a'], staged: true, worktree: true, source: 'HEAD~1', ...every })
  assert.equal(await files.read('r/a'), '1')
  await files.write('r/a', '3')
  await git.add(path)
  await git.reset(path, { paths: ['a'], ...every })
  assert.equal((await git.status(path)).hasStaged, false)
  await git.reset(path, { mode: 'hard', target: 'HEAD~1', ...every })
  assert.equal(await files.read('r/a'), '1')
  await git.createBranch(path, 'side', every)
  await git.checkoutBranch(path, 'main', every)
  assert.deepEqual((await git.branches(path, every)).branches.sort(), ['main', 'side'])
  await git.deleteBranch(path, 'side', { force: true, ...every })
  await s.kill()
}

export async function case_git_has_passwords({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG })
  const { git, files, commands } = s
  const ada = { authorName: 'Ada', authorEmail: 'ada@example.com' }
  const auth = { username: 'ada', password: 'word' }
  const [near, copy] = ['/home/user/near', '/home/user/copy']
  await git.init('/home/user/served/far.git', { bare: true, initialBranch: 'main' })
  await files.write('serve.py', readFileSync(new URL('gitserver.py', import.meta.url), 'utf8'))
  await commands.run('python3 serve.py 9418 /home/user/served ada word', { background: true })
  await commands.run('until curl -so /dev/null localhost:9418; do sleep 0.05; done')
  const url = 'http://localhost:9418/far.git'
  await git.init(near, { initialBranch: 'main' })
  await git.commit(near, 'one', { allowEmpty: true, ...ada })
  await assert.rejects(git.clone(url, { path: copy }), named('GitAuthError'))
  await assert.rejects(git.clone(url, { path: copy, username: 'ada', password: 'wrong' }), named('GitAuthError'))
  await git.remoteAdd(near, 'origin', url, { overwrite: true })
  const remote = { remote: 'origin', branch: 'main' }
  await assert.rejects(git.push(near, remote), named('GitAuthError'))
  await git.push(near, { setUpstream: false, ...remote, ...auth })
  assert.equal(await git.remoteGet(near, 'origin'), url) // the password is not left behind
  const kept = { path: '/home/user/kept', branch: 'main', depth: 1, dangerouslyStoreCredentials: true }
  await git.clone(url, { ...kept, ...auth })
  assert.match(await files.read('kept/.git/config'), /word/)
  await git.clone(url, { path: copy, ...auth })
  assert.doesNotMatch(await files.read('copy/.git/config'), /word/)
  await git.commit(near, 'two', { allowEmpty: true, ...ada })
  await git.push(near, { ...remote, ...auth })
  await assert.rejects(git.pull(copy, remote), named('GitAuthError'))
  await git.pull(copy, { ...remote, ...auth })
  assert.equal((await commands.run('git log --format=%s', { cwd: copy })).stdout, 'two\none\n')
  await git.dangerouslyAuthenticate({ ...auth, host: 'localhost:9418', protocol: 'http' })
  await git.remoteAdd(near, 'other', url, { fetch: true })
  await git.pull(copy, remote)
  await s.kill()
}

export async function case_volumes_have_every_option({ Volume }) {
  const volume = await Volume.create('js-calls')
  assert.equal((await Volume.getInfo(volume.volumeId)).name, 'js-calls')
  assert.ok((await Volume.list()).some((entry) => entry.volumeId === volume.volumeId))
  const again = await Volume.connect(volume.volumeId)
  const owned = { uid: 7, gid: 8, mode: 0o640 }
  const opts = { token: volume.token }
  const made = await again.makeDir('/d/e', { force: true, ...owned, ...opts })
  assert.deepEqual([made.uid, made.gid, made.mode], [7, 8, 0o640])
  await again.writeFile('/d/f', '1', { force: true, ...owned, ...opts })
  assert.equal((await again.getInfo('/d/f', opts)).gid, 8)
  const changed = await again.updateMetadata('/d/f', { uid: 9, gid: 10, mode: 0o600 }, opts)
  assert.deepEqual([changed.uid, changed.gid, changed.mode], [9, 10, 0o600])
  assert.equal(await again.readFile('/d/f', { format: 'text', ...opts }), '1')
  const stream = await again.readFile('/d/f', { format: 'stream', streamIdleTimeoutMs: 30_000, ...opts })
  assert.equal(await new Response(stream).text(), '1')
  assert.deepEqual((await again.list('/', { depth: 2, ...opts })).map((entry) => entry.path), ['/d', '/d/e', '/d/f'])
  assert.equal(await again.exists('/d/f', opts), true)
  const wrong = again.readFile('/d/f', { token: '0'.repeat(64) })
  await assert.rejects(wrong, named('AuthenticationError'))
  await again.remove('/d', opts)
  assert.equal(await Volume.destroy(volume.volumeId), true)
  assert.equal(await Volume.destroy(volume.volumeId), false)
  await assert.rejects(Volume.getInfo(volume.volumeId), named('VolumeNotFoundError'))
}

export async function case_secrets_have_every_option({ Secret }) {
  const names = ['js-calls-0', 'js-calls-1']
  for (const name of names) await Secret.create(name, 'v', { metadata: { n: name } })
  assert.deepEqual((await Secret.getInfo(names[0])).metadata, { n: names[0] })
  assert.equal((await Secret.update(names[0], 'w', { metadata: { n: '2' } })).version, 2)
  const pages = Secret.list({ limit: 1 })
  const seen = await pages.nextItems()
  seen.push(...(await Secret.list({ limit: 100, nextToken: pages.nextToken }).nextItems()))
  for (const name of names) assert.ok(seen.some((entry) => entry.name === name))
  assert.ok(Secret.fill(names[0]).includes(names[0]))
  for (const name of names) assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(names[0]), false)
  await assert.rejects(Secret.getInfo(names[0]), named('SecretNotFoundError'))
}

// A program that gives up says so by a signal: what waits ends at once, and nothing is left behind.
export async function case_a_signal_ends_what_waits({ Sandbox }) {
  const s = await Sandbox.create('base', { timeoutMs: LONG, signal: new AbortController().signal })
  const aborted = (error) => /abort/i.test(`${error.name} ${error.message} ${error.cause?.name}`)
  for (const call of [
    (signal) => Sandbox.getInfo(s.sandboxId, { signal }),
    (signal) => s.files.read('/etc/hostname', { signal }),
    (signal) => s.files.write('given-up', 'x', { signal }),
    (signal) => s.commands.list({ signal }),
    (signal) => s.commands.run('true', { signal }),
    (signal) => s.setTimeout(LONG, { signal }),
  ])
    await assert.rejects(call(AbortSignal.abort()), aborted)
  const stop = new AbortController()
  const running = s.commands.run('sleep 100', { signal: stop.signal, onStdout: () => {} })
  while (!(await s.commands.list()).length) await new Promise((done) => setTimeout(done, 20))
  stop.abort()
  await assert.rejects(running, aborted)
  const [left] = await s.commands.list() // as with E2B, whoever leaves does not end the command
  assert.equal(await s.commands.kill(left.pid), true)
  const create = new AbortController()
  const making = Sandbox.create('base', { timeoutMs: LONG, signal: create.signal, metadata: { aborted: 'js' } })
  create.abort()
  await assert.rejects(making, aborted)
  const query = { metadata: { aborted: 'js' } }
  let quiet = 0 // nothing appears later either: the server undoes what nobody waits for
  for (let n = 0; n < 500 && quiet < 10; n++) {
    quiet = (await Sandbox.list({ query }).nextItems()).length ? 0 : quiet + 1
    await new Promise((done) => setTimeout(done, 20))
  }
  assert.equal(quiet, 10)
  await s.kill()
}
