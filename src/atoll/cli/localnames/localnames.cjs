// Names under `.localhost` lead to this machine (RFC 6761), for Node on a host whose resolver forgets it.
// `atoll env` has it required, through NODE_OPTIONS, only where it is needed.
'use strict'
const dns = require('node:dns')

const isLocal = (host) => typeof host === 'string' && /\.localhost\.?$/i.test(host)
const lookup = dns.lookup
dns.lookup = (host, ...rest) => lookup(isLocal(host) ? '127.0.0.1' : host, ...rest)
const lookupPromise = dns.promises.lookup
dns.promises.lookup = (host, ...rest) => lookupPromise(isLocal(host) ? '127.0.0.1' : host, ...rest)
