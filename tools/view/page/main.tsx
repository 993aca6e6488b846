// Gets the run, from the page itself or from the server beside it, and shows it: a recorded run, a plan with its simulated
// run, or a run that goes on.

import { h, render } from "preact";
import { App } from "./app";
import { Live } from "./live";
import workerText from "./worker.bundled.js";

async function runOfPage(): Promise<{ bytes: ArrayBuffer; packed: boolean }> {
  const inside = document.getElementById("run");
  if (inside !== null) {
    const text = atob((inside.textContent || "").trim());
    const packed = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
    return { bytes: packed.buffer, packed: true };
  }
  const answer = await fetch("run");
  if (!answer.ok) throw new Error(`weir view answered ${answer.status}`);
  return { bytes: await answer.arrayBuffer(), packed: false };
}

function say(text: string, isError: boolean): void {
  const place = document.getElementById("say")!;
  place.textContent = text;
  place.className = isError ? "error" : "note";
}

async function start(): Promise<void> {
  if (document.documentElement.dataset.shows === "live") {
    render(<Live />, document.body, document.getElementById("say")!);
    return;
  }
  const { bytes, packed } = await runOfPage();
  const worker = new Worker(URL.createObjectURL(new Blob([workerText], { type: "text/javascript" })));
  worker.onmessage = (message) => {
    if (message.data.error) return say(message.data.error, true);
    const place = document.getElementById("say")!;
    const { bundle, detail } = message.data;
    document.title = `${bundle.title} – Weir`;
    render(<App bundle={bundle} detail={detail} />, document.body, place);
    document.documentElement.dataset.ready = "yes";
  };
  worker.onerror = (event) => say(`the page cannot read the run: ${event.message}`, true);
  worker.postMessage({ bytes, packed }, [bytes]);
}

start().catch((error) => say(`the page cannot get the run: ${error.message}. Is weir view still running?`, true));
