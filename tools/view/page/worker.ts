// The worker that decodes a run beside the page, so that the page answers meanwhile.

import { decodeBundle } from "./bundle";
import { buildDetail } from "./detail";

self.onmessage = async (message: MessageEvent) => {
  try {
    let bytes: ArrayBuffer = message.data.bytes;
    if (message.data.packed) {
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      bytes = await new Response(stream).arrayBuffer();
    }
    const bundle = decodeBundle(bytes);
    const detail = bundle.run === undefined ? [] : buildDetail(bundle.run.columns);
    (self as unknown as { postMessage(data: unknown, move: Transferable[]): void }).postMessage({ bundle, detail }, [bytes]);
  } catch (error) {
    self.postMessage({ error: error instanceof Error ? error.message : String(error) });
  }
};
