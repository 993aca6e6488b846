// These declarations are of what the page uses and the libraries do not declare.

// The bundled worker, as a text.
declare module "*.bundled.js" {
  const text: string;
  export default text;
}

declare class DecompressionStream {
  constructor(format: "gzip");
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
}
