// Gets the run, from the page itself or from the server beside it, and shows it: a recorded run, a plan with its
// simulated run, or a run that goes on.

import { h, render } from "preact";
import { App } from "./app";
import { Bundle, complete } from "./bundle";
import { QueueDetail } from "./detail";
import { Live } from "./live";
import workerText from "./worker.bundled.js";

const LOOK_MS = 200;

async function runOfPage(): Promise<{ bytes: ArrayBuffer; packed: boolean }> {
  const inside = document.getElementById("run");
  if (inside !== null) {
    const text = atob((inside.textContent || "").trim());
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
    return { bytes: packed.buffer, packed: true };
  }
  const answer = await fetch("run");
  if (!answer.ok) {
    const { failed } = await progress();
    throw new Error(failed === undefined ? `weir view answered ${answer.status}` : failed);
  }
  return { bytes: await answer.arrayBuffer(), packed: false };
}

function say(text: string, isError: boolean): void {
  const place = document.getElementById("say")!;
  place.textContent = text;
  place.className = isError ? "error" : "note";
}

// Sends bytes to the worker and returns its answer. Questions are asked one at a time.
function ask(worker: Worker, question: { bytes: ArrayBuffer; packed: boolean; isAnalysis: boolean }): Promise<any> {
  return new Promise((resolve, reject) => {
    worker.onmessage = (message) => message.data.error ? reject(new Error(message.data.error)) : resolve(message.data);
    worker.onerror = (event) => reject(new Error(`the page cannot read the run: ${event.message}`));
    worker.postMessage(question, [question.bytes]);
  });
}

// What the analysis of a run does.
interface Progress {
  ready: boolean;
  doing: string;
  failed?: string;
}

async function progress(): Promise<Progress> {
  const answer = await fetch("progress");
  if (!answer.ok) throw new Error(`weir view answered ${answer.status}`);
  return answer.json();
}

let shown: Element | undefined;

// Shows a run in the place of the note that it is read. Later calls change what is shown.
function show(bundle: Bundle, detail: QueueDetail[], doing: string): void {
  document.title = `${bundle.title} – Weir`;
  shown = render(<App bundle={bundle} detail={detail} doing={doing} />, document.body, shown ||
    document.getElementById("say")!);
}

// Shows a run of which the analysis is still to come, and completes it.
async function analyse(worker: Worker, bundle: Bundle, detail: QueueDetail[]): Promise<void> {
  let now = await progress();
  while (!now.ready) {
    show(bundle, detail, now.failed === undefined ? `The analysis goes on: weir view ${now.doing}.` :
      `The analysis failed: ${now.failed}`);
    document.documentElement.dataset.ready = "run";
    if (now.failed !== undefined) return;
    await new Promise((wake) => window.setTimeout(wake, LOOK_MS));
    now = await progress();
  }
  const answer = await fetch("analysis");
  if (!answer.ok) throw new Error(`weir view answered ${answer.status}`);
  const { analysis } = await ask(worker, { bytes: await answer.arrayBuffer(), packed: false, isAnalysis: true });
  complete(bundle.run!, analysis);
}

async function start(): Promise<void> {
  if (document.documentElement.dataset.shows === "live") {
    render(<Live />, document.body, document.getElementById("say")!);
    return;
  }
  const worker = new Worker(URL.createObjectURL(new Blob([workerText], { type: "text/javascript" })));
  const { bytes, packed } = await runOfPage();
  let decoded;
  try {
    decoded = await ask(worker, { bytes, packed, isAnalysis: false });
  } catch (error) {
    return say((error as Error).message, true);
  }
  const { bundle, detail } = decoded;
  if (bundle.run !== undefined && bundle.run.object.pending) {
    try {
      await analyse(worker, bundle, detail);
    } catch (error) {
      show(bundle, detail, `The page cannot get the analysis: ${(error as Error).message}. Is weir view still running?`);
      return;
    }
  }
  show(bundle, detail, "");
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => say(`the page cannot get the run: ${error.message}. Is weir view still running?`, true));
