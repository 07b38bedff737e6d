import type { Options, Player } from 'asciinema-player';

declare module 'asciinema-player' {
  /** The form of a source that follows a running session; the package documents it but leaves it out of its types. */
  export function create(
    src: { readonly driver: 'websocket'; readonly url: string },
    containerElement: HTMLElement,
    opts?: Options,
  ): Player;
}
