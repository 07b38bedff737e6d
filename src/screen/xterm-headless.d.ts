/**
 * Types of the module path that both Node.js and the bundler of the page can load. The entry points in the package's
 * `package.json` refer to a missing file.
 */
declare module '@xterm/headless/lib-headless/xterm-headless.mjs' {
  export { Terminal, type IBufferCell } from '@xterm/headless';
}
