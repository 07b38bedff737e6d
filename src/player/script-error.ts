/** A script of the page that cannot be loaded, usually after an upgrade of the recorder. */
export class ScriptError extends Error {
  override readonly name = 'ScriptError';
}
