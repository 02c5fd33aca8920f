// Notes which public methods of the packages a program calls itself, and which of their options it gives.
// Calls that the package makes of its own methods are not counted: they happen inside one that is.
import { AsyncLocalStorage } from 'node:async_hooks'

const inside = new AsyncLocalStorage()
const seen = new Map()

const isPlain = (value) => value?.constructor === Object
const note = (name, args) => {
  const options = seen.get(name) ?? new Set()
  seen.set(name, options)
  for (const value of args.filter(isPlain)) {
    for (const [key, one] of Object.entries(value)) {
      if (one === undefined) continue
      options.add(key)
      if (['network', 'lifecycle', 'query', 'onTimeout'].includes(key) && isPlain(one)) note_fields(options, key, one)
    }
  }
}
const note_fields = (options, key, value) => {
  for (const [field, one] of Object.entries(value)) {
    options.add(`${key}.${field}`)
    if (field === 'onTimeout' && isPlain(one)) note_fields(options, field, one)
  }
}

function watchOne(owner, key, name) {
  const { value, writable } = Object.getOwnPropertyDescriptor(owner, key)
  if (typeof value !== 'function' || !writable || key === 'constructor' || key.startsWith('_')) return
  owner[key] = function (...args) {
    if (inside.getStore()) return value.apply(this, args)
    note(name, args)
    const given = inside.run(true, () => value.apply(this, args))
    given?.then?.(meet, () => {})
    return given
  }
}

const watched = new Set()
function watchClass(label, one) {
  if (!one?.prototype || watched.has(one)) return
  watched.add(one)
  for (const key of Object.getOwnPropertyNames(one)) watchOne(one, key, `${label}.static ${key}`)
  for (const key of Object.getOwnPropertyNames(one.prototype)) watchOne(one.prototype, key, `${label}.${key}`)
  const parent = Object.getPrototypeOf(one)
  if (parent.prototype) watchClass(label, parent)
}

/** Begins; parts of a sandbox and handles are met as calls give them. */
export function watch(e2b) {
  for (const name of ['Sandbox', 'Volume', 'Secret']) watchClass(name, e2b[name])
  watchClass('Template', e2b.TemplateBase)
  if (e2b.Template.build) watchClass('Template', e2b.Template) // of the older package it is a class of its own
}

function meet(value) {
  if (value?.files && value?.commands) {
    for (const part of ['commands', 'pty', 'files', 'git']) watchClass(part, value[part]?.constructor)
  } else if (typeof value?.wait === 'function') watchClass('CommandHandle', value.constructor)
  else if (typeof value?.stop === 'function') watchClass('WatchHandle', value.constructor)
}

export const told = () => Object.fromEntries([...seen].map(([name, options]) => [name, [...options].sort()]))
