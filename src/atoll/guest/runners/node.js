// The JavaScript and TypeScript context: code runs in this process's own global scope, driven over a socket.
//
// Descriptor 3 is the connection to the guest: frames of a 32-bit big-endian length, one byte of kind, the payload.
"use strict";

const fs = require("fs");
const net = require("net");
const path = require("path");
const util = require("util");
const vm = require("vm");
const { createRequire } = require("module");
const { Readable } = require("stream");

const CONTROL = 0, STDOUT = 1, STDERR = 2, RESULT = 4;
const LINK_FD = 3;
const RESULT_BYTES_MAX = 10 * 1024 * 1024;
const TEXT_CHARS_MAX = 64 * 1024;
const DISPLAY = Symbol.for("Jupyter.display");
const language = process.argv[2];
const pause = new Int32Array(new SharedArrayBuffer(4));

let count = 0;
let stdin = null;
let stdinStream = null;
let rejectCurrent = null;

// Written at once and whole: a loop that never ends, or process.exit(), must not lose what was said before.
function send(kind, payload) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(payload.length, 0);
  head.writeUInt8(kind, 4);
  let rest = Buffer.concat([head, payload]);
  while (rest.length) {
    try {
      rest = rest.subarray(fs.writeSync(LINK_FD, rest));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

const sendControl = (message) => send(CONTROL, Buffer.from(JSON.stringify(message)));
const cut = (text) =>
  text.length <= TEXT_CHARS_MAX ? text : `${text.slice(0, TEXT_CHARS_MAX)}\n[cut: ${text.length - TEXT_CHARS_MAX} characters]`;

function redirect(stream, kind) {
  stream.write = (chunk, encoding, callback) => {
    const data = typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk;
    for (let at = 0; at < data.length; at += 512 * 1024) send(kind, Buffer.from(data.subarray(at, at + 512 * 1024)));
    const done = typeof encoding === "function" ? encoding : callback;
    if (done) process.nextTick(done);
    return true;
  };
}

function forms(value) {
  if (value !== null && typeof value === "object" && typeof value[DISPLAY] === "function") return value[DISPLAY]();
  return { "text/plain": util.inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: TEXT_CHARS_MAX }) };
}

function show(data, main) {
  let body = Buffer.from(JSON.stringify({ data, main }));
  if (body.length > RESULT_BYTES_MAX) {
    const note = `[cut: a result of ${body.length} bytes is over the limit of ${RESULT_BYTES_MAX} bytes]`;
    body = Buffer.from(JSON.stringify({ data: { "text/plain": note }, main }));
  }
  send(RESULT, body);
}

function display(value) {
  show(forms(value), false);
}

// --- from what a person types to what an interpreter runs again and again ---

