/**
 * Types of the WebAssembly API that this folder uses (W3C JavaScript Interface §5). The types of Node.js do not include
 * them.
 */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
  }
  class Instance {
    constructor(module: Module);
    readonly exports: Readonly<Record<string, unknown>>;
  }
  class Memory {
    private constructor();
    readonly buffer: ArrayBuffer;
  }
}
