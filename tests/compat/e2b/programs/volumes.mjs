// Volumes and what is in them, and secrets, with the JavaScript client.
import assert from 'node:assert/strict'

export const close = async () => {}

export async function case_files_of_a_volume(e2b) {
  const volume = await e2b.Volume.create('js-content')
  await volume.writeFile('/a.txt', 'hello')
  assert.equal(await volume.readFile('/a.txt'), 'hello')
  assert.deepEqual(Buffer.from(await volume.readFile('/a.txt', { format: 'bytes' })), Buffer.from('hello'))
  const stream = await volume.readFile('/a.txt', { format: 'stream' })
  assert.equal(await new Response(stream).text(), 'hello')
  await volume.writeFile('/blob', new Blob(['blob']), { mode: 0o600, uid: 0 })
  const found = await volume.getInfo('/blob')
  assert.deepEqual([found.size, found.mode, found.uid, found.type], [4, 0o600, 0, 'file'])
  await volume.makeDir('/d/e', { force: true })
  assert.deepEqual((await volume.list('/')).map((entry) => entry.path), ['/a.txt', '/blob', '/d'])
  assert.deepEqual((await volume.list('/', { depth: 2 })).map((entry) => entry.path), ['/a.txt', '/blob', '/d', '/d/e'])
  assert.equal((await volume.updateMetadata('/d', { mode: 0o711 })).mode, 0o711)
  await volume.remove('/d')
  assert.equal(await volume.exists('/d'), false)
  await assert.rejects(volume.readFile('/nothing'), (error) => /NotFound/.test(error.name))
  const again = await e2b.Volume.connect(volume.volumeId)
  assert.equal(await again.readFile('/a.txt'), 'hello')
  assert.equal(await e2b.Volume.destroy(volume.volumeId), true)
}

export async function case_secrets_are_kept_without_showing_them(e2b) {
  const made = await e2b.Secret.create('js-key', 'canary', { metadata: { team: 'blue' } })
  assert.deepEqual([made.name, made.version, made.metadata], ['js-key', 1, { team: 'blue' }])
  assert.equal((await e2b.Secret.update('js-key', 'canary-2')).version, 2)
  assert.deepEqual((await e2b.Secret.list().nextItems()).map((entry) => entry.name), ['js-key'])
  assert.equal(await e2b.Secret.exists('js-key'), true)
  assert.equal(await e2b.Secret.destroy('js-key'), true)
  assert.equal(await e2b.Secret.exists('js-key'), false)
}
