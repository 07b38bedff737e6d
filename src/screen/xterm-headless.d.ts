/** The same module for Node and for the page's bundler: the package's own entries name a file that it does not have. */
declare module '@xterm/headless/lib-headless/xterm-headless.mjs' {
  export { Terminal, type IBufferCell } from '@xterm/headless';
}