function find(name) {
  for (const base of [process.cwd() + "/", "/usr/share/nodejs/", __filename]) {
    try {
      return createRequire(base)(name);
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return null;
}

let acorn;
let babel;

function strip(code) {
  babel ??= find("@babel/core");
  const preset = babel && find("@babel/preset-typescript");
  if (!preset) throw new Error("TypeScript needs @babel/core and @babel/preset-typescript, which are not in this template");
  const options = { allowAwaitOutsideFunction: true, allowReturnOutsideFunction: false };
  return babel.transformSync(code, {
    filename: "cell.ts", babelrc: false, configFile: false, sourceType: "module", parserOpts: options,
    generatorOpts: { retainLines: true }, presets: [[preset.default || preset, { onlyRemoveTypeImports: true }]],
    plugins: [{ visitor: {} }],
  }).code;
}

function names(pattern, found) {
  if (!pattern) return found;
  if (pattern.type === "Identifier") found.push(pattern.name);
  else if (pattern.type === "ObjectPattern") pattern.properties.forEach((entry) => names(entry.value || entry.argument, found));
  else if (pattern.type === "ArrayPattern") pattern.elements.forEach((entry) => names(entry, found));
  else if (pattern.type === "AssignmentPattern") names(pattern.left, found);
  else if (pattern.type === "RestElement") names(pattern.argument, found);
  return found;
}

function waits(node) {
  if (!node || typeof node !== "object") return false;
  if (Array.isArray(node)) return node.some(waits);
  if (node.type === "AwaitExpression" || (node.type === "ForOfStatement" && node.await)) return true;
  if (node.type === "ImportDeclaration") return true;
  if (/Function|MethodDefinition|PropertyDefinition/.test(node.type || "")) return false;
  return Object.keys(node).some((key) => key !== "type" && waits(node[key]));
}

function imported(node) {
  const from = `await import(${JSON.stringify(node.source.value)})`;
  const all = node.specifiers.find((entry) => entry.type === "ImportNamespaceSpecifier");
  if (all) return { names: [all.local.name], text: `${all.local.name} = ${from};` };
  const pairs = node.specifiers.map((entry) =>
    `${entry.type === "ImportDefaultSpecifier" ? "default" : entry.imported.name || JSON.stringify(entry.imported.value)}: ${entry.local.name}`);
  if (!pairs.length) return { names: [], text: `${from};` };
  return { names: node.specifiers.map((entry) => entry.local.name), text: `({${pairs.join(", ")}} = ${from});` };
}

// Names of the top level become variables of the global object, so that a cell can be run twice. With `await` the code
// goes into an async function, and its names are declared outside of it.
function prepare(code) {
  acorn ??= find("acorn");
  if (!acorn) return { code, wrapped: false };
  const options = { ecmaVersion: "latest", allowAwaitOutsideFunction: true, allowHashBang: true };
  let tree;
  try {
    tree = acorn.parse(code, { ...options, sourceType: "script" });
  } catch (error) {
    if (!/import|export/.test(code)) return { code, wrapped: false };  // the engine's own words about it are better
    try {
      tree = acorn.parse(code, { ...options, sourceType: "module" });
    } catch {
      return { code, wrapped: false };
    }
  }
  const wrapped = waits(tree.body);
  const declared = [], hoisted = [], parts = [];
  tree.body.forEach((node, number) => {
    let text = code.slice(node.start, node.end);
    if (/^Export(Named|Default)Declaration$/.test(node.type) && node.declaration) {
      node = node.declaration;
      text = code.slice(node.start, node.end);
    }
    if (node.type === "VariableDeclaration" && !wrapped) {
      text = `var${text.slice(node.kind.length)}`;
    } else if (node.type === "VariableDeclaration") {
      node.declarations.forEach((entry) => names(entry.id, declared));
      const sets = node.declarations.map((entry) =>
        `(${code.slice(entry.id.start, entry.id.end)} = ${entry.init ? code.slice(entry.init.start, entry.init.end) : "undefined"})`);
      text = `void (${sets.join(", ")});`;
    } else if (node.type === "ClassDeclaration" && node.id) {
      if (wrapped) declared.push(node.id.name);
      text = `${wrapped ? "" : "var "}${node.id.name} = ${text};`;
    } else if (node.type === "FunctionDeclaration" && wrapped && node.id) {
      hoisted.push(`globalThis.${node.id.name} = ${node.id.name};`);
    } else if (node.type === "ImportDeclaration") {
      const made = imported(node);
      declared.push(...made.names);
      text = made.text;
    } else if (wrapped && node.type === "ExpressionStatement" && number === tree.body.length - 1) {
      text = `return { value: (${code.slice(node.expression.start, node.expression.end)}\n) };`;
    }
    parts.push("\n".repeat(Math.max(0, code.slice(0, node.start).split("\n").length - parts.join("").split("\n").length)) + text);
  });
  const body = parts.join(parts.length && wrapped ? "" : ";");
  if (!wrapped) return { code: parts.join(""), wrapped };
  const outside = declared.length ? `var ${[...new Set(declared)].join(", ")};` : "";
  return { code: `${outside}(async () => {${hoisted.join("")}${body}\n})()`, wrapped };
}

async function execute(code) {
  const prepared = prepare(language === "typescript" ? strip(code) : code);
  const script = new vm.Script(prepared.code, {
    filename: `cell-${count}`,
    importModuleDynamically: (name) => import(/^\.{0,2}\//.test(name) ? path.resolve(name) : resolve(name)),
  });
  let value = script.runInThisContext({ breakOnSigint: true });
  if (util.types.isPromise(value)) {
    const stopped = new Promise((_, reject) => { rejectCurrent = reject; });
    value = await Promise.race([value, stopped]);
  }
  return prepared.wrapped ? value && value.value : value;
}

function resolve(name) {
  try {
    const found = createRequire(process.cwd() + "/").resolve(name);
    return path.isAbsolute(found) ? found : name;
  } catch {
    return name;
  }
}

function interrupted() {
  return Object.assign(new Error("the code was interrupted"), { name: "KeyboardInterrupt", stack: "" });
}

function fail(error) {
  if (error && error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") error = interrupted();
  const isError = util.types.isNativeError(error) || error instanceof Error;
  const stack = isError ? String(error.stack || "").split("\n").filter((line) => !line.includes(__filename) && !/node:(vm|internal)/.test(line)).join("\n") : "";
  sendControl({
    type: "error", name: cut(isError ? String(error.name) : "Thrown"),
    value: cut(isError ? String(error.message) : util.inspect(error)), traceback: cut(stack),
  });
}

async function run(request) {
  count += 1;
  stdin = request.stdin ?? null;
  stdinStream = null;
  Object.assign(process.env, request.base_env || {});
  const before = Object.fromEntries(Object.keys(request.env || {}).map((name) => [name, process.env[name]]));
  Object.assign(process.env, request.env || {});
  let exitCode = 0;
  try {
    const value = await execute(request.code);
    if (value !== undefined) show(forms(value), true);
  } catch (error) {
    exitCode = 1;
    fail(error);
  } finally {
    rejectCurrent = null;
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  }
  sendControl({ type: "done", count, exit_code: exitCode });
}

// A question that nobody answers would wait for ever.
function refuseQuestions(prototype) {
  const ask = prototype.question;
  prototype.question = function question(...words) {
    if (this.input === stdinStream && (stdin === null || stdinStream.readableEnded)) {
      const why = stdin === null ? "input is not possible here: nobody is there to answer" : "the input that was given is used up";
      throw Object.assign(new Error(why), { name: stdin === null ? "InputNotPossible" : "EOFError" });
    }
    return ask.apply(this, words);
  };
}

function prepareGlobals() {
  redirect(process.stdout, STDOUT);
  redirect(process.stderr, STDERR);
  const readFile = fs.readFileSync;
  fs.readFileSync = (file, options) => {
    if (stdin === null || (file !== 0 && file !== "/dev/stdin")) return readFile(file, options);
    const encoding = typeof options === "string" ? options : options && options.encoding;
    return encoding ? Buffer.from(stdin).toString(encoding) : Buffer.from(stdin);
  };
  // One stream for each run, made when it is asked for: whoever listens to it twice listens to the same.
  const current = () => (stdinStream ??= Readable.from(stdin ? [stdin] : []));
  Object.defineProperty(process, "stdin", { configurable: true, get: current });
  for (const name of ["readline", "readline/promises"]) refuseQuestions(require(name).Interface.prototype);
  const own = createRequire(process.cwd() + "/");
  Object.assign(globalThis, { require: own, module: { exports: {} }, exports: {}, display });
  process.on("SIGINT", () => rejectCurrent && rejectCurrent(interrupted()));
  process.on("uncaughtException", (error) => process.stderr.write(`Uncaught ${util.inspect(error)}\n`));
  process.on("unhandledRejection", (error) => process.stderr.write(`Unhandled rejection: ${util.inspect(error)}\n`));
}

function serve() {
  const link = new net.Socket({ fd: LINK_FD, readable: true, writable: false });
  let buffer = Buffer.alloc(0);
  let queue = Promise.resolve();
  link.on("data", (data) => {
    buffer = Buffer.concat([buffer, data]);
    while (buffer.length >= 5 && buffer.length >= 5 + buffer.readUInt32BE(0)) {
      const end = 5 + buffer.readUInt32BE(0);
      const request = JSON.parse(buffer.subarray(5, end).toString());
      buffer = buffer.subarray(end);
      if (request.do === "run") queue = queue.then(() => run(request));
      else if (request.do === "interrupt") rejectCurrent && rejectCurrent(interrupted());
      else if (request.do === "warm") { acorn ??= find("acorn"); prepare("1"); }
    }
  });
  link.on("close", () => process.exit(0));
}

prepareGlobals();
serve();
sendControl({ type: "ready" });
