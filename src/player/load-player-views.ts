/** Loads the script of the views with a terminal. The list does not need this script. */
import type * as views from './player-views.ts';
import { ScriptError } from './script-error.ts';

export type PlayerViews = typeof views;

let loaded: PlayerViews | undefined;

/** Returns the views, if they are loaded. */
export function playerViews(): PlayerViews | undefined {
  return loaded;
}

/** @throws ScriptError with a sentence for the viewer */
export async function loadPlayerViews(): Promise<PlayerViews> {
  try {
    return (loaded ??= await import('./player-views.ts'));
  } catch (error) {
    throw new ScriptError('A script of this page cannot be loaded.', { cause: error });
  }
}
