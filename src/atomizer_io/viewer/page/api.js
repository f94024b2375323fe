// Requests to the server, with the token of the address; arrays come behind a line of JSON.

const KEY = "atomizer-token";
const notebook = window.atomizer; // messages to a kernel instead of a server
const token = notebook ? "" : location.hash.slice(1) || sessionStorage.getItem(KEY) || "";
if (!notebook && location.hash) {
  sessionStorage.setItem(KEY, token); // a reload finds it again
  history.replaceState(null, "", location.pathname);
}
const TYPES = { uint8: Uint8Array, float32: Float32Array, float64: Float64Array };
const waiting = new Map();

export class Failure extends Error {}

export async function request(name, values = {}, doing = "working …") {
  const mark = Symbol(name);
  waiting.set(mark, doing);
  const timer = setTimeout(showBusy, 200);
  try {
    const { status, type, bytes } = await (notebook ? notebook.request(name, values) : fetched(name, values));
    const text = () => JSON.parse(new TextDecoder().decode(bytes));
    if (status !== 200) throw new Failure(type.startsWith("application/json") ? sentence(text().error) : `The server failed (${status}).`);
    return type.startsWith("application/json") ? text() : bytes;
  } finally {
    clearTimeout(timer);
    waiting.delete(mark);
    showBusy();
  }
}

async function fetched(name, values) {
  try {
    const reply = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Atomizer-Token": token },
      body: JSON.stringify(values),
    });
    return { status: reply.status, type: reply.headers.get("Content-Type") ?? "", bytes: await reply.arrayBuffer() };
  } catch {
    throw new Failure("The server has ended: start `atomizer view` again.");
  }
}

export async function arrays(name, values, doing) {
  const reply = await request(name, values, doing);
  const bytes = ArrayBuffer.isView(reply) ? new Uint8Array(reply.buffer, reply.byteOffset, reply.byteLength) : new Uint8Array(reply);
  const end = bytes.indexOf(10);
  const facts = JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)));
  let at = end + 1;
  for (const { name: key, type, bytes: length } of facts.arrays) {
    facts[key] = new TYPES[type](bytes.slice(at, at + length).buffer);
    at += length;
  }
  return facts;
}

// Runs the latest of many calls: while one is under way, only the last that came meanwhile waits.
export function latest(work) {
  let running = false;
  let next = null;
  return async (...values) => {
    next = values;
    if (running) return;
    running = true;
    try {
      while (next) {
        const now = next;
        next = null;
        await guarded(() => work(...now));
      }
    } finally {
      running = false;
    }
  };
}

export async function guarded(work) {
  const box = document.getElementById("message");
  try {
    box.hidden = true;
    return await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    box.replaceChildren(error.message);
    box.hidden = false;
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

function showBusy() {
  const box = document.getElementById("busy");
  box.hidden = waiting.size === 0;
  if (waiting.size) box.replaceChildren([...waiting.values()].at(-1));
}
