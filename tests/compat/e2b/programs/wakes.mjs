// What wakes a sandbox that pauses, and what becomes of a command that runs meanwhile, with the newest JavaScript client.
import assert from 'node:assert/strict'
import https from 'node:https'

const WAKES = { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } }

const asleep = async (s) => {
  assert.equal(await s.pause(), true)
  assert.equal((await s.getInfo()).state, 'paused')
}
const awake = async (s) => {
  const found = await s.getInfo()
  const leftS = (found.endAt.getTime() - Date.now()) / 1000
  assert.deepEqual([found.state, leftS > 40 && leftS <= 60], ['running', true])
}
const page = (s, port, headers = {}) =>
  process.env.E2B_DOMAIN
    ? fetch(`https://${s.getHost(port)}/page`, { headers })
    : fetch(`${process.env.E2B_SANDBOX_URL}/page`, {
        headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': String(port), ...headers },
      })
const serve = async (s) => {
  await s.files.write('/tmp/web/page', 'served')
  // Nobody listens to it: a client whose stream is cut asks for the sandbox's health, and that wakes it, too.
  await s.commands.run('setsid python3 -m http.server 8000 -d /tmp/web >/dev/null 2>&1 &')
  await s.commands.run('until curl -sf localhost:8000/page; do sleep 0.1; done')
}

export async function case_code_files_and_commands_wake_a_sandbox(e2b) {
  const s = await e2b.Sandbox.create(WAKES)
  await s.files.write('f', '1')
  await s.runCode('x = 41')
  for (const call of [
    async () => assert.equal((await s.runCode('x + 1')).text, '42'),
    async () => assert.equal(await s.files.read('f'), '1'),
    async () => assert.equal((await s.commands.run('echo hi')).stdout, 'hi\n'),
  ]) {
    await asleep(s)
    await call()
    await awake(s)
  }
  await s.kill()
}

export async function case_a_port_wakes_a_sandbox(e2b) {
  const s = await e2b.Sandbox.create('base', WAKES)
  await serve(s)
  await asleep(s)
  const answer = await page(s, 8000)
  assert.deepEqual([answer.status, await answer.text()], [200, 'served'])
  await awake(s)
  await s.kill()
}

export async function case_a_command_goes_on_after_a_pause(e2b) {
  const s = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
  const command = await s.commands.run('until [ -e /tmp/go ]; do sleep 0.1; done; echo ended; exit 3', { background: true })
  const waited = assert.rejects(command.wait(), (error) => error instanceof e2b.TimeoutError)
  await asleep(s)
  await waited
  const again = await e2b.Sandbox.connect(s.sandboxId, { timeoutMs: 60_000 })
  const joined = await again.commands.connect(command.pid)
  await again.files.write('/tmp/go', '')
  await assert.rejects(joined.wait(), (error) => error.exitCode === 3 && error.stdout === 'ended\n')
  await again.kill()
}

export async function case_a_private_sandbox_opens_for_its_token(e2b) {
  const s = await e2b.Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: false } })
  assert.equal((await s.runCode('40 + 2')).text, '42')
  await serve(s)
  assert.equal((await page(s, 8000)).status, 403)
  assert.equal((await page(s, 8000, { 'e2b-traffic-access-token': s.trafficAccessToken })).status, 200)
  await s.kill()
}

const KEY = Buffer.alloc(16).toString('base64')
const ECHO = `
import base64, hashlib, socket
server = socket.create_server(("0.0.0.0", 8100))
client, _ = server.accept()
head = b""
while b"\\r\\n\\r\\n" not in head:
    head += client.recv(4096)
key = next(line.split(b": ")[1] for line in head.split(b"\\r\\n") if line.lower().startswith(b"sec-websocket-key"))
accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
client.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
               b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n\\x81\\x05hello")
print("said", flush=True)
client.recv(4096)
`

export async function case_a_websocket_by_its_name(e2b) {
  if (!process.env.E2B_DOMAIN) return // with one address for everything its name leads nowhere
  const s = await e2b.Sandbox.create('base', { timeoutMs: 60_000 })
  await s.files.write('/tmp/echo.py', ECHO)
  await s.commands.run('python3 /tmp/echo.py', { background: true })
  await s.commands.run("until grep -q ' 00000000:1FA4 .* 0A ' /proc/net/tcp; do sleep 0.1; done")
  const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': KEY }
  const said = await new Promise((done, fail) => {
    const asked = https.get(`https://${s.getHost(8100)}/`, { headers })
    asked.on('upgrade', (answer, socket, first) => {
      const whole = (data) => data.length > 6 && (socket.destroy(), done(data))
      if (!whole(first)) socket.once('data', (data) => whole(Buffer.concat([first, data])))
    })
    asked.on('response', (answer) => fail(new Error(`no WebSocket: ${answer.statusCode}`)))
    asked.on('error', fail)
  })
  assert.deepEqual(said, Buffer.from('\x81\x05hello', 'latin1'))
  await s.kill()
}
