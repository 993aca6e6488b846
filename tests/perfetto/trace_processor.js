// Runs Perfetto's own trace processor, as WebAssembly, on a trace, and prints the answer of one SQL query a line, as JSON.
//
//   node trace_processor.js FOLDER TRACE SQL...
//
// FOLDER has engine_bundle.js and trace_processor*.wasm of Perfetto's pages (tools/deps/install --with-perfetto). The
// bundle is what the pages run in a worker: it gets a port and speaks frames of protobuf through it
// (perfetto/trace_processor/trace_processor.proto, TraceProcessorRpcStream).
'use strict';
const fs = require('fs');
const path = require('path');

const [folder, trace, ...queries] = process.argv.slice(2);
const kAppend = 1, kFinalize = 2, kQuery = 3;  // TraceProcessorMethod
const kChunkBytes = 8 << 20;

// --- protobuf, as much of it as is needed

function varint(value) {
  const bytes = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push(value % 128 | 128);
  return Buffer.from([...bytes, value]);
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

// [field, value] of each field; numbers as BigInt, the rest as bytes.
function* fields(buffer) {
  let at = 0;
  const readVarint = () => {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      const byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < buffer.length) {
    const tag = Number(readVarint());
    const field = tag >> 3, type = tag & 7;
    if (type === 0) yield [field, readVarint()];
    else {
      const length = type === 1 ? 8 : type === 5 ? 4 : Number(readVarint());
      yield [field, buffer.subarray(at, at += length)];
    }
  }
}
function* packedVarints(buffer) {
  for (const [, value] of fields(Buffer.concat([...buffer].flatMap((b, i, all) => i === 0 || all[i - 1] < 128 ? [Buffer.from([8, b])] : [Buffer.from([b])])))) yield value;
}

// --- the worker's world

class FileRequest {  // what a worker loads its module with, from the folder instead of the network
  open(_, name) { this.name = name; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.name)));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
    if (this.onload) this.onload();
  }
}
// The bundle sees a worker's names in place of Node's.
const silent = {log() {}, warn() {}, error() {}};
const worker = {location: {href: 'file:///'}};
const names = {self: worker, location: worker.location, process: undefined, console: silent, XMLHttpRequest: FileRequest, WorkerGlobalScope: class {}};
new Function(...Object.keys(names), fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'))(...Object.values(names));

// --- requests and answers, one after another

let sequence = 0, received = Buffer.alloc(0), waiting = null;
const port = {
  postMessage(data) {
    received = Buffer.concat([received, Buffer.from(data)]);
    for (const [, frame] of takeFrames()) waiting(frame);
  },
};
function takeFrames() {
  const frames = [...fields(received)];  // a reply ends with a frame
  received = Buffer.alloc(0);
  return frames;
}
const send = (method, argument) =>
    port.onmessage({data: Uint8Array.from(bytes(1, Buffer.concat([number(1, ++sequence), number(2, method), argument])))});

function failIfFatal(frame) {
  for (const [field, value] of fields(frame)) if (field === 5) throw new Error(`trace processor: ${value}`);
}

function append(chunk) {
  waiting = (frame) => {
    failIfFatal(frame);
    for (const [field, result] of fields(frame)) {
      if (field !== 201) continue;
      for (const [f, text] of fields(result)) if (f === 2) throw new Error(`trace processor: ${text}`);
    }
  };
  send(kAppend, bytes(101, chunk));
}

// Rows of a query, each an object by column.
function query(sql) {
  const columns = [], cells = [];
  waiting = (frame) => {
    failIfFatal(frame);
    for (const [field, result] of fields(frame)) {
      if (field !== 203) continue;
      for (const [f, value] of fields(result)) {
        if (f === 1) columns.push(value.toString());
        if (f === 2) throw new Error(`${sql}: ${value}`);
        if (f === 3) cells.push(...batchCells(value));
      }
    }
  };
  send(kQuery, bytes(103, bytes(1, Buffer.from(sql))));
  const rows = [];
  for (let i = 0; i < cells.length; i += columns.length) rows.push(Object.fromEntries(columns.map((name, c) => [name, cells[i + c]])));
  return rows;
}

function* batchCells(batch) {
  const parts = {1: [], 2: [], 3: [], 5: []};
  for (const [field, value] of fields(batch)) if (parts[field]) parts[field].push(value);
  const all = (field) => Buffer.concat(parts[field]);
  const varints = packedVarints(all(2)), doubles = all(3), strings = all(5).toString().split('\0');
  let d = 0, s = 0;
  for (const type of packedVarints(all(1))) {
    if (type === 1n) yield null;
    else if (type === 2n) yield Number(BigInt.asIntN(64, varints.next().value));
    else if (type === 3n) yield doubles.readDoubleLE(8 * d++);
    else if (type === 4n) yield strings[s++];
    else throw new Error(`a cell of type ${type}`);
  }
}

function main() {
  const file = fs.readFileSync(trace);
  for (let at = 0; at < file.length; at += kChunkBytes) append(file.subarray(at, at + kChunkBytes));
  waiting = failIfFatal;
  send(kFinalize, Buffer.alloc(0));
  for (const sql of queries) console.log(JSON.stringify(query(sql)));
}

worker.onmessage({data: port});
// The module is loaded by now, and ready once what it has promised has been done.
setImmediate(() => {
  try {
    main();
  } catch (error) {
    console.error(String(error.message || error).slice(0, 2000));
    process.exitCode = 1;
  }
});
