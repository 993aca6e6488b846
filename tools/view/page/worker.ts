// The worker that decodes a run, or the analysis of a run, beside the page, so that the page answers meanwhile.

import { decodeAnalysis, decodeBundle } from "./bundle";
import { buffersOf, buildDetail } from "./detail";

const answer = self as unknown as { postMessage(data: unknown, move: Transferable[]): void };

self.onmessage = async (message: MessageEvent) => {
  try {
    let bytes: ArrayBuffer = message.data.bytes;
    if (message.data.packed) {
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      bytes = await new Response(stream).arrayBuffer();
    }
    if (message.data.isAnalysis) {
      answer.postMessage({ analysis: decodeAnalysis(bytes) }, [bytes]);
      return;
    }
    const bundle = decodeBundle(bytes);
    const detail = bundle.run === undefined ? [] : buildDetail(bundle.run.columns);
    answer.postMessage({ bundle, detail }, [bytes, ...buffersOf(detail)]);
  } catch (error) {
    self.postMessage({ error: error instanceof Error ? error.message : String(error) });
  }
};
